// The worker's data side: preparing copies, moving them in slices, running commands that are not plain transfers.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "command_set/block_io.h"
#include "command_set/nvm.h"
#include "engine/worker.h"
#include "media/page_access.h"

namespace flashmob::engine {
namespace {

// Copies prepared ahead of the slice, so that their sources can be prefetched.
constexpr std::size_t kLookaheadCopies = 48;
// Larger pieces are cut, so that one segment cannot outlast a slice.
constexpr std::uint32_t kMaxCopyBytes = 16 * 1024;
// Above this many bytes in flight the client's buffers no longer stay in a core's L2, and streaming stores win.
constexpr std::uint64_t kStreamingFootprintBytes = 1024 * 1024;

}  // namespace

// The next request that has to be prepared. Plain transfers need no preparation and end the search.
bool Worker::next_to_prepare(Slot& slot) {
  if (!redo_.empty()) {
    slot = redo_.front();
    redo_.pop_front();
    return true;
  }
  if (turns_.empty() || in_turn().plain_first()) return false;
  slot = in_turn().front().token;
  in_turn().pop();
  end_turn();
  return true;
}

// The next controller's turn: each has a run of plain transfers moved, or one of its other commands prepared.
void Worker::end_turn() {
  if (in_turn().empty())
    turns_.erase(turns_.begin() + static_cast<std::ptrdiff_t>(turn_));
  else
    ++turn_;
  if (turn_ >= turns_.size()) turn_ = 0;
}

void Worker::move_slice() {
  const std::uint32_t length = wheel_.empty() ? 2 : 1;
  SliceBudget left{length * kSliceCopies, length * kSliceBytes};
  while (!left.is_spent() && !nothing_to_move()) {
    if (has_prepared() || !in_turn().plain_first())
      move_prepared(left);
    else
      move_plain(left);
  }
  time_.gaps.expect((length * kSliceCopies - left.copies) * kCopyNs +
                    (length * kSliceBytes - left.bytes) / kCopyBytesPerNs);
}

// Half of what is left is for copies that wait already: else commands that come without end, and cost a slice's bytes
// without being copies (Flushes, transfers of media that takes its time), would keep them waiting for ever.
void Worker::move_prepared(SliceBudget& left) {
  const std::uint32_t share = copies_at_ != copies_.size() ? left.bytes / 2 : 0;
  std::uint32_t work_bytes = 0;
  Slot slot = kNoSlot;
  while (copies_.size() - copies_at_ < kLookaheadCopies && work_bytes < left.bytes - share && next_to_prepare(slot))
    work_bytes += prepare(slot);
  const std::uint32_t most_bytes = std::max(left.bytes - std::min(left.bytes, work_bytes), share);
  left.take(0, work_bytes);

  const std::span<const Copy> pending(copies_.data() + copies_at_, copies_.size() - copies_at_);
  std::size_t count = 0;
  std::uint32_t bytes = 0;
  while (count < pending.size() && count < left.copies && bytes < most_bytes) bytes += pending[count++].bytes;
  // A logical block is written whole or not at all, even if its command is aborted between two slices.
  while (count != 0 && count < pending.size() && splits_block(pending[count])) ++count;
  if (copies_in_flight_ + count > CopyEngine::kMaxUnpolled && copies_in_flight_ != 0) [[unlikely]] {
    collect_copies();
    // Room for the whole slice comes when copies finish.
    if (copies_in_flight_ + count > CopyEngine::kMaxUnpolled && copies_in_flight_ != 0) return left.spend();
  }
  left.take(static_cast<std::uint32_t>(count), bytes);
  if (count != 0) {
    make_copies(pending, count);
    copies_at_ += count;
    copies_asked_ -= std::min(copies_asked_, count);
    if (copies_at_ == copies_.size()) {
      copies_.clear();
      copies_at_ = 0;
    } else if (copies_at_ >= 4 * kLookaheadCopies) {
      copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(copies_at_));
      copies_at_ = 0;
    }
  }
  collect_copies();
}

