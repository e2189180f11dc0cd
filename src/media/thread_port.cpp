#include "media/thread_port.h"

#include <algorithm>
#include <system_error>

namespace flashmob::media {

class WaitingThreads::Port final : public BlockPort {
 public:
  Port(WaitingThreads& threads, std::uint32_t depth) : threads_(threads) { done_.reserve(depth); }
  ~Port() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return under_way_ == 0; });
  }

  void submit(const BlockRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      ++under_way_;
    }
    const std::lock_guard lock(threads_.mutex_);
    auto& ring = threads_.waiting_;
    ring[(threads_.first_ + threads_.count_++) % ring.size()] = {this, request};
    threads_.more_.notify_one();
  }
  void kick() override {}
  std::size_t poll(std::span<BlockDone> done) override {
    const std::lock_guard lock(mutex_);
    const std::size_t count = std::min(done.size(), done_.size());
    std::copy_n(done_.begin(), count, done.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  void hand_back(const BlockDone& done) {
    const std::lock_guard lock(mutex_);
    done_.push_back(done);
    if (--under_way_ == 0) idle_.notify_all();
  }

 private:
  WaitingThreads& threads_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<BlockDone> done_;
  std::uint32_t under_way_ = 0;
};

WaitingThreads::~WaitingThreads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WaitingThreads::start() {
  try {
    while (threads_.size() < kThreads) threads_.emplace_back([this] { run(); });
  } catch (const std::system_error&) {
  }
  return !threads_.empty();
}

std::unique_ptr<BlockPort> WaitingThreads::make_port(std::uint32_t depth) {
  const std::lock_guard lock(mutex_);
  if (!start()) return nullptr;
  // In the new ring what waits begins at 0.
  std::rotate(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(first_), waiting_.end());
  first_ = 0;
  waiting_.resize(waiting_.size() + depth);
  return std::make_unique<Port>(*this, depth);
}

void WaitingThreads::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [this] { return stop_ || count_ != 0; });
    if (count_ == 0) return;
    const Work work = waiting_[first_];
    first_ = (first_ + 1) % waiting_.size();
    --count_;
    lock.unlock();
    work.port->hand_back({work.request.token, transfer_(work.request)});
    lock.lock();
  }
}

}  // namespace flashmob::media
