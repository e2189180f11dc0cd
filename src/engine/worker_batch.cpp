// The hot end of the engine: taking in a batch of plain transfers, and completing a batch of requests that are due.
#include <algorithm>
#include <utility>

#include "engine/worker.h"
#include "nvme/io_command.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace flashmob::engine {
namespace {

// How many requests before its turn the queues of a request are fetched.
constexpr std::uint32_t kQueuesAhead = 3;
// How far ahead of the tail the completion ring is fetched for writing.
constexpr std::uint32_t kPrefetchEntries = 32;
constexpr std::uint32_t kLongRun = 8;

// Only where a worker has no more queues than this are a batch's requests brought together by queue; so many pairs of
// neighbours tell whether they are already.
constexpr std::size_t kMaxGroups = 64;
constexpr std::uint32_t kGroupingLooks = 8;

// `low` is the command's result, dwords 0 and 1; `high` holds SQHD, SQID, CID and status with phase, as dwords 2 and 3
// of the entry.
inline void write_entry(nvme::Cqe* to, std::uint64_t low, std::uint64_t high) {
#if defined(__AVX__) && !FLASHMOB_TSAN
  // Aligned 16-byte stores are single-copy atomic on every CPU with AVX: the host sees the whole entry or the old one,
  // and x86 keeps it behind the data stored before; the compiler must not move those past it either.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  _mm_store_si128(reinterpret_cast<__m128i*>(to),
                  _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low)));
#else
  auto* out = reinterpret_cast<std::uint32_t*>(to);
  out[0] = static_cast<std::uint32_t>(low);
  out[1] = static_cast<std::uint32_t>(low >> 32);
  out[2] = static_cast<std::uint32_t>(high);
  // The phase tag is in the last dword: released after everything else, so a host that sees it sees the entry.
  std::atomic_ref<std::uint32_t>(out[3]).store(static_cast<std::uint32_t>(high >> 32), std::memory_order_release);
#endif
}

// Copies that wait are asked for by the batch they come with unless so many before them have been.
constexpr std::uint32_t kAskEarly = 32;

constexpr std::uint32_t kEntriesPerLine = kCacheLineBytes / sizeof(nvme::Cqe);

// Fills a line of the ring, from the upper halves of its entries. In one store where the CPU has one that wide: the
// host polls this line, and would take it away between narrower stores. Each entry still appears whole, because no CPU
// splits an aligned store into pieces of less than 16 bytes.
inline void write_line(nvme::Cqe* to, std::uint64_t first, std::uint64_t second, std::uint64_t third,
                       std::uint64_t fourth) {
#if defined(__AVX512F__) && !FLASHMOB_TSAN
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const auto word = [](std::uint64_t high) { return static_cast<long long>(high); };
  _mm512_store_si512(to, _mm512_set_epi64(word(fourth), 0, word(third), 0, word(second), 0, word(first), 0));
#else
  write_entry(to, 0, first);
  write_entry(to + 1, 0, second);
  write_entry(to + 2, 0, third);
  write_entry(to + 3, 0, fourth);
#endif
}

// Dwords 2 and 3 of every successful entry of a queue until its phase changes, without the CID.
inline std::uint64_t entry_base(const Sq& sq, const Cq& cq) {
  return (sq.head.load(std::memory_order_relaxed) & 0xFFFFu) | (std::uint64_t{sq.sqid} << 16) |
         (std::uint64_t{cq.phase} << 48);
}

inline std::uint64_t entry_of(std::uint64_t base, const HotRequest& hot) {
  return base | (std::uint64_t{hot.cid} << 32) | (std::uint64_t{hot.status} << 49);
}

// The host read these lines last: ask for the line written eight lines from now, or its ownership would be waited for
// in the store buffer, a cross-core round trip for every four entries.
inline void prefetch_ahead(const Cq& cq, std::uint32_t tail) {
  if ((tail & 3) == 0 && tail + kPrefetchEntries < cq.entries)
    __builtin_prefetch(cq.ring + tail + kPrefetchEntries, 1, 3);
}

// A transfer within one memory page by PRP, with none of dword 12's options: Move describes all of it.
inline bool is_plain(const nvme::Sqe& sqe, std::uint32_t bytes, std::uint32_t page_bytes) {
  const std::uint64_t offset = sqe.prp1 & (page_bytes - 1);
  return sqe.flags == 0 && sqe.cdw12 <= 0xFFFFu && bytes <= page_bytes - offset && (offset & 3) == 0;
}

