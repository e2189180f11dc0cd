#include "engine/sync_thread.h"

#include <pthread.h>

#include <new>

#include "command_set/namespace.h"

namespace flashmob::engine {

bool make_durable(const ColdRequest& request, bool all, bool* flushed) {
  command_set::Namespace& ns = request.sync_ns != nullptr ? *request.sync_ns : *request.ns;
  if (request.sync_marks) return ns.save_marks(flushed);
  const bool good = all ? ns.media->flush() : ns.media->sync(request.media_offset, request.bytes);
  if (flushed != nullptr) *flushed = good;
  return good;
}

void SyncMailbox::put(SyncList done) {
  {
    const std::lock_guard lock(mutex_);
    while (ColdRequest* const request = done.pop()) done_.push(*request);
    empty_.store(false, std::memory_order_release);
  }
  wake_();
}

SyncList SyncMailbox::take() {
  const std::lock_guard lock(mutex_);
  empty_.store(true, std::memory_order_release);
  return std::exchange(done_, {});
}

void SyncThread::start() {
  if (thread_.joinable()) return;
  running_ = true;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "fm-sync");
    loop();
  });
}

void SyncThread::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
  }
  changed_.notify_all();
  thread_.join();
}

bool SyncThread::submit(SyncMailbox& mailbox, ColdRequest& request) {
  {
    const std::lock_guard lock(mutex_);
    if (!running_) return false;
    mailbox.waiting_.push(request);
  }
  changed_.notify_one();
  return true;
}

bool SyncThread::submit(std::function<bool()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (!running_) return false;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

// Tasks and requests take turns. False: nothing waits.
bool SyncThread::take_next() {
  const bool takes_request = (was_task_ || tasks_.empty()) && take_request();
  was_task_ = !takes_request && !tasks_.empty();
  if (!was_task_) return takes_request;
  task_ = std::move(tasks_.front());
  tasks_.pop_front();
  return true;
}

// Takes the oldest request of the worker whose turn it is, and those that are served with it. False: none waits.
bool SyncThread::take_request() {
  std::size_t looked = 0;
  while (looked < mailboxes_.size() && mailboxes_[next_]->waiting_.empty()) {
    next_ = (next_ + 1) % mailboxes_.size();
    ++looked;
  }
  if (looked == mailboxes_.size()) return false;
  SyncMailbox& turn = *mailboxes_[next_];
  next_ = (next_ + 1) % mailboxes_.size();
  ColdRequest& first = *turn.waiting_.first();
  unsigned same = 0;
  for (const SyncMailbox* const mailbox : mailboxes_)
    for (const ColdRequest* one = mailbox->waiting_.first(); one != nullptr && same <= kFewSyncs; one = one->sync_next)
      same += one->sync_ns->media == first.sync_ns->media;
  const bool many = same > kFewSyncs;
  take_served(first, many);
  all_ = many || first.bytes == 0;
  at_ = &first;
  return true;
}

// What a flush finds submitted when it begins, it serves; so does saving marks, which flushes before it.
void SyncThread::take_served(const ColdRequest& first, bool many) {
  const auto is_served = [&](const ColdRequest& one) {
    if (&one == &first) return true;
    if (one.sync_ns->media != first.sync_ns->media) return false;
    if (one.sync_marks) return first.sync_marks && one.sync_ns == first.sync_ns;
    return many || first.sync_marks || (first.bytes == 0 && one.bytes == 0);
  };
  for (SyncMailbox* const mailbox : mailboxes_) {
    SyncList left;
    while (ColdRequest* const one = mailbox->waiting_.pop()) (is_served(*one) ? mailbox->taken_ : left).push(*one);
    mailbox->waiting_ = left;
  }
}

// `flushed` is for those who asked for no marks to be saved.
void SyncThread::answer(bool good, bool flushed) {
  for (SyncMailbox* const mailbox : mailboxes_) {
    if (mailbox->taken_.empty()) continue;
    for (ColdRequest* one = mailbox->taken_.first(); one != nullptr; one = one->sync_next)
      one->sync_good = one->sync_marks ? good : flushed;
    mailbox->put(std::exchange(mailbox->taken_, {}));
  }
}

void SyncThread::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    bool works = false;
    changed_.wait(lock, [&] {
      works = running_ && take_next();
      return works || !running_;
    });
    if (!works) break;
    lock.unlock();
    if (task_) {
      was_task_ = std::exchange(task_, nullptr)();
    } else {
      bool flushed = false, good = false;
      try {
        good = make_durable(*at_, all_, &flushed);
      } catch (const std::bad_alloc&) {
        // Then it is not durable; whoever asked is told so, and may ask again.
      }
      answer(good, flushed);
    }
    lock.lock();
  }
  // The engine has stopped: nobody is there to be told, and the disk may take its time for each.
  for (SyncMailbox* const mailbox : mailboxes_) mailbox->taken_ = std::exchange(mailbox->waiting_, {});
  lock.unlock();
  answer(false, false);
}

}  // namespace flashmob::engine
