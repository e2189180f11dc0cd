// The worker and media that takes its time: transfers that are asked for in one round and done in a later one.
//
// Host memory is touched inside the guard of a round alone, when data is copied to or from the medium's own buffers; so
// a host that takes its memory back waits for no disk. Before queues are deleted, commands aborted or controllers
// reset, all that is under way ends (finish_media), so no write lands behind its host's back.
#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "engine/worker.h"
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

// Whether a command that runs in one piece may wait for blocks of other threads' transfers: it must do so without any
// of its own thread's, for these might wait for it. A Flush is for what is done already.
bool Worker::waits_for_media(const ColdRequest& cold) const {
  return !busy_media_.empty() && cold.ns != nullptr && cold.ns->base == nullptr &&
         cold.sqe.opcode != static_cast<std::uint8_t>(nvme::NvmOpcode::flush) &&
         cold.ns->media->queue(number_) != nullptr;
}

// True if the media has it, or it waits for the media; false if the media only has calls that wait.
bool Worker::start_media(Slot slot, const HotRequest& hot, ColdRequest& cold) {
  // Virtual time stands still while a disk works, so nothing is gained by going on, and the order in which a disk is
  // done with its work would be the run's.
  if (time_.clock.is_virtual()) return false;
  media::MediaQueue* const queue = cold.ns->media->queue(number_);
  if (queue == nullptr) return false;
  if (hot.fault != 0) {
    drain_media();
    return false;
  }
  ++media_requests_;
  if (waiting_ != 0 || !try_media(slot, cold, *queue)) push_waiting(slot);
  return true;
}

bool Worker::try_media(Slot slot, ColdRequest& cold, media::MediaQueue& queue) {
  const bool durable = cold.is_write && cold.force_unit_access;
  media::Transfer* const transfer = queue.start(cold.media_offset, cold.bytes, cold.is_write, durable, slot);
  if (transfer == nullptr) return false;
  if (queue.outstanding() == 1) busy_media_.push_back(&queue);
  if (transfer->state != media::TransferState::pending) go_on(queue, *transfer);
  return true;
}

// The medium is not at work on this transfer: it wants its data, or is done.
void Worker::go_on(media::MediaQueue& queue, media::Transfer& transfer) {
  const Slot slot = transfer.token;
  HotRequest& hot = hot_[slot];
  ColdRequest& cold = slab_.cold(slot);
  memory::Segment one{};
  std::span<const memory::Segment> segments;
  const bool is_done = transfer.state == media::TransferState::done;
  nvme::Status status = nvme::Status::success;
  if (transfer.result == media::TransferResult::good && !(is_done && cold.is_write))
    status = resolve(hot, cold, one, segments);
  else if (transfer.result == media::TransferResult::disk_full)
    status = nvme::Status::capacity_exceeded;
  else if (transfer.result == media::TransferResult::failed)
    status = cold.is_write ? nvme::Status::write_fault : nvme::Status::unrecovered_read_error;
  if (status == nvme::Status::success && !is_done) {
    copy_in(transfer.data, segments);
    return queue.write(transfer);
  }
  if (status != nvme::Status::success)
    fail(hot, cold, status);
  else if (!cold.is_write)
    copy_out(transfer.data, segments);
  queue.finish(transfer);
  if (queue.outstanding() == 0) std::erase(busy_media_, &queue);
  --media_requests_;
  cold.is_durable = cold.is_write && cold.force_unit_access;
  data_done(slot);
}

// Takes up what media has done, then starts what could not be started: the oldest first, and few a round, for each may
// look at many blocks in vain.
bool Worker::poll_media() {
  bool worked = collect_media();
  for (std::uint32_t tries = std::min(waiting_, kRetriesPerRound); tries != 0; --tries) {
    const Slot slot = pop_waiting();
    ColdRequest& cold = slab_.cold(slot);
    if (try_media(slot, cold, *cold.ns->media->queue(number_)))
      worked = true;
    else
      push_waiting(slot);
  }
  return worked;
}

bool Worker::collect_media() {
  bool worked = false;
  for (std::size_t i = busy_media_.size(); i-- != 0;) {
    media::MediaQueue& queue = *busy_media_[i];
    queue.kick();
    while (media::Transfer* const transfer = queue.poll()) {
      go_on(queue, *transfer);
      worked = true;
    }
  }
  finish_moved();
  return worked;
}

// Until this thread has no transfer outstanding. Inside the guard.
void Worker::drain_media() {
  while (!busy_media_.empty())
    if (!collect_media()) std::this_thread::yield();
}

void Worker::finish_media() {
  drain_media();
  for (; waiting_ != 0; --media_requests_) redo_.push_back(pop_waiting());
  if (threaded_) returns_.publish();
}

void Worker::push_waiting(Slot slot) {
  slab_.cold(slot).partner = kNoSlot;
  if (waiting_++ == 0)
    waiting_first_ = slot;
  else
    slab_.cold(waiting_last_).partner = slot;
  waiting_last_ = slot;
}

Slot Worker::pop_waiting() {
  const Slot slot = waiting_first_;
  waiting_first_ = slab_.cold(slot).partner;
  --waiting_;
  return slot;
}

}  // namespace flashmob::engine
