// The dispatcher's look at the doorbells, and the fetch of what they announce.
#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/dispatcher.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace flashmob::engine {
namespace {

// How many of the next queue's entries are asked for while this queue's requests are taken in.
constexpr std::uint32_t kPrefetchEntries = 16;

// Lines of doorbells looked at between two readings of the clock, which take as long as some lines.
constexpr std::size_t kLinesPerDate = 64;
constexpr std::size_t kLinesAhead = 2;

// A fetch of so few waits for the first entry longer than it takes.
constexpr std::uint32_t kFewEntries = 4;

// Copies `count` entries of the ring, which the host filled before it rang: one streaming pass, no checks. A line at a
// time where the CPU can: a long memcpy() is a string instruction, and nothing behind that begins before its end.
void fetch_entries(nvme::Sqe* to, const nvme::Sqe* from, std::uint32_t count) {
#if defined(__AVX512F__)
  for (std::uint32_t i = 0; i < count; ++i) _mm512_storeu_si512(to + i, _mm512_loadu_si512(from + i));
#else
  std::memcpy(to, from, std::size_t{count} * sizeof(nvme::Sqe));
#endif
}

bool has_moved(const Sq& sq) {
  return std::atomic_ref<std::uint32_t>(*sq.doorbell).load(std::memory_order_relaxed) !=
         sq.head.load(std::memory_order_relaxed);
}

// Asks for the first new entries of a queue, if there are any: each line is a cross-core round trip away.
void prefetch_entries(const Sq& sq) {
  if (!has_moved(sq) || sq.ring == nullptr) return;
  const std::uint32_t head = sq.head.load(std::memory_order_relaxed);
  for (std::uint32_t i = head; i < std::min(head + kPrefetchEntries, sq.entries); ++i) __builtin_prefetch(sq.ring + i);
}

}  // namespace

bool Dispatcher::pass() {
  FidelityStats& stats = workers_[0]->account().stats_now();
  if (last_pass_ns_ != 0 && time_.now_ns - last_pass_ns_ > stats.max_poll_gap_ns)
    stats.max_poll_gap_ns = time_.now_ns - last_pass_ns_;
  last_pass_ns_ = time_.now_ns;
  gate_opens_ns_ = UINT64_MAX;
  for (auto& worker : workers_) worker->requests().reclaim();
  if (fused_waiting_ != 0) [[unlikely]]
    expire_fused();
  if (!delayed_admin_.empty()) [[unlikely]]
    run_delayed_admin_commands();
  bool fetched = false;
  if (weighted_) {
    fetched = weighted_pass();
  } else {
    // A pass over thousands of doorbells takes time, and the looks at them are dated.
    for (std::size_t line = 0, lines = lines_.lines(); line < lines;) {
      const std::size_t to = std::min(lines, line + kLinesPerDate);
      while ((line = lines_.next_changed(line, to, time_.now_ns)) < to) fetched |= poll_line(line++);
      if (line < lines) time_.refresh();
    }
  }
  ++(fetched ? stats.busy_polls : stats.idle_polls);
  return fetched;
}

// The admin queue is as strictly first as urgent queues are. There is always room for a whole round.
bool Dispatcher::weighted_pass() {
  begin_round(classes_.data());
  return serve_by_weights(classes_.data(), burst_, [this](std::uint32_t place, std::uint32_t limit) {
    std::uint32_t taken = 0;
    poll_sq(watches_[place], limit, taken);
    return taken;
  });
}

