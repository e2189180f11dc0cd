#include "soak/soak_client.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "api/open_target.h"
#include "driver/dma_memory.h"
#include "driver/nvme_driver.h"
#include "flashmob/bench.h"
#include "nvme/opcode.h"
#include "soak/running_time.h"

namespace flashmob::soak {
namespace {

constexpr std::uint32_t kSectorBytes = 512;
constexpr std::uint32_t kBlockBytes = 4096;  // of one command
constexpr std::uint32_t kSectorsPerBlock = kBlockBytes / kSectorBytes;
constexpr std::uint32_t kBlocks = static_cast<std::uint32_t>(kPartBytes) / kBlockBytes;
constexpr std::uint32_t kSlots = 8;
constexpr std::uint32_t kSectorWords = kSectorBytes / sizeof(std::uint64_t);
constexpr std::uint64_t kUnanswered_ns = 20'000'000'000;

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// Sector `sector` of part `part` as write number `sequence` leaves it.
void fill_sector(std::uint64_t* words, std::uint32_t part, std::uint32_t sector, std::uint64_t sequence) {
  words[0] = sequence;
  words[1] = std::uint64_t{part} << 32 | sector;
  const std::uint64_t key = mix(words[0] ^ mix(words[1]));
  for (std::uint32_t i = 2; i < kSectorWords; ++i) words[i] = mix(key + i);
}

// Passes the processor on: there are more clients than cores, and the device needs one too.
struct Patience {
  unsigned rounds = 0;
  void wait() {
    if (++rounds < 32)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
};

class Client {
 public:
  Client(const ClientPlan& plan, ClientNotes& notes) : plan_(plan), notes_(notes), random_(plan.seed) {
    const std::uint64_t begin = now_ns();
    device_ = api::open_target({.address = plan.target});
    const driver::Waiter waiter{[this] { patience_.wait(); }, [this] { return now_ns(); }};
    driver_ = std::make_unique<driver::NvmeDriver>(*device_, waiter, 16);
    open_queue();
    data_ = std::make_unique<driver::DmaMemory>(*device_, std::size_t{kSlots} * kBlockBytes);
    raise(notes_.longest_attach_ns, now_ns() - begin);
    notes_.attaches.fetch_add(1);
    first_sector_ = plan.part * (kPartBytes / kSectorBytes);
  }

  void run() {
    if (plan_.fresh) {
      for (std::uint32_t block = 0; block < kBlocks; ++block) run_one(block, true);
    } else {
      for (std::uint32_t block = 0; block < kBlocks; ++block) run_one(block, false);
      load();
    }
    finish();
  }

 private:
  struct Slot {
    std::uint32_t block = 0;
    bool busy = false;
    bool write = false;
    std::uint64_t begin_ns = 0;
  };

  std::uint64_t now_ns() { return time_.now_ns(); }
  static void raise(std::atomic<std::uint64_t>& longest, std::uint64_t value) {
    if (value > longest.load(std::memory_order_relaxed)) longest.store(value, std::memory_order_relaxed);
  }

  void open_queue() {
    driver_->enable();
    queue_ = &driver_->create_queue_pair({.sq_entries = 2 * kSlots});
  }

  std::byte* buffer(std::uint32_t slot) const { return data_->data() + std::size_t{slot} * kBlockBytes; }

  void start(std::uint32_t index, std::uint32_t block, bool write) {
    slots_[index] = {block, true, write, now_ns()};
    busy_[block] = true;
    if (write) {
      ++sequence_;
      for (std::uint32_t i = 0; i < kSectorsPerBlock; ++i) {
        auto* words = reinterpret_cast<std::uint64_t*>(buffer(index) + std::size_t{i} * kSectorBytes);
        fill_sector(words, plan_.part, block * kSectorsPerBlock + i, sequence_);
        expected_[block * kSectorsPerBlock + i] = sequence_;
      }
    } else {
      std::memset(buffer(index), 0xEE, kBlockBytes);
    }
    nvme::Sqe& sqe = queue_->submit();
    sqe = {};
    sqe.opcode = static_cast<std::uint8_t>(write ? nvme::NvmOpcode::write : nvme::NvmOpcode::read);
    sqe.cid = static_cast<std::uint16_t>(index);
    sqe.nsid = 1;
    sqe.prp1 = data_->iova() + std::uint64_t{index} * kBlockBytes;
    sqe.cdw10 = static_cast<std::uint32_t>(first_sector_ + std::uint64_t{block} * kSectorsPerBlock);
    sqe.cdw12 = kSectorsPerBlock - 1;
  }

