#include "flashmob/config.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <string_view>

#include "base/check.h"

namespace flashmob {
namespace {

constexpr std::uint64_t kMaxNamespaceBytes = std::uint64_t{64} << 40;
constexpr std::size_t kMaxNamespaces = 256;
// Bounds that no device needs but that keep sums of times and sizes far from overflow.
constexpr std::uint64_t kMaxLatencyNs = 3'600'000'000'000;
constexpr double kMaxServiceNs = 1e12;  // of one unit by one instance; src/timing counts up to 2^40 ns
constexpr std::uint64_t kMaxPathNs = 5'000;
constexpr std::uint64_t kMaxSleepNs = 10'000'000'000;
constexpr std::uint64_t kMinBytesPerS = 1'000'000;
constexpr std::uint64_t kMaxBytesPerS = 10'000'000'000'000;  // beyond, a sector's time is no longer exact to 1 %
constexpr std::uint64_t kMaxSpareBytes = kMaxNamespaceBytes * kMaxNamespaces;
constexpr std::uint32_t kMaxCore = 1023;  // what a cpu_set_t holds
constexpr std::uint32_t kMaxWheelShift = 20;
constexpr std::size_t kMaxNqnBytes = 223;  // NVMe Base 2.0c, 4.5
constexpr const char* kGpuEngine = "gpu";
// What one multiprocessor of a GPU engine serves, and what its warps move at once (gpu/engine/layout.h).
constexpr std::uint32_t kGpuQueuesPerSm = 256;
constexpr std::uint32_t kGpuMaxTransferBytes = 128 << 10;

// Every message is "key = value is not possible: fix", so that a user sees at once what to change where.
[[noreturn]] void reject(const std::string& key, const std::string& value, const std::string& fix) {
  throw ConfigError(key + " = " + value + " is not possible: " + fix);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 64)) out += c >= 0x20 && c < 0x7F ? c : '?';
  return out + (text.size() > 64 ? "...\"" : "\"");
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

void check_range(const std::string& key, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high) return;
  reject(key, std::to_string(value), "use " + std::to_string(low) + " to " + std::to_string(high));
}

void check_power_of_two(const std::string& key, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high && std::has_single_bit(value)) return;
  reject(key, std::to_string(value), "use a power of two from " + std::to_string(low) + " to " + std::to_string(high));
}

void check_one_of(const std::string& key, const std::string& value, std::initializer_list<const char*> allowed) {
  std::string list;
  for (const char* word : allowed) {
    if (value == word) return;
    list += (list.empty() ? "" : ", ") + std::string(word);
  }
  reject(key, quoted(value), "use one of " + list);
}

// Identify data holds these as space-padded ASCII (NVMe Base 2.0c, 1.4.2).
void check_ascii(const std::string& key, const std::string& value, std::size_t max_bytes) {
  bool printable = true;
  for (const char c : value) printable = printable && c >= 0x20 && c < 0x7F;
  if (printable && !value.empty() && value.size() <= max_bytes) return;
  reject(key, quoted(value), "use 1 to " + std::to_string(max_bytes) + " printable ASCII characters");
}

void check_share(const std::string& key, double value) {
  if (value >= 0.0 && value <= 1.0) return;  // false for NaN too
  reject(key, number(value), "use a share from 0 to 1");
}

void check_rate(const std::string& direction, double iops, std::uint64_t latency_ns) {
  const std::string rate_key = "timing." + direction + "_iops";
  const std::string latency_key = "timing." + direction + "_latency_ns";
  if (!(std::isfinite(iops) && iops > 0.0)) {
    reject(rate_key, number(iops), "use a finite rate above 0, in requests per second");
  }
  check_range(latency_key, latency_ns, 0, kMaxLatencyNs);
}

// N instances that together reach the rate serve a unit in N / rate each; the rest of the latency follows that.
double service_ns_of(const TimingConfig& timing, double iops) {
  return static_cast<double>(timing.instances) * 1e9 / iops;
}

// What the model can count; it would have to cut a longer time short.
void check_service(const TimingConfig& timing, const std::string& direction, double iops) {
  if (timing.model == "none") return;  // neither rate nor latency is used
  if (service_ns_of(timing, iops) <= kMaxServiceNs) return;
  reject("timing." + direction + "_iops", number(iops),
         "with timing.instances = " + std::to_string(timing.instances) + " use at least " +
             number(static_cast<double>(timing.instances) * 1e9 / kMaxServiceNs) + ", or fewer instances");
}