// Of Reads and Writes.
inline bool writes(const nvme::Sqe& sqe) { return sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::write); }

}  // namespace

void Worker::admit(const Sq& sq, const command_set::Namespace& ns, const nvme::Sqe* sqes, std::span<const Slot> slots,
                   const std::uint64_t* targets_ns, std::uint64_t fetched_ns, bool whole) {
  HotRequest* const hot = hot_;
  const std::uint16_t index = sq.index;
  const bool move_data = config_.move_data;
  const std::uint8_t flags = kLive | kTransfer | kTimed | (move_data ? 0 : kDataDone);
  if (!move_data && !threaded_) [[likely]] {
    for (std::size_t i = 0; i < slots.size(); ++i)
      hot[slots[i]].fill(targets_ns[i], fetched_ns, index, sqes[i].cid, flags, kNoSlot, writes(sqes[i]));
    wheel_.insert_batch(slots.data(), targets_ns, slots.size());
    return;
  }
  auto& home = const_cast<command_set::Namespace&>(ns);
  if (threaded_) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      hot[slots[i]].fill(targets_ns[i], fetched_ns, index, sqes[i].cid, flags, kNoSlot, writes(sqes[i]));
      if (move_data) fill_cold(slots[i], sqes[i], home);
      inbox_.push(slots[i]);
    }
    return;
  }
  // Due already (no timing model): completes as soon as its data has been moved.
  std::size_t due = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::uint8_t at_once = targets_ns[i] <= fetched_ns ? kDue : 0;
    hot[slots[i]].fill(targets_ns[i], fetched_ns, index, sqes[i].cid, static_cast<std::uint8_t>(flags | at_once),
                       kNoSlot, writes(sqes[i]));
    due += at_once != 0;
  }
  queue_moves(sq, home, sqes, slots, whole);
  current_stats_->late_by_copy += due;
  if (due == 0) {
    wheel_.insert_batch(slots.data(), targets_ns, slots.size());
  } else if (due != slots.size()) {
    for (std::size_t i = 0; i < slots.size(); ++i)
      if ((hot[slots[i]].flags & kDue) == 0) wheel_.insert(slots[i], targets_ns[i]);
  }
}

// Queues the copies of a batch of transfers; each gets a ColdRequest if `whole`, else only those that need it.
void Worker::queue_moves(const Sq& sq, command_set::Namespace& ns, const nvme::Sqe* sqes, std::span<const Slot> slots,
                         bool whole) {
  const std::uint32_t page_bytes = sq.controller->io_limits().data_pointer.page_bytes;
  note_pages(ns);
  std::byte* const base = ns.base;
  const std::uint8_t lba_shift = ns.lba_shift;
  const bool plain_reads = !whole && base != nullptr;
  const bool plain_writes =
      plain_reads && sq.controller->write_cache_enabled() && !ns.has_marks() && ns.direct_stores && locks_ == nullptr;
  PortContext& port = *sqs_[sq.index].cq->port;
  memory::AddressSpace::Reader& reader = port.reader;
  memory::Region region = reader.last_match();
  MoveQueue& queue = *port.moves;
  take_turns(queue);
  MoveQueue::Writer moves = queue.start(static_cast<std::uint32_t>(slots.size()));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const nvme::Sqe& sqe = sqes[i];
    const bool is_write = writes(sqe);
    const std::uint32_t bytes = nvme::block_count(sqe) << lba_shift;
    const std::uint64_t iova = sqe.prp1;
    std::byte* host = nullptr;
    if ((is_write ? plain_writes : plain_reads) && is_plain(sqe, bytes, page_bytes)) [[likely]] {
      host = region.translate(iova, bytes, !is_write);
      if (host == nullptr) [[unlikely]] {
        host = reader.translate(iova, bytes, !is_write);
        region = reader.last_match();
      }
    }
    if (host == nullptr) [[unlikely]] {
      fill_cold(slots[i], sqe, ns);
      moves.push_other(slots[i]);
      continue;
    }
    std::byte* const media = base + (nvme::starting_lba(sqe) << lba_shift);
    moves.push({is_write ? media : host, is_write ? host : media, bytes, slots[i]},
               PlainTransfer::of(iova, is_write, &ns));
  }
  queue.finish(moves);
  // Where few copies wait, nothing else would be done between asking for these and making them. In virtual time, where
  // no completion can be late by that, small batches are the rule and prefetches would only queue up.
  if (queue.asked() < kAskEarly && !time_.clock.is_virtual()) {
    CopyRun run = queue.run();
    copy_engine_->ask(run);
    queue.set_asked(run.asked);
  }
}

