// The engine's admin side: polling controllers, and what they ask of a disk.
#include <algorithm>
#include <iterator>
#include <new>

#include "engine/engine.h"

namespace flashmob::engine {

bool Engine::admin_round() {
  bool worked = false;
  const std::uint64_t now_ns = units_->first().time().now_ns;
  for (IoServer* const server : polled_) worked |= server->poll(now_ns);
  if (beside_done_.load(std::memory_order_acquire) != 0) [[unlikely]] {
    units_->first().settle_own();
    end_disk_work();
    worked = true;
  }
  const std::size_t count = attached_.size();
  if (next_polled_ >= count) next_polled_ = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = next_polled_ + i < count ? next_polled_ + i : next_polled_ + i - count;
    Attached& held = *attached_[at];
    if (!held.controller->needs_poll() && now_ns < held.next_poll_ns) continue;
    worked |= held.controller->needs_poll();
    units_->first().settle_own();
    held.next_poll_ns = held.controller->poll(now_ns);
    // The others' turn comes in the next round, after everybody's I/O. (In virtual time nothing takes any.)
    if (clock_.now_ns() - now_ns < Dispatcher::kAdminRoundNs) continue;
    next_polled_ = at + 1;
    return true;
  }
  next_polled_ = 0;
  return worked;
}

std::uint64_t Engine::admin_deadline_ns() const {
  if (beside_done_.load(std::memory_order_acquire) != 0) return 0;
  std::uint64_t deadline = UINT64_MAX;
  for (const IoServer* const server : polled_) deadline = std::min(deadline, server->deadline_ns());
  for (const auto& held : attached_)
    deadline = std::min(deadline, held->controller->needs_poll() ? 0 : held->next_poll_ns);
  return deadline;
}

void Engine::run_disk_work(controller::Controller& controller, std::uint64_t ticket, controller::DiskWork work) {
  const auto is_at_disk = [&](const Beside& one) { return one.controller == &controller && one.submitted; };
  const bool is_next = std::none_of(beside_.begin(), beside_.end(), is_at_disk);
  Beside& one = beside_.emplace_back(&controller, ticket, std::move(work));
  if (one.work.waits && (!is_next || submit_disk_work(one))) return;
  const bool good = one.work.run().good;
  beside_.pop_back();
  controller.on_disk_work(ticket, good);
}

void Engine::run_change(controller::DiskWork work, std::function<void(bool good)> then) {
  Beside& one = beside_.emplace_back(nullptr, 0, std::move(work), std::move(then));
  if (one.work.waits && submit_disk_work(one)) return;
  const auto last = std::prev(beside_.end());
  then = std::move(one.then);
  const bool good = one.work.run().good;
  beside_.erase(last);
  then(good);
}

// False: there is no thread for it.
bool Engine::submit_disk_work(Beside& one) {
  one.submitted = syncs_.submit([this, &one] {
    controller::DiskDone done{.good = false, .waited = false};
    try {
      if (one.wanted.load(std::memory_order_relaxed)) done = one.work.run();
    } catch (const std::bad_alloc&) {
      // Then it is not done, and whoever asked is told so.
    }
    one.good = done.good;
    one.done.store(true, std::memory_order_release);
    beside_done_.fetch_add(1, std::memory_order_release);
    wake();
    return done.waited;
  });
  return one.submitted;
}

void Engine::forget_disk_work(controller::Controller& controller) {
  beside_.remove_if([&](const Beside& one) { return one.controller == &controller && !one.submitted; });
  for (Beside& one : beside_)
    if (one.controller == &controller) one.wanted.store(false, std::memory_order_relaxed);
}

void Engine::submit_next(const controller::Controller& controller) {
  const auto next =
      std::find_if(beside_.begin(), beside_.end(), [&](const Beside& one) { return one.controller == &controller; });
  if (next != beside_.end() && !next->submitted) submit_disk_work(*next);
}

// Tells the controllers whose work is done.
void Engine::end_disk_work() {
  for (auto at = beside_.begin(); at != beside_.end();) {
    if (!at->done.load(std::memory_order_acquire)) {
      ++at;
      continue;
    }
    beside_done_.fetch_sub(1, std::memory_order_relaxed);
    controller::Controller* const controller = at->controller;
    const std::uint64_t ticket = at->ticket;
    const bool good = at->good;
    const std::function<void(bool)> then = std::move(at->then);
    beside_.erase(at);
    if (then) {
      then(good);
    } else if (controller != nullptr) {
      submit_next(*controller);
      controller->on_disk_work(ticket, good);
    }
    at = beside_.begin();  // it may have asked for more
  }
}

}  // namespace flashmob::engine
