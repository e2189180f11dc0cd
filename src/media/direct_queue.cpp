#include "media/direct_queue.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "media/mapped_media.h"

namespace flashmob::media {
namespace {

constexpr std::uint64_t kBlockBytes = BlockCache::kBlockBytes;

}  // namespace

struct DirectQueue::Work : Transfer {
  std::byte* buffer;
  std::uint64_t at;     // what is moved to or from the buffer: aligned, and all of offset and bytes lies in it
  std::uint32_t span;
  std::uint32_t moved;  // of `span`
  std::uint8_t of_class;
  bool is_writing;      // the store is: else it reads
  // Of zeroes: what is zero already ends at `zeroed_to`; of what the buffer holds, so many bytes more are to be.
  std::uint64_t zeroed_to;
  std::uint32_t piece;
  bool may_punch;       // the store has not refused to give space back
  bool is_punching;

  std::uint64_t first_block() const { return offset / kBlockBytes; }
  std::uint64_t blocks() const { return (offset + bytes - 1) / kBlockBytes - first_block() + 1; }
};

std::unique_ptr<DirectQueue> DirectQueue::make(BlockStore& store, BlockLocks& locks, BlockCache& cache) {
  std::unique_ptr<DirectQueue> queue(new DirectQueue(store, locks, cache));
  return queue->take_memory() ? std::move(queue) : nullptr;
}

DirectQueue::DirectQueue(BlockStore& store, BlockLocks& locks, BlockCache& cache)
    : store_(store), locks_(locks), cache_(cache) {}

DirectQueue::~DirectQueue() {
  port_.reset();  // waits for what is under way
  if (memory_ != nullptr) ::munmap(memory_, memory_bytes_);
}

bool DirectQueue::take_memory() {
  port_ = store_.make_port(kTransfers);
  if (port_ == nullptr) return false;
  for (const BufferClass& one : kClasses) memory_bytes_ += std::uint64_t{one.bytes} * one.count;
  void* const memory =
      ::mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  ::madvise(memory, memory_bytes_, MADV_DONTDUMP);
  memory_ = static_cast<std::byte*>(memory);
  works_ = std::make_unique<Work[]>(kTransfers);
  std::byte* buffer = memory_;
  std::uint32_t index = 0;
  for (std::size_t c = 0; c < kClasses.size(); ++c) {
    for (std::uint32_t i = 0; i < kClasses[c].count; ++i, ++index, buffer += kClasses[c].bytes) {
      works_[index].buffer = buffer;
      works_[index].of_class = static_cast<std::uint8_t>(c);
      free_[c].push_back(index);
    }
  }
  return true;
}

DirectQueue::Work* DirectQueue::take_buffer(std::uint32_t bytes) {
  for (std::size_t c = 0; c < kClasses.size(); ++c) {
    if (kClasses[c].bytes < bytes || free_[c].empty()) continue;
    Work& work = works_[free_[c].back()];
    free_[c].pop_back();
    return &work;
  }
  return nullptr;
}

Transfer* DirectQueue::start(std::uint64_t offset, std::uint32_t bytes, bool is_write, bool durable,
                             std::uint32_t token) {
  FLASHMOB_CHECK(bytes != 0 && offset + bytes <= store_.size_bytes());
  // What is read is kept in whole blocks; what is written need only suit the store.
  const std::uint64_t unit = is_write ? store_.alignment() : kBlockBytes;
  const std::uint64_t at = offset / unit * unit;
  const auto span = static_cast<std::uint32_t>((offset + bytes + unit - 1) / unit * unit - at);
  FLASHMOB_CHECK(span <= kClasses.back().bytes);
  Work* const work = take_buffer(span);
  if (work == nullptr || !hold(*work, offset, bytes, is_write, token)) return nullptr;
  work->data = work->buffer + (offset - at);
  work->durable = durable;
  work->at = at;
  work->span = span;
  if (is_write && span == bytes)
    work->state = TransferState::wants_data;
  else if (!is_write && read_cached(*work))
    work->state = TransferState::done;
  else
    submit(*work, false);
  return work;
}

// Gives the buffer back where others have the blocks.
bool DirectQueue::hold(Work& work, std::uint64_t offset, std::uint32_t bytes, bool is_write, std::uint32_t token) {
  work.offset = offset;
  work.bytes = bytes;
  if (!locks_.try_lock(work.first_block(), work.blocks(), is_write)) {
    free_[work.of_class].push_back(static_cast<std::uint32_t>(&work - works_.get()));
    return false;
  }
  ++outstanding_;
  work.token = token;
  work.is_write = is_write;
  work.is_zeroes = work.is_punching = work.durable = false;
  work.result = TransferResult::good;
  return true;
}

Transfer* DirectQueue::start_zeroes(std::uint64_t offset, std::uint32_t bytes, std::uint32_t token) {
  FLASHMOB_CHECK(bytes != 0 && offset + bytes <= store_.size_bytes());
  // What gives no space back is written, in pieces of the buffer's size.
  const std::uint64_t widest = bytes + 2 * kBlockBytes;
  Work* const work = take_buffer(static_cast<std::uint32_t>(std::min<std::uint64_t>(widest, kClasses[1].bytes)));
  if (work == nullptr || !hold(*work, offset, bytes, true, token)) return nullptr;
  work->data = nullptr;
  work->is_zeroes = true;
  work->may_punch = true;
  work->zeroed_to = offset;
  // Before the store changes: should it do so in part only, the cache holds nothing that is wrong.
  cache_.drop(work->first_block(), work->blocks());
  zero_next(*work);
  return work;
}

// As DirectMedia::deallocate(): the space of whole pages is given back where there are many, the rest is written.
void DirectQueue::zero_next(Work& work) {
  const std::uint64_t end = work.offset + work.bytes;
  if (work.zeroed_to == end) {
    work.state = TransferState::done;
    return;
  }
  const std::uint64_t first = round_up(work.zeroed_to, kBlockBytes);
  const std::uint64_t last = end / kBlockBytes * kBlockBytes;
  const bool punches = work.may_punch && first < last && last - first >= kReleaseThresholdBytes;
  if (punches && first == work.zeroed_to) {
    work.is_punching = true;
    work.state = TransferState::pending;
    ++pending_;
    port_->submit({first, nullptr, static_cast<std::uint32_t>(last - first),
                   static_cast<std::uint32_t>(&work - works_.get()), true, false});
    return;
  }
  const auto lead = static_cast<std::uint32_t>(work.zeroed_to % store_.alignment());
  const std::uint64_t wanted = (punches ? first : end) - work.zeroed_to;
  work.piece = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, kClasses[work.of_class].bytes - lead));
  work.at = work.zeroed_to - lead;
  work.span = static_cast<std::uint32_t>(round_up(lead + work.piece, store_.alignment()));
  if (work.span == work.piece) std::memset(work.buffer, 0, work.span);
  submit(work, work.span == work.piece);
}

