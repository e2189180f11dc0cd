#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace flashmob {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // bit-reversed, as the register is

using ByteTable = std::array<std::uint32_t, 256>;

// kTables[k][b] is what the byte b does to the register when k zero bytes follow it: eight lookups, all independent of
// each other, advance the register by eight bytes.
constexpr std::array<ByteTable, 8> make_tables() {
  std::array<ByteTable, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xFF];
    }
  }
  return tables;
}
constexpr std::array<ByteTable, 8> kTables = make_tables();

std::uint64_t load64(const std::uint8_t* at) {
  std::uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// On the register itself, without the inversions at both ends.
std::uint32_t update_tables(std::uint32_t crc, const std::uint8_t* data, std::size_t length) {
  for (; length >= 8; data += 8, length -= 8) {
    const std::uint64_t word = load64(data) ^ crc;
    crc = 0;
    for (unsigned i = 0; i < 8; ++i) crc ^= kTables[7 - i][(word >> (8 * i)) & 0xFF];
  }
  for (; length > 0; ++data, --length) crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 0xFF];
  return crc;
}

#if defined(__x86_64__)

// Advances a register over a fixed number of zero bytes. That is linear in the register, so it is the sum of what each
// of its four bytes becomes.
class ZeroBytes {
 public:
  explicit ZeroBytes(std::size_t count) {
    std::array<std::uint32_t, 32> bits;
    for (unsigned bit = 0; bit < 32; ++bit) {
      std::uint32_t crc = 1u << bit;
      for (std::size_t i = 0; i < count; ++i) crc = (crc >> 8) ^ kTables[0][crc & 0xFF];
      bits[bit] = crc;
    }
    for (unsigned part = 0; part < 4; ++part) {
      for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t sum = 0;
        for (unsigned bit = 0; bit < 8; ++bit) sum ^= ((byte >> bit) & 1) != 0 ? bits[8 * part + bit] : 0;
        parts_[part][byte] = sum;
      }
    }
  }
  std::uint32_t operator()(std::uint32_t crc) const {
    return parts_[0][crc & 0xFF] ^ parts_[1][(crc >> 8) & 0xFF] ^ parts_[2][(crc >> 16) & 0xFF] ^ parts_[3][crc >> 24];
  }

 private:
  std::array<ByteTable, 4> parts_;
};

// The instruction takes three cycles but one can start in every cycle, so three thirds of a block go side by side and
// are then put together. Long blocks cost little for that; short ones serve what is too small for a long one.
constexpr std::size_t kLongThird = 1360;  // three make 4080 bytes: a 4 KiB payload is one block and two words
constexpr std::size_t kShortThird = 168;

template <std::size_t kThird>
__attribute__((target("sse4.2"))) std::uint32_t update_block(std::uint32_t crc, const std::uint8_t* data) {
  static_assert(kThird % 8 == 0);
  static const ZeroBytes shift(kThird);
  std::uint64_t a = crc;
  std::uint64_t b = 0;
  std::uint64_t c = 0;
  for (std::size_t i = 0; i < kThird; i += 8) {
    a = _mm_crc32_u64(a, load64(data + i));
    b = _mm_crc32_u64(b, load64(data + kThird + i));
    c = _mm_crc32_u64(c, load64(data + 2 * kThird + i));
  }
  const std::uint32_t ab = shift(static_cast<std::uint32_t>(a)) ^ static_cast<std::uint32_t>(b);
  return shift(ab) ^ static_cast<std::uint32_t>(c);
}

__attribute__((target("sse4.2"))) std::uint32_t update_sse42(std::uint32_t crc, const std::uint8_t* data,
                                                             std::size_t length) {
  for (; length >= 3 * kLongThird; data += 3 * kLongThird, length -= 3 * kLongThird)
    crc = update_block<kLongThird>(crc, data);
  for (; length >= 3 * kShortThird; data += 3 * kShortThird, length -= 3 * kShortThird)
    crc = update_block<kShortThird>(crc, data);
  std::uint64_t wide = crc;
  for (; length >= 8; data += 8, length -= 8) wide = _mm_crc32_u64(wide, load64(data));
  crc = static_cast<std::uint32_t>(wide);
  for (; length > 0; ++data, --length) crc = _mm_crc32_u8(crc, *data);
  return crc;
}

using Update = std::uint32_t (*)(std::uint32_t, const std::uint8_t*, std::size_t);

Update best_update() { return __builtin_cpu_supports("sse4.2") ? update_sse42 : update_tables; }

#endif

}  // namespace

std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t length) {
#if defined(__x86_64__)
  static const Update update = best_update();
  return ~update(~crc, static_cast<const std::uint8_t*>(data), length);
#else
  return crc32c_tables(crc, data, length);
#endif
}

std::uint32_t crc32c_tables(std::uint32_t crc, const void* data, std::size_t length) {
  return ~update_tables(~crc, static_cast<const std::uint8_t*>(data), length);
}

}  // namespace flashmob
