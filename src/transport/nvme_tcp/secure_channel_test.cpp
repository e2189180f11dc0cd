// Secure channel concatenation at the door: an authentication makes a key of TLS, and its host comes back with it. Who
// may ask for a key, where, and what it opens.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "fabrics/dhchap.h"
#include "fabrics/tls_psk.h"
#include "gtest/gtest.h"
#include "transport/nvme_tcp/generated_keys.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace flashmob::transport::testing {
namespace {

using fabrics::Bytes;
using fabrics::TlsPsk;
using nvme::AuthDhGroup;
using nvme::AuthFailureReason;
using nvme::AuthHash;
using nvme::AuthSecureChannel;
using nvme::Status;

constexpr char kHostSecret[] = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
constexpr char kDoorSecret[] = "DHHC-1:01:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj/jBqb2:";
constexpr char kRetainedKey[] = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
constexpr char kNeighbour[] = "nqn.2014-08.org.example:neighbour";

NvmeTcpTargetOptions with_secrets() {
  NvmeTcpTargetOptions options;
  options.hosts = {{.nqn = kHostNqn, .dhchap_secret = kHostSecret, .dhchap_controller_secret = kDoorSecret},
                   {.nqn = kNeighbour, .dhchap_secret = kHostSecret, .dhchap_controller_secret = {}}};
  return options;
}

bool tell(Host& host, const Bytes& message) {
  nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::authentication_send);
  nvme::encode_authentication({.length_bytes = static_cast<std::uint32_t>(message.size())}, sqe);
  return host.in_capsule(sqe, std::as_bytes(std::span(message))).status() == Status::success;
}

Bytes ask(Host& host) {
  nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::authentication_receive);
  nvme::encode_authentication({.length_bytes = 4096}, sqe);
  Host::transport_sgl(sqe, 4096);
  const Reply reply = host.command(sqe);
  const auto* const data = reinterpret_cast<const std::uint8_t*>(reply.data.data());
  return {data, data + reply.data.size()};
}

struct Wish {
  AuthSecureChannel channel = AuthSecureChannel::new_tls_psk;
  AuthHash hash = AuthHash::sha256;
  bool both_ways = false;
  std::string host_nqn = kHostNqn;
};

// Authenticates on a connection that has completed Connect. The key; nothing if there was none.
std::optional<TlsPsk> make_key(Rig& rig, Host& host, const Wish& wish = {}) {
  fabrics::DhchapParties both{wish.host_nqn, rig.subsystem().config().nqn, fabrics::DhchapSecret(kHostSecret), {}};
  if (wish.both_ways) both.controller_secret = fabrics::DhchapSecret(kDoorSecret);
  fabrics::DhchapHost dhchap(std::move(both));
  dhchap.offer({wish.hash}, {AuthDhGroup::ffdhe2048});
  if (wish.channel != AuthSecureChannel::none) dhchap.ask_for(wish.channel);
  try {
    if (!tell(host, dhchap.negotiate(9)) || !tell(host, dhchap.reply(ask(host)))) return std::nullopt;
    const Bytes last = dhchap.finish(ask(host));
    if (!last.empty() && !tell(host, last)) return std::nullopt;
  } catch (const fabrics::AuthenticationError&) {
    return std::nullopt;
  }
  return dhchap.take_psk();
}

// What a host does first: connects in the clear, proves who it is, and leaves with a key.
std::optional<TlsPsk> first_contact(Rig& rig, const Wish& wish = {}) {
  Host host(rig);
  if (!host.initialize()) return std::nullopt;
  const auto data = Host::connect_data(rig.subsystem().config().nqn, nvme::kCntlidDynamic, wish.host_nqn);
  const Reply reply = host.connect(Host::connect_sqe(0, 32), data);
  EXPECT_EQ(reply.status(), Status::success);
  EXPECT_NE(reply.cqe.dw0 & nvme::kConnectAuthRequired, 0u);
  EXPECT_EQ(reply.cqe.dw0 & nvme::kConnectSecureChannelRequired, 0u);
  auto psk = make_key(rig, host, wish);
  host.hang_up();
  rig.pump();
  return psk;
}

