// Moving the data of plain transfers: one page of host memory and one piece of media each.
#include "engine/worker.h"

namespace flashmob::engine {

// Has the oldest copies made, in short loops of few instructions each: while copies wait for memory, only so many of
// them overlap as fit into the CPU's window.
void Worker::move_plain(SliceBudget& left) {
  if (copies_in_flight_ + kMaxSliceCopies > CopyEngine::kMaxUnpolled) [[unlikely]] {
    collect_copies();
    if (copies_in_flight_ + kMaxSliceCopies > CopyEngine::kMaxUnpolled) return left.spend();
  }
  CopyRun run = moves_.run();
  const std::span<const Copy> pending = run.copies;
  std::uint32_t count = 0, bytes = 0;
  while (count < pending.size() && count < left.copies && bytes < left.bytes && pending[count].bytes != 0)
    bytes += pending[count++].bytes;
  left.take(count, bytes);
  if (copy_engine_->submit(run, count, outgrows_cache(pending[0].bytes))) [[likely]] {
    plain_run_done(pending.first(count));
  } else {
    copies_in_flight_ += count;
    collect_copies();
  }
  moves_.set_asked(run.asked);
  moves_.pop(count);
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
  moves_.for_each_plain([this](Copy& copy, const PlainTransfer&) {
    if ((hot_[copy.token].flags & kZombie) != 0) copy.bytes = 0;
  });
}

// Host memory has changed: where do the copies of this controller go to now?
void Worker::refresh_moves(PortContext& port) {
  moves_.for_each_plain([this, &port](Copy& copy, const PlainTransfer& plain) {
    HotRequest& hot = hot_[copy.token];
    if (sqs_[hot.sq].cq->port != &port) return;
    std::byte* const host = port.reader.translate(plain.iova(), copy.bytes, !plain.is_write());
    if (host == nullptr) return fail_plain(copy, plain, hot);
    if (plain.is_write())
      copy.from = host;
    else
      copy.to = host;
  });
}

// Its host memory was unmapped after it had been fetched.
void Worker::fail_plain(Copy& copy, const PlainTransfer& plain, HotRequest& hot) {
  const Sq& sq = *sqs_[hot.sq].sq;
  const std::byte* const media = plain.is_write() ? copy.to : copy.from;
  const auto lba = static_cast<std::uint64_t>(media - plain.ns->base) >> plain.ns->lba_shift;
  hot.status = sq.controller->record_error(sq.sqid, hot.cid, nvme::Status::data_transfer_error, plain.ns->nsid, lba);
  hot.flags = static_cast<std::uint8_t>(hot.flags | kFailed);
  copy.bytes = 0;
}

}  // namespace flashmob::engine
