// Changes of namespaces that a disk keeps waiting: Format, deletion, write protection. What a disk has to do is done
// where no queue waits with it; one command's changes follow each other, and other commands that look at namespaces
// wait until these are over, so that nobody sees half of one.
//
// Admin threads, but for forget().
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "controller/queue_host.h"
#include "media/saved_state.h"
#include "nvme/command.h"
#include "nvme/status.h"

namespace flashmob::controller {

class Controller;
class Subsystem;

// One namespace's change that has begun, or could not. The subsystem's mutex is held at both ends, and not while the
// work is done.
struct NamespaceChange {
  nvme::Status status = nvme::Status::success;  // another: it has not begun
  DiskWork work = {};
  // Once, when the work is done, with whoever has had it done: its controllers may all have gone meanwhile.
  std::function<nvme::Status(QueueHost& runner)> end = nullptr;
};
inline bool has_begun(const NamespaceChange& change) { return change.status == nvme::Status::success; }
inline NamespaceChange not_begun(nvme::Status why) { return {.status = why}; }

// How the disk's part of one has ended.
struct SavedChange {
  bool good = false;
  bool holds = false;  // it is in force, though it may have failed (StateKeeper::change())
  bool is_erased = false;  // a Format has left nothing of what the namespace held
  // Has it beside the image, where that keeps any state; returns `holds`. What is in force there must be so here, too,
  // or a later change would contradict it.
  bool save(const std::shared_ptr<media::StateKeeper>& keeper, const std::function<void(media::SavedState&)>& edit) {
    holds = true;
    good = keeper == nullptr || keeper->change(edit, &holds);
    return holds;
  }
};

// A command that changes namespaces.
struct NamespaceCommand {
  std::deque<std::uint32_t> nsids = {};  // one after the other
  std::function<NamespaceChange(std::uint32_t nsid)> begin = nullptr;
  bool goes_on = false;  // with the others where one has failed
};

class NamespaceChanges {
 public:
  explicit NamespaceChanges(std::mutex& subsystem_mutex) : subsystem_mutex_(subsystem_mutex) {}

  // While none is under way. The controller's end_change() follows, be it before this returns, unless it was forgotten.
  void run(Controller& controller, std::uint16_t cid, std::uint32_t nsid, NamespaceCommand command);
  // True, and keeps the command until then, while changes are under way.
  bool postpone(Controller& controller, const nvme::Sqe& sqe);
  // It has been reset, or goes. What has begun ends without it. The subsystem's mutex is not needed.
  void forget(const Controller& controller);

 private:
  struct Running {
    NamespaceCommand command = {};
    QueueHost* host = nullptr;
    Controller* controller = nullptr;  // nullptr: it is not to be told
    std::uint16_t cid = 0;
    std::uint32_t nsid = 0;
    nvme::Status status = nvme::Status::success;
  };
  struct Postponed {
    Controller* controller;
    nvme::Sqe sqe;
  };
  std::optional<NamespaceChange> begin_next();
  void go_on();
  void end();

  std::mutex& subsystem_mutex_;
  std::mutex mutex_;  // guards what follows; taken after the subsystem's
  std::optional<Running> running_;
  std::deque<Postponed> postponed_;
  bool resuming_ = false;
};

}  // namespace flashmob::controller
