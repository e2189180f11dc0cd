// The timing models that a configuration can name: `none` and the three forms of `simple` (simple.h).
#include "timing/model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <sstream>
#include <vector>

#include "base/check.h"
#include "timing/host_atomics.h"
#include "timing/simple.h"
#include "timing/simple_params.h"

namespace flashmob::timing {
namespace {

// Every request is done when it is fetched: the device as fast as the machine can emulate it.
class NoneModel final : public TimingModel {
 public:
  void schedule(std::span<const Demand> batch, std::uint64_t now_ns, std::span<std::uint64_t> targets_ns) override {
    FLASHMOB_CHECK(targets_ns.size() == batch.size());
    std::fill(targets_ns.begin(), targets_ns.end(), now_ns);
  }
  void reset() override {}
  void set_path_ns(std::uint64_t) override {}
  std::string describe() const override { return "none"; }
};

std::string describe_simple(const TimingConfig& config, const char* form) {
  std::ostringstream text;
  text << "simple (" << form << "): reads " << config.read_iops << " IOPS at " << config.read_latency_ns
       << " ns, writes " << config.write_iops << " IOPS at " << config.write_latency_ns << " ns, " << config.instances
       << (config.instances == 1 ? " instance" : " instances") << ", unit " << config.unit_bytes << " bytes";
  if (const std::uint64_t bytes = config.read_limit_bytes_per_s()) text << ", reads up to " << bytes << " bytes/s";
  if (const std::uint64_t bytes = config.write_limit_bytes_per_s()) text << ", writes up to " << bytes << " bytes/s";
  return text.str();
}

SimpleParams with_path(TimingConfig config, std::uint64_t path_ns) {
  config.path_ns = path_ns;
  return simple_params(config);
}

// One dispatcher: plain memory, one pass over the batch.
class ExclusiveModel final : public TimingModel {
 public:
  explicit ExclusiveModel(const TimingConfig& config)
      : config_(config), params_(simple_params(config)), description_(describe_simple(config, "exclusive")) {}

  void schedule(std::span<const Demand> batch, std::uint64_t now_ns, std::span<std::uint64_t> targets_ns) override {
    FLASHMOB_CHECK(targets_ns.size() == batch.size());
    latest_ = simple_walk(params_, free_at_.data(), batch.data(), batch.size(), now_ns, targets_ns.data(), latest_);
  }
  void reset() override {
    free_at_.fill(0);
    latest_ = 0;
  }
  std::string describe() const override { return description_; }
  void set_path_ns(std::uint64_t path_ns) override { params_ = with_path(config_, path_ns); }

 private:
  const TimingConfig config_;
  SimpleParams params_;
  std::uint64_t latest_ = 0;
  alignas(kCacheLineBytes) std::array<std::uint64_t, kMaxInstances + kLinkDirections> free_at_{};
  std::string description_;
};

enum class Update : std::uint8_t { per_batch, per_request };

// Several dispatchers: one atomic word per instance.
template <Update kUpdate>
class SharedModel final : public TimingModel {
 public:
  explicit SharedModel(const TimingConfig& config)
      : config_(config),
        params_(simple_params(config)),
        instances_(config.instances + kLinkDirections),
        description_(
            describe_simple(config, kUpdate == Update::per_batch ? "shared, per batch" : "shared, per request")) {}

  void schedule(std::span<const Demand> batch, std::uint64_t now_ns, std::span<std::uint64_t> targets_ns) override {
    FLASHMOB_CHECK(targets_ns.size() == batch.size());
    if (kUpdate == Update::per_batch && is_worth_aggregating(params_, batch.data(), batch.size()))
      aggregate(batch, now_ns, targets_ns);
    else
      simple_schedule_one_by_one(params_, instances_.data(), batch.data(), batch.size(), now_ns, targets_ns.data());
  }
  void reset() override {
    for (auto& instance : instances_) instance.free_at.store(0, std::memory_order_relaxed);
  }
  std::string describe() const override { return description_; }
  void set_path_ns(std::uint64_t path_ns) override { params_ = with_path(config_, path_ns); }

