// A session of TLS against OpenSSL used directly: what a peer may do with the protocol, and what ends it.
#include "fabrics/tls_session.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace flashmob::fabrics {
namespace {

constexpr char kKey[] = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
constexpr char kKey48[] = "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";
const PskParties kParties{"nqn.2014-08.org.example:host", "nqn.2014-08.org.example:ssd"};

// A host made of OpenSSL alone, which knows the key unless told otherwise.
class RawHost {
 public:
  explicit RawHost(int socket, const char* key = kKey)
      : psk_(TlsKey(key).psk(kParties)), identity_(text_of(psk_.identity)) {
    context_ = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_psk_use_session_callback(context_, offer);
    ssl = SSL_new(context_);
    SSL_set_app_data(ssl, this);
    SSL_set_fd(ssl, socket);
    SSL_set_connect_state(ssl);
  }
  ~RawHost() {
    SSL_free(ssl);
    SSL_CTX_free(context_);
  }
  RawHost(const RawHost&) = delete;
  RawHost& operator=(const RawHost&) = delete;

  SSL* ssl;

 private:
  static int offer(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* length, SSL_SESSION** session) {
    const auto& self = *static_cast<RawHost*>(SSL_get_app_data(ssl));
    const bool is_short = self.psk_.key.size() == 32;
    const unsigned char suite[] = {0x13, static_cast<unsigned char>(is_short ? 0x01 : 0x02)};
    *session = SSL_SESSION_new();
    SSL_SESSION_set1_master_key(*session, self.psk_.key.data(), self.psk_.key.size());
    SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, suite));
    SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
    *id = reinterpret_cast<const unsigned char*>(self.identity_.data());
    *length = self.identity_.size();
    return 1;
  }

  TlsPsk psk_;
  std::string identity_;
  SSL_CTX* context_;
};

struct TlsSessionTest : ::testing::Test {
  TlsSessionTest() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    host.emplace(ends[1]);
  }
  ~TlsSessionTest() override {
    for (const int end : ends) ::close(end);
  }
  // What has come to our end until nothing more comes; `last` is what receive() returned in the end, negative errno.
  std::string receive() {
    std::string all;
    for (int i = 0; i < 1000; ++i) {
      std::array<char, 3000> bytes;
      const iovec piece{bytes.data(), bytes.size()};
      last = session.receive(ends[0], {&piece, 1});
      if (last < 0) last = -errno;
      if (last <= 0) break;
      all.append(bytes.data(), static_cast<std::size_t>(last));
    }
    return all;
  }
  bool shake_hands() {
    for (int i = 0; i < 10 && !(session.established() && SSL_is_init_finished(host->ssl)); ++i) {
      SSL_do_handshake(host->ssl);
      receive();
    }
    return session.established() && SSL_is_init_finished(host->ssl) == 1;
  }
  bool send(const std::string& text) {
    iovec piece{const_cast<char*>(text.data()), text.size()};
    return session.send(ends[0], {&piece, 1}) == static_cast<ssize_t>(text.size());
  }

  int ends[2] = {-1, -1};
  TlsSession session{[](const PskIdentity& identity) {
    return TlsKey(identity.hash == nvme::AuthHash::sha256 ? kKey : kKey48).find(identity);
  }};
  std::optional<RawHost> host;
  ssize_t last = 0;
};

TEST_F(TlsSessionTest, BytesGoBothWays) {
  ASSERT_TRUE(shake_hands());
  EXPECT_EQ(session.identity().parties, kParties);
  EXPECT_STREQ(SSL_get_version(host->ssl), "TLSv1.3");
  EXPECT_STREQ(SSL_get_cipher(host->ssl), "TLS_AES_128_GCM_SHA256");
  EXPECT_EQ(SSL_write(host->ssl, "question", 8), 8);
  EXPECT_EQ(receive(), "question");
  EXPECT_EQ(last, -EAGAIN);
  ASSERT_TRUE(send("answer"));
  std::array<char, 16> got{};
  EXPECT_EQ(SSL_read(host->ssl, got.data(), got.size()), 6);
  EXPECT_STREQ(got.data(), "answer");
}