// Attaches by TLS, without another proof. The controller's identifier; 0 if that was refused.
std::uint16_t attach_by_tls(Host& admin) {
  if (!admin.secure() || !admin.initialize()) return 0;
  return admin.attach();
}

// Why a message to the door was the last one.
AuthFailureReason refusal(Host& host) {
  const Bytes answer = ask(host);
  nvme::AuthFailure failure{};
  if (answer.size() >= sizeof failure) std::memcpy(&failure, answer.data(), sizeof failure);
  EXPECT_EQ(failure.header.auth_id, static_cast<std::uint8_t>(nvme::AuthMessage::failure1));
  return static_cast<AuthFailureReason>(failure.rescode_exp);
}

Bytes wish_of(AuthSecureChannel channel, AuthHash hash = AuthHash::sha256, AuthDhGroup group = AuthDhGroup::ffdhe2048) {
  fabrics::DhchapHost dhchap({kHostNqn, "", fabrics::DhchapSecret(kHostSecret), {}});
  dhchap.offer({hash}, {group});
  Bytes message = dhchap.negotiate(9);
  message[offsetof(nvme::AuthNegotiate, sc_c)] = static_cast<std::uint8_t>(channel);
  return message;
}

TEST(NvmeTcpSecureChannel, DataMovesByTlsWithTheKeyThatWasMade) {
  for (const AuthHash hash : {AuthHash::sha256, AuthHash::sha384}) {
    for (const bool both_ways : {false, true}) {
      Rig rig(with_secrets());
      const auto psk = first_contact(rig, {.hash = hash, .both_ways = both_ways});
      ASSERT_TRUE(psk);
      EXPECT_EQ(text_of(psk->identity).substr(0, 9), hash == AuthHash::sha256 ? "NVMe1G01 " : "NVMe1G02 ");
      Host admin(rig, *psk);
      ASSERT_TRUE(admin.secure()) << admin.tls_reason();
      ASSERT_TRUE(admin.initialize());
      const Reply reply = admin.connect(Host::connect_sqe(0, 32), Host::connect_data(rig.subsystem().config().nqn));
      ASSERT_EQ(reply.status(), Status::success);
      const auto cntlid = static_cast<std::uint16_t>(reply.cqe.dw0);
      EXPECT_EQ(reply.cqe.dw0, cntlid) << "the key is the proof";
      EXPECT_EQ(admin.enable(true).status(), Status::success);
      Host io(rig, *psk);
      ASSERT_TRUE(io.initialize());
      EXPECT_EQ(io.attach_io(cntlid).cqe.dw0, cntlid);
      const auto data = pattern(16384, 3);
      EXPECT_EQ(io.write(7, data).status(), Status::success);
      EXPECT_TRUE(io.read(7, 16384).data == data);
    }
  }
}

TEST(NvmeTcpSecureChannel, WhoDoesNotAskForItIsServedAsBefore) {
  Rig rig(with_secrets());
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const Reply reply = admin.connect(Host::connect_sqe(0, 32), Host::connect_data(rig.subsystem().config().nqn));
  ASSERT_EQ(reply.status(), Status::success);
  EXPECT_FALSE(make_key(rig, admin, {.channel = AuthSecureChannel::none}));
  EXPECT_EQ(admin.enable(true).status(), Status::success);
  Host io(rig);
  ASSERT_TRUE(io.initialize());
  EXPECT_EQ(io.attach_io(static_cast<std::uint16_t>(reply.cqe.dw0)).status(), Status::success);
}