// Has the first `count` of `pending` made, and notes those that are done.
void Worker::make_copies(std::span<const Copy> pending, std::size_t count) {
  const bool streaming = outgrows_cache(pending[0].bytes);
  for (std::size_t started = 0; started < count;) {
    // A block may be in more pieces than the copy engine holds unpolled.
    if (started != 0) finish_copies();
    const std::size_t some = std::min(count - started, CopyEngine::kMaxUnpolled);
    CopyRun run{pending.subspan(started), copies_asked_ - std::min(copies_asked_, started)};
    bool made = true;
    if (!submit(run, some, streaming, made)) [[unlikely]]
      make_singly(run.copies.first(some));
    if (made) {
      for (std::size_t i = 0; i < some; ++i) copied(run.copies[i].token);
    } else {
      copies_in_flight_ += static_cast<std::uint32_t>(some);
      collect_copies();
    }
    copies_asked_ = started + run.asked;
    started += some;
  }
}

void Worker::make_singly(std::span<const Copy> copies) {
  for (const Copy& copy : copies) {
    if (media::try_access([&] { std::memcpy(copy.to, copy.from, copy.bytes); })) continue;
    HotRequest& hot = hot_[copy.token];
    ColdRequest& cold = slab_.cold(copy.token);
    if ((hot.flags & kFailed) == 0)
      fail(hot, cold, cold.is_write ? cold.ns->write_failure() : nvme::Status::unrecovered_read_error);
  }
}

// Whether the client's buffers, if all requests here are of this size, are more than stays in a core's cache.
bool Worker::outgrows_cache(std::uint32_t bytes) const {
  const std::uint64_t unmoved = turns_.empty() ? 0 : turns_[turn_]->size();
  return (wheel_.size() + unmoved) * bytes > kStreamingFootprintBytes;
}

// Notes that a copy is done.
inline void Worker::copied(Slot slot) {
  HotRequest& hot = hot_[slot];
  if (hot.cold == kNoSlot)
    plain_done(slot, hot);
  else if (--slab_.cold(slot).copies_left == 0)
    data_done(slot);
}

// Notes which copies are done.
void Worker::collect_copies() {
  std::array<std::uint32_t, 64> done;
  while (const std::size_t finished = copy_engine_->poll(done)) {
    copies_in_flight_ -= static_cast<std::uint32_t>(finished);
    for (std::size_t i = 0; i < finished; ++i) copied(done[i]);
  }
}

void Worker::finish_copies() {
  if (copies_in_flight_ == 0) return;
  for (;;) {
    collect_copies();
    if (copies_in_flight_ == 0) break;
    cpu_pause();
  }
  finish_moved();
  if (threaded_) returns_.publish();
}

// True if this copy goes on in the middle of a logical block that the copy before it began.
bool Worker::splits_block(const Copy& copy) {
  const ColdRequest& cold = slab_.cold(copy.token);
  const auto offset = static_cast<std::uint64_t>((cold.is_write ? copy.to : copy.from) - cold.ns->base);
  return (offset & (cold.ns->lba_bytes() - 1)) != 0;
}

std::uint32_t Worker::prepare(Slot slot) {
  HotRequest& hot = hot_[slot];
  if ((hot.flags & kZombie) != 0) {
    if ((hot.flags & kFused) != 0) end_partner(slab_.cold(slot).partner);
    drop_zombie(slot);
    return 0;
  }
  if (hot.cold == kNoSlot) {
    plain_done(slot, hot);  // a plain transfer that has lost its host memory, or its namespace
    return 0;
  }
  if ((hot.flags & kFailed) != 0) {
    end_failed(slot);
    return 0;
  }
  if ((hot.flags & kTransfer) != 0) return prepare_transfer(slot, hot, slab_.cold(slot));
  const std::uint64_t began_ns = time_.now_ns;
  if (waits_for_media(slab_.cold(slot))) drain_media();
  if ((hot.flags & kFused) != 0)
    run_fused(slot, slab_.cold(slot).partner);
  else
    run_command(slot);
  // What it took, where that is more: one that waited for a disk has used the slice up.
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>((time_.now_ns - began_ns) * kCopyBytesPerNs, kSliceBytes / 4, 2 * kSliceBytes));
}

