// The first half of a request's way on the GPU: one warp polls the doorbells of its unit's queues, 32 at a time,
// fetches up to 32 commands of a queue in one coalesced load, decodes them one per lane, times them as one batch, and
// hands them to the movers. For warp 0 of a block; all lanes call together. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/engine/decode.h"
#include "flashmob/gpu/engine/layout.h"
#include "flashmob/gpu/engine/schedule.h"
#include "flashmob/gpu/engine/warp.h"

namespace flashmob::gpu::engine {

// 16 bytes in one load or store.
struct alignas(16) Chunk {
  std::uint64_t low, high;
};

template <class Lane>
class Dispatcher {
 public:
  using Order = simt::Order;

  FLASHMOB_HD Dispatcher(const EngineRef& engine, const Unit& unit, UnitShared& shared)
      : engine_(engine), unit_(unit), shared_(shared) {}

  // Until the host ends it.
  FLASHMOB_HD void run(Lane& t) {
    WarpControl control(t, engine_);
    refresh_queues(t, control);
    bool worked = false;
    while (control.run() == Run::on) {
      worked = pass(t, control);
      if (control.between(t, worked)) refresh_queues(t, control);
    }
    if (!t.elect(t.lanes())) return;
    shared_.fetched_slots.store(t, free_head_, Order::relaxed);
    shared_.dispatcher_gone.store(t, 1);
  }

 private:
  // The host has changed something: takes up the queues as they are now.
  FLASHMOB_HD void refresh_queues(Lane& t, const WarpControl& control) {
    for (std::uint32_t place = t.lane(); place < groups_ * simt::kWarpLanes; place += simt::kWarpLanes)
      if (shared_.sqs[place].doorbell != nullptr) unit_.sqs[shared_.sqs[place].index].watch = shared_.watches[place];
    t.sync(t.lanes());
    const std::uint64_t now_ns = t.now_ns() - engine_.clock_start_ns;
    const QueueOrder& order = control.order(unit_);
    groups_ = (order.places + simt::kWarpLanes - 1) / simt::kWarpLanes;
    for (std::uint32_t place = t.lane(); place < groups_ * simt::kWarpLanes; place += simt::kWarpLanes) {
      HotSq hot{};
      DoorbellWatch watch{};
      const std::uint32_t at = place < order.places ? order.queues[place] : kMaxQueuesPerUnit;
      if (at != kMaxQueuesPerUnit && unit_.states[at].load(t) == QueueState::active) {
        const DeviceSq& sq = unit_.sqs[at];
        hot.doorbell = sq.doorbell;
        hot.ring = sq.ring;
        hot.entries = sq.entries;
        hot.head = sq.head.load(t, Order::relaxed);
        hot.tail = hot.head;
        hot.bad_tail = sq.bad_tail;
        hot.index = static_cast<std::uint16_t>(at);
        hot.controller = sq.controller;
        hot.burst = static_cast<std::uint8_t>(control.tables(sq.controller).burst);
        watch = sq.watch;
        // A new queue: nobody has rung before its creation was answered.
        if (watch.unseen_ns == 0) watch.unseen_ns = now_ns;
      }
      shared_.sqs[place] = hot;
      shared_.watches[place] = watch;
    }
    arbiters_ = order.arbiter_count;
    next_arbiter_ = 0;
    for (std::uint32_t i = t.lane(); i < arbiters_; i += simt::kWarpLanes) shared_.arbiters[i] = order.arbiters[i];
    t.sync(t.lanes());
    if (t.elect(t.lanes())) shared_.dispatched_to.store(t, control.epoch());
  }

  // Polls every queue once. True if anything was fetched.
  FLASHMOB_HD bool pass(Lane& t, const WarpControl& control) {
    std::uint64_t pass_ns = 0;
    if (t.elect(t.lanes())) pass_ns = t.now_ns() - engine_.clock_start_ns;
    pass_ns_ = t.shuffle(t.lanes(), pass_ns, 0);
    // Place after place, or by turns.
    const bool by_weights = arbiters_ != 0;
    const std::uint32_t groups = by_weights ? plan_turns(t) : groups_;
    bool fetched = false;
    for (std::uint32_t group = 0; group < groups; ++group) {
      const std::uint32_t first = group * simt::kWarpLanes;
      std::uint32_t tail = 0;
      std::uint32_t moved = by_weights ? simt::mask_of(lesser_of(shared_.turn_count - first, simt::kWarpLanes))
                                       : poll(t, first + t.lane(), tail);
      for (; moved != 0; moved &= moved - 1) {
        const std::uint32_t at = simt::first_lane(moved);
        const Turn turn = by_weights ? shared_.turns[first + at]
                                     : Turn{static_cast<std::uint16_t>(first + at), shared_.sqs[first + at].burst};
        const std::uint32_t up_to = by_weights ? shared_.sqs[turn.place].tail : t.shuffle(t.lanes(), tail, at);
        fetched |= fetch(t, control, turn.place, up_to, turn.commands);
      }
    }
    return fetched;
  }
  FLASHMOB_HD static std::uint32_t lesser_of(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }

