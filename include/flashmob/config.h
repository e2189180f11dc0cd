// Everything that can be configured about an emulated SSD, with its defaults. Plain data: profiles (TOML), the command
// line, Python and C++ all fill these structures, and nothing else configures anything.
//
// validate() of each throws flashmob::ConfigError with the key and the fix; constructors of the components call it.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace flashmob {

// [timing.nand]: what a NAND drive is made of (src/timing/nand/params.h has the words). Its capacity is that of the
// subsystem, its mapping unit timing.unit_bytes, its link timing.link_bytes_per_s.
struct NandConfig {
  std::uint32_t channels = 8;          // 1...64
  std::uint32_t dies_per_channel = 4;  // 1...64
  std::uint32_t planes = 4;            // 1...16, programmed together
  std::uint32_t word_lines = 704;  // rows of a block, strings counted; a small drive has shorter blocks; 1...8192
  std::uint32_t bits_per_cell = 3;  // 1...4
  std::uint32_t page_bytes = 16384;  // of a plane, a power of two, 512...64 KiB
  // Spare space as a share of the capacity, beside the blocks that are open and those kept free; 0.01...4.
  double over_provisioning = 0.07;
  std::vector<std::uint32_t> read_ns{45'000, 60'000, 75'000};  // one for each page of a cell; 1...10^9
  std::uint32_t program_ns = 1'200'000;  // a word line on all planes; 1...10^9
  std::uint32_t erase_ns = 3'500'000;  // a block of word_lines; 1...10^9
  std::uint32_t suspend_ns = 0;  // until a read passes a running program or erase; 0: it waits for its end; up to 10^9
  std::uint32_t resume_ns = 0;  // what that takes of the program beyond the read; up to 10^9
  std::uint64_t channel_bytes_per_s = 1'200'000'000;  // 1 MB/s...10 TB/s
  double program_share = 0.5;  // of a channel, for data on its way to a program; above 0, up to 1
  std::uint32_t cores = 4;  // of firmware, 1...64
  std::uint32_t firmware_ns = 4'000;  // a command's, on one core; up to 10^9
  std::uint32_t correction_ns = 0;  // a read's, behind the channel; up to 10^9
  std::uint64_t buffer_bytes = std::uint64_t{16} << 20;  // the write buffer; at least four rows of a die
  std::uint32_t buffer_write_ns = 5'000;  // a write's time in it; up to 10^9
  bool protected_buffer = true;  // capacitors keep it over a power loss: Flush is cheap
  std::string victim = "greedy";  // greedy | fifo | d_choices | random
  std::uint32_t choices = 8;  // of d_choices, 1...64
  std::uint32_t free_superblocks = 2;  // that garbage collection keeps, 2...64
  // A cache of superblocks with one bit in each cell, as shares of the capacity that it holds: always there, and as far
  // as superblocks are free; 0...1 each.
  double slc_fixed = 0;
  double slc_dynamic = 0;
  bool slc_bypass = true;  // a full cache is passed by; false: writes wait until it is folded
  std::uint32_t slc_read_ns = 0;  // 1...10^9 with such a cache
  std::uint32_t slc_program_ns = 0;  // 1...10^9 with such a cache
  std::uint32_t idle_ns =
      0;  // without a request, until the cache is folded and garbage collected; 0: never; up to 10^9
  std::uint32_t idle_free_superblocks = 0;  // that collection in idle time makes; up to 65536
  std::uint32_t wear_spread = 0;  // erases by which superblocks may differ before data that stay are moved; 0: any
};

// Calls visit(name, member) for each key, in the order of the structure: what reads or writes them all.
template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, NandConfig>
void for_each_key(Config& nand, const Visit& visit) {
  visit("channels", nand.channels);
  visit("dies_per_channel", nand.dies_per_channel);
  visit("planes", nand.planes);
  visit("word_lines", nand.word_lines);
  visit("bits_per_cell", nand.bits_per_cell);
  visit("page_bytes", nand.page_bytes);
  visit("over_provisioning", nand.over_provisioning);
  visit("read_ns", nand.read_ns);
  visit("program_ns", nand.program_ns);
  visit("erase_ns", nand.erase_ns);
  visit("suspend_ns", nand.suspend_ns);
  visit("resume_ns", nand.resume_ns);
  visit("channel_bytes_per_s", nand.channel_bytes_per_s);
  visit("program_share", nand.program_share);
  visit("cores", nand.cores);
  visit("firmware_ns", nand.firmware_ns);
  visit("correction_ns", nand.correction_ns);
  visit("buffer_bytes", nand.buffer_bytes);
  visit("buffer_write_ns", nand.buffer_write_ns);
  visit("protected_buffer", nand.protected_buffer);
  visit("victim", nand.victim);
  visit("choices", nand.choices);
  visit("free_superblocks", nand.free_superblocks);
  visit("slc_fixed", nand.slc_fixed);
  visit("slc_dynamic", nand.slc_dynamic);
  visit("slc_bypass", nand.slc_bypass);
  visit("slc_read_ns", nand.slc_read_ns);
  visit("slc_program_ns", nand.slc_program_ns);
  visit("idle_ns", nand.idle_ns);
  visit("idle_free_superblocks", nand.idle_free_superblocks);
  visit("wear_spread", nand.wear_spread);
}

// [timing]: when a request is done (src/timing).
struct TimingConfig {
  std::string model = "simple";  // one of those that src/timing/registry.h lists
  // The rate that all instances reach together, in requests of one unit per second; > 0.
  double read_iops = 1e6;
  double write_iops = 1e6;
  // Latency of a request of one unit on an idle device, ns; at most an hour. A read's is at least its service time
  // (instances / rate); a write's may be less, where a buffer answers it before it is served.
  std::uint64_t read_latency_ns = 50'000;
  std::uint64_t write_latency_ns = 50'000;
  std::uint32_t instances = 1;  // scheduling instances N, a power of two, 1...1024
  std::uint32_t unit_bytes = 512;  // a power of two, 512...1 MiB
  // What reads, writes and the link carry at most, in either direction; 0: no limit, else 1 MB/s...10 TB/s. Of a
  // direction's own limit and the link's the smaller holds.
  std::uint64_t read_bytes_per_s = 0;
  std::uint64_t write_bytes_per_s = 0;
  std::uint64_t link_bytes_per_s = 0;
  // What the way from doorbell to fetch, and from the target to the host's eyes, takes by itself; the model's latencies
  // are shortened by it, so that a host sees the device's. Up to 5 us. 0: a benchmark in real time finds it out.
  std::uint64_t path_ns = 0;
  // Oracle only: update the shared state once per request instead of once per batch.
  bool per_request_updates = false;
  NandConfig nand;  // of model "nand" alone, which takes no rates and latencies from above

