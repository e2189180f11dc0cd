// A key of the `kv` command set: 1 to 16 bytes, padded with zeroes, and its length. Keys are ordered byte by byte, and
// one that another begins with comes before it: order of the padded bytes, then of the length.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace flashmob::command_set::kv {

struct Key {
  static constexpr std::size_t kMaxBytes = 16;
  static constexpr unsigned kBits = 8 * (kMaxBytes + 1);  // the length is one more byte

  std::array<std::uint8_t, kMaxBytes> bytes{};
  std::uint8_t length = 0;

  // What lies beyond the length does not count.
  static Key of(const std::array<std::uint8_t, kMaxBytes>& bytes, std::uint8_t length) {
    Key key;
    key.length = length;
    std::memcpy(key.bytes.data(), bytes.data(), length);
    return key;
  }

  unsigned bit(unsigned index) const {
    const std::uint8_t byte = index < 8 * kMaxBytes ? bytes[index / 8] : length;
    return (byte >> (7 - index % 8)) & 1u;
  }
  // The first bit in which they differ; kBits: none.
  unsigned difference(const Key& other) const {
    for (std::size_t at = 0; at <= kMaxBytes; ++at) {
      const unsigned differing = at < kMaxBytes ? bytes[at] ^ other.bytes[at] : length ^ other.length;
      if (differing != 0)
        return static_cast<unsigned>(8 * at) + static_cast<unsigned>(std::countl_zero(differing)) - 24u;
    }
    return kBits;
  }

  friend bool operator==(const Key&, const Key&) = default;
  friend auto operator<=>(const Key&, const Key&) = default;
};

}  // namespace flashmob::command_set::kv
