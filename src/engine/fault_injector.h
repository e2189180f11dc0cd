// The faults of one SSD: its rules, which may be changed while it runs, and what became of them.
//
// Without rules an engine thread pays one load per fetched batch. With rules there is a mutex per command: a device
// that is told to misbehave need not be fast. For equal rules and equal orders of commands the same ones are hit.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/fault_rule.h"
#include "flashmob/faults.h"
#include "nvme/io_commands.h"

namespace flashmob::engine {

// What happens to one command.
struct Fault {
  FaultKind kind = FaultKind::none;
  nvme::Status status = nvme::Status::success;
  std::uint64_t delay_ns = 0;
};

// What rules have done to I/O commands, those of rules that are gone included.
struct FaultSums {
  std::uint64_t hit = 0;  // by any rule
  std::uint64_t delayed = 0;
  std::uint64_t delayed_ns = 0;  // by how much, all together
};

class FaultInjector {
 public:
  // --- Any thread ---
  // These rules instead of those before; counts begin anew. Throws ConfigError, and then nothing has changed.
  void set(const std::vector<std::string>& rules);
  std::vector<FaultCount> counts() const;
  // I/O commands that will never be completed because of a rule.
  std::uint64_t lost_ios() const { return lost_ios_.load(std::memory_order_relaxed); }
  // I/O commands that any rule has hit, those of rules that are gone included.
  std::uint64_t hit_ios() const { return hit_ios_.load(std::memory_order_relaxed); }
  FaultSums sums() const;
  // Without commands whose delays go on at that time: to whoever looks from then on, what the others did is over.
  FaultSums sums_over_by(std::uint64_t now_ns) const;

  // --- Engine threads ---
  bool armed() const { return armed_.load(std::memory_order_relaxed); }
  // The fault of the first rule that hits this command, of a namespace of set `csi` if it is of I/O. Every rule that is
  // meant for it counts it. `now_ns`: from when on it is delayed.
  Fault match(const nvme::Sqe& sqe, bool is_admin, nvme::Csi csi = nvme::Csi::nvm, std::uint64_t now_ns = 0);

 private:
  struct Entry {
    FaultRule rule;
    Rng rng;
    std::uint64_t matched = 0;
    std::uint64_t injected = 0;
  };
  struct Delay {
    std::uint64_t until_ns, delay_ns;
    auto operator<=>(const Delay&) const = default;
  };
  void note(const Fault& fault, std::uint64_t now_ns);
  static bool hits(Entry& entry);
  static Fault fault_of(Entry& entry, const nvme::IoCommand* command);

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::atomic<bool> armed_{false};
  std::atomic<std::uint64_t> hit_ios_{0};
  std::atomic<std::uint64_t> lost_ios_{0};
  FaultSums sums_;
  std::vector<Delay> delays_;  // that go on: a heap, the first to end in front
};

}  // namespace flashmob::engine
