#include "engine/dsa_copy_engine.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"

namespace flashmob::engine::dsa {
namespace {

// A device that returns so many batches with errors, and none without between them, is of no use.
constexpr std::uint32_t kGiveUpAfter = 8;

std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

// The byte that the device writes last.
std::uint8_t look(Completion& record) {
  return std::atomic_ref<std::uint8_t>(record.status).load(std::memory_order_acquire);
}

Status status_of(std::uint8_t byte) { return static_cast<Status>(byte & kStatusMask); }

// Whether so much time has passed. `since_ns` may have been read on another core, whose clock is a little ahead.
bool has_passed(std::uint64_t limit_ns, std::uint64_t since_ns, std::uint64_t now_ns) {
  return now_ns > since_ns && now_ns - since_ns >= limit_ns;
}

}  // namespace

// Everything about one batch, allocated once. A batch of one copy is that copy's descriptor without the list, because
// the device refuses lists of one.
struct DsaCopyEngine::Batch {
  std::array<Descriptor, kMaxBatchCopies> members;
  std::array<Completion, kMaxBatchCopies> member_records;  // written only for members that are not successful
  Descriptor head;
  alignas(64) Completion record;
  alignas(64) std::array<Copy, kMaxBatchCopies> copies;
  std::uint32_t count = 0;
  std::uint64_t since_ns = 0;  // first copy added; once sealed: sealed; once issued: issued
};

inline DsaCopyEngine::Batch& DsaCopyEngine::batch(std::uint64_t number) { return batches_[number % kMaxBatches]; }

DsaCopyEngine::DsaCopyEngine(std::unique_ptr<WorkQueue> queue, const Options& options)
    : options_(options),
      queue_(std::move(queue)),
      cpu_copy_(copy_function("auto", false)),
      cpu_(make_cpu_copy_engine("auto")),
      batches_(std::make_unique<Batch[]>(kMaxBatches)) {
  const QueueInfo& info = queue_->info();
  options_.batch_copies = std::clamp(options_.batch_copies, 1u, kMaxBatchCopies);
  if (options_.batch_copies > info.max_batch) options_.batch_copies = std::max(1u, info.max_batch);
  options_.batches = std::clamp(std::min(options_.batches, info.size), 1u, kMaxBatches);
}

DsaCopyEngine::~DsaCopyEngine() {
  if (!is_idle()) queue_->close();
}

std::string DsaCopyEngine::describe() const {
  return "dsa/" + queue_->info().name + (queue_->info().shared ? " shared" : " dedicated");
}

bool DsaCopyEngine::submit(CopyRun& run, std::size_t count, bool streaming) {
  if (given_up_) [[unlikely]] {
    counters_.fallbacks += count;
    return cpu_->submit(run, count, streaming);
  }
  unpolled_ += count;
  FLASHMOB_CHECK(unpolled_ <= kMaxUnpolled);
  const std::uint64_t now_ns = clock_.now_ns();
  for (std::size_t i = 0; i < count; ++i) add(run.copies[i], streaming, now_ns);
  // Nothing to wait for that could keep the device busy meanwhile.
  if (oldest_ == sealed_) seal(now_ns);
  issue_sealed(now_ns);
  return false;
}

void DsaCopyEngine::add(const Copy& copy, bool streaming, std::uint64_t now_ns) {
  // The device has all the work that it takes, or does not take copies of that size: the CPU helps.
  if (is_full() || copy.bytes > queue_->info().max_transfer_bytes || copy.bytes == 0) [[unlikely]] {
    ++counters_.refusals;
    copy_by_cpu(copy);
    return hand_back(copy.token);
  }
  Batch& one = batch(sealed_);
  if (one.count == 0) one.since_ns = now_ns;
  Descriptor& member = one.members[one.count];
  member.set(Opcode::memory_move, kFlagRecordAddressValid | (streaming ? 0 : kFlagCacheControl));
  member.record = address(&one.member_records[one.count]);
  member.source = address(copy.from);
  member.destination = address(copy.to);
  member.size = copy.bytes;
  one.copies[one.count] = copy;
  if (++one.count == options_.batch_copies) seal(now_ns);
}

// Closes the batch that is being filled; issue_sealed() hands it over.
void DsaCopyEngine::seal(std::uint64_t now_ns) {
  if (is_full() || batch(sealed_).count == 0) return;
  batch(sealed_++).since_ns = now_ns;
}

void DsaCopyEngine::issue_sealed(std::uint64_t now_ns) {
  while (issued_ != sealed_ && issued_ - oldest_ < options_.batches) {
    if (issue(batch(issued_), now_ns)) {
      ++issued_;
      continue;
    }
    Batch& refused = batch(issued_);
    if (!has_passed(options_.refusal_timeout_ns, refused.since_ns, now_ns)) return;
    // Others fill a shared queue. Nothing of the batch is the device's, so it can be taken back.
    counters_.refusals += refused.count;
    copy_batch_by_cpu(refused);
    // Its number stays a hole that is retired in turn.
    refused.record.status = static_cast<std::uint8_t>(Status::success);
    ++issued_;
  }
}

bool DsaCopyEngine::issue(Batch& one, std::uint64_t now_ns) {
  one.record.status = static_cast<std::uint8_t>(Status::none);
  Descriptor alone;
  if (one.count == 1) {
    alone = one.members[0];
    alone.set(Opcode::memory_move, one.members[0].flags() | kFlagRequestRecord);
    alone.record = address(&one.record);
  } else {
    one.head.set(Opcode::batch, kFlagRecordAddressValid | kFlagRequestRecord);
    one.head.record = address(&one.record);
    one.head.source = address(one.members.data());
    one.head.size = one.count;
  }
  if (!queue_->submit(one.count == 1 ? alone : one.head)) return false;
  one.since_ns = now_ns;
  return true;
}

std::size_t DsaCopyEngine::poll(std::span<std::uint32_t> done) {
  if (oldest_ != sealed_ || batch(sealed_).count != 0) {
    const std::uint64_t now_ns = clock_.now_ns();
    retire(now_ns);
    if (is_idle() || has_passed(options_.issue_timeout_ns, batch(sealed_).since_ns, now_ns)) seal(now_ns);
    if (!given_up_) issue_sealed(now_ns);
  }
  const std::size_t count = std::min<std::size_t>(done.size(), done_count_ - done_taken_);
  for (std::size_t i = 0; i < count; ++i) done[i] = done_[(done_taken_ + i) % done_.size()];
  done_taken_ += count;
  unpolled_ -= count;
  return count;
}

// Takes back batches that are done, oldest first.
void DsaCopyEngine::retire(std::uint64_t now_ns) {
  while (oldest_ != issued_) {
    Batch& one = batch(oldest_);
    if (look(one.record) == static_cast<std::uint8_t>(Status::none)) {
      if (!has_passed(options_.wait_timeout_ns, one.since_ns, now_ns)) return;
      return give_up();
    }
    finish(one);
    ++oldest_;
    if (bad_in_a_row_ == kGiveUpAfter) return give_up();
  }
}

// The device is done with a batch: what it has not copied, the CPU copies.
void DsaCopyEngine::finish(Batch& one) {
  const Status status = status_of(look(one.record));
  bool good = true;
  if (status == Status::success) [[likely]] {
    counters_.offloaded += one.count;
  } else if (one.count == 1) {
    good = finish_copy(one.copies[0], one.record);
  } else if (status == Status::batch_failed) {
    for (std::uint32_t i = 0; i < one.count; ++i) {
      const Status member = status_of(look(one.member_records[i]));
      if (member == Status::none || member == Status::success)
        ++counters_.offloaded;
      else
        good &= finish_copy(one.copies[i], one.member_records[i]);
      one.member_records[i].status = static_cast<std::uint8_t>(Status::none);
    }
  } else {
    // The list itself was refused or could not be read; some members may have been copied, which does not matter.
    (status == Status::batch_page_fault ? counters_.page_faults : counters_.errors) += one.count;
    good = status == Status::batch_page_fault;
    for (std::uint32_t i = 0; i < one.count; ++i) {
      copy_by_cpu(one.copies[i]);
      one.member_records[i].status = static_cast<std::uint8_t>(Status::none);
    }
  }
  bad_in_a_row_ = good ? 0 : bad_in_a_row_ + 1;
  for (std::uint32_t i = 0; i < one.count; ++i) hand_back(one.copies[i].token);
  one.count = 0;
}

// Makes up for what the device has not done of one copy. False if it was an error, not a missing page.
bool DsaCopyEngine::finish_copy(const Copy& copy, const Completion& record) {
  if (status_of(record.status) != Status::page_fault) {
    ++counters_.errors;
    copy_by_cpu(copy);
    return false;
  }
  ++counters_.page_faults;
  // The buffers of our copies never overlap, so a move that began at its end is merely unexpected: all of it again.
  const std::uint32_t made = record.result == 0 && record.completed <= copy.bytes ? record.completed : 0;
  // The CPU's own page fault brings the page in for whoever comes next.
  copy_by_cpu({copy.to + made, copy.from + made, copy.bytes - made, copy.token});
  return true;
}

void DsaCopyEngine::copy_by_cpu(const Copy& copy) {
  cpu_copy_(copy.to, copy.from, copy.bytes);
  ++counters_.fallbacks;
}

// A batch that the device never had: nothing is left of it but its number.
void DsaCopyEngine::copy_batch_by_cpu(Batch& one) {
  for (std::uint32_t i = 0; i < one.count; ++i) {
    copy_by_cpu(one.copies[i]);
    hand_back(one.copies[i].token);
  }
  one.count = 0;
}

// Closes the queue, which ends what is in it, and has the CPU make every copy that the device has not made.
void DsaCopyEngine::give_up() {
  queue_->close();
  given_up_ = true;
  for (; oldest_ != issued_; ++oldest_) {
    Batch& one = batch(oldest_);
    if (look(one.record) != static_cast<std::uint8_t>(Status::none)) {
      finish(one);
    } else {
      counters_.lost += one.count;
      copy_batch_by_cpu(one);
    }
  }
  // What waited for the device, and last the batch that was being filled.
  for (; issued_ != sealed_; ++issued_) copy_batch_by_cpu(batch(issued_));
  copy_batch_by_cpu(batch(sealed_));
  oldest_ = issued_;
}

std::unique_ptr<CopyEngine> make_copy_engine() { return std::make_unique<DsaCopyEngine>(open_queue()); }

}  // namespace flashmob::engine::dsa
