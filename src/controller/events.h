// Asynchronous events of one controller (NVMe Base 2.0c, 5.2): events that wait to be reported, and the Asynchronous
// Event Request commands that wait for one.
//
// After an event of a type was reported, that type stays masked until the host reads the event's log page with RAE
// cleared. raise() may be called by any thread; everything else belongs to the admin thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "nvme/async_event.h"

namespace flashmob::controller {

class EventQueue {
 public:
  struct Delivery {
    std::uint16_t cid;
    nvme::AsyncEvent event;
  };

  explicit EventQueue(std::uint32_t request_limit) : request_limit_(request_limit) {}

  // Any thread. An event that is already waiting is not queued twice.
  void raise(nvme::AsyncEvent event);

  // Takes a request; false when as many wait as the controller allows (AERL).
  bool add_request(std::uint16_t cid);
  // Withdraws a request; false if none with that identifier waits.
  bool abort_request(std::uint16_t cid);
  // The next event to report, paired with the oldest request; nothing when either is missing.
  // `configuration` is the Asynchronous Event Configuration feature: events that it leaves out are dropped.
  std::optional<Delivery> next(std::uint32_t configuration);
  // The host has read `log_page` with RAE cleared: unmasks the types reported with it. Waiting events that the page
  // already told of are dropped with it; error events stay, because the error log does not name them.
  void on_log_read(nvme::LogPage log_page);
  void reset();

 private:
  bool masked(nvme::AsyncEventType type) const;

  std::uint32_t request_limit_;
  std::deque<std::uint16_t> requests_;
  std::vector<nvme::AsyncEvent> reported_;  // one per masked type
  std::atomic<bool> any_pending_{false};
  std::mutex mutex_;                      // guards pending_
  std::vector<nvme::AsyncEvent> pending_;  // bounded: each kind of event at most once
};

}  // namespace flashmob::controller
