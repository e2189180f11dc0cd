#include "fabrics/dhchap_crypto.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/param_build.h>
#include <openssl/rand.h>

#include <array>

#include "base/check.h"

namespace flashmob::fabrics {
namespace {

using nvme::AuthDhGroup;
using nvme::AuthHash;

const EVP_MD* digest_of(AuthHash hash) {
  switch (hash) {
    case AuthHash::sha256:
      return EVP_sha256();
    case AuthHash::sha384:
      return EVP_sha384();
    case AuthHash::sha512:
      return EVP_sha512();
  }
  return nullptr;
}

const char* name_of(AuthDhGroup group) {
  switch (group) {
    case AuthDhGroup::null:
      break;
    case AuthDhGroup::ffdhe2048:
      return "ffdhe2048";
    case AuthDhGroup::ffdhe3072:
      return "ffdhe3072";
    case AuthDhGroup::ffdhe4096:
      return "ffdhe4096";
    case AuthDhGroup::ffdhe6144:
      return "ffdhe6144";
    case AuthDhGroup::ffdhe8192:
      return "ffdhe8192";
  }
  return nullptr;
}

[[noreturn]] void bad_secret(const std::string& why) {
  throw ConfigError("a DH-HMAC-CHAP secret " + why +
                    "; it looks like DHHC-1:00:...: (make one with `nvme gen-dhchap-key`)");
}

using KeyContext = std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)>;
using PublicKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

void append(Bytes& to, std::span<const std::uint8_t> bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }
void append(Bytes& to, std::string_view text) { to.insert(to.end(), text.begin(), text.end()); }

// Everything up to the word that says which way the response goes.
Bytes response_head(AuthHash hash, const DhchapResponse& r) {
  Bytes data;
  if (r.shared) {
    const SecretBytes session_key = hash_of(hash, *r.shared);
    append(data, hmac_of(hash, session_key, r.challenge));
  } else {
    append(data, r.challenge);
  }
  for (unsigned i = 0; i < 4; ++i) data.push_back(static_cast<std::uint8_t>(r.seqnum >> (8 * i)));
  data.push_back(static_cast<std::uint8_t>(r.t_id));
  data.push_back(static_cast<std::uint8_t>(r.t_id >> 8));
  data.push_back(r.sc_c);
  return data;
}

}  // namespace

SecretBytes::~SecretBytes() { OPENSSL_cleanse(data(), size()); }

std::size_t hash_bytes(AuthHash hash) {
  const EVP_MD* digest = digest_of(hash);
  return digest == nullptr ? 0 : static_cast<std::size_t>(EVP_MD_get_size(digest));
}

Bytes hash_of(AuthHash hash, std::span<const std::uint8_t> data) {
  Bytes out(hash_bytes(hash));
  FLASHMOB_CHECK(EVP_Digest(data.data(), data.size(), out.data(), nullptr, digest_of(hash), nullptr) == 1);
  return out;
}

Bytes hmac_of(AuthHash hash, std::span<const std::uint8_t> key, std::span<const std::uint8_t> data) {
  Bytes out(hash_bytes(hash));
  unsigned length = 0;
  FLASHMOB_CHECK(HMAC(digest_of(hash), key.data(), static_cast<int>(key.size()), data.data(), data.size(), out.data(),
                      &length) != nullptr);
  return out;
}

void fill_random(std::span<std::uint8_t> out) {
  FLASHMOB_CHECK(RAND_bytes(out.data(), static_cast<int>(out.size())) == 1);
}

bool equal_secretly(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

DhchapSecret::DhchapSecret(std::string_view text) {
  constexpr std::string_view kPrefix = "DHHC-1:";
  if (!text.starts_with(kPrefix) || text.size() < kPrefix.size() + 4 || text[kPrefix.size() + 2] != ':' ||
      text.back() != ':')
    bad_secret("does not have the form that the specification gives it");
  const std::string_view kind = text.substr(kPrefix.size(), 2);
  if (kind[0] != '0' || kind[1] < '0' || kind[1] > '3') bad_secret("names a transformation other than 00...03");
  if (kind[1] != '0') transform_ = static_cast<AuthHash>(kind[1] - '0');
  text.remove_prefix(kPrefix.size() + 3);
  text.remove_suffix(1);
  auto found = parse_key_text(text);
  if (!found || (found->key.size() != 32 && found->key.size() != 48 && found->key.size() != 64))
    bad_secret("is not the base64 text of 32, 48 or 64 bytes and their checksum");
  if (!found->checksum_good) bad_secret("was mistyped: its checksum does not fit");
  key_ = std::move(found->key);
}

Bytes DhchapSecret::key_for(std::string_view nqn) const {
  if (!transform_) return key_;
  Bytes data;
  append(data, nqn);
  append(data, "NVMe-over-Fabrics");
  return hmac_of(*transform_, key_, data);
}

struct DhExchange::Key {
  PublicKey pkey{nullptr, &EVP_PKEY_free};
};

DhExchange::DhExchange(AuthDhGroup group) : group_(group), key_(std::make_unique<Key>()) {
  const char* name = name_of(group);
  if (name == nullptr) return;
  const KeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, "DH", nullptr), &EVP_PKEY_CTX_free);
  const std::array<OSSL_PARAM, 2> params = {
      OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, const_cast<char*>(name), 0),
      OSSL_PARAM_construct_end()};
  EVP_PKEY* made = nullptr;
  FLASHMOB_CHECK(context && EVP_PKEY_keygen_init(context.get()) == 1 &&
                 EVP_PKEY_CTX_set_params(context.get(), params.data()) == 1 &&
                 EVP_PKEY_generate(context.get(), &made) == 1);
  key_->pkey.reset(made);
  BIGNUM* number = nullptr;
  FLASHMOB_CHECK(EVP_PKEY_get_bn_param(made, OSSL_PKEY_PARAM_PUB_KEY, &number) == 1);
  value_.resize(dh_value_bytes(group));
  const int written = BN_bn2binpad(number, value_.data(), static_cast<int>(value_.size()));
  BN_free(number);
  FLASHMOB_CHECK(written == static_cast<int>(value_.size()));
}