  // What holds for a direction: the smaller limit of its own and the link's; 0 where there is neither.
  std::uint64_t read_limit_bytes_per_s() const;
  std::uint64_t write_limit_bytes_per_s() const;
  void validate() const;
};

// The keys that are no tables of their own, as above.
template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, TimingConfig>
void for_each_key(Config& timing, const Visit& visit) {
  visit("model", timing.model);
  visit("read_iops", timing.read_iops);
  visit("write_iops", timing.write_iops);
  visit("read_latency_ns", timing.read_latency_ns);
  visit("write_latency_ns", timing.write_latency_ns);
  visit("instances", timing.instances);
  visit("unit_bytes", timing.unit_bytes);
  visit("read_bytes_per_s", timing.read_bytes_per_s);
  visit("write_bytes_per_s", timing.write_bytes_per_s);
  visit("link_bytes_per_s", timing.link_bytes_per_s);
  visit("path_ns", timing.path_ns);
  visit("per_request_updates", timing.per_request_updates);
}

// [subsystem.namespaces.zoned]: what a namespace of command set `zns` is divided into, and what its commands take.
// Times are up to an hour each; a list has one value, or two (for none of the zone and all of it), or six (for none,
// 1/16, 1/8, 1/4, 1/2 and all of it).
struct ZonedConfig {
  std::uint64_t zone_bytes = std::uint64_t{64}
                             << 20;  // ZSZE: a power of two, 4 KiB...64 TiB, of which the size is a multiple
  std::uint64_t zone_capacity_bytes = 0;  // ZCAP: a multiple of 4096 up to zone_bytes; 0: all of it
  std::uint32_t max_open_zones = 0;  // MOR + 1, up to max_active_zones; 0: no limit
  std::uint32_t max_active_zones = 0;  // MAR + 1; 0: no limit
  bool reads_cross_zones = true;  // OZCS: a Read may go on in the next zone
  std::uint32_t descriptor_extension_bytes = 0;  // ZDES: a multiple of 64 up to 16320
  std::vector<std::uint32_t> read_only_zones;  // that have failed so before the device was new, as ...
  std::vector<std::uint32_t> offline_zones;  // ... those that do not even answer reads
  std::uint64_t append_ns = 0;  // beyond a Write's time
  std::uint64_t open_ns = 0;
  std::uint64_t close_ns = 0;
  std::uint64_t finish_empty_ns = 0;  // of a zone that nothing was written to
  std::vector<std::uint64_t> finish_ns{0};  // of others, by the share that was not written
  std::vector<std::uint64_t> reset_ns{0};  // by the share that was written
  std::vector<std::uint64_t> reset_finished_ns{0};  // the same of zones that were finished
};

// Calls visit(name, member) for each key, in the order of the structure: what reads or writes them all.
template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, ZonedConfig>
void for_each_key(Config& zoned, const Visit& visit) {
  visit("zone_bytes", zoned.zone_bytes);
  visit("zone_capacity_bytes", zoned.zone_capacity_bytes);
  visit("max_open_zones", zoned.max_open_zones);
  visit("max_active_zones", zoned.max_active_zones);
  visit("reads_cross_zones", zoned.reads_cross_zones);
  visit("descriptor_extension_bytes", zoned.descriptor_extension_bytes);
  visit("read_only_zones", zoned.read_only_zones);
  visit("offline_zones", zoned.offline_zones);
  visit("append_ns", zoned.append_ns);
  visit("open_ns", zoned.open_ns);
  visit("close_ns", zoned.close_ns);
  visit("finish_empty_ns", zoned.finish_empty_ns);
  visit("finish_ns", zoned.finish_ns);
  visit("reset_ns", zoned.reset_ns);
  visit("reset_finished_ns", zoned.reset_finished_ns);
}

// [subsystem.namespaces.kv]: limits of a namespace of command set `kv`, and what its index takes. Times are up to an
// hour.
struct KeyValueConfig {
  std::uint32_t max_key_bytes = 16;  // KML, 1...16
  std::uint32_t max_value_bytes =
      1 << 20;  // VML, up to 16 MiB; hosts are told no more than controller.max_transfer_bytes
  std::uint32_t max_keys = 0;  // MNK, up to 2147483647; 0: as many as there is room for, up to 16777216
  std::uint32_t value_granularity_bytes = 512;  // NOVG, what a value is rounded up to: a power of two, 64...65536
  std::uint64_t lookup_ns = 0;  // of a command that names a key, beyond what the timing model says
  std::uint64_t list_key_ns = 0;  // of List, for each key
};

// Calls visit(name, member) for each key, in the order of the structure: what reads or writes them all.
template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, KeyValueConfig>
void for_each_key(Config& kv, const Visit& visit) {
  visit("max_key_bytes", kv.max_key_bytes);
  visit("max_value_bytes", kv.max_value_bytes);
  visit("max_keys", kv.max_keys);
  visit("value_granularity_bytes", kv.value_granularity_bytes);
  visit("lookup_ns", kv.lookup_ns);
  visit("list_key_ns", kv.list_key_ns);
}

// [subsystem.placement]: Flexible Data Placement. Hosts keep their writes apart by reclaim unit handles; in model
// `nand` each has superblocks of its own (docs/guide/placement.md).
struct PlacementConfig {
  std::uint32_t handles = 0;  // NRUH, 2...128; 0: the drive has no such thing
  // NRG, 1...128, with handles at most 255 streams together; 1 in model `nand`.
  std::uint32_t reclaim_groups = 1;
  bool persistently_isolated = false;  // garbage collection keeps them apart, too; else it may mix them
  // RUNS, 4 KiB...1 TiB, a multiple of 4096; 0: a superblock of model `nand`, in others 64 MiB.
  std::uint64_t reclaim_unit_bytes = 0;
  bool enabled = true;  // from the start; hosts may change it while there is no namespace (Set Features 1Dh)
};

// Calls visit(name, member) for each key, in the order of the structure: what reads or writes them all.
template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, PlacementConfig>
void for_each_key(Config& placement, const Visit& visit) {
  visit("handles", placement.handles);
  visit("reclaim_groups", placement.reclaim_groups);
  visit("persistently_isolated", placement.persistently_isolated);
  visit("reclaim_unit_bytes", placement.reclaim_unit_bytes);
  visit("enabled", placement.enabled);
}

// [[namespaces]]: one namespace (src/controller/subsystem.h).
struct NamespaceConfig {
  // A multiple of lba_bytes, up to 64 TiB; 0 with a medium of a file is the file's size.
  std::uint64_t size_bytes = std::uint64_t{1} << 30;
  std::uint32_t lba_bytes = 512;  // 512 or 4096
  std::string media = "memory";  // memory | generated | file:PATH | direct:PATH | cow:PATH
  std::string command_set = "nvm";  // one of those that src/command_set/registry.cpp lists
  ZonedConfig zoned{};  // of command set "zns"
  KeyValueConfig kv{};  // of command set "kv"
  // Reclaim unit handles of a drive with placement, each once: what its placement handles 0, 1 and so on are; none:
  // all.
  std::vector<std::uint32_t> placement_handles{};
  bool shared = true;  // attached to every controller, else to the first one only
  std::uint64_t cache_bytes = std::uint64_t{64} << 20;  // of direct:PATH, blocks kept in memory; 0...1 TiB
};

// The keys that are no tables of their own, as above.
template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, NamespaceConfig>
void for_each_key(Config& ns, const Visit& visit) {
  visit("size_bytes", ns.size_bytes);
  visit("lba_bytes", ns.lba_bytes);
  visit("media", ns.media);
  visit("command_set", ns.command_set);
  visit("placement_handles", ns.placement_handles);
  visit("shared", ns.shared);
  visit("cache_bytes", ns.cache_bytes);
}

// [subsystem]: identity.
struct SubsystemConfig {
  // An NVMe qualified name, up to 223 printable ASCII characters, as serial (20), model (40) and firmware (8) are.
  std::string nqn = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001";
  std::string serial = "FLASHMOB00000001";
  std::string model = "flashmob software-defined SSD";
  std::string firmware = "0.1.0";
  // Bytes that Namespace Management may still allocate beyond the configured namespaces; up to 16 PiB.
  std::uint64_t spare_capacity_bytes = 0;
  PlacementConfig placement{};
  std::vector<NamespaceConfig> namespaces{NamespaceConfig{}};  // up to 256; none only with spare capacity

