// Reads and writes of one part by every command there is, eight at a time, never two of one page.
#include <algorithm>
#include <cstring>
#include <optional>

#include "nvme/dataset.h"
#include "nvme/io_command.h"
#include "soak/hosts/host.h"

namespace flashmob::soak {
namespace {

using nvme::NvmOpcode;

constexpr std::uint64_t kLost_ns = 4'000'000'000;  // then the controller is reset, where faults may lose commands

class DataHost {
 public:
  DataHost(const HostPlan& plan, Ledger& ledger) : plan_(plan), ledger_(ledger), random_(plan.seed), device_(plan) {
    ledger_.add(Count::attaches);
  }

  void run() {
    const std::uint64_t end_ns = device_.now_ns() + static_cast<std::uint64_t>(plan_.seconds * 1e9);
    for (std::uint32_t page = 0; page < kPartPages; ++page) {
      check_page(page);
      if (is_told_to_end() && plan_.role != "check") break;
    }
    while (plan_.role == "data" && !is_told_to_end() && device_.now_ns() < end_ns) {
      for (std::uint32_t slot = 0; slot < Attachment::kSlots; ++slot)
        if (!slots_[slot].busy) start(slot);
      device_.queue().ring_sq();
      wait_some();
      if (random_() % 20'000 == 0) reset();
      if (plan_.may_fail && device_.own_device() != nullptr) inject();
    }
    if (plan_.sudden) return;
    while (std::ranges::any_of(slots_, &Slot::busy)) wait_some();
    device_.shutdown();
  }

 private:
  struct Slot {
    bool busy = false;
    bool is_write = false;  // of any kind: when it is done the sectors are what it made of them
    NvmOpcode opcode = NvmOpcode::read;
    std::uint32_t first = 0, count = 0;  // sectors
    std::uint64_t begin_ns = 0;
  };

  std::uint64_t lba(std::uint32_t sector) const { return std::uint64_t{plan_.place} * kPartSectors + sector; }

  // A page that is open between writes is whatever they left; it is written anew, so that a successor is told more.
  void check_page(std::uint32_t page) {
    while (slots_[0].busy) wait_some();
    begin(0, NvmOpcode::read, page * kSectorsPerPage, kSectorsPerPage, false);
    device_.queue().ring_sq();
    while (slots_[0].busy) wait_some();
    const bool open = std::any_of(
        &ledger_.sectors[page * kSectorsPerPage], &ledger_.sectors[page * kSectorsPerPage] + kSectorsPerPage,
        [](const SectorState& state) { return state.asked != state.acknowledged || state.asked == 0; });
    if (!open || plan_.role == "check") return;
    begin(0, NvmOpcode::write, page * kSectorsPerPage, kSectorsPerPage, false);
    device_.queue().ring_sq();
    while (slots_[0].busy) wait_some();
  }

  void start(std::uint32_t slot) {
    const std::uint32_t page = random_() % kPartPages;
    if (pages_busy_[page]) return;
    const std::uint32_t count = 1 + random_() % kSectorsPerPage;
    const std::uint32_t first = page * kSectorsPerPage + random_() % (kSectorsPerPage - count + 1);
    const unsigned what = random_() % 100;
    if (what < 40) return begin(slot, NvmOpcode::read, first, count, random_() % 8 == 0);
    if (what < 80) return begin(slot, NvmOpcode::write, first, count, false);
    if (what < 88) return begin(slot, NvmOpcode::write, first, count, true);
    if (what < 93) return begin(slot, NvmOpcode::write_zeroes, first, count, false);
    if (what < 97) return begin(slot, NvmOpcode::dataset_management, first, count, false);
    begin(slot, NvmOpcode::flush, first, count, false);
  }

  void begin(std::uint32_t slot, NvmOpcode opcode, std::uint32_t first, std::uint32_t count, bool fua) {
    const bool is_read = opcode == NvmOpcode::read;
    const bool is_write = !is_read && opcode != NvmOpcode::flush;
    slots_[slot] = {true, is_write, opcode, first, count, device_.now_ns()};
    pages_busy_[first / kSectorsPerPage] = true;
    std::uint64_t* const words = device_.words(slot);
    if (is_read) std::memset(words, 0xEE, kPageBytes);
    if (is_write) {
      const std::uint64_t number = ledger_.sequence.fetch_add(1) + 1;
      for (std::uint32_t i = 0; i < count; ++i) {
        ledger_.begin(first + i, number, opcode != NvmOpcode::write);
        if (opcode == NvmOpcode::write) fill_sector(words + i * kSectorWords, plan_.part, first + i, number);
      }
    }
    nvme::Sqe& sqe = device_.submit(slot, opcode, plan_.nsid);
    if (opcode == NvmOpcode::dataset_management) {
      const nvme::DatasetRange range{.context_attributes = 0, .nlb = count, .slba = lba(first)};
      std::memcpy(words, &range, sizeof range);
      sqe.cdw11 = 4;  // deallocate
    } else if (opcode != NvmOpcode::flush) {
      sqe.cdw10 = static_cast<std::uint32_t>(lba(first));
      sqe.cdw12 = (count - 1) | (fua ? nvme::kIoForceUnitAccess : 0);
    }
    if (fua && is_write) ledger_.add(Count::fua_writes);
  }

  void done(std::uint32_t index, unsigned status) {
    Slot& slot = slots_.at(index);
    if (!slot.busy) throw Wrong("a completion of no command");
    slot.busy = false;
    pages_busy_[slot.first / kSectorsPerPage] = false;
    if (status != 0) {
      if (!plan_.may_fail)
        throw Wrong("part " + std::to_string(plan_.part) + ": a command failed with status " + std::to_string(status));
      ledger_.add(Count::errors);
      return;
    }
    if (slot.opcode == NvmOpcode::flush) return ledger_.add(Count::flushes);
    for (std::uint32_t i = 0; slot.is_write && i < slot.count; ++i)
      ledger_.end(slot.first + i, slot.opcode != NvmOpcode::write);
    if (slot.opcode == NvmOpcode::read) {
      ledger_.add(Count::reads);
      ledger_.add(Count::sectors_checked, slot.count);
      for (std::uint32_t i = 0; i < slot.count; ++i) {
        const std::string wrong = ledger_.judge(plan_.part, slot.first + i, device_.words(index) + i * kSectorWords);
        if (!wrong.empty()) throw Wrong(wrong);
      }
    } else if (slot.opcode == NvmOpcode::write) {
      ledger_.add(Count::writes);
    } else {
      ledger_.add(slot.opcode == NvmOpcode::write_zeroes ? Count::zeroes : Count::discards);
    }
  }

  void wait_some() {
    const std::uint64_t begin = device_.now_ns();
    while (!device_.reap([this](std::uint32_t slot, unsigned status) { done(slot, status); }) &&
           std::ranges::any_of(slots_, &Slot::busy)) {
      const std::uint64_t waited = device_.now_ns() - begin;
      if (plan_.may_fail && waited > kLost_ns) return lose();
      if (waited > kUnansweredNs)
        throw Wrong("part " + std::to_string(plan_.part) + ": a command was not answered in a minute");
    }
    const auto oldest =
        std::ranges::min_element(slots_, {}, [](const Slot& slot) { return slot.busy ? slot.begin_ns : ~0ull; });
    if (plan_.may_fail && oldest->busy && device_.now_ns() - oldest->begin_ns > kLost_ns) lose();
  }

  void lose() {
    for (const Slot& slot : slots_)
      if (slot.busy) ledger_.add(Count::losses);
    reset();
  }

  // What was under way may have been carried out or not.
  void reset() {
    device_.reset();
    for (Slot& slot : slots_) slot.busy = false;
    pages_busy_ = {};
    ledger_.add(Count::resets);
  }

  // A device of this process has its faults switched by its owner.
  void inject() {
    if (random_() % 5'000 != 0) return;
    const bool clear = random_() % 2 == 0;
    device_.own_device()->engine().faults().set(clear ? std::vector<std::string>{}
                                                      : std::vector<std::string>{"error on=write p=0.01",
                                                                                 "delay every=100 delay=2ms",
                                                                                 "reorder every=7 delay=300us"});
  }

  const HostPlan& plan_;
  Ledger& ledger_;
  Random random_;
  Attachment device_;
  std::array<Slot, Attachment::kSlots> slots_{};
  std::array<bool, kPartPages> pages_busy_{};
};

}  // namespace

void run_data(const HostPlan& plan, Ledger& ledger) { DataHost(plan, ledger).run(); }

}  // namespace flashmob::soak
