#include "fabrics/tls_psk.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace flashmob::fabrics {
namespace {

using nvme::AuthHash;

constexpr std::size_t kMaxContextBytes = 255;  // of HKDF-Expand-Label

[[noreturn]] void bad_key(const std::string& why) {
  throw ConfigError("a TLS key " + why + "; it looks like NVMeTLSkey-1:01:...: (make one with `nvme gen-tls-key`)");
}

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::string hash_text(AuthHash hash) { return {'0', static_cast<char>('0' + static_cast<int>(hash))}; }

// HKDF-Extract without a salt, then HKDF-Expand-Label (RFC 5869; RFC 8446, 7.1) for as many bytes as the hash has,
// which is one block.
Bytes expand_label(AuthHash hash, std::span<const std::uint8_t> secret, std::string_view label,
                   std::string_view context, TlsKey::Derivation derivation) {
  FLASHMOB_CHECK(context.size() <= kMaxContextBytes);
  constexpr std::string_view kPrefix = "tls13 ";
  const bool standard = derivation == TlsKey::Derivation::standard;
  const auto length = static_cast<char>(hash_bytes(hash));
  std::string info = standard ? std::string{'\0', length} : std::string{length, '\0'};
  if (standard) info += static_cast<char>(kPrefix.size() + label.size());
  info.append(kPrefix).append(label);
  if (standard) info += static_cast<char>(context.size());
  info.append(context) += '\1';  // the block's number
  const Bytes no_salt(hash_bytes(hash));
  const SecretBytes extracted = hmac_of(hash, no_salt, secret);
  return hmac_of(hash, extracted, bytes_of(info));
}

// The PSK of TLS that follows from a retained or generated one.
TlsPsk make_psk(PskIdentity identity, std::span<const std::uint8_t> input, TlsKey::Derivation derivation) {
  if (identity.version != 0) {
    const std::string seed = identity.parties.host_nqn + " " + identity.parties.subsystem_nqn + " NVMe-over-Fabrics";
    identity.digest = to_base64(hmac_of(identity.hash, input, bytes_of(seed)));
  }
  const std::string context =
      identity.version == 0 ? text_of(identity) : hash_text(identity.hash) + " " + identity.digest;
  Bytes key = expand_label(identity.hash, input, "nvme-tls-psk", context, derivation);
  return {std::move(identity), std::move(key)};
}

}  // namespace

std::string text_of(const PskIdentity& identity) {
  std::string text = "NVMe";
  text += static_cast<char>('0' + identity.version);
  text += identity.generated ? 'G' : 'R';
  text += hash_text(identity.hash) + " " + identity.parties.host_nqn + " " + identity.parties.subsystem_nqn;
  if (identity.version != 0) text += " " + identity.digest;
  return text;
}

std::optional<PskIdentity> parse_psk_identity(std::string_view text) {
  constexpr std::size_t kHeadBytes = 9;  // "NVMe1R01 "
  if (text.size() < kHeadBytes || !text.starts_with("NVMe")) return std::nullopt;
  PskIdentity found;
  // Nobody makes keys of version 0 any more.
  const bool known = ((text[4] == '0' && text[5] == 'R') || (text[4] == '1' && (text[5] == 'R' || text[5] == 'G'))) &&
                     text[6] == '0' && (text[7] == '1' || text[7] == '2') && text[8] == ' ';
  if (!known) return std::nullopt;
  found.generated = text[5] == 'G';
  found.version = static_cast<unsigned>(text[4] - '0');
  found.hash = static_cast<AuthHash>(text[7] - '0');
  text.remove_prefix(kHeadBytes);
  std::array<std::string*, 3> fields{&found.parties.host_nqn, &found.parties.subsystem_nqn, &found.digest};
  const std::size_t count = found.version == 0 ? 2 : 3;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end = i + 1 == count ? text.size() : text.find(' ');
    if (end == std::string_view::npos || end == 0 || end > nvme::kNqnMaxLength) return std::nullopt;
    fields[i]->assign(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return found;
}

TlsPsk generated_psk(AuthHash hash, const PskParties& parties, std::span<const std::uint8_t> session_key,
                     std::span<const std::uint8_t> controller_challenge, std::span<const std::uint8_t> host_challenge) {
  Bytes challenges(controller_challenge.begin(), controller_challenge.end());
  challenges.insert(challenges.end(), host_challenge.begin(), host_challenge.end());
  const SecretBytes generated = hmac_of(hash, session_key, challenges);
  return make_psk({.version = 1, .hash = hash, .parties = parties, .digest = {}, .generated = true}, generated,
                  TlsKey::Derivation::standard);
}

TlsKey::TlsKey(std::string_view text) {
  constexpr std::string_view kPrefix = "NVMeTLSkey-1:";
  if (!text.starts_with(kPrefix) || text.size() < kPrefix.size() + 4 || text[kPrefix.size() + 2] != ':' ||
      text.back() != ':')
    bad_key("does not have the form that the specification gives it");
  const std::string_view kind = text.substr(kPrefix.size(), 2);
  if (kind[0] != '0' || kind[1] < '0' || kind[1] > '2') bad_key("names a hash other than 00, 01 and 02");
  transformed_ = kind[1] != '0';
  text.remove_prefix(kPrefix.size() + 3);
  text.remove_suffix(1);
  auto found = parse_key_text(text);
  if (!found || (found->key.size() != 32 && found->key.size() != 48))
    bad_key("is not the base64 text of 32 or 48 bytes and their checksum");
  if (!found->checksum_good) bad_key("was mistyped: its checksum does not fit");
  hash_ = found->key.size() == 32 ? AuthHash::sha256 : AuthHash::sha384;
  if (transformed_ && kind[1] - '0' != static_cast<int>(hash_))
    bad_key("is not as long as its hash: 01 goes with 32 bytes, 02 with 48");
  key_ = std::move(found->key);
}

TlsPsk TlsKey::psk(const PskParties& parties, unsigned version, Derivation derivation) const {
  const Bytes retained = transformed_ ? expand_label(hash_, key_, "HostNQN", parties.host_nqn, derivation) : key_;
  return make_psk({.version = version, .hash = hash_, .parties = parties, .digest = {}}, retained, derivation);
}

std::optional<TlsPsk> TlsKey::find(const PskIdentity& identity) const {
  if (identity.generated || identity.hash != hash_) return std::nullopt;
  if (identity.version == 0) {
    if (text_of(identity).size() > kMaxContextBytes) return std::nullopt;  // has no key that is defined
    return psk(identity.parties, 0);
  }
  // The digest tells how the host has derived it, unless the key is one that is used as it is.
  for (const Derivation derivation : {Derivation::standard, Derivation::nvme_cli}) {
    TlsPsk ours = psk(identity.parties, 1, derivation);
    if (ours.identity.digest == identity.digest) return ours;
  }
  return std::nullopt;
}

}  // namespace flashmob::fabrics