  // The doorbells of this lane's place and those of the others; answers which lanes' queues have moved.
  FLASHMOB_HD std::uint32_t poll(Lane& t, std::uint32_t place, std::uint32_t& tail) {
    const HotSq& hot = shared_.sqs[place];
    tail = hot.head;
    if (hot.doorbell != nullptr)
      tail = simt::WordRef<std::uint32_t, simt::Scope::system>(*hot.doorbell).load(t, Order::acquire);
    if (tail == hot.head) shared_.watches[place].was_empty(pass_ns_);
    return t.ballot(t.lanes(), tail != hot.head && tail != hot.bad_tail);
  }

  // Where classes share by weights: looks at all doorbells, then writes down whose turn it is in what order. Answers
  // how many groups of 32 turns there are.
  FLASHMOB_HD std::uint32_t plan_turns(Lane& t) {
    std::uint32_t any = 0;
    for (std::uint32_t group = 0; group < groups_; ++group) {
      const std::uint32_t place = group * simt::kWarpLanes + t.lane();
      std::uint32_t tail = 0;
      const std::uint32_t moved = poll(t, place, tail);
      any |= moved;
      HotSq& hot = shared_.sqs[place];
      hot.tail = tail;
      // An invalid doorbell gets its turn to be reported.
      const std::uint32_t waiting = tail >= hot.entries ? 1u
                                    : tail >= hot.head  ? tail - hot.head
                                                        : tail + hot.entries - hot.head;
      hot.waiting = ((moved >> t.lane()) & 1) != 0 ? static_cast<std::uint16_t>(waiting) : std::uint16_t{0};
    }
    t.sync(t.lanes());
    if (any == 0) return 0;
    if (t.elect(t.lanes())) {
      shared_.turn_count = 0;
      std::uint32_t room = unit_.rings->free_tail.load(t) - free_head_;
      // Controllers take turns in going first, each by its own rules: the next one where there was no room.
      for (std::uint32_t i = 0; i < arbiters_ && room != 0; ++i) {
        plan_controller(shared_.arbiters[next_arbiter_], room);
        next_arbiter_ = next_arbiter_ + 1 == arbiters_ ? 0 : next_arbiter_ + 1;
      }
    }
    t.sync(t.lanes());
    return (shared_.turn_count + simt::kWarpLanes - 1) / simt::kWarpLanes;
  }

  // By one lane. A round that lack of room has ended goes on in the next pass.
  FLASHMOB_HD void plan_controller(Arbiter& arbiter, std::uint32_t& room) {
    bool cut_short = false;
    serve_by_weights(arbiter.classes, kBatch, [&](std::uint32_t place, std::uint32_t limit) {
      HotSq& hot = shared_.sqs[place];
      std::uint32_t commands = lesser_of(lesser_of(limit, hot.burst), hot.waiting);
      if (commands == 0) return 0u;
      cut_short = room == 0 || shared_.turn_count == kMaxTurns;
      if (cut_short) return 0u;
      commands = lesser_of(commands, room);
      room -= commands;
      hot.waiting = static_cast<std::uint16_t>(hot.waiting - commands);
      shared_.turns[shared_.turn_count++] = {static_cast<std::uint16_t>(place), static_cast<std::uint16_t>(commands)};
      return commands;
    });
    if (!cut_short) begin_round(arbiter.classes);
  }