// The wheel gives it back if it still holds it; a request without target, or past it, is ours to give back.
void Worker::drop_zombie(Slot slot) {
  HotRequest& hot = hot_[slot];
  hot.flags = static_cast<std::uint8_t>(hot.flags | kDataDone);
  if ((hot.flags & kTimed) == 0 || (hot.flags & kDue) != 0) give_back(slot);
}

// Where a transfer's host memory lies. Inside the guard.
nvme::Status Worker::resolve(const HotRequest& hot, const ColdRequest& cold, memory::Segment& one,
                             std::span<const memory::Segment>& segments) {
  PortContext& port = *sqs_[hot.sq].cq->port;
  const auto& limits = port.controller.io_limits().data_pointer;
  const auto direction = cold.is_write ? memory::Direction::from_host : memory::Direction::to_host;
  std::byte* single = nullptr;
  if (memory::resolve_single(port.reader, cold.sqe, cold.bytes, direction, limits.page_bytes, single)) {
    one = {single, cold.bytes};
    segments = {&one, 1};
    return nvme::Status::success;
  }
  const nvme::Status status = memory::resolve(port.reader, cold.sqe, cold.bytes, direction, limits, segments_);
  segments = segments_.segments();
  return status;
}

std::uint32_t Worker::prepare_transfer(Slot slot, HotRequest& hot, ColdRequest& cold) {
  command_set::Namespace& ns = *cold.ns;
  std::uint64_t at = cold.media_offset;
  // NVM 1.0c, 3.2.4: a Read with FUA returns what is on the medium, so what it would return is made durable first.
  if (cold.force_unit_access && !cold.is_write && cold.bytes_moved == 0) [[unlikely]] {
    if (start_sync(slot, ns)) return 0;
    if (!ns.media->sync(at, cold.bytes)) {
      fail(hot, cold, nvme::Status::unrecovered_read_error);
      data_done(slot);
      return 0;
    }
  }
  if (ns.base == nullptr && start_media(slot, hot, cold)) return cold.bytes;
  memory::Segment one{};
  std::span<const memory::Segment> segments;
  if (const nvme::Status status = resolve(hot, cold, one, segments); status != nvme::Status::success) {
    fail(hot, cold, status);
    data_done(slot);
    return 0;
  }
  if (ns.base == nullptr || locks_ != nullptr || (cold.is_write && !ns.direct_stores)) {
    if (move_by_media(slot, segments)) data_done(slot);
    return std::min(cold.bytes, kSliceBytes);
  }
  cold.copies_left = 0;
  note_pages(ns);
  for (const memory::Segment& segment : segments) {
    for (std::uint64_t done = 0; segment.host != nullptr && done < segment.bytes;) {
      const auto piece = static_cast<std::uint32_t>(std::min<std::uint64_t>(kMaxCopyBytes, segment.bytes - done));
      std::byte* const host = segment.host + done;
      std::byte* const media = ns.base + at + done;
      copies_.push_back(cold.is_write ? Copy{media, host, piece, slot} : Copy{host, media, piece, slot});
      ++cold.copies_left;
      done += piece;
    }
    at += segment.bytes;
  }
  if (cold.copies_left == 0) data_done(slot);  // nothing but bit buckets
  return 0;
}

// Moves one slice's worth; true if that was the last.
bool Worker::move_by_media(Slot slot, std::span<const memory::Segment> segments) {
  HotRequest& hot = hot_[slot];
  ColdRequest& cold = slab_.cold(slot);
  command_set::Namespace& ns = *cold.ns;
  const std::uint32_t bytes = std::min(kSliceBytes, cold.bytes - cold.bytes_moved);
  const std::uint64_t at = cold.media_offset + cold.bytes_moved;
  command_set::PieceLocks* const locks = locks_of(ns);
  const bool good = cold.is_write ? command_set::write_blocks(ns, locks, at, segments, cold.bytes_moved, bytes)
                                  : command_set::read_blocks(ns, locks, at, segments, cold.bytes_moved, bytes);
  if (!good) fail(hot, cold, cold.is_write ? ns.write_failure() : nvme::Status::unrecovered_read_error);
  cold.bytes_moved += bytes;
  if (!good || cold.bytes_moved == cold.bytes) return true;
  redo_.push_front(slot);
  return false;
}

