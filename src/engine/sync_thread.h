// Does beside the engine's threads what waits for a disk (fdatasync(), msync(), saving what hosts change), so that no
// queue of a unit waits with it but the one that asked.
//
// One per device, in real time only. Any worker submits; what is done comes to its mailbox. Requests lie in the
// workers' slabs, so there may be as many as there are commands, and none allocates. A host decides how many there are,
// and the thread how long that takes others: workers take turns, and where more than a few wait for one medium, one
// flush serves them all. Controllers' work is one more worker's here, each piece by itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/slab.h"

namespace flashmob::engine {

// Requests in the order in which they came.
class SyncList {
 public:
  bool empty() const { return first_ == nullptr; }
  ColdRequest* first() const { return first_; }
  void push(ColdRequest& request) {
    request.sync_next = nullptr;
    (first_ == nullptr ? first_ : last_->sync_next) = &request;
    last_ = &request;
  }
  // Nothing, if there is none.
  ColdRequest* pop() {
    ColdRequest* const request = first_;
    if (request != nullptr) first_ = request->sync_next;
    return request;
  }

 private:
  ColdRequest* first_ = nullptr;
  ColdRequest* last_ = nullptr;
};

// What the request's sync is, on whichever thread; `all`: of the whole medium. False if the disk refuses; `flushed`: as
// for save_marks().
bool make_durable(const ColdRequest& request, bool all = false, bool* flushed = nullptr);

// A worker's: what it has asked for, and what is done of it.
class SyncMailbox {
 public:
  // `wake` is called after something is done.
  explicit SyncMailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  bool empty() const { return empty_.load(std::memory_order_acquire); }
  // What is done, all of it.
  SyncList take();

 private:
  friend class SyncThread;
  void put(SyncList done);

  std::function<void()> wake_;
  SyncList waiting_;  // guarded by the thread's mutex
  SyncList taken_;  // the thread's own: what it is at
  std::mutex mutex_;
  SyncList done_;
  std::atomic<bool> empty_{true};
};

class SyncThread {
 public:
  // So many ranges of one medium are made durable one by one; more are not worth it.
  static constexpr unsigned kFewSyncs = 16;

  SyncThread() = default;
  ~SyncThread() { stop(); }
  SyncThread(const SyncThread&) = delete;
  SyncThread& operator=(const SyncThread&) = delete;

  // Before start(). The mailbox outlives the thread.
  void add(SyncMailbox& mailbox) { mailboxes_.push_back(&mailbox); }
  void start();
  // When what is under way is done. What waits is answered as not durable.
  void stop();
  // sync_ns, with media_offset and bytes, of which 0 are all. False: the thread does not run.
  bool submit(SyncMailbox& mailbox, ColdRequest& request);
  // Something else that waits for a disk, and tells whom it concerns; it does not throw, and returns whether it has
  // waited: one that has not leaves its turn to the next. What waits when the thread stops is not run. False: the
  // thread does not run.
  bool submit(std::function<bool()> task);

 private:
  void loop();
  bool take_next();
  bool take_request();
  void take_served(const ColdRequest& first, bool many);
  void answer(bool good, bool flushed);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;
  std::vector<SyncMailbox*> mailboxes_;
  std::size_t next_ = 0;  // whose turn it is
  const ColdRequest* at_ = nullptr;  // the thread's own: what it is at
  bool all_ = false;  // of its medium
  std::deque<std::function<bool()>> tasks_;
  std::function<bool()> task_;  // the thread's own: what it is at, instead of a request
  bool was_task_ = false;
  std::thread thread_;
};

}  // namespace flashmob::engine
