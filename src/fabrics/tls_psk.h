// Pre-shared keys of NVMe/TCP over TLS 1.3: how they are written, which identity and which key of TLS follow from them
// (NVMe TCP transport 1.1, the chapter on secure channels). Cryptography is OpenSSL's. Plain values; no thread rule.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fabrics/dhchap_crypto.h"
#include "nvme/fabrics.h"

namespace flashmob::fabrics {

// The two whom a key is for.
struct PskParties {
  std::string host_nqn;
  std::string subsystem_nqn;

  bool operator==(const PskParties&) const = default;
};

// What the identity of a PSK says: of a retained one, which is derived from a configured key, or of one that an
// authentication has generated. Version 0 has no digest.
struct PskIdentity {
  unsigned version = 1;
  nvme::AuthHash hash = nvme::AuthHash::sha256;
  PskParties parties;
  std::string digest;
  bool generated = false;
};
std::string text_of(const PskIdentity& identity);
// Nothing if this is not the identity of an NVMe/TCP host.
std::optional<PskIdentity> parse_psk_identity(std::string_view text);

// What TLS is given. The hash decides about the cipher suite: SHA-256 goes with AES-128-GCM, SHA-384 with AES-256-GCM.
struct TlsPsk {
  PskIdentity identity;
  SecretBytes key;
};

// The PSK that follows from an authentication with a Diffie-Hellman exchange (NVMe Base 2.0c, 8.13.5.9): of the hash of
// what both ends then know, and of the challenges of controller and host.
TlsPsk generated_psk(nvme::AuthHash hash, const PskParties& parties, std::span<const std::uint8_t> session_key,
                     std::span<const std::uint8_t> controller_challenge, std::span<const std::uint8_t> host_challenge);

// A key as hosts and targets are configured with: "NVMeTLSkey-1:hh:base64 of key and CRC-32:".
class TlsKey {
 public:
  enum class Derivation : std::uint8_t {
    standard,
    // nvme-cli without the correction of 2025 leaves out the lengths of label and context and writes that of the key in
    // the machine's byte order.
    nvme_cli,
  };

  // Throws ConfigError, which does not repeat the key.
  explicit TlsKey(std::string_view text);
  // Of its identities.
  nvme::AuthHash hash() const { return hash_; }
  TlsPsk psk(const PskParties& parties, unsigned version = 1, Derivation derivation = Derivation::standard) const;
  // The PSK that a host has called so; nothing if it is not one of this key's.
  std::optional<TlsPsk> find(const PskIdentity& identity) const;

 private:
  Bytes key_;
  nvme::AuthHash hash_;
  bool transformed_;  // for each host; false: used as it is
};

}  // namespace flashmob::fabrics