  void validate() const;
};

// The keys that are no tables of their own, as above.
template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, SubsystemConfig>
void for_each_key(Config& subsystem, const Visit& visit) {
  visit("nqn", subsystem.nqn);
  visit("serial", subsystem.serial);
  visit("model", subsystem.model);
  visit("firmware", subsystem.firmware);
  visit("spare_capacity_bytes", subsystem.spare_capacity_bytes);
}

// [controller]: limits of each controller (src/controller/controller.h).
struct ControllerConfig {
  std::uint32_t max_queue_pairs = 4096;  // I/O queue pairs, 1...4096
  std::uint32_t max_queue_entries = 65536;  // 2...65536 (CAP.MQES is this minus one)
  std::uint32_t max_transfer_bytes = 1 << 20;  // MDTS: 4096 times a power of two, up to 16 MiB
  std::uint32_t interrupt_vectors = 4097;  // MSI-X table size, 1...4097
  // ZASL, of Zone Append: as max_transfer_bytes and no larger; 0: as large.
  std::uint32_t max_append_bytes = 0;
  bool volatile_write_cache = true;
  std::uint32_t abort_limit = 8;  // ACL + 1, 1...256
  std::uint32_t async_event_limit = 8;  // AERL + 1, 1...256

  void validate() const;
};

// The keys that are no tables of their own, as above.
template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, ControllerConfig>
void for_each_key(Config& controller, const Visit& visit) {
  visit("max_queue_pairs", controller.max_queue_pairs);
  visit("max_queue_entries", controller.max_queue_entries);
  visit("max_transfer_bytes", controller.max_transfer_bytes);
  visit("interrupt_vectors", controller.interrupt_vectors);
  visit("max_append_bytes", controller.max_append_bytes);
  visit("volatile_write_cache", controller.volatile_write_cache);
  visit("abort_limit", controller.abort_limit);
  visit("async_event_limit", controller.async_event_limit);
}

// [engine]: who serves the device: so many threads of the host (src/engine), or a kernel that stays on the GPU and
// serves the I/O queues (gpu/host/engine/device_io_server.h). The latter has limits: see on_gpu_engine().
struct EngineConfig {
  std::string kind = "host";  // host | gpu
  std::uint32_t sms = 1;  // gpu: multiprocessors that the kernel occupies, 1...1024; 256 queues each
  std::string gpu_media = "host";  // gpu: where namespaces lie, host (pinned: reads cross PCIe) | device
  std::uint32_t units = 1;  // service units, 1...64; each owns a share of the queues
  std::uint32_t workers = 0;  // workers per unit, 0...16; 0: the dispatcher's thread does both
  std::uint32_t fetch_limit = 256;  // most SQEs copied in one coalesced fetch, 1...1024; 256 stay in L1
  std::vector<std::uint32_t> cores;  // pin threads to these cores (0...1023) in order; empty: not pinned
  std::string copy = "auto";  // auto (the CPU's best) | memcpy | avx2 | avx512 | nontemporal | dsa
  std::uint64_t idle_spin_ns = 2'000'000;  // spin this long without work before sleeping; up to an hour
  // Longest sleep, 1 ns...10 s: the wake-up bound where a doorbell cannot wake us.
  std::uint64_t idle_sleep_ns = 1'000'000;
  bool move_data = true;  // false: frontend only, no bytes are copied (--no-data)
  std::uint32_t wheel_shift = 6;  // tick of the wheel that holds requests, 2^n ns; 0...20

