// A queue of one host as the target keeps it: the ring pair that the engine serves, and a slot for each command that
// the host may have outstanding, with the buffer that its data passes through. One thread (the target's), except that
// the engine reads and writes rings and buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/address_space.h"
#include "memory/host_memory.h"
#include "nvme/command.h"
#include "transport/nvme_tcp/buffer_pool.h"

namespace flashmob::transport {

class HostQueue {
 public:
  static constexpr std::uint32_t kNoSlot = 0xFFFFFFFFu;

  struct Shape {
    std::uint16_t qid;
    std::uint32_t slots;         // commands that the host may have outstanding
    std::uint32_t ring_entries;  // of both rings; more than there can be commands on them
    std::uint32_t small_bytes;   // of each slot's own buffer: a multiple of 4096
    std::uint32_t max_transfer_bytes;
  };

  enum class State : std::uint8_t { free, taken, waiting, asking, receiving, ready, submitted, answered };

  struct Slot {
    nvme::Sqe sqe;              // as the host sent it
    std::uint32_t bytes = 0;    // of data; 0: none
    std::uint32_t received = 0; // of the host's data
    std::uint32_t offset = 0;   // where in its own buffer in-capsule data begins
    std::uint32_t blocks = BufferPool::kNone;
    std::uint32_t next_free = kNoSlot;
    std::uint32_t partner = kNoSlot;  // the other half of a fused pair
    std::uint32_t format = 0;  // of its namespace: the count of changes when its buffer was made, or its data asked for
    std::uint64_t since_ns = 0;  // when what it waits for (its doorbell, the sending of its R2T) became our turn
    std::uint64_t delay_ns = 0;  // what our turns took until then
    std::uint64_t of_host_ns = 0;  // DelayLog's, as of since_ns
    State state = State::free;
    bool to_host = false;
    bool to_controller = false;
    bool digest_error = false;
  };

  // The bytes of memory that a queue takes.
  static std::uint64_t bytes_of(const Shape& shape);

  // Doorbells are the controller's words for this queue. The memory is mapped at addresses equal to our own; `user` is
  // the host, which outlives the queue, and `portion` what it has got of the memory for queues.
  HostQueue(const Shape& shape, memory::AddressSpace& space, BufferPool& pool, BufferPool::User& user,
            FairShare::Portion portion, std::uint32_t* sq_doorbell, std::uint32_t* cq_doorbell);
  // The engine has forgotten the queue.
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  std::uint16_t qid() const { return shape_.qid; }
  std::uint32_t ring_entries() const { return shape_.ring_entries; }
  std::uint64_t sq_iova() const { return reinterpret_cast<std::uint64_t>(sq_); }
  std::uint64_t cq_iova() const { return reinterpret_cast<std::uint64_t>(cq_); }

  // --- Slots ---
  std::uint32_t take_slot();  // kNoSlot: the host has as many commands outstanding as it may
  void free_slot(std::uint32_t index);
  Slot& slot(std::uint32_t index) { return slots_[index]; }
  std::uint32_t slots() const { return shape_.slots; }
  // The command identifiers that are in use; the value is the slot, or what the owner makes of it.
  std::uint32_t find(std::uint16_t cid) const { return by_cid_[cid] == 0 ? kNoSlot : by_cid_[cid] - 1u; }
  void remember(std::uint16_t cid, std::uint32_t value) { by_cid_[cid] = value + 1; }
  void forget(std::uint16_t cid) { by_cid_[cid] = 0; }

  // --- A slot's data ---
  std::byte* small_buffer(std::uint32_t index) const { return small_ + std::size_t{index} * shape_.small_bytes; }
  std::uint32_t small_bytes() const { return shape_.small_bytes; }
  // Memory for slot.bytes, which shows the host nothing that is not its own; with `own_only`, from the host's own part
  // of the pool alone.
  FairShare::Answer allocate(std::uint32_t index, bool own_only);
  void release_data(std::uint32_t index);
  // Calls f(address, bytes) for each piece of [offset, offset + bytes) of the slot's data.
  template <class F>
  void for_each_piece(std::uint32_t index, std::uint32_t offset, std::uint32_t bytes, F&& f) const {
    const Slot& s = slots_[index];
    if (s.blocks == BufferPool::kNone) {
      if (bytes != 0) f(small_buffer(index) + s.offset + offset, bytes);
      return;
    }
    for (std::uint32_t block = s.blocks; bytes != 0; block = pool_.next(block)) {
      if (offset >= BufferPool::kBlockBytes) {
        offset -= BufferPool::kBlockBytes;
        continue;
      }
      const std::uint32_t here = bytes < BufferPool::kBlockBytes - offset ? bytes : BufferPool::kBlockBytes - offset;
      f(pool_.data(block) + offset, here);
      bytes -= here;
      offset = 0;
    }
  }

  // --- Rings ---
  // Puts the slot's command on the ring, its data pointer aimed at the slot's data.
  void submit(std::uint32_t index);
  void submit_raw(const nvme::Sqe& sqe);
  // Rings for what was submitted; true if there was something.
  bool ring_doorbell();
  // The next completion, if there is one.
  bool reap(nvme::Cqe& out);
  // Tells the engine which completions were taken; once after a number of reap().
  void ring_head();
  std::uint32_t in_flight() const { return in_flight_; }
  // Both rings as new and all slots free: after the engine has forgotten the queue.
  void reset();

 private:
  void link_free_slots();

  const Shape shape_;
  memory::AddressSpace& space_;
  BufferPool& pool_;
  BufferPool::User& user_;
  const FairShare::Portion portion_;
  std::uint32_t* const sq_doorbell_;
  std::uint32_t* const cq_doorbell_;
  memory::HostMemory memory_;
  nvme::Sqe* sq_ = nullptr;
  nvme::Cqe* cq_ = nullptr;
  std::byte* lists_ = nullptr;  // an SGL segment for each slot
  std::size_t list_bytes_ = 0;
  std::byte* small_ = nullptr;
  std::vector<Slot> slots_;
  memory::HostMemory cid_memory_;  // apart, because little of it is ever touched
  std::uint32_t* by_cid_ = nullptr;  // value + 1; 0: not in use
  std::uint32_t free_ = kNoSlot;
  std::uint32_t tail_ = 0;
  std::uint32_t rung_tail_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t rung_head_ = 0;
  std::uint16_t phase_ = 1;
  std::uint32_t in_flight_ = 0;
};

}  // namespace flashmob::transport