void Worker::fill_cold(Slot slot, const nvme::Sqe& sqe, command_set::Namespace& ns) {
  ColdRequest& cold = slab_.alloc_cold(slot);
  cold.sqe = sqe;
  cold.ns = &ns;
  cold.result = 0;
  cold.bytes_moved = 0;
  cold.media_offset = nvme::starting_lba(sqe) << ns.lba_shift;
  cold.bytes = nvme::block_count(sqe) << ns.lba_shift;
  cold.is_write = writes(sqe);
  const bool write_through = cold.is_write && !sqs_[hot_[slot].sq].sq->controller->write_cache_enabled();
  cold.force_unit_access = (sqe.cdw12 & nvme::kIoForceUnitAccess) != 0 || write_through;
  cold.is_durable = false;
}

// Writes the entry of one request; there is room.
void Worker::put_entry(Cq& cq, const Sq& sq, const HotRequest& hot, std::uint64_t result) {
  if (cq.ring == nullptr) [[unlikely]]
    return;  // its memory was unmapped: nobody can see the entry
  write_entry(cq.ring + cq.tail, result, entry_of(entry_base(sq, cq), hot));
  prefetch_ahead(cq, cq.tail);
  advance_tail(cq, 1);
}

// `entries` have been written, none of them beyond the ring's end.
inline void Worker::advance_tail(Cq& cq, std::uint32_t entries) {
  cq.free -= entries;
  cq.tail += entries;
  if (cq.tail == cq.entries) [[unlikely]] {
    cq.tail = 0;
    cq.phase ^= 1;
  }
  if (!cq.interrupts_enabled) return;
  cq.coalesced += entries;
  if (!cq.dirty) {
    cq.dirty = true;
    dirty_.push_back(&cq);
  }
}

