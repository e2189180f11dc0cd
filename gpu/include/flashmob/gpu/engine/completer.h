// The last part of a request's way on the GPU: one warp holds what the movers have finished until its target time, in a
// timing wheel, and posts completions in batches, one per lane, grouped by queue.
//
// The wheel's lists belong to this warp alone: 32 lanes walk 32 buckets at a time. A request never goes out before its
// target; it goes out within a bucket of it unless the warp falls behind, which lateness shows. Where a completion
// queue is full, its requests wait a bucket and are tried again, and nobody else waits for them. For warp 1 of a block;
// all lanes call together. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/engine/fidelity.h"
#include "flashmob/gpu/engine/layout.h"
#include "flashmob/gpu/engine/warp.h"
#include "flashmob/gpu/engine/wheel.h"
#include "nvme/status.h"

namespace flashmob::gpu::engine {

template <class Lane>
class Completer {
 public:
  using Order = simt::Order;

  FLASHMOB_HD Completer(const EngineRef& engine, const Unit& unit, UnitShared& shared)
      : engine_(engine),
        unit_(unit),
        shared_(shared),
        wheel_(unit.requests, shared),
        free_tail_(engine.slots),
        free_shown_(engine.slots) {}

  // Until everything that was fetched is completed and the dispatcher has gone, or the host stops everything.
  FLASHMOB_HD void run(Lane& t) {
    WarpControl control(t, engine_);
    Account account(unit_.fidelity, unit_.counts, control.phase(), engine_.has_statistics);
    wheel_.begin(t, read_clock(t) >> kWheelShift);
    for (;;) {
      const bool worked = pass(t, account);
      // The dispatcher goes when the host has said so, and not before.
      if (control.run() == Run::stop || (control.run() != Run::on && all_done(t))) break;
      if (!worked) account.flush(t);
      if (control.between(t, worked)) {
        account.set_phase(t, control.phase());
        closing_ = true;
        swept_ = false;
        abort_wished(t, account);
      }
      if (closing_) close_queues(t, account, control);
    }
    account.flush(t);
  }

 private:
  static constexpr std::uint64_t kAbortName = 0xFFFF'FFFF'0000u;  // queue and identifier in Control::abort
  static constexpr std::uint32_t kNoHead = 0xFFFFFFFFu;

  FLASHMOB_HD std::uint64_t read_clock(Lane& t) {
    std::uint64_t now_ns = 0;
    if (t.elect(t.lanes())) now_ns = t.now_ns() - engine_.clock_start_ns;
    return t.shuffle(t.lanes(), now_ns, 0);
  }

  FLASHMOB_HD bool all_done(Lane& t) {
    bool done = false;
    if (t.elect(t.lanes()))
      done = shared_.dispatcher_gone.load(t) != 0 &&
             free_tail_ - engine_.slots == shared_.fetched_slots.load(t, Order::relaxed);
    return t.ballot(t.lanes(), done) != 0;
  }

  // One round: takes in what is ready, posts what is due. True if there was anything.
  FLASHMOB_HD bool pass(Lane& t, Account& account) {
    now_ns_ = read_clock(t);
    const bool took = take_in(t, account);
    const bool turned = turn_wheel(t, account);
    finish_round(t, account);
    return turned || took;
  }

  // Posts what is left of what is due, and shows the dispatcher the slots that are free again: once a round, because
  // either waits until all that was written before is seen.
  FLASHMOB_HD void finish_round(Lane& t, Account& account) {
    post_due(t, account, due_count_);
    if (free_shown_ == free_tail_) return;
    free_shown_ = free_tail_;
    t.sync(t.lanes());
    if (t.elect(t.lanes())) unit_.rings->free_tail.store(t, free_tail_);
  }

