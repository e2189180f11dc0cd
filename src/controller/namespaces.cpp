// Format NVM, Namespace Management and Namespace Attachment (NVMe Base 2.0c, 5.14, 5.22 and 5.23).
#include <algorithm>
#include <vector>

#include "command_set/lba_formats.h"
#include "command_set/registry.h"
#include "controller/controller.h"
#include "nvme/identify.h"
#include "nvme/identify_namespace.h"

namespace flashmob::controller {

using nvme::Status;

namespace {

constexpr std::uint16_t kAtSelect = kAtCdw10;

}  // namespace

AdminResult Controller::format_nvm(const nvme::Sqe& sqe) {
  const nvme::FormatNvm f = nvme::decode_format_nvm(sqe);
  const bool all = sqe.nsid == nvme::kNsidBroadcast;
  if (!all && !is_valid_nsid(sqe.nsid)) return fail(Status::invalid_namespace_or_format, kAtNsid);
  if (!all && attached(sqe.nsid) == nullptr) return fail(Status::invalid_field, kAtNsid);
  // No format has metadata, so protection information and its placement are not to be had.
  if (f.lbaf >= command_set::kLbaFormats || f.mset || f.pi != 0) return fail(Status::invalid_format, kAtCdw10);
  if (f.ses > nvme::kFormatEraseUserData) return fail(Status::invalid_field, location(10, 9));
  const std::uint32_t first = all ? 1 : sqe.nsid, last = all ? kMaxNamespaces : sqe.nsid;
  const std::uint32_t lba_bytes = command_set::lba_format_bytes(f.lbaf);
  NamespaceCommand command;
  {
    const std::lock_guard lock(subsystem_.mutex());
    // All or nothing: one namespace that cannot be formatted must not cost the others their data.
    for (std::uint32_t nsid = first; nsid <= last; ++nsid) {
      if (attached(nsid) == nullptr) continue;
      if (const Status status = subsystem_.check_format(nsid, lba_bytes, all); status != Status::success)
        return fail(status);
      command.nsids.push_back(nsid);
    }
  }
  command.begin = [&subsystem = subsystem_, lba_bytes](std::uint32_t nsid) {
    return subsystem.format_namespace(nsid, lba_bytes);
  };
  return change_namespaces(sqe, std::move(command));
}

// What waits for a disk is not waited for here.
AdminResult Controller::change_namespaces(const nvme::Sqe& sqe, NamespaceCommand command) {
  subsystem_.changes().run(*this, sqe.cid, sqe.nsid, std::move(command));
  return later();
}

void Controller::end_change(std::uint16_t cid, std::uint32_t nsid, Status status) {
  complete(cid, nsid, status == Status::success ? succeed() : fail(status));
  deliver_events();
}

AdminResult Controller::namespace_management(const nvme::Sqe& sqe) {
  switch (nvme::namespace_select(sqe)) {
    case nvme::kNamespaceCreate:
      return create_namespace(sqe);
    case nvme::kNamespaceDelete:
      return delete_namespace(sqe);
    default:
      return fail(Status::invalid_field, kAtSelect);
  }
}

// An allocated namespace, and not one that the operator keeps from this host: for it that does not exist.
bool Controller::manages(std::uint32_t nsid) const {
  return subsystem_.info(nsid).current != nullptr && rights().sees(nsid);
}

AdminResult Controller::delete_namespace(const nvme::Sqe& sqe) {
  const bool all = sqe.nsid == nvme::kNsidBroadcast;
  if (!all && !is_valid_nsid(sqe.nsid)) return fail(Status::invalid_namespace_or_format, kAtNsid);
  const std::uint32_t first = all ? 1 : sqe.nsid, last = all ? kMaxNamespaces : sqe.nsid;
  NamespaceCommand command{.goes_on = all};
  {
    const std::lock_guard lock(subsystem_.mutex());
    if (!all && !manages(sqe.nsid)) return fail(Status::invalid_field, kAtNsid);
    // All or nothing, as with Format NVM.
    for (std::uint32_t nsid = first; nsid <= last; ++nsid) {
      if (!manages(nsid)) continue;
      if (subsystem_.is_host_protected(nsid))
        return all ? fail(Status::namespace_is_write_protected) : fail(Status::namespace_is_write_protected, kAtNsid);
      command.nsids.push_back(nsid);
    }
  }
  command.begin = [&subsystem = subsystem_](std::uint32_t nsid) { return subsystem.delete_namespace(nsid); };
  return change_namespaces(sqe, std::move(command));
}

AdminResult Controller::create_namespace(const nvme::Sqe& sqe) {
  if (sqe.nsid != 0) return fail(Status::invalid_field, kAtNsid);
  const command_set::CommandSet* const set =
      command_set::command_set_of(static_cast<nvme::Csi>(nvme::namespace_csi(sqe)));
  if (set == nullptr || !set->hosts_create()) return fail(Status::io_command_set_not_supported, location(11, 24));
  nvme::IdentifyNamespace wanted;
  if (const Status s = from_guest(sqe, std::as_writable_bytes(std::span(&wanted, 1))); s != Status::success) {
    return fail(s, kAtPrp1);
  }
  const unsigned format = nvme::lba_format_index(wanted.flbas);
  const bool extended = (wanted.flbas & nvme::kFlbasExtendedMetadata) != 0;
  if (format >= command_set::kLbaFormats || extended || wanted.dps != 0) return fail(Status::invalid_format);
  const std::uint16_t last_group = subsystem_.placement() != nullptr ? command_set::kEnduranceGroup : 0;
  if ((wanted.nmic & ~nvme::kNmicShared) != 0 || wanted.anagrpid != 0 || wanted.nvmsetid != 0 ||
      wanted.endgid > last_group) {
    return fail(Status::invalid_field);
  }
  if (wanted.nsze == 0 || wanted.ncap > wanted.nsze) return fail(Status::invalid_field);
  if (wanted.ncap < wanted.nsze) return fail(Status::thin_provisioning_not_supported);
  const std::lock_guard lock(subsystem_.mutex());
  NamespaceConfig config;
  config.command_set = set->name();
  config.lba_bytes = command_set::lba_format_bytes(format);
  config.shared = (wanted.nmic & nvme::kNmicShared) != 0;
  // Compared in blocks: a hostile size must not wrap around when it is turned into bytes.
  if (wanted.nsze > subsystem_.unallocated_capacity_bytes() / config.lba_bytes) {
    return fail(Status::namespace_insufficient_capacity);
  }
  config.size_bytes = wanted.nsze * config.lba_bytes;
  std::vector<std::uint16_t> handles;
  bool is_handle_chosen = false;
  Status status = Status::success;
  if (subsystem_.places_data())
    status = wanted_handles(std::as_bytes(std::span(&wanted, 1)), config.lba_bytes, handles, is_handle_chosen);
  if (status != Status::success) return fail(status);
  config.placement_handles = {handles.begin(), handles.end()};
  const std::uint32_t nsid = subsystem_.create_namespace(config, status, rights(), is_handle_chosen);
  return status == Status::success ? succeed(nsid) : fail(status);
}

AdminResult Controller::namespace_attachment(const nvme::Sqe& sqe) {
  const std::uint8_t select = nvme::namespace_select(sqe);
  if (select > nvme::kNamespaceDetach) return fail(Status::invalid_field, kAtSelect);
  if (sqe.nsid != nvme::kNsidBroadcast && !is_valid_nsid(sqe.nsid)) {
    return fail(Status::invalid_namespace_or_format, kAtNsid);
  }
  nvme::ControllerList list;
  if (const Status s = from_guest(sqe, std::as_writable_bytes(std::span(&list, 1))); s != Status::success) {
    return fail(s, kAtPrp1);
  }
  const std::lock_guard lock(subsystem_.mutex());
  if (sqe.nsid == nvme::kNsidBroadcast || !manages(sqe.nsid)) return fail(Status::invalid_field, kAtNsid);
  if (list.num == 0 || list.num > nvme::ControllerList::kMaxEntries) return fail(Status::controller_list_invalid);
  const std::span<const std::uint16_t> ids(list.identifier, list.num);
  // Strictly increasing also means that nobody is named twice.
  const bool ordered = std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
  const bool known = std::all_of(ids.begin(), ids.end(), [&](std::uint16_t id) {
    return std::any_of(subsystem_.controllers().begin(), subsystem_.controllers().end(),
                       [&](const Controller* controller) { return controller->cntlid() == id; });
  });
  if (!ordered || !known) return fail(Status::controller_list_invalid);
  return select == nvme::kNamespaceAttach ? attach(sqe.nsid, ids) : detach(sqe.nsid, ids);
}

// Either all listed controllers change or none.
AdminResult Controller::attach(std::uint32_t nsid, std::span<const std::uint16_t> ids) {
  std::vector<Controller*> chosen;
  bool attached_somewhere = false;
  for (Controller* controller : subsystem_.controllers()) {
    const bool has_it = controller->holds(nsid);
    attached_somewhere |= has_it;
    if (!std::binary_search(ids.begin(), ids.end(), controller->cntlid())) continue;
    if (has_it) return fail(Status::namespace_already_attached);
    if (!controller->rights().sees(nsid)) return fail(Status::controller_list_invalid);
    if (!controller->shows(*subsystem_.info(nsid).current)) return fail(Status::io_command_set_not_enabled);
    chosen.push_back(controller);
  }
  const bool is_private = !subsystem_.info(nsid).config.shared;
  if (is_private && (attached_somewhere || chosen.size() > 1)) return fail(Status::namespace_is_private);
  for (Controller* controller : chosen) {
    subsystem_.attach_namespace(nsid, *controller);
    controller->notify_namespace_changed(nsid);
  }
  return succeed();
}

AdminResult Controller::detach(std::uint32_t nsid, std::span<const std::uint16_t> ids) {
  std::vector<Controller*> chosen;
  for (Controller* controller : subsystem_.controllers()) {
    if (!std::binary_search(ids.begin(), ids.end(), controller->cntlid())) continue;
    if (!controller->holds(nsid)) return fail(Status::namespace_not_attached);
    chosen.push_back(controller);
  }
  for (Controller* controller : chosen) {
    subsystem_.detach_namespace(nsid, *controller);
    controller->notify_namespace_changed(nsid);
  }
  return succeed();
}

}  // namespace flashmob::controller