// Completes the plain requests at the head of due_[at..count) that belong to one submission queue and fit before its
// completion ring's end; returns how many, 0 if the first one is not plain.
inline std::uint32_t Worker::finish_run(std::uint32_t at, std::uint32_t count, RunSums& sums) {
  HotRequest* const hot_array = hot_;
  const HotRequest& head = hot_array[due_[at]];
  // A zombie's queues may be gone.
  if ((head.flags & (kDataDone | kZombie)) != kDataDone) [[unlikely]]
    return 0;
  const std::uint16_t index = head.sq;
  const SqRef ref = sqs_[index];
  Cq& cq = *ref.cq;
  if (cq.overflow_first != kNoSlot || ref.sq->admin || cq.ring == nullptr) [[unlikely]]
    return 0;
  const std::uint32_t room = std::min(std::min(cq.free, cq.entries - cq.tail), count - at);
  const std::uint64_t base = entry_base(*ref.sq, cq);
  nvme::Cqe* const out = cq.ring;
  const std::uint32_t tail = cq.tail;
  const Slot* const due = due_.data() + at;
  // Whole lines of entries are for long runs: with few requests, each of the loops they take would be mispredicted.
  const bool is_long = room >= kLongRun && hot_array[due[kLongRun - 1]].sq == index;
  if (is_long) {
    // Its reader's hardware prefetcher may have taken back the lines asked for at the end of the last run.
    for (std::uint32_t ahead = 0; ahead < std::min(room, kPrefetchEntries); ahead += 4)
      __builtin_prefetch(out + tail + ahead, 1, 3);
  } else if (tail + kPrefetchEntries < cq.entries) {
    __builtin_prefetch(out + tail + kPrefetchEntries, 1, 3);
  }
  Slot* const released = slab_.release_at();
  std::uint64_t target_sum_ns = 0, fetched_sum_ns = 0, target_min_ns = UINT64_MAX;
  const auto plain = [&](const HotRequest& hot) -> unsigned {
    return hot.sq == index && (hot.flags & (kDataDone | kZombie)) == kDataDone && hot.cold == kNoSlot;
  };
  // Takes the n-th request's share of the sums, gives back its slot, and returns its entry's upper half.
  std::uint32_t n = 0;
  const auto take = [&](HotRequest& hot) {
    target_sum_ns += hot.target_ns;
    fetched_sum_ns += hot.fetched_ns;
    target_min_ns = std::min(target_min_ns, hot.target_ns);
    hot.flags = 0;
    released[n] = due[n];
    ++n;
    return entry_of(base, hot);
  };
  const auto single = [&] {
    if (n == room || plain(hot_array[due[n]]) == 0) return false;
    nvme::Cqe* const to = out + tail + n;
    write_entry(to, 0, take(hot_array[due[n]]));
    return true;
  };
  while (is_long && (tail + n) % kEntriesPerLine != 0 && single()) {
  }
  if (is_long && (tail + n) % kEntriesPerLine == 0) {
    while (n + kEntriesPerLine <= room) {
      HotRequest& a = hot_array[due[n]];
      HotRequest& b = hot_array[due[n + 1]];
      HotRequest& c = hot_array[due[n + 2]];
      HotRequest& d = hot_array[due[n + 3]];
      if ((plain(a) & plain(b) & plain(c) & plain(d)) == 0) [[unlikely]]
        break;
      nvme::Cqe* const to = out + tail + n;
      const std::uint64_t first = take(a), second = take(b), third = take(c);
      write_line(to, first, second, third, take(d));
      if (tail + n + kPrefetchEntries <= cq.entries) __builtin_prefetch(to + kPrefetchEntries, 1, 3);
    }
  }
  while (single()) {
  }
  if (n == 0) return 0;
  slab_.commit_release(n);
  *ref.sq->slots_held -= n;
  advance_tail(cq, n);
  sums.completions += n;
  sums.target_sum_ns += target_sum_ns;
  sums.fetched_sum_ns += fetched_sum_ns;
  sums.target_min_ns = std::min(sums.target_min_ns, target_min_ns);
  return n;
}

// Of due_[from..count), keeps those whose data has been moved and returns how many are in due_ then; the others
// complete when theirs has, or are given back then if they are zombies. A loop without branches, because which they are
// is anybody's guess.
std::uint32_t Worker::leave_unmoved(std::uint32_t from, std::uint32_t count) {
  if (nothing_to_move() && copies_in_flight_ == 0 && syncing_ == 0 && media_requests_ == 0) return count;
  HotRequest* const hot = hot_;
  std::uint32_t moved = from, zombies = 0;
  for (std::uint32_t i = from; i < count; ++i) {
    const Slot slot = due_[i];
    const std::uint8_t flags = hot[slot].flags;
    const bool is_moved = (flags & kDataDone) != 0;
    hot[slot].flags = static_cast<std::uint8_t>(flags | (is_moved ? 0 : kDue));
    due_[moved] = slot;
    moved += is_moved;
    zombies += !is_moved && (flags & kZombie) != 0;
  }
  current_stats_->late_by_copy += count - moved - zombies;
  return moved;
}

// Requests come due in the order of their targets, those of one queue scattered among the others'. Brings each queue's
// together, in their order, where that makes runs long: an entry by itself costs as much as a run's beginning, and a
// line of the ring would go to the host and back between two of its entries.
void Worker::group_by_queue(std::uint32_t count) {
  const std::size_t queues = sqs_.size();
  if (queues > kMaxGroups || count < std::max<std::size_t>(2 * queues, 2 * kGroupingLooks)) return;
  HotRequest* const hot = hot_;
  std::uint32_t changes = 0;
  for (std::uint32_t i = 1; i <= kGroupingLooks; ++i) {
    const std::uint32_t at = (count - 1) * i / kGroupingLooks;
    changes += hot[due_[at]].sq != hot[due_[at - 1]].sq;
  }
  if (changes <= kGroupingLooks / 4) return;
  std::array<std::uint32_t, kMaxGroups> next{};
  for (std::uint32_t i = 0; i < count; ++i) ++next[hot[due_[i]].sq];
  std::uint32_t before = 0;
  for (std::size_t queue = 0; queue < queues; ++queue) before += std::exchange(next[queue], before);
  std::array<Slot, kDueBatch> grouped;
  for (std::uint32_t i = 0; i < count; ++i) grouped[next[hot[due_[i]].sq]++] = due_[i];
  std::copy_n(grouped.begin(), count, due_.begin());
}

