// Keys of TLS: their text, identities, and the PSKs that follow from them. The expected values were computed by a
// program of a few lines of Python (hmac, hashlib); those of nvme_cli are also what nvme-cli 2.13 puts into its
// keyring.
#include "fabrics/tls_psk.h"

#include <random>

#include "flashmob/error.h"
#include "gtest/gtest.h"

namespace flashmob::fabrics {
namespace {

using nvme::AuthHash;
using Derivation = TlsKey::Derivation;

const PskParties kParties{"nqn.2014-08.org.example:host", "nqn.2014-08.org.example:ssd"};
constexpr char kKey32[] = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
constexpr char kPlain48[] = "NVMeTLSkey-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";
constexpr char kKey48[] = "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";

std::string hex(const Bytes& bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

TEST(TlsKey, KnownKeys) {
  struct Known {
    const char* key;
    unsigned version;
    Derivation derivation;
    const char* head;
    const char* digest;
    const char* psk;
  };
  const Known all[] = {
      {kKey32, 0, Derivation::standard, "NVMe0R01", "",
       "6f438a629bebb883747d6081fa106359a837fb1a4509122826e4466401beb265"},
      {kKey32, 1, Derivation::standard, "NVMe1R01", " dCJWh7emuRO5Jxqn7V+ZMxFw5uUFIC9sOhZutMKTrJk=",
       "aa5271bec87210d5861e4e22339e2bd2d25b88c19a1e948f82f51c926a11e54e"},
      {kKey32, 1, Derivation::nvme_cli, "NVMe1R01", " ohwdiARogjRorfjxSGBCMjgZ9aqSTd8NRqrYtR7Nqx0=",
       "3574124a294b57ac4af3bd58e957e20fe6ada1c8acf729ed916bc6e0bdb23808"},
      {kKey48, 1, Derivation::standard, "NVMe1R02", " l5xtu1382ijRVQwc7/P7HdaD/6DvUN8jqb785AKHTVgENu7/BRDZnT73vyIbFsnh",
       "06848a15cac9a049e2e69e13bbbb4b4f76c7a632da965d760d4924278d58a5ca1c31ad2d611b34135c597b61c68bc602"},
      {kPlain48, 1, Derivation::standard, "NVMe1R02",
       " 0w4aYLlyVQGfGIgu+UGCibavzGngeaKdwkeFlymYFAvgTezy5wEEOkiyJzpXL0UP",
       "7a44e4cbe522419e6033de3ac6af2b05950335a56a634b6018b0ddc8b39728b7757175cfff4bd827523917bc1d863a00"},
  };
  for (const Known& known : all) {
    const TlsPsk psk = TlsKey(known.key).psk(kParties, known.version, known.derivation);
    const std::string text = text_of(psk.identity);
    EXPECT_EQ(text, std::string(known.head) + " " + kParties.host_nqn + " " + kParties.subsystem_nqn + known.digest);
    EXPECT_EQ(hex(psk.key), known.psk);
    const auto parsed = parse_psk_identity(text);
    ASSERT_TRUE(parsed);
    const auto found = TlsKey(known.key).find(*parsed);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->key, psk.key);
  }
}

// The session key is the SHA-256 or SHA-384 of 256 bytes, n * 7 + 3 each; the controller's challenge counts from 0, the
// host's from 80h.
TEST(GeneratedPsk, KnownKeys) {
  struct Known {
    AuthHash hash;
    const char* text;
    const char* psk;
  };
  const Known all[] = {
      {AuthHash::sha256,
       "NVMe1G01 nqn.2014-08.org.example:host nqn.2014-08.org.example:ssd ZMRafNMjSENPsUChBsowsolI3MJDqlWoerDD/aLlDWw=",
       "aa520b18afa167a6a8d53fe5f916372d5caf42fae0995c639bb0e4be2fc3eeab"},
      {AuthHash::sha384,
       "NVMe1G02 nqn.2014-08.org.example:host nqn.2014-08.org.example:ssd "
       "qBmn6QtR1UrqZoHvzPwo365uifO6d9Kl2MMATw5MHRUXyXaI+Vp9wc3PSpd08n+I",
       "100980da9523138feb10fc6c249bedfa7e8b8e79b29c7c11d8c2f58e1c89f3cd418d5a4e7527b76a12d9fa6f7ba7d500"},
  };
  Bytes shared(256);
  for (std::size_t i = 0; i < shared.size(); ++i) shared[i] = static_cast<std::uint8_t>(i * 7 + 3);
  for (const Known& known : all) {
    Bytes of_controller(hash_bytes(known.hash)), of_host(hash_bytes(known.hash));
    for (std::size_t i = 0; i < of_host.size(); ++i) {
      of_controller[i] = static_cast<std::uint8_t>(i);
      of_host[i] = static_cast<std::uint8_t>(0x80 + i);
    }
    const TlsPsk psk = generated_psk(known.hash, kParties, hash_of(known.hash, shared), of_controller, of_host);
    EXPECT_EQ(text_of(psk.identity), known.text);
    EXPECT_EQ(hex(psk.key), known.psk);
    const auto parsed = parse_psk_identity(known.text);
    ASSERT_TRUE(parsed);
    EXPECT_TRUE(parsed->generated);
    EXPECT_EQ(text_of(*parsed), known.text);
  }
}

TEST(TlsKey, IdentitiesOfOthersAreNotFound) {
  const TlsKey key(kKey32);
  PskIdentity identity = key.psk(kParties).identity;
  identity.hash = AuthHash::sha384;
  EXPECT_FALSE(key.find(identity));
  identity = key.psk(kParties).identity;
  identity.generated = true;
  EXPECT_FALSE(key.find(identity)) << "of a generated key";
  identity = key.psk(kParties).identity;
  identity.parties.host_nqn += "x";
  EXPECT_FALSE(key.find(identity));
  identity.parties.host_nqn.assign(223, 'h');
  identity.version = 0;
  EXPECT_FALSE(key.find(identity)) << "longer than a label's context may be";
}

TEST(TlsKey, TextThatIsNoKey) {
  for (const std::string text : {
           "",
           "NVMeTLSkey-1:",
           "NVMeTLSkey-1:01:",
           "NVMeTLSkey-2:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
           "NVMeTLSkey-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
           "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
           "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaS:",
           "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR",
           "NVMeTLSkey-1:01:AAAA:",
           "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
       }) {
    try {
      TlsKey{text};
      FAIL() << text;
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find("AAECAwQF"), std::string::npos) << "keys are not repeated";
    }
  }
}

TEST(TlsKey, ChangedTextNeitherCrashesNorPasses) {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = i % 2 == 0 ? kKey32 : kKey48;
    const std::string before = text;
    for (auto n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % (text.size() + 1);
      if (random() % 3 == 0)
        text.erase(at, random() % 4);
      else if (random() % 2 == 0)
        text.insert(at, 1, static_cast<char>(random()));
      else if (at < text.size())
        text[at] = static_cast<char>(random());
    }
    static_cast<void>(parse_psk_identity(text));
    try {
      const TlsKey key{text};
      // What passes holds the same key: bits that base64 does not use, or hash 00 for 01.
      EXPECT_EQ(key.hash(), TlsKey(before).hash()) << text;
    } catch (const ConfigError&) {
    }
  }
}

TEST(PskIdentity, TextThatIsNone) {
  const std::string good = text_of(TlsKey(kKey32).psk(kParties).identity);
  ASSERT_TRUE(parse_psk_identity(good));
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    const auto found = parse_psk_identity(std::string_view(good).substr(0, bytes));
    EXPECT_FALSE(found && TlsKey(kKey32).find(*found)) << bytes;
  }
  for (const std::string text :
       {"NVMe2R01 a b c", "NVMe1X01 a b c", "NVMe0G01 a b", "NVMe1R00 a b c", "NVMe1R03 a b c", "NVMe1R01a b c",
        "NVMe1R01 a b", "NVMe1R01  b c", "NVMe1R01 a  c", "NVMe1R01 a b ", "NVMe0R01 a", "nvme1R01 a b c"})
    EXPECT_FALSE(parse_psk_identity(text)) << text;
  EXPECT_FALSE(parse_psk_identity("NVMe1R01 " + std::string(224, 'h') + " b c"));
}

}  // namespace
}  // namespace flashmob::fabrics
