#include "engine/media_transfers.h"

#include <algorithm>
#include <cstring>

#include "base/backoff.h"
#include "base/check.h"
#include "command_set/block_io.h"
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
  wait_or_start(slot);
  return true;
}

bool MediaTransfers::start_look(Slot slot) {
  ColdRequest& cold = requests_.cold(slot);
  const HotRequest& hot = requests_.hot(slot);
  if (hot.has(kFused) || cold.ns == nullptr || cold.ns->base != nullptr || hot.fault != 0 ||
      context_.time.clock.is_virtual() || queue_of(cold) == nullptr)
    return false;
  const auto range = cold.ns->command_set->looks_at(cold.sqe, *cold.ns, requests_.port_of(hot).controller.io_limits());
  if (!range) return false;
  cold.media_offset = range->offset;
  cold.bytes = static_cast<std::uint32_t>(range->bytes);
  cold.is_write = false;
  ++requests_held_;
  wait_or_start(slot);
  return true;
}

void MediaTransfers::looked(media::MediaQueue& queue, media::Transfer& transfer) {
  --requests_held_;
  if (transfer.result == media::TransferResult::good)
    executor_.look(transfer.token, {transfer.data, transfer.bytes});
  else
    executor_.fail_look(transfer.token);
  finish(queue, transfer);
}

void MediaTransfers::finish(media::MediaQueue& queue, media::Transfer& transfer) {
  queue.finish(transfer);
  if (queue.outstanding() == 0) std::erase(busy_, &queue);
}

void MediaTransfers::wait_or_start(Slot slot) {
  if (draining_ || !waiting_.empty() || !try_start(slot)) waiting_.push(requests_.slab(), slot);
}

MediaTransfers::PartState MediaTransfers::do_part(Slot slot, std::size_t& line) {
  const ColdRequest& cold = requests_.cold(slot);
  // Virtual time stands still meanwhile, as in start().
  if (requests_.hot(slot).has(kFused) || cold.ns == nullptr || context_.time.clock.is_virtual()) return PartState::none;
  if (cold.ns->command_set->has_steps(cold.sqe)) return step(slot, line);
  if (cold.ns->command_set->notes_copying(cold.sqe)) return copy(slot, line);
  return cold.ns->command_set->notes_zeroing(cold.sqe) ? zero(slot, line) : PartState::none;
}

// Of a command that waits for room in its namespace.
std::size_t MediaTransfers::line_of_room(const ColdRequest& cold) {
  const std::uint64_t room = cold.ns->command_set->room_of(cold.sqe, *cold.ns) ^ std::uint64_t{cold.ns->nsid} << 48;
  return static_cast<std::size_t>(Lack::room) + (room * 0x9E3779B97F4A7C15ull >> 60) % kRooms;
}

// Most commands have but one step, and need no place for what is between two.
MediaTransfers::PartState MediaTransfers::step(Slot slot, std::size_t& line) {
  ColdRequest& cold = requests_.cold(slot);
  command_set::Outcome outcome;
  if (cold.copies_left == 0) {
    std::uint32_t number = 0;
    if (cold.ns->command_set->has_several_steps(cold.sqe)) {
      number = progresses_.take(port_of(slot).progresses);
      line = static_cast<std::size_t>(Lack::step_place);
      if (number == 0) return PartState::waits;
    }
    command_set::Progress progress;
    const bool has_ended = executor_.step(slot, progress, outcome);
    if (has_ended || !progress.has_begun()) {
      if (number != 0) progresses_.give(port_of(slot).progresses, number);
      line = line_of_room(cold);
      if (!has_ended) return PartState::waits;
      executor_.end_steps(slot, outcome);
      return PartState::taken;
    }
    FLASHMOB_CHECK(number != 0);
    progresses_.at(number) = progress;
    cold.copies_left = number;
    return PartState::holds;
  }
  const std::uint32_t number = cold.copies_left;
  if (!executor_.step(slot, progresses_.at(number), outcome)) return PartState::holds;
  cold.copies_left = 0;
  progresses_.give(port_of(slot).progresses, number);
  executor_.end_steps(slot, outcome);
  return PartState::taken;
}

