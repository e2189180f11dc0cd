// What the lanes of a protocol seed do: commands of every kind to blocks of their own, each checked for the status that
// the script of the SSD (scripted_ssd.h) makes it have, and every byte that comes back compared. Named so that a GPU
// can run it too; the random numbers are the lane's own.
#pragma once

#include <cstdint>

#include "base/rng.h"
#include "flashmob/gpu/ssd.h"

namespace flashmob::gpu::testing {

// What a lane owns: two blocks' worth of memory for data, one for commands that nobody waits for, and its report.
struct alignas(4096) LaneMemory {
  std::uint64_t data[128];
  std::uint64_t scratch[64];
  std::uint64_t content[3];  // what its blocks hold, as far as it knows
  Completion completion;
  Completion forgotten;
  enum Fault : std::uint32_t { none, wrong_status, wrong_data, stale_accepted, unexpected_end } fault;
  std::uint32_t fault_step;
  IoStatus fault_status;
  std::uint32_t deadlines;
  std::uint32_t aborted;
};

struct SeedKernel {
  static constexpr std::uint32_t kBlocksEach = 4;  // the last of which is bad

  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, SsdRef ssd, LaneMemory* memories, std::uint64_t seed, std::uint32_t steps,
                              bool kind, bool may_abort) const {
    LaneMemory& m = memories[t.thread()];
    std::uint64_t random = splitmix64(seed ^ (std::uint64_t{t.thread()} << 32));
    for (std::uint32_t step = 0; step < steps && m.fault == LaneMemory::none; ++step) {
      random = splitmix64(random);
      if (!one(t, ssd, m, random, step)) {
        // A wait has ended before its command has: fine only if the SSD is not kind, or all waits were aborted.
        if (kind && !(may_abort && m.aborted != 0)) fail(m, LaneMemory::unexpected_end, step, {});
        return;
      }
    }
  }

 private:
  FLASHMOB_HD static void fail(LaneMemory& m, LaneMemory::Fault fault, std::uint32_t step, IoStatus status) {
    if (m.fault != LaneMemory::none) return;
    m.fault = fault;
    m.fault_step = step;
    m.fault_status = status;
  }

  // False if a wait has ended by deadline or abort: what the blocks hold is not known then.
  FLASHMOB_HD static bool check(LaneMemory& m, std::uint32_t step, IoStatus got, std::uint16_t field) {
    if (got.kind == IoKind::completed) {
      if ((got.field & 0x7FF) != field || got.ok() != (field == 0)) fail(m, LaneMemory::wrong_status, step, got);
      return true;
    }
    m.deadlines += got.kind == IoKind::deadline || got.kind == IoKind::queues_full;
    m.aborted += got.kind == IoKind::aborted || got.kind == IoKind::refused;
    if (got.kind == IoKind::stale || got.kind == IoKind::pending || got.kind == IoKind::bad_request)
      fail(m, LaneMemory::wrong_status, step, got);
    return false;
  }

  // By token or, for variety, by completion; abandons what it may not wait for any longer.
  template <class Lane>
  FLASHMOB_HD static IoStatus transfer(Lane& t, const SsdRef& ssd, LaneMemory& m, bool announced, bool reads,
                                       std::uint64_t lba, std::uint32_t blocks, std::uint32_t step) {
    if (announced) {
      m.completion.arm(t);
      const IoStatus sent = reads ? ssd.read_into(t, 0, lba, blocks, m.data, m.completion)
                                  : ssd.write_from(t, 0, lba, blocks, m.data, m.completion);
      if (!sent.ok()) return m.completion.finished(t) ? sent : IoStatus{0, IoKind::pending};
      return ssd.wait(t, m.completion);
    }
    const Token token = reads ? ssd.read(t, 0, lba, blocks, m.data) : ssd.write(t, 0, lba, blocks, m.data);
    const IoStatus status = token.wait(t);
    if (status.in_flight()) {
      token.abandon(t);
    } else if (token.submitted()) {
      // Its slot may be anybody's by now.
      if (!token.test(t) || token.status(t).kind != IoKind::stale) fail(m, LaneMemory::stale_accepted, step, status);
    }
    return status;
  }

  template <class Lane>
  FLASHMOB_HD static IoStatus wait(Lane& t, const Token& token) {
    const IoStatus status = token.wait(t);
    if (status.in_flight()) token.abandon(t);
    return status;
  }

  FLASHMOB_HD static void fill(LaneMemory& m, std::uint32_t blocks, std::uint64_t value) {
    for (std::uint32_t i = 0; i < blocks * 64; ++i) m.data[i] = value == 0 ? 0 : value + i;
  }
  FLASHMOB_HD static bool holds(const std::uint64_t* block, std::uint64_t value, std::uint32_t offset) {
    for (std::uint32_t i = 0; i < 64; ++i) {
      if (block[i] != (value == 0 ? 0 : value + offset + i)) return false;
    }
    return true;
  }

  template <class Lane>
  FLASHMOB_HD static bool one(Lane& t, const SsdRef& ssd, LaneMemory& m, std::uint64_t random, std::uint32_t step) {
    const std::uint64_t first = std::uint64_t{t.thread()} * kBlocksEach;
    const auto which = static_cast<std::uint32_t>((random >> 8) % 3);
    const bool announced = (random >> 16) % 3 == 0;
    switch (random % 12) {
      case 0:
      case 1:
      case 2: {
        const std::uint64_t value = random | 1;
        fill(m, 1, value);
        const IoStatus status = transfer(t, ssd, m, announced, false, first + which, 1, step);
        m.content[which] = value;
        return check(m, step, status, 0);
      }
      case 3:
      case 4:
      case 5: {
        fill(m, 1, ~random);
        if (!check(m, step, transfer(t, ssd, m, announced, true, first + which, 1, step), 0)) return false;
        if (!holds(m.data, m.content[which], 0)) fail(m, LaneMemory::wrong_data, step, {});
        return true;
      }
      case 6: {  // two blocks at once
        fill(m, 2, ~random);
        if (!check(m, step, transfer(t, ssd, m, announced, true, first, 2, step), 0)) return false;
        if (!holds(m.data, m.content[0], 0) || !holds(m.data + 64, m.content[1], 0))
          fail(m, LaneMemory::wrong_data, step, {});
        return true;
      }
      case 7:  // a bad block
        return check(m, step, transfer(t, ssd, m, announced, which != 0, first + 3, 1, step),
                     which != 0 ? 0x281 : 0x280);
      case 8:  // beyond the end, far beyond 32 bits
        return check(m, step, transfer(t, ssd, m, announced, true, 0x8'0000'0000 + first, 1, step), 0x080);
      case 9: {
        const Token token =
            announced ? ssd.write_zeroes(t, 0, first + which, 1) : ssd.deallocate(t, 0, first + which, 1);
        m.content[which] = 0;
        return check(m, step, wait(t, token), 0);
      }
      case 10:
        return check(m, step, wait(t, ssd.flush(t, 0)), 0);
      default: {  // nobody waits for the one, and the other is refused without being sent
        if (ssd.read(t, 0, first, 300, m.data).wait(t).kind != IoKind::bad_request ||
            ssd.read(t, 1, first, 1, m.data).wait(t).kind != IoKind::bad_request)
          fail(m, LaneMemory::wrong_status, step, {});
        if (announced && m.forgotten.finished(t)) {
          m.forgotten.arm(t);
          ssd.read_into(t, 0, first, 1, m.scratch, m.forgotten);
        } else {
          ssd.read(t, 0, first, 1, m.scratch).abandon(t);
        }
        return true;
      }
    }
  }
};

}  // namespace flashmob::gpu::testing
