// Moving the data: warps take up to 32 requests off their unit's work ring, find the memory of each, and copy. One lane
// moves 16 bytes with one load and one store; several loads are under way before the first store, because a load that
// crosses PCIe takes about as long as a thousand instructions.
// For warps 2 and up of a block; all lanes call together. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/engine/data_pointer.h"
#include "flashmob/gpu/engine/decode.h"
#include "flashmob/gpu/engine/dispatcher.h"
#include "flashmob/gpu/engine/layout.h"
#include "flashmob/gpu/engine/warp.h"
#include "nvme/dataset.h"

namespace flashmob::gpu::engine {

// What a warp moves at once: 16 bytes a lane.
inline constexpr std::uint32_t kStripeBytes = simt::kWarpLanes * sizeof(Chunk);

FLASHMOB_HD inline bool is_aligned(const void* a, const void* b) {
  return ((reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b)) & (sizeof(Chunk) - 1)) == 0;
}

// Copies by the whole warp. Buffers of NVMe begin at multiples of four bytes at least, and have so many.
template <class Lane>
FLASHMOB_HD void copy_bytes(Lane& t, std::byte* to, const std::byte* from, std::uint32_t bytes) {
  if (!is_aligned(to, from)) {
    auto* const out = reinterpret_cast<std::uint32_t*>(to);
    const auto* const in = reinterpret_cast<const std::uint32_t*>(from);
    for (std::uint32_t i = t.lane(); i < bytes / 4; i += simt::kWarpLanes) out[i] = in[i];
    return;
  }
  constexpr std::uint32_t kInFlight = 4;
  auto* const out = reinterpret_cast<Chunk*>(to);
  const auto* const in = reinterpret_cast<const Chunk*>(from);
  constexpr std::uint32_t kChunkBytes = sizeof(Chunk);
  const std::uint32_t chunks = bytes / kChunkBytes;
  std::uint32_t at = t.lane();
  for (; at + (kInFlight - 1) * simt::kWarpLanes < chunks; at += kInFlight * simt::kWarpLanes) {
    Chunk held[kInFlight];
    for (std::uint32_t i = 0; i < kInFlight; ++i) held[i] = in[at + i * simt::kWarpLanes];
    for (std::uint32_t i = 0; i < kInFlight; ++i) out[at + i * simt::kWarpLanes] = held[i];
  }
  for (; at < chunks; at += simt::kWarpLanes) out[at] = in[at];
  // A page's piece of a transfer at an odd multiple of four bytes has a few bytes more.
  const std::uint32_t rest = chunks * kChunkBytes + t.lane() * 4;
  if (rest < bytes) *reinterpret_cast<std::uint32_t*>(to + rest) = *reinterpret_cast<const std::uint32_t*>(from + rest);
}

template <class Lane>
FLASHMOB_HD void zero_bytes(Lane& t, std::byte* to, std::uint64_t bytes) {
  auto* const out = reinterpret_cast<Chunk*>(to);  // whole blocks
  for (std::uint64_t i = t.lane(); i < bytes / sizeof(Chunk); i += simt::kWarpLanes) out[i] = Chunk{0, 0};
}

// This lane's share of a comparison by the whole warp.
template <class Lane>
FLASHMOB_HD bool differs(Lane& t, const std::byte* a, const std::byte* b, std::uint32_t bytes) {
  const auto* const left = reinterpret_cast<const std::uint32_t*>(a);
  const auto* const right = reinterpret_cast<const std::uint32_t*>(b);
  bool differs = false;
  for (std::uint32_t i = t.lane(); i < bytes / 4; i += simt::kWarpLanes) differs |= left[i] != right[i];
  return differs;
}

template <class Lane>
class Mover {
 public:
  using Order = simt::Order;

  FLASHMOB_HD Mover(const EngineRef& engine, const Unit& unit, UnitShared& shared)
      : engine_(engine), unit_(unit), shared_(shared) {}

  // Until the dispatcher has gone and its work is done, or the host stops everything.
  FLASHMOB_HD void run(Lane& t) {
    WarpControl control(t, engine_);
    for (;;) {
      // The dispatcher goes when the host has said so. Asked first: an empty ring after that stays empty.
      const bool last = control.run() != Run::on && dispatcher_gone(t);
      const bool worked = pass(t, control);
      if ((last && !worked) || control.run() == Run::stop) return;
      control.between(t, worked);
    }
  }

 private:
  FLASHMOB_HD bool dispatcher_gone(Lane& t) {
    bool gone = false;
    if (t.elect(t.lanes())) gone = shared_.dispatcher_gone.load(t) != 0;
    return t.ballot(t.lanes(), gone) != 0;
  }

