#include "load/completion_waiter.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "flashmob/error.h"

namespace flashmob::load {

CompletionWaiter::CompletionWaiter(Completion completion) : completion_(completion) {
  if (completion == Completion::poll) return;
  event_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event_ < 0)
    throw ConfigError(std::string("no eventfd for interrupts (") + std::strerror(errno) +
                      "); allow the process more descriptors, or poll");
}

CompletionWaiter::~CompletionWaiter() {
  if (event_ >= 0) ::close(event_);
}

void CompletionWaiter::wake() {
  const std::uint64_t one = 1;
  // Nothing can be wrong with it, but that it counts to the end, and then the thread is awake.
  [[maybe_unused]] const auto written = ::write(event_, &one, sizeof(one));
}

void CompletionWaiter::disarm() {
  if (!asleep_.exchange(false, std::memory_order_relaxed)) block(0);  // somebody has written meanwhile, or will
}

std::uint64_t CompletionWaiter::sleep_until_ns(std::uint64_t now_ns, const CompletionPredictor* predictor,
                                               std::uint64_t deadline_ns) const {
  if (completion_ == Completion::poll) return 0;
  // A timer wakes late, but by how much is known.
  const std::uint64_t late_ns = oversleeps_.estimate_ns();
  const std::uint64_t last_ns = std::min(now_ns + kMostSleepNs, deadline_ns - std::min(deadline_ns, late_ns));
  const auto if_worth_it = [&](std::uint64_t until_ns) { return until_ns > now_ns + kLeastSleepNs ? until_ns : 0; };
  if (completion_ == Completion::interrupt || predictor == nullptr) return if_worth_it(last_ns);
  const CompletionPredictor::Expected next = predictor->next();
  if (next.due_ns == 0) return 0;
  if (next.due_ns == CompletionPredictor::kNever) return if_worth_it(last_ns);
  const bool is_long = late_ns != 0 && next.takes_ns > kLongWait * late_ns;
  const bool is_dense = next.takes_ns > kShortWait * late_ns && next.takes_ns < late_ns * next.in_flight;
  if (is_long || is_dense) return if_worth_it(last_ns);
  if (next.due_ns > now_ns) {
    // To be sure to be awake in time one must wake early, and polls until then: of a long wait, a small part is dearer
    // to save than to lose.
    const std::uint64_t may_lose_ns = next.takes_ns / kMayLose;
    const std::uint64_t early_ns = late_ns - std::min(late_ns, may_lose_ns);
    return if_worth_it(std::min(last_ns, next.due_ns - std::min(next.due_ns, early_ns)));
  }
  // It is overdue. To poll on for as long as waking up takes costs no more than twice what the best choice would.
  const std::uint64_t patience_ns = std::max({late_ns, 4 * next.spread_ns, kLeastSleepNs});
  return now_ns - next.due_ns < patience_ns ? 0 : if_worth_it(last_ns);
}

bool CompletionWaiter::block(std::uint64_t for_ns) {
  thread_local const bool is_exact = ::prctl(PR_SET_TIMERSLACK, 1) == 0;
  static_cast<void>(is_exact);
  pollfd events{event_, POLLIN, 0};
  const timespec most{static_cast<time_t>(for_ns / 1'000'000'000), static_cast<long>(for_ns % 1'000'000'000)};
  const bool came = ::ppoll(&events, 1, &most, nullptr) > 0;
  asleep_.store(false, std::memory_order_relaxed);
  std::uint64_t count = 0;
  return came && ::read(event_, &count, sizeof(count)) > 0;
}

}  // namespace flashmob::load