  void validate() const;
};

// The keys that are no tables of their own, as above.
template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, EngineConfig>
void for_each_key(Config& engine, const Visit& visit) {
  visit("kind", engine.kind);
  visit("sms", engine.sms);
  visit("gpu_media", engine.gpu_media);
  visit("units", engine.units);
  visit("workers", engine.workers);
  visit("fetch_limit", engine.fetch_limit);
  visit("cores", engine.cores);
  visit("copy", engine.copy);
  visit("idle_spin_ns", engine.idle_spin_ns);
  visit("idle_sleep_ns", engine.idle_sleep_ns);
  visit("move_data", engine.move_data);
  visit("wheel_shift", engine.wheel_shift);
}

// When a run counts as true to its model (architecture idea 2). Shares are 0...1, times up to an hour.
struct FidelityConfig {
  double max_iops_error = 0.02;  // |achieved - model| / model
  // Mean and p99 of the host's latencies, and of the bound on what the emulator added to them, may be off by the larger
  // of this and ...
  std::uint64_t max_error_ns = 1'000;
  double max_error_share = 0.02;  // ... this share of the model's mean or p99
  std::uint64_t gap_ns = 5'000;  // two consecutive looks at the clock further apart are a gap or long work; at least 1

  void validate() const;
};

// The keys that are no tables of their own, as above.
template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, FidelityConfig>
void for_each_key(Config& fidelity, const Visit& visit) {
  visit("max_iops_error", fidelity.max_iops_error);
  visit("max_error_ns", fidelity.max_error_ns);
  visit("max_error_share", fidelity.max_error_share);
  visit("gap_ns", fidelity.gap_ns);
}

struct DeviceConfig {
  std::string profile = "custom";  // the profile's name, for reports
  std::uint64_t seed = 1;
  SubsystemConfig subsystem;
  ControllerConfig controller;
  TimingConfig timing;
  EngineConfig engine;
  FidelityConfig fidelity;
  // Faults to show from the start, one rule each (docs/guide/faults.md); checked where the device is made.
  std::vector<std::string> faults;

  // Validates every part.
  void validate() const;
};

// The keys that are no tables of their own, as above.
template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, DeviceConfig>
void for_each_key(Config& device, const Visit& visit) {
  visit("profile", device.profile);
  visit("seed", device.seed);
  visit("faults", device.faults);
}

// The same SSD served by a GPU engine on `sms` multiprocessors, its limits lowered to those of that engine: 256 queue
// pairs for each multiprocessor, transfers up to 128 KiB.
DeviceConfig on_gpu_engine(DeviceConfig config, std::uint32_t sms);

}  // namespace flashmob