  // Claims and moves up to a batch. False if there was nothing.
  FLASHMOB_HD bool pass(Lane& t, const WarpControl& control) {
    Rings& rings = *unit_.rings;
    const std::uint32_t lanes = t.lanes();
    std::uint64_t claim = 0;  // where, and how many
    if (t.elect(lanes)) {
      // Acquired, as the tail is: a tail from before the head that another mover has set would lie behind it.
      const std::uint32_t head = rings.work_head.load(t);
      const std::uint32_t there = rings.work_tail.load(t) - head;
      claim = head | (std::uint64_t{there < kBatch ? there : kBatch} << 32);
    }
    claim = t.shuffle(lanes, claim, 0);
    const auto count = static_cast<std::uint32_t>(claim >> 32);
    if (count == 0) return false;
    auto head = static_cast<std::uint32_t>(claim);
    t.sync(lanes);  // with the lane that has acquired the tail
    // Read before they are claimed: until then their places cannot be written again.
    Slot slot = kNoSlot;
    if (t.lane() < count) slot = rings.work[(head + t.lane()) & (engine_.slots - 1)].load(t, Order::relaxed);
    bool got = false;
    t.sync(lanes);  // all have read
    if (t.elect(lanes)) got = rings.work_head.compare_exchange(t, head, head + count);
    if (t.ballot(lanes, got) == 0) return true;  // another mover has taken them: look again at once
    move(t, control, count, slot);
    return true;
  }

  FLASHMOB_HD void move(Lane& t, const WarpControl& control, std::uint32_t count, Slot slot) {
    const std::uint32_t lanes = t.lanes();
    Request request{};
    if (t.lane() < count) request = unit_.requests[slot];
    const Tables& tables = control.tables(request.controller);
    const bool is_transfer = request.operation == Operation::read || request.operation == Operation::write;
    // The common case, everything in one page: each lane finds its own request's memory.
    Page page;
    if (is_transfer) page = first_page(tables, request.prp1, request.bytes, request.operation == Operation::read);
    const bool single = is_transfer && page.status == nvme::Status::success && page.bytes == request.bytes;
    std::byte* const to = request.operation == Operation::read ? page.memory : request.media;
    const std::byte* const from = request.operation == Operation::read ? request.media : page.memory;
    copy_singles(t, t.ballot(lanes, single), to, from, request.bytes);

    nvme::Status status = nvme::Status::success;
    for (std::uint32_t left = t.ballot(lanes, t.lane() < count && !single); left != 0; left &= left - 1) {
      const std::uint32_t source = simt::first_lane(left);
      const nvme::Status found =
          move_one(t, control.tables(t.shuffle(lanes, std::uint32_t{request.controller}, source)), source, request);
      if (t.lane() == source) status = found;
    }
    if (t.lane() < count) {
      if (status != nvme::Status::success) unit_.requests[slot].status = nvme::with_do_not_retry(status);
    }
    t.sync(lanes);  // what other lanes have moved of a request is moved before it is ready
    if (t.lane() < count) push_ready(t, engine_, *unit_.rings, simt::mask_of(count), slot);
  }

  // Copies the requests of the lanes in `mask`, four of them at a time where they are short.
  FLASHMOB_HD void copy_singles(Lane& t, std::uint32_t mask, std::byte* to, const std::byte* from,
                                std::uint32_t bytes) {
    constexpr std::uint32_t kInFlight = 4;
    const std::uint32_t lanes = t.lanes();
    const bool is_short = bytes <= kStripeBytes && is_aligned(to, from);
    std::uint32_t short_ones = t.ballot(lanes, is_short) & mask;
    for (std::uint32_t long_ones = mask & ~short_ones; long_ones != 0; long_ones &= long_ones - 1) {
      const std::uint32_t source = simt::first_lane(long_ones);
      std::byte* const out = t.shuffle(lanes, to, source);
      const std::byte* const in = t.shuffle(lanes, from, source);
      copy_bytes(t, out, in, t.shuffle(lanes, bytes, source));
    }
    while (short_ones != 0) {
      Chunk held[kInFlight];
      Chunk* out[kInFlight];
      for (std::uint32_t i = 0; i < kInFlight; ++i) {
        out[i] = nullptr;
        if (short_ones == 0) continue;
        const std::uint32_t source = simt::first_lane(short_ones);
        short_ones &= short_ones - 1;
        std::byte* const target = t.shuffle(lanes, to, source);
        const auto* const in = reinterpret_cast<const Chunk*>(t.shuffle(lanes, from, source));
        if (t.lane() * sizeof(Chunk) >= t.shuffle(lanes, bytes, source)) continue;
        out[i] = reinterpret_cast<Chunk*>(target) + t.lane();
        held[i] = in[t.lane()];
      }
      for (std::uint32_t i = 0; i < kInFlight; ++i)
        if (out[i] != nullptr) *out[i] = held[i];
    }
  }

