// Copy of media that takes its time: all sources are read into a buffer, one part after the other, before the
// destination is written, so that they may overlap it. Between two parts it holds no blocks: two Copies that read what
// the other one writes wait for nobody.
#include <algorithm>
#include <cstring>
#include <new>

#include "engine/media_transfers.h"

namespace flashmob::engine {
namespace {

// Of a part, which is copied to or from the medium's buffers in one go.
constexpr std::uint64_t kMostPartBytes = 128 << 10;

}  // namespace

MediaTransfers::PartState MediaTransfers::copy(Slot slot, std::size_t& line) {
  ColdRequest& cold = requests_.cold(slot);
  const HotRequest& hot = requests_.hot(slot);
  if (cold.ns->base != nullptr || hot.fault != 0 || queue_of(cold) == nullptr) return PartState::none;
  if (cold.copies_left == 0) {
    const std::uint32_t number = copies_.take(port_of(slot).copies);
    line = static_cast<std::size_t>(Lack::copying_place);
    if (number == 0) return PartState::waits;
    if (!begin_copying(slot, number)) return PartState::taken;
  } else if (!command_set::may_write(*cold.ns, requests_.port_of(hot).controller.io_limits())) {
    // As in zero().
    end_copying(slot, nvme::Status::namespace_is_write_protected);
    return PartState::taken;
  }
  ++requests_held_;
  wait_or_start(slot);
  return PartState::taken;
}

// At the place of that number. False: it has been answered.
bool MediaTransfers::begin_copying(Slot slot, std::uint32_t number) {
  Copy& copy = copies_.at(number);
  FairShare::Holder& holder = port_of(slot).copies;
  copy.ranges.restart();
  if (!executor_.begin_copying(slot, copy.ranges)) {
    copies_.give(holder, number);
    return false;
  }
  ColdRequest& cold = requests_.cold(slot);
  cold.copies_left = number;
  try {
    if (copy.bytes.size() < copy.ranges.destination.bytes) copy.bytes.resize(copy.ranges.destination.bytes);
  } catch (const std::bad_alloc&) {
    end_copying(slot, nvme::Status::internal_error);
    return false;
  }
  aim(cold);
  return true;
}

// At the next part. Parts end where whole ones do.
void MediaTransfers::aim(ColdRequest& cold) {
  const command_set::Copying& ranges = copy_of(cold).ranges;
  const command_set::MediaRange& range = ranges.is_writing() ? ranges.destination : ranges.sources[ranges.done];
  cold.media_offset = range.offset + ranges.done_bytes;
  cold.bytes = static_cast<std::uint32_t>(
      std::min(range.bytes - ranges.done_bytes, kMostPartBytes - cold.media_offset % kMostPartBytes));
  cold.is_write = ranges.is_writing();
}

// One part is read, wants its data, or is written. The next one has its turn after others that wait.
void MediaTransfers::copied(media::MediaQueue& queue, media::Transfer& transfer) {
  const Slot slot = transfer.token;
  ColdRequest& cold = requests_.cold(slot);
  Copy& copy = copy_of(cold);
  if (transfer.state == media::TransferState::wants_data) {
    std::memcpy(transfer.data, copy.bytes.data() + copy.ranges.done_bytes, transfer.bytes);
    return queue.write(transfer);
  }
  nvme::Status status = nvme::Status::success;
  if (transfer.result == media::TransferResult::disk_full)
    status = nvme::Status::capacity_exceeded;
  else if (transfer.result == media::TransferResult::failed)
    status = cold.is_write ? nvme::Status::write_fault : nvme::Status::unrecovered_read_error;
  else if (!cold.is_write)
    std::memcpy(copy.bytes.data() + copy.ranges.read_bytes, transfer.data, transfer.bytes);
  finish(queue, transfer);
  if (status == nvme::Status::success) {
    copy.ranges.advance(cold.bytes);
    if (!copy.ranges.all_done()) {
      aim(cold);
      return waiting_.push(requests_.slab(), slot);
    }
  }
  --requests_held_;
  end_copying(slot, status);
}

// The command may be gone when it has been answered.
void MediaTransfers::end_copying(Slot slot, nvme::Status status) {
  const command_set::Copying& ranges = copy_of(requests_.cold(slot)).ranges;
  forget_parts(slot);
  executor_.end_copying(slot, ranges, status);
}

}  // namespace flashmob::engine
