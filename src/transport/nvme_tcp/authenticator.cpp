#include "transport/nvme_tcp/authenticator.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace flashmob::transport {

// The border of the thread, and of the loop where there is none: whatever is thrown ends the host's connection.
void AuthenticationStep::run() noexcept {
  try {
    if (is_send)
      controller->send(message);
    else
      message = controller->receive();
  } catch (...) {
    failed = true;
  }
  done.store(true, std::memory_order_release);
}

Authenticator::~Authenticator() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool Authenticator::submit(std::shared_ptr<AuthenticationStep> step) {
  const std::lock_guard lock(mutex_);
  const auto of_address = [&](const auto& other) { return other->address == step->address; };
  // The last places are for addresses that have nothing waiting yet.
  const bool crowded = waiting_.size() >= kMostWaiting / 2 && std::ranges::any_of(waiting_, of_address);
  if (crowded || waiting_.size() >= kMostWaiting) return false;
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] {
        pthread_setname_np(pthread_self(), "fm-nvme-auth");
        // Whoever has commands to serve goes first where cores are short. Nobody needs a privilege to step back; where
        // it fails, all is well.
        (void)::setpriority(PRIO_PROCESS, 0, kNice);
        work();
      });
    } catch (const std::system_error&) {
      return false;
    }
  }
  waiting_.push_back(std::move(step));
  changed_.notify_one();
  return true;
}

std::shared_ptr<AuthenticationStep> Authenticator::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
  if (stopping_) return nullptr;
  auto found = std::ranges::find_if(waiting_, [this](const auto& step) { return step->address != served_; });
  if (found == waiting_.end()) found = waiting_.begin();
  std::shared_ptr<AuthenticationStep> step = std::move(*found);
  waiting_.erase(found);
  served_ = step->address;
  return step;
}

void Authenticator::work() {
  while (const std::shared_ptr<AuthenticationStep> step = next()) {
    if (step.use_count() == 1) continue;  // the connection has ended meanwhile
    step->run();
    wake_();
  }
}

}  // namespace flashmob::transport
