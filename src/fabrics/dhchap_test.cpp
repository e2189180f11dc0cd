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