  // Takes up to `limit` commands of the queue at `place`, whose doorbell stands at `tail`.
  FLASHMOB_HD bool fetch(Lane& t, const WarpControl& control, std::uint32_t place, std::uint32_t tail,
                         std::uint32_t limit) {
    const std::uint32_t entries = shared_.sqs[place].entries;
    const std::uint32_t head = shared_.sqs[place].head;
    DeviceSq& sq = unit_.sqs[shared_.sqs[place].index];
    if (tail >= entries) {
      if (t.elect(t.lanes())) {
        shared_.sqs[place].bad_tail = sq.bad_tail = tail;
        unit_.fidelity[control.phase()].bad_doorbells.fetch_add(t, 1, Order::relaxed);
        report(t, engine_, tail, std::uint64_t{sq.sqid} << 32, kBadDoorbell | (std::uint64_t{sq.controller} << 40));
      }
      t.sync(t.lanes());
      return false;
    }
    const std::uint32_t waiting = tail >= head ? tail - head : tail + entries - head;
    std::uint32_t count = waiting < limit ? waiting : limit;
    t.sync(t.lanes());  // with the lane that has looked at this queue before
    if (t.elect(t.lanes())) {
      if (engine_.rests) shared_.watches[place].was_empty(engine_.control->quiet_ns.load(t, Order::relaxed));
      shared_.watches[place].shows(tail, pass_ns_);
    }
    count = lesser_of(count, room_for(t, count));
    t.sync(t.lanes());  // with the lane that has acquired the doorbell, and the one that has acquired the free slots
    if (count == 0) return false;
    // Neighbouring lanes load neighbouring 16 bytes; the commands are put together in shared memory.
    constexpr std::uint32_t kChunks = sizeof(nvme::Sqe) / sizeof(Chunk);
    auto* const to = reinterpret_cast<Chunk*>(shared_.fetched);
    const auto* const from = reinterpret_cast<const Chunk*>(shared_.sqs[place].ring);
    Chunk held[kChunks] = {};  // all on their way before the first is needed
    for (std::uint32_t i = 0; i < kChunks; ++i) {
      const std::uint32_t chunk = i * simt::kWarpLanes + t.lane();
      std::uint32_t entry = head + chunk / kChunks;
      if (entry >= entries) entry -= entries;
      if (chunk / kChunks < count) held[i] = from[entry * kChunks + chunk % kChunks];
    }
    for (std::uint32_t i = 0; i < kChunks; ++i) {
      const std::uint32_t chunk = i * simt::kWarpLanes + t.lane();
      if (chunk / kChunks < count) to[chunk] = held[i];
    }
    std::uint64_t now_ns = 0;
    if (t.elect(t.lanes())) {
      now_ns = t.now_ns() - engine_.clock_start_ns;
      const std::uint32_t next = head + count < entries ? head + count : head + count - entries;
      shared_.sqs[place].head = next;
      sq.head.store(t, next, Order::relaxed);
      sq.fetched.fetch_add(t, count, Order::relaxed);
      record_waits(t, control, place, tail, head, count, now_ns);
      if (engine_.has_statistics) {
        DeviceFidelity& sums = unit_.fidelity[control.phase()];
        sums.fetches.fetch_add(t, 1, Order::relaxed);
        if (count != waiting) sums.left_behind.fetch_add(t, 1, Order::relaxed);
      }
    }
    now_ns = t.shuffle(t.lanes(), now_ns, 0);
    t.sync(t.lanes());
    take_in(t, control, place, count, now_ns);
    return true;
  }

  // How many slots are free, as far as `wanted` asks; what was seen last is asked first.
  FLASHMOB_HD std::uint32_t room_for(Lane& t, std::uint32_t wanted) {
    if (free_seen_ - free_head_ < wanted) {
      if (t.elect(t.lanes())) free_seen_ = unit_.rings->free_tail.load(t);
      free_seen_ = t.shuffle(t.lanes(), free_seen_, 0);
    }
    return free_seen_ - free_head_;
  }

  // By one lane. Dates the entries that were fetched: from the last look at the doorbell that did not show them.
  FLASHMOB_HD void record_waits(Lane& t, const WarpControl& control, std::uint32_t place, std::uint32_t tail,
                                std::uint32_t head, std::uint32_t count, std::uint64_t now_ns) {
    DeviceFidelity& sums = unit_.fidelity[control.phase()];
    const std::uint32_t entries = shared_.sqs[place].entries;
    DoorbellWatch& watch = shared_.watches[place];
    while (count != 0) {
      std::uint64_t since_ns = 0;
      const std::uint32_t together = watch.oldest(head, count, entries, since_ns);
      const std::uint64_t wait_ns = now_ns > since_ns ? now_ns - since_ns : 0;
      if (engine_.has_statistics) {
        sums.wait_ns[histogram_bucket(wait_ns)].fetch_add(t, together, Order::relaxed);
        sums.wait_sum_ns.fetch_add(t, wait_ns * together, Order::relaxed);
      }
      count -= together;
      head = head + together < entries ? head + together : head + together - entries;
      if (count != 0) watch.shows(tail, pass_ns_);
    }
  }