// The store has read what lies around a piece, or written it.
void DirectQueue::zero_piece_done(Work& work) {
  if (work.result != TransferResult::good) {
    work.state = TransferState::done;
    return;
  }
  if (!work.is_writing) {
    std::memset(work.buffer + (work.zeroed_to - work.at), 0, work.piece);
    return submit(work, true);
  }
  work.zeroed_to += work.piece;
  zero_next(work);
}

void DirectQueue::punched(Work& work, std::int32_t result) {
  work.is_punching = false;
  const bool is_called_off = result == -ECANCELED || result == -EINTR || result == -EAGAIN;
  if (result == 0)
    work.zeroed_to = (work.offset + work.bytes) / kBlockBytes * kBlockBytes;
  else if (!is_called_off)
    work.may_punch = false;
  zero_next(work);
}

bool DirectQueue::read_cached(Work& work) {
  for (std::uint64_t i = 0; i < work.blocks(); ++i)
    if (!cache_.read(work.first_block() + i, work.buffer + i * kBlockBytes)) return false;
  return true;
}

void DirectQueue::write(Transfer& transfer) {
  FLASHMOB_CHECK(transfer.state == TransferState::wants_data);
  submit(static_cast<Work&>(transfer), true);
}

void DirectQueue::submit(Work& work, bool is_write) {
  work.moved = 0;
  work.is_writing = is_write;
  work.state = TransferState::pending;
  ++pending_;
  port_->submit(
      {work.at, work.buffer, work.span, static_cast<std::uint32_t>(&work - works_.get()), is_write, work.durable});
}

// The store has moved something, or failed.
void DirectQueue::advance(Work& work, std::int32_t result) {
  --pending_;
  if (work.is_punching) return punched(work, result);
  if (result > 0) work.moved += static_cast<std::uint32_t>(result);
  // The kernel calls off what a thread has begun when that thread ends.
  const bool is_called_off = result == -ECANCELED || result == -EINTR || result == -EAGAIN;
  const bool goes_on = result > 0 && work.moved < work.span && work.moved % store_.alignment() == 0;
  if (is_called_off || goes_on) {
    ++pending_;
    port_->submit({work.at + work.moved, work.buffer + work.moved, work.span - work.moved,
                   static_cast<std::uint32_t>(&work - works_.get()), work.is_writing, work.durable});
    port_->kick();
    return;
  }
  if (work.moved < work.span) {
    const bool is_full = result == -ENOSPC || result == -EDQUOT || result == -EFBIG;
    work.result = work.is_writing && is_full ? TransferResult::disk_full : TransferResult::failed;
  }
  store_done(work);
}

void DirectQueue::store_done(Work& work) {
  if (work.is_zeroes) return zero_piece_done(work);
  const bool is_good = work.result == TransferResult::good;
  if (work.is_write && !work.is_writing && is_good) {
    work.state = TransferState::wants_data;
    return;
  }
  work.state = TransferState::done;
  if (!is_good) {
    if (work.is_writing) cache_.drop(work.first_block(), work.blocks());  // part of it may have been written
    return;
  }
  for (std::uint32_t done = 0; done < work.span;) {
    const std::uint64_t at = work.at + done;
    const auto in_block = static_cast<std::uint32_t>(at % kBlockBytes);
    const std::uint32_t bytes = std::min(work.span - done, static_cast<std::uint32_t>(kBlockBytes) - in_block);
    if (work.is_write)
      cache_.patch(at / kBlockBytes, in_block, work.buffer + done, bytes);
    else
      cache_.fill(at / kBlockBytes, work.buffer + done);
    done += bytes;
  }
}

Transfer* DirectQueue::poll() {
  for (;;) {
    if (done_at_ == done_count_) {
      done_at_ = 0;
      done_count_ = pending_ == 0 ? 0 : port_->poll(done_);
      if (done_count_ == 0) return nullptr;
    }
    const BlockDone done = done_[done_at_++];
    Work& work = works_[done.token];
    advance(work, done.result);
    if (work.state != TransferState::pending) return &work;
  }
}

void DirectQueue::finish(Transfer& transfer) {
  auto& work = static_cast<Work&>(transfer);
  FLASHMOB_CHECK(work.state != TransferState::pending);
  locks_.unlock(work.first_block(), work.blocks(), work.is_write);
  free_[work.of_class].push_back(static_cast<std::uint32_t>(&work - works_.get()));
  --outstanding_;
}

}  // namespace flashmob::media