 private:
  // Apart from the single request's way, which its stack of 10 KiB would burden.
  [[gnu::noinline]] void aggregate(std::span<const Demand> batch, std::uint64_t now_ns,
                                   std::span<std::uint64_t> targets_ns) {
    SimpleScratch scratch;
    simple_schedule_shared(params_, instances_.data(), scratch, batch.data(), batch.size(), now_ns, targets_ns.data());
  }

  const TimingConfig config_;
  SimpleParams params_;
  std::vector<SimpleInstance<HostAtomics>> instances_;
  std::string description_;
};

// The bounds, 18 minutes of service for a unit, keep sums over any real load far from wrapping.
std::uint64_t service_ticks(double service_ns, double at_least) {
  constexpr double kMaxService = 0x1.0p50;
  const double ticks = service_ns * (std::uint64_t{1} << kTicksShift);
  return static_cast<std::uint64_t>(std::llround(std::clamp(ticks, at_least, kMaxService)));
}

SimpleCost unit_cost(double iops, std::uint64_t latency_ns, std::uint32_t instances) {
  SimpleCost cost{};
  cost.service = service_ticks(1e9 * instances / iops, 1.0);
  // Below zero where a buffer answers before the service ends: added to a time, it wraps to the right one, because
  // that time is at least one service after a start.
  cost.min_latency = to_ticks(latency_ns) - cost.service;
  return cost;
}

// The link as another server of units: done the latency after the last unit's transfer began, but not before it ended,
// for what has not arrived cannot have been answered.
SimpleCost sector_cost(std::uint64_t bytes_per_s, std::uint64_t latency_ns, std::uint32_t unit_bytes) {
  constexpr std::uint32_t kSectorBytes = 512;
  SimpleCost cost{};
  if (bytes_per_s == 0) return cost;
  cost.service = service_ticks(1e9 * kSectorBytes / static_cast<double>(bytes_per_s), 1.0);
  const std::uint64_t latency = to_ticks(latency_ns);
  cost.min_latency = latency - std::min(latency, cost.service * (unit_bytes / kSectorBytes));
  return cost;
}

}  // namespace

SimpleParams simple_params(const TimingConfig& config) {
  // What the path takes is not taken a second time by the model.
  const std::uint64_t read_latency_ns = config.read_latency_ns - std::min(config.read_latency_ns, config.path_ns);
  const std::uint64_t write_latency_ns = config.write_latency_ns - std::min(config.write_latency_ns, config.path_ns);
  FLASHMOB_CHECK(std::has_single_bit(config.instances) && config.instances <= kMaxInstances);
  SimpleParams params;
  params.mask = config.instances - 1;
  params.shift = static_cast<std::uint32_t>(std::countr_zero(config.instances));
  params.cost[static_cast<std::uint8_t>(DemandKind::read)] =
      unit_cost(config.read_iops, read_latency_ns, config.instances);
  params.cost[static_cast<std::uint8_t>(DemandKind::write)] =
      unit_cost(config.write_iops, write_latency_ns, config.instances);
  params.link[static_cast<std::uint8_t>(DemandKind::read)] =
      sector_cost(config.read_limit_bytes_per_s(), read_latency_ns, config.unit_bytes);
  params.link[static_cast<std::uint8_t>(DemandKind::write)] =
      sector_cost(config.write_limit_bytes_per_s(), write_latency_ns, config.unit_bytes);
  for (const SimpleCost& cost : params.link) params.has_link = params.has_link || cost.service != 0;
  return params;
}

std::unique_ptr<TimingModel> make_model(const TimingConfig& config, bool shared) {
  config.validate();
  if (config.model == "none") return std::make_unique<NoneModel>();
  FLASHMOB_CHECK(config.model == "simple");
  if (config.per_request_updates) return std::make_unique<SharedModel<Update::per_request>>(config);
  if (shared) return std::make_unique<SharedModel<Update::per_batch>>(config);
  return std::make_unique<ExclusiveModel>(config);
}

}  // namespace flashmob::timing