TEST_F(TlsSessionTest, TheKeysHashDecidesAboutTheSuite) {
  host.emplace(ends[1], kKey48);  // offers both suites
  ASSERT_TRUE(shake_hands());
  EXPECT_STREQ(SSL_get_cipher(host->ssl), "TLS_AES_256_GCM_SHA384");
}

TEST_F(TlsSessionTest, NothingIsSentBeforeTheHandshake) {
  EXPECT_FALSE(send("too early"));
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(TlsSessionTest, AFullSocketHoldsWhatIsEncryptedBack) {
  ASSERT_TRUE(shake_hands());
  std::string sent, got;
  const std::string chunk(50'000, 'x');
  for (int i = 0; i < 100; ++i) {
    std::string text = chunk;
    std::iota(text.begin(), text.end(), static_cast<char>(i));
    iovec piece{text.data(), text.size()};
    const ssize_t taken = session.send(ends[0], {&piece, 1});
    if (taken < 0) break;
    sent += text.substr(0, static_cast<std::size_t>(taken));
  }
  EXPECT_FALSE(session.flush(ends[0]));
  EXPECT_GT(session.unsent_bytes(), 0u);
  EXPECT_LT(session.unsent_bytes(), 100'000u);
  for (int idle = 0; idle < 3;) {
    std::array<char, 20'000> bytes;
    const int count = SSL_read(host->ssl, bytes.data(), bytes.size());
    if (count > 0) got.append(bytes.data(), static_cast<std::size_t>(count));
    idle = session.flush(ends[0]) && count <= 0 ? idle + 1 : 0;
  }
  EXPECT_EQ(got, sent);
}

TEST_F(TlsSessionTest, KeysAreUpdated) {
  ASSERT_TRUE(shake_hands());
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(SSL_key_update(host->ssl, SSL_KEY_UPDATE_REQUESTED), 1);
    ASSERT_EQ(SSL_write(host->ssl, "new", 3), 3);
    EXPECT_EQ(receive(), "new");
    ASSERT_TRUE(send("too"));
    std::array<char, 16> got{};
    EXPECT_EQ(SSL_read(host->ssl, got.data(), got.size()), 3);
  }
}

TEST_F(TlsSessionTest, KeyUpdatesWithoutEndEndTheConnection) {
  ASSERT_TRUE(shake_hands());
  for (int i = 0; i < 100; ++i) {
    SSL_key_update(host->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
    SSL_do_handshake(host->ssl);
  }
  EXPECT_EQ(receive(), "");
  EXPECT_EQ(last, -EPROTO);
  EXPECT_EQ(session.reason(), "too many key updates");
}

TEST_F(TlsSessionTest, RecordsOfOneByteAreTakenInTurns) {
  ASSERT_TRUE(shake_hands());
  constexpr int kRecords = 200;
  for (int i = 0; i < kRecords; ++i) ASSERT_EQ(SSL_write(host->ssl, "x", 1), 1);
  std::array<char, kRecords> bytes;
  const iovec piece{bytes.data(), bytes.size()};
  std::size_t all = 0;
  while (all < kRecords) {
    const ssize_t got = session.receive(ends[0], {&piece, 1});
    ASSERT_GT(got, 0);
    EXPECT_LE(got, 64) << "others wait for as long";
    all += static_cast<std::size_t>(got);
    EXPECT_EQ(session.has_unread(), all < kRecords) << "who polls the socket alone does not see it";
  }
}

// Records of a host made by hand, as OpenSSL writes none without data (RFC 8446, 5.2 and 7.3).
class RecordWriter {
 public:
  explicit RecordWriter(const std::vector<unsigned char>& secret)
      : key_(expand(secret, "key", 16)), nonce_(expand(secret, "iv", 12)) {}
  std::string record(const std::string& data) {
    const std::string inner = data + '\x17';
    const std::size_t bytes = inner.size() + 16;
    std::string out{'\x17', '\x03', '\x03', static_cast<char>(bytes >> 8), static_cast<char>(bytes)};
    std::vector<unsigned char> nonce = nonce_;
    for (std::size_t i = 0; i < 8; ++i) nonce[4 + i] ^= static_cast<unsigned char>(sequence_ >> (8 * (7 - i)));
    ++sequence_;
    std::vector<unsigned char> sealed(bytes);
    int length = 0;
    EVP_CIPHER_CTX* const cipher = EVP_CIPHER_CTX_new();
    EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), nullptr, key_.data(), nonce.data());
    EVP_EncryptUpdate(cipher, nullptr, &length, reinterpret_cast<const unsigned char*>(out.data()), 5);
    EVP_EncryptUpdate(cipher, sealed.data(), &length, reinterpret_cast<const unsigned char*>(inner.data()),
                      static_cast<int>(inner.size()));
    EVP_EncryptFinal_ex(cipher, sealed.data() + length, &length);
    EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, 16, sealed.data() + inner.size());
    EVP_CIPHER_CTX_free(cipher);
    out.append(sealed.begin(), sealed.end());
    return out;
  }

 private:
  static std::vector<unsigned char> expand(const std::vector<unsigned char>& secret, const std::string& label,
                                           std::size_t bytes) {
    const std::string full = "tls13 " + label;
    const std::string info =
        std::string{'\0', static_cast<char>(bytes), static_cast<char>(full.size())} + full + std::string{'\0', '\1'};
    std::vector<unsigned char> out(32);
    HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
         reinterpret_cast<const unsigned char*>(info.data()), info.size(), out.data(), nullptr);
    out.resize(bytes);
    return out;
  }

  std::vector<unsigned char> key_, nonce_;
  std::uint64_t sequence_ = 0;
};

