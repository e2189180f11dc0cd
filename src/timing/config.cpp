// [timing], checked in the room that knows the models by name; each model checks its own parameters.
#include <cmath>

#include "base/config_checks.h"
#include "flashmob/config.h"
#include "timing/registry.h"

namespace flashmob {
namespace {

using namespace config_checks;

// Bounds that no device needs but that keep sums of times and sizes far from overflow.
constexpr std::uint64_t kMaxLatencyNs = 3'600'000'000'000;
constexpr std::uint64_t kMaxPathNs = 5'000;
constexpr std::uint64_t kMinBytesPerS = 1'000'000;
constexpr std::uint64_t kMaxBytesPerS = 10'000'000'000'000;  // beyond, a sector's time is no longer exact to 1 %

void check_rate(const std::string& direction, double iops, std::uint64_t latency_ns) {
  const std::string rate_key = "timing." + direction + "_iops";
  const std::string latency_key = "timing." + direction + "_latency_ns";
  if (!(std::isfinite(iops) && iops > 0.0)) {
    reject(rate_key, number(iops), "use a finite rate above 0, in requests per second");
  }
  check_range(latency_key, latency_ns, 0, kMaxLatencyNs);
}

void check_bytes_per_s(const std::string& key, std::uint64_t value) {
  if (value == 0 || (value >= kMinBytesPerS && value <= kMaxBytesPerS)) return;
  reject(key, std::to_string(value), "use 0 for no limit, or 1000000 (1 MB/s) to 10000000000000 (10 TB/s)");
}

std::uint64_t smaller_limit(std::uint64_t a, std::uint64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

}  // namespace

void TimingConfig::validate() const {
  const timing::ModelEntry& entry = timing::model_named(model);
  check_power_of_two("timing.instances", instances, 1, 1024);
  check_power_of_two("timing.unit_bytes", unit_bytes, 512, 1 << 20);
  check_range("timing.path_ns", path_ns, 0, kMaxPathNs);
  check_rate("read", read_iops, read_latency_ns);
  check_rate("write", write_iops, write_latency_ns);
  check_bytes_per_s("timing.read_bytes_per_s", read_bytes_per_s);
  check_bytes_per_s("timing.write_bytes_per_s", write_bytes_per_s);
  check_bytes_per_s("timing.link_bytes_per_s", link_bytes_per_s);
  entry.check(*this);
}

std::uint64_t TimingConfig::read_limit_bytes_per_s() const { return smaller_limit(read_bytes_per_s, link_bytes_per_s); }
std::uint64_t TimingConfig::write_limit_bytes_per_s() const {
  return smaller_limit(write_bytes_per_s, link_bytes_per_s);
}

}  // namespace flashmob
