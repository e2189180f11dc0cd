#include "engine/engine_thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/asymmetric_fence.h"

namespace flashmob::engine {
namespace {

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::uint64_t timeout_ns) {
  timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000), static_cast<long>(timeout_ns % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &timeout, nullptr, 0);
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// Rounds without work between two looks at the clock.
constexpr std::uint32_t kIdleRoundsPerLook = 64;
// A sleep must end this long before a deadline: what a wake-up from the kernel may take.
constexpr std::uint64_t kWakeMarginNs = 150'000;
// So often who parks and who stands parked pass their core on before they sleep: a queue operation takes some
// microseconds, less than a wake-up. A round that waits for a disk, or a flush of the admin side, takes much longer,
// and whoever looked all that time would take the core from those who have work.
constexpr int kYieldsBeforeSleep = 200;
// A core that does not come back before this has gone to somebody who computes, and each further yield would give him a
// time slice; one who sleeps is woken in time.
constexpr std::uint64_t kLongYieldNs = 100'000;

// One of them more; false: it is time to sleep.
bool yield_instead(const Clock& clock, int& yields) {
  if (yields >= kYieldsBeforeSleep) return false;
  const std::uint64_t before_ns = clock.now_ns();
  std::this_thread::yield();
  yields = clock.now_ns() - before_ns >= kLongYieldNs ? kYieldsBeforeSleep : yields + 1;
  return true;
}

}  // namespace

bool pin_this_thread(unsigned core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0;
}

EngineThread::EngineThread(std::string name, ThreadClock& time, IdleRule idle, std::atomic<std::uint32_t>& sleepers,
                           std::function<bool()> round, std::function<std::uint64_t()> deadline_ns)
    : name_(std::move(name)),
      time_(time),
      sleep_ns_(idle.sleep_ns),
      spin_ns_(idle.spin_ns),
      sleepers_(sleepers),
      round_(std::move(round)),
      deadline_ns_(std::move(deadline_ns)) {}

EngineThread::~EngineThread() { stop(); }

void EngineThread::start(int core) {
  standing_.store(0);
  started_.store(false);
  thread_ = std::thread([this, core] {
    // A round may ask is_current(), which reads thread_.
    while (!started_.load(std::memory_order_acquire)) std::this_thread::yield();
    pthread_setname_np(pthread_self(), name_.c_str());
    if (core >= 0) pin_this_thread(static_cast<unsigned>(core));
    loop();
    // Whoever waits for it to stand has it to himself now.
    standing_.fetch_or(kEnded);
    futex_wake(standing_);
  });
  started_.store(true, std::memory_order_release);
}

void EngineThread::stop() {
  if (!thread_.joinable()) return;
  standing_.fetch_or(kStopped);
  futex_wake(standing_);
  wake();
  thread_.join();
}

void EngineThread::wake() {
  if (asleep_.exchange(0) != 0) futex_wake(asleep_);
}

void EngineThread::park() {
  if (!running() || is_current()) return;
  std::uint32_t seen = standing_.fetch_or(kWanted) | kWanted;
  // Either its last look before it sleeps sees that, or we see that it sleeps.
  wake();
  for (int yields = 0; (seen & (kStands | kEnded)) == 0; seen = standing_.load())
    if (!yield_instead(time_.clock, yields)) futex_wait(standing_, seen);
}

void EngineThread::unpark() {
  if (!running() || is_current()) return;
  if ((standing_.fetch_and(~(kWanted | kStands)) & kStands) != 0) futex_wake(standing_);
}

// Until it is wanted no more. One that is stopped meanwhile ends without another round.
void EngineThread::stand_parked() {
  std::uint32_t seen = standing_.load();
  while (seen == kWanted && !standing_.compare_exchange_weak(seen, kWanted | kStands)) {
  }
  if (seen != kWanted) return;
  futex_wake(standing_);
  seen = kWanted | kStands;
  for (int yields = 0; seen == (kWanted | kStands); seen = standing_.load())
    if (!yield_instead(time_.clock, yields)) futex_wait(standing_, seen);
  if ((seen & kStopped) != 0) return;
  const std::uint64_t now_ns = time_.clock.now_ns();
  time_.gaps.restart(now_ns);
  if (on_resumed_) on_resumed_(now_ns);
}

