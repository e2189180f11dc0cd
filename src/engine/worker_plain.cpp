// Moving the data of plain transfers: one page of host memory and one piece of media each.
#include <algorithm>
#include <array>

#include "engine/worker.h"

namespace flashmob::engine {
namespace {

// Transfers that the copy engine is told of ahead of their slice, for prefetching.
constexpr std::uint32_t kKnownCopies = 64;
constexpr std::uint32_t kKnownBytes = 32 * 1024;
// Lines asked for while a slice is gathered. They arrive while the rest is still being gathered, instead of while
// copies wait for them.
constexpr std::uint32_t kGatherBytes = 4 * kCacheLineBytes;
void fetch_beginning(const Move& move) {
  const std::uint32_t bytes = std::min(move.size(), kGatherBytes);
  for (std::uint32_t at = 0; at < bytes; at += kCacheLineBytes) __builtin_prefetch(move.media + at, 0, 2);
}

}  // namespace

// Gathers copies, has them made, and notes them as done, in three short loops instead of one long one: while copies
// wait for memory, only so many of them overlap as fit into the CPU's window of instructions.
void Worker::move_plain(SliceBudget& left) {
  if (copies_in_flight_ + kSliceCopies > CopyEngine::kMaxUnpolled) [[unlikely]] {
    collect_copies();
    if (copies_in_flight_ + kSliceCopies > CopyEngine::kMaxUnpolled) return left.spend();
  }
  std::array<Copy, kSliceCopies + kKnownCopies> copies;
  std::uint32_t count = 0;
  for (; !left.is_spent() && !moves_.empty() && moves_.front().is_plain(); moves_.pop()) {
    const Move& move = moves_.front();
    fetch_beginning(move);
    HotRequest& hot = hot_[move.slot];
    if ((hot.flags & kZombie) != 0) [[unlikely]] {
      drop_plain(move.slot, hot);
      continue;
    }
    const std::uint32_t bytes = move.size();
    std::byte* const host = sqs_[hot.sq].cq->port->reader.translate(move.iova, bytes, !move.is_write());
    if (host == nullptr) [[unlikely]] {
      fail_plain(move, hot);
      continue;
    }
    copies[count++] =
        move.is_write() ? Copy{move.media, host, bytes, move.slot} : Copy{host, move.media, bytes, move.slot};
    left.take(1, bytes);
  }
  if (count == 0) return;
  const std::uint32_t ahead = std::min({kKnownCopies, kKnownBytes / copies[0].bytes, moves_.size()});
  for (std::uint32_t i = 0; i < ahead; ++i) {
    const Move& next = moves_.at(i);
    copies[count + i] = {nullptr, next.media, next.size(), next.slot};
  }
  start_copies({copies.data(), count + ahead}, count);
}

void Worker::plain_done(Slot slot, HotRequest& hot) {
  hot.flags = static_cast<std::uint8_t>(hot.flags | kDataDone);
  if ((hot.flags & kDue) == 0) return;
  due_[due_count_++] = slot;
  if (due_count_ == kDueBatch) finish_moved();
}

// An aborted request, or one whose queue is gone. The wheel gives it back if it still holds it.
void Worker::drop_plain(Slot slot, HotRequest& hot) {
  hot.flags = static_cast<std::uint8_t>(hot.flags | kDataDone);
  if ((hot.flags & kDue) != 0) give_back(slot);
}

// Its host memory was unmapped after it had been fetched, or never mapped.
void Worker::fail_plain(const Move& move, HotRequest& hot) {
  const Sq& sq = *sqs_[hot.sq].sq;
  const auto lba = static_cast<std::uint64_t>(move.media - move.ns->base) >> move.ns->lba_shift;
  hot.status = sq.controller->record_error(sq.sqid, hot.cid, nvme::Status::data_transfer_error, move.ns->nsid, lba);
  hot.flags = static_cast<std::uint8_t>(hot.flags | kFailed);
  plain_done(move.slot, hot);
}

}  // namespace flashmob::engine