// Completes a batch of requests that are due. Lateness counts to a reading of the clock after the last entry has become
// visible. No request is released before its target, so sums over the batch give the mean lateness, and the earliest
// target the largest.
void Worker::finish_batch(std::uint32_t count) {
  const std::uint32_t samples = choose_samples(count);
  RunSums sums;
  for (std::uint32_t at = 0; at < count;) {
    // With many queues runs are short, and each would begin by waiting for its two queues.
    if (at + kQueuesAhead < count) prefetch_queues(hot_[due_[at + kQueuesAhead]]);
    const std::uint32_t run = threaded_ ? 0 : finish_run(at, count, sums);
    if (run == 0) [[unlikely]]
      on_target(due_[at++]);
    at += run;
  }
  // Read once per batch, so that lateness and gaps are told to well under a microsecond.
  const std::uint64_t now_ns = time_.refresh();
  enter_samples(samples, count > kSampleAbove ? kSampleEvery : 1);
  record_finished();
  if (sums.completions == 0) return;
  FidelityStats& stats = *current_stats_;
  stats.completions += sums.completions;
  stats.target_sum_ns += sums.target_sum_ns - sums.fetched_sum_ns;
  const std::uint64_t lateness_sum_ns = sums.completions * now_ns - sums.target_sum_ns;
  stats.lateness_sum_ns += lateness_sum_ns;
  total_.completions += sums.completions;
  total_.lateness_sum_ns += lateness_sum_ns;
  stats.lateness_max_ns = std::max(stats.lateness_max_ns, now_ns - sums.target_min_ns);
}

void Worker::prefetch_queues(const HotRequest& hot) const {
  const SqRef& ref = sqs_[hot.sq];
  __builtin_prefetch(ref.sq);
  __builtin_prefetch(ref.cq);
}

// Notes the times of every kSampleEvery-th request of a large batch, of every one of a small batch, before their slots
// are given back; returns how many. Those that finish() will record are left to it.
std::uint32_t Worker::choose_samples(std::uint32_t count) {
  static_assert(kDueBatch / kSampleEvery + 1 <= kSampleAbove);
  const std::uint32_t every = count > kSampleAbove ? kSampleEvery : 1;
  std::uint32_t at = sample_countdown_ < every ? sample_countdown_ : 0;
  std::uint32_t samples = 0;
  for (; at < count; at += every) {
    const HotRequest& hot = hot_[due_[at]];
    if (threaded_ || (hot.flags & (kDataDone | kZombie)) != kDataDone || hot.cold != kNoSlot || sqs_[hot.sq].sq->admin)
      continue;
    samples_[samples++] = {hot.target_ns, hot.fetched_ns, (hot.status & kIsWrite) != 0};
  }
  sample_countdown_ = at - count;
  return samples;
}

// Enters the samples into the histograms, as of the time last read.
void Worker::enter_samples(std::uint32_t samples, std::uint32_t weight) {
  const std::uint64_t gap_end_ns = time_.gaps.gap_end_ns();
  FidelityStats& stats = *current_stats_;
  for (std::uint32_t i = 0; i < samples; ++i) {
    const Sample& sample = samples_[i];
    enter_sample(stats, sample, time_.now_ns, time_.now_ns - sample.target_ns, sample.target_ns < gap_end_ns, weight);
  }
}

void Worker::enter_sample(FidelityStats& stats, const Sample& sample, std::uint64_t now_ns, std::uint64_t lateness_ns,
                          bool gap_hit, std::uint32_t weight) {
  const std::uint64_t target_ns = sample.target_ns - sample.fetched_ns;
  stats.target_ns.record(target_ns, weight);
  if (sample.is_write) stats.write_target_ns.record(target_ns, weight);
  stats.processing_ns.record(now_ns - sample.fetched_ns, weight);
  // A gap that ended after the target held this request back.
  (gap_hit ? stats.lateness_gap_ns : stats.lateness_ns).record(lateness_ns, weight);
}

}  // namespace flashmob::engine
