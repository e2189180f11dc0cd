// One NVMe I/O queue pair that any number of GPU threads share (NVMe Base 2.0c, 3.3; PCIe transport 1.0c, 3.1).
//
// The protocol. Every command that can be in flight has a slot; the slot's number is its command identifier. A thread
//   1. claims a free slot (one bit of a bitmap),
//   2. builds the command in it, which is memory of its own until
//   3. it publishes the slot: pushes it on the stack of ready slots, with release;
//   4. whoever gets the combiner's word takes the whole stack, with acquire, copies the commands to the ring's next
//      entries, and rings the doorbell once. Who does not get it need not wait: the combiner looks again after it has
//      given the word back, and every push is followed by an exchange of that word, so no slot is left behind.
//   5. Whoever gets the reaper's word takes completions and finishes their slots.
// Ring entries are given away in step 4 only, so a thread that is held up between 1 and 3 delays nobody, and a command
// that the SSD answers late or never takes away one slot and nothing else. There is one slot fewer than ring entries
// and a slot is free only when its command is complete, so the ring has room whenever there is a ready slot: no step
// ever waits for the SSD. Each use of a slot has a 64-bit ticket, so a token of an earlier use is recognised.
//
// Thread rule: any lane of any kernel, and host threads (HostLane), at once. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "flashmob/gpu/command.h"
#include "flashmob/gpu/simt/word.h"
#include "flashmob/gpu/status.h"

namespace flashmob::gpu {

// Who takes completions from the queues.
enum class ServiceMode : std::uint32_t {
  callers,  // the threads that wait, as they wait
  service,  // a service kernel or a host thread; waiting threads look at their slots only
};

// The low byte of Slot::state. Above it lies the status of a slot that is done (IoStatus::to_bits()).
namespace slot_state {
inline constexpr std::uint32_t kFree = 0;
inline constexpr std::uint32_t kTaken = 1;
inline constexpr std::uint32_t kReady = 2;   // published, not yet in the ring
inline constexpr std::uint32_t kIssued = 3;  // kReady and the bit below
inline constexpr std::uint32_t kIssuedBit = 1;
inline constexpr std::uint32_t kDone = 4;
inline constexpr std::uint32_t kAbandoned = 8;  // a flag: the owner has gone, completion frees the slot
inline constexpr std::uint32_t kMask = 0x07;
}  // namespace slot_state

// What threads of the GPU share. The host updates none of these while kernels run, because a bus makes no update of
// both sides atomic; where the device is a CPU the host's threads are threads like any other.
template <class T>
using SharedWord = simt::Word<T>;

struct alignas(128) Slot {
  nvme::Sqe sqe{};
  SharedWord<std::uint64_t> ticket;  // of the present use; written by the slot's owner only
  SharedWord<std::uint32_t> state;
  std::uint32_t next = 0;            // on the stack of ready slots: the slot below plus one, 0 at the bottom
  Completion* completion = nullptr;  // where to announce the end; nullptr: the owner of a token takes it from here
};

// What threads share of one queue pair. Made by the host (gpu/host/attach/ssd_queues.h); the upper part never changes
// then.
struct Queue {
  nvme::Sqe* sq = nullptr;
  nvme::Cqe* cq = nullptr;
  std::uint32_t* sq_doorbell = nullptr;
  std::uint32_t* cq_doorbell = nullptr;
  Slot* slots = nullptr;
  SharedWord<std::uint64_t>* free_slots = nullptr;  // bitmap, 1: free
  std::byte* lists = nullptr;                       // every slot's memory for PRP lists and ranges
  simt::Word<std::uint32_t, simt::Scope::system>* abort = nullptr;
  std::uint64_t timeout_ns = 0;  // of waits that name none
  std::uint32_t list_stride = 0;
  std::uint32_t sq_entries = 0;  // 2...65536
  std::uint32_t cq_entries = 0;
  std::uint32_t slot_count = 0;  // sq_entries - 1
  bool host_sees_rings = true;   // false: they lie in a GPU's own memory, as does who serves them
  SharedWord<ServiceMode> mode;  // changed only while nobody waits

  // The submission side. `combiner` is 1 while a thread has it.
  alignas(128) SharedWord<std::uint32_t> ready;  // top of the stack: slot plus one, 0: empty
  alignas(128) SharedWord<std::uint32_t> combiner;
  std::uint32_t sq_tail = 0;         // of the combiner, like the counts
  std::uint64_t submitted = 0;       // commands in the ring, ever
  std::uint64_t doorbells_rung = 0;  // fewer: one rings for many

