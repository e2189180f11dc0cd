// Namespace Write Protection (NVMe Base 2.0c, 8.12) of a subsystem's namespaces.
#include <cstdint>
#include <functional>

#include "controller/controller.h"
#include "controller/subsystem.h"

namespace flashmob::controller {

nvme::WriteProtection Subsystem::write_protection(std::uint32_t nsid) const {
  const NamespaceInfo& info = infos_[nsid];
  if (info.media != nullptr && !info.media->writable()) return nvme::WriteProtection::permanent;
  return info.write_protection;
}

nvme::Status Subsystem::check_write_protection(std::uint32_t nsid, nvme::WriteProtection state) const {
  const nvme::WriteProtection now = write_protection(nsid);
  const bool final = now == nvme::WriteProtection::permanent || now == nvme::WriteProtection::until_power_cycle;
  return final && state != now ? nvme::Status::feature_not_changeable : nvme::Status::success;
}

nvme::Status Subsystem::set_write_protection(std::uint32_t nsid, nvme::WriteProtection state) {
  if (const nvme::Status s = check_write_protection(nsid, state); s != nvme::Status::success) return s;
  NamespaceInfo& info = infos_[nsid];
  bool holds = false;
  // What holds already is saved again where it is not sure to be on the disk.
  const auto in_place = [&](const std::function<void(media::SavedState&)>& edit) {
    return save(info, edit, holds) == nvme::Status::success ? nvme::Status::success : nvme::Status::write_fault;
  };
  if (state == write_protection(nsid)) return in_place([](media::SavedState&) {});
  const bool writable = state == nvme::WriteProtection::none;
  const auto let = [&](bool write) {
    for (command_set::Namespace* ns : info.by_format)
      if (ns != nullptr) ns->writable.store(write, std::memory_order_relaxed);
  };
  let(writable);
  if (!writable) end_commands(*info.current, nvme::Status::namespace_is_write_protected, CommandsToEnd::writes);
  // A power cycle ends the one that lasts until then.
  const auto kept = state == nvme::WriteProtection::until_power_cycle ? nvme::WriteProtection::none : state;
  const auto edit = [kept](media::SavedState& to) { to.write_protection = static_cast<std::uint8_t>(kept); };
  nvme::Status status = nvme::Status::write_fault;
  if (writable || info.media->flush()) status = in_place(edit);
  if (!holds) {
    let(info.write_protection == nvme::WriteProtection::none);
    return status;
  }
  info.write_protection = state;
  for (Controller* controller : controllers_) {
    if (controller->attached(nsid) != nullptr) controller->host_.namespaces_changed(*controller);
  }
  notify_attached(nsid);
  return status;
}

}  // namespace flashmob::controller