// Reads only: a write may be answered from a buffer before it is served, a read has nothing to answer with.
void check_read_holds_service(const TimingConfig& timing) {
  if (timing.model == "none") return;
  const double service_ns = service_ns_of(timing, timing.read_iops);
  if (service_ns > static_cast<double>(timing.read_latency_ns)) {
    reject("timing.read_latency_ns", std::to_string(timing.read_latency_ns),
           "with timing.instances = " + std::to_string(timing.instances) +
               " and timing.read_iops = " + number(timing.read_iops) + " a unit alone takes " + number(service_ns) +
               " ns; raise the latency or the rate, or use fewer instances");
  }
}

void check_bytes_per_s(const std::string& key, std::uint64_t value) {
  if (value == 0 || (value >= kMinBytesPerS && value <= kMaxBytesPerS)) return;
  reject(key, std::to_string(value), "use 0 for no limit, or 1000000 (1 MB/s) to 10000000000000 (10 TB/s)");
}

std::uint64_t smaller_limit(std::uint64_t a, std::uint64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

void check_namespace(const std::string& key, const NamespaceConfig& ns) {
  if (ns.lba_bytes != 512 && ns.lba_bytes != 4096) {
    reject(key + ".lba_bytes", std::to_string(ns.lba_bytes), "use 512 or 4096");
  }
  const std::string_view media = ns.media;
  const bool backed = media.starts_with("file:") || media.starts_with("cow:");
  const bool has_path = backed && media.find(':') + 1 < media.size();
  if (media != "memory" && media != "generated" && !has_path) {
    reject(key + ".media", quoted(media), "use memory, generated, file:PATH or cow:PATH");
  }
  const std::string size = std::to_string(ns.size_bytes);
  if (ns.size_bytes == 0 && !backed) {
    reject(key + ".size_bytes", size, "give a size; only file: and cow: media can take that of their file");
  }
  if (ns.size_bytes > kMaxNamespaceBytes) reject(key + ".size_bytes", size, "use at most 64 TiB (70368744177664)");
  if (ns.size_bytes % ns.lba_bytes != 0) {
    reject(key + ".size_bytes", size, "use a multiple of lba_bytes (" + std::to_string(ns.lba_bytes) + ")");
  }
}

void check_gpu_engine(const DeviceConfig& config) {
  const ControllerConfig& controller = config.controller;
  const std::string why = " (engine.kind = \"gpu\")";
  const std::uint32_t pairs = kGpuQueuesPerSm * config.engine.sms;
  if (controller.max_queue_pairs > pairs)
    reject("controller.max_queue_pairs", std::to_string(controller.max_queue_pairs),
           "use at most " + std::to_string(pairs) + ", or raise engine.sms" + why);
  if (controller.max_transfer_bytes > kGpuMaxTransferBytes)
    reject("controller.max_transfer_bytes", std::to_string(controller.max_transfer_bytes),
           "use at most " + std::to_string(kGpuMaxTransferBytes) + why);
  if (config.timing.per_request_updates)
    reject("timing.per_request_updates", "true", "the model is updated once per batch" + why);
  if (!config.faults.empty())
    reject("faults", "a list of " + std::to_string(config.faults.size()), "only the host's engine shows faults" + why);
  if (!config.engine.move_data) reject("engine.move_data", "false", "data are always moved" + why);
  for (std::size_t i = 0; i < config.subsystem.namespaces.size(); ++i) {
    const std::string& media = config.subsystem.namespaces[i].media;
    if (media != "memory" && !media.starts_with("cow:"))
      reject("subsystem.namespaces[" + std::to_string(i) + "].media", quoted(media),
             "use memory or cow:PATH, which need nothing of the host for a command" + why);
  }
}

}  // namespace

void TimingConfig::validate() const {
  check_one_of("timing.model", model, {"none", "simple"});
  check_power_of_two("timing.instances", instances, 1, 1024);
  check_power_of_two("timing.unit_bytes", unit_bytes, 512, 1 << 20);
  check_range("timing.path_ns", path_ns, 0, kMaxPathNs);
  check_rate("read", read_iops, read_latency_ns);
  check_rate("write", write_iops, write_latency_ns);
  check_read_holds_service(*this);
  check_service(*this, "read", read_iops);
  check_service(*this, "write", write_iops);
  check_bytes_per_s("timing.read_bytes_per_s", read_bytes_per_s);
  check_bytes_per_s("timing.write_bytes_per_s", write_bytes_per_s);
  check_bytes_per_s("timing.link_bytes_per_s", link_bytes_per_s);
}

