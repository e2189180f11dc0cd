// What an NvmeDriver keeps for its queues and admin commands. Internal to src/driver; same thread rule as the driver.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "driver/data_buffer.h"
#include "driver/dma_memory.h"
#include "driver/nvme_driver.h"
#include "driver/queue_pair.h"

namespace flashmob::driver {

// A queue pair and its rings, in memory of its own unless the caller has brought some. Fresh DMA memory is zeroed, so
// every phase tag starts as 0.
struct NvmeDriver::PairState {
  PairState(PciDevice& device, std::uint16_t qid, std::uint32_t sq_entries, std::uint32_t cq_entries,
            std::uint8_t dstrd, const std::optional<QueueRings>& brought = {})
      : rings(brought ? *brought : own_rings(device, sq_entries, cq_entries)),
        pair(device, qid, rings.sq, sq_entries, rings.cq, cq_entries, dstrd) {}

  QueueRings own_rings(PciDevice& device, std::uint32_t sq_entries, std::uint32_t cq_entries) {
    sq_memory.emplace(device, std::size_t{sq_entries} * sizeof(nvme::Sqe));
    cq_memory.emplace(device, std::size_t{cq_entries} * sizeof(nvme::Cqe));
    return {.sq = reinterpret_cast<nvme::Sqe*>(sq_memory->data()),
            .sq_iova = sq_memory->iova(),
            .cq = reinterpret_cast<nvme::Cqe*>(cq_memory->data()),
            .cq_iova = cq_memory->iova()};
  }

  std::optional<DmaMemory> sq_memory;
  std::optional<DmaMemory> cq_memory;
  QueueRings rings;
  QueuePair pair;
};

// A buffer that an admin command's data goes through, with the PRP list that describes it.
struct NvmeDriver::Bounce {
  Bounce(PciDevice& device, std::size_t bytes) : memory(device, bytes), lists(device, 1, memory.size()) {}

  DmaMemory memory;
  PrpLists lists;
};

// One admin command in flight. Its CID is the slot's index and, above it, a generation that tells a late completion
// of an earlier tenant from the present one's.
struct NvmeDriver::AdminSlot {
  static constexpr unsigned kIndexBits = 12;  // AQA allows 4096 entries

  enum class State : std::uint8_t {
    free,
    waited_for,    // admin() stands by
    asynchronous,  // `done` is to be called
    abandoned,     // timed out; the device may still use the buffer, so the slot stays taken until it answers
  };

  State state = State::free;
  bool finished = false;
  std::uint16_t cid = 0;
  AdminResult result{};
  std::function<void(AdminResult)> done;
  std::unique_ptr<Bounce> bounce;
};

// From one look to the next counts as this long at most.
inline constexpr std::uint64_t kLongestLookNs = 100'000'000;

// Calls pump until ready() or until so much time has passed in which it looked; answers whether ready. A host that gets
// its core for a moment every few seconds, or whose whole machine stood still, may find the deadline over before a
// device on the same cores has had its turn.
template <class Ready>
bool wait_until(const Waiter& waiter, std::uint64_t timeout_ns, Ready&& ready) {
  std::uint64_t waited_ns = 0;
  for (std::uint64_t last_ns = waiter.now_ns(); !ready();) {
    if (waited_ns >= timeout_ns) return ready();
    waiter.pump();
    const std::uint64_t now_ns = waiter.now_ns();
    waited_ns += std::min(now_ns - last_ns, kLongestLookNs);
    last_ns = now_ns;
  }
  return true;
}

}  // namespace flashmob::driver