void Worker::data_done(Slot slot) {
  HotRequest& hot = hot_[slot];
  ColdRequest& cold = slab_.cold(slot);
  // Only now: until the new data is there, a block that was marked must not show what it held before.
  using command_set::Unmarked;
  Unmarked unmarked = Unmarked::none;
  if (cold.is_write && (hot.flags & kFailed) == 0 && cold.ns->has_marks())
    unmarked = cold.ns->unmark(cold.media_offset >> cold.ns->lba_shift, cold.bytes >> cold.ns->lba_shift);
  if (unmarked == Unmarked::refused) fail(hot, cold, nvme::Status::internal_error);
  const bool is_unmarked = unmarked == Unmarked::some;
  if (cold.is_write && (cold.force_unit_access || is_unmarked) && (hot.flags & (kFailed | kZombie)) == 0) {
    cold.sync_marks = cold.ns->marks_unsaved();
    if (!cold.sync_marks && (!cold.force_unit_access || cold.is_durable)) return data_durable(slot);
    if (start_sync(slot, *cold.ns)) return;
    time_.gaps.note_work();
    return write_durable(slot, make_durable(cold));
  }
  data_durable(slot);
}

// All that was to be done to the media is done.
void Worker::data_durable(Slot slot) {
  HotRequest& hot = hot_[slot];
  ColdRequest& cold = slab_.cold(slot);
  if (hot.fault != 0) [[unlikely]]
    show_fault(hot, cold);
  hot.flags = static_cast<std::uint8_t>(hot.flags | kDataDone);
  if (!threaded_) slab_.release_cold(slot);
  if ((hot.flags & kDue) == 0) return;
  if ((hot.flags & kZombie) != 0) return give_back(slot);
  due_[due_count_++] = slot;
  if (due_count_ == kDueBatch) finish_moved();
}

// Completes what was due before its data had been moved.
void Worker::finish_moved() {
  if (due_count_ == 0) return;
  finished_in_round_ += due_count_;
  finish_batch(std::exchange(due_count_, 0));
}

void Worker::fail(HotRequest& hot, const ColdRequest& cold, nvme::Status status) {
  const Sq& sq = *sqs_[hot.sq].sq;
  const std::uint64_t lba = cold.sqe.cdw10 | (std::uint64_t{cold.sqe.cdw11} << 32);
  hot.status = sq.controller->record_error(sq.sqid, hot.cid, status, cold.sqe.nsid, lba);
  hot.flags = static_cast<std::uint8_t>(hot.flags | kFailed);
}

void Worker::conclude(Slot slot, const command_set::Outcome& outcome, std::uint64_t not_before_ns) {
  HotRequest& hot = hot_[slot];
  ColdRequest& cold = slab_.cold(slot);
  cold.result = outcome.result;
  if (outcome.status != nvme::Status::success) fail(hot, cold, outcome.status);
  // What the command asked of the device is known only now, but it was asked when it was fetched: time that running it
  // took beyond the model's is late.
  std::uint64_t target_ns = hot.fetched_ns;
  model_.schedule({&outcome.demand, 1}, hot.fetched_ns, {&target_ns, 1});
  hot.target_ns = std::max(target_ns, not_before_ns) + outcome.extra_ns;
  sqs_[hot.sq].cq->port->count(outcome.host_read_bytes != 0, outcome.host_read_bytes, outcome.host_write_bytes != 0,
                               outcome.host_write_bytes);
  const bool syncs = outcome.status == nvme::Status::success && outcome.sync_bytes != 0;
  cold.sync_marks = (syncs || outcome.marks_changed) && cold.ns->marks_unsaved();
  if (syncs || cold.sync_marks) [[unlikely]] {
    cold.media_offset = outcome.sync_offset;
    cold.bytes = static_cast<std::uint32_t>(outcome.sync_bytes);
    cold.is_write = outcome.sync_is_of_write || outcome.marks_changed;
    if (start_sync(slot, *cold.ns)) return;
    time_.gaps.note_work();
    return execution_durable(slot, make_durable(cold));
  }
  hold(slot);
}

