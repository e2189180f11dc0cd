// What a controller waits for a disk with: a shutdown, a write cache that is switched off, features that are saved.
// It goes on in on_disk_work(), unless the host has reset the controller in the meantime.
#include <utility>

#include "controller/controller.h"

namespace flashmob::controller {

void Controller::wait_for_disk(DiskWork work, std::function<void(bool good)> then) {
  const std::uint64_t ticket = next_ticket_++;
  disk_work_.emplace(ticket, std::move(then));
  host_.run_disk_work(*this, ticket, std::move(work));
}

void Controller::forget_disk_work() {
  if (disk_work_.empty()) return;
  disk_work_.clear();
  host_.forget_disk_work(*this);
}

void Controller::on_disk_work(std::uint64_t ticket, bool good) {
  const auto found = disk_work_.find(ticket);
  if (found == disk_work_.end()) return;  // asked before a reset
  const auto then = std::move(found->second);
  disk_work_.erase(found);
  then(good);
}

// Makes durable what the attached namespaces hold. `failed` gets those that could not be.
DiskWork Controller::flush_work(FailedNamespaces failed) {
  DiskWork work{.run = {}, .waits = false, .media = {}};
  // Each as long as its media, and with the flushes that others have begun too early for this one.
  std::vector<std::pair<command_set::Namespace*, std::uint64_t>> all;
  const std::lock_guard lock(subsystem_.mutex());
  for (std::uint32_t nsid = 1; nsid <= kMaxNamespaces; ++nsid) {
    command_set::Namespace* const ns = attached(nsid);
    if (ns == nullptr) continue;
    all.emplace_back(ns, ns->flushes_begun());
    work.media.push_back(ns->media);
    work.waits |= ns->media->sync_waits();
  }
  work.run = [all = std::move(all), failed = std::move(failed)] {
    DiskDone done{.good = true, .waited = false};
    for (const auto& [ns, begun] : all)
      if (!ns->flush_since(begun, done.waited)) failed->push_back(ns->nsid);
    done.good = failed->empty();
    return done;
  };
  return work;
}

// There is no command to report them; the error log is what remains.
void Controller::note_flush_failures(const FailedNamespaces& failed) {
  for (const std::uint32_t nsid : *failed)
    record_error(nvme::kNoQueue, nvme::kNoCommand, nvme::Status::write_fault, nsid, 0);
}

void Controller::flush_namespaces(std::function<void(bool good)> then) {
  const auto failed = std::make_shared<std::vector<std::uint32_t>>();
  wait_for_disk(flush_work(failed), [this, failed, then = std::move(then)](bool good) {
    note_flush_failures(failed);
    then(good);
  });
}

void Controller::note_flushed(std::uint32_t switched) {
  if (switched == cache_switches_) owes_flush_ = false;
}

}  // namespace flashmob::controller
