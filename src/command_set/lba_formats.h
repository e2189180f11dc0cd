// The LBA formats that every namespace can have: 512 and 4096 bytes, without metadata. Pure; no thread rule.
#pragma once

#include <cstdint>

namespace flashmob::command_set {

inline constexpr unsigned kLbaFormats = 2;
constexpr std::uint8_t lba_format_shift(unsigned format) { return format == 0 ? 9 : 12; }
constexpr std::uint32_t lba_format_bytes(unsigned format) { return 1u << lba_format_shift(format); }
constexpr std::uint8_t lba_format_of_shift(std::uint8_t shift) { return shift == 9 ? 0 : 1; }

}  // namespace flashmob::command_set