DhExchange::~DhExchange() = default;
DhExchange::DhExchange(DhExchange&&) noexcept = default;
DhExchange& DhExchange::operator=(DhExchange&&) noexcept = default;

std::optional<SecretBytes> DhExchange::shared(std::span<const std::uint8_t> peer_value) const {
  if (!key_->pkey || peer_value.size() != value_.size()) return std::nullopt;
  // OpenSSL wants the number in the machine's byte order.
  Bytes native(peer_value.rbegin(), peer_value.rend());
  const std::array<OSSL_PARAM, 3> params = {
      OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, const_cast<char*>(name_of(group_)), 0),
      OSSL_PARAM_construct_BN(OSSL_PKEY_PARAM_PUB_KEY, native.data(), native.size()), OSSL_PARAM_construct_end()};
  const KeyContext builder(EVP_PKEY_CTX_new_from_name(nullptr, "DH", nullptr), &EVP_PKEY_CTX_free);
  EVP_PKEY* made = nullptr;
  if (!builder || EVP_PKEY_fromdata_init(builder.get()) != 1 ||
      EVP_PKEY_fromdata(builder.get(), &made, EVP_PKEY_PUBLIC_KEY, const_cast<OSSL_PARAM*>(params.data())) != 1)
    return std::nullopt;
  const PublicKey peer(made, &EVP_PKEY_free);
  const KeyContext derive(EVP_PKEY_CTX_new_from_pkey(nullptr, key_->pkey.get(), nullptr), &EVP_PKEY_CTX_free);
  unsigned pad = 1;
  const std::array<OSSL_PARAM, 2> padded = {OSSL_PARAM_construct_uint(OSSL_EXCHANGE_PARAM_PAD, &pad),
                                            OSSL_PARAM_construct_end()};
  SecretBytes out(value_.size());
  std::size_t length = out.size();
  // Setting the peer checks that its value lies in the group and is not one of the trivial ones.
  if (!derive || EVP_PKEY_derive_init_ex(derive.get(), padded.data()) != 1 ||
      EVP_PKEY_derive_set_peer(derive.get(), peer.get()) != 1 ||
      EVP_PKEY_derive(derive.get(), out.data(), &length) != 1 || length != out.size())
    return std::nullopt;
  return out;
}

std::size_t dh_value_bytes(AuthDhGroup group) {
  switch (group) {
    case AuthDhGroup::null:
      break;
    case AuthDhGroup::ffdhe2048:
      return 256;
    case AuthDhGroup::ffdhe3072:
      return 384;
    case AuthDhGroup::ffdhe4096:
      return 512;
    case AuthDhGroup::ffdhe6144:
      return 768;
    case AuthDhGroup::ffdhe8192:
      return 1024;
  }
  return 0;
}

Bytes host_response(AuthHash hash, std::span<const std::uint8_t> key, const DhchapResponse& r,
                    std::string_view host_nqn, std::string_view subsystem_nqn) {
  Bytes data = response_head(hash, r);
  append(data, "HostHost");
  append(data, host_nqn);
  data.push_back(0);
  append(data, subsystem_nqn);
  return hmac_of(hash, key, data);
}

Bytes controller_response(AuthHash hash, std::span<const std::uint8_t> key, const DhchapResponse& r,
                          std::string_view host_nqn, std::string_view subsystem_nqn) {
  Bytes data = response_head(hash, r);
  append(data, "Controller");
  append(data, subsystem_nqn);
  data.push_back(0);
  append(data, host_nqn);
  return hmac_of(hash, key, data);
}

}  // namespace flashmob::fabrics