TEST(NvmeTcpSecureChannel, AKeyIsNotForOthers) {
  Rig rig(with_secrets());
  const auto good = first_contact(rig);
  ASSERT_TRUE(good);
  TlsPsk wrong = *good, other_host = *good, other_subsystem = *good, other_digest = *good, retained = *good;
  wrong.key[3] ^= 1;
  other_host.identity.parties.host_nqn = kNeighbour;
  other_subsystem.identity.parties.subsystem_nqn += "x";
  other_digest.identity.digest[0] = other_digest.identity.digest[0] == 'A' ? 'B' : 'A';
  retained.identity.generated = false;
  for (const TlsPsk& psk : {wrong, other_host, other_subsystem, other_digest, retained}) {
    Host host(rig, psk);
    EXPECT_FALSE(host.secure()) << text_of(psk.identity);
    EXPECT_NE(host.tls_reason(), "");
  }
  // With the right key, but another's name.
  const std::string nqn = rig.subsystem().config().nqn;
  Host liar(rig, *good);
  ASSERT_TRUE(liar.initialize());
  EXPECT_EQ(liar.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn, nvme::kCntlidDynamic, kNeighbour)).status(),
            nvme::kAuthenticationRequired);
  EXPECT_EQ(liar.connect(Host::connect_sqe(0, 32), Host::connect_data(nvme::kDiscoveryNqn)).status(),
            nvme::kAuthenticationRequired);
  EXPECT_EQ(rig.controllers(), 0u);
  Host host(rig, *good);
  EXPECT_NE(attach_by_tls(host), 0);
}

// Each is in the clear when the other one makes its key, and both come back: none takes the other's key away.
TEST(NvmeTcpSecureChannel, AssociationsOfAHostThatAreBegunAtOnceHaveAKeyEach) {
  Rig rig(with_secrets());
  const auto first = first_contact(rig);
  const auto second = first_contact(rig);
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->identity.digest, second->identity.digest);
  Host one(rig, *first), other(rig, *second);
  const std::uint16_t of_one = attach_by_tls(one), of_other = attach_by_tls(other);
  ASSERT_NE(of_one, 0);
  ASSERT_NE(of_other, 0);
  EXPECT_TRUE(first_contact(rig)) << "a third one does not end what is there";
  for (const auto& [psk, cntlid] : {std::pair(*first, of_one), std::pair(*second, of_other)}) {
    Host io(rig, psk);
    ASSERT_TRUE(io.initialize());
    EXPECT_EQ(io.attach_io(cntlid).status(), Status::success);
  }
  // An association's I/O queues come with its own key, or not at all.
  Host io(rig, *second);
  ASSERT_TRUE(io.initialize());
  EXPECT_EQ(io.attach_io(of_one).status(), nvme::kAuthenticationRequired);
  // What one of them replaces is its own.
  const auto third = make_key(rig, other, {.channel = AuthSecureChannel::replace_tls_psk});
  ASSERT_TRUE(third);
  EXPECT_FALSE(Host(rig, *second).secure()) << "replayed";
  EXPECT_TRUE(Host(rig, *first).secure());
  EXPECT_TRUE(Host(rig, *third).secure());
  EXPECT_EQ(one.csts(), 1u);
  EXPECT_EQ(other.csts(), 1u);
  rig.target().stop();
  EXPECT_FALSE(Host(rig, *first).secure()) << "gone with the server";
}

TEST(NvmeTcpSecureChannel, AHostKeepsTheKeysThatItUsedLast) {
  GeneratedKeys keys;
  const auto key_of = [](const std::string& nqn, int number) {
    TlsPsk psk;
    psk.identity.generated = true;
    psk.identity.parties.host_nqn = nqn;
    psk.identity.digest = std::to_string(number);
    return psk;
  };
  constexpr int kMost = GeneratedKeys::kMostOfAHost;
  keys.put(key_of(kNeighbour, 0));
  for (int i = 0; i < kMost; ++i) keys.put(key_of(kHostNqn, i));
  EXPECT_TRUE(keys.find(key_of(kHostNqn, 0).identity)) << "used";
  for (int i = kMost; i < 2 * kMost - 1; ++i) keys.put(key_of(kHostNqn, i));
  EXPECT_TRUE(keys.find(key_of(kHostNqn, 0).identity));
  EXPECT_FALSE(keys.find(key_of(kHostNqn, kMost - 1).identity));
  EXPECT_TRUE(keys.find(key_of(kHostNqn, kMost).identity));
  EXPECT_TRUE(keys.find(key_of(kNeighbour, 0).identity)) << "a neighbour's are no part of it";
}