  // The completion side. `reaper` is 1 while a thread, or a warp, has it.
  alignas(128) SharedWord<std::uint32_t> reaper;
  SharedWord<std::uint32_t> cq_head{1};  // index << 1 | phase tag of a new entry; of the reaper, others may peek
  std::uint64_t completed = 0;           // of the reaper
  SharedWord<std::uint64_t> failed;      // of these, with an error
  SharedWord<std::uint64_t> unexpected;  // of slots that have no command: a broken SSD
};

struct QueueStats {
  std::uint64_t submitted = 0;
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;
  std::uint64_t doorbells_rung = 0;
  std::uint64_t unexpected = 0;
  std::uint32_t in_flight = 0;  // published and not complete
  std::uint32_t taken = 0;      // slots that are not free

  FLASHMOB_HD QueueStats& operator+=(const QueueStats& other) {
    submitted += other.submitted;
    completed += other.completed;
    failed += other.failed;
    doorbells_rung += other.doorbells_rung;
    unexpected += other.unexpected;
    in_flight += other.in_flight;
    taken += other.taken;
    return *this;
  }
};

// Spin loops give way for a little longer each time.
struct Backoff {
  static constexpr std::uint32_t kLongestNs = 1'000;
  std::uint32_t ns = 20;

  template <class Lane>
  FLASHMOB_HD void pause(Lane& t, simt::Here here = simt::Here::current()) {
    t.pause(ns, here);
    ns = ns * 2 > kLongestNs ? kLongestNs : ns * 2;
  }
};

class QueueRef {
 public:
  using Order = simt::Order;

  FLASHMOB_HD explicit QueueRef(Queue* queue = nullptr) : q_(queue) {}
  FLASHMOB_HD Queue* get() const { return q_; }
  FLASHMOB_HD Slot& slot(std::uint32_t index) const { return q_->slots[index]; }
  FLASHMOB_HD std::uint64_t* list(std::uint32_t index) const {
    return reinterpret_cast<std::uint64_t*>(q_->lists + std::uint64_t{index} * q_->list_stride);
  }
  template <class Lane>
  FLASHMOB_HD bool aborted(Lane& t) const {
    return q_->abort->load(t, Order::relaxed) != 0;
  }
  template <class Lane>
  FLASHMOB_HD bool polled_by_callers(Lane& t) const {
    return q_->mode.load(t, Order::relaxed) == ServiceMode::callers;
  }

  // --- Submission, in this order ---

  // False if every slot has a command: the queue is full.
  template <class Lane>
  FLASHMOB_HD bool claim(Lane& t, std::uint32_t& index) const {
    const std::uint32_t words = (q_->slot_count + 63) / 64;
    // Threads begin at different words and bits, so that they seldom ask for the same one.
    std::uint32_t at = static_cast<std::uint32_t>((std::uint64_t{t.thread() * 0x9E3779B1u} * words) >> 32);
    for (std::uint32_t n = 0; n < words; ++n) {
      std::uint64_t bits = q_->free_slots[at].load(t, Order::relaxed);
      while (bits != 0) {
        const std::uint32_t bit = bit_from(bits, t.thread() & 63);
        const std::uint64_t mask = std::uint64_t{1} << bit;
        const std::uint64_t before = q_->free_slots[at].fetch_and(t, ~mask, Order::acquire);
        if ((before & mask) != 0) {
          index = at * 64 + bit;
          slot(index).state.store(t, slot_state::kTaken, Order::relaxed);
          return true;
        }
        bits = before & ~mask;
      }
      if (++at == words) at = 0;
    }
    return false;
  }

  // `completion` nullptr: a token will own the slot.
  FLASHMOB_HD void fill(std::uint32_t index, const Command& command, Completion* completion) const {
    Slot& s = slot(index);
    build(s.sqe, command, static_cast<std::uint16_t>(index), list(index));
    s.completion = completion;
  }

  // Everything written before, into the slot or into the buffer to be sent, is there for the SSD.
  template <class Lane>
  FLASHMOB_HD void publish(Lane& t, std::uint32_t index) const {
    Slot& s = slot(index);
    s.state.store(t, slot_state::kReady, Order::relaxed);
    std::uint32_t top = q_->ready.load(t, Order::relaxed);
    do {
      s.next = top;
    } while (!q_->ready.compare_exchange(t, top, index + 1, Order::release));
  }

  // Brings what is published to the SSD, or leaves it to the thread that is doing so. Both this exchange and the one
  // that gives the word back write: if ours finds the word taken, the one that gives it back comes after it in the
  // word's order and has our push before it, so the look that follows sees it.
  template <class Lane>
  FLASHMOB_HD void combine(Lane& t) const {
    while (q_->combiner.exchange(t, 1) == 0) {
      issue(t, q_->ready.exchange(t, 0));
      q_->combiner.exchange(t, 0);
      if (q_->ready.load(t) == 0) return;
    }
  }