  // Notes the slots of the lanes that have one as due, and posts as soon as there is one for each lane: a few at a time
  // would take as long each time.
  FLASHMOB_HD void note_due(Lane& t, Account& account, bool has, Slot slot) {
    const std::uint32_t mask = t.ballot(t.lanes(), has);
    if (has) {
      const std::uint32_t rank = simt::count_lanes(simt::lanes_below(mask, t.lane()));
      shared_.due[(due_head_ + due_count_ + rank) % kDue] = slot;
    }
    due_count_ += simt::count_lanes(mask);
    if (due_count_ >= simt::kWarpLanes) post_due(t, account, simt::kWarpLanes);
  }
  FLASHMOB_HD void post_due(Lane& t, Account& account, std::uint32_t count) {
    if (count == 0) return;
    t.sync(t.lanes());  // with the lanes that have noted them
    const bool has = t.lane() < count;
    const Slot slot = has ? shared_.due[(due_head_ + t.lane()) % kDue] : kNoSlot;
    due_head_ += count;
    due_count_ -= count;
    post(t, account, has, slot);
  }

  FLASHMOB_HD bool take_in(Lane& t, Account& account) {
    Rings& rings = *unit_.rings;
    const std::uint32_t lanes = t.lanes();
    simt::Word<Slot>& place = rings.ready[(ready_head_ + t.lane()) & (engine_.slots - 1)];
    const Slot entry = place.load(t);
    const std::uint32_t missing = lanes & ~t.ballot(lanes, entry != 0);
    const std::uint32_t there = missing == 0 ? lanes : simt::lanes_below(lanes, simt::first_lane(missing));
    if (there == 0) return false;
    const bool mine = ((there >> t.lane()) & 1) != 0;
    const Slot slot = entry - 1;
    bool due = false;
    if (mine) {
      place.store(t, 0, Order::relaxed);
      const Request& request = unit_.requests[slot];
      const std::uint64_t target_ns = request.target_ns;
      const bool has_data = request.operation != Operation::nothing;
      due = target_ns <= now_ns_ || ends_now(t, slot);
      if (!due)
        wheel_.insert(t, slot, target_ns >> kWheelShift);
      else if (target_ns < now_ns_ && has_data && engine_.has_model)
        account.late_by_copy();
    }
    ready_head_ += simt::count_lanes(there);
    note_due(t, account, mine && due, slot);
    return true;
  }

  // Of the wheel: the buckets that the clock has left.
  FLASHMOB_HD bool turn_wheel(Lane& t, Account& account) {
    const std::uint64_t now_tick = now_ns_ >> kWheelShift;
    if (now_tick - wheel_.tick() >= kWheelBuckets) wheel_.advance(t, now_tick - (kWheelBuckets - 1));
    bool worked = false;
    while (wheel_.tick() < now_tick) {
      const std::uint64_t tick = wheel_.tick();
      const std::uint64_t left = now_tick - tick;
      worked |= empty_bucket(t, account, tick + t.lane(), t.lane() < left, false);
      wheel_.advance(t, tick + (left < simt::kWarpLanes ? left : simt::kWarpLanes));
    }
    return worked;
  }

  // Each lane empties a bucket: what is due, or ends early, goes out, the rest goes back.
  FLASHMOB_HD bool empty_bucket(Lane& t, Account& account, std::uint64_t tick, bool mine, bool sweeps) {
    t.sync(t.lanes());  // what other lanes have put there
    return empty(t, account, mine ? wheel_.take(tick) : kNoSlot, sweeps, [&](Slot slot, std::uint64_t target_tick) {
      if (sweeps)
        wheel_.put_back(t, slot, tick);
      else
        wheel_.insert(t, slot, target_tick);
    });
  }
  template <class Keep>
  FLASHMOB_HD bool empty(Lane& t, Account& account, Slot next, bool sweeps, const Keep& keep) {
    bool worked = false;
    while (t.ballot(t.lanes(), next != kNoSlot) != 0) {
      const Slot slot = next;
      bool out = false;
      if (slot != kNoSlot) {
        const Request& request = unit_.requests[slot];
        const std::uint64_t target_ns = request.target_ns;
        next = request.next;
        out = (!sweeps && target_ns <= now_ns_) || ends_now(t, slot);
        if (!out) keep(slot, target_ns >> kWheelShift);
      }
      worked = true;
      note_due(t, account, out, slot);
    }
    return worked;
  }