  void check(std::uint32_t index) {
    std::array<std::uint64_t, kSectorWords> right;
    for (std::uint32_t i = 0; i < kSectorsPerBlock; ++i) {
      const std::uint32_t sector = slots_[index].block * kSectorsPerBlock + i;
      std::array<std::uint64_t, kSectorWords> found;
      std::memcpy(found.data(), buffer(index) + std::size_t{i} * kSectorBytes, kSectorBytes);
      std::optional<std::uint64_t>& expected = expected_[sector];
      // What a predecessor left may be any of its writes, but a whole one.
      if (!expected) expected = found[0];
      fill_sector(right.data(), plan_.part, sector, *expected);
      if (found != right)
        throw std::runtime_error("part " + std::to_string(plan_.part) + ", sector " + std::to_string(sector) +
                                 ": write " + std::to_string(*expected) + " was expected, and it holds " +
                                 std::to_string(found[0]) + " of " + std::to_string(found[1] >> 32) + "/" +
                                 std::to_string(found[1] & 0xFFFFFFFF) + (found[0] == right[0] ? ", damaged" : ""));
      sequence_ = std::max(sequence_, *expected);
    }
    notes_.sectors_checked.fetch_add(kSectorsPerBlock, std::memory_order_relaxed);
  }

  bool reap() {
    const std::uint32_t count = queue_->reap(kSlots, [this](const nvme::Cqe& entry) {
      Slot& slot = slots_.at(entry.cid);
      if (!slot.busy) throw std::runtime_error("a completion of no command");
      const unsigned status = entry.status_phase >> 1;
      if (status != 0)
        throw std::runtime_error("a command failed with status " + std::to_string(status) +
                                 "; the client itself was kept from running for up to " +
                                 std::to_string(time_.longest_gap_s()) + " s");
      raise(notes_.longest_command_ns, now_ns() - slot.begin_ns);
      if (!slot.write) check(entry.cid);
      slot.busy = false;
      busy_[slot.block] = false;
      notes_.completions.fetch_add(1, std::memory_order_relaxed);
    });
    if (count != 0) queue_->ring_cq();
    return count != 0;
  }

  void wait_some() {
    const std::uint64_t begin = now_ns();
    Patience patience;
    while (!reap()) {
      patience.wait();
      if (now_ns() - begin > kUnanswered_ns) throw std::runtime_error("a command was not answered in 20 s");
    }
  }

  void run_one(std::uint32_t block, bool write) {
    start(0, block, write);
    queue_->ring_sq();
    wait_some();
  }

  void load() {
    const std::uint64_t end_ns = plan_.leave == Leave::killed ? UINT64_MAX : now_ns() + plan_.life_ms * 1'000'000;
    bool reset = plan_.leave == Leave::resets;
    const std::uint64_t reset_ns = now_ns() + plan_.life_ms * 500'000;
    while (now_ns() < end_ns) {
      for (std::uint32_t i = 0; i < kSlots; ++i) {
        if (slots_[i].busy) continue;
        const std::uint32_t block = random_() % kBlocks;
        if (!busy_[block]) start(i, block, random_() % 2 == 0);
      }
      queue_->ring_sq();
      wait_some();
      if (reset && now_ns() > reset_ns) {
        reset = false;
        reset_controller();
      }
    }
  }

  // What was being written may be there or not, sector by sector.
  void reset_controller() {
    driver_->disable();
    for (Slot& slot : slots_) {
      if (!slot.busy) continue;
      for (std::uint32_t i = 0; slot.write && i < kSectorsPerBlock; ++i)
        expected_[slot.block * kSectorsPerBlock + i].reset();
      slot.busy = false;
      busy_[slot.block] = false;
    }
    open_queue();
  }

  void finish() {
    if (plan_.leave == Leave::suddenly) return;
    while (std::ranges::any_of(slots_, &Slot::busy)) wait_some();
    driver_->shutdown(false);
  }

  const ClientPlan& plan_;
  ClientNotes& notes_;
  std::mt19937 random_;
  RunningTime time_;
  Patience patience_;
  std::unique_ptr<driver::PciDevice> device_;
  std::unique_ptr<driver::NvmeDriver> driver_;
  std::unique_ptr<driver::DmaMemory> data_;
  driver::QueuePair* queue_ = nullptr;
  std::uint64_t first_sector_ = 0;
  std::uint64_t sequence_ = 0;
  std::array<Slot, kSlots> slots_{};
  std::array<bool, kBlocks> busy_{};
  std::array<std::optional<std::uint64_t>, std::size_t{kBlocks} * kSectorsPerBlock> expected_{};
};

}  // namespace

bool run_client(const ClientPlan& plan, ClientNotes& notes) {
  try {
    auto client = std::make_unique<Client>(plan, notes);
    client->run();
    // As if it had died here: nothing is given back to the device.
    if (plan.leave == Leave::suddenly) _exit(0);
    return true;
  } catch (const std::exception& error) {
    std::strncpy(notes.failure.data(), error.what(), notes.failure.size() - 1);
    notes.failed.store(1);
    return false;
  }
}

}  // namespace flashmob::soak
