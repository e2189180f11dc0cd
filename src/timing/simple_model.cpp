// The timing model `simple` (simple.h) in its three forms, and what its parameters may be.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <sstream>
#include <vector>

#include "base/check.h"
#include "base/config_checks.h"
#include "timing/host_atomics.h"
#include "timing/registry.h"
#include "timing/simple.h"
#include "timing/simple_params.h"

namespace flashmob::timing {
namespace {

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

namespace {

using namespace config_checks;

constexpr double kMaxServiceNs = 1e12;  // of one unit by one instance; the model counts up to 2^40 ns

// N instances that together reach the rate serve a unit in N / rate each; the rest of the latency follows that.
double service_ns_of(const TimingConfig& timing, double iops) {
  return static_cast<double>(timing.instances) * 1e9 / iops;
}

// What the model can count; it would have to cut a longer time short.
void check_service(const TimingConfig& timing, const std::string& direction, double iops) {
  if (service_ns_of(timing, iops) <= kMaxServiceNs) return;
  reject("timing." + direction + "_iops", number(iops),
         "with timing.instances = " + std::to_string(timing.instances) + " use at least " +
             number(static_cast<double>(timing.instances) * 1e9 / kMaxServiceNs) + ", or fewer instances");
}

// Reads only: a write may be answered from a buffer before it is served, a read has nothing to answer with.
void check_read_holds_service(const TimingConfig& timing) {
  const double service_ns = service_ns_of(timing, timing.read_iops);
  if (service_ns > static_cast<double>(timing.read_latency_ns)) {
    reject("timing.read_latency_ns", std::to_string(timing.read_latency_ns),
           "with timing.instances = " + std::to_string(timing.instances) +
               " and timing.read_iops = " + number(timing.read_iops) + " a unit alone takes " + number(service_ns) +
               " ns; raise the latency or the rate, or use fewer instances");
  }
}

void check_simple(const TimingConfig& config) {
  check_read_holds_service(config);
  check_service(config, "read", config.read_iops);
  check_service(config, "write", config.write_iops);
}

std::unique_ptr<TimingModel> make_simple(const TimingConfig& config, bool shared, const DeviceShape&) {
  if (config.per_request_updates) return std::make_unique<SharedModel<Update::per_request>>(config);
  if (shared) return std::make_unique<SharedModel<Update::per_batch>>(config);
  return std::make_unique<ExclusiveModel>(config);
}

}  // namespace

const ModelEntry kSimpleModel{.name = "simple",
                              .check = check_simple,
                              .make = make_simple,
                              .is_timed = true,
                              .on_gpu = true,
                              .takes_rates = true};

}  // namespace flashmob::timing
