// A device with an NVM namespace and zoned ones, and the commands of the Zoned Namespace command set.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/device_fixture.h"
#include "nvme/admin_command.h"
#include "nvme/zns.h"

namespace flashmob::conformance {

using nvme::ZonedOpcode;
using nvme::ZoneReceiveAction;
using nvme::ZoneReportFilter;
using nvme::ZoneSendAction;
using nvme::ZoneState;

inline constexpr std::uint32_t kNsNvm = 1;
inline constexpr std::uint32_t kNsZoned = 2;   // blocks of 4096 bytes, reads may cross zones
inline constexpr std::uint32_t kNsStrict = 3;  // blocks of 512 bytes, reads may not; zones that have failed
inline constexpr std::uint64_t kZoneBlocks = 16, kZoneCapacity = 12, kZones = 16;
inline constexpr std::uint32_t kMaxOpen = 3, kMaxActive = 5;
inline constexpr std::uint32_t kStrictReadOnly = 5, kStrictOffline = 6;  // zones of kNsStrict
inline constexpr std::uint32_t kStrictZoneBlocks = 128, kStrictZones = 8;

// `change` makes another one of it.
inline DeviceConfig zoned_device(const std::function<void(DeviceConfig&)>& change = {}) {
  DeviceConfig config = suite::small_device();
  config.engine.kind = "host";
  config.controller.max_append_bytes = 32 << 10;
  config.subsystem.namespaces[1].size_bytes = kZones * kZoneBlocks * 4096;
  config.subsystem.namespaces[1].command_set = "zns";
  ZonedConfig& zoned = config.subsystem.namespaces[1].zoned;
  zoned.zone_bytes = kZoneBlocks * 4096;
  zoned.zone_capacity_bytes = kZoneCapacity * 4096;
  zoned.max_open_zones = kMaxOpen;
  zoned.max_active_zones = kMaxActive;
  zoned.descriptor_extension_bytes = 128;
  NamespaceConfig strict = config.subsystem.namespaces[1];
  strict.size_bytes = kStrictZones * kStrictZoneBlocks * 512;
  strict.lba_bytes = 512;
  strict.zoned = ZonedConfig{};
  strict.zoned.zone_bytes = kStrictZoneBlocks * 512;
  strict.zoned.reads_cross_zones = false;
  strict.zoned.read_only_zones = {kStrictReadOnly};
  strict.zoned.offline_zones = {kStrictOffline};
  config.subsystem.namespaces.push_back(strict);
  if (change) change(config);
  return config;
}

class ZnsTest : public DeviceTest {
 protected:
  explicit ZnsTest(const DeviceConfig& config = zoned_device()) : DeviceTest(config) {}

  static std::uint64_t start(std::uint32_t zone) { return zone * kZoneBlocks; }
  static std::uint64_t strict_start(std::uint32_t zone) { return zone * kStrictZoneBlocks; }
  static std::size_t bytes_of(std::uint32_t nsid, std::size_t blocks) {
    return blocks * (nsid == kNsZoned ? 4096 : 512);
  }

  Status write(std::uint64_t lba, std::uint32_t blocks, std::uint32_t nsid = kNsZoned, std::uint64_t seed = 1) {
    Buffer source = buffer(bytes_of(nsid, blocks));
    source.store(noise(source.size(), seed));
    return io(source.attach(make(NvmOpcode::write, nsid, lba, blocks), bytes_of(nsid, blocks)));
  }
  Status read(std::uint64_t lba, std::uint32_t blocks, std::uint32_t nsid = kNsZoned) {
    return read_data(lba, blocks, nsid).first;
  }
  std::pair<Status, std::vector<std::byte>> read_data(std::uint64_t lba, std::uint32_t blocks,
                                                      std::uint32_t nsid = kNsZoned) {
    Buffer target = buffer(bytes_of(nsid, blocks));
    target.fill(std::byte{0xEE});
    const Status status = io(target.attach(make(NvmOpcode::read, nsid, lba, blocks), bytes_of(nsid, blocks)));
    return {status, target.copy(bytes_of(nsid, blocks))};
  }
  static Sqe append_command(std::uint64_t zslba, std::uint32_t blocks, std::uint32_t nsid = kNsZoned) {
    Sqe sqe = make(NvmOpcode::write, nsid, zslba, blocks);
    sqe.opcode = static_cast<std::uint8_t>(ZonedOpcode::zone_append);
    return sqe;
  }
  Cqe append(std::uint64_t zslba, std::uint32_t blocks, std::uint64_t seed = 1) {
    Buffer source = buffer(std::size_t{blocks} * 4096);
    source.store(noise(source.size(), seed));
    return run(source.attach(append_command(zslba, blocks), source.size()));
  }
  static std::uint64_t lba_of(const Cqe& cqe) { return cqe.dw0 | (std::uint64_t{cqe.dw1} << 32); }