// All that the command was to do is done: it completes at its target.
void Worker::hold(Slot slot) {
  HotRequest& hot = hot_[slot];
  hot.flags = static_cast<std::uint8_t>(hot.flags | kDataDone | kTimed);
  if (hot.fault != 0) [[unlikely]]
    show_fault(hot, slab_.cold(slot));
  wheel_.insert(slot, hot.target_ns);
}

void Worker::run_command(Slot slot) {
  ColdRequest& cold = slab_.cold(slot);
  if (cold.sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::flush)) return go_on_flushing(slot, 0, true);
  PortContext& port = *sqs_[hot_[slot].sq].cq->port;
  const auto& limits = port.controller.io_limits();
  if (bounce_.size() < limits.max_transfer_bytes + 4096) bounce_.resize(limits.max_transfer_bytes + 4096);
  const bool write_through = !port.controller.write_cache_enabled();
  command_set::ExecContext context{port.reader,        segments_,     bounce_, limits,
                                   locks_of(*cold.ns), write_through, &model_, cold.media_offset};
  const command_set::Outcome outcome = cold.ns->command_set->execute(cold.sqe, *cold.ns, context);
  time_.gaps.note_work();
  time_.refresh();
  conclude(slot, outcome, hot_[slot].target_ns);
}

void Worker::run_fused(Slot first, Slot second) {
  ColdRequest& cold = slab_.cold(first);
  PortContext& port = *sqs_[hot_[first].sq].cq->port;
  const auto& limits = port.controller.io_limits();
  if (bounce_.size() < limits.max_transfer_bytes + 4096) bounce_.resize(limits.max_transfer_bytes + 4096);
  const bool write_through = !port.controller.write_cache_enabled();
  command_set::ExecContext context{port.reader, segments_, bounce_, limits, locks_of(*cold.ns), write_through, &model_};
  command_set::Outcome one;
  command_set::Outcome two;
  cold.ns->command_set->execute_fused(cold.sqe, slab_.cold(second).sqe, *cold.ns, context, one, two);
  time_.gaps.note_work();
  time_.refresh();
  // The second half waits for the disk where the first one does, and behind it.
  if (one.sync_bytes != 0 && two.sync_bytes == 0) {
    two.sync_offset = one.sync_offset;
    two.sync_bytes = one.sync_bytes;
  }
  conclude(first, one, 0);
  // Completions of a fused pair are posted in order (Base 2.0c, 3.4.2).
  if ((hot_[second].flags & kZombie) != 0)
    give_back(second);
  else
    conclude(second, two, hot_[first].target_ns + (std::uint64_t{1} << config_.wheel_shift));
}

// A request that was ended before its turn came. A fused pair's halves were ended together.
void Worker::end_failed(Slot slot) {
  const HotRequest& hot = hot_[slot];
  if ((hot.flags & kTransfer) != 0) return data_done(slot);
  const Slot second = (hot.flags & kFused) != 0 ? slab_.cold(slot).partner : kNoSlot;
  conclude(slot, {}, 0);
  if (second != kNoSlot) end_partner(second);
}

// The first half of a fused pair is gone before it ran: the second half fails, or goes with it.
void Worker::end_partner(Slot second) {
  if ((hot_[second].flags & kZombie) != 0) return give_back(second);
  command_set::Outcome outcome;
  if ((hot_[second].flags & kFailed) == 0) outcome.status = nvme::Status::aborted_failed_fused;
  conclude(second, outcome, 0);
}

void Worker::redo_copies() {
  FLASHMOB_CHECK(copies_in_flight_ == 0);
  for (std::size_t i = copies_at_; i < copies_.size(); ++i)
    if (redo_.empty() || redo_.back() != copies_[i].token) redo_.push_back(copies_[i].token);
  copies_.clear();
  copies_at_ = copies_asked_ = 0;
}

}  // namespace flashmob::engine
