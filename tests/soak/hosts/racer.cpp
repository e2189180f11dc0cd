// Reads and writes of a namespace that others format meanwhile: whatever the commands end with, what comes back is zero
// or was written by one of those who write there. The rest of a buffer stays as it was.
#include <algorithm>
#include <cstring>

#include "soak/hosts/host.h"

namespace flashmob::soak {
namespace {

using nvme::NvmOpcode;

constexpr std::uint64_t kUntouched = 0xEEEEEEEEEEEEEEEE;
constexpr std::uint32_t kPages = 64;

class Racer {
 public:
  Racer(const HostPlan& plan, Ledger& ledger) : plan_(plan), ledger_(ledger), random_(plan.seed), device_(plan) {
    ledger_.add(Count::attaches);
  }

  void run() {
    const std::uint64_t end_ns = device_.now_ns() + static_cast<std::uint64_t>(plan_.seconds * 1e9);
    std::uint64_t answered_ns = device_.now_ns();
    while (!is_told_to_end() && device_.now_ns() < end_ns) {
      for (std::uint32_t slot = 0; slot < Attachment::kSlots; ++slot)
        if (!busy_[slot]) start(slot);
      device_.queue().ring_sq();
      if (device_.reap([this](std::uint32_t slot, unsigned status) { done(slot, status); }))
        answered_ns = device_.now_ns();
      if (device_.now_ns() - answered_ns > kUnansweredNs) throw Wrong("a racing command was not answered in a minute");
    }
    if (!plan_.sudden) device_.shutdown();
  }

 private:
  void start(std::uint32_t slot) {
    const std::uint32_t page = random_() % kPages;
    const bool is_write = random_() % 2 == 0;
    // As if the format were one or the other; it may change at any time.
    const std::uint32_t blocks = random_() % 2 == 0 ? 8 : 1;
    std::memset(device_.words(slot), 0xEE, kPageBytes);
    for (std::uint32_t i = 0; is_write && i < kSectorsPerPage; ++i)
      fill_sector(device_.words(slot) + i * kSectorWords, plan_.part, page * kSectorsPerPage + i, ++number_);
    nvme::Sqe& sqe = device_.submit(slot, is_write ? NvmOpcode::write : NvmOpcode::read, plan_.nsid);
    sqe.cdw10 = page * blocks;
    sqe.cdw12 = blocks - 1;
    busy_[slot] = true;
    reads_[slot] = !is_write;
  }

  void done(std::uint32_t slot, unsigned status) {
    if (!busy_.at(slot)) throw Wrong("a completion of no command");
    busy_[slot] = false;
    ledger_.add(status == 0 ? Count::races : Count::races_refused);
    if (!reads_[slot]) return;
    for (std::uint32_t i = 0; i < kSectorsPerPage; ++i) {
      const std::uint64_t* const words = device_.words(slot) + i * kSectorWords;
      if (is_filled(words, 0) || is_filled(words, kUntouched)) continue;
      std::uint32_t part = 0, sector = 0;
      const bool whole = is_whole(words, part, sector);
      if (!whole || part < plan_.part_of_first_racer || part > plan_.last_part)
        throw Wrong("a read that ended with status " + std::to_string(status) + " across Formats shows " +
                    (whole ? "part " + std::to_string(part)
                           : "what nobody wrote (" + std::to_string(words[0]) + ", " + std::to_string(words[1]) + ")"));
    }
    ledger_.add(Count::sectors_checked, kSectorsPerPage);
  }

  const HostPlan& plan_;
  Ledger& ledger_;
  Random random_;
  Attachment device_;
  std::uint64_t number_ = 0;
  std::array<bool, Attachment::kSlots> busy_{};
  std::array<bool, Attachment::kSlots> reads_{};
};

}  // namespace

void run_racer(const HostPlan& plan, Ledger& ledger) { Racer(plan, ledger).run(); }

}  // namespace flashmob::soak
