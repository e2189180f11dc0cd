#include "queue/scripted_ssd.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.h"
#include "nvme/status.h"
#include "simt/weak_memory.h"

namespace flashmob::gpu::testing {
namespace {

constexpr std::size_t kArenaBytes = 4 << 20;
constexpr std::uint64_t kLongestFetchNs = 150;
constexpr std::uint64_t kStepNs = 200;  // the host is asked so often while time passes

// The parts of a buffer that PRP entries describe, in order (NVMe Base 2.0c, 4.1.1).
template <class Visit>
void walk(const nvme::Sqe& sqe, std::uint64_t bytes, Visit&& visit) {
  std::uint64_t part = std::min(bytes, kPageBytes - sqe.prp1 % kPageBytes);
  visit(reinterpret_cast<std::byte*>(sqe.prp1), part);
  bytes -= part;
  if (bytes == 0) return;
  if (bytes <= kPageBytes) return visit(reinterpret_cast<std::byte*>(sqe.prp2), bytes);
  const auto* list = reinterpret_cast<const std::uint64_t*>(sqe.prp2);
  for (; bytes != 0; ++list) {
    if (reinterpret_cast<std::uint64_t>(list) % kPageBytes == kPageBytes - 8 && bytes > kPageBytes) {
      list = reinterpret_cast<const std::uint64_t*>(*list) - 1;
      continue;
    }
    part = std::min(bytes, kPageBytes);
    visit(reinterpret_cast<std::byte*>(*list), part);
    bytes -= part;
  }
}

}  // namespace

ScriptedSsd::ScriptedSsd() : arena_(kArenaBytes + kPageBytes), media_(kBlocks * kBlockBytes) {}

void ScriptedSsd::reset(std::uint64_t seed, const Unkindness& unkindness) {
  rng_ = Rng(seed);
  unkindness_ = unkindness;
  std::fill(media_.begin(), media_.end(), std::byte{0});
  arena_used_ = 0;
  now_ns_ = 1'000;
  queue_count_ = 0;
  rings_.clear();
  pending_.clear();
  host = nullptr;
  fetched_ = posted_ = lost_ = late_ = 0;
  violations_.clear();
}

std::byte* ScriptedSsd::allocate(std::size_t bytes) {
  const auto base = (reinterpret_cast<std::uint64_t>(arena_.data()) + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::byte* memory = reinterpret_cast<std::byte*>(base) + arena_used_;
  arena_used_ += (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  FLASHMOB_CHECK(arena_used_ <= kArenaBytes);
  std::memset(memory, 0, bytes);
  return memory;
}

SsdRef ScriptedSsd::attach(const QueueLayout& layout) {
  abort_ = new (allocate(sizeof *abort_)) simt::Word<std::uint32_t, simt::Scope::system>();
  queue_count_ = layout.queues;
  rings_.resize(queue_count_);
  queues_ = reinterpret_cast<Queue*>(allocate(queue_count_ * sizeof(Queue)));
  for (std::uint32_t i = 0; i < queue_count_; ++i) {
    new (queues_ + i) Queue();
    lay_out(queues_[i], layout, *abort_, *this);
    queues_[i].sq_doorbell = &rings_[i].sq_doorbell;
    queues_[i].cq_doorbell = &rings_[i].cq_doorbell;
    rings_[i].in_use.resize(layout.entries);
  }
  auto* ns = new (allocate(sizeof(NamespaceInfo))) NamespaceInfo{1, 9, kBlocks};
  return {queues_, queue_count_, ns, 1, layout.max_transfer_bytes};
}

void ScriptedSsd::violate(std::uint32_t index, const std::string& what) {
  // Who breaks one rule often breaks it again and again.
  constexpr std::size_t kMostViolations = 100;
  if (violations_.size() == kMostViolations) return;
  violations_.push_back("queue " + std::to_string(index) + " at " + std::to_string(now_ns_) + " ns: " + what);
}

// Notes what the doorbells say.
bool ScriptedSsd::look(std::uint32_t index) {
  Rings& r = rings_[index];
  const Queue& q = queues_[index];
  bool changed = false;
  if (r.sq_doorbell != r.sq_seen) {
    if (r.sq_doorbell >= q.sq_entries) violate(index, "submission doorbell " + std::to_string(r.sq_doorbell));
    r.sq_seen = r.sq_doorbell % q.sq_entries;
    if (r.fetch_ns == kNever) r.fetch_ns = now_ns_ + rng_.below(kLongestFetchNs);
    changed = true;
  }
  if (r.cq_doorbell != r.cq_head) {
    const std::uint32_t posted = (r.cq_tail + q.cq_entries - r.cq_head) % q.cq_entries;
    const std::uint32_t taken = (r.cq_doorbell + q.cq_entries - r.cq_head) % q.cq_entries;
    if (r.cq_doorbell >= q.cq_entries || taken > posted)
      violate(index, "completion doorbell " + std::to_string(r.cq_doorbell) + " with the tail at " +
                         std::to_string(r.cq_tail));
    r.cq_head = r.cq_doorbell % q.cq_entries;
    changed = true;
  }
  return changed;
}

// Copies some of the entries that were rung for.
bool ScriptedSsd::fetch(std::uint32_t index) {
  Rings& r = rings_[index];
  const Queue& q = queues_[index];
  r.fetch_ns = kNever;
  std::uint32_t there = (r.sq_seen + q.sq_entries - r.sq_head) % q.sq_entries;
  if (there > 1 && rng_.below(3) == 0) there = 1 + static_cast<std::uint32_t>(rng_.below(there));
  for (; there != 0; --there) {
    const nvme::Sqe sqe = q.sq[r.sq_head];
    if (++r.sq_head == q.sq_entries) r.sq_head = 0;
    ++fetched_;
    if (sqe.cid >= q.slot_count || r.in_use[sqe.cid]) {
      violate(index, "command identifier " + std::to_string(sqe.cid) + " is in use or out of range");
      continue;
    }
    if (sqe.nsid != 1) violate(index, "namespace " + std::to_string(sqe.nsid) + " in a command");
    if (++r.in_flight >= q.sq_entries) violate(index, "more commands in flight than the ring can hold");
    r.in_use[sqe.cid] = true;
    std::uint64_t due_ns =
        now_ns_ + unkindness_.shortest_ns + rng_.below(unkindness_.longest_ns - unkindness_.shortest_ns);
    if (unkindness_.lost_one_in != 0 && rng_.below(unkindness_.lost_one_in) == 0) {
      due_ns = kNever;
      ++lost_;
    } else if (unkindness_.late_one_in != 0 && rng_.below(unkindness_.late_one_in) == 0) {
      due_ns = now_ns_ + unkindness_.late_ns;
      ++late_;
    }
    pending_.push_back({due_ns, index, sqe});
  }
  if (r.sq_head != r.sq_seen) r.fetch_ns = now_ns_ + rng_.below(kLongestFetchNs);
  return true;
}

std::uint16_t ScriptedSsd::execute(const nvme::Sqe& sqe) {
  using nvme::NvmOpcode, nvme::Status;
  const auto opcode = static_cast<NvmOpcode>(sqe.opcode);
  if (opcode == NvmOpcode::flush) return 0;
  std::uint64_t lba = nvme::starting_lba(sqe);
  std::uint64_t blocks = nvme::block_count(sqe);
  if (opcode == NvmOpcode::dataset_management) {
    nvme::DatasetRange range;
    simt::detail::note_read(reinterpret_cast<const void*>(sqe.prp1), sizeof range);
    std::memcpy(&range, reinterpret_cast<const void*>(sqe.prp1), sizeof range);
    lba = range.slba;
    blocks = range.nlb;
  }
  if (lba >= kBlocks || blocks > kBlocks - lba) return nvme::with_do_not_retry(Status::lba_out_of_range);
  const bool reads = opcode == NvmOpcode::read;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    if (is_bad(lba + i)) return nvme::to_field(reads ? Status::unrecovered_read_error : Status::write_fault);
  }
  std::byte* at = block(lba);
  const std::uint64_t bytes = blocks * kBlockBytes;
  switch (opcode) {
    case NvmOpcode::read:
    case NvmOpcode::write:
      walk(sqe, bytes, [&](std::byte* part, std::uint64_t length) {
        (reads ? simt::detail::note_write : simt::detail::note_read)(part, length);
        std::memcpy(reads ? part : at, reads ? at : part, length);
        at += length;
      });
      return 0;
    case NvmOpcode::write_zeroes:
    case NvmOpcode::dataset_management:
      std::memset(at, 0, bytes);
      return 0;
    default:
      return nvme::with_do_not_retry(Status::invalid_opcode);
  }
}

// False if the completion queue is full.
bool ScriptedSsd::post(const Pending& pending) {
  Rings& r = rings_[pending.queue];
  const Queue& q = queues_[pending.queue];
  const std::uint32_t next = r.cq_tail + 1 == q.cq_entries ? 0 : r.cq_tail + 1;
  if (next == r.cq_head) return false;
  const std::uint16_t status = execute(pending.sqe);
  nvme::Cqe& entry = q.cq[r.cq_tail];
  entry.sqhd = static_cast<std::uint16_t>(r.sq_head);
  entry.cid = pending.sqe.cid;
  entry.status_phase = static_cast<std::uint16_t>((status << 1) | r.phase);
  r.in_use[pending.sqe.cid] = false;
  --r.in_flight;
  ++posted_;
  r.cq_tail = next;
  if (next == 0) r.phase ^= 1;
  return true;
}

bool ScriptedSsd::pass(std::uint64_t to_ns) {
  bool any = false;
  for (;;) {
    for (std::uint32_t i = 0; i < queue_count_; ++i) {
      any |= look(i);
      if (rings_[i].fetch_ns <= now_ns_) any |= fetch(i);
    }
    for (std::size_t i = 0; i < pending_.size();) {
      if (pending_[i].due_ns <= now_ns_ && post(pending_[i])) {
        pending_[i] = pending_.back();
        pending_.pop_back();
        any = true;
      } else {
        ++i;
      }
    }
    if (host && rng_.below(2) == 0) host();
    if (now_ns_ >= to_ns) return any;
    now_ns_ = std::min({to_ns, std::max(next_event_ns(), now_ns_ + 1), host ? now_ns_ + kStepNs : kNever});
  }
}

std::uint64_t ScriptedSsd::next_event_ns() {
  std::uint64_t next_ns = kNever;
  for (std::uint32_t i = 0; i < queue_count_; ++i) {
    const Rings& r = rings_[i];
    if (r.sq_doorbell != r.sq_seen || r.cq_doorbell != r.cq_head) return now_ns_;
    next_ns = std::min(next_ns, r.fetch_ns);
  }
  // What is due already waits for room in its completion queue, which the doorbell will tell.
  for (const Pending& each : pending_) {
    if (each.due_ns > now_ns_) next_ns = std::min(next_ns, each.due_ns);
  }
  return host ? std::min(next_ns, now_ns_ + kStepNs) : next_ns;
}

void ScriptedSsd::answer_lost() {
  for (Pending& each : pending_) {
    if (each.due_ns != kNever) continue;
    each.due_ns = now_ns_ + rng_.below(1'000);
    --lost_;
  }
}

}  // namespace flashmob::gpu::testing