MediaTransfers::PartState MediaTransfers::zero(Slot slot, std::size_t& line) {
  ColdRequest& cold = requests_.cold(slot);
  const HotRequest& hot = requests_.hot(slot);
  const bool is_mapped = cold.ns->base != nullptr;
  if (!is_mapped && (hot.fault != 0 || queue_of(cold) == nullptr)) return PartState::none;
  if (cold.copies_left == 0) {
    const std::uint32_t number = zeroings_.take(port_of(slot).zeroings);
    line = static_cast<std::size_t>(Lack::zeroing_place);
    if (number == 0) return PartState::waits;
    if (!begin_zeroing(slot, number)) return PartState::taken;
  } else if (!command_set::may_write(*cold.ns, requests_.port_of(hot).controller.io_limits())) {
    // It was stopped half-way so that its namespace could be protected.
    end_zeroing(slot, nvme::Status::namespace_is_write_protected);
    return PartState::taken;
  }
  if (is_mapped) return zero_slice(slot);
  ++requests_held_;
  wait_or_start(slot);
  return PartState::taken;
}

// At the place of that number. False: it has been answered.
bool MediaTransfers::begin_zeroing(Slot slot, std::uint32_t number) {
  command_set::Zeroing& zeroing = zeroings_.at(number);
  FairShare::Holder& holder = port_of(slot).zeroings;
  zeroing.restart();
  if (!executor_.begin_zeroing(slot, zeroing)) {
    zeroings_.give(holder, number);
    return false;
  }
  requests_.cold(slot).copies_left = number;
  return true;
}

// Of media that lies in memory.
MediaTransfers::PartState MediaTransfers::zero_slice(Slot slot) {
  command_set::Namespace& ns = *requests_.cold(slot).ns;
  command_set::Zeroing& zeroing = zeroing_of(requests_.cold(slot));
  command_set::ZeroingSlice slice(&context_.time.clock);
  do {
    const command_set::Zeroing::Range& range = zeroing.ranges[zeroing.done];
    const std::uint64_t bytes = slice.zero(ns, context_.locks_of(ns), range.offset + zeroing.done_bytes,
                                           range.bytes - zeroing.done_bytes, zeroing.is_discard);
    if (bytes != 0) executor_.note_zeroed(slot, zeroing, bytes);
    if (bytes == 0 || zeroing.all_done()) {
      context_.time.gaps.note_work();
      end_zeroing(slot, bytes != 0 ? nvme::Status::success : ns.write_failure());
      return PartState::taken;
    }
  } while (slice.goes_on());
  context_.time.gaps.note_work();
  context_.time.refresh();
  return PartState::stopped;
}

// The command may be gone when it has been answered.
void MediaTransfers::end_zeroing(Slot slot, nvme::Status status) {
  const command_set::Zeroing& zeroing = zeroing_of(requests_.cold(slot));
  forget_parts(slot);
  executor_.end_zeroing(slot, zeroing, status);
}

void MediaTransfers::forget_parts(Slot slot) {
  forget_steps(slot);
  ColdRequest& cold = requests_.cold(slot);
  if (requests_.hot(slot).has(kTransfer) || cold.copies_left == 0) return;
  if (copies_.has(cold.copies_left))
    copies_.give(port_of(slot).copies, cold.copies_left);
  else
    zeroings_.give(port_of(slot).zeroings, cold.copies_left);
  cold.copies_left = 0;
}

void MediaTransfers::forget_steps(Slot slot) {
  ColdRequest& cold = requests_.cold(slot);
  if (requests_.hot(slot).has(kTransfer | kDataDone) || !progresses_.has(cold.copies_left)) return;
  cold.ns->command_set->abandon(*cold.ns, progresses_.at(cold.copies_left));
  progresses_.give(port_of(slot).progresses, cold.copies_left);
  cold.copies_left = 0;
}

