#include "fabrics/key_text.h"

#include <openssl/evp.h>

#include <cstring>

namespace flashmob::fabrics {
namespace {

// CRC-32 as zip has it.
std::uint32_t crc32(std::span<const std::uint8_t> data) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const std::uint8_t byte : data) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

std::optional<Bytes> from_base64(std::string_view text) {
  Bytes out;
  std::uint32_t bits = 0;
  unsigned count = 0;
  std::size_t padding = 0;
  for (const char c : text) {
    std::uint32_t value;
    if (c >= 'A' && c <= 'Z')
      value = static_cast<std::uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z')
      value = static_cast<std::uint32_t>(c - 'a' + 26);
    else if (c >= '0' && c <= '9')
      value = static_cast<std::uint32_t>(c - '0' + 52);
    else if (c == '+')
      value = 62;
    else if (c == '/')
      value = 63;
    else if (c == '=' && ++padding <= 2)
      continue;
    else
      return std::nullopt;
    if (padding != 0) return std::nullopt;
    bits = (bits << 6) | value;
    // Every character but the first of four completes a byte.
    if (++count % 4 == 1) continue;
    out.push_back(static_cast<std::uint8_t>(bits >> ((8 - 2 * (count % 4)) % 8)));
  }
  if ((count + padding) % 4 != 0) return std::nullopt;
  return out;
}

}  // namespace

std::optional<KeyText> parse_key_text(std::string_view base64) {
  constexpr std::size_t kCrcBytes = 4;
  auto bytes = from_base64(base64);
  if (!bytes || bytes->size() < kCrcBytes) return std::nullopt;
  std::uint32_t stored;
  std::memcpy(&stored, bytes->data() + bytes->size() - kCrcBytes, kCrcBytes);
  bytes->erase(bytes->end() - kCrcBytes, bytes->end());
  const bool good = stored == crc32(*bytes);
  return KeyText{std::move(*bytes), good};
}

std::string to_base64(std::span<const std::uint8_t> bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // and the zero that the library appends
  const int length =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes.data(), static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

}  // namespace flashmob::fabrics