TEST(NvmeTcpSecureChannel, AHostThatHasAttachedByTlsMayReplaceItsKey) {
  Rig rig(with_secrets());
  const auto first = first_contact(rig);
  ASSERT_TRUE(first);
  Host admin(rig, *first);
  const std::uint16_t cntlid = attach_by_tls(admin);
  ASSERT_NE(cntlid, 0);
  const auto second = make_key(rig, admin, {.channel = AuthSecureChannel::replace_tls_psk, .both_ways = true});
  ASSERT_TRUE(second);
  EXPECT_EQ(admin.csts(), 1u);
  EXPECT_FALSE(Host(rig, *first).secure());
  Host io(rig, *second);
  ASSERT_TRUE(io.initialize());
  EXPECT_EQ(io.attach_io(cntlid).status(), Status::success) << "of this association from now on";
}

// However often an association renews its key: others of its host keep theirs.
TEST(NvmeTcpSecureChannel, AnAssociationHasOneKeyAtATime) {
  Rig rig(with_secrets());
  const auto of_neighbour = first_contact(rig), of_admin = first_contact(rig);
  ASSERT_TRUE(of_neighbour && of_admin);
  Host neighbour(rig, *of_neighbour), admin(rig, *of_admin);
  const std::uint16_t cntlid = attach_by_tls(neighbour);
  ASSERT_NE(cntlid, 0);
  ASSERT_NE(attach_by_tls(admin), 0);
  std::vector<TlsPsk> earlier = {*of_admin};
  for (std::size_t i = 0; i <= GeneratedKeys::kMostOfAHost; ++i) {
    const auto next = make_key(rig, admin, {.channel = AuthSecureChannel::replace_tls_psk});
    ASSERT_TRUE(next);
    earlier.push_back(*next);
  }
  const TlsPsk last = earlier.back();
  earlier.pop_back();
  for (const TlsPsk& psk : {earlier.front(), earlier[1], earlier.back()})
    EXPECT_FALSE(Host(rig, psk).secure()) << "another has taken its place";
  EXPECT_TRUE(Host(rig, last).secure());
  Host io(rig, *of_neighbour);
  ASSERT_TRUE(io.initialize());
  EXPECT_EQ(io.attach_io(cntlid).status(), Status::success);
}

// Whether its host asks for the door's last words or not.
TEST(NvmeTcpSecureChannel, WhoFailsToAuthenticateAgainLosesTheQueuesAtOnce) {
  Rig rig(with_secrets());
  for (const bool over_tls : {false, true}) {
    const auto psk = first_contact(rig);
    ASSERT_TRUE(psk);
    const auto host = [&] { return over_tls ? std::make_unique<Host>(rig, *psk) : std::make_unique<Host>(rig); };
    const auto admin = host(), io = host();
    ASSERT_TRUE(admin->initialize());
    const std::string nqn = rig.subsystem().config().nqn;
    const Reply reply = admin->connect(Host::connect_sqe(0, 32), Host::connect_data(nqn));
    ASSERT_EQ(reply.status(), Status::success);
    if (!over_tls) {
      make_key(rig, *admin, {.channel = AuthSecureChannel::none});
    }
    ASSERT_EQ(admin->enable(true).status(), Status::success);
    const auto cntlid = static_cast<std::uint16_t>(reply.cqe.dw0);
    ASSERT_TRUE(io->initialize());
    ASSERT_EQ(io->attach_io(cntlid).status(), Status::success);
    if (!over_tls) {
      make_key(rig, *io, {.channel = AuthSecureChannel::none});
    }
    ASSERT_EQ(io->write(0, pattern(4096, 1)).status(), Status::success);
    ASSERT_TRUE(tell(*admin, wish_of(AuthSecureChannel::sc)));
    rig.pump();
    EXPECT_TRUE(io->closed()) << over_tls;
    const auto late = host();
    ASSERT_TRUE(late->initialize());
    EXPECT_EQ(late->attach_io(cntlid, 2).status(), nvme::kAuthenticationRequired) << over_tls;
    EXPECT_EQ(admin->command(Host::identify(1)).status(), nvme::kAuthenticationRequired) << over_tls;
    EXPECT_EQ(refusal(*admin), AuthFailureReason::secure_channel_mismatch) << "the host is told why";
    EXPECT_TRUE(admin->closed());
  }
}