bool MediaTransfers::try_zero(media::MediaQueue& queue, Slot slot) {
  const command_set::Zeroing& zeroing = zeroing_of(requests_.cold(slot));
  const command_set::Zeroing::Range& range = zeroing.ranges[zeroing.done];
  const std::uint64_t at = range.offset + zeroing.done_bytes;
  // Steps end where the medium's large pages do.
  constexpr std::uint64_t kStepBytes = command_set::ZeroingSlice::kMostBytes;
  const std::uint64_t bytes = std::min(range.bytes - zeroing.done_bytes, kStepBytes - at % kStepBytes);
  media::Transfer* const transfer = queue.start_zeroes(at, static_cast<std::uint32_t>(bytes), slot);
  if (transfer != nullptr && queue.outstanding() == 1) busy_.push_back(&queue);
  return transfer != nullptr;
}

// One step of a command that zeroes.
void MediaTransfers::zeroed(media::MediaQueue& queue, media::Transfer& transfer) {
  const Slot slot = transfer.token;
  command_set::Zeroing& zeroing = zeroing_of(requests_.cold(slot));
  const media::TransferResult result = transfer.result;
  const std::uint32_t bytes = transfer.bytes;
  finish(queue, transfer);
  if (result == media::TransferResult::good) {
    executor_.note_zeroed(slot, zeroing, bytes);
    if (!zeroing.all_done()) return wait_or_start(slot);
  }
  --requests_held_;
  end_zeroing(slot, result == media::TransferResult::good        ? nvme::Status::success
                    : result == media::TransferResult::disk_full ? nvme::Status::capacity_exceeded
                                                                 : nvme::Status::write_fault);
}

bool MediaTransfers::try_start(Slot slot) {
  const ColdRequest& cold = requests_.cold(slot);
  media::MediaQueue& queue = *queue_of(cold);
  if (!requests_.hot(slot).has(kTransfer) && cold.copies_left != 0 && !copies_.has(cold.copies_left))
    return try_zero(queue, slot);
  const bool durable = cold.is_write && cold.force_unit_access;
  media::Transfer* const transfer = queue.start(cold.media_offset, cold.bytes, cold.is_write, durable, slot);
  if (transfer == nullptr) return false;
  if (queue.outstanding() == 1) busy_.push_back(&queue);
  if (transfer->state != media::TransferState::pending) go_on(queue, *transfer);
  return true;
}

// The medium is not at work on this transfer: it wants its data, or is done.
void MediaTransfers::go_on(media::MediaQueue& queue, media::Transfer& transfer) {
  if (transfer.is_zeroes) return zeroed(queue, transfer);
  const Slot slot = transfer.token;
  if (!requests_.hot(slot).has(kTransfer))
    return copies_.has(requests_.cold(slot).copies_left) ? copied(queue, transfer) : looked(queue, transfer);
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
  finish(queue, transfer);
  --requests_held_;
  cold.is_durable = cold.is_write && cold.force_unit_access;
  executor_.transferred(slot);
}

// The oldest of those that wait first, and few a round, for each may look at many blocks in vain.
bool MediaTransfers::poll() {
  if (requests_held_ == 0) [[likely]]
    return false;
  bool worked = collect();
  for (std::uint32_t tries = std::min(waiting_.size(), kRetriesPerRound); tries != 0; --tries) {
    const Slot slot = waiting_.pop(requests_.slab());
    if (try_start(slot))
      worked = true;
    else
      waiting_.push(requests_.slab(), slot);
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
  draining_ = true;
  for (Backoff backoff; !busy_.empty();)
    if (!collect()) backoff.pause();
  draining_ = false;
}

void MediaTransfers::finish() {
  drain();
  for (; !waiting_.empty(); --requests_held_) redo_.push_back(waiting_.pop(requests_.slab()));
  requests_.publish_returns();
}

}  // namespace flashmob::engine
