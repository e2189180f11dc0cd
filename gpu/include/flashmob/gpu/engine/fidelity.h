// How truthful the GPU engine is, gathered on the device: the sums and distributions of engine::FidelityStats. Each
// lane of a completer adds up its own requests in registers, and all of them enter their sums when there is nothing
// else to do; of large batches, a sample goes into the distributions, as the host engine does. Compiles as CUDA device
// code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/engine/layout.h"
#include "flashmob/gpu/simt/word.h"

namespace flashmob::gpu::engine {

// As engine/stats.h: batches of more than kSampleAbove are sampled. The period is prime.
inline constexpr std::uint32_t kSampleAbove = 8;
inline constexpr std::uint32_t kSampleEvery = 13;

class Account {
 public:
  // Switched off, it counts nothing of requests: what it costs is the difference.
  FLASHMOB_HD Account(DeviceFidelity* phases, DeviceCounts* counts, std::uint32_t phase, bool is_on)
      : phases_(phases), counts_(counts), phase_(phase), is_on_(is_on) {}

  // A request whose completion is posted at `now_ns`, with `batch` of them, as number `rank` of its queue's.
  template <class Lane>
  FLASHMOB_HD void completed(Lane& t, const Request& request, std::uint64_t now_ns, std::uint32_t batch,
                             std::uint32_t rank) {
    if (!is_on_) return;
    const std::uint64_t lateness_ns = now_ns > request.target_ns ? now_ns - request.target_ns : 0;
    const std::uint64_t model_ns = request.target_ns - request.fetched_ns;
    ++completions_;
    target_sum_ns_ += model_ns;
    lateness_sum_ns_ += lateness_ns;
    if (lateness_ns > lateness_max_ns_) lateness_max_ns_ = lateness_ns;
    if (request.controller != controller_) flush_counts(t);
    controller_ = request.controller;
    const bool failed = request.status != 0;
    if (request.operation == Operation::read || request.operation == Operation::compare) {
      read_commands_ += failed ? 0 : 1;
      read_bytes_ += failed ? 0 : request.bytes;
    } else if (request.operation == Operation::write) {
      write_commands_ += failed ? 0 : 1;
      written_bytes_ += failed ? 0 : request.bytes;
    }
    const bool all = batch <= kSampleAbove;
    if (!all && (completions_ + rank) % kSampleEvery != 0) return;
    const std::uint64_t weight = all ? 1 : kSampleEvery;
    DeviceFidelity& sums = phases_[phase_];
    const auto enter = [&](DeviceFidelity::Count* counts, std::uint64_t value) {
      counts[histogram_bucket(value)].fetch_add(t, weight, simt::Order::relaxed);
    };
    enter(sums.target_ns, model_ns);
    enter(sums.processing_ns, now_ns - request.fetched_ns);
    enter(sums.lateness_ns, lateness_ns);
  }
  FLASHMOB_HD void late_by_copy() { ++late_by_copy_; }
  FLASHMOB_HD void bad_doorbell() { ++bad_doorbells_; }

  template <class Lane>
  FLASHMOB_HD void set_phase(Lane& t, std::uint32_t phase) {
    flush(t);
    phase_ = phase;
  }

  // Enters what this lane has added up.
  template <class Lane>
  FLASHMOB_HD void flush(Lane& t) {
    DeviceFidelity& sums = phases_[phase_];
    enter(t, sums.bad_doorbells, bad_doorbells_);
    if (completions_ == 0) return;
    enter(t, sums.completions, completions_);
    enter(t, sums.target_sum_ns, target_sum_ns_);
    enter(t, sums.lateness_sum_ns, lateness_sum_ns_);
    enter(t, sums.late_by_copy, late_by_copy_);
    flush_counts(t);
    std::uint64_t seen = sums.lateness_max_ns.load(t, simt::Order::relaxed);
    while (seen < lateness_max_ns_ &&
           !sums.lateness_max_ns.compare_exchange(t, seen, lateness_max_ns_, simt::Order::relaxed)) {
    }
    lateness_max_ns_ = 0;
  }

 private:
  template <class Lane, class Value>
  FLASHMOB_HD static void enter(Lane& t, DeviceFidelity::Count& count, Value& value) {
    if (value != 0) count.fetch_add(t, value, simt::Order::relaxed);
    value = 0;
  }
  template <class Lane>
  FLASHMOB_HD void flush_counts(Lane& t) {
    DeviceCounts& counts = counts_[controller_];
    enter(t, counts.read_commands, read_commands_);
    enter(t, counts.write_commands, write_commands_);
    enter(t, counts.read_bytes, read_bytes_);
    enter(t, counts.written_bytes, written_bytes_);
  }

  DeviceFidelity* phases_;
  DeviceCounts* counts_;
  std::uint32_t phase_;
  std::uint32_t controller_ = 0;  // that the lane counts commands and bytes for
  bool is_on_;
  std::uint32_t completions_ = 0;
  std::uint32_t late_by_copy_ = 0;
  std::uint32_t bad_doorbells_ = 0;
  std::uint32_t read_commands_ = 0;
  std::uint32_t write_commands_ = 0;
  std::uint64_t target_sum_ns_ = 0;
  std::uint64_t lateness_sum_ns_ = 0;
  std::uint64_t lateness_max_ns_ = 0;
  std::uint64_t read_bytes_ = 0;
  std::uint64_t written_bytes_ = 0;
};

}  // namespace flashmob::gpu::engine