TEST(NvmeTcpSecureChannel, QueuesOfAnAssociationComeTheSameWay) {
  Rig rig(with_secrets());
  const std::string nqn = rig.subsystem().config().nqn;
  Host clear(rig);
  ASSERT_TRUE(clear.initialize());
  const Reply reply = clear.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn));
  ASSERT_EQ(reply.status(), Status::success);
  const auto psk = make_key(rig, clear);
  ASSERT_TRUE(psk);
  EXPECT_EQ(clear.enable(true).status(), Status::success) << "Linux identifies the controller before it comes again";
  Host admin(rig, *psk);
  const std::uint16_t secured = attach_by_tls(admin);
  ASSERT_NE(secured, 0);
  for (const std::uint16_t cntlid : {secured, static_cast<std::uint16_t>(reply.cqe.dw0)}) {
    Host plain_io(rig);
    ASSERT_TRUE(plain_io.initialize());
    EXPECT_EQ(plain_io.attach_io(cntlid).status(), nvme::kAuthenticationRequired);
    Host secure_io(rig, *psk);
    ASSERT_TRUE(secure_io.initialize());
    EXPECT_EQ(secure_io.attach_io(cntlid).status(),
              cntlid == secured ? Status::success : nvme::kAuthenticationRequired);
  }
}

// A connection in the clear on which a key has been made: its host can look at the controller, shut it down and go. It
// ends by itself, whatever the host sends and whether it has a keep alive timer or not.
TEST(NvmeTcpSecureChannel, InTheClearNothingIsLeftToDo) {
  NvmeTcpTargetOptions options = with_secrets();
  options.key_timeout_ms = 600'000;
  Rig rig(options);
  Host host(rig);
  ASSERT_TRUE(host.initialize());
  const Reply reply = host.connect(Host::connect_sqe(0, 32), Host::connect_data(rig.subsystem().config().nqn));
  ASSERT_EQ(reply.status(), Status::success);
  ASSERT_TRUE(make_key(rig, host));
  ASSERT_EQ(host.enable(true).status(), Status::success);
  EXPECT_EQ(host.command(Host::identify(1)).status(), Status::success);
  const auto status_of = [&](nvme::AdminOpcode opcode, std::uint32_t cdw10 = 0, std::uint32_t cdw11 = 0,
                             std::uint32_t bytes = 0) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = opcode == nvme::AdminOpcode::format_nvm ? 1 : 0;
    sqe.cdw10 = cdw10;
    sqe.cdw11 = cdw11;
    Host::transport_sgl(sqe, bytes);
    return host.command(sqe).status();
  };
  EXPECT_EQ(status_of(nvme::AdminOpcode::keep_alive), Status::success);
  // What Linux reads before it comes again: the logs of effects and of health.
  EXPECT_EQ(status_of(nvme::AdminOpcode::get_log_page, 0x03FF0005, 0, 4096), Status::success);
  EXPECT_EQ(status_of(nvme::AdminOpcode::get_log_page, 0x007F0002, 0, 512), Status::success);
  EXPECT_EQ(status_of(nvme::AdminOpcode::get_log_page, 0x000F0001, 0, 64), nvme::kAuthenticationRequired);
  EXPECT_EQ(status_of(nvme::AdminOpcode::format_nvm), nvme::kAuthenticationRequired);
  EXPECT_EQ(status_of(nvme::AdminOpcode::set_features, 0x0B, 1), nvme::kAuthenticationRequired);
  EXPECT_EQ(status_of(nvme::AdminOpcode::get_features, 0x0B), nvme::kAuthenticationRequired);
  EXPECT_EQ(status_of(nvme::AdminOpcode::async_event_request), nvme::kAuthenticationRequired);
  EXPECT_EQ(status_of(nvme::AdminOpcode::abort), nvme::kAuthenticationRequired);
  EXPECT_FALSE(tell(host, wish_of(AuthSecureChannel::none))) << "nor to authenticate again";
  EXPECT_EQ(host.set_property(nvme::kRegNssr, 0x4E564D65).status(), nvme::kAuthenticationRequired);
  EXPECT_EQ(host.csts(), 1u);
  EXPECT_EQ(host.enable(false).status(), Status::success);
  EXPECT_EQ(host.csts(), 0u);
}

