// Namespace Write Protection (NVMe Base 2.0c, 8.12) of a subsystem's namespaces.
#include <cstdint>
#include <functional>
#include <memory>

#include "controller/controller.h"
#include "controller/subsystem.h"

namespace flashmob::controller {
namespace {

void let_write(const NamespaceInfo& info, bool writable) {
  for (command_set::Namespace* const ns : info.by_format)
    if (ns != nullptr) ns->writable.store(writable, std::memory_order_relaxed);
}

}  // namespace

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

NamespaceChange Subsystem::set_write_protection(std::uint32_t nsid, nvme::WriteProtection state) {
  if (const nvme::Status s = check_write_protection(nsid, state); s != nvme::Status::success) return not_begun(s);
  const NamespaceInfo& info = infos_[nsid];
  const auto keeper = info.media->saved();
  const bool is_new = state != write_protection(nsid);
  const bool writable = state == nvme::WriteProtection::none;
  if (is_new && !writable) {
    let_write(info, false);
    end_commands(*info.current, nvme::Status::namespace_is_write_protected, CommandsToEnd::writes);
  }
  // A power cycle ends the one that lasts until then.
  const auto kept = state == nvme::WriteProtection::until_power_cycle ? nvme::WriteProtection::none : state;
  const auto edit = [kept](media::SavedState& to) { to.write_protection = static_cast<std::uint8_t>(kept); };
  const auto saved = std::make_shared<SavedChange>();
  const auto make_durable = [media = info.media, keeper, saved, edit, is_new, writable] {
    // What holds already is saved again where it is not sure to be on the disk.
    if (!is_new)
      saved->save(keeper, [](media::SavedState&) {});
    else if (writable || media->flush())
      saved->save(keeper, edit);
    return DiskDone{.good = saved->good};
  };
  const bool waits = keeper != nullptr || (is_new && !writable && info.media->sync_waits());
  return {.work = {.run = make_durable, .waits = waits, .media = {info.media}},
          .end = [this, nsid, state, saved, is_new](QueueHost&) {
            if (is_new) return end_protection(nsid, state, *saved);
            return saved->good ? nvme::Status::success : nvme::Status::write_fault;
          }};
}

nvme::Status Subsystem::end_protection(std::uint32_t nsid, nvme::WriteProtection state, const SavedChange& saved) {
  NamespaceInfo& info = infos_[nsid];
  const nvme::Status status = saved.good ? nvme::Status::success : nvme::Status::write_fault;
  if (saved.holds) info.write_protection = state;
  let_write(info, info.write_protection == nvme::WriteProtection::none);
  if (!saved.holds) return status;
  for (Controller* controller : controllers_) {
    if (controller->attached(nsid) != nullptr) controller->host_.namespaces_changed(*controller);
  }
  notify_attached(nsid);
  return status;
}

}  // namespace flashmob::controller