  // Any other request, by the whole warp: that of lane `source`.
  FLASHMOB_HD nvme::Status move_one(Lane& t, const Tables& tables, std::uint32_t source, const Request& held) {
    const std::uint32_t lanes = t.lanes();
    const auto operation = t.shuffle(lanes, held.operation, source);
    std::byte* const media = t.shuffle(lanes, held.media, source);
    const std::uint32_t bytes = t.shuffle(lanes, held.bytes, source);
    if (operation == Operation::zero) {
      zero_bytes(t, media, bytes);
      return nvme::Status::success;
    }
    const std::uint64_t prp1 = t.shuffle(lanes, held.prp1, source);
    const std::uint64_t prp2 = t.shuffle(lanes, held.prp2, source);
    if (operation == Operation::deallocate || operation == Operation::check_ranges)
      return deallocate(t, tables, operation, media, bytes, prp1, prp2);

    const bool for_write = operation == Operation::read;
    const Page first = first_page(tables, prp1, bytes, for_write);
    if (first.status != nvme::Status::success) return first.status;
    const Page later = later_page(tables, prp2, bytes - first.bytes, t.lane(), for_write);
    // Nothing is moved before all of the list is found right; the first wrong entry says what is wrong.
    if (const std::uint32_t wrong = t.ballot(lanes, later.status != nvme::Status::success); wrong != 0)
      return t.shuffle(lanes, later.status, simt::first_lane(wrong));
    bool different = exchange_page(t, operation, first.memory, media, first.bytes);
    std::uint32_t at = first.bytes;
    for (std::uint32_t lane = 0; at < bytes; ++lane) {
      std::byte* const memory = t.shuffle(lanes, later.memory, lane);
      const std::uint32_t piece = t.shuffle(lanes, later.bytes, lane);
      different |= exchange_page(t, operation, memory, media + at, piece);
      at += piece;
    }
    return t.ballot(lanes, different) != 0 ? nvme::Status::compare_failure : nvme::Status::success;
  }

  // Moves or compares one page's piece; true if this lane found a difference.
  FLASHMOB_HD bool exchange_page(Lane& t, Operation operation, std::byte* memory, std::byte* media,
                                 std::uint32_t bytes) {
    if (operation == Operation::compare) return differs(t, memory, media, bytes);
    if (operation == Operation::read)
      copy_bytes(t, memory, media, bytes);
    else
      copy_bytes(t, media, memory, bytes);
    return false;
  }

  // Dataset Management, Deallocate: what is deallocated reads as zeroes. All ranges are checked before the first is
  // cleared, and each again when it is: the host may have changed it meanwhile.
  FLASHMOB_HD nvme::Status deallocate(Lane& t, const Tables& tables, Operation operation, std::byte* media,
                                      std::uint32_t ranges, std::uint64_t prp1, std::uint64_t prp2) {
    std::uint32_t index = 0;
    while (index < tables.namespace_count && tables.namespaces[index].base != media) ++index;
    if (index == tables.namespace_count) return nvme::Status::invalid_namespace_or_format;  // detached since
    const DeviceNamespace* const ns = tables.namespaces + index;
    const std::uint32_t bytes = ranges * static_cast<std::uint32_t>(sizeof(nvme::DatasetRange));
    const Page first = first_page(tables, prp1, bytes, false);
    const Page later = later_page(tables, prp2, bytes - first.bytes, 0, false);
    if (first.status != nvme::Status::success || later.status != nvme::Status::success)
      return nvme::Status::data_transfer_error;
    const auto word = [&](std::uint32_t at) {
      const std::byte* const memory = at < first.bytes ? first.memory + at : later.memory + (at - first.bytes);
      return *reinterpret_cast<const volatile std::uint32_t*>(memory);
    };
    for (const bool clears : {false, true}) {
      for (std::uint32_t at = 0; at < bytes; at += sizeof(nvme::DatasetRange)) {
        const std::uint64_t blocks = word(at + 4);
        const std::uint64_t slba = word(at + 8) | (std::uint64_t{word(at + 12)} << 32);
        if (!command_set::is_in_range(*ns, slba, blocks)) return nvme::Status::lba_out_of_range;
        if (clears) zero_bytes(t, media + (slba << ns->lba_shift), blocks << ns->lba_shift);
      }
      if (operation == Operation::check_ranges) break;
      if (!ns->writable) return nvme::Status::namespace_is_write_protected;
    }
    return nvme::Status::success;
  }

  const EngineRef& engine_;
  const Unit& unit_;
  UnitShared& shared_;
};

}  // namespace flashmob::gpu::engine
