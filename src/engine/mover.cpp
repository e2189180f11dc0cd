#include "engine/mover.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "command_set/block_io.h"
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

Mover::Mover(const WorkerContext& context, Requests& requests, Completer& completer, Executor& executor,
             MediaTransfers& media, RedoQueue& redo, std::unique_ptr<CopyEngine> copies)
    : context_(context),
      requests_(requests),
      completer_(completer),
      executor_(executor),
      media_(media),
      redo_(redo),
      copy_engine_(std::move(copies)) {
  copies_.reserve(16384);
}

// The next request that has to be prepared. Plain transfers need no preparation and end the search.
bool Mover::next_to_prepare(Slot& slot) {
  if (!redo_.empty()) {
    slot = redo_.front();
    redo_.pop_front();
    return true;
  }
  if (turns_.empty() || in_turn().plain_first()) return false;
  slot = in_turn().pop_first(requests_.slab());
  end_turn();
  return true;
}

void Mover::move_slice() {
  const std::uint32_t length = completer_.held() == 0 ? 2 : 1;
  Budget left{length * kSliceCopies, length * kSliceBytes};
  while (!left.is_spent() && has_work()) {
    if (has_prepared() || !in_turn().plain_first())
      move_prepared(left);
    else
      move_plain(left);
  }
  context_.time.gaps.expect((length * kSliceCopies - left.copies) * kCopyNs +
                            (length * kSliceBytes - left.bytes) / kCopyBytesPerNs);
}

