// What an NvmeDriver keeps for its queues and admin commands. Internal to src/driver; same thread rule as the driver.
#pragma once

#include <functional>
#include <memory>

#include "driver/data_buffer.h"
#include "driver/dma_memory.h"
#include "driver/nvme_driver.h"
#include "driver/queue_pair.h"

namespace flashmob::driver {

// A queue pair and its rings. Fresh DMA memory is zeroed, so every phase tag starts as 0.
struct NvmeDriver::PairState {
  PairState(PciDevice& device, std::uint16_t qid, std::uint32_t sq_entries, std::uint32_t completion_entries)
      : sq_memory(device, std::size_t{sq_entries} * sizeof(nvme::Sqe)),
        cq_memory(device, std::size_t{completion_entries} * sizeof(nvme::Cqe)),
        cq_entries(completion_entries),
        pair(device, qid, reinterpret_cast<nvme::Sqe*>(sq_memory.data()), sq_entries,
             reinterpret_cast<nvme::Cqe*>(cq_memory.data()), completion_entries) {}

  DmaMemory sq_memory;
  DmaMemory cq_memory;
  std::uint32_t cq_entries;
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

// Calls pump until ready() or the deadline; answers whether ready.
template <class Ready>
bool wait_until(const Waiter& waiter, std::uint64_t timeout_ns, Ready&& ready) {
  const std::uint64_t start_ns = waiter.now_ns();
  while (!ready()) {
    if (waiter.now_ns() - start_ns >= timeout_ns) return ready();
    waiter.pump();
  }
  return true;
}

}  // namespace flashmob::driver
