// What the tests of the simple model share: the definition word by word, and the three forms of the model behind one
// face. For one thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "timing/host_atomics.h"
#include "timing/simple.h"

namespace flashmob::timing {

inline constexpr std::uint64_t kTick = 1;
inline constexpr std::uint64_t kNs = std::uint64_t{1} << kTicksShift;

inline Demand read_of(std::uint64_t first, std::uint32_t units = 1) { return {first, units, DemandKind::read, {}}; }
inline Demand write_of(std::uint64_t first, std::uint32_t units = 1) { return {first, units, DemandKind::write, {}}; }
inline Demand flush() { return {0, 0, DemandKind::flush, {}}; }
inline Demand immediate() { return {0, 0, DemandKind::immediate, {}}; }

inline SimpleParams make_params(std::uint32_t instances, SimpleCost read, SimpleCost write) {
  SimpleParams params;
  params.mask = instances - 1;
  while ((1u << params.shift) < instances) ++params.shift;
  params.cost[static_cast<std::uint8_t>(DemandKind::read)] = read;
  params.cost[static_cast<std::uint8_t>(DemandKind::write)] = write;
  return params;
}

// The definition, word by word: one unit after another, no closed form, no running maximum.
class Oracle {
 public:
  explicit Oracle(const SimpleParams& params) : params_(params), free_at_(instances_of(params), 0) {}

  std::vector<std::uint64_t> schedule(const std::vector<Demand>& batch, std::uint64_t now_ns) {
    const std::uint64_t now = now_ns * kNs;
    std::vector<std::uint64_t> targets;
    for (const Demand& demand : batch) {
      std::uint64_t done = now;
      if (demand.kind == DemandKind::flush) {
        for (const std::uint64_t time : free_at_) done = std::max(done, time);
        for (const std::uint64_t time : carried_) done = std::max(done, time);
      } else if (demand.kind != DemandKind::immediate) {
        const SimpleCost cost = params_.cost[static_cast<std::uint8_t>(demand.kind)];
        for (std::uint64_t i = 0; i < demand.units; ++i) {
          std::uint64_t& time = free_at_[(demand.first_unit + i) % free_at_.size()];
          time = std::max(time, now) + cost.service;
          done = std::max(done, time);
        }
        done += cost.min_latency;
        const SimpleCost link = params_.link[static_cast<std::uint8_t>(demand.kind)];
        if (link.service != 0 && demand.sectors != 0) {
          std::uint64_t& time = carried_[demand.kind == DemandKind::write ? 1 : 0];
          time = std::max(time, now);
          for (std::uint64_t i = 0; i < demand.sectors; ++i) time += link.service;
          done = std::max(done, time + link.min_latency);
        }
      }
      targets.push_back((done + kNs - 1) / kNs);
    }
    return targets;
  }
  // Of the instances and, behind them, of the link's directions.
  std::vector<std::uint64_t> free_at() const {
    std::vector<std::uint64_t> all = free_at_;
    all.insert(all.end(), std::begin(carried_), std::end(carried_));
    return all;
  }

 private:
  SimpleParams params_;
  std::vector<std::uint64_t> free_at_;
  std::uint64_t carried_[kLinkDirections] = {};
};

// The forms under test behind one face.
class Forms {
 public:
  explicit Forms(const SimpleParams& params)
      : params_(params),
        exclusive_(instances_of(params) + kLinkDirections, 0),
        aggregated_(instances_of(params) + kLinkDirections),
        one_by_one_(instances_of(params) + kLinkDirections) {}

  // Runs all three; the results must be equal, so one of them is answered.
  std::vector<std::uint64_t> schedule(const std::vector<Demand>& batch, std::uint64_t now_ns) {
    std::vector<std::uint64_t> a(batch.size()), b(batch.size()), c(batch.size());
    latest_ = simple_walk(params_, exclusive_.data(), batch.data(), batch.size(), now_ns, a.data(), latest_);
    auto scratch = std::make_unique<SimpleScratch>();
    // Whatever the scratch held before must not matter.
    for (auto& ticks : scratch->ticks) ticks = 0xDEADBEEFDEADBEEF;
    for (auto& touched : scratch->touched) touched = 0xFFFF;
    simple_schedule_shared(params_, aggregated_.data(), *scratch, batch.data(), batch.size(), now_ns, b.data());
    simple_schedule_one_by_one(params_, one_by_one_.data(), batch.data(), batch.size(), now_ns, c.data());
    EXPECT_EQ(a, b);
    EXPECT_EQ(a, c);
    return a;
  }
  void expect_state(const std::vector<std::uint64_t>& free_at) const {
    for (std::size_t u = 0; u < free_at.size(); ++u) {
      ASSERT_EQ(exclusive_[u], free_at[u]) << "exclusive, instance " << u;
      ASSERT_EQ(aggregated_[u].free_at.load(), free_at[u]) << "aggregated, instance " << u;
      ASSERT_EQ(one_by_one_[u].free_at.load(), free_at[u]) << "one by one, instance " << u;
    }
  }

 private:
  SimpleParams params_;
  std::uint64_t latest_ = 0;
  std::vector<std::uint64_t> exclusive_;
  std::vector<SimpleInstance<HostAtomics>> aggregated_, one_by_one_;
};

using Targets = std::vector<std::uint64_t>;

}  // namespace flashmob::timing
