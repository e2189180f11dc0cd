// Everything that kernels submit by, in one piece of memory: rings, doorbells, slots, lists and data buffers of any
// number of queue pairs, each at an offset that follows from their number and size alone. So the piece can lie in a
// GPU's own memory, where the host writes nothing itself, and two sides that see it at different addresses (two
// processes) agree about it.
//
// Laid out by PlaceQueues in zeroed memory, before anyone submits. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/queue.h"
#include "flashmob/gpu/service.h"
#include "flashmob/gpu/ssd.h"

namespace flashmob::gpu {

// What an arena's memory is for.
struct ArenaShape {
  std::uint32_t queues = 1;     // 1...4096
  std::uint32_t entries = 256;  // of each ring, 2...65536
  std::uint64_t max_transfer_bytes = 128 << 10;
  std::uint64_t data_bytes = 0;  // for buffers
};

class QueueArena {
 public:
  QueueArena() = default;
  // The arena as it is seen by who has its memory at `base` (aligned to a page).
  FLASHMOB_HD QueueArena(std::byte* base, const ArenaShape& shape) : base_(base), shape_(shape) {
    std::uint64_t at = kPageBytes;  // the first page: Head
    const auto part = [&at](std::uint64_t& offset, std::uint64_t bytes) {
      offset = at;
      at += (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    };
    const std::uint64_t queues = shape.queues;
    const std::uint64_t slots = shape.entries - 1;
    list_stride_ = static_cast<std::uint32_t>(list_bytes(shape.max_transfer_bytes));
    part(doorbells_, queues * 2 * sizeof(std::uint32_t));
    part(sqs_, queues * sq_stride());
    part(cqs_, queues * cq_stride());
    part(queues_, queues * sizeof(Queue));
    part(handles_, queues * sizeof(QueueRef));
    part(free_slots_, queues * free_words() * sizeof(SharedWord<std::uint64_t>));
    part(slots_, queues * slots * sizeof(Slot));
    part(lists_, queues * slots * list_stride_);
    part(data_, shape.data_bytes);
    bytes_ = at;
  }

  FLASHMOB_HD const ArenaShape& shape() const { return shape_; }
  FLASHMOB_HD std::byte* base() const { return base_; }
  FLASHMOB_HD std::uint64_t bytes() const { return bytes_; }

  FLASHMOB_HD std::uint32_t* sq_doorbell(std::uint32_t queue) const {
    return reinterpret_cast<std::uint32_t*>(base_ + doorbells_) + 2 * queue;
  }
  FLASHMOB_HD std::uint32_t* cq_doorbell(std::uint32_t queue) const { return sq_doorbell(queue) + 1; }
  FLASHMOB_HD nvme::Sqe* sq(std::uint32_t queue) const {
    return reinterpret_cast<nvme::Sqe*>(base_ + sqs_ + queue * sq_stride());
  }
  FLASHMOB_HD nvme::Cqe* cq(std::uint32_t queue) const {
    return reinterpret_cast<nvme::Cqe*>(base_ + cqs_ + queue * cq_stride());
  }
  FLASHMOB_HD std::byte* data() const { return base_ + data_; }
  FLASHMOB_HD simt::Word<std::uint32_t, simt::Scope::system>* abort() const { return &head()->abort; }
  FLASHMOB_HD ServiceControl* control() const { return &head()->control; }

  // For kernels that submit, and for who takes completions in.
  FLASHMOB_HD SsdRef ssd() const {
    return {reinterpret_cast<Queue*>(base_ + queues_), shape_.queues, &head()->ns, 1, shape_.max_transfer_bytes};
  }
  FLASHMOB_HD ServiceRef service() const {
    return {&head()->control, reinterpret_cast<const QueueRef*>(base_ + handles_), shape_.queues};
  }

  // One queue's share of the lay-out, in zeroed memory.
  FLASHMOB_HD void place(std::uint32_t index, ServiceMode mode, std::uint64_t timeout_ns) const {
    Queue& queue = reinterpret_cast<Queue*>(base_ + queues_)[index];
    const std::uint64_t slots = shape_.entries - 1;
    queue.sq = sq(index);
    queue.cq = cq(index);
    queue.sq_doorbell = sq_doorbell(index);
    queue.cq_doorbell = cq_doorbell(index);
    queue.slots = reinterpret_cast<Slot*>(base_ + slots_) + index * slots;
    queue.free_slots = reinterpret_cast<SharedWord<std::uint64_t>*>(base_ + free_slots_) + index * free_words();
    queue.lists = base_ + lists_ + index * slots * list_stride_;
    queue.abort = abort();
    queue.timeout_ns = timeout_ns;
    queue.list_stride = list_stride_;
    queue.sq_entries = shape_.entries;
    queue.cq_entries = shape_.entries;
    queue.slot_count = shape_.entries - 1;
    queue.host_sees_rings = false;
    queue.mode.value = mode;
    queue.cq_head.value = 1;
    for (std::uint32_t word = 0; word < free_words(); ++word) {
      const std::uint64_t left = slots - word * 64;
      queue.free_slots[word].value = left >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1;
    }
    reinterpret_cast<QueueRef*>(base_ + handles_)[index] = QueueRef(&queue);
  }
  FLASHMOB_HD void place_namespace(const NamespaceInfo& ns) const { head()->ns = ns; }

 private:
  struct Head {
    simt::Word<std::uint32_t, simt::Scope::system> abort;
    NamespaceInfo ns;
    alignas(128) ServiceControl control;
  };
  static_assert(sizeof(Head) <= kPageBytes);
  FLASHMOB_HD Head* head() const { return reinterpret_cast<Head*>(base_); }
  FLASHMOB_HD std::uint64_t sq_stride() const { return std::uint64_t{shape_.entries} * sizeof(nvme::Sqe); }
  // Two queues share no line of completions.
  FLASHMOB_HD std::uint64_t cq_stride() const {
    return (std::uint64_t{shape_.entries} * sizeof(nvme::Cqe) + 127) / 128 * 128;
  }
  FLASHMOB_HD std::uint64_t free_words() const { return (std::uint64_t{shape_.entries} - 1 + 63) / 64; }

  std::byte* base_ = nullptr;
  ArenaShape shape_;
  std::uint32_t list_stride_ = 0;
  std::uint64_t doorbells_ = 0, sqs_ = 0, cqs_ = 0, queues_ = 0, handles_ = 0, free_slots_ = 0, slots_ = 0, lists_ = 0,
                data_ = 0, bytes_ = 0;
};

// Lays out an arena for one namespace. Any number of threads.
struct PlaceQueues {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, QueueArena arena, NamespaceInfo ns, ServiceMode mode,
                              std::uint64_t timeout_ns) const {
    if (t.thread() == 0) arena.place_namespace(ns);
    for (std::uint32_t queue = t.thread(); queue < arena.shape().queues; queue += t.threads())
      arena.place(queue, mode, timeout_ns);
  }
};

}  // namespace flashmob::gpu
