// The one random generator: xoshiro256++ (Blackman and Vigna, public domain algorithm), seeded by splitmix64.
// Deterministic on every machine. Not thread-safe; give each actor its own, split from the run's seed.
#pragma once

#include <cstdint>

namespace flashmob {

// One step of splitmix64: a good 64-bit mixer, used for seeding and for hashing addresses.
constexpr std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

class Rng {
 public:
  explicit Rng(std::uint64_t seed = 1) {
    for (auto& word : state_) {
      seed = splitmix64(seed);
      word = seed;
    }
  }

  // Uniform over all 64-bit values.
  std::uint64_t next() {
    const std::uint64_t result = rotl(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotl(state_[3], 45);
    return result;
  }

  // Uniform in [0, bound), bound >= 1: multiply instead of divide; bias below bound / 2^64.
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }

  // Uniform in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  // An independent generator for the actor numbered `stream`.
  Rng split(std::uint64_t stream) { return Rng(splitmix64(next() ^ splitmix64(stream))); }

 private:
  static constexpr std::uint64_t rotl(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  std::uint64_t state_[4];
};

}  // namespace flashmob