  FLASHMOB_HD QueueState state_of(Lane& t, std::uint32_t sq) {
    return closing_ ? unit_.states[sq].load(t, Order::relaxed) : QueueState::active;
  }

  // True if a request does not wait for its target: its queue is being deleted, or the host has asked for its end.
  FLASHMOB_HD bool ends_now(Lane& t, Slot slot) {
    if (!closing_) return false;
    Request& request = unit_.requests[slot];
    const QueueState state = state_of(t, request.sq);
    if (state == QueueState::dropping) return true;
    if (state == QueueState::cancelling) return end_early(request, nvme::Status::aborted_sq_deletion);
    const std::uint64_t name = (std::uint64_t{request.sq} << 16) | (std::uint64_t{request.cid} << 32);
    if (wish_ == 0 || (wish_ & kAbortName) != name) return false;
    aborted_ = true;
    return end_early(request, nvme::Status::abort_requested);
  }
  FLASHMOB_HD bool end_early(Request& request, nvme::Status status) {
    request.status = nvme::with_do_not_retry(status);
    request.media = nullptr;
    request.nsid = 0;
    request.prp1 = 0;
    request.operation = Operation::nothing;
    if (request.target_ns > now_ns_) request.target_ns = now_ns_;
    return true;
  }

  // A command that the host wants ended goes out if it waits here; one that is still being moved is not waited for.
  FLASHMOB_HD void abort_wished(Lane& t, Account& account) {
    if (t.elect(t.lanes())) wish_ = engine_.control->abort.load(t);
    wish_ = t.shuffle(t.lanes(), wish_, 0);
    if (wish_ != 0 && (wish_ & 0xFFFF) == t.block()) {
      aborted_ = false;
      sweep(t, account);
      const bool found = t.ballot(t.lanes(), aborted_) != 0;
      if (t.elect(t.lanes())) engine_.answers->aborted.store(t, found ? Abort::done : Abort::not_found);
    }
    wish_ = 0;
  }

  // Looks at every request that waits. First each lane looks at a group of 32 buckets by itself, from a place of its
  // own on, so that lanes read neighbouring banks: most groups are empty, and for each one the whole warp would have to
  // meet.
  FLASHMOB_HD void sweep(Lane& t, Account& account) {
    static_assert(kWheelBuckets == simt::kWarpLanes * simt::kWarpLanes, "one group for each lane");
    now_ns_ = read_clock(t);
    t.sync(t.lanes());  // what other lanes have put there
    bool holds = false;
    for (std::uint32_t i = 0; i < simt::kWarpLanes; ++i)
      holds |= shared_.wheel[t.lane() * simt::kWarpLanes + (i + t.lane()) % simt::kWarpLanes] != kNoSlot;
    for (std::uint32_t groups = t.ballot(t.lanes(), holds); groups != 0; groups &= groups - 1)
      empty_bucket(t, account, simt::first_lane(groups) * simt::kWarpLanes + t.lane(), true, true);
    for (std::uint32_t list = 0; list < kLaterLists; ++list)
      empty(t, account, wheel_.take_later(t, list), true,
            [&](Slot slot, std::uint64_t) { wheel_.put_later(t, slot, list); });
    finish_round(t, account);
  }

