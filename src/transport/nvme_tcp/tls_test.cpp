// TLS at the door: who gets in with which key, who does not, and what a connection of TLS survives.
#include <algorithm>
#include <memory>

#include "fabrics/tls_psk.h"
#include "flashmob/error.h"
#include "gtest/gtest.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace flashmob::transport::testing {
namespace {

using fabrics::TlsKey;
using fabrics::TlsPsk;
using nvme::Status;
using Derivation = TlsKey::Derivation;

constexpr char kKey32[] = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
constexpr char kKey48[] = "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";
constexpr char kOtherKey[] = "NVMeTLSkey-1:00:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj/jBqb2:";
constexpr char kOtherNqn[] = "nqn.2014-08.org.nvmexpress:uuid:99999999-2222-3333-4444-555555555555";

NvmeTcpTargetOptions with_tls(const char* key = kKey32, TlsUse use = TlsUse::required) {
  NvmeTcpTargetOptions options;
  options.tls = use;
  options.tls_key = key;
  return options;
}

fabrics::PskParties parties(Rig& rig) { return {kHostNqn, rig.subsystem().config().nqn}; }
TlsPsk psk(Rig& rig, const char* key = kKey32) { return TlsKey(key).psk(parties(rig)); }

// A host that attaches, writes and reads.
void use(Rig& rig, const TlsPsk& key, fabrics::Digests digests = {}) {
  Host admin(rig, key);
  ASSERT_TRUE(admin.secure()) << admin.tls_reason();
  ASSERT_TRUE(admin.initialize(digests));
  const std::uint16_t cntlid = admin.attach();
  ASSERT_NE(cntlid, 0);
  Host io(rig, key);
  ASSERT_TRUE(io.initialize(digests));
  ASSERT_EQ(io.attach_io(cntlid).status(), Status::success);
  for (const std::size_t bytes : {std::size_t{512}, std::size_t{16384}, std::size_t{1} << 20}) {
    const auto data = pattern(bytes, static_cast<unsigned>(bytes));
    ASSERT_EQ(io.write(7, data).status(), Status::success) << bytes;
    ASSERT_TRUE(io.read(7, static_cast<std::uint32_t>(bytes)).data == data) << bytes;
  }
}

TEST(NvmeTcpTls, HostsAttachWithEitherHashAndDigests) {
  for (const char* key : {kKey32, kKey48, kOtherKey}) {
    for (const fabrics::Digests digests : {fabrics::Digests{}, fabrics::Digests{true, true}}) {
      Rig rig(with_tls(key));
      use(rig, psk(rig, key), digests);
    }
  }
}

TEST(NvmeTcpTls, IdentitiesOfEitherVersionAndOfOlderHosts) {
  Rig rig(with_tls());
  use(rig, TlsKey(kKey32).psk(parties(rig), 0));
  use(rig, TlsKey(kKey32).psk(parties(rig), 1, Derivation::nvme_cli));
}

TEST(NvmeTcpTls, ThreadsAndTcp) {
  Rig rig(with_tls(kKey48), Rig::small_device(), true);
  use(rig, psk(rig, kKey48));
}

TEST(NvmeTcpTls, WhoDoesNotKnowTheKeyDoesNotGetIn) {
  Rig rig(with_tls());
  TlsPsk wrong = psk(rig);
  wrong.key[5] ^= 1;
  TlsPsk nobody = psk(rig);
  nobody.identity.parties.host_nqn = kOtherNqn;  // its digest then is another's
  TlsPsk elsewhere = TlsKey(kKey32).psk({kHostNqn, "nqn.2014-08.org.example:elsewhere"});
  for (const TlsPsk& key : {wrong, nobody, elsewhere, psk(rig, kOtherKey), psk(rig, kKey48)}) {
    Host host(rig, key);
    EXPECT_FALSE(host.secure());
    EXPECT_NE(host.tls_reason(), "") << "it is told";
    EXPECT_FALSE(host.initialize());
  }
  EXPECT_EQ(rig.controllers(), 0u);
  use(rig, psk(rig));
}

TEST(NvmeTcpTls, WithoutTlsThereIsNothingButDiscoveryWhereItIsRequired) {
  Rig rig(with_tls());
  Host plain(rig);
  ASSERT_TRUE(plain.initialize());
  EXPECT_EQ(plain.connect(Host::connect_sqe(0, 32), Host::connect_data(rig.subsystem().config().nqn)).status(),
            nvme::kAuthenticationRequired);
  EXPECT_EQ(rig.controllers(), 0u);
  Host asks(rig);
  ASSERT_TRUE(asks.initialize());
  ASSERT_EQ(asks.connect(Host::connect_sqe(0, 32), Host::connect_data(nvme::kDiscoveryNqn)).status(), Status::success);
  asks.enable(true);
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::get_log_page);
  sqe.cdw10 = nvme::kLidDiscovery | (2048 / 4 - 1) << 16;
  Host::transport_sgl(sqe, 2048);
  const Reply log = asks.command(sqe);
  ASSERT_EQ(log.data.size(), 2048u);
  nvme::DiscoveryEntry entry;
  std::memcpy(&entry, log.data.data() + sizeof(nvme::DiscoveryHeader), sizeof entry);
  EXPECT_EQ(entry.treq & 3, nvme::kTreqSecureChannelRequired);
  EXPECT_EQ(entry.tsas[0], nvme::kTsasTls13);
}

