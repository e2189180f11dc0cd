#include "transport/nvme_tcp/host_queue.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "base/check.h"

namespace flashmob::transport {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kCommandIds = 65536;
constexpr std::uint8_t kSglLastSegment = static_cast<std::uint8_t>(nvme::SglType::last_segment) << 4;

constexpr std::size_t pages(std::size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

nvme::SglDescriptor data_block(const std::byte* data, std::uint32_t bytes) {
  return {.address = reinterpret_cast<std::uint64_t>(data), .length_bytes = bytes, .reserved = {}, .identifier = 0};
}

// Where the parts of a queue's memory begin.
struct Layout {
  explicit Layout(const HostQueue::Shape& shape)
      : list_bytes((shape.max_transfer_bytes + BufferPool::kBlockBytes - 1) / BufferPool::kBlockBytes *
                   sizeof(nvme::SglDescriptor)),
        cq(pages(std::size_t{shape.ring_entries} * sizeof(nvme::Sqe))),
        lists(cq + pages(std::size_t{shape.ring_entries} * sizeof(nvme::Cqe))),
        small(lists + pages(list_bytes * shape.slots)),
        end(small + std::size_t{shape.small_bytes} * shape.slots) {}
  std::size_t list_bytes;  // of each slot
  std::size_t cq, lists, small, end;
};

}  // namespace

std::uint64_t HostQueue::bytes_of(const Shape& shape) {
  return Layout(shape).end + shape.slots * sizeof(Slot) + kCommandIds * sizeof(std::uint32_t);
}

HostQueue::HostQueue(const Shape& shape, memory::AddressSpace& space, BufferPool& pool, BufferPool::User& user,
                     FairShare::Portion portion, std::uint32_t* sq_doorbell, std::uint32_t* cq_doorbell)
    : shape_(shape),
      space_(space),
      pool_(pool),
      user_(user),
      portion_(std::move(portion)),
      sq_doorbell_(sq_doorbell),
      cq_doorbell_(cq_doorbell),
      slots_(shape.slots),
      cid_memory_(kCommandIds * sizeof(std::uint32_t)),
      by_cid_(reinterpret_cast<std::uint32_t*>(cid_memory_.data())) {
  FLASHMOB_CHECK(shape.small_bytes % kPageBytes == 0 && shape.ring_entries > shape.slots);
  const Layout layout(shape);
  memory_ = memory::HostMemory(layout.end);
  sq_ = reinterpret_cast<nvme::Sqe*>(memory_.data());
  cq_ = reinterpret_cast<nvme::Cqe*>(memory_.data() + layout.cq);
  lists_ = memory_.data() + layout.lists;
  list_bytes_ = layout.list_bytes;
  small_ = memory_.data() + layout.small;
  space_.map(reinterpret_cast<std::uint64_t>(memory_.data()), memory_.size(), memory_.data());
  link_free_slots();
}

HostQueue::~HostQueue() {
  for (std::uint32_t i = 0; i < shape_.slots; ++i) release_data(i);
  space_.unmap(reinterpret_cast<std::uint64_t>(memory_.data()), memory_.size());
}

void HostQueue::link_free_slots() {
  free_ = kNoSlot;
  for (std::uint32_t i = shape_.slots; i-- > 0;) {
    slots_[i].next_free = free_;
    free_ = i;
  }
}

void HostQueue::reset() {
  for (std::uint32_t i = 0; i < shape_.slots; ++i) {
    release_data(i);
    slots_[i] = {};
  }
  link_free_slots();
  // Its pages go back to the kernel and come as zeroes again: written, all of them would be this queue's from now on.
  if (madvise(cid_memory_.data(), cid_memory_.size(), MADV_DONTNEED) != 0)
    std::memset(by_cid_, 0, kCommandIds * sizeof(std::uint32_t));
  std::memset(cq_, 0, std::size_t{shape_.ring_entries} * sizeof(nvme::Cqe));
  tail_ = rung_tail_ = head_ = rung_head_ = in_flight_ = 0;
  phase_ = 1;
}

std::uint32_t HostQueue::take_slot() {
  const std::uint32_t index = free_;
  if (index == kNoSlot) return kNoSlot;
  Slot& s = slots_[index];
  free_ = s.next_free;
  s.bytes = s.received = s.offset = 0;
  s.delay_ns = 0;
  s.state = State::taken;
  s.partner = kNoSlot;
  s.to_host = s.to_controller = s.digest_error = false;
  return index;
}

void HostQueue::free_slot(std::uint32_t index) {
  release_data(index);
  slots_[index].state = State::free;
  slots_[index].next_free = free_;
  free_ = index;
}

FairShare::Answer HostQueue::allocate(std::uint32_t index, bool own_only) {
  Slot& s = slots_[index];
  FairShare::Answer answer = FairShare::Answer::given;
  if (s.bytes <= shape_.small_bytes) return answer;  // its own buffer has never held anybody else's data
  s.blocks = pool_.take((s.bytes + BufferPool::kBlockBytes - 1) / BufferPool::kBlockBytes, user_, answer, own_only);
  if (answer != FairShare::Answer::given) return answer;
  if (s.to_host)
    pool_.show_to(s.blocks, s.bytes, user_);
  else
    pool_.fill_by(s.blocks, user_);
  return answer;
}

void HostQueue::release_data(std::uint32_t index) {
  if (slots_[index].blocks == BufferPool::kNone) return;
  pool_.give(slots_[index].blocks, user_);
  slots_[index].blocks = BufferPool::kNone;
}

void HostQueue::submit(std::uint32_t index) {
  Slot& s = slots_[index];
  s.state = State::submitted;
  nvme::Sqe sqe = s.sqe;
  sqe.flags = static_cast<std::uint8_t>(sqe.flags & ~nvme::kFlagPsdtMask);
  sqe.mptr = 0;
  sqe.prp1 = 0;
  sqe.prp2 = 0;
  if (s.bytes != 0) {
    sqe.flags |= nvme::kFlagPsdtSglBufferMetadata;
    auto* const list = reinterpret_cast<nvme::SglDescriptor*>(lists_ + list_bytes_ * index);
    std::uint32_t count = 0;
    nvme::SglDescriptor last{};
    for_each_piece(index, 0, s.bytes, [&](const std::byte* data, std::uint32_t bytes) {
      last = data_block(data, bytes);
      if (s.bytes > BufferPool::kBlockBytes) list[count] = last;
      ++count;
    });
    sqe.sgl1 = last;
    if (count > 1) {
      sqe.sgl1 = data_block(reinterpret_cast<std::byte*>(list),
                            count * static_cast<std::uint32_t>(sizeof(nvme::SglDescriptor)));
      sqe.sgl1.identifier = kSglLastSegment;
    }
  }
  submit_raw(sqe);
}

void HostQueue::submit_raw(const nvme::Sqe& sqe) {
  FLASHMOB_CHECK(in_flight_ + 1 < shape_.ring_entries);
  sq_[tail_] = sqe;
  tail_ = tail_ + 1 == shape_.ring_entries ? 0 : tail_ + 1;
  ++in_flight_;
}

bool HostQueue::ring_doorbell() {
  if (tail_ == rung_tail_) return false;
  rung_tail_ = tail_;
  std::atomic_ref<std::uint32_t>(*sq_doorbell_).store(tail_, std::memory_order_release);
  return true;
}

bool HostQueue::reap(nvme::Cqe& out) {
  // The engine stores the last dword after the others, or all of them at once.
  auto* const words = reinterpret_cast<std::uint32_t*>(&cq_[head_]);
  const std::uint32_t last = std::atomic_ref<std::uint32_t>(words[3]).load(std::memory_order_acquire);
  if (((last >> 16) & 1) != phase_) return false;
  std::memcpy(&out, words, sizeof(out) - sizeof(last));
  std::memcpy(reinterpret_cast<std::byte*>(&out) + sizeof(out) - sizeof(last), &last, sizeof(last));
  if (++head_ == shape_.ring_entries) {
    head_ = 0;
    phase_ ^= 1;
  }
  --in_flight_;
  return true;
}

void HostQueue::ring_head() {
  if (head_ == rung_head_) return;
  rung_head_ = head_;
  std::atomic_ref<std::uint32_t>(*cq_doorbell_).store(head_, std::memory_order_release);
}

}  // namespace flashmob::transport
