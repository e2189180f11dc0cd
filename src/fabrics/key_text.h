// Secrets as people pass them on: base64 of the bytes and, after them, their CRC-32.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flashmob::fabrics {

using Bytes = std::vector<std::uint8_t>;

struct KeyText {
  Bytes key;
  bool checksum_good;
};

// Nothing if this is no base64, or too short for a checksum.
std::optional<KeyText> parse_key_text(std::string_view base64);
// Without a checksum, which digests in PSK identities do not have.
std::string to_base64(std::span<const std::uint8_t> bytes);

}  // namespace flashmob::fabrics
