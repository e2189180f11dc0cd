// How many units of each superblock are valid after a drive was written at random for long, without writing a unit: one
// step for each superblock that is collected. In a step every superblock loses units in proportion to those that are
// valid (binomially, here Poisson's limit of it), as uniform overwrites of them do; victims are chosen by the drive's
// own policy. Erases are counted on the way. (Desnoyers, "Analytic models of SSD write performance", 2014, has the
// limit of many superblocks; this keeps what is due to there being few.)
#pragma once

#include <atomic>
#include <cstdint>

#include "base/rng.h"
#include "timing/nand/superblocks.h"

namespace flashmob::timing::nand {

class SteadyState {
 public:
  // An open superblock of a stream, and how many of its units were written.
  struct Open {
    std::uint32_t superblock = Superblocks::kNone;
    std::uint32_t filled = 0;
  };

  // All superblocks are free; the first fill writes `units` units one after another.
  SteadyState(Superblocks& superblocks, const Params& params, std::uint64_t units);

  // Hosts overwrite the drive's data so many times, if they are many superblocks' worth; fewer times once `cancelled`,
  // unless that is nullptr, is set.
  void write(double drive_writes, const std::atomic<bool>* cancelled);

  const Open& hosts() const { return hosts_; }
  const Open& moved() const { return moved_; }

 private:
  void fill(Open& open, std::uint64_t units);
  void lose(std::uint64_t units);
  std::uint64_t poisson(double mean);

  Superblocks& superblocks_;
  const std::uint32_t count_;
  const std::uint32_t units_per_superblock_;
  const std::uint32_t free_superblocks_;
  const std::uint64_t units_;
  Open hosts_;
  Open moved_;
  Rng rng_;
};

}  // namespace flashmob::timing::nand