TEST(NvmeTcpSecureChannel, TheConnectionThatMadeAKeyEndsByItself) {
  NvmeTcpTargetOptions options = with_secrets();
  options.key_timeout_ms = 50;
  Rig rig(options);
  Host host(rig);
  ASSERT_TRUE(host.initialize());
  ASSERT_EQ(host.connect(Host::connect_sqe(0, 32), Host::connect_data(rig.subsystem().config().nqn)).status(),
            Status::success);
  const auto psk = make_key(rig, host);
  ASSERT_TRUE(psk);
  for (int i = 0; i < 6000 && rig.controllers() != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    host.csts();
    rig.pump();
  }
  EXPECT_EQ(rig.controllers(), 0u);
  EXPECT_TRUE(host.closed());
  Host admin(rig, *psk);
  EXPECT_NE(attach_by_tls(admin), 0) << "the key is still good";
}

// Queues that would go on in the clear, beside a key that is to end that.
TEST(NvmeTcpSecureChannel, WhoHasQueuesAlreadyGetsNoKey) {
  Rig rig(with_secrets());
  const std::string nqn = rig.subsystem().config().nqn;
  for (const bool while_it_is_made : {false, true}) {
    Host admin(rig);
    ASSERT_TRUE(admin.initialize());
    const Reply reply = admin.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn));
    make_key(rig, admin, {.channel = AuthSecureChannel::none});
    ASSERT_EQ(admin.enable(true).status(), Status::success);
    fabrics::DhchapHost dhchap({kHostNqn, nqn, fabrics::DhchapSecret(kHostSecret), {}});
    dhchap.ask_for(AuthSecureChannel::new_tls_psk);
    if (while_it_is_made) {
      ASSERT_TRUE(tell(admin, dhchap.negotiate(9)));
    }
    Host io(rig);
    ASSERT_TRUE(io.initialize());
    const auto cntlid = static_cast<std::uint16_t>(reply.cqe.dw0);
    ASSERT_EQ(io.attach_io(cntlid).status(), Status::success);
    if (!while_it_is_made) {
      ASSERT_TRUE(tell(admin, dhchap.negotiate(9)));
      EXPECT_EQ(refusal(admin), AuthFailureReason::secure_channel_mismatch);
    } else {
      ASSERT_TRUE(tell(admin, dhchap.reply(ask(admin))));
      ask(admin);
    }
    EXPECT_TRUE(admin.closed());
    admin.hang_up();
    rig.pump();
    EXPECT_TRUE(io.closed()) << "and with it the association";
    EXPECT_EQ(rig.controllers(), 0u);
  }
}

// TLS was set up with a key that another has taken the place of before Connect.
TEST(NvmeTcpSecureChannel, AReplacedKeyConnectsNothingMore) {
  Rig rig(with_secrets());
  const auto first = first_contact(rig);
  ASSERT_TRUE(first);
  Host admin(rig, *first);
  ASSERT_NE(attach_by_tls(admin), 0);
  Host waiting(rig, *first);
  ASSERT_TRUE(waiting.secure());
  ASSERT_TRUE(waiting.initialize());
  ASSERT_TRUE(make_key(rig, admin, {.channel = AuthSecureChannel::replace_tls_psk}));
  EXPECT_EQ(waiting.connect(Host::connect_sqe(0, 32), Host::connect_data(rig.subsystem().config().nqn)).status(),
            nvme::kAuthenticationRequired);
  EXPECT_EQ(admin.csts(), 1u);
}

