// Which I/O comes next: direction, size and place of each request of one stream.
//
// Random streams draw uniformly, by Zipf's law or from a hot and a cold part; sequential streams each walk their own
// share of the namespace, so that many of them do not read the same blocks. All draws come from the given generator
// through integers and comparisons only, so equal seeds give equal streams on every machine.
// Zipf: ranks are drawn exactly by rejection from a staircase above k^-theta whose steps are the buckets of a
// log-linear histogram; a step is chosen with Walker's alias method (Vose, IEEE TSE 17(9), 1991).
//
// Thread rule: one thread per Pattern. After construction nothing allocates or fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "flashmob/bench.h"

namespace flashmob::load {

struct Io {
  std::uint64_t slba;
  std::uint32_t blocks;
  bool is_write;
};

struct PatternConfig {
  std::string rw = "randread";  // read | write | randread | randwrite | rw | randrw
  double read_share = 1.0;      // for rw and randrw
  std::vector<BlockSizeShare> block_sizes{BlockSizeShare{}};
  std::string distribution = "uniform";  // uniform | zipf:THETA | hotcold:SHARE_OF_IO:SHARE_OF_SPACE
  std::uint64_t namespace_blocks = 0;    // in LBAs
  unsigned lba_shift = 9;
  std::uint32_t stream_index = 0;
  std::uint32_t stream_count = 1;
  // Where Zipf's popular blocks lie. Equal for all streams of a run: they share their favourites.
  std::uint64_t placement_seed = 1;
  // Writes say by placement handles, of which there are so many, what is overwritten together: the hot and the cold
  // part, else each stream. 0: they say nothing.
  std::uint32_t placement_handles = 0;
};

// Draws an index with probability proportional to its weight in constant time.
class AliasTable {
 public:
  AliasTable() = default;
  // At least one weight; all finite and above 0.
  explicit AliasTable(const std::vector<double>& weights);
  std::size_t draw(Rng& rng) const {
    const std::size_t cell = rng.below(cells_.size());
    return rng.next() <= cells_[cell].threshold ? cell : cells_[cell].alias;
  }

 private:
  struct Cell {
    std::uint64_t threshold;  // keep the cell's own index up to this value of a 64-bit draw
    std::uint32_t alias;
  };
  std::vector<Cell> cells_;
};

// Draws ranks 0...count-1 with probability proportional to 1 / (rank + 1)^theta. Exact for every theta above 0.
class ZipfSampler {
 public:
  ZipfSampler() = default;
  ZipfSampler(std::uint64_t count, double theta);
  std::uint64_t draw(Rng& rng) const;

 private:
  // The ranks [first, first + width), counted from 1, that share one step of the staircase.
  struct Step {
    std::uint64_t first;
    std::uint64_t width;
    double sure;  // the acceptance probability of the step's last rank: below it no power need be computed
  };
  double theta_ = 0;
  std::vector<Step> steps_;
  AliasTable pick_;
};

// A seeded bijection of [0, count) without visible order: rounds of odd multiplication and shifted xor on the next
// power of two, repeated until the result is inside (twice at most on average).
class Scatter {
 public:
  Scatter() = default;
  Scatter(std::uint64_t count, std::uint64_t seed);
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  static constexpr int kRounds = 3;
  std::uint64_t count_ = 1;
  std::uint64_t mask_ = 0;
  unsigned shift_ = 1;
  std::uint64_t multiplier_[kRounds] = {1, 1, 1};
  std::uint64_t offset_[kRounds] = {0, 0, 0};
};

class Pattern {
 public:
  // Throws ConfigError naming the option and its legal values.
  Pattern(const PatternConfig& config, Rng rng);

  // Whether writes have a placement handle, and which one those of a block have.
  bool places() const { return places_; }
  std::uint16_t handle_of(std::uint64_t slba) const { return slba < hot_end_ ? hot_handle_ : handle_; }

  // Goes on with other draws from here on.
  void draw_from(Rng rng) { rng_ = rng; }

  // Never reaches beyond the namespace. Uniform requests start at a multiple of their size; Zipf and hot/cold ones
  // within a slot of the largest size, at a multiple of their own size from its start.
  Io next() {
    if (plain_) [[likely]]
      return {rng_.below(slots_) * largest_blocks_, largest_blocks_, plain_write_};
    return next_general();
  }

 private:
  enum class Shape : std::uint8_t { sequential, uniform, zipf, hotcold };
  struct Size {
    std::uint32_t blocks;
    std::uint32_t pieces;  // how many fit into a slot of the largest size
    std::uint64_t slots;   // how many fit into the namespace
  };

  void parse_rw(const PatternConfig& config);
  void parse_sizes(const PatternConfig& config);
  void parse_distribution(const PatternConfig& config);
  void place_stream(const PatternConfig& config);
  void choose_handles(const PatternConfig& config);
  Io next_general();
  std::uint64_t next_slot();

  Rng rng_;
  // The common case, one size and one direction drawn uniformly, lives in these.
  bool plain_ = false;
  bool plain_write_ = false;
  std::uint32_t largest_blocks_ = 0;
  std::uint64_t slots_ = 0;  // of the largest size

  Shape shape_ = Shape::uniform;
  double read_share_ = 1.0;
  std::vector<Size> sizes_;
  AliasTable pick_size_;
  ZipfSampler zipf_;
  Scatter scatter_;
  double hot_io_ = 0;
  std::uint64_t hot_slots_ = 0;
  // Sequential: the stream's share in blocks, and the next block.
  std::uint64_t share_begin_ = 0;
  std::uint64_t share_end_ = 0;
  std::uint64_t cursor_ = 0;
  bool places_ = false;
  std::uint16_t handle_ = 0, hot_handle_ = 0;
  std::uint64_t hot_end_ = 0;  // in blocks; nothing lies before it where all are alike
};

}  // namespace flashmob::load
