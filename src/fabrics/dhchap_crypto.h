// The arithmetic of DH-HMAC-CHAP (NVMe Base 2.0c, clause 8.13.5): secrets, responses, Diffie-Hellman exponentials.
// Cryptography is OpenSSL's. Objects belong to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabrics/key_text.h"
#include "nvme/fabrics.h"

namespace flashmob::fabrics {

// A secret: wiped from memory at its end.
class SecretBytes : public Bytes {
 public:
  using Bytes::Bytes;
  SecretBytes() = default;
  SecretBytes(Bytes bytes) : Bytes(std::move(bytes)) {}
  SecretBytes(const SecretBytes&) = default;
  SecretBytes(SecretBytes&&) noexcept = default;
  SecretBytes& operator=(SecretBytes other) noexcept {
    swap(other);
    return *this;
  }
  ~SecretBytes();
};

// 32, 48 or 64; 0 for a hash that does not exist.
std::size_t hash_bytes(nvme::AuthHash hash);
Bytes hash_of(nvme::AuthHash hash, std::span<const std::uint8_t> data);
Bytes hmac_of(nvme::AuthHash hash, std::span<const std::uint8_t> key, std::span<const std::uint8_t> data);
void fill_random(std::span<std::uint8_t> out);
// Takes equally long whatever differs.
bool equal_secretly(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

// A secret as hosts and targets are configured with: "DHHC-1:hh:base64 of key and CRC-32:".
class DhchapSecret {
 public:
  // Throws ConfigError.
  explicit DhchapSecret(std::string_view text);
  // The key as the owner of `nqn` uses it.
  Bytes key_for(std::string_view nqn) const;

 private:
  Bytes key_;
  std::optional<nvme::AuthHash> transform_;  // nothing: the key is used as it is
};

// One end of a finite-field Diffie-Hellman exchange (RFC 7919's groups). The null group has empty values.
class DhExchange {
 public:
  explicit DhExchange(nvme::AuthDhGroup group);
  ~DhExchange();
  DhExchange(DhExchange&&) noexcept;
  DhExchange& operator=(DhExchange&&) noexcept;

  // Our exponential, as long as the group's prime, big-endian.
  const Bytes& value() const { return value_; }
  // What both ends then know, padded to the same length; nothing if the peer's value is not one of the group.
  std::optional<SecretBytes> shared(std::span<const std::uint8_t> peer_value) const;

 private:
  struct Key;
  nvme::AuthDhGroup group_;
  std::unique_ptr<Key> key_;
  Bytes value_;
};

// 0 for the null group and for groups that do not exist.
std::size_t dh_value_bytes(nvme::AuthDhGroup group);
constexpr bool is_dh_group(std::uint8_t id) { return id <= static_cast<std::uint8_t>(nvme::AuthDhGroup::ffdhe8192); }

// What a response is made of besides key and hash.
struct DhchapResponse {
  std::span<const std::uint8_t> challenge;
  std::optional<SecretBytes> shared;  // of the DH exchange; nothing with the null group
  std::uint32_t seqnum;
  std::uint16_t t_id;
  std::uint8_t sc_c;
};
Bytes host_response(nvme::AuthHash hash, std::span<const std::uint8_t> key, const DhchapResponse& r,
                    std::string_view host_nqn, std::string_view subsystem_nqn);
Bytes controller_response(nvme::AuthHash hash, std::span<const std::uint8_t> key, const DhchapResponse& r,
                          std::string_view host_nqn, std::string_view subsystem_nqn);

}  // namespace flashmob::fabrics