  // Posts the completions of the lanes that have one, as far as there is room, and gives their slots back.
  FLASHMOB_HD void post(Lane& t, Account& account, bool has, Slot slot) {
    const std::uint32_t mask = t.ballot(t.lanes(), has);
    if (mask == 0) return;
    bool done = false;
    if (has) {
      // Copies, each read at once: what is looked at piece by piece is waited for piece by piece.
      const Request request = unit_.requests[slot];
      DeviceSq& sq = unit_.sqs[request.sq];
      const std::uint16_t cq_index = sq.cq, sqid = sq.sqid;
      const std::uint32_t sq_head = sq.head.load(t, Order::relaxed);
      const QueueState state = state_of(t, request.sq);
      const bool dropped = state == QueueState::dropping;
      // The lanes of each queue form a group, but all of the mask meet: collectives of parts of a warp run one part
      // after the other.
      const std::uint32_t group = t.match(mask, dropped ? 0xFFFFFFFFu : std::uint32_t{cq_index});
      const std::uint32_t wanted = simt::count_lanes(group);
      const std::uint32_t rank = simt::count_lanes(simt::lanes_below(group, t.lane()));
      const bool leads = t.elect(group) && !dropped;
      DeviceCq& cq = unit_.cqs[cq_index];
      const DeviceCq seen = cq;
      t.sync(mask);  // all have read what the first of them may change now
      std::uint32_t room = simt::kWarpLanes;
      if (leads) room = room_in(t, cq, seen, wanted, account);
      room = t.shuffle(mask, room, simt::first_lane(group));
      done = rank < room || state == QueueState::cancelling;
      const std::uint64_t posted_ns = t.now_ns() - engine_.clock_start_ns;
      if (rank < room && !dropped) {
        if (request.status != 0) report_failure(t, sqid, request);
        put_entry(t, seen, rank, (sq_head & 0xFFFFu) | (std::uint32_t{sqid} << 16), request);
        account.completed(t, request, posted_ns, simt::count_lanes(mask), rank);
        trace(request, posted_ns);
      }
      t.sync(mask);
      if (leads) advance(cq, seen, room < wanted ? room : wanted);
      if (done)
        sq.finished.fetch_add(t, 1, Order::relaxed);
      else
        wheel_.insert(t, slot, now_ns_ >> kWheelShift);
    }
    release(t, done, slot);
  }

  FLASHMOB_HD void release(Lane& t, bool done, Slot slot) {
    const std::uint32_t mask = t.ballot(t.lanes(), done);
    if (mask == 0) return;
    if (done) {
      const std::uint32_t at = free_tail_ + simt::count_lanes(simt::lanes_below(mask, t.lane()));
      unit_.rings->free_slots[at & (engine_.slots - 1)] = slot;
    }
    free_tail_ += simt::count_lanes(mask);
  }

  // How many entries may be posted, as far as `wanted` asks; `seen` is the queue as it stands.
  FLASHMOB_HD std::uint32_t room_in(Lane& t, DeviceCq& cq, const DeviceCq& seen, std::uint32_t wanted,
                                    Account& account) {
    std::uint32_t room = seen.entries - 1 - distance(seen.head, seen.tail, seen.entries);
    if (room >= wanted) return wanted;
    const std::uint32_t head = simt::WordRef<std::uint32_t, simt::Scope::system>(*cq.doorbell).load(t, Order::acquire);
    if (head != cq.head) {
      // Base 2.0c, 3.3.3.1: a head beyond what was posted is an invalid doorbell value.
      if (head >= cq.entries || distance(cq.head, head, cq.entries) > distance(cq.head, cq.tail, cq.entries)) {
        if (head == cq.bad_head) return room;
        cq.bad_head = head;
        account.bad_doorbell();
        report(t, engine_, head, 0, kBadDoorbell | (std::uint64_t{cq.controller} << 40));
        return room;
      }
      cq.head = head;
      cq.bad_head = kNoHead;
      room = cq.entries - 1 - distance(cq.head, cq.tail, cq.entries);
    }
    return room < wanted ? room : wanted;
  }
  FLASHMOB_HD static std::uint32_t distance(std::uint32_t from, std::uint32_t to, std::uint32_t entries) {
    return to >= from ? to - from : to + entries - from;
  }

  FLASHMOB_HD static void advance(DeviceCq& cq, const DeviceCq& seen, std::uint32_t count) {
    const std::uint32_t tail = seen.tail + count;
    cq.tail = tail < seen.entries ? tail : tail - seen.entries;
    if (tail >= seen.entries) cq.phase = seen.phase ^ 1;
  }

