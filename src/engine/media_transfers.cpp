#include "engine/media_transfers.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "nvme/opcode.h"

namespace flashmob::engine {
namespace {

constexpr std::uint32_t kRetriesPerRound = 16;

void copy_in(std::byte* to, std::span<const memory::Segment> segments) {
  for (const memory::Segment& segment : segments) {
    std::memcpy(to, segment.host, segment.bytes);
    to += segment.bytes;
  }
}

void copy_out(const std::byte* from, std::span<const memory::Segment> segments) {
  for (const memory::Segment& segment : segments) {
    if (segment.host != nullptr) std::memcpy(segment.host, from, segment.bytes);  // else a bit bucket
    from += segment.bytes;
  }
}

}  // namespace

MediaTransfers::MediaTransfers(const WorkerContext& context, Requests& requests, Completer& completer,
                               Executor& executor, RedoQueue& redo)
    : context_(context), requests_(requests), completer_(completer), executor_(executor), redo_(redo) {
  busy_.reserve(controller::kMaxNamespaces);
}

bool MediaTransfers::may_block(const ColdRequest& cold) const {
  return !busy_.empty() && cold.ns != nullptr && cold.ns->base == nullptr && !cold.is(nvme::NvmOpcode::flush) &&
         queue_of(cold) != nullptr;
}

bool MediaTransfers::start(Slot slot) {
  // Virtual time stands still while a disk works, so nothing is gained by going on, and the order in which a disk is
  // done with its work would be the run's.
  if (context_.time.clock.is_virtual() || queue_of(requests_.cold(slot)) == nullptr) return false;
  if (requests_.hot(slot).fault != 0) {
    drain();
    return false;
  }
  ++requests_held_;
  if (waiting_ != 0 || !try_start(slot)) push_waiting(slot);
  return true;
}

bool MediaTransfers::try_start(Slot slot) {
  const ColdRequest& cold = requests_.cold(slot);
  media::MediaQueue& queue = *queue_of(cold);
  const bool durable = cold.is_write && cold.force_unit_access;
  media::Transfer* const transfer = queue.start(cold.media_offset, cold.bytes, cold.is_write, durable, slot);
  if (transfer == nullptr) return false;
  if (queue.outstanding() == 1) busy_.push_back(&queue);
  if (transfer->state != media::TransferState::pending) go_on(queue, *transfer);
  return true;
}

// The medium is not at work on this transfer: it wants its data, or is done.
void MediaTransfers::go_on(media::MediaQueue& queue, media::Transfer& transfer) {
  const Slot slot = transfer.token;
  HotRequest& hot = requests_.hot(slot);
  ColdRequest& cold = requests_.cold(slot);
  memory::Segment one{};
  std::span<const memory::Segment> segments;
  const bool is_done = transfer.state == media::TransferState::done;
  nvme::Status status = nvme::Status::success;
  if (transfer.result == media::TransferResult::good && !(is_done && cold.is_write))
    status = executor_.resolve(hot, cold, one, segments);
  else if (transfer.result == media::TransferResult::disk_full)
    status = nvme::Status::capacity_exceeded;
  else if (transfer.result == media::TransferResult::failed)
    status = cold.is_write ? nvme::Status::write_fault : nvme::Status::unrecovered_read_error;
  if (status == nvme::Status::success && !is_done) {
    copy_in(transfer.data, segments);
    return queue.write(transfer);
  }
  if (status != nvme::Status::success)
    requests_.fail(hot, cold, status);
  else if (!cold.is_write)
    copy_out(transfer.data, segments);
  queue.finish(transfer);
  if (queue.outstanding() == 0) std::erase(busy_, &queue);
  --requests_held_;
  cold.is_durable = cold.is_write && cold.force_unit_access;
  executor_.transferred(slot);
}

// The oldest of those that wait first, and few a round, for each may look at many blocks in vain.
bool MediaTransfers::poll() {
  if (requests_held_ == 0) [[likely]]
    return false;
  bool worked = collect();
  for (std::uint32_t tries = std::min(waiting_, kRetriesPerRound); tries != 0; --tries) {
    const Slot slot = pop_waiting();
    if (try_start(slot))
      worked = true;
    else
      push_waiting(slot);
  }
  return worked;
}

bool MediaTransfers::collect() {
  bool worked = false;
  for (std::size_t i = busy_.size(); i-- != 0;) {
    media::MediaQueue& queue = *busy_[i];
    queue.kick();
    while (media::Transfer* const transfer = queue.poll()) {
      go_on(queue, *transfer);
      worked = true;
    }
  }
  completer_.finish_moved();
  return worked;
}

void MediaTransfers::drain() {
  while (!busy_.empty())
    if (!collect()) std::this_thread::yield();
}

void MediaTransfers::finish() {
  drain();
  for (; waiting_ != 0; --requests_held_) redo_.push_back(pop_waiting());
  requests_.publish_returns();
}

void MediaTransfers::push_waiting(Slot slot) {
  requests_.cold(slot).partner = kNoSlot;
  if (waiting_++ == 0)
    waiting_first_ = slot;
  else
    requests_.cold(waiting_last_).partner = slot;
  waiting_last_ = slot;
}

Slot MediaTransfers::pop_waiting() {
  const Slot slot = waiting_first_;
  waiting_first_ = requests_.cold(slot).partner;
  --waiting_;
  return slot;
}

}  // namespace flashmob::engine
