// How many commands, and how many bytes, somebody may ask for in a second: a virtual schedule (GCRA) of each, in one
// atomic word. Nothing is saved up beyond kBurstNs, so in any stretch of T no more commands are let through than
// rate * (T + kBurstNs) + 1. Bytes are known once commands have been decoded, and are paid afterwards: what is let
// through beyond that bound is kWhilePaying commands a caller at most, and nothing is until they are paid for.
//
// Any thread; no locks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace flashmob {

class RateGate {
 public:
  // Longer than the engine's usual sleep (EngineConfig::idle_sleep_ns), so that nothing is lost in it.
  static constexpr std::uint64_t kBurstNs = 2'000'000;
  // How many commands are let through at once where bytes count.
  static constexpr std::uint32_t kWhilePaying = 8;
  // Of either rate. Beyond it, nothing is limited in practice, and sums would not fit.
  static constexpr std::uint64_t kMaxRate = 1'000'000'000'000;

  // 0: no limit. Up to kMaxRate.
  RateGate(std::uint64_t commands_per_s, std::uint64_t bytes_per_s)
      : commands_per_s_(commands_per_s), bytes_per_s_(bytes_per_s) {}

  bool limits() const { return commands_per_s_ != 0 || bytes_per_s_ != 0; }

  // Of `wanted` commands, those that may be let through at now_ns; they are counted.
  std::uint32_t take(std::uint64_t now_ns, std::uint32_t wanted) {
    if (bytes_per_s_ != 0) {
      if (bytes_due_ns_.load(std::memory_order_relaxed) > now_ns) return 0;
      wanted = std::min(wanted, kWhilePaying);
    }
    if (commands_per_s_ == 0) return wanted;
    std::uint64_t due_ns = commands_due_ns_.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t from_ns = begin_ns(due_ns, now_ns);
      if (from_ns > now_ns) return 0;
      const std::uint64_t earned = (now_ns - from_ns) * commands_per_s_ / kSecondNs + 1;
      const auto granted = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, earned));
      if (commands_due_ns_.compare_exchange_weak(due_ns, from_ns + cost_ns(granted, commands_per_s_),
                                                 std::memory_order_relaxed))
        return granted;
    }
  }

  // One that cannot wait is let through, and those after it wait for longer.
  void take_in_advance(std::uint64_t now_ns) {
    if (commands_per_s_ == 0) return;
    std::uint64_t due_ns = commands_due_ns_.load(std::memory_order_relaxed);
    while (!commands_due_ns_.compare_exchange_weak(due_ns, begin_ns(due_ns, now_ns) + cost_ns(1, commands_per_s_),
                                                   std::memory_order_relaxed)) {
    }
  }

  // What commands that were let through move.
  void pay(std::uint64_t now_ns, std::uint64_t bytes) {
    if (bytes_per_s_ == 0 || bytes == 0) return;
    std::uint64_t due_ns = bytes_due_ns_.load(std::memory_order_relaxed);
    while (!bytes_due_ns_.compare_exchange_weak(due_ns, begin_ns(due_ns, now_ns) + cost_ns(bytes, bytes_per_s_),
                                                std::memory_order_relaxed)) {
    }
  }

  // Before then take() gives nothing.
  std::uint64_t opens_ns() const {
    return std::max(commands_due_ns_.load(std::memory_order_relaxed), bytes_due_ns_.load(std::memory_order_relaxed));
  }

 private:
  static constexpr std::uint64_t kSecondNs = 1'000'000'000;

  static std::uint64_t begin_ns(std::uint64_t due_ns, std::uint64_t now_ns) {
    return std::max(due_ns, now_ns > kBurstNs ? now_ns - kBurstNs : 0);
  }
  // Rounded up: the bound holds whatever the rate is.
  static std::uint64_t cost_ns(std::uint64_t amount, std::uint64_t per_s) {
    return amount / per_s * kSecondNs + (amount % per_s * kSecondNs + per_s - 1) / per_s;
  }

  const std::uint64_t commands_per_s_, bytes_per_s_;
  std::atomic<std::uint64_t> commands_due_ns_{0}, bytes_due_ns_{0};
};

}  // namespace flashmob