TEST(NvmeTcpTls, AKeyIsForOneHostAndOneSubsystem) {
  Rig rig(with_tls());
  const std::string nqn = rig.subsystem().config().nqn;
  Host host(rig, psk(rig));
  ASSERT_TRUE(host.initialize());
  EXPECT_EQ(host.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn, nvme::kCntlidDynamic, kOtherNqn)).status(),
            nvme::kAuthenticationRequired);
  EXPECT_EQ(host.connect(Host::connect_sqe(0, 32), Host::connect_data(nvme::kDiscoveryNqn)).status(),
            nvme::kAuthenticationRequired);
  Host asks(rig, TlsKey(kKey32).psk({kHostNqn, nvme::kDiscoveryNqn}));
  ASSERT_TRUE(asks.initialize());
  EXPECT_EQ(asks.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn)).status(), nvme::kAuthenticationRequired);
  EXPECT_EQ(asks.connect(Host::connect_sqe(0, 32), Host::connect_data(nvme::kDiscoveryNqn)).status(), Status::success);
}

TEST(NvmeTcpTls, AllowedTakesBothAndNeverMixesThem) {
  NvmeTcpTargetOptions options = with_tls(kKey32, TlsUse::allowed);
  options.hosts = {{.nqn = kHostNqn, .dhchap_secret = {}, .dhchap_controller_secret = {}},
                   {.nqn = kOtherNqn, .dhchap_secret = {}, .dhchap_controller_secret = {}, .tls_key = kKey48}};
  Rig rig(options);
  const std::string nqn = rig.subsystem().config().nqn;
  use(rig, psk(rig));
  Host plain(rig);
  ASSERT_TRUE(plain.initialize());
  const std::uint16_t of_plain = plain.attach();
  ASSERT_NE(of_plain, 0);
  Host secure(rig, psk(rig));
  ASSERT_TRUE(secure.initialize());
  const std::uint16_t of_secure = secure.attach();
  ASSERT_NE(of_secure, 0);
  Host plain_io(rig);
  ASSERT_TRUE(plain_io.initialize());
  EXPECT_EQ(plain_io.attach_io(of_secure).status(), nvme::kAuthenticationRequired);
  EXPECT_EQ(plain_io.attach_io(of_plain).status(), Status::success);
  Host secure_io(rig, psk(rig));
  ASSERT_TRUE(secure_io.initialize());
  EXPECT_EQ(secure_io.attach_io(of_plain).status(), nvme::kAuthenticationRequired);
  // A host with a key of its own must use it, and no other.
  Host other(rig);
  ASSERT_TRUE(other.initialize());
  EXPECT_EQ(other.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn, nvme::kCntlidDynamic, kOtherNqn)).status(),
            nvme::kAuthenticationRequired);
  EXPECT_FALSE(Host(rig, TlsKey(kKey32).psk({kOtherNqn, nqn})).secure());
  EXPECT_TRUE(Host(rig, TlsKey(kKey48).psk({kOtherNqn, nqn})).secure());
}

TEST(NvmeTcpTls, ADoorWithoutTlsTakesAHelloForAPdu) {
  Rig rig;
  Host host(rig, psk(rig));
  EXPECT_FALSE(host.secure());
  Host plain(rig);
  EXPECT_TRUE(plain.initialize());
}

