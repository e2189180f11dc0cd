// I/O Management Receive and Send, by which hosts see and move the reclaim units of a namespace's handles (NVMe Base
// 2.1, 7.3 and 7.4; NVM command set 1.1, 3.2.1.1).
#include <cstring>
#include <vector>

#include "command_set/nvm_commands.h"

namespace flashmob::command_set::commands {

using nvme::Status;

namespace {

// What both have to be before their operation is looked at.
Status check(const nvme::Sqe& sqe, const Namespace& ns, const ExecContext& context) {
  if (!context.limits.has_placement) return Status::invalid_opcode;
  if (!is_data_pointer_kind_valid(sqe, context.limits.sgl_supported)) return Status::invalid_field;
  return ns.placement != nullptr ? Status::success : Status::fdp_disabled;
}

// By placement handle, and for each of these by reclaim group.
std::vector<std::byte> status_of_handles(const Namespace& ns) {
  const NamespacePlacement& placement = *ns.placement;
  std::vector<nvme::HandleStatusEntry> entries;
  for (std::uint32_t at = 0; at < placement.handles().size(); ++at) {
    for (std::uint32_t group = 0; group < placement.drive().groups(); ++group) {
      const Placement::Target target{static_cast<std::uint16_t>(group), placement.handles()[at]};
      nvme::HandleStatusEntry& entry = entries.emplace_back();
      entry.pid = placement.identifier_of(group, at);
      entry.ruhid = target.handle;
      entry.ruamw = placement.drive().bytes_left(target) >> ns.lba_shift;
    }
  }
  nvme::HandleStatus header{};
  header.nruhsd = static_cast<std::uint16_t>(entries.size());
  const auto list = std::as_bytes(std::span(entries));
  std::vector<std::byte> page(sizeof(header) + list.size());
  std::memcpy(page.data(), &header, sizeof(header));
  std::memcpy(page.data() + sizeof(header), list.data(), list.size());
  return page;
}

}  // namespace

Outcome io_management_receive(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  if (const Status bad = check(sqe, ns, context); bad != Status::success) return failed(bad);
  const std::uint8_t operation = nvme::io_management_operation(sqe);
  if (operation == nvme::kIoManagementNothing) return {};
  const std::uint64_t bytes = (std::uint64_t{sqe.cdw11} + 1) * 4;
  if (operation != nvme::kHandleStatus || bytes > context.limits.max_transfer_bytes)
    return failed(Status::invalid_field);
  std::vector<std::byte> page = status_of_handles(ns);
  page.resize(bytes);
  return failed(memory::copy_to_host(context.reader, sqe, page, context.limits.data_pointer, context.segments));
}

Outcome io_management_send(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  if (const Status bad = check(sqe, ns, context); bad != Status::success) return failed(bad);
  const std::uint8_t operation = nvme::io_management_operation(sqe);
  if (operation == nvme::kIoManagementNothing) return {};
  // It ends units that others' writes are in.
  if (!may_write(ns, context.limits)) return failed(Status::namespace_is_write_protected);
  const std::uint32_t count = nvme::placement_identifier_count(sqe);
  const NamespacePlacement& placement = *ns.placement;
  Placement& drive = placement.drive();
  if (operation != nvme::kHandleUpdate || count > drive.max_identifiers()) return failed(Status::invalid_field);
  std::array<std::uint16_t, nvme::kMaxPlacementHandles> storage;
  const auto identifiers = std::span(storage).first(count);
  const Status status = memory::copy_from_host(context.reader, sqe, std::as_writable_bytes(identifiers),
                                               context.limits.data_pointer, context.segments);
  if (status != Status::success) return failed(status);
  for (const std::uint16_t identifier : identifiers)
    if (!placement.target_of(identifier)) return failed(Status::invalid_field);
  for (const std::uint16_t identifier : identifiers) {
    const Placement::Target target = *placement.target_of(identifier);
    if (drive.next_unit(target) == 0) continue;
    drive.record({.type = nvme::FdpEventType::not_fully_written,
                  .nsid = ns.nsid,
                  .identifier = identifier,
                  .target = target,
                  .at_ns = context.fetched_ns});
  }
  return {};
}

}  // namespace flashmob::command_set::commands
