// What a job does for each of its requests: taking completions, choosing what comes next, submitting it.
#include <algorithm>
#include <bit>

#include "load/job.h"
#include "load/job_queue.h"
#include "media/block_content.h"
#include "nvme/dataset.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"
#include "nvme/placement.h"

namespace flashmob::load {
namespace {

// Completions taken from one queue before its next requests are rung, and before the clock is read again.
constexpr std::uint32_t kReapBatch = 128;
// What a slow machine takes for a completion and the request that follows it, and for verifying, for the gap monitor.
constexpr std::uint32_t kRequestNs = 100;
constexpr std::uint32_t kVerifiedBytesPerNs = 2;
// Draws of another address when the verifier cannot hold the first one.
constexpr int kRedraws = 32;
constexpr std::uint64_t kEveryRead = std::uint64_t{1} << 32;
// Ring slots ahead whose line is fetched for writing while this one is filled.
constexpr std::uint32_t kPrefetchSlots = 8;

// Dwords 12 and 13 of a Write, beside its length: the Data Placement directive, and a handle in the first reclaim
// group.
constexpr std::uint64_t placed(std::uint16_t handle) {
  constexpr auto kDirective = static_cast<std::uint64_t>(nvme::Directive::data_placement);
  return kDirective << nvme::kIoDirectiveTypeShift | std::uint64_t{handle} << 48;
}

}  // namespace

void Job::mark_ready(std::size_t index) {
  ready_[index / 64] |= std::uint64_t{1} << (index % 64);
  // Between the interrupt and the look at the queue, what completion and next request touch can come nearer: with many
  // queues and requesters it is far away, and waiting for one queue's after the other's takes longer than all else.
  const Queue& queue = *queues_[index];
  if (const nvme::Cqe* entry = queue.pair.next_completion()) {
    __builtin_prefetch(&queue.slots[entry->cid], 1, 3);
    __builtin_prefetch(entry + 1);  // looked at to find that nothing follows; may lie behind the ring, which is no harm
  }
}

bool Job::poll() {
  if (state_ == State::done) return false;
  now_ns_ = clock_.now_ns();
  gaps_.tick(now_ns_);
  if (state_ == State::fresh) {
    start();
    return true;
  }
  bool worked = false;
  const std::uint64_t completed_before = completed_;
  if (config_.use_interrupts) {
    for (std::size_t word = 0; word < ready_.size(); ++word) {
      for (std::uint64_t bits = std::exchange(ready_[word], 0); bits != 0; bits &= bits - 1) {
        Queue& queue = *queues_[word * 64 + static_cast<std::size_t>(std::countr_zero(bits))];
        for (std::uint32_t reaped = kReapBatch; reaped == kReapBatch; worked |= reaped != 0) reaped = poll_queue(queue);
      }
    }
    if (!plain_closed_loop_)
      for (auto& queue : queues_) worked |= arrivals(*queue);
  } else {
    for (auto& queue : queues_) {
      worked |= poll_queue(*queue) != 0;
      if (!plain_closed_loop_) worked |= arrivals(*queue);
    }
  }
  there_by_ns_ = UINT64_MAX;
  if (config_.ios != 0) count_for_group(completed_ - completed_before);
  advance_state();
  if (worked)
    silent_since_ns_ = 0;
  else if (config_.patience_ns != 0 && outstanding_ != 0 && only_waits(own_deadline_ns())) [[unlikely]]
    wait_in_vain();
  progress_in_flight_.store(outstanding_, std::memory_order_relaxed);
  progress_ios_.store(completed_, std::memory_order_relaxed);
  progress_latency_.store(latency_sum_ns_, std::memory_order_relaxed);
  progress_now_ns_.store(now_ns_, std::memory_order_relaxed);
  return worked;
}

// Once a round, because an update of what others share waits for all stores before it, which are on their way to lines
// far away.
void Job::count_for_group(std::uint64_t completed) {
  if (completed == 0) return;
  config_.group->completed.fetch_add(completed, std::memory_order_relaxed);
  if (state_ == State::measure) config_.group->measured.fetch_add(completed, std::memory_order_relaxed);
}

// Takes up to kReapBatch completions of a queue, submits what follows them, and returns how many it took.
std::uint32_t Job::poll_queue(Queue& queue) {
  const std::uint32_t visible = queue.pair.visible(kReapBatch);
  if (visible == 0) return 0;
  // Read after all of them are known to be there, and no other is taken: an older reading would make a latency too
  // short.
  now_ns_ = clock_.now_ns();
  gaps_.tick(now_ns_);
  Reaped reaped;
  const std::uint32_t count = queue.pair.reap(visible, [&](const nvme::Cqe& entry) { complete(queue, entry, reaped); });
  gaps_.expect(count * kRequestNs);
  completed_ += count;
  answered_ns_ = now_ns_;
  latency_sum_ns_ += reaped.latency_sum_ns;
  outstanding_ -= count;
  if (state_ == State::measure) {
    stats_.failed += reaped.failed;
    for (std::size_t kind = 0; kind < kIoKinds; ++kind) {
      stats_.kinds[kind].ios += reaped.ios[kind];
      stats_.kinds[kind].bytes += reaped.sectors[kind] * media::kSectorBytes;
    }
  }
  queue.pair.ring_sq();
  queue.pair.ring_cq();
  return count;
}

inline void Job::complete(Queue& queue, const nvme::Cqe& entry, Reaped& reaped) {
  const std::uint16_t cid = entry.cid;
  SlotState& slot = queue.slots[cid];
  const std::uint64_t latency_ns = now_ns_ - slot.wanted_ns;
  const auto status = static_cast<std::uint16_t>(entry.status_phase >> 1);
  reaped.latency_sum_ns += latency_ns;
  if (predictor_ != nullptr) [[unlikely]]
    predictor_->completed(static_cast<std::size_t>(slot.kind), slot.sectors, std::min(now_ns_, there_by_ns_));
  if (status == 0) [[likely]] {
    const auto kind = static_cast<std::size_t>(slot.kind);
    ++reaped.ios[kind];
    reaped.sectors[kind] += slot.sectors;
    // In the drain, too: what hung at the end of the measured time is part of it.
    if (state_ != State::ramp) [[likely]] {
      stats_.kinds[kind].latency_ns.record(latency_ns);
      if (config_.tells_waits) stats_.kinds[kind].served_ns.record(latency_ns - slot.waited_ns);
    }
  } else {
    ++reaped.failed;
  }
  if (status != 0 || slot.held) [[unlikely]]
    finish_io(queue, slot, cid, status);
  if (resubmits_ && queue.backlog_ns.empty()) [[likely]]
    submit_pattern(queue, slot, cid, now_ns_);
  else
    next_request(queue, cid);
}

// The rare half of a completion: errors, verification, releasing what the verifier holds.
void Job::finish_io(Queue& queue, SlotState& slot, std::uint16_t cid, std::uint16_t status) {
  if (status != 0) {
    ++stats_.errors[status];
    constexpr std::uint16_t kStatusCodeMask = 0x7ff;
    if ((status & kStatusCodeMask) == nvme::to_field(nvme::Status::transient_transport_error)) ++transport_errors_;
  }
  if (!slot.held) return;
  if (slot.unverified) {
    verifier_.release_unverified(slot.first_sector, slot.sectors);
    slot.unverified = false;
  } else if (slot.is_write()) {
    verifier_.release_write(slot.first_sector, slot.sectors, status == 0);
  } else {
    if (slot.verify && status == 0) {
      gaps_.note_work();
      gaps_.expect(slot.sectors * media::kSectorBytes / kVerifiedBytesPerNs);
      ++stats_.verified;
      const std::byte* data = queue.buffers + queue.stride * cid;
      if (auto mismatch = verifier_.check({data, slot.sectors * media::kSectorBytes}, slot.first_sector)) {
        if (stats_.verify_errors++ == 0) stats_.first_error = *mismatch;
        progress_errors_.store(stats_.verify_errors, std::memory_order_relaxed);
      }
    }
    verifier_.release_read(slot.first_sector, slot.sectors);
  }
  slot.held = false;
}

void Job::next_request(Queue& queue, std::uint16_t cid) {
  const bool stopping = state_ == State::drain;
  if (plain_closed_loop_) [[likely]] {
    if (stopping) {
      queue.free.push_back(cid);
    } else if (queue.backlog_ns.empty()) {
      submit(queue, cid, now_ns_);
    } else {
      // More requesters than slots: the one that waits longest goes first, this one joins the end.
      const std::uint64_t wanted_ns = queue.backlog_ns.front();
      queue.backlog_ns.pop_front();
      queue.backlog_ns.push_back(now_ns_);
      submit(queue, cid, wanted_ns);
      queue.slots[cid].waited_ns = now_ns_ - wanted_ns;
    }
    return;
  }
  queue.free.push_back(cid);
  if (stopping) return;
  if (config_.loop == LoopKind::closed) queue.thinking_ns.push_back(now_ns_ + config_.think_time_ns);
  if (config_.loop == LoopKind::trace_as_fast && queue.trace_next < queue.trace.size()) want(queue, now_ns_);
  if (!queue.backlog_ns.empty() && !queue.free.empty()) {
    const std::uint64_t wanted_ns = queue.backlog_ns.front();
    queue.backlog_ns.pop_front();
    const std::uint16_t next = queue.free.back();
    queue.free.pop_back();
    submit(queue, next, wanted_ns);
    queue.slots[next].waited_ns = now_ns_ - queue.waits_since_ns.front();
    queue.waits_since_ns.pop_front();
  }
}

void Job::want(Queue& queue, std::uint64_t at_ns) {
  if (queue.free.empty() || queue.pair.free_slots() == 0) {
    queue.backlog_ns.push_back(at_ns);
    if (!plain_closed_loop_) queue.waits_since_ns.push_back(now_ns_);
    return;
  }
  const std::uint16_t cid = queue.free.back();
  queue.free.pop_back();
  submit(queue, cid, at_ns);
}

// Submits what is due by the clock; true if anything was.
bool Job::arrivals(Queue& queue) {
  if (state_ == State::drain || state_ == State::done) return false;
  const std::size_t waited = queue.backlog_ns.size();
  const std::uint32_t flew = queue.pair.outstanding();
  if (config_.loop == LoopKind::closed) {
    while (!queue.thinking_ns.empty() && queue.thinking_ns.front() <= now_ns_) {
      const std::uint64_t at_ns = queue.thinking_ns.front();
      queue.thinking_ns.pop_front();
      want(queue, at_ns);
    }
  } else if (config_.loop == LoopKind::open) {
    for (; queue.arrivals->is_due(now_ns_); queue.arrivals->advance()) want(queue, queue.arrivals->next_ns());
  } else if (config_.loop == LoopKind::trace) {
    // The entry itself is taken when it is submitted; those without a slot wait in order.
    while (queue.trace_next + queue.backlog_ns.size() < queue.trace.size()) {
      const std::uint64_t at_ns = queue.trace[queue.trace_next + queue.backlog_ns.size()].time_ns;
      if (at_ns > now_ns_) break;
      want(queue, at_ns);
    }
  }
  queue.pair.ring_sq();
  return queue.pair.outstanding() != flew || queue.backlog_ns.size() != waited;
}

// What the slot's next request is: place, size, direction.
inline void Job::choose(Queue& queue, SlotState& slot) {
  place(slot, queue.pattern.next());
  if (verify_every_ == 0) [[likely]]
    return;
  if (needs_hold(slot)) hold(queue, slot);
  ++queue.drawn;
}

inline void Job::place(SlotState& slot, const Io& io) const {
  const unsigned shift = config_.lba_shift - media::kSectorShift;
  slot.first_sector = io.slba << shift;
  slot.sectors = io.blocks << shift;
  slot.kind = io.is_write ? IoKind::write : IoKind::read;
}

// Has the verifier hold the sectors, or others in their stead if somebody else's request holds them.
void Job::hold(Queue& queue, SlotState& slot) {
  // Only whoever wants every read verified has the load bend to it: in a crowded space, to other places.
  const int draws = verify_every_ >= kEveryRead ? kRedraws : 1;
  const std::uint64_t drawn_sector = slot.first_sector;
  for (int draw = 0; draw < draws; ++draw) {
    slot.held = slot.is_write() ? verifier_.hold_write(slot.first_sector, slot.sectors)
                                : verifier_.hold_read(slot.first_sector, slot.sectors);
    if (slot.held || draw + 1 == draws) break;
    // Only the place is drawn again, and not from the load's own draws: a crowded space must not change the mix of
    // sizes, of reads and writes, or what is asked for next. A larger request's place has room for this one.
    const unsigned shift = config_.lba_shift - media::kSectorShift;
    const Io io = queue.elsewhere.next();
    if (io.blocks << shift < slot.sectors) continue;
    slot.first_sector = io.slba << shift;
  }
  if (slot.first_sector != drawn_sector) note_moved(queue, slot);
  if (slot.held) return;
  // The space is too crowded for its depth: this one goes unverified.
  if (slot.is_write())
    hold_unverified(slot);
  else
    leave_unverified(slot);
}

// A read that was to be verified, and cannot be: a write of the same blocks is in flight.
void Job::leave_unverified(SlotState& slot) {
  slot.verify = false;
  ++stats_.crowded;
}

// The yardstick asks for what is in the list where it was asked for.
void Job::note_moved(Queue& queue, const SlotState& slot) {
  const std::uint64_t slba = slot.first_sector >> (config_.lba_shift - media::kSectorShift);
  stats_.moved += !queue.moved.note({queue.drawn, slba});
}

// Whether this request is to be held: a write where generations count, a read whose turn it is to be verified.
bool Job::needs_hold(SlotState& slot) {
  if (slot.is_write()) return verifier_.tracks_writes();
  verify_acc_ += verify_every_;
  slot.verify = (verify_acc_ >> 32) != 0;
  verify_acc_ &= 0xFFFFFFFF;
  return slot.verify;
}

void Job::hold_unverified(SlotState& slot) {
  verifier_.hold_unverified(slot.first_sector, slot.sectors);
  slot.held = slot.unverified = true;
}

void Job::submit(Queue& queue, std::uint16_t cid, std::uint64_t wanted_ns) {
  SlotState& slot = queue.slots[cid];
  if (queue.trace.empty()) return submit_pattern(queue, slot, cid, wanted_ns);
  slot.wanted_ns = wanted_ns;
  slot.waited_ns = 0;
  ++outstanding_;
  submit_trace(queue, cid, slot);
}

inline void Job::note_submitted(const SlotState& slot) {
  if (predictor_ != nullptr) [[unlikely]]
    predictor_->submitted(static_cast<std::size_t>(slot.kind), slot.sectors, now_ns_);
}

inline void Job::submit_pattern(Queue& queue, SlotState& slot, std::uint16_t cid, std::uint64_t wanted_ns) {
  slot.wanted_ns = wanted_ns;
  slot.waited_ns = 0;
  ++outstanding_;
  choose(queue, slot);
  std::byte* const buffer = queue.buffers + queue.stride * cid;
  const std::uint64_t bytes = std::uint64_t{slot.sectors} * media::kSectorBytes;
  if (slot.is_write() && slot.held && !slot.unverified) verifier_.fill_write({buffer, bytes}, slot.first_sector);
  queue.pair.prefetch_slot(kPrefetchSlots);
  nvme::Sqe& sqe = queue.pair.submit();
  const unsigned shift = config_.lba_shift - media::kSectorShift;
  using Word [[gnu::may_alias]] = std::uint64_t;
  Word* const words = reinterpret_cast<Word*>(&sqe);
  const auto opcode = slot.is_write() ? nvme::NvmOpcode::write : nvme::NvmOpcode::read;
  words[0] = static_cast<std::uint64_t>(opcode) | (std::uint64_t{cid} << 16) | (std::uint64_t{config_.nsid} << 32);
  words[1] = 0;
  words[2] = 0;
  queue.lists->describe(cid, sqe, queue.buffers_iova + queue.stride * cid, bytes);
  words[5] = slot.first_sector >> shift;
  words[6] = (slot.sectors >> shift) - 1;
  words[7] = 0;
  if (slot.is_write() && queue.pattern.places()) [[unlikely]]
    words[6] |= placed(queue.pattern.handle_of(words[5]));
  note_submitted(slot);
}

bool Job::submit_trace(Queue& queue, std::uint16_t cid, SlotState& slot) {
  const TraceIo& io = queue.trace[queue.trace_next++];
  std::byte* const buffer = queue.buffers + queue.stride * cid;
  nvme::Sqe sqe{};
  sqe.cid = cid;
  sqe.nsid = config_.nsid;
  const std::uint64_t slba = io.offset_bytes >> config_.lba_shift;
  const std::uint32_t blocks = io.bytes >> config_.lba_shift;
  slot.first_sector = io.offset_bytes / media::kSectorBytes;
  slot.sectors = io.bytes / media::kSectorBytes;
  slot.kind = io.kind == TraceKind::write ? IoKind::write : io.kind == TraceKind::read ? IoKind::read : IoKind::other;
  slot.verify = false;
  if (io.kind == TraceKind::flush) {
    sqe.opcode = static_cast<std::uint8_t>(nvme::NvmOpcode::flush);
    slot.sectors = 0;
  } else if (io.kind == TraceKind::trim) {
    // One Dataset Management range, deallocate (NVM 1.0c, 3.2.3).
    sqe.opcode = static_cast<std::uint8_t>(nvme::NvmOpcode::dataset_management);
    auto* words = reinterpret_cast<std::uint64_t*>(buffer);
    words[0] = std::uint64_t{blocks} << 32;
    words[1] = slba;
    sqe.cdw11 = 4;
    queue.lists->describe(cid, sqe, queue.buffers_iova + queue.stride * cid, 16);
    hold_unverified(slot);
  } else {
    sqe.opcode = static_cast<std::uint8_t>(slot.is_write() ? nvme::NvmOpcode::write : nvme::NvmOpcode::read);
    sqe.cdw10 = static_cast<std::uint32_t>(slba);
    sqe.cdw11 = static_cast<std::uint32_t>(slba >> 32);
    sqe.cdw12 = blocks - 1;
    queue.lists->describe(cid, sqe, queue.buffers_iova + queue.stride * cid, io.bytes);
    if (verify_every_ != 0) {
      if (!slot.is_write()) {
        if (needs_hold(slot)) slot.held = verifier_.hold_read(slot.first_sector, slot.sectors);
        if (slot.verify && !slot.held) leave_unverified(slot);
      } else if (slot.held = verifier_.hold_write(slot.first_sector, slot.sectors); slot.held) {
        verifier_.fill_write({buffer, io.bytes}, slot.first_sector);
      } else {
        hold_unverified(slot);
      }
    }
  }
  queue.pair.submit() = sqe;
  note_submitted(slot);
  return true;
}

}  // namespace flashmob::load
