#include "engine/sync_thread.h"

#include <pthread.h>

namespace flashmob::engine {

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

// Takes the oldest request of the worker whose turn it is; with a flush all that wait for the same medium, because what
// was submitted before it begins, it serves. False: nothing waits.
bool SyncThread::take_next() {
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
      same += one->sync_media == first.sync_media;
  const bool many = same > kFewSyncs;
  for (SyncMailbox* const mailbox : mailboxes_) {
    SyncList left;
    while (ColdRequest* const one = mailbox->waiting_.pop()) {
      const bool is_served =
          one == &first || (one->sync_media == first.sync_media && (many || (first.bytes == 0 && one->bytes == 0)));
      (is_served ? mailbox->taken_ : left).push(*one);
    }
    mailbox->waiting_ = left;
  }
  all_ = many || first.bytes == 0;
  at_ = &first;
  return true;
}

void SyncThread::answer(bool good) {
  for (SyncMailbox* const mailbox : mailboxes_) {
    if (mailbox->taken_.empty()) continue;
    for (ColdRequest* one = mailbox->taken_.first(); one != nullptr; one = one->sync_next) one->sync_good = good;
    mailbox->put(std::exchange(mailbox->taken_, {}));
  }
}

void SyncThread::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    bool works = false;
    changed_.wait(lock, [&] { return !running_ || (works = take_next()); });
    if (!works) break;
    lock.unlock();
    answer(all_ ? at_->sync_media->flush() : at_->sync_media->sync(at_->media_offset, at_->bytes));
    lock.lock();
  }
  // The engine has stopped: nobody is there to be told, and the disk may take its time for each.
  for (SyncMailbox* const mailbox : mailboxes_) mailbox->taken_ = std::exchange(mailbox->waiting_, {});
  lock.unlock();
  answer(false);
}

}  // namespace flashmob::engine