// Polls each queue of a line one of whose doorbells has moved.
bool Dispatcher::poll_line(std::size_t line) {
  bool fetched = false;
  std::uint32_t taken = 0;
  const std::array<std::uint32_t, DoorbellLines::kTails>& of_line = line_watches_[line];
  // Where hundreds of queues have a command each, every one of these lines is a cross-core round trip away: all of them
  // are asked for at once.
  lines_.prefetch(line + kLinesAhead);
  for (const std::uint32_t at : of_line) {
    if (at == kNoWatch) continue;
    const Watch& watch = watches_[at];
    if (std::atomic_ref<std::uint32_t>(*watch.doorbell).load(std::memory_order_relaxed) == watch.head) continue;
    if (watch.ring != nullptr) __builtin_prefetch(watch.ring + watch.head);
    __builtin_prefetch(watch.sq);
  }
  for (std::uint32_t lane = 0; lane < of_line.size(); ++lane) {
    if (of_line[lane] == kNoWatch) continue;
    Watch& watch = watches_[of_line[lane]];
    if (std::atomic_ref<std::uint32_t>(*watch.doorbell).load(std::memory_order_relaxed) == watch.head) {
      watch.empty_ns = time_.now_ns;
      continue;
    }
    next_ = watches_[of_line[lane] + 1 < watches_.size() ? of_line[lane] + 1 : 0].sq;
    fetched |= poll_sq(watch, burst_, taken);
  }
  return fetched;
}

// A look no earlier than this showed nothing to fetch.
std::uint64_t Dispatcher::empty_ns(const Watch& watch) const {
  return std::max({watch.empty_ns, lines_.unchanged_ns(watch.place.line), quiet_ns_});
}

bool Dispatcher::poll_sq(Watch& watch, std::uint32_t limit, std::uint32_t& taken) {
  Sq& sq = *watch.sq;
  const std::uint64_t look_ns = time_.now_ns;
  const std::uint32_t tail = std::atomic_ref<std::uint32_t>(*sq.doorbell).load(std::memory_order_acquire);
  const std::uint32_t head = sq.head.load(std::memory_order_relaxed);
  if (tail == head) [[likely]] {
    watch.empty_ns = look_ns;
    return false;
  }
  if (tail >= sq.entries) [[unlikely]] {
    if (sq.bad_tail != tail) {
      sq.bad_tail = tail;
      sq.controller->raise_error_event(nvme::AsyncErrorInfo::invalid_doorbell_value);
    }
    return false;
  }
  sq.bad_tail = 0xFFFFFFFFu;
  // The second half of a fused pair is waited for: it waits for nothing.
  const bool half_fetched = sq.fused_first != kNoSlot;
  if (!half_fetched && workers_[sq.worker]->keeps_us_waiting(sq)) [[unlikely]] {
    sq.watch.waits_for_host(look_ns);
    return false;
  }
  sq.watch.was_empty(empty_ns(watch));
  sq.watch.shows(tail, look_ns);
  if (sq.ring == nullptr) [[unlikely]]
    return false;
  Worker& worker = *workers_[sq.worker];
  Requests& requests = worker.requests();
  const std::uint32_t waiting = tail > head ? tail - head : tail + sq.entries - head;
  std::uint32_t count =
      std::min({waiting, limit, config_.fetch_limit, half_fetched ? requests.room_for(sq) : requests.fetchable(sq)});
  if (sq.is_limited) [[unlikely]]
    count = let_through(sq, count, look_ns);
  if (count == 0) return false;
  *sq.slots_held += count;
  if (count <= kFewEntries && !requests.threaded()) {
    // A long fetch hides the way that its entries have from the host's core; here completions are posted meanwhile.
    for (std::uint32_t i = 0; i < count; ++i)
      __builtin_prefetch(sq.ring + (head + i < sq.entries ? head + i : head + i - sq.entries));
    const std::uint64_t before_ns = time_.now_ns;
    if (time_.refresh() != before_ns) worker.release_due();
  }
  const std::uint32_t first_run = std::min(count, sq.entries - head);
  fetch_entries(fetched_.data(), sq.ring + head, first_run);
  if (first_run < count) fetch_entries(fetched_.data() + first_run, sq.ring, count - first_run);
  const std::uint32_t next = head + count;
  watch.head = next >= sq.entries ? next - sq.entries : next;
  lines_.saw(watch.place, watch.head);
  sq.head.store(watch.head, std::memory_order_relaxed);
  if (sq.event_index != nullptr) std::atomic_ref<std::uint32_t>(*sq.event_index).store(tail, std::memory_order_relaxed);
  time_.refresh();
  if (!sq.admin) {
    record_waits(sq, head, tail, count, look_ns, time_.now_ns);
    sq.port->count_fetched(count);
    FidelityStats& stats = workers_[0]->account().stats_now();
    ++stats.fetches;
    if (sq.is_limited && count != waiting) [[unlikely]]
      sq.watch.waits_for_host(time_.now_ns);
    else
      stats.left_behind += count != waiting;
  }
  taken = count;
  if (next_ != nullptr) __builtin_prefetch(next_->doorbell);
  ingest(sq, count);
  if (next_ != nullptr) prefetch_entries(*next_);
  requests.publish();
  // A fetch takes a cross-core round trip or two; what came due meanwhile does not wait for the other queues.
  if (!requests.threaded()) worker.release_due();
  return true;
}

