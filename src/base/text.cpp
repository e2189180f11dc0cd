#include "base/text.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace flashmob {
namespace {

// The bytes of the plain character that `text` begins with; 0: there is none.
std::size_t plain_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return 0;
  std::uint32_t code = first & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr std::array<std::uint32_t, 5> kSmallest{0, 0, 0xA0, 0x800, 0x10000};  // 80h...9Fh are control characters
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return code >= kSmallest[bytes] && code <= 0x10FFFF && !surrogate ? bytes : 0;
}

}  // namespace

bool is_plain_text(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = plain_character(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = plain_character(text);
    if (bytes != 0) {
      out += text.substr(0, bytes);
      text.remove_prefix(bytes);
      continue;
    }
    const auto byte = static_cast<std::uint8_t>(text.front());
    (out += "\\x") += kDigits[byte >> 4];
    out += kDigits[byte & 0xF];
    text.remove_prefix(1);
  }
  return out;
}

std::string bytes_in_words(std::uint64_t bytes) {
  const double gib = static_cast<double>(bytes) / (1 << 30);
  char text[32];
  std::snprintf(text, sizeof(text), gib < 1024 ? "%.1f GiB" : "%.1f TiB", gib < 1024 ? gib : gib / 1024);
  return text;
}

}  // namespace flashmob