// They cost as much as others, and OpenSSL passes over many of them in one call.
TEST_F(TlsSessionTest, RecordsWithoutDataAreTakenInTurns) {
  static std::vector<unsigned char> secret;
  SSL_CTX_set_keylog_callback(SSL_get_SSL_CTX(host->ssl), [](const SSL*, const char* line) {
    const std::string text = line;
    if (!text.starts_with("CLIENT_TRAFFIC_SECRET_0 ")) return;
    secret.clear();
    for (std::size_t at = text.rfind(' ') + 1; at + 1 < text.size(); at += 2)
      secret.push_back(static_cast<unsigned char>(std::stoi(text.substr(at, 2), nullptr, 16)));
  });
  ASSERT_TRUE(shake_hands());
  ASSERT_EQ(secret.size(), 32u);
  RecordWriter writer(secret);
  constexpr int kRounds = 40, kEmpty = 30;
  std::string records;
  for (int i = 0; i < kRounds; ++i) {
    for (int empty = 0; empty < kEmpty; ++empty) records += writer.record("");
    records += writer.record("x");
  }
  ASSERT_EQ(::send(ends[1], records.data(), records.size(), 0), static_cast<ssize_t>(records.size()));
  std::array<char, 2 * kRounds> bytes;
  const iovec piece{bytes.data(), bytes.size()};
  int all = 0, calls = 0;
  for (; all < kRounds && calls < 1000; ++calls) {
    const ssize_t got = session.receive(ends[0], {&piece, 1});
    if (got < 0) {
      ASSERT_EQ(errno, EAGAIN) << session.reason();
      EXPECT_TRUE(session.has_unread()) << "who polls the socket alone does not see it";
    }
    EXPECT_LE(got, 2) << "others wait for as long";
    all += std::max(0, static_cast<int>(got));
  }
  EXPECT_EQ(all, kRounds);
  EXPECT_GE(calls, kRounds * (kEmpty + 1) / 33);
  EXPECT_EQ(receive(), "");
}