// Of commands that could be fetched, those that the controller's rate lets through. What it holds back waits for its
// host, who asks for more than he may.
std::uint32_t Dispatcher::let_through(Sq& sq, std::uint32_t count, std::uint64_t look_ns) {
  if (count == 0) return 0;
  RateGate& gate = sq.controller->rate_gate();
  // The second half of a fused pair waits for nothing, and what comes in its place is counted as well.
  if (sq.fused_first != kNoSlot) {
    gate.take_in_advance(look_ns);
    return 1;
  }
  const std::uint32_t granted = gate.take(look_ns, count);
  if (granted == 0) {
    gate_opens_ns_ = std::min(gate_opens_ns_, gate.opens_ns());
    sq.watch.waits_for_host(look_ns);
  }
  return granted;
}

// Dates the entries that were fetched just now: from the last look at the doorbell that did not show them.
void Dispatcher::record_waits(Sq& sq, std::uint32_t head, std::uint32_t tail, std::uint32_t count,
                              std::uint64_t look_ns, std::uint64_t now_ns) {
  FidelityStats& stats = workers_[0]->account().stats_now();
  while (count != 0) {
    std::uint64_t since_ns = 0;
    const std::uint32_t together = sq.watch.oldest(head, count, sq.entries, since_ns);
    // A look may have been dated by another core, whose clock is a little ahead.
    const std::uint64_t wait_ns = now_ns > since_ns ? now_ns - since_ns : 0;
    stats.wait_ns.record(wait_ns, together);
    stats.wait_sum_ns += wait_ns * together;
    if (since_ns < time_.slept_until_ns) [[unlikely]] {
      stats.woken += together;
      stats.asleep_sum_ns += std::min(wait_ns, time_.slept_until_ns - since_ns) * together;
    }
    count -= together;
    head = head + together < sq.entries ? head + together : head + together - sq.entries;
    if (count != 0) sq.watch.shows(tail, look_ns);
  }
}

void Dispatcher::note_unfetched(Sq& sq) {
  if (sq.admin || sq.ring == nullptr || std::exchange(sq.noted_unfetched, true)) return;
  const std::uint32_t tail = std::atomic_ref<std::uint32_t>(*sq.doorbell).load(std::memory_order_acquire);
  const std::uint32_t head = sq.head.load(std::memory_order_relaxed);
  if (tail == head || tail >= sq.entries) return;
  // A half of a fused pair waits for the other, and whoever reads no completions for itself.
  if (sq.fused_first != kNoSlot || workers_[sq.worker]->leaves_answers(sq)) return;
  const std::uint64_t now_ns = time_.clock.now_ns();
  settle_watches();
  sq.watch.was_empty(quiet_ns_);
  sq.watch.shows(tail, now_ns);
  record_waits(sq, head, tail, tail > head ? tail - head : tail + sq.entries - head, now_ns, now_ns);
}

}  // namespace flashmob::engine