// Not on an I/O queue, not what does not go with the connection, and not without what a key is made of.
TEST(NvmeTcpSecureChannel, WhereAKeyCannotBeMade) {
  Rig rig(with_secrets());
  const std::string nqn = rig.subsystem().config().nqn;
  const auto refused = [&](const Bytes& message) {
    Host host(rig);
    EXPECT_TRUE(host.initialize());
    EXPECT_EQ(host.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn)).status(), Status::success);
    EXPECT_TRUE(tell(host, message));
    const AuthFailureReason reason = refusal(host);
    EXPECT_TRUE(host.closed());
    return reason;
  };
  for (const auto channel : {AuthSecureChannel::sc, AuthSecureChannel::replace_tls_psk, AuthSecureChannel{4}})
    EXPECT_EQ(refused(wish_of(channel)), AuthFailureReason::secure_channel_mismatch);
  const auto wanted = AuthSecureChannel::new_tls_psk;
  EXPECT_EQ(refused(wish_of(wanted, AuthHash::sha512)), AuthFailureReason::hash_not_usable);
  EXPECT_EQ(refused(wish_of(wanted, AuthHash::sha256, AuthDhGroup::null)), AuthFailureReason::dh_group_not_usable);

  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const Reply reply = admin.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn));
  make_key(rig, admin, {.channel = AuthSecureChannel::none});
  ASSERT_EQ(admin.enable(true).status(), Status::success);
  Host io(rig);
  ASSERT_TRUE(io.initialize());
  ASSERT_EQ(io.attach_io(static_cast<std::uint16_t>(reply.cqe.dw0)).status(), Status::success);
  ASSERT_TRUE(tell(io, wish_of(wanted)));
  EXPECT_EQ(refusal(io), AuthFailureReason::secure_channel_mismatch);

  const auto psk = first_contact(rig);
  ASSERT_TRUE(psk);
  Host secured(rig, *psk);
  const std::uint16_t cntlid = attach_by_tls(secured);
  ASSERT_NE(cntlid, 0);
  Host secured_io(rig, *psk);
  ASSERT_TRUE(secured_io.initialize());
  ASSERT_EQ(secured_io.attach_io(cntlid).status(), Status::success);
  ASSERT_TRUE(tell(secured_io, wish_of(AuthSecureChannel::replace_tls_psk)));
  EXPECT_EQ(refusal(secured_io), AuthFailureReason::secure_channel_mismatch) << "on an I/O queue";
  ASSERT_TRUE(tell(secured, wish_of(wanted)));
  EXPECT_EQ(refusal(secured), AuthFailureReason::secure_channel_mismatch) << "on TLS";
}

TEST(NvmeTcpSecureChannel, WhereTlsIsRequiredNobodyStartsInTheClear) {
  NvmeTcpTargetOptions options = with_secrets();
  options.tls = TlsUse::required;
  options.tls_key = kRetainedKey;
  Rig rig(options);
  const std::string nqn = rig.subsystem().config().nqn;
  Host clear(rig);
  ASSERT_TRUE(clear.initialize());
  EXPECT_EQ(clear.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn)).status(), nvme::kAuthenticationRequired);
  const TlsPsk psk = fabrics::TlsKey(kRetainedKey).psk({kHostNqn, nqn});
  for (const auto channel : {AuthSecureChannel::new_tls_psk, AuthSecureChannel::replace_tls_psk}) {
    Host host(rig, psk);
    ASSERT_TRUE(host.initialize());
    EXPECT_NE(host.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn)).cqe.dw0 & nvme::kConnectAuthRequired, 0u)
        << "a configured key is no proof of DH-HMAC-CHAP";
    ASSERT_TRUE(tell(host, wish_of(channel)));
    EXPECT_EQ(refusal(host), AuthFailureReason::secure_channel_mismatch);
  }
}

}  // namespace
}  // namespace flashmob::transport::testing
