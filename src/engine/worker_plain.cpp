// Moving the data of plain transfers: one page of host memory and one piece of media each.
#include <cstring>

#include "engine/worker.h"
#include "media/page_access.h"

namespace flashmob::engine {

// Has the oldest copies made, in short loops of few instructions each: while copies wait for memory, only so many of
// them overlap as fit into the CPU's window.
void Worker::move_plain(SliceBudget& left) {
  if (copies_in_flight_ + kMaxSliceCopies > CopyEngine::kMaxUnpolled) [[unlikely]] {
    collect_copies();
    if (copies_in_flight_ + kMaxSliceCopies > CopyEngine::kMaxUnpolled) return left.spend();
  }
  MoveQueue& moves = in_turn();
  CopyRun run = moves.run();
  const std::span<const Copy> pending = run.copies;
  std::uint32_t count = 0, bytes = 0;
  while (count < pending.size() && count < left.copies && bytes < left.bytes && pending[count].bytes != 0)
    bytes += pending[count++].bytes;
  if (locks_ != nullptr) count = look_at_sources(pending.first(count));
  left.take(count, bytes);
  bool made = true;
  if (!submit(run, count, outgrows_cache(pending[0].bytes), made)) [[unlikely]]
    move_plain_singly(moves, pending.first(count));
  if (locks_ != nullptr) copy_torn_again(moves, pending.first(count));
  if (made) [[likely]] {
    plain_run_done(pending.first(count));
  } else {
    copies_in_flight_ += count;
    collect_copies();
  }
  moves.set_asked(run.asked);
  moves.pop(count);
  end_turn();
}

// With other threads that copy, plain transfers are Reads. Returns how many, one at least, nobody is writing now.
std::uint32_t Worker::look_at_sources(std::span<const Copy> copies) {
  using command_set::PieceLocks;
  for (std::uint32_t i = 0; i < copies.size(); ++i) {
    const Copy& copy = copies[i];
    const std::uint64_t pieces[] = {PieceLocks::piece_of(copy.from), PieceLocks::piece_of(copy.from + copy.bytes - 1)};
    for (std::size_t k = 0; k < 2; ++k) {
      std::uint64_t look = locks_->look(pieces[k]);
      if (PieceLocks::busy(look)) {
        if (i != 0) return i;
        locks_->lock(pieces[k], 1);  // when we have it, its writer is done
        look = locks_->look(pieces[k]);  // ours: it will not be unchanged
        locks_->unlock(pieces[k], 1);
      }
      looks_[i][k] = look;
    }
  }
  return static_cast<std::uint32_t>(copies.size());
}

// Those that somebody may have written meanwhile.
void Worker::copy_torn_again(const MoveQueue& moves, std::span<const Copy> copies) {
  using command_set::PieceLocks;
  for (std::uint32_t i = 0; i < copies.size(); ++i) {
    const Copy& copy = copies[i];
    const std::uint64_t first = PieceLocks::piece_of(copy.from);
    const std::uint64_t last = PieceLocks::piece_of(copy.from + copy.bytes - 1);
    if (locks_->unchanged(first, looks_[i][0]) && locks_->unchanged(last, looks_[i][1])) [[likely]]
      continue;
    locks_->lock(first, last - first + 1);
    const bool good = media::try_access([&] { std::memcpy(copy.to, copy.from, copy.bytes); });
    locks_->unlock(first, last - first + 1);
    HotRequest& hot = hot_[copy.token];
    if (!good && (hot.flags & kFailed) == 0)
      fail_plain(copy, moves.plain(i), hot, nvme::Status::unrecovered_read_error);
  }
}

// As CopyEngine::submit(), which says whether they are `made`. False if a page of media was gone: some are made, one
// perhaps in part.
bool Worker::submit(CopyRun& run, std::size_t count, bool streaming, bool& made) {
  // A device that met such a page would leave it to the CPU, outside all guard.
  if (pages_may_go_) [[unlikely]]
    return copy_engine_->may_be_cut_short() &&
           media::try_access([&] { made = copy_engine_->submit(run, count, streaming); });
  made = copy_engine_->submit(run, count, streaming);
  return true;
}

// Makes the oldest copies one by one, so that only those fail whose pages are gone.
void Worker::move_plain_singly(const MoveQueue& moves, std::span<const Copy> copies) {
  for (std::uint32_t i = 0; i < copies.size(); ++i) {
    const Copy& copy = copies[i];
    if (media::try_access([&] { std::memcpy(copy.to, copy.from, copy.bytes); })) continue;
    const PlainTransfer& plain = moves.plain(i);
    fail_plain(copy, plain, hot_[copy.token],
               plain.is_write() ? plain.ns->write_failure() : nvme::Status::unrecovered_read_error);
  }
}

// plain_done() of each.
void Worker::plain_run_done(std::span<const Copy> run) {
  static_assert(kMaxSliceCopies <= kDueBatch);
  if (due_count_ + run.size() > kDueBatch) finish_moved();
  HotRequest* const hot = hot_;
  std::uint32_t due_count = due_count_;
  for (const Copy& copy : run) {
    std::uint8_t& flags = hot[copy.token].flags;
    flags = static_cast<std::uint8_t>(flags | kDataDone);
    due_[due_count] = copy.token;
    due_count += (flags & kDue) != 0;
  }
  due_count_ = due_count;
  if (due_count == kDueBatch) finish_moved();
}

void Worker::plain_done(Slot slot, HotRequest& hot) {
  hot.flags = static_cast<std::uint8_t>(hot.flags | kDataDone);
  if ((hot.flags & kDue) == 0) return;
  due_[due_count_++] = slot;
  if (due_count_ == kDueBatch) finish_moved();
}

// Takes the copies of aborted requests, and of those whose queue is gone, out of the way: prepare() gives them back.
void Worker::stop_moves() {
  for (MoveQueue* const moves : turns_)
    moves->for_each_plain([this](Copy& copy, const PlainTransfer&) {
      if ((hot_[copy.token].flags & kZombie) != 0) copy.bytes = 0;
    });
}

// Host memory has changed: where do the copies of this controller go to now?
void Worker::refresh_moves(PortContext& port) {
  port.moves->for_each_plain([this, &port](Copy& copy, const PlainTransfer& plain) {
    HotRequest& hot = hot_[copy.token];
    std::byte* const host = port.reader.translate(plain.iova(), copy.bytes, !plain.is_write());
    if (host == nullptr) {  // unmapped after it had been fetched
      fail_plain(copy, plain, hot, nvme::Status::data_transfer_error);
      copy.bytes = 0;
      return;
    }
    if (plain.is_write())
      copy.from = host;
    else
      copy.to = host;
  });
}

void Worker::fail_plain(const Copy& copy, const PlainTransfer& plain, HotRequest& hot, nvme::Status status) {
  const Sq& sq = *sqs_[hot.sq].sq;
  const std::byte* const media = plain.is_write() ? copy.to : copy.from;
  const auto lba = static_cast<std::uint64_t>(media - plain.ns->base) >> plain.ns->lba_shift;
  hot.status = sq.controller->record_error(sq.sqid, hot.cid, status, plain.ns->nsid, lba);
  hot.flags = static_cast<std::uint8_t>(hot.flags | kFailed);
}

}  // namespace flashmob::engine
