#include "initiator/nvme_tcp/tcp_pump.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <utility>

#include "base/check.h"
#include "base/platform.h"

namespace flashmob::initiator {
namespace {

// Rounds without work between two looks at the clock, and rounds of any kind between two looks at idle connections.
constexpr std::uint32_t kRoundsPerClock = 32;
constexpr std::uint32_t kRoundsPerLook = 4096;
constexpr std::uint64_t kLongestSleepNs = 1'000'000'000;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace

TcpPump::TcpPump(memory::AddressSpace& space, Events& events, std::uint64_t idle_spin_ns,
                 std::atomic<std::uint32_t>& sleepers)
    : reader_(space), events_(events), idle_spin_ns_(idle_spin_ns), sleepers_(sleepers) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || event_ < 0) {
    if (epoll_ >= 0) ::close(epoll_);
    if (event_ >= 0) ::close(event_);
    throw ConfigError("no file descriptors left for an NVMe/TCP connection; raise the limit (ulimit -n)");
  }
  // Edge-triggered, so that a wake-up need not be read away.
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.ptr = nullptr}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &event);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "nvme-tcp-pump");
    loop();
  });
}

TcpPump::~TcpPump() {
  stop_.store(true, std::memory_order_release);
  wake();
  thread_.join();
  entries_.clear();
  ::close(epoll_);
  ::close(event_);
}

void TcpPump::wake() {
  const std::uint64_t one = 1;
  // A full counter means that the pump is being woken already.
  [[maybe_unused]] const ssize_t written = ::write(event_, &one, sizeof one);
}

void TcpPump::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    has_tasks_.store(true, std::memory_order_release);
  }
  wake();
}

void TcpPump::run(const std::function<void()>& task) {
  FLASHMOB_CHECK(thread_.get_id() != std::this_thread::get_id());
  std::promise<void> done;
  post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

void TcpPump::do_tasks() {
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
    has_tasks_.store(false, std::memory_order_relaxed);
  }
  for (const auto& task : tasks) task();
}

void TcpPump::add(std::unique_ptr<TcpQueue> queue) {
  entries_.push_back({.queue = std::move(queue)});
  epoll_event event{.events = EPOLLIN, .data = {.ptr = entries_.back().queue.get()}};
  FLASHMOB_CHECK(epoll_ctl(epoll_, EPOLL_CTL_ADD, entries_.back().queue->stream().fd(), &event) == 0);
}

TcpQueue* TcpPump::find(std::uint16_t qid) {
  const auto at = std::ranges::find_if(entries_, [qid](const Entry& entry) { return entry.queue->qid() == qid; });
  return at == entries_.end() ? nullptr : at->queue.get();
}

std::unique_ptr<TcpQueue> TcpPump::remove(std::uint16_t qid) {
  const auto at = std::ranges::find_if(entries_, [qid](const Entry& entry) { return entry.queue->qid() == qid; });
  if (at == entries_.end()) return nullptr;
  if (!at->failed) epoll_ctl(epoll_, EPOLL_CTL_DEL, at->queue->stream().fd(), nullptr);
  auto queue = std::move(at->queue);
  entries_.erase(at);
  return queue;
}

void TcpPump::poll_once(TcpQueue& queue) {
  queue.look_at_doorbell();
  reader_.enter();
  queue.poll(reader_, true);
  reader_.leave();
  report();
}

void TcpPump::lose_all(const std::string& reason) {
  for (Entry& entry : entries_) entry.queue->abandon(reason);
}

bool TcpPump::round(bool look) {
  bool worked = false;
  for (Entry& entry : entries_) entry.queue->look_at_doorbell();
  reader_.enter();
  for (Entry& entry : entries_) worked |= entry.queue->poll(reader_, look);
  reader_.leave();
  report();
  return worked;
}

// Interrupts and failures. By index and with nothing kept across a call: what is called may not add or remove queues,
// but the tasks that it posts will.
void TcpPump::report() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    CompletionRing* ring = entry.queue->completions();
    if (ring != nullptr && ring->take_posted() && ring->interrupt().enabled)
      events_.interrupt(ring->interrupt().vector);
    if (entry.failed) continue;
    const bool broken = entry.queue->rings_broken();
    if (!entry.queue->stream().lost() && !broken) continue;
    entry.failed = true;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, entry.queue->stream().fd(), nullptr);
    if (entry.queue->closing()) continue;
    events_.queue_failed(broken ? "a queue's ring or doorbell is not what the host said"
                                : entry.queue->stream().reason());
  }
}

void TcpPump::tick(std::uint64_t now) {
  for (Entry& entry : entries_) entry.queue->tick(now);
}

void TcpPump::loop() {
  std::uint64_t last_work_ns = now_ns();
  std::uint32_t idle_rounds = 0;
  std::uint32_t rounds = 0;
  while (!stop_.load(std::memory_order_acquire)) {
    if (has_tasks_.load(std::memory_order_acquire)) [[unlikely]] {
      do_tasks();
      idle_rounds = 0;
    }
    const bool look = ++rounds % kRoundsPerLook == 0;
    if (look) tick(now_ns());
    if (round(look)) {
      idle_rounds = 0;
      continue;
    }
    // The clock starts with the first round without work, so that busy rounds do not read it.
    if (idle_rounds++ == 0) last_work_ns = now_ns();
    if (idle_rounds % kRoundsPerClock != 0) continue;
    if (now_ns() - last_work_ns >= idle_spin_ns_) sleep_until_work();
  }
}

// Asks for what the queue waits for; the kernel keeps the question between sleeps.
void TcpPump::watch(Entry& entry) {
  const bool output = entry.queue->stream().send_blocked();
  if (entry.failed || output == entry.wants_output) return;
  entry.wants_output = output;
  epoll_event event{.events = output ? EPOLLIN | EPOLLOUT : EPOLLIN, .data = {.ptr = entry.queue.get()}};
  epoll_ctl(epoll_, EPOLL_CTL_MOD, entry.queue->stream().fd(), &event);
}

void TcpPump::sleep_until_work() {
  const std::uint64_t now = now_ns();
  tick(now);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  // Drivers store a doorbell and then load the sleepers' count without a fence between them. A doorbell stored before
  // this fence is seen by this round; one stored after it finds the sleepers' count set. Where there is no such fence,
  // the longest sleep bounds a lost wake-up.
  heavy_fence();
  if (!round(true) && !has_tasks_.load(std::memory_order_acquire) && !stop_.load(std::memory_order_acquire)) {
    std::uint64_t sleep_ns = kLongestSleepNs;
    for (Entry& entry : entries_) {
      watch(entry);
      const std::uint64_t deadline = entry.queue->deadline_ns();
      sleep_ns = std::min(sleep_ns, deadline > now ? deadline - now : 0);
    }
    std::array<epoll_event, 16> events;
    epoll_wait(epoll_, events.data(), static_cast<int>(events.size()),
               static_cast<int>((sleep_ns + 999'999) / 1'000'000));
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  // What ended the sleep may be on a connection that waits for nothing.
  round(true);
}

}  // namespace flashmob::initiator