  // Decodes, times and hands over what lies in shared memory.
  FLASHMOB_HD void take_in(Lane& t, const WarpControl& control, std::uint32_t place, std::uint32_t count,
                           std::uint64_t now_ns) {
    const std::uint32_t lane = t.lane();
    const bool mine = lane < count;
    // Asked for first: nothing else waits for it.
    const Slot slot = mine ? unit_.rings->free_slots[(free_head_ + lane) & (engine_.slots - 1)] : kNoSlot;
    free_head_ += count;
    const nvme::Sqe& sqe = shared_.fetched[lane];
    Decoded decoded;
    const HotSq& queue = shared_.sqs[place];
    if (mine) decoded = decode(sqe, control.tables(queue.controller));
    // The host engine times those commands of a fetched batch that ask for something first, the others where they are
    // carried out; a stable partition does the same.
    const bool is_first = decoded.is_transfer || decoded.demand.kind != timing::DemandKind::immediate;
    const std::uint32_t first = t.ballot(t.lanes(), mine && is_first);
    const std::uint32_t others = simt::mask_of(count) & ~first;
    const std::uint32_t turn = is_first ? simt::count_lanes(simt::lanes_below(first, lane))
                                        : simt::count_lanes(first) + simt::count_lanes(simt::lanes_below(others, lane));
    if (mine) shared_.demands[turn] = decoded.demand;
    BatchSchedule<Lane>(engine_, shared_).run(t, count, now_ns);
    const std::uint32_t trace = trace_base(t, count);
    if (mine) {
      Request& request = unit_.requests[slot];
      request.target_ns = shared_.targets_ns[turn];
      request.fetched_ns = now_ns;
      request.prp1 = decoded.status == nvme::Status::success ? sqe.prp1 : nvme::starting_lba(sqe);
      request.prp2 = sqe.prp2;
      request.media = decoded.media;
      request.bytes = decoded.bytes;
      request.sq = queue.index;
      request.cid = sqe.cid;
      request.status = nvme::with_do_not_retry(decoded.status);
      request.operation = decoded.operation;
      request.controller = queue.controller;
      request.trace = trace + turn;
      request.nsid = sqe.nsid;
      record(request, sqe);
    }
    t.sync(t.lanes());
    hand_over(t, mine, decoded.operation != Operation::nothing, slot);
  }

  // Requests with data go to the movers, the others to the completer at once.
  FLASHMOB_HD void hand_over(Lane& t, bool mine, bool has_data, Slot slot) {
    const std::uint32_t move = t.ballot(t.lanes(), mine && has_data);
    const std::uint32_t ready = t.ballot(t.lanes(), mine && !has_data);
    Rings& rings = *unit_.rings;
    if (move != 0) {
      if (mine && has_data) {
        const std::uint32_t at = work_tail_ + simt::count_lanes(simt::lanes_below(move, t.lane()));
        rings.work[at & (engine_.slots - 1)].store(t, slot, Order::relaxed);
      }
      work_tail_ += simt::count_lanes(move);
      t.sync(t.lanes());
      if (t.elect(t.lanes())) rings.work_tail.store(t, work_tail_, Order::release);
    }
    if (mine && !has_data) push_ready(t, engine_, rings, ready, slot);
  }

  FLASHMOB_HD std::uint32_t trace_base(Lane& t, std::uint32_t count) {
    if (engine_.trace == nullptr) return 0;
    std::uint32_t base = 0;
    if (t.elect(t.lanes())) base = engine_.trace->count.fetch_add(t, count, Order::relaxed);
    return t.shuffle(t.lanes(), base, 0);
  }
  FLASHMOB_HD void record(const Request& request, const nvme::Sqe& sqe) {
    if (engine_.trace == nullptr || request.trace >= engine_.trace->capacity) return;
    TraceEntry& entry = engine_.trace->entries[request.trace];
    entry.fetched_ns = request.fetched_ns;
    entry.target_ns = request.target_ns;
    entry.sqe = sqe;
    entry.sqid = unit_.sqs[request.sq].sqid;
  }

  const EngineRef& engine_;
  const Unit& unit_;
  UnitShared& shared_;
  std::uint32_t groups_ = 0;     // of 32 places
  std::uint32_t arbiters_ = 0;   // as QueueOrder has it
  std::uint32_t next_arbiter_ = 0;
  std::uint32_t free_head_ = 0;  // slots taken, ever
  std::uint32_t free_seen_ = 0;  // slots given back, ever, as last seen; the same in all lanes
  std::uint32_t work_tail_ = 0;
  std::uint64_t pass_ns_ = 0;  // when the pass began
};

}  // namespace flashmob::gpu::engine
