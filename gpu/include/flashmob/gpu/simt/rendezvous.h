// Where the lanes of one warp meet on a CPU: collects what each brings to a collective and works out what each gets.
//
// Plain data without waiting or locking: fibres call it as it is, threads under their warp's mutex. Disjoint parts of a
// warp may meet at the same time, and a lane may wait for its whole warp while a part of it still meets; a meeting is
// known by its mask. A result stays until its lane comes to its next meeting, so that a slow lane still finds it when
// fast ones have gone on.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "flashmob/gpu/simt/vocabulary.h"

namespace flashmob::gpu::simt {

// Device code broke a rule of the vocabulary: lanes disagree about a collective.
class DivergenceError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

class Rendezvous {
 public:
  enum class Kind : std::uint8_t { sync, ballot, shuffle, match };

  // Lane `lane` comes with `value` (and, for a shuffle, the lane whose value it wants). True if it was the last: then
  // result() is ready for all of `mask`. Throws DivergenceError.
  bool arrive(std::uint32_t lane, std::uint32_t mask, Kind kind, std::uint64_t value, std::uint32_t source);
  std::uint64_t result(std::uint32_t lane) const { return results_[lane]; }

 private:
  struct Meeting {
    std::uint32_t mask = 0;
    std::uint32_t arrived = 0;  // 0: nobody waits here
    Kind kind = Kind::sync;
  };

  Meeting& meeting_of(std::uint32_t mask);
  void finish(const Meeting& meeting);
  // Those whose value counts.
  template <class Counts>
  std::uint64_t lanes_with(const Meeting& meeting, Counts&& counts) const;

  std::array<Meeting, kWarpLanes> meetings_{};  // a lane waits in one at most, so there is always a free one
  std::array<std::uint64_t, kWarpLanes> values_{};
  std::array<std::uint64_t, kWarpLanes> results_{};
  std::array<std::uint32_t, kWarpLanes> sources_{};
};

}  // namespace flashmob::gpu::simt
