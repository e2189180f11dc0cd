// How a command of a GPU thread ended: the SSD's own status (NVMe Base 2.0c, 3.3.3.2), or why the SSD has not said any.
//
// IoStatus is a value; Completion is a word in global memory that any lane may look at and that whoever reaps the SSD's
// completion finishes. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "flashmob/gpu/simt/word.h"

namespace flashmob::gpu {

enum class IoKind : std::uint8_t {
  completed,  // the SSD has answered: `field` says what
  pending,  // asked for before it was finished
  deadline,  // the wait's time is over; the command is still the SSD's, and so is its memory
  aborted,  // the abort flag was raised; likewise
  queues_full,  // not submitted: no queue had a free slot until the deadline
  refused,  // not submitted: the abort flag was raised
  bad_request,  // not submitted: no such namespace, no blocks, or more than one command can carry
  stale,  // the token's status was already taken
  no_line,  // not asked: no line of the software cache came free until the deadline
};

struct IoStatus {
  std::uint16_t field =
      0;  // status field without the phase tag: code in 7:0, type in 10:8, more in 13, do not retry 14
  IoKind kind = IoKind::completed;

  // No error bit is overlooked: every type and code but zero is a failure.
  FLASHMOB_HD constexpr bool ok() const { return kind == IoKind::completed && (field & 0x7FF) == 0; }
  FLASHMOB_HD constexpr std::uint8_t type() const { return static_cast<std::uint8_t>((field >> 8) & 7); }
  FLASHMOB_HD constexpr std::uint8_t code() const { return static_cast<std::uint8_t>(field & 0xFF); }
  // False if the SSD does not hold the command: it has answered, or was never asked.
  FLASHMOB_HD constexpr bool in_flight() const {
    return kind == IoKind::pending || kind == IoKind::deadline || kind == IoKind::aborted;
  }
  FLASHMOB_HD constexpr bool operator==(const IoStatus& other) const {
    return field == other.field && kind == other.kind;
  }

  // As the upper 24 bits of a word.
  FLASHMOB_HD constexpr std::uint32_t to_bits() const {
    return (std::uint32_t{field} << 16) | (static_cast<std::uint32_t>(kind) << 8);
  }
  FLASHMOB_HD static constexpr IoStatus from_bits(std::uint32_t bits) {
    return {static_cast<std::uint16_t>(bits >> 16), static_cast<IoKind>((bits >> 8) & 0xFF)};
  }
};

// How long a wait may take. 0: as long as the SSD's queues say (QueueLayout::timeout_ns).
struct WaitLimit {
  std::uint64_t timeout_ns = 0;
};

// Where the end of a command is announced to everyone who cares. It stays where it is until it is finished, in memory
// that all lanes and the service see.
struct Completion {
  static constexpr std::uint32_t kFinished = 1;  // bits 7:1 are for whoever owns the word

  simt::Word<std::uint32_t> word{kFinished};

  // To be called before the command is submitted; nobody may be waiting for an earlier one any more.
  template <class Lane>
  FLASHMOB_HD void arm(Lane& t) {
    word.store(t, 0, simt::Order::relaxed);
  }
  // What the command has moved is there for the lane that sees true.
  template <class Lane>
  FLASHMOB_HD bool finished(Lane& t) const {
    return (word.load(t) & kFinished) != 0;
  }
  // kind is pending until it is finished.
  template <class Lane>
  FLASHMOB_HD IoStatus status(Lane& t) const {
    const std::uint32_t bits = word.load(t);
    return (bits & kFinished) != 0 ? IoStatus::from_bits(bits) : IoStatus{0, IoKind::pending};
  }
  template <class Lane>
  FLASHMOB_HD void finish(Lane& t, IoStatus status) {
    word.store(t, status.to_bits() | kFinished);
  }
};
static_assert(sizeof(Completion) == 4);

}  // namespace flashmob::gpu