// What a host sends first.
std::vector<std::byte> hello(Rig& rig) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  fabrics::TlsSession tls(psk(rig));
  std::byte none;
  const iovec piece{&none, 1};
  EXPECT_EQ(tls.receive(ends[0], {&piece, 1}), -1);
  std::vector<std::byte> out(4096);
  out.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::recv(ends[1], out.data(), out.size(), 0))));
  ::close(ends[0]);
  ::close(ends[1]);
  return out;
}

TEST(NvmeTcpTls, HalfHellosAndHellosWithAByteChanged) {
  Rig rig(with_tls());
  const auto whole = hello(rig);
  ASSERT_GT(whole.size(), 100u);
  std::vector<std::unique_ptr<Host>> waiting;
  for (std::size_t bytes = 1; bytes < whole.size(); bytes += 7) {
    waiting.push_back(std::make_unique<Host>(rig));
    waiting.back()->send(std::span(whole).first(bytes));
  }
  rig.pump();
  for (std::size_t at = 0; at < whole.size(); at += 3) {
    auto changed = whole;
    changed[at] ^= std::byte{0x41};
    Host host(rig);
    host.send(changed);
    host.hang_up();
  }
  use(rig, psk(rig));
  waiting.clear();
  rig.pump();
  EXPECT_EQ(rig.controllers(), 0u);
}

// Each costs memory before it has proved anything.
TEST(NvmeTcpTls, HandshakesThatNeverEndStayWithinTheirAddresssShareOfMemory) {
  NvmeTcpTargetOptions options = with_tls();
  options.queue_memory_bytes = 16 << 20;
  Rig rig(options);
  const auto whole = hello(rig);
  Host neighbour(rig, psk(rig));
  ASSERT_TRUE(neighbour.initialize());
  ASSERT_NE(neighbour.attach(), 0);
  constexpr std::size_t kHandshakes = 100;
  std::vector<std::unique_ptr<Host>> waiting;
  for (std::size_t i = 0; i < kHandshakes; ++i) {
    waiting.push_back(std::make_unique<Host>(rig));
    waiting.back()->send(std::span(whole).first(50));
    rig.pump();
  }
  const auto refused = std::count_if(waiting.begin(), waiting.end(), [](const auto& host) { return host->closed(); });
  EXPECT_GE(refused, static_cast<std::ptrdiff_t>(kHandshakes - (16 << 20) / fabrics::TlsSession::kMostBytes));
  EXPECT_LT(refused, static_cast<std::ptrdiff_t>(kHandshakes)) << "some have a share";
  EXPECT_EQ(neighbour.csts(), 1u);
  waiting.clear();
  rig.pump();
  use(rig, psk(rig));
}

TEST(NvmeTcpTls, GarbageAfterTheHandshakeAndACutEndTheAssociation) {
  for (const bool garbage : {true, false}) {
    Rig rig(with_tls());
    Host neighbour(rig, psk(rig));
    ASSERT_TRUE(neighbour.initialize());
    ASSERT_NE(neighbour.attach(), 0);
    Host host(rig, psk(rig));
    ASSERT_TRUE(host.initialize());
    ASSERT_NE(host.attach(), 0);
    EXPECT_EQ(rig.controllers(), 2u);
    if (garbage) {
      const std::vector<std::byte> bytes(200, std::byte{0x17});
      ASSERT_EQ(::send(host.socket(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 200);
    } else {
      ::shutdown(host.socket(), SHUT_WR);  // without a word of TLS
    }
    rig.pump();
    EXPECT_TRUE(host.closed());
    EXPECT_EQ(rig.controllers(), 1u);
    EXPECT_EQ(neighbour.csts(), 1u);
  }
}

TEST(NvmeTcpTls, ConfigurationsThatCannotBe) {
  NvmeTcpTargetOptions no_key;
  no_key.tls = TlsUse::required;
  EXPECT_THROW(no_key.validate(), ConfigError);
  EXPECT_THROW(with_tls(kKey32, TlsUse::off).validate(), ConfigError);
  EXPECT_THROW(with_tls("NVMeTLSkey-1:01:short:").validate(), ConfigError);
  EXPECT_NO_THROW(with_tls().validate());
}

}  // namespace
}  // namespace flashmob::transport::testing