std::uint64_t TimingConfig::read_limit_bytes_per_s() const { return smaller_limit(read_bytes_per_s, link_bytes_per_s); }
std::uint64_t TimingConfig::write_limit_bytes_per_s() const {
  return smaller_limit(write_bytes_per_s, link_bytes_per_s);
}

void SubsystemConfig::validate() const {
  check_ascii("subsystem.nqn", nqn, kMaxNqnBytes);
  if (!nqn.starts_with("nqn.")) {
    reject("subsystem.nqn", quoted(nqn), "use an NVMe qualified name such as nqn.2014-08.org.nvmexpress:uuid:<UUID>");
  }
  check_ascii("subsystem.serial", serial, 20);
  check_ascii("subsystem.model", model, 40);
  check_ascii("subsystem.firmware", firmware, 8);
  check_range("subsystem.spare_capacity_bytes", spare_capacity_bytes, 0, kMaxSpareBytes);
  if (namespaces.size() > kMaxNamespaces || (namespaces.empty() && spare_capacity_bytes == 0)) {
    reject("subsystem.namespaces", "a list of " + std::to_string(namespaces.size()),
           "use 1 to " + std::to_string(kMaxNamespaces) +
               " namespaces (none only with subsystem.spare_capacity_bytes, to create them later)");
  }
  for (std::size_t i = 0; i < namespaces.size(); ++i) {
    check_namespace("subsystem.namespaces[" + std::to_string(i) + "]", namespaces[i]);
  }
}

void ControllerConfig::validate() const {
  check_range("controller.max_queue_pairs", max_queue_pairs, 1, 4096);
  check_range("controller.max_queue_entries", max_queue_entries, 2, 65536);
  check_power_of_two("controller.max_transfer_bytes", max_transfer_bytes, 4096, 16 << 20);
  check_range("controller.interrupt_vectors", interrupt_vectors, 1, 4097);
  check_range("controller.abort_limit", abort_limit, 1, 256);
  check_range("controller.async_event_limit", async_event_limit, 1, 256);
}

void EngineConfig::validate() const {
  check_one_of("engine.kind", kind, {"host", kGpuEngine});
  check_range("engine.sms", sms, 1, 1024);
  check_one_of("engine.gpu_media", gpu_media, {"host", "device"});
  check_range("engine.units", units, 1, 64);
  check_range("engine.workers", workers, 0, 16);
  check_range("engine.fetch_limit", fetch_limit, 1, 1024);
  for (std::size_t i = 0; i < cores.size(); ++i) {
    check_range("engine.cores[" + std::to_string(i) + "]", cores[i], 0, kMaxCore);
  }
  check_one_of("engine.copy", copy, {"auto", "memcpy", "avx2", "avx512", "nontemporal", "dsa"});
  check_range("engine.idle_spin_ns", idle_spin_ns, 0, kMaxLatencyNs);
  check_range("engine.idle_sleep_ns", idle_sleep_ns, 1, kMaxSleepNs);
  check_range("engine.wheel_shift", wheel_shift, 0, kMaxWheelShift);
}

void FidelityConfig::validate() const {
  check_share("fidelity.max_iops_error", max_iops_error);
  check_range("fidelity.max_error_ns", max_error_ns, 0, kMaxLatencyNs);
  check_share("fidelity.max_error_share", max_error_share);
  check_range("fidelity.gap_ns", gap_ns, 1, kMaxLatencyNs);
}

void DeviceConfig::validate() const {
  subsystem.validate();
  controller.validate();
  timing.validate();
  engine.validate();
  fidelity.validate();
  if (engine.kind == kGpuEngine) check_gpu_engine(*this);
}

DeviceConfig on_gpu_engine(DeviceConfig config, std::uint32_t sms) {
  config.engine.kind = kGpuEngine;
  config.engine.sms = sms;
  ControllerConfig& controller = config.controller;
  controller.max_queue_pairs = std::min(controller.max_queue_pairs, kGpuQueuesPerSm * sms);
  controller.max_transfer_bytes = std::min(controller.max_transfer_bytes, kGpuMaxTransferBytes);
  return config;
}

}  // namespace flashmob