// Half of what is left is for copies that wait already: else commands that come without end, and cost a slice's bytes
// without being copies (Flushes, transfers of media that takes its time), would keep them waiting for ever.
void Mover::move_prepared(Budget& left) {
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
  if (!has_room_for(count)) return left.spend();
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
void Mover::make_copies(std::span<const Copy> pending, std::size_t count) {
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

// As CopyEngine::submit(), which says whether they are `made`. False if a page of media was gone: some are made, one
// perhaps in part.
bool Mover::submit(CopyRun& run, std::size_t count, bool streaming, bool& made) {
  // A device that met such a page would leave it to the CPU, outside all guard.
  if (pages_may_go_) [[unlikely]]
    return copy_engine_->may_be_cut_short() &&
           media::try_access([&] { made = copy_engine_->submit(run, count, streaming); });
  made = copy_engine_->submit(run, count, streaming);
  return true;
}

void Mover::make_singly(std::span<const Copy> copies) {
  for (const Copy& copy : copies) {
    if (media::try_access([&] { std::memcpy(copy.to, copy.from, copy.bytes); })) continue;
    HotRequest& hot = requests_.hot(copy.token);
    const ColdRequest& cold = requests_.cold(copy.token);
    if (!hot.has(kFailed))
      requests_.fail(hot, cold, cold.is_write ? cold.ns->write_failure() : nvme::Status::unrecovered_read_error);
  }
}

// Whether the client's buffers, if all requests here are of this size, are more than stays in a core's cache.
bool Mover::outgrows_cache(std::uint32_t bytes) const {
  const std::uint64_t unmoved = turns_.empty() ? 0 : turns_.current().size();
  return (completer_.held() + unmoved) * bytes > kStreamingFootprintBytes;
}

// Notes that a copy is done.
inline void Mover::copied(Slot slot) {
  if (requests_.hot(slot).cold == kNoSlot)
    completer_.data_moved(slot);
  else if (--requests_.cold(slot).copies_left == 0)
    executor_.transferred(slot);
}

// Whether so many copies may be started: room comes when copies finish.
bool Mover::has_room_for(std::size_t copies) {
  if (copies_in_flight_ + copies <= CopyEngine::kMaxUnpolled) [[likely]]
    return true;
  collect_copies();
  return copies_in_flight_ + copies <= CopyEngine::kMaxUnpolled || copies_in_flight_ == 0;
}

void Mover::collect_copies() {
  std::array<std::uint32_t, 64> done;
  while (const std::size_t finished = copy_engine_->poll(done)) {
    copies_in_flight_ -= static_cast<std::uint32_t>(finished);
    for (std::size_t i = 0; i < finished; ++i) copied(done[i]);
  }
}

void Mover::finish_copies() {
  if (copies_in_flight_ == 0) return;
  for (;;) {
    collect_copies();
    if (copies_in_flight_ == 0) break;
    cpu_pause();
  }
  completer_.finish_moved();
  requests_.publish_returns();
}

// True if this copy goes on in the middle of a logical block that the copy before it began.
bool Mover::splits_block(const Copy& copy) {
  const ColdRequest& cold = requests_.cold(copy.token);
  const auto offset = static_cast<std::uint64_t>((cold.is_write ? copy.to : copy.from) - cold.ns->base);
  return (offset & (cold.ns->lba_bytes() - 1)) != 0;
}

// Returns what that has taken, in bytes of a slice.
std::uint32_t Mover::prepare(Slot slot) {
  const HotRequest& hot = requests_.hot(slot);
  if (hot.has(kZombie | kFailed) && hot.cold != kNoSlot) [[unlikely]]
    media_.forget_parts(slot);
  if (hot.has(kZombie)) {
    if (hot.has(kFused)) executor_.end_partner(requests_.cold(slot).partner);
    requests_.drop_zombie(slot);
    return 0;
  }
  if (hot.cold == kNoSlot) {
    completer_.data_moved(slot);  // a plain transfer that has lost its host memory, or its namespace
    return 0;
  }
  if (hot.has(kFailed)) {
    executor_.end_failed(slot);
    return 0;
  }
  if (hot.has(kTransfer)) return prepare_transfer(slot);
  const std::uint64_t began_ns = context_.time.now_ns;
  do_part(slot);
  // What it took, where that is more: one that waited for a disk has used the slice up.
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>((context_.time.now_ns - began_ns) * kCopyBytesPerNs, kSliceBytes / 4, 2 * kSliceBytes));
}

// Carries out the next part of a command. Who has asked in vain asks again in its turn; who need not ask any more lets
// the next one of its line ask.
void Mover::do_part(Slot slot) {
  using PartState = MediaTransfers::PartState;
  MoveQueue& moves = *requests_.port_of(requests_.hot(slot)).moves;
  std::size_t number = 0;
  const PartState part = media_.do_part(slot, number);
  WaitingLine* const joins = part == PartState::waits ? &moves.lines[number] : nullptr;
  if (moves.asking != 0) leave_lines(moves, slot, joins);
  if (joins != nullptr) {
    if (joins->asks == kNoSlot) {
      joins->asks = slot;
      ++moves.asking;
    }
    if (joins->asks != slot) return joins->others.push(requests_.slab(), slot);
  }
  const bool asks_for_room = joins != nullptr && number >= static_cast<std::size_t>(Lack::room);
  if (part == PartState::holds || asks_for_room) {
    take_turns(moves);
    moves.push_urgent(requests_.slab(), slot);
  } else if (part == PartState::waits || part == PartState::stopped) {
    take(slot);
  } else if (part == PartState::none && !media_.start_look(slot)) {
    if (media_.may_block(requests_.cold(slot))) media_.drain();
    executor_.run(slot);
  }
}

// Where the command asks and does not go on asking (`but`), the next one of the line does.
void Mover::leave_lines(MoveQueue& moves, Slot slot, const WaitingLine* but) {
  for (WaitingLine& line : moves.lines)
    if (line.asks == slot && &line != but) {
      line.asks = line.others.empty() ? kNoSlot : line.others.pop(requests_.slab());
      if (line.asks != kNoSlot)
        take(line.asks);
      else
        --moves.asking;
    }
}

// Whoever asks is in the queue, and the others come after all that is there.
void Mover::end_lines() {
  for (MoveQueue* const moves : turns_) {
    moves->end_urgent(requests_.slab());
    moves->asking = 0;
    for (WaitingLine& line : moves->lines) {
      line.asks = kNoSlot;
      while (!line.others.empty()) moves->push_other(line.others.pop(requests_.slab()));
    }
  }
}

std::uint32_t Mover::prepare_transfer(Slot slot) {
  ColdRequest& cold = requests_.cold(slot);
  command_set::Namespace& ns = *cold.ns;
  std::uint64_t at = cold.media_offset;
  // NVM 1.0c, 3.2.4: a Read with FUA returns what is on the medium, so what it would return is made durable first.
  if (cold.force_unit_access && !cold.is_write && cold.bytes_moved == 0) [[unlikely]] {
    if (executor_.start_sync(slot, ns)) return 0;
    if (!ns.media->sync(at, cold.bytes)) {
      executor_.fail_transfer(slot, nvme::Status::unrecovered_read_error);
      return 0;
    }
  }
  if (ns.base == nullptr && media_.start(slot)) return cold.bytes;
  memory::Segment one{};
  std::span<const memory::Segment> segments;
  const nvme::Status status = executor_.resolve(requests_.hot(slot), cold, one, segments);
  if (status != nvme::Status::success) {
    executor_.fail_transfer(slot, status);
    return 0;
  }
  if (ns.base == nullptr || context_.locks != nullptr || (cold.is_write && !ns.direct_stores)) {
    if (move_by_media(slot, segments)) executor_.transferred(slot);
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
  if (cold.copies_left == 0) executor_.transferred(slot);  // nothing but bit buckets
  return 0;
}

// Moves one slice's worth; true if that was the last.
bool Mover::move_by_media(Slot slot, std::span<const memory::Segment> segments) {
  ColdRequest& cold = requests_.cold(slot);
  command_set::Namespace& ns = *cold.ns;
  const std::uint32_t bytes = std::min(kSliceBytes, cold.bytes - cold.bytes_moved);
  const std::uint64_t at = cold.media_offset + cold.bytes_moved;
  command_set::PieceLocks* const locks = context_.locks_of(ns);
  const bool good = cold.is_write ? command_set::write_blocks(ns, locks, at, segments, cold.bytes_moved, bytes)
                                  : command_set::read_blocks(ns, locks, at, segments, cold.bytes_moved, bytes);
  if (!good)
    requests_.fail(requests_.hot(slot), cold,
                   cold.is_write ? ns.write_failure() : nvme::Status::unrecovered_read_error);
  cold.bytes_moved += bytes;
  if (!good || cold.bytes_moved == cold.bytes) return true;
  redo_.push_front(slot);
  return false;
}

void Mover::redo_copies() {
  FLASHMOB_CHECK(copies_in_flight_ == 0);
  end_lines();
  for (std::size_t i = copies_at_; i < copies_.size(); ++i)
    if (redo_.empty() || redo_.back() != copies_[i].token) redo_.push_back(copies_[i].token);
  copies_.clear();
  copies_at_ = copies_asked_ = 0;
}

void Mover::drop(PortContext& port) {
  MoveQueue& moves = *port.moves;
  turns_.remove(moves);
  moves.end_urgent(requests_.slab());
  while (!moves.empty()) {
    const Slot slot = moves.front().token;
    moves.pop();
    prepare(slot);
  }
}

bool Mover::knows(const media::Media& media) {
  end_lines();
  const auto is_of = [&](Slot slot) {
    return requests_.hot(slot).cold != kNoSlot && requests_.cold(slot).ns != nullptr &&
           requests_.cold(slot).ns->media == &media;
  };
  bool found = std::any_of(redo_.begin(), redo_.end(), is_of);
  for (std::size_t i = copies_at_; i < copies_.size() && !found; ++i) found = is_of(copies_[i].token);
  for (const MoveQueue* const moves : turns_) {
    for (std::uint32_t i = 0; i < moves->size() && !found; ++i) {
      const command_set::Namespace* const ns = moves->plain(i).ns;
      found = ns != nullptr ? ns->media == &media : is_of(moves->slot(i));
    }
  }
  return found;
}

}  // namespace flashmob::engine
