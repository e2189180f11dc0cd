// Who copies which pieces of namespaces that lie in memory, where several threads do, so that a block is never seen
// half-written. A thread that waits for one holds none, but for those of one range.
//
// Any thread. One for all namespaces of an engine, by address; engines with one thread that copies need none.
#pragma once

#include <cstdint>

#include "command_set/namespace.h"
#include "media/block_locks.h"

namespace flashmob::command_set {

class PieceLocks final : public media::BlockLocks {
 public:
  // No LBA is larger, and none lies in two pieces.
  static constexpr std::uint64_t kPieceBytes = kBlockBytes;

  PieceLocks() : BlockLocks(4096) {}

  static std::uint64_t piece_of(const Namespace& ns, std::uint64_t media_offset) {
    return (reinterpret_cast<std::uintptr_t>(ns.base) + media_offset) >> kBlockShift;
  }
  static std::uint64_t piece_of(const std::byte* media) {
    return reinterpret_cast<std::uintptr_t>(media) >> kBlockShift;
  }
};

// Holds the locks of a range of media; none where `locks` is nullptr.
class PieceRangeGuard {
 public:
  PieceRangeGuard(PieceLocks* locks, const Namespace& ns, std::uint64_t offset, std::uint64_t bytes) : locks_(locks) {
    if (locks_ == nullptr || bytes == 0) return;
    first_ = PieceLocks::piece_of(ns, offset);
    count_ = PieceLocks::piece_of(ns, offset + bytes - 1) - first_ + 1;
    locks_->lock(first_, count_);
  }
  ~PieceRangeGuard() {
    if (count_ != 0) locks_->unlock(first_, count_);
  }
  PieceRangeGuard(const PieceRangeGuard&) = delete;
  PieceRangeGuard& operator=(const PieceRangeGuard&) = delete;

 private:
  PieceLocks* locks_;
  std::uint64_t first_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace flashmob::command_set
