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
  CopyRun run = moves_.run();
  const std::span<const Copy> pending = run.copies;
  std::uint32_t count = 0, bytes = 0;
  while (count < pending.size() && count < left.copies && bytes < left.bytes && pending[count].bytes != 0)
    bytes += pending[count++].bytes;
  left.take(count, bytes);
  bool made = true;
  if (!submit(run, count, outgrows_cache(pending[0].bytes), made)) [[unlikely]]
    move_plain_singly(pending.first(count));
  if (made) [[likely]] {
    plain_run_done(pending.first(count));
  } else {
    copies_in_flight_ += count;
    collect_copies();
  }
  moves_.set_asked(run.asked);
  moves_.pop(count);
}

// As CopyEngine::submit(), which says whether they are `made`. False if a page of media was gone: some are made, one
// perhaps in part.
bool Worker::submit(CopyRun& run, std::size_t count, bool streaming, bool& made) {
  if (pages_may_go_) [[unlikely]]
    return media::try_access([&] { made = copy_engine_->submit(run, count, streaming); });
  made = copy_engine_->submit(run, count, streaming);
  return true;
}

// Makes the oldest copies one by one, so that only those fail whose pages are gone.
void Worker::move_plain_singly(std::span<const Copy> copies) {
  for (std::uint32_t i = 0; i < copies.size(); ++i) {
    const Copy& copy = copies[i];
    if (media::try_access([&] { std::memcpy(copy.to, copy.from, copy.bytes); })) continue;
    const PlainTransfer& plain = moves_.plain(i);
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
