#include "controller/namespace_changes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "controller/controller.h"

namespace flashmob::controller {

void NamespaceChanges::run(Controller& controller, std::uint16_t cid, std::uint32_t nsid, NamespaceCommand command) {
  {
    const std::lock_guard lock(mutex_);
    FLASHMOB_CHECK(!running_);
    running_ = Running{std::move(command), &controller.queue_host(), &controller, cid, nsid};
  }
  go_on();
}

bool NamespaceChanges::postpone(Controller& controller, const nvme::Sqe& sqe) {
  const std::lock_guard lock(mutex_);
  if (running_) postponed_.push_back({&controller, sqe});
  return running_.has_value();
}

void NamespaceChanges::forget(const Controller& controller) {
  const std::lock_guard lock(mutex_);
  if (running_ && running_->controller == &controller) running_->controller = nullptr;
  std::erase_if(postponed_, [&](const Postponed& one) { return one.controller == &controller; });
}

// The next namespace's change that could begin; nothing where none is left.
std::optional<NamespaceChange> NamespaceChanges::begin_next() {
  const std::lock_guard lock(subsystem_mutex_);
  // Nobody else changes what runs, but whom to tell.
  NamespaceCommand& command = running_->command;
  while (!command.nsids.empty() && (running_->status == nvme::Status::success || command.goes_on)) {
    const std::uint32_t nsid = command.nsids.front();
    command.nsids.pop_front();
    NamespaceChange change = command.begin(nsid);
    if (has_begun(change)) return change;
    running_->status = change.status;
  }
  return std::nullopt;
}

void NamespaceChanges::go_on() {
  std::optional<NamespaceChange> change = begin_next();
  if (!change) return end();
  running_->host->run_change(std::move(change->work), [this, finish = std::move(change->end)](bool) {
    {
      const std::lock_guard lock(subsystem_mutex_);
      const nvme::Status status = finish(*running_->host);
      if (status != nvme::Status::success) running_->status = status;
    }
    go_on();
  });
}

void NamespaceChanges::end() {
  Running over;
  bool resumes = false;
  {
    const std::lock_guard lock(mutex_);
    over = *std::exchange(running_, std::nullopt);
    // What is resumed below may be another such command, and come here before it returns.
    resumes = !std::exchange(resuming_, true);
  }
  if (over.controller != nullptr) over.controller->end_change(over.cid, over.nsid, over.status);
  if (!resumes) return;
  for (;;) {
    Postponed next;
    {
      const std::lock_guard lock(mutex_);
      if (running_ || postponed_.empty()) {
        resuming_ = false;
        return;
      }
      next = postponed_.front();
      postponed_.pop_front();
    }
    next.controller->resume_admin(next.sqe);
  }
}

}  // namespace flashmob::controller