  static Sqe send_command(ZoneSendAction action, std::uint64_t slba, bool all = false, std::uint32_t nsid = kNsZoned) {
    Sqe sqe = make(NvmOpcode::flush, nsid);
    sqe.opcode = static_cast<std::uint8_t>(ZonedOpcode::zone_management_send);
    sqe.cdw10 = static_cast<std::uint32_t>(slba);
    sqe.cdw11 = static_cast<std::uint32_t>(slba >> 32);
    sqe.cdw13 = static_cast<std::uint32_t>(action) | (all ? nvme::kZoneSelectAll : 0);
    return sqe;
  }
  Status send(ZoneSendAction action, std::uint64_t slba, bool all = false, std::uint32_t nsid = kNsZoned) {
    return io(send_command(action, slba, all, nsid));
  }
  Status set_extension(std::uint64_t slba, std::span<const std::byte> extension, std::uint32_t nsid = kNsZoned) {
    Buffer source = buffer(4096);
    source.store(extension);
    return io(source.attach(send_command(ZoneSendAction::set_descriptor_extension, slba, false, nsid), 4096));
  }

  struct Report {
    Status status = Status::success;
    std::uint64_t count = 0;
    std::vector<nvme::ZoneDescriptor> zones;
    std::vector<std::vector<std::byte>> extensions;
  };
  struct ReportOptions {
    std::uint64_t slba = 0;
    ZoneReportFilter filter = ZoneReportFilter::all;
    bool partial = false;
    bool extended = false;
    std::uint32_t bytes = 8192;
    std::uint32_t nsid = kNsZoned;
    std::uint32_t extension_bytes = 128;
  };
  static Sqe report_command(const ReportOptions& options) {
    Sqe sqe = send_command(ZoneSendAction::close, options.slba, false, options.nsid);
    sqe.opcode = static_cast<std::uint8_t>(ZonedOpcode::zone_management_receive);
    sqe.cdw12 = options.bytes / 4 - 1;
    sqe.cdw13 = static_cast<std::uint32_t>(options.extended ? ZoneReceiveAction::extended_report_zones
                                                            : ZoneReceiveAction::report_zones) |
                (static_cast<std::uint32_t>(options.filter) << 8) | (options.partial ? nvme::kZonePartialReport : 0);
    return sqe;
  }
  Report report(const ReportOptions& options) {
    Buffer target = buffer(options.bytes);
    target.fill(std::byte{0xEE});
    Report result;
    result.status = io(target.attach(report_command(options), options.bytes));
    if (result.status != Status::success) return result;
    nvme::ZoneReportHeader header;
    std::memcpy(&header, target.data(), sizeof(header));
    result.count = header.zones;
    const std::size_t entry = sizeof(nvme::ZoneDescriptor) + (options.extended ? options.extension_bytes : 0);
    for (std::size_t at = sizeof(header); at + entry <= options.bytes && result.zones.size() < header.zones;
         at += entry) {
      nvme::ZoneDescriptor descriptor;
      std::memcpy(&descriptor, target.data() + at, sizeof(descriptor));
      result.zones.push_back(descriptor);
      result.extensions.push_back(target.copy(entry - sizeof(descriptor), at + sizeof(descriptor)));
    }
    return result;
  }
  nvme::ZoneDescriptor zone(std::uint32_t index, std::uint32_t nsid = kNsZoned) {
    const std::uint64_t slba = nsid == kNsZoned ? start(index) : strict_start(index);
    const Report one = report({.slba = slba, .partial = true, .bytes = 128, .nsid = nsid});
    EXPECT_EQ(one.zones.size(), 1u);
    return one.zones.empty() ? nvme::ZoneDescriptor{} : one.zones[0];
  }
  ZoneState state(std::uint32_t index, std::uint32_t nsid = kNsZoned) {
    return static_cast<ZoneState>(zone(index, nsid).zs >> nvme::kZoneStateShift);
  }

  template <class T>
  std::pair<Status, T> identify_set(nvme::Cns cns, std::uint32_t nsid, nvme::Csi csi) {
    T data{};
    Sqe sqe = make(AdminOpcode::identify, nsid);
    nvme::encode_identify({.cns = static_cast<std::uint8_t>(cns), .csi = static_cast<std::uint8_t>(csi)}, sqe);
    const Status status = admin_read(sqe, std::as_writable_bytes(std::span(&data, 1)));
    return {status, data};
  }
  std::vector<std::uint32_t> listed(nvme::Cns cns, nvme::Csi csi = nvme::Csi::nvm) {
    const auto [status, list] = identify_set<nvme::NamespaceList>(cns, 0, csi);
    EXPECT_EQ(status, Status::success);
    return {list.nsid, std::find(std::begin(list.nsid), std::end(list.nsid), 0u)};
  }
};

}  // namespace flashmob::conformance
