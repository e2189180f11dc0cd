// DH-HMAC-CHAP: both ends against each other with every hash and group, messages that were tampered with, and the
// forms of a secret.
#include "fabrics/dhchap.h"

#include <cstring>

#include "flashmob/error.h"
#include "gtest/gtest.h"

namespace flashmob::fabrics {
namespace {

using nvme::AuthDhGroup;
using nvme::AuthFailureReason;
using nvme::AuthHash;
using nvme::AuthMessage;
using nvme::AuthSecureChannel;

constexpr char kHost[] = "nqn.2014-08.org.example:host";
constexpr char kSubsystem[] = "nqn.2014-08.org.example:ssd";
constexpr char kSecret[] = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
constexpr char kOther[] = "DHHC-1:01:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj/jBqb2:";

DhchapParties parties(const char* host_secret, const char* controller_secret = nullptr) {
  DhchapParties p{kHost, kSubsystem, DhchapSecret(host_secret), std::nullopt};
  if (controller_secret != nullptr) p.controller_secret = DhchapSecret(controller_secret);
  return p;
}

AuthFailureReason reason_of(const Bytes& message) {
  nvme::AuthFailure failure{};
  if (message.size() >= sizeof(failure)) std::memcpy(&failure, message.data(), sizeof(failure));
  EXPECT_EQ(failure.header.auth_id, static_cast<std::uint8_t>(AuthMessage::failure1));
  return static_cast<AuthFailureReason>(failure.rescode_exp);
}

TEST(Dhchap, EveryHashAndGroupBothWays) {
  for (const AuthHash hash : {AuthHash::sha256, AuthHash::sha384, AuthHash::sha512}) {
    for (const AuthDhGroup group : {AuthDhGroup::null, AuthDhGroup::ffdhe2048, AuthDhGroup::ffdhe3072}) {
      DhchapHost host(parties(kSecret, kOther));
      DhchapController controller(parties(kSecret, kOther));
      host.offer({hash}, {group});
      controller.send(host.negotiate(5));
      controller.send(host.reply(controller.receive()));
      EXPECT_FALSE(controller.authenticated()) << "not before it has answered";
      controller.send(host.finish(controller.receive()));
      EXPECT_TRUE(controller.authenticated());
      EXPECT_FALSE(controller.failed());
    }
  }
}

TEST(Dhchap, BothEndsMakeTheSameKeyOfTls) {
  for (const AuthHash hash : {AuthHash::sha256, AuthHash::sha384}) {
    for (const char* theirs : {static_cast<const char*>(nullptr), kOther}) {
      for (const AuthSecureChannel channel : {AuthSecureChannel::new_tls_psk, AuthSecureChannel::replace_tls_psk}) {
        DhchapHost host(parties(kSecret, theirs));
        DhchapController controller(parties(kSecret, kOther), channel);
        host.offer({AuthHash::sha512, hash}, {AuthDhGroup::null, AuthDhGroup::ffdhe2048});
        host.ask_for(channel);
        controller.send(host.negotiate(5));
        controller.send(host.reply(controller.receive()));
        EXPECT_FALSE(controller.take_psk()) << "not before the host knows that it is believed";
        const Bytes last = host.finish(controller.receive());
        EXPECT_EQ(last.empty(), theirs == nullptr) << "without a secret of the controller's, nothing of it is asked";
        if (!last.empty()) controller.send(last);
        EXPECT_TRUE(controller.authenticated());
        const auto ours = host.take_psk();
        const auto its = controller.take_psk();
        ASSERT_TRUE(ours && its);
        EXPECT_EQ(ours->key, its->key);
        EXPECT_EQ(text_of(ours->identity), text_of(its->identity));
        EXPECT_EQ(ours->identity.hash, hash);
        EXPECT_EQ(ours->identity.parties, (PskParties{kHost, kSubsystem}));
        EXPECT_FALSE(controller.take_psk()) << "once";
      }
    }
  }
}

// A listener that removes the wish from Negotiate must not end up with a host that goes on in the clear.
TEST(Dhchap, TheWishForAKeyIsPartOfTheProof) {
  DhchapHost host(parties(kSecret));
  DhchapController controller(parties(kSecret), AuthSecureChannel::new_tls_psk);
  host.ask_for(AuthSecureChannel::new_tls_psk);
  Bytes message = host.negotiate(5);
  message[offsetof(nvme::AuthNegotiate, sc_c)] = 0;
  controller.send(message);
  controller.send(host.reply(controller.receive()));
  EXPECT_EQ(reason_of(controller.receive()), AuthFailureReason::authentication_failed);
}

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// Base 2.1, 8.3.4.5: R1 = HMAC(Kh, Ca1 || S1 || T_ID || SC_C || "HostHost" || HOSTNQN || 00h || SUBNQN), and R2 =
// HMAC(Kc, Ca2 || S2 || T_ID || SC_C || "Controller" || SUBNQN || 00h || HOSTNQN). Computed with Python's hashlib.
TEST(Dhchap, ResponsesAreThoseOfTheSpecification) {
  struct Case {
    AuthHash hash;
    std::uint8_t sc_c;
    const char* of_host;
    const char* of_controller;
  };
  const Case cases[] = {
      {AuthHash::sha256, 1, "ccca456e84b73ca2a8c3c4c5936b73b677f23edb92aded4ddb250c5b4b6581a1",
       "5b387f046dac7e4fbd3b0760903157f9059cb2c61263809efb4e383d0b39ec72"},
      {AuthHash::sha256, 2, "b502eede603f9ada323b517f554799de60814c2e446aa0e1785a9a48ca463c60",
       "0e0103b7f5a0a4af58c291e78379bc7c1751cc3876c20c2f1f60615b340ee17c"},
      {AuthHash::sha256, 3, "aa264ee6a69eac47490d5578fa9b1f53823bdce67ceb6ab5743305c88ea68dce",
       "d63387f8a7192cf99d2f24b7ebdf1218b19a1573e4c328836d014e27a7521687"},
      {AuthHash::sha384, 1,
       "5e2c5ce39c8500cb32cc4700856e014976b34b8e8af205aa55e59444e0319a4a25fd0da2cc8f9f241ba37d4e07726585",
       "eef7593703e21289d713125ce4ccc98dbefb20dafa5b27b316768454f28e2ca35d23443e50c5a60f7dbf65383c314473"},
      {AuthHash::sha384, 2,
       "9152ca4060da5b06aba63400c08c8251297540e248b3f0762fdd9ffc1304f9080849ea373f39f3783969fc71140b4697",
       "9150541210661a6ca987bcbfcdc800a681c58190b93b96d2c0681470982627d8519b0d6cad1830f1fe8f3386cdf76d04"},
      {AuthHash::sha384, 3,
       "1246ea1fb7aa3ef9d641aa0f826f8ccf239ff6708ac710089ebaddcc8e7e3938725e9db84739291ddecac302bfc8a8d7",
       "7f790cca030d99ef6a684e174ab19105ceeecbcc42407fb6e08763083577bdbd7ed2fef07f3905512536a1d18bb9fc3b"},
  };
  Bytes key(32);
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::uint8_t>(32 + i);
  SecretBytes shared(256);
  for (std::size_t i = 0; i < shared.size(); ++i) shared[i] = static_cast<std::uint8_t>(i);
  for (const Case& c : cases) {
    Bytes challenge(hash_bytes(c.hash));
    for (std::size_t i = 0; i < challenge.size(); ++i) challenge[i] = static_cast<std::uint8_t>(7 * i + 3);
    const DhchapResponse r{challenge, shared, 0x01020304, 0xA1B2, c.sc_c};
    EXPECT_EQ(hex(host_response(c.hash, key, r, kHost, kSubsystem)), c.of_host);
    EXPECT_EQ(hex(controller_response(c.hash, key, r, kHost, kSubsystem)), c.of_controller);
  }
}

// A controller that follows the specification, made of nothing but the arithmetic: what it says of itself includes the
// host's wish, and a host believes that and nothing else.
TEST(Dhchap, TheWishForAKeyIsPartOfTheControllersProof) {
  for (const AuthSecureChannel channel :
       {AuthSecureChannel::none, AuthSecureChannel::new_tls_psk, AuthSecureChannel::replace_tls_psk}) {
    for (const std::uint8_t said : {std::uint8_t{0}, std::uint8_t{2}, std::uint8_t{3}}) {
      DhchapHost host(parties(kSecret, kOther));
      host.offer({AuthHash::sha256}, {AuthDhGroup::ffdhe2048});
      if (channel != AuthSecureChannel::none) host.ask_for(channel);
      host.negotiate(5);
      const DhExchange exchange(AuthDhGroup::ffdhe2048);
      nvme::AuthChallenge head{};
      head.header = {nvme::kAuthTypeDhchap, static_cast<std::uint8_t>(AuthMessage::challenge), 0, 5};
      head.hl = 32;
      head.hashid = static_cast<std::uint8_t>(AuthHash::sha256);
      head.dhgid = static_cast<std::uint8_t>(AuthDhGroup::ffdhe2048);
      head.dhvlen = 256;
      head.seqnum = 77;
      Bytes message(sizeof head + 32);
      std::memcpy(message.data(), &head, sizeof head);
      message.insert(message.end(), exchange.value().begin(), exchange.value().end());
      const Bytes reply = host.reply(message);
      nvme::AuthReply fields;
      std::memcpy(&fields, reply.data(), sizeof fields);
      const auto after = std::span(reply).subspan(sizeof fields);
      const DhchapResponse ours{after.subspan(32, 32), exchange.shared(after.subspan(64)), fields.seqnum, 5, said};
      const Bytes proof =
          controller_response(AuthHash::sha256, DhchapSecret(kOther).key_for(kSubsystem), ours, kHost, kSubsystem);
      nvme::AuthSuccess1 success{};
      success.header = {nvme::kAuthTypeDhchap, static_cast<std::uint8_t>(AuthMessage::success1), 0, 5};
      success.hl = 32;
      success.rvalid = 1;
      Bytes last(sizeof success);
      std::memcpy(last.data(), &success, sizeof success);
      last.insert(last.end(), proof.begin(), proof.end());
      if (said == static_cast<std::uint8_t>(channel)) {
        EXPECT_FALSE(host.finish(last).empty());
        continue;
      }
      try {
        host.finish(last);
        FAIL() << "believed " << int{said};
      } catch (const AuthenticationError& error) {
        // The controller is to be told (AUTH_Failure2).
        nvme::AuthFailure failure{};
        ASSERT_EQ(error.last_words().size(), sizeof failure);
        std::memcpy(&failure, error.last_words().data(), sizeof failure);
        EXPECT_EQ(failure.header.auth_id, static_cast<std::uint8_t>(AuthMessage::failure2));
        EXPECT_EQ(failure.header.t_id, 5);
        EXPECT_EQ(failure.rescode, nvme::kAuthFailed);
        EXPECT_EQ(failure.rescode_exp, static_cast<std::uint8_t>(AuthFailureReason::authentication_failed));
      }
    }
  }
}

TEST(Dhchap, AControllersProofOfAnEndMadeInTheSpecificationsWay) {
  DhchapHost host(parties(kSecret, kOther));
  DhchapController controller(parties(kSecret, kOther), AuthSecureChannel::new_tls_psk);
  host.offer({AuthHash::sha256}, {AuthDhGroup::ffdhe2048});
  host.ask_for(AuthSecureChannel::new_tls_psk);
  controller.send(host.negotiate(5));
  const Bytes challenge = controller.receive();
  // Our own exchange in the place of the host's, so that what both ends share is known here.
  const DhExchange exchange(AuthDhGroup::ffdhe2048);
  nvme::AuthChallenge head;
  std::memcpy(&head, challenge.data(), sizeof head);
  const auto rest = std::span(challenge).subspan(sizeof head);
  const auto shared = exchange.shared(rest.subspan(32));
  const DhchapResponse ours{rest.first(32), shared, head.seqnum, 5, 2};
  nvme::AuthReply fields{};
  fields.header = {nvme::kAuthTypeDhchap, static_cast<std::uint8_t>(AuthMessage::reply), 0, 5};
  fields.hl = 32;
  fields.cvalid = 1;
  fields.dhvlen = 256;
  fields.seqnum = 99;
  Bytes reply(sizeof fields);
  std::memcpy(reply.data(), &fields, sizeof fields);
  const Bytes response = host_response(AuthHash::sha256, DhchapSecret(kSecret).key_for(kHost), ours, kHost, kSubsystem);
  const Bytes our_challenge(32, 0x5A);
  for (const Bytes& part : {response, our_challenge, exchange.value()})
    reply.insert(reply.end(), part.begin(), part.end());
  controller.send(reply);
  const Bytes success1 = controller.receive();
  const DhchapResponse theirs{our_challenge, shared, 99, 5, 2};
  const Bytes proof =
      controller_response(AuthHash::sha256, DhchapSecret(kOther).key_for(kSubsystem), theirs, kHost, kSubsystem);
  ASSERT_EQ(success1.size(), sizeof(nvme::AuthSuccess1) + 32);
  EXPECT_TRUE(std::equal(proof.begin(), proof.end(), success1.begin() + sizeof(nvme::AuthSuccess1)));
}

TEST(Dhchap, AHostSaysWhatIsWrong) {
  DhchapHost host(parties(kSecret, kOther));
  DhchapController controller(parties(kSecret));  // has no secret of its own
  controller.send(host.negotiate(5));
  controller.send(host.reply(controller.receive()));
  try {
    host.finish(controller.receive());
    FAIL();
  } catch (const AuthenticationError& error) {
    EXPECT_NE(std::string(error.what()).find("dhchap_controller_secret"), std::string::npos) << error.what();
    EXPECT_TRUE(error.last_words().empty()) << "it has refused already";
  }
}

TEST(Dhchap, AKeyNeedsAChallengeOfTheHostsAndAnEndWithoutFailure) {
  for (const bool without_challenge : {true, false}) {
    DhchapHost host(parties(kSecret));
    DhchapController controller(parties(kSecret), AuthSecureChannel::new_tls_psk);
    host.ask_for(AuthSecureChannel::new_tls_psk);
    controller.send(host.negotiate(5));
    Bytes reply = host.reply(controller.receive());
    if (without_challenge) reply[offsetof(nvme::AuthReply, cvalid)] = 0;
    controller.send(reply);
    if (without_challenge) {
      EXPECT_EQ(reason_of(controller.receive()), AuthFailureReason::incorrect_payload);
    } else {
      controller.send(reply);
      EXPECT_EQ(reason_of(controller.receive()), AuthFailureReason::incorrect_message);
    }
    EXPECT_FALSE(controller.authenticated());
    EXPECT_FALSE(controller.take_psk());
  }
}

TEST(Dhchap, LargeGroupsExchangeTheSameSecret) {
  for (const AuthDhGroup group : {AuthDhGroup::ffdhe4096, AuthDhGroup::ffdhe6144, AuthDhGroup::ffdhe8192}) {
    const DhExchange a(group);
    const DhExchange b(group);
    EXPECT_EQ(a.value().size(), dh_value_bytes(group));
    const auto shared = a.shared(b.value());
    ASSERT_TRUE(shared);
    EXPECT_EQ(shared, b.shared(a.value()));
    EXPECT_EQ(shared->size(), dh_value_bytes(group));
  }
}

TEST(Dhchap, ValuesOutsideTheGroupAreRefused) {
  const DhExchange exchange(AuthDhGroup::ffdhe2048);
  Bytes value(256);
  EXPECT_FALSE(exchange.shared(value)) << "0";
  value.back() = 1;
  EXPECT_FALSE(exchange.shared(value)) << "1";
  EXPECT_FALSE(exchange.shared(Bytes(256, 0xFF))) << "beyond the prime";
  EXPECT_FALSE(exchange.shared(Bytes(255, 2))) << "length";
  EXPECT_FALSE(DhExchange(AuthDhGroup::null).shared({}));
}

TEST(Dhchap, TheControllerTakesAnExchangeOverNone) {
  DhchapHost host(parties(kSecret));
  DhchapController controller(parties(kSecret));
  host.offer({AuthHash::sha256}, {AuthDhGroup::null, AuthDhGroup::ffdhe2048});
  controller.send(host.negotiate(1));
  const Bytes message = controller.receive();
  nvme::AuthChallenge challenge;
  std::memcpy(&challenge, message.data(), sizeof(challenge));
  EXPECT_EQ(challenge.dhgid, static_cast<std::uint8_t>(AuthDhGroup::ffdhe2048));
  EXPECT_EQ(challenge.dhvlen, 256);
  EXPECT_NE(challenge.seqnum, 0u);
}

TEST(Dhchap, AnyChangedByteOfAReplyFails) {
  DhchapHost probe(parties(kSecret, kOther));
  probe.offer({AuthHash::sha256}, {AuthDhGroup::null});
  DhchapController first(parties(kSecret, kOther));
  first.send(probe.negotiate(3));
  const std::size_t length = probe.reply(first.receive()).size();
  for (std::size_t at = 0; at < length; ++at) {
    DhchapHost host(parties(kSecret, kOther));
    host.offer({AuthHash::sha256}, {AuthDhGroup::null});
    DhchapController controller(parties(kSecret, kOther));
    controller.send(host.negotiate(3));
    Bytes reply = host.reply(controller.receive());
    reply[at] ^= 0x10;
    controller.send(reply);
    const Bytes answer = controller.receive();
    bool believed = true;
    try {
      host.finish(answer);
    } catch (const AuthenticationError&) {
      believed = false;
    }
    // Reserved bytes, and a flag that is still set, mean nothing; everything else must be noticed by one end.
    const bool means_nothing = at == 2 || at == 3 || at == 7 || at == 8 || at == 9;
    EXPECT_EQ(believed, means_nothing) << at;
  }
}

TEST(Dhchap, ShortMessagesAreRefused) {
  for (std::size_t length = 0; length < 80; ++length) {
    DhchapHost host(parties(kSecret));
    host.offer({AuthHash::sha256}, {AuthDhGroup::null});
    DhchapController controller(parties(kSecret));
    Bytes negotiate = host.negotiate(3);
    if (length < negotiate.size()) {
      negotiate.resize(length);
      controller.send(negotiate);
      EXPECT_EQ(reason_of(controller.receive()), AuthFailureReason::incorrect_payload) << length;
      EXPECT_TRUE(controller.failed());
    }
    DhchapController second(parties(kSecret));
    second.send(host.negotiate(4));
    Bytes reply = host.reply(second.receive());
    if (length < reply.size()) {
      reply.resize(length);
      second.send(reply);
      EXPECT_EQ(reason_of(second.receive()), AuthFailureReason::incorrect_payload) << length;
    }
  }
}

TEST(Dhchap, MessagesOutOfOrder) {
  DhchapHost host(parties(kSecret));
  host.offer({AuthHash::sha256}, {AuthDhGroup::null});
  {
    DhchapController controller(parties(kSecret));
    EXPECT_EQ(reason_of(controller.receive()), AuthFailureReason::incorrect_message);
  }
  {
    DhchapController controller(parties(kSecret));
    controller.send(host.negotiate(1));
    const Bytes reply = host.reply(controller.receive());
    controller.send(reply);
    controller.send(reply);
    EXPECT_EQ(reason_of(controller.receive()), AuthFailureReason::incorrect_message);
    EXPECT_FALSE(controller.authenticated());
  }
  {
    DhchapController controller(parties(kSecret));
    controller.send(host.negotiate(1));
    controller.send(host.negotiate(1));
    EXPECT_EQ(reason_of(controller.receive()), AuthFailureReason::incorrect_message);
  }
}

TEST(Dhchap, WhatCannotBeAgreedUpon) {
  DhchapHost host(parties(kSecret));
  const auto refused = [&](Bytes message) {
    DhchapController controller(parties(kSecret));
    controller.send(message);
    return reason_of(controller.receive());
  };
  Bytes message = host.negotiate(1);
  message[6] = 1;
  EXPECT_EQ(refused(message), AuthFailureReason::secure_channel_mismatch);
  message = host.negotiate(1);
  message[8] = 2;
  EXPECT_EQ(refused(message), AuthFailureReason::protocol_not_usable);
  host.offer({static_cast<AuthHash>(9)}, {AuthDhGroup::null});
  EXPECT_EQ(refused(host.negotiate(1)), AuthFailureReason::hash_not_usable);
  host.offer({AuthHash::sha256}, {static_cast<AuthDhGroup>(9)});
  EXPECT_EQ(refused(host.negotiate(1)), AuthFailureReason::dh_group_not_usable);
}

TEST(Dhchap, AHostThatReflectsTheChallengeLearnsNothing) {
  DhchapHost host(parties(kSecret, kOther));
  host.offer({AuthHash::sha256}, {AuthDhGroup::null});
  DhchapController controller(parties(kSecret, kOther));
  controller.send(host.negotiate(1));
  const Bytes challenge = controller.receive();
  Bytes reply = host.reply(challenge);
  std::copy_n(challenge.begin() + 16, 32, reply.begin() + 16 + 32);
  controller.send(reply);
  EXPECT_EQ(reason_of(controller.receive()), AuthFailureReason::authentication_failed);
}

TEST(DhchapSecretTest, Forms) {
  EXPECT_EQ(DhchapSecret(kSecret).key_for(kHost).size(), 32u);
  EXPECT_EQ(DhchapSecret(kSecret).key_for(kHost), DhchapSecret(kSecret).key_for(kSubsystem)) << "not transformed";
  EXPECT_NE(DhchapSecret(kOther).key_for(kHost), DhchapSecret(kOther).key_for(kSubsystem));
  for (const char* bad :
       {"", "DHHC-1:", "DHHC-1:00:", "DHHC-1:00::", "DHHC-1:04:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR",
        "DHHC-2:00:AAEC:", "DHHC-1:00:BAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaRAAAA:",
        "DHHC-1:00:AAECAwQFBgcICQoLDA0O!xAREhMUFRYXGBkaGxwdHh+KfiaR:"}) {
    EXPECT_THROW(DhchapSecret{bad}, ConfigError) << bad;
  }
}

}  // namespace
}  // namespace flashmob::fabrics
