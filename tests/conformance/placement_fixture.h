// Drives with Flexible Data Placement, and the commands that hosts use it by.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "conformance/namespaces_fixture.h"
#include "nvme/features.h"
#include "nvme/placement.h"

namespace flashmob::conformance {

inline constexpr std::uint32_t kHandles = 6, kGroups = 2;
inline constexpr std::uint64_t kReclaimUnitBytes = 1 << 20;

// Two reclaim groups. Namespace 1 has three handles, namespace 2 one, and two are left for hosts.
inline DeviceConfig placing_device(const std::function<void(DeviceConfig&)>& change = {}) {
  DeviceConfig config = suite::small_device();
  config.engine.kind = "host";
  config.subsystem.placement = {.handles = kHandles,
                                .reclaim_groups = kGroups,
                                .persistently_isolated = false,
                                .reclaim_unit_bytes = kReclaimUnitBytes,
                                .enabled = true};
  config.subsystem.namespaces[0].placement_handles = {4, 0, 1};
  config.subsystem.namespaces[1].placement_handles = {2};
  if (change) change(config);
  return config;
}

// One reclaim group, whose units are superblocks: the NAND model.
inline DeviceConfig placing_nand(bool persistently_isolated = false) {
  return placing_device([=](DeviceConfig& config) {
    config.subsystem.placement = {.handles = 4,
                                  .reclaim_groups = 1,
                                  .persistently_isolated = persistently_isolated,
                                  .reclaim_unit_bytes = 0,
                                  .enabled = true};
    config.subsystem.namespaces.resize(1);
    config.subsystem.namespaces[0].placement_handles = {0, 1, 2, 3};
    config.subsystem.namespaces[0].size_bytes = 16 << 20;
    config.subsystem.spare_capacity_bytes = 0;
    config.timing.model = "nand";
    config.timing.unit_bytes = 4096;
    config.timing.nand.channels = 1;
    config.timing.nand.dies_per_channel = 1;
    config.timing.nand.planes = 1;
    config.timing.nand.bits_per_cell = 1;
    config.timing.nand.read_ns = {50'000};
    config.timing.nand.program_ns = 100'000;
    config.timing.nand.buffer_bytes = 1 << 20;
  });
}

class PlacementTest : public DeviceTest {
 protected:
  explicit PlacementTest(const DeviceConfig& config = placing_device(), unsigned controllers = 1)
      : DeviceTest(config, controllers) {}

  // With a directive and what is specific to it; bits of CDW12 besides.
  Status place(std::uint32_t nsid, std::uint64_t lba, std::uint32_t blocks, std::uint16_t identifier,
               nvme::Directive directive = nvme::Directive::data_placement, NvmOpcode opcode = NvmOpcode::write) {
    const std::size_t bytes = blocks * lba_bytes(nsid);
    Buffer source = buffer(bytes);
    source.store(noise(bytes, lba));
    Sqe sqe = make(opcode, nsid, lba, blocks);
    sqe.cdw12 |= static_cast<std::uint32_t>(directive) << nvme::kIoDirectiveTypeShift;
    sqe.cdw13 = std::uint32_t{identifier} << 16;
    return io(source.attach(sqe, bytes));
  }

  Status handle_status(std::uint32_t nsid, std::span<std::byte> out, std::uint32_t operation = nvme::kHandleStatus) {
    Buffer target = buffer(out.size());
    target.fill(std::byte{0xEE});
    Sqe sqe = make(NvmOpcode::io_management_receive, nsid);
    sqe.cdw10 = operation;
    sqe.cdw11 = static_cast<std::uint32_t>(out.size() / 4 - 1);
    const Status status = io(target.attach(sqe, out.size()));
    std::ranges::copy(target.copy(out.size()), out.begin());
    return status;
  }
  std::vector<nvme::HandleStatusEntry> handles_of(std::uint32_t nsid) {
    std::vector<std::byte> page(4096);
    EXPECT_EQ(handle_status(nsid, page), Status::success);
    nvme::HandleStatus header;
    std::memcpy(&header, page.data(), sizeof(header));
    std::vector<nvme::HandleStatusEntry> entries(header.nruhsd);
    std::memcpy(entries.data(), page.data() + sizeof(header), entries.size() * sizeof(entries[0]));
    return entries;
  }
  std::uint64_t left(std::uint32_t nsid, std::uint16_t identifier) {
    for (const nvme::HandleStatusEntry& entry : handles_of(nsid))
      if (entry.pid == identifier) return entry.ruamw;
    ADD_FAILURE() << "no identifier " << identifier;
    return 0;
  }

  Status update(std::uint32_t nsid, const std::vector<std::uint16_t>& identifiers,
                std::uint32_t operation = nvme::kHandleUpdate) {
    Buffer source = buffer(4096);
    source.store(std::as_bytes(std::span(identifiers)));
    Sqe sqe = make(NvmOpcode::io_management_send, nsid);
    sqe.cdw10 = operation | (static_cast<std::uint32_t>(identifiers.size() - 1) << 16);
    return io(source.attach(sqe, identifiers.size() * 2));
  }

  // Of the endurance group; answers the status.
  Status group_log(nvme::LogPage lid, std::span<std::byte> out, std::uint16_t group = 1, std::uint8_t lsp = 0) {
    Sqe sqe = make(AdminOpcode::get_log_page);
    nvme::encode_get_log_page({.lid = static_cast<std::uint8_t>(lid),
                               .lsp = lsp,
                               .numd = static_cast<std::uint32_t>(out.size() / 4 - 1),
                               .lsi = group},
                              sqe);
    return admin_read(sqe, out);
  }
  template <class T>
  T group_log(nvme::LogPage lid, std::uint8_t lsp = 0) {
    T data;
    EXPECT_EQ(group_log(lid, std::as_writable_bytes(std::span(&data, 1)), 1, lsp), Status::success);
    return data;
  }
  nvme::FdpStatistics statistics() { return group_log<nvme::FdpStatistics>(nvme::LogPage::fdp_statistics); }
  nvme::FdpEvents events() { return group_log<nvme::FdpEvents>(nvme::LogPage::fdp_events, nvme::kFdpHostEvents); }
  std::vector<std::uint8_t> usage() {
    std::array<std::byte, sizeof(nvme::FdpHandleUsage) + kHandles * sizeof(nvme::FdpHandleUsageEntry)> page;
    EXPECT_EQ(group_log(nvme::LogPage::fdp_handle_usage, page), Status::success);
    std::vector<std::uint8_t> attributes;
    for (std::uint32_t i = 0; i < kHandles; ++i)
      attributes.push_back(static_cast<std::uint8_t>(page[sizeof(nvme::FdpHandleUsage) + i * 8]));
    return attributes;
  }

  AdminResult enable(bool on, bool save = true, std::uint32_t group = 1, std::uint32_t index = 0) {
    Sqe sqe = make(AdminOpcode::set_features);
    sqe.cdw10 = static_cast<std::uint32_t>(nvme::Feature::flexible_data_placement) | (save ? nvme::kFeatureSave : 0);
    sqe.cdw11 = group;
    sqe.cdw12 = (on ? nvme::kFdpEnable : 0) | (index << 8);
    return driver().admin(sqe, {}, false);
  }
  AdminResult enabled(std::uint32_t group = 1) {
    Sqe sqe = make(AdminOpcode::get_features);
    sqe.cdw10 = static_cast<std::uint32_t>(nvme::Feature::flexible_data_placement);
    sqe.cdw11 = group;
    return driver().admin(sqe, {}, false);
  }
  Status report(std::uint32_t nsid, std::uint16_t handle, std::vector<std::uint8_t> types, bool on = true) {
    Sqe sqe = make(AdminOpcode::set_features, nsid);
    sqe.cdw10 = static_cast<std::uint32_t>(nvme::Feature::fdp_events);
    sqe.cdw11 = handle | (static_cast<std::uint32_t>(types.size()) << 16);
    sqe.cdw12 = on ? nvme::kFdpEventEnable : 0;
    return admin_write(sqe, std::as_bytes(std::span(types)));
  }
  Status reported(std::uint32_t nsid, std::uint16_t handle, std::array<nvme::FdpSupportedEvent, 2>& events) {
    Sqe sqe = make(AdminOpcode::get_features, nsid);
    sqe.cdw10 = static_cast<std::uint32_t>(nvme::Feature::fdp_events);
    sqe.cdw11 = handle;
    return admin_read(sqe, std::as_writable_bytes(std::span(events)));
  }

  Status direct(std::uint32_t nsid, bool on, nvme::Directive directive = nvme::Directive::data_placement) {
    Sqe sqe = make(AdminOpcode::directive_send, nsid);
    sqe.cdw11 = nvme::kEnableDirective;
    sqe.cdw12 = (on ? nvme::kDirectiveOn : 0) | (static_cast<std::uint32_t>(directive) << 8);
    return admin(sqe);
  }
  nvme::DirectiveParameters directives(std::uint32_t nsid) {
    nvme::DirectiveParameters parameters;
    Sqe sqe = make(AdminOpcode::directive_receive, nsid);
    sqe.cdw10 = sizeof(parameters) / 4 - 1;
    sqe.cdw11 = nvme::kReturnParameters;
    EXPECT_EQ(admin_read(sqe, std::as_writable_bytes(std::span(&parameters, 1))), Status::success);
    return parameters;
  }

  Status create(std::uint64_t blocks, std::uint8_t flbas, const std::vector<std::uint16_t>& handles,
                std::uint32_t& nsid) {
    std::vector<std::byte> page(4096);
    nvme::IdentifyNamespace fields{};
    fields.nsze = fields.ncap = blocks;
    fields.flbas = flbas;
    std::memcpy(page.data(), &fields, 384);
    const auto count = static_cast<std::uint16_t>(handles.size());
    std::memcpy(page.data() + nvme::kPlacementHandleCountAt, &count, 2);
    std::ranges::copy(std::as_bytes(std::span(handles)), page.begin() + nvme::kPlacementHandlesAt);
    const AdminResult result = driver().admin(make(AdminOpcode::namespace_management), page, false);
    nsid = result.dw0;
    return status_of(result);
  }
  Status remove(std::uint32_t nsid) {
    Sqe sqe = make(AdminOpcode::namespace_management, nsid);
    sqe.cdw10 = nvme::kNamespaceDelete;
    return admin(sqe);
  }
  Status attach(std::uint32_t nsid) {
    nvme::ControllerList list{};
    list.num = 1;
    list.identifier[0] = host().controller.cntlid();
    return admin_write(make(AdminOpcode::namespace_attachment, nsid), std::as_bytes(std::span(&list, 1)));
  }
};

}  // namespace flashmob::conformance
