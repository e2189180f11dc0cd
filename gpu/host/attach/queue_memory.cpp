#include "host/attach/queue_memory.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace flashmob::gpu {
namespace {

static_assert(std::is_trivially_copyable_v<Queue> && std::is_trivially_copyable_v<Slot>);

template <class T>
void copy_one(void* to, const void* from) {
  const T value = std::atomic_ref(*static_cast<T*>(const_cast<void*>(from))).load(std::memory_order_acquire);
  std::atomic_ref(*static_cast<T*>(to)).store(value, std::memory_order_release);
}

}  // namespace

void QueueMemory::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == sizeof(std::uint32_t))
    copy_one<std::uint32_t>(to, from);
  else if (bytes == sizeof(std::uint64_t))
    copy_one<std::uint64_t>(to, from);
  else
    std::memcpy(to, from, bytes);
}

std::byte* DmaQueueMemory::allocate(std::size_t bytes) {
  parts_.push_back(std::make_unique<driver::DmaMemory>(device_, bytes));
  return parts_.back()->data();
}

QueueView::QueueView(QueueMemory& memory, QueueRef queue) : memory_(memory), queue_(queue) {
  // Of the part that never changes.
  memory_.copy(&slots_, &queue.get()->slots, sizeof(Slot*));
  memory_.copy(&slot_count_, &queue.get()->slot_count, sizeof(slot_count_));
}

std::vector<Slot> QueueView::copy_slots() const {
  std::vector<Slot> slots(slot_count_);
  memory_.copy(slots.data(), slots_, slots.size() * sizeof(Slot));
  return slots;
}

QueueStats QueueView::stats(simt::HostLane& lane) const {
  if (memory_.near_is_seen_by_host()) return queue_.stats(lane);
  // In the order in which QueueRef::stats() reads: the slots, then the counts, with another look at these whenever it
  // has waited for their holders.
  std::vector<Slot> slots = copy_slots();
  Queue copy;
  const auto look = [&] {
    memory_.copy(&copy, queue_.get(), sizeof(copy));
    copy.slots = slots.data();
  };
  look();
  simt::HostLane looks_again([&lane] { return lane.now_ns(); },
                             [&](std::uint32_t ns) {
                               lane.pause(ns);
                               look();
                             });
  return QueueRef(&copy).stats(looks_again);
}

bool QueueView::idle(simt::HostLane& lane) const {
  if (memory_.near_is_seen_by_host()) return queue_.idle(lane);
  std::vector<Slot> slots = copy_slots();
  Queue copy;
  copy.slots = slots.data();
  copy.slot_count = slot_count_;
  return QueueRef(&copy).idle(lane);
}

}  // namespace flashmob::gpu
