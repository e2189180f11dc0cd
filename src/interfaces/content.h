// What stands in the targets that a study writes: every sector begins with its own place and a word drawn from place
// and seed, so that a read shows whether it got what was written there, and with what seed. The rest is noise.
//
// Pure functions, but for the one that makes a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace flashmob::interfaces {

// Marks the sectors of a block that will be written at `offset`. Whole sectors of 512 bytes.
void stamp(std::span<std::byte> block, std::uint64_t offset, std::uint64_t seed);
bool is_stamped(std::span<const std::byte> block, std::uint64_t offset, std::uint64_t seed);
// Fills with noise.
void fill_noise(std::span<std::byte> bytes, std::uint64_t seed);

// A new file full of stamped noise, on the disk when this returns. Throws ConfigError.
void create_stamped_file(const std::string& path, std::uint64_t size_bytes, std::uint64_t seed);

}  // namespace flashmob::interfaces