void EngineThread::loop() {
  time_.gaps.restart(time_.clock.now_ns());
  std::uint64_t last_work_ns = time_.clock.now_ns();
  std::uint32_t idle_rounds = 0;
  for (;;) {
    if (const std::uint32_t standing = standing_.load(std::memory_order_relaxed); standing != 0) [[unlikely]] {
      if ((standing & kStopped) != 0) return;
      stand_parked();
      continue;
    }
    const std::uint64_t before_ns = time_.now_ns;
    if (round_()) {
      idle_rounds = 0;
      if (time_.now_ns - last_work_ns >= CoreSharing::kSpinNs) [[unlikely]] {
        if (sharing_.found(time_.now_ns, last_work_ns, before_ns, time_.gaps.gap_end_ns())) take_short_turns();
      }
      last_work_ns = time_.now_ns;
      continue;
    }
    if (++idle_rounds % kIdleRoundsPerLook != 0) continue;
    const bool shares_core = sharing_.is_likely(time_.now_ns);
    std::uint64_t spin_ns = spin_ns_.load(std::memory_order_relaxed);
    if (shares_core) spin_ns = std::min(spin_ns, CoreSharing::kSpinNs);
    if (time_.now_ns - last_work_ns < spin_ns) continue;
    if (deadline_ns_() < time_.now_ns + 2 * kWakeMarginNs) continue;
    sleep_until_work(shares_core);
    // One look is enough to go on sleeping.
    idle_rounds = kIdleRoundsPerLook - 1;
  }
}

void EngineThread::sleep_until_work(bool shares_core) {
  const std::uint64_t began_ns = time_.now_ns;
  std::uint64_t sleep = shares_core ? std::min(sleep_ns_, CoreSharing::kSleepNs) : sleep_ns_;
  asleep_.store(1, std::memory_order_seq_cst);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  // Drivers store a doorbell and then load the sleepers count without a fence between them. A doorbell stored before
  // this fence is seen by this round; one stored after it finds the sleepers count set. Where there is no such fence,
  // the longest sleep bounds a lost wake-up.
  heavy_fence();
  bool did_sleep = false;
  if (!round_() && standing_.load() == 0) {
    const std::uint64_t deadline = deadline_ns_();
    if (deadline != UINT64_MAX)
      sleep = deadline > time_.now_ns + kWakeMarginNs ? std::min(sleep, deadline - time_.now_ns - kWakeMarginNs) : 0;
    did_sleep = sleep != 0;
    if (did_sleep) futex_wait(asleep_, 1, sleep);
  } else {
    sleep = UINT64_MAX;
  }
  asleep_.store(0, std::memory_order_seq_cst);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  const std::uint64_t now_ns = time_.clock.now_ns();
  const std::uint64_t slept_ns = now_ns > began_ns ? now_ns - began_ns : 0;
  const std::uint64_t overslept_ns = slept_ns > sleep ? slept_ns - sleep : 0;
  sharing_.woke(now_ns, overslept_ns);
  // A nap on a shared core is not for want of work, and what it lasts too long was taken.
  time_.gaps.restart(shares_core ? now_ns - overslept_ns : now_ns);
  if (did_sleep && !shares_core) time_.slept_until_ns = now_ns;
  if (on_resumed_) on_resumed_(now_ns);
}

std::uint64_t EngineThread::cpu_time_ns() const {
  if (!thread_.joinable()) return 0;
  clockid_t clock{};
  if (pthread_getcpuclockid(const_cast<std::thread&>(thread_).native_handle(), &clock) != 0) return 0;
  timespec t{};
  if (clock_gettime(clock, &t) != 0) return 0;
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace flashmob::engine