  // --- Completion ---

  // Takes new completions, at most one per lane of `mask`, all of whose lanes call this together; returns how many.
  // Nothing is waited for: entries that are there are done, whether or not the ones behind them are.
  template <class Lane>
  FLASHMOB_HD std::uint32_t reap(Lane& t, std::uint32_t mask) const {
    constexpr std::uint32_t kNothing = UINT32_MAX;
    std::uint32_t head = kNothing;
    if (t.elect(mask) && fresh(t, q_->cq_head.load(t, Order::relaxed), 0) && q_->reaper.exchange(t, 1) == 0)
      head = q_->cq_head.load(t, Order::relaxed);
    head = t.shuffle(mask, head, simt::first_lane(mask));
    if (head == kNothing) return 0;

    const std::uint32_t rank = simt::count_lanes(simt::lanes_below(mask, t.lane()));
    std::uint32_t entry = 0;
    const bool there = rank < q_->cq_entries && fresh(t, head, rank, &entry);
    const std::uint32_t missing = mask & ~t.ballot(mask, there);
    const std::uint32_t count =
        simt::count_lanes(missing == 0 ? mask : simt::lanes_below(mask, simt::first_lane(missing)));
    if (rank < count) finish(t, entry);
    t.sync(mask);
    if (t.elect(mask)) advance(t, head, count);
    return count;
  }

  // What one thread can do for the queue while it waits for something else. True if anything was done.
  template <class Lane>
  FLASHMOB_HD bool help(Lane& t) const {
    if (q_->ready.load(t, Order::relaxed) != 0) combine(t);
    std::uint32_t count = 0;
    while (count < simt::kWarpLanes && reap(t, 1u << t.lane()) != 0) ++count;
    return count != 0;
  }

  // --- Slots of tokens ---

  template <class Lane>
  FLASHMOB_HD bool owns(Lane& t, std::uint32_t index, std::uint64_t ticket) const {
    return slot(index).ticket.load(t) == ticket;
  }
  // The slot's next user must find nothing of this one's.
  template <class Lane>
  FLASHMOB_HD void release(Lane& t, std::uint32_t index) const {
    Slot& s = slot(index);
    s.ticket.store(t, s.ticket.load(t, Order::relaxed) + 1);
    s.state.store(t, slot_state::kFree, Order::relaxed);
    q_->free_slots[index / 64].fetch_or(t, std::uint64_t{1} << (index % 64), Order::release);
  }
  // Gives up a slot whose command is in flight or done; who finishes it frees it.
  template <class Lane>
  FLASHMOB_HD void abandon(Lane& t, std::uint32_t index) const {
    const std::uint32_t before = slot(index).state.fetch_or(t, slot_state::kAbandoned);
    if ((before & slot_state::kMask) == slot_state::kDone) release(t, index);
  }

  // --- For reports and draining; looks at every slot ---

  template <class Lane>
  FLASHMOB_HD QueueStats stats(Lane& t) const {
    QueueStats out;
    for (std::uint32_t i = 0; i < q_->slot_count; ++i) {
      const std::uint32_t state = slot(i).state.load(t) & slot_state::kMask;
      out.taken += state != slot_state::kFree;
      out.in_flight += state == slot_state::kReady || state == slot_state::kIssued;
    }
    // What has been announced has been counted once the words are free: their holders count before they give them back.
    await_free(t, q_->combiner);
    out.submitted = simt::peek(q_->submitted);
    out.doorbells_rung = simt::peek(q_->doorbells_rung);
    await_free(t, q_->reaper);
    out.completed = simt::peek(q_->completed);
    out.failed = q_->failed.load(t, Order::relaxed);
    out.unexpected = q_->unexpected.load(t, Order::relaxed);
    return out;
  }
  template <class Lane>
  FLASHMOB_HD bool idle(Lane& t) const {
    for (std::uint32_t i = 0; i < q_->slot_count; ++i) {
      const std::uint32_t state = slot(i).state.load(t) & slot_state::kMask;
      if (state == slot_state::kReady || state == slot_state::kIssued) return false;
    }
    return true;
  }

 private:
  // The first set bit of `bits` from `start` on, going round.
  FLASHMOB_HD static std::uint32_t bit_from(std::uint64_t bits, std::uint32_t start) {
    const std::uint64_t upper = bits & (~std::uint64_t{0} << start);
    const std::uint64_t chosen = upper != 0 ? upper : bits;
    const auto low = static_cast<std::uint32_t>(chosen);
    return low != 0 ? simt::first_lane(low) : 32 + simt::first_lane(static_cast<std::uint32_t>(chosen >> 32));
  }