  // The entry `rank` places behind the tail: its body, then the dword with the phase tag, with release, so that whoever
  // sees the phase sees the entry, and the data that was moved before. `queue` is its third dword: SQ head and number.
  FLASHMOB_HD void put_entry(Lane& t, const DeviceCq& cq, std::uint32_t rank, std::uint32_t queue,
                             const Request& request) {
    std::uint32_t at = cq.tail + rank;
    std::uint32_t phase = cq.phase;
    if (at >= cq.entries) {
      at -= cq.entries;
      phase ^= 1;
    }
    auto* const words = reinterpret_cast<std::uint32_t*>(cq.ring + at);
    words[0] = 0;
    words[1] = 0;
    words[2] = queue;
    // What failed is in the error log.
    const std::uint32_t status = request.status == 0 ? 0u : std::uint32_t{request.status} | nvme::kStatusMore;
    const std::uint32_t last = request.cid | (phase << 16) | (status << 17);
    if (cq.host_looks)
      simt::WordRef<std::uint32_t, simt::Scope::system>(words[3]).store(t, last, Order::release);
    else
      simt::WordRef<std::uint32_t, simt::Scope::device>(words[3]).store(t, last, Order::release);
  }

  FLASHMOB_HD void report_failure(Lane& t, std::uint16_t sqid, const Request& request) {
    const bool begun = request.media != nullptr;
    const std::uint64_t place = begun ? reinterpret_cast<std::uint64_t>(request.media) : request.prp1;
    const std::uint64_t who = request.nsid | (std::uint64_t{sqid} << 32) | (std::uint64_t{request.cid} << 48);
    const std::uint64_t controller = std::uint64_t{request.controller} << 40;
    report(t, engine_, place, who, request.status | (std::uint64_t{begun} << 32) | controller);
  }

  FLASHMOB_HD void trace(const Request& request, std::uint64_t posted_ns) {
    if (engine_.trace == nullptr || request.trace >= engine_.trace->capacity) return;
    engine_.trace->entries[request.trace].posted_ns = posted_ns;
    engine_.trace->entries[request.trace].status = request.status;
  }

  // Queues that the host has asked to close are closed when the last of their commands is finished. The dispatcher must
  // have taken up the change before: nothing more is fetched then.
  FLASHMOB_HD void close_queues(Lane& t, Account& account, const WarpControl& control) {
    bool ready = false;
    if (t.elect(t.lanes())) ready = shared_.dispatched_to.load(t) == control.epoch();
    if (t.ballot(t.lanes(), ready) == 0) return;
    t.sync(t.lanes());
    if (!swept_) {
      sweep(t, account);
      swept_ = true;
    }
    bool waits = false;
    const std::uint32_t indices = control.order(unit_).indices;
    for (std::uint32_t at = t.lane(); at < indices; at += simt::kWarpLanes) {
      const DeviceSq& sq = unit_.sqs[at];
      const QueueState state = unit_.states[at].load(t);
      if (state == QueueState::absent || state == QueueState::active) continue;
      if (sq.fetched.load(t) == sq.finished.load(t))
        unit_.states[at].store(t, QueueState::absent);
      else
        waits = true;
    }
    closing_ = t.ballot(t.lanes(), waits) != 0;
  }

  const EngineRef& engine_;
  const Unit& unit_;
  UnitShared& shared_;
  Wheel<Lane> wheel_;
  std::uint64_t now_ns_ = 0;
  std::uint32_t ready_head_ = 0;
  std::uint32_t free_tail_;
  std::uint32_t free_shown_;  // to the dispatcher
  std::uint32_t due_head_ = 0;  // of shared_.due, and how many there are in it
  std::uint32_t due_count_ = 0;
  bool closing_ = false;  // a queue may be draining or dropping
  bool swept_ = false;  // the wheel has been searched for requests of queues that end
  std::uint64_t wish_ = 0;  // Control::abort while the wheel is searched for it
  bool aborted_ = false;  // this lane has found it
};

}  // namespace flashmob::gpu::engine
