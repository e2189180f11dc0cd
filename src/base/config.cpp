// The parts of the configuration that know nothing of each other; the timing models' and the whole are checked where
// the models are known (src/timing/config.cpp, src/command_set/config.cpp).
#include "flashmob/config.h"

#include <string_view>

#include "base/config_checks.h"

namespace flashmob {
namespace {

using namespace config_checks;

constexpr std::uint64_t kMaxNamespaceBytes = std::uint64_t{64} << 40;
constexpr std::uint64_t kMaxCacheBytes = std::uint64_t{1} << 40;
constexpr std::size_t kMaxNamespaces = 256;
// Bounds that no device needs but that keep sums of times and sizes far from overflow.
constexpr std::uint64_t kMaxLatencyNs = 3'600'000'000'000;
constexpr std::uint64_t kMaxSleepNs = 10'000'000'000;
constexpr std::uint64_t kMaxSpareBytes = kMaxNamespaceBytes * kMaxNamespaces;
constexpr std::uint32_t kMaxCore = 1023;  // what a cpu_set_t holds
constexpr std::uint32_t kMaxWheelShift = 20;
constexpr std::uint64_t kMaxHandles = 128;  // of a namespace's list (NVM command set 1.1, 4.1.6)
constexpr std::uint64_t kMaxStreams = 255;
constexpr std::uint64_t kMaxReclaimUnitBytes = std::uint64_t{1} << 40;
constexpr std::size_t kMaxNqnBytes = 223;  // NVMe Base 2.0c, 4.5

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

void check_namespace(const std::string& key, const NamespaceConfig& ns) {
  if (ns.lba_bytes != 512 && ns.lba_bytes != 4096) {
    reject(key + ".lba_bytes", std::to_string(ns.lba_bytes), "use 512 or 4096");
  }
  const std::string_view media = ns.media;
  const bool backed = media.starts_with("file:") || media.starts_with("direct:") || media.starts_with("cow:");
  const bool has_path = backed && media.find(':') + 1 < media.size();
  if (media != "memory" && media != "generated" && !has_path) {
    reject(key + ".media", quoted(media), "use memory, generated, file:PATH, direct:PATH or cow:PATH");
  }
  const std::string size = std::to_string(ns.size_bytes);
  if (ns.size_bytes == 0 && !backed) {
    reject(key + ".size_bytes", size, "give a size; only file:, direct: and cow: media can take that of their file");
  }
  if (ns.size_bytes > kMaxNamespaceBytes) reject(key + ".size_bytes", size, "use at most 64 TiB (70368744177664)");
  if (ns.cache_bytes > kMaxCacheBytes)
    reject(key + ".cache_bytes", std::to_string(ns.cache_bytes), "use at most 1 TiB (1099511627776)");
  if (ns.size_bytes % ns.lba_bytes != 0) {
    reject(key + ".size_bytes", size, "use a multiple of lba_bytes (" + std::to_string(ns.lba_bytes) + ")");
  }
}

void check_placement(const PlacementConfig& placement) {
  const std::string key = "subsystem.placement.";
  if (placement.handles == 0) return;
  check_range(key + "handles", placement.handles, 2, kMaxHandles);
  check_range(key + "reclaim_groups", placement.reclaim_groups, 1, kMaxStreams / placement.handles);
  if (placement.reclaim_unit_bytes == 0) return;
  check_range(key + "reclaim_unit_bytes", placement.reclaim_unit_bytes, 4096, kMaxReclaimUnitBytes);
  if (placement.reclaim_unit_bytes % 4096 != 0)
    reject(key + "reclaim_unit_bytes", std::to_string(placement.reclaim_unit_bytes), "use a multiple of 4096");
}

}  // namespace

void SubsystemConfig::validate() const {
  check_ascii("subsystem.nqn", nqn, kMaxNqnBytes);
  if (!nqn.starts_with("nqn.")) {
    reject("subsystem.nqn", quoted(nqn), "use an NVMe qualified name such as nqn.2014-08.org.nvmexpress:uuid:<UUID>");
  }
  check_ascii("subsystem.serial", serial, 20);
  check_ascii("subsystem.model", model, 40);
  check_ascii("subsystem.firmware", firmware, 8);
  check_placement(placement);
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
  if (max_append_bytes != 0)
    check_power_of_two("controller.max_append_bytes", max_append_bytes, 4096, max_transfer_bytes);
  check_range("controller.interrupt_vectors", interrupt_vectors, 1, 4097);
  check_range("controller.abort_limit", abort_limit, 1, 256);
  check_range("controller.async_event_limit", async_event_limit, 1, 256);
}

void EngineConfig::validate() const {
  check_one_of("engine.kind", kind, {"host", "gpu"});
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

}  // namespace flashmob
