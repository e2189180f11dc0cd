// The hot end of the engine: completing a batch of requests that are due.
#include <algorithm>
#include <utility>

#include "engine/completer.h"
#include "engine/completion_entry.h"

namespace flashmob::engine {
namespace {

// How many requests before its turn the queues of a request are fetched.
constexpr std::uint32_t kQueuesAhead = 3;
constexpr std::uint32_t kLongRun = 8;

// Only where a worker has no more queues than this are a batch's requests brought together by queue; so many pairs of
// neighbours tell whether they are already.
constexpr std::size_t kMaxGroups = 64;
constexpr std::uint32_t kGroupingLooks = 8;

// A zombie's queues may be gone.
bool is_ready(const HotRequest& hot) { return (hot.flags & (kDataDone | kZombie)) == kDataDone; }

}  // namespace

// Completes the plain requests at the head of due_[at..count) that belong to one submission queue and fit before its
// completion ring's end; returns how many, 0 if the first one is not plain.
inline std::uint32_t Completer::finish_run(std::uint32_t at, std::uint32_t count, Account::Sums& sums) {
  HotRequest* const hot_array = hot_;
  const Slot* const due = due_.data() + at;
  if (!is_ready(hot_array[due[0]])) [[unlikely]]
    return 0;
  const std::uint16_t index = hot_array[due[0]].sq;
  const Requests::Queue queue = requests_.queue(index);
  Cq& cq = *queue.cq;
  if (cq.overflow_first != kNoSlot || queue.sq->admin || cq.ring == nullptr) [[unlikely]]
    return 0;
  const std::uint32_t room = std::min(std::min(cq.free, cq.entries - cq.tail), count - at);
  const std::uint64_t base = entry_base(*queue.sq, cq);
  nvme::Cqe* const out = cq.ring;
  const std::uint32_t tail = cq.tail;
  // Whole lines of entries are for long runs: with few requests, each of the loops they take would be mispredicted.
  const bool is_long = room >= kLongRun && hot_array[due[kLongRun - 1]].sq == index;
  if (is_long) {
    // Its reader's hardware prefetcher may have taken back the lines asked for at the end of the last run.
    for (std::uint32_t ahead = 0; ahead < std::min(room, kEntriesAhead); ahead += kEntriesPerLine)
      __builtin_prefetch(out + tail + ahead, 1, 3);
  } else if (tail + kEntriesAhead < cq.entries) {
    __builtin_prefetch(out + tail + kEntriesAhead, 1, 3);
  }
  std::uint64_t target_sum_ns = 0, fetched_sum_ns = 0, target_min_ns = UINT64_MAX;
  const auto plain = [&](const HotRequest& hot) -> unsigned {
    return hot.sq == index && is_ready(hot) && hot.cold == kNoSlot;
  };
  // Takes the n-th request's share of the sums, and returns its entry's upper half.
  std::uint32_t n = 0;
  const auto take = [&](HotRequest& hot) {
    target_sum_ns += hot.target_ns;
    fetched_sum_ns += hot.fetched_ns;
    target_min_ns = std::min(target_min_ns, hot.target_ns);
    hot.flags = 0;
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
      if (tail + n + kEntriesAhead <= cq.entries) __builtin_prefetch(to + kEntriesAhead, 1, 3);
    }
  }
  while (single()) {
  }
  if (n == 0) return 0;
  requests_.give_back_run({due, n}, *queue.sq);
  queues_.advance(cq, n);
  sums.completions += n;
  sums.target_sum_ns += target_sum_ns;
  sums.fetched_sum_ns += fetched_sum_ns;
  sums.target_min_ns = std::min(sums.target_min_ns, target_min_ns);
  return n;
}

// Of due_[from..count), keeps those whose data has been moved and returns how many are in due_ then; the others
// complete when theirs has, or are given back then if they are zombies. A loop without branches, because which they are
// is anybody's guess.
std::uint32_t Completer::leave_unmoved(std::uint32_t from, std::uint32_t count) {
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
  account_.late_by_copy(count - moved - zombies);
  return moved;
}

// Requests come due in the order of their targets, those of one queue scattered among the others'. Brings each queue's
// together, in their order, where that makes runs long: an entry by itself costs as much as a run's beginning, and a
// line of the ring would go to the host and back between two of its entries.
void Completer::group_by_queue(std::uint32_t count) {
  const std::size_t queues = requests_.queue_count();
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
// visible.
void Completer::finish_batch(std::uint32_t count) {
  const std::uint32_t samples = choose_samples(count);
  Account::Sums sums;
  for (std::uint32_t at = 0; at < count;) {
    // With many queues runs are short, and each would begin by waiting for its two queues.
    if (at + kQueuesAhead < count) prefetch_queues(hot_[due_[at + kQueuesAhead]]);
    const std::uint32_t run = finish_run(at, count, sums);
    if (run == 0) [[unlikely]]
      finish_one(due_[at++], sums);
    at += run;
  }
  // Read once per batch, so that lateness and gaps are told to well under a microsecond.
  time_.refresh();
  const std::uint32_t weight = count > kSampleAbove ? kSampleEvery : 1;
  for (std::uint32_t i = 0; i < samples; ++i) account_.enter(samples_[i], time_.now_ns - samples_[i].target_ns, weight);
  for (std::uint32_t i = 0; i < single_count_; ++i) account_.record(singles_[i]);
  single_count_ = 0;
  account_.add(sums, time_.now_ns);
}

void Completer::prefetch_queues(const HotRequest& hot) const {
  const Requests::Queue& queue = requests_.queue_of(hot);
  __builtin_prefetch(queue.sq);
  __builtin_prefetch(queue.cq);
}

// Notes the times of every kSampleEvery-th request of a large batch, of every one of a small batch, before their slots
// are given back; returns how many. Those that are no plain transfers, finish_one() records by themselves.
std::uint32_t Completer::choose_samples(std::uint32_t count) {
  static_assert(kDueBatch / kSampleEvery + 1 <= kSampleAbove);
  const std::uint32_t every = count > kSampleAbove ? kSampleEvery : 1;
  std::uint32_t at = sample_countdown_ < every ? sample_countdown_ : 0;
  std::uint32_t samples = 0;
  for (; at < count; at += every) {
    const HotRequest& hot = hot_[due_[at]];
    if (!is_ready(hot) || hot.cold != kNoSlot || requests_.queue_of(hot).sq->admin) continue;
    samples_[samples++] = Account::Times::of(hot);
  }
  sample_countdown_ = at - count;
  return samples;
}

}  // namespace flashmob::engine
