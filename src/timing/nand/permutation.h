// A pseudo-random permutation of [0, count) that is calculated, not stored: a Feistel network, walked until it falls
// within.
#pragma once

#include <bit>
#include <cstdint>

namespace flashmob::timing::nand {

class Permutation {
 public:
  Permutation(std::uint64_t count, std::uint64_t seed) : count_(count), seed_(seed) {
    half_bits_ = (static_cast<unsigned>(std::bit_width(count)) + 1) / 2;
    half_mask_ = (std::uint64_t{1} << half_bits_) - 1;
  }
  std::uint64_t operator()(std::uint64_t i) const {
    do i = shuffled(i);
    while (i >= count_);
    return i;
  }

 private:
  std::uint64_t shuffled(std::uint64_t i) const {
    std::uint64_t left = i >> half_bits_, right = i & half_mask_;
    for (std::uint64_t round = 1; round <= 4; ++round) {
      std::uint64_t mixed = (right + seed_ * round) * 0x9E37'79B9'7F4A'7C15u;
      mixed = (mixed ^ (mixed >> 29)) * 0xBF58'476D'1CE4'E5B9u;
      const std::uint64_t next = left ^ ((mixed >> 32) & half_mask_);
      left = right;
      right = next;
    }
    return (left << half_bits_) | right;
  }

  std::uint64_t count_;
  std::uint64_t seed_;
  std::uint64_t half_mask_;
  unsigned half_bits_;
};

}  // namespace flashmob::timing::nand
