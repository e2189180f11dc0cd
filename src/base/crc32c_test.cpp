#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace flashmob {
namespace {

// One bit at a time, straight from the definition.
std::uint32_t by_definition(const std::vector<std::uint8_t>& data, std::size_t from, std::size_t length) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (std::size_t i = from; i < from + length; ++i) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82F63B78 : crc >> 1;
  }
  return ~crc;
}

std::vector<std::uint8_t> noise(std::size_t bytes) {
  std::vector<std::uint8_t> data(bytes);
  std::uint32_t x = 12345;
  for (auto& byte : data) {
    x = x * 1664525 + 1013904223;
    byte = static_cast<std::uint8_t>(x >> 24);
  }
  return data;
}

// RFC 3720, appendix B.4.
TEST(Crc32c, GivesThePublishedValues) {
  std::vector<std::uint8_t> data(32, 0);
  EXPECT_EQ(crc32c(0, data.data(), data.size()), 0x8A9136AAu);
  data.assign(32, 0xFF);
  EXPECT_EQ(crc32c(0, data.data(), data.size()), 0x62A8AB43u);
  for (std::uint8_t i = 0; i < 32; ++i) data[i] = i;
  EXPECT_EQ(crc32c(0, data.data(), data.size()), 0x46DD794Eu);
  for (std::uint8_t i = 0; i < 32; ++i) data[i] = static_cast<std::uint8_t>(31 - i);
  EXPECT_EQ(crc32c(0, data.data(), data.size()), 0x113FDB5Cu);
  EXPECT_EQ(crc32c(0, "123456789", 9), 0xE3069283u);
  EXPECT_EQ(crc32c_tables(0, "123456789", 9), 0xE3069283u);
  EXPECT_EQ(crc32c(0, nullptr, 0), 0u);
}

// Every length around the block sizes, from unaligned addresses.
TEST(Crc32c, InstructionAndTablesAgreeWithTheDefinition) {
  const std::vector<std::uint8_t> data = noise(9000);
  for (std::size_t length = 0; length < 1100; ++length) {
    const std::size_t from = length % 9;
    const std::uint32_t expected = by_definition(data, from, length);
    ASSERT_EQ(crc32c(0, data.data() + from, length), expected) << length;
    ASSERT_EQ(crc32c_tables(0, data.data() + from, length), expected) << length;
  }
  for (const std::size_t length : {4079u, 4080u, 4081u, 4095u, 4096u, 4097u, 8159u, 8160u, 8161u, 8191u, 8999u}) {
    const std::uint32_t expected = by_definition(data, 1, length - 1);
    ASSERT_EQ(crc32c(0, data.data() + 1, length - 1), expected) << length;
    ASSERT_EQ(crc32c_tables(0, data.data() + 1, length - 1), expected) << length;
  }
}

TEST(Crc32c, PiecesGiveTheDigestOfTheWhole) {
  const std::vector<std::uint8_t> data = noise(6000);
  const std::uint32_t whole = crc32c(0, data.data(), data.size());
  for (std::size_t cut = 0; cut <= data.size(); cut += 37) {
    const std::uint32_t first = crc32c(0, data.data(), cut);
    ASSERT_EQ(crc32c(first, data.data() + cut, data.size() - cut), whole) << cut;
  }
  std::uint32_t bytewise = 0;
  for (const std::uint8_t byte : data) bytewise = crc32c(bytewise, &byte, 1);
  EXPECT_EQ(bytewise, whole);
}

TEST(Crc32c, EveryFlippedBitShows) {
  std::vector<std::uint8_t> data = noise(64);
  const std::uint32_t good = crc32c(0, data.data(), data.size());
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    ASSERT_NE(crc32c(0, data.data(), data.size()), good) << bit;
    data[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
  }
}

}  // namespace
}  // namespace flashmob