// The hello may be in as many records as it has bytes.
TEST_F(TlsSessionTest, AHelloOfOneByteRecordsIsTakenInTurns) {
  SSL_do_handshake(host->ssl);
  std::array<char, 4096> hello;
  const ssize_t length = ::recv(ends[0], hello.data(), hello.size(), 0);
  ASSERT_GT(length, 5);
  std::string records;
  for (ssize_t i = 5; i < length; ++i)
    records.append({'\x16', '\x03', '\x01', '\0', '\1', hello[static_cast<std::size_t>(i)]});
  // Behind it, more than anybody reads at once.
  for (int i = 0; i < 4000; ++i) records.append({'\x16', '\x03', '\x03', '\0', '\1', '\0'});
  ASSERT_EQ(::send(ends[1], records.data(), records.size(), 0), static_cast<ssize_t>(records.size()));
  int before = 0, after = 0;
  ASSERT_EQ(::ioctl(ends[0], FIONREAD, &before), 0);
  char byte = 0;
  const iovec piece{&byte, 1};
  EXPECT_LT(session.receive(ends[0], {&piece, 1}), 0);
  ASSERT_EQ(::ioctl(ends[0], FIONREAD, &after), 0);
  EXPECT_LE(before - after, 4096);
  EXPECT_GT(before - after, 0);
}

TEST_F(TlsSessionTest, TheOtherEndTakesLeave) {
  ASSERT_TRUE(shake_hands());
  SSL_write(host->ssl, "last", 4);
  SSL_shutdown(host->ssl);
  EXPECT_EQ(receive(), "last");
  EXPECT_EQ(last, 0) << "an orderly end";
}

TEST_F(TlsSessionTest, ACutIsNoLeave) {
  ASSERT_TRUE(shake_hands());
  SSL_write(host->ssl, "last", 4);
  ::shutdown(ends[1], SHUT_WR);
  EXPECT_EQ(receive(), "last");
  EXPECT_EQ(last, -EPROTO);
  EXPECT_EQ(session.reason(), "the connection was cut off");
}

TEST_F(TlsSessionTest, OlderVersionsAreRefused) {
  SSL_set_max_proto_version(host->ssl, TLS1_2_VERSION);
  EXPECT_FALSE(shake_hands());
  EXPECT_EQ(last, -EPROTO);
}

TEST_F(TlsSessionTest, OnlyKeyExchangesThatAreQuick) {
  SSL_set1_groups_list(host->ssl, "ffdhe8192:P-521");
  EXPECT_FALSE(shake_hands());
  EXPECT_EQ(last, -EPROTO);
}

TEST_F(TlsSessionTest, TheOtherGroupTakesOneMoreRound) {
  SSL_set1_groups_list(host->ssl, "P-521:P-256");  // the first one's share is refused by a request for the second's
  EXPECT_TRUE(shake_hands());
  EXPECT_EQ(session.identity().parties, kParties);
}

TEST_F(TlsSessionTest, OurHostRefusesAControllerThatDoesNotKnowTheKey) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  TlsSession asks(TlsKey(kKey).psk(kParties));
  TlsSession liar([](const PskIdentity& identity) {
    TlsPsk psk{identity, Bytes(32, 7)};
    return std::optional(psk);
  });
  std::byte none;
  const iovec piece{&none, 1};
  for (int i = 0; i < 10; ++i) {
    asks.receive(pair[0], {&piece, 1});
    liar.receive(pair[1], {&piece, 1});
  }
  EXPECT_FALSE(asks.established());
  EXPECT_FALSE(liar.established());
  ::close(pair[0]);
  ::close(pair[1]);
}

}  // namespace
}  // namespace flashmob::fabrics