  // Of the combiner: moves the stack's slots to the ring and rings.
  template <class Lane>
  FLASHMOB_HD void issue(Lane& t, std::uint32_t top) const {
    if (top == 0) return;
    std::uint32_t tail = q_->sq_tail;
    std::uint64_t count = 0;
    for (; top != 0; ++count) {
      Slot& s = slot(top - 1);
      q_->sq[tail] = s.sqe;
      top = s.next;
      // Before the doorbell: completion may follow it at once.
      s.state.fetch_or(t, slot_state::kIssuedBit, Order::relaxed);
      if (++tail == q_->sq_entries) tail = 0;
    }
    q_->sq_tail = tail;
    simt::bump(q_->submitted, count);
    simt::bump(q_->doorbells_rung, 1);
    ring(t, *q_->sq_doorbell, tail);
  }

  // Releases at the system's scope only where the SSD is beyond the GPU: that takes three times as long.
  template <class Lane>
  FLASHMOB_HD void ring(Lane& t, std::uint32_t& doorbell, std::uint32_t value) const {
    if (q_->host_sees_rings)
      simt::WordRef<std::uint32_t, simt::Scope::system>(doorbell).store(t, value, Order::release);
    else
      simt::WordRef<std::uint32_t>(doorbell).store(t, value, Order::release);
  }

  // True if the entry `rank` places behind the head is new; then `entry` is its last dword: command identifier in 15:0,
  // phase tag in 16, status above.
  template <class Lane>
  FLASHMOB_HD bool fresh(Lane& t, std::uint32_t head, std::uint32_t rank, std::uint32_t* entry = nullptr) const {
    std::uint32_t at = (head >> 1) + rank;
    std::uint32_t phase = head & 1;
    if (at >= q_->cq_entries) {
      at -= q_->cq_entries;
      phase ^= 1;
    }
    auto* dwords = reinterpret_cast<std::uint32_t*>(q_->cq + at);
    const std::uint32_t last =
        q_->host_sees_rings ? simt::WordRef<std::uint32_t, simt::Scope::system>(dwords[3]).load(t, Order::acquire)
                            : simt::WordRef<std::uint32_t>(dwords[3]).load(t, Order::acquire);
    if (entry != nullptr) *entry = last;
    return ((last >> 16) & 1) == phase;
  }

  template <class Lane>
  FLASHMOB_HD void finish(Lane& t, std::uint32_t entry) const {
    const std::uint32_t index = entry & 0xFFFF;
    const IoStatus status{static_cast<std::uint16_t>(entry >> 17), IoKind::completed};
    if (index >= q_->slot_count ||
        (slot(index).state.load(t, Order::relaxed) & slot_state::kMask) != slot_state::kIssued) {
      q_->unexpected.fetch_add(t, 1, Order::relaxed);
      return;
    }
    if (!status.ok()) q_->failed.fetch_add(t, 1, Order::relaxed);
    Slot& s = slot(index);
    if (s.completion != nullptr) {
      // Announced first: once the slot is free, a drained queue may be taken down with all that it announces to.
      s.completion->finish(t, status);
      release(t, index);
      return;
    }
    const std::uint32_t before = s.state.exchange(t, status.to_bits() | slot_state::kDone);
    if ((before & slot_state::kAbandoned) != 0) release(t, index);
  }

  // Of the reaper: gives `count` entries back to the SSD, and the word.
  template <class Lane>
  FLASHMOB_HD void advance(Lane& t, std::uint32_t head, std::uint32_t count) const {
    if (count != 0) {
      std::uint32_t at = (head >> 1) + count;
      std::uint32_t phase = head & 1;
      if (at >= q_->cq_entries) {
        at -= q_->cq_entries;
        phase ^= 1;
      }
      simt::bump(q_->completed, count);
      q_->cq_head.store(t, (at << 1) | phase, Order::relaxed);
      ring(t, *q_->cq_doorbell, at);
    }
    q_->reaper.store(t, 0, Order::release);
  }

  // Until a look finds the word free, or many have not: under load somebody always has it.
  template <class Lane>
  FLASHMOB_HD static void await_free(Lane& t, SharedWord<std::uint32_t>& word) {
    Backoff backoff;
    for (std::uint32_t looks = 0; looks < 1000 && word.load(t) != 0; ++looks) backoff.pause(t);
  }

  Queue* q_;
};

}  // namespace flashmob::gpu
