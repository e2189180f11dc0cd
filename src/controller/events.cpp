#include "controller/events.h"

#include <algorithm>

#include "nvme/features.h"

namespace flashmob::controller {
namespace {

bool configured(nvme::AsyncEvent event, std::uint32_t configuration) {
  // Error events have no switch, and SMART events were filtered by the warning bits when they were raised.
  if (event.type != nvme::AsyncEventType::notice) return true;
  return (configuration & nvme::kAsyncEventNamespaceAttribute) != 0;
}

}  // namespace

void EventQueue::raise(nvme::AsyncEvent event) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t code = nvme::encode_async_event(event);
  for (const nvme::AsyncEvent& waiting : pending_) {
    if (nvme::encode_async_event(waiting) == code) return;
  }
  pending_.push_back(event);
  any_pending_.store(true, std::memory_order_release);
}

bool EventQueue::add_request(std::uint16_t cid) {
  if (requests_.size() >= request_limit_) return false;
  requests_.push_back(cid);
  return true;
}

bool EventQueue::abort_request(std::uint16_t cid) {
  const auto found = std::find(requests_.begin(), requests_.end(), cid);
  if (found == requests_.end()) return false;
  requests_.erase(found);
  return true;
}

bool EventQueue::masked(nvme::AsyncEventType type) const {
  return std::any_of(reported_.begin(), reported_.end(), [&](const nvme::AsyncEvent& e) { return e.type == type; });
}

std::optional<EventQueue::Delivery> EventQueue::next(std::uint32_t configuration) {
  if (!any_pending_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  std::erase_if(pending_, [&](const nvme::AsyncEvent& e) { return !configured(e, configuration); });
  any_pending_.store(!pending_.empty(), std::memory_order_relaxed);
  if (requests_.empty()) return std::nullopt;
  const auto event =
      std::find_if(pending_.begin(), pending_.end(), [&](const nvme::AsyncEvent& e) { return !masked(e.type); });
  if (event == pending_.end()) return std::nullopt;
  const Delivery delivery{requests_.front(), *event};
  requests_.pop_front();
  reported_.push_back(*event);
  pending_.erase(event);
  any_pending_.store(!pending_.empty(), std::memory_order_relaxed);
  return delivery;
}

void EventQueue::on_log_read(nvme::LogPage log_page) {
  std::erase_if(reported_, [&](const nvme::AsyncEvent& e) { return e.log_page == log_page; });
  const std::lock_guard lock(mutex_);
  std::erase_if(pending_, [&](const nvme::AsyncEvent& e) {
    return e.log_page == log_page && e.type != nvme::AsyncEventType::error;
  });
  any_pending_.store(!pending_.empty(), std::memory_order_relaxed);
}

void EventQueue::reset() {
  requests_.clear();
  reported_.clear();
  const std::lock_guard lock(mutex_);
  pending_.clear();
  any_pending_.store(false, std::memory_order_relaxed);
}

}  // namespace flashmob::controller
