#include "fabrics/dhchap.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace flashmob::fabrics {
namespace {

using nvme::AuthDhGroup;
using nvme::AuthFailureReason;
using nvme::AuthHash;
using nvme::AuthHeader;
using nvme::AuthMessage;
using nvme::AuthSecureChannel;

// A message: its structure and what follows it.
template <class T, class... Parts>
Bytes message_of(const T& structure, const Parts&... parts) {
  Bytes out(sizeof(T) + (std::size_t{0} + ... + parts.size()));
  std::memcpy(out.data(), &structure, sizeof(T));
  [[maybe_unused]] auto at = out.begin() + sizeof(T);
  ((at = std::copy(parts.begin(), parts.end(), at)), ...);
  return out;
}

// The structure at the message's beginning; what follows it stays in `rest`.
template <class T>
bool take(std::span<const std::uint8_t> message, T& out, std::span<const std::uint8_t>& rest) {
  if (message.size() < sizeof(T)) return false;
  std::memcpy(&out, message.data(), sizeof(T));
  rest = message.subspan(sizeof(T));
  return true;
}

AuthHeader header_of(std::uint8_t type, AuthMessage id, std::uint16_t t_id) {
  return {type, static_cast<std::uint8_t>(id), 0, t_id};
}

bool is(const AuthHeader& header, std::uint8_t type, AuthMessage id) {
  return header.auth_type == type && header.auth_id == static_cast<std::uint8_t>(id);
}

std::uint32_t random_seqnum() {
  std::array<std::uint8_t, 4> bytes;
  std::uint32_t value = 0;
  // Zero says that there is no challenge.
  while (value == 0) {
    fill_random(bytes);
    std::memcpy(&value, bytes.data(), sizeof(value));
  }
  return value;
}

constexpr std::size_t kMaxIds = 30;  // of each kind, in one descriptor

// A key of TLS has a hash that cipher suites have, and is made from an exchange.
bool makes_key(AuthHash hash) { return hash == AuthHash::sha256 || hash == AuthHash::sha384; }

TlsPsk make_key(AuthHash hash, const DhchapParties& parties, const SecretBytes& shared,
                std::span<const std::uint8_t> controller_challenge, std::span<const std::uint8_t> host_challenge) {
  const SecretBytes session_key = hash_of(hash, shared);
  return generated_psk(hash, {parties.host_nqn, parties.subsystem_nqn}, session_key, controller_challenge,
                       host_challenge);
}

}  // namespace

void DhchapController::fail(AuthFailureReason reason) {
  authenticated_ = false;
  psk_.reset();
  reason_ = reason;
  state_ = State::failure_due;
}

void DhchapController::send(std::span<const std::uint8_t> message) {
  AuthHeader header;
  std::span<const std::uint8_t> rest;
  if (state_ == State::failed) return;
  if (!take(message, header, rest)) return fail(AuthFailureReason::incorrect_payload);
  if (is(header, nvme::kAuthTypeCommon, AuthMessage::negotiate)) return take_negotiate(message);
  if (state_ != State::start && header.t_id != t_id_) return fail(AuthFailureReason::incorrect_payload);
  if (is(header, nvme::kAuthTypeCommon, AuthMessage::failure2)) {
    authenticated_ = false;
    psk_.reset();
    state_ = State::failed;
  } else if (state_ == State::await_reply && is(header, nvme::kAuthTypeDhchap, AuthMessage::reply)) {
    take_reply(message);
  } else if (state_ == State::await_success2 && is(header, nvme::kAuthTypeDhchap, AuthMessage::success2)) {
    state_ = State::done;
    authenticated_ = true;
  } else {
    fail(AuthFailureReason::incorrect_message);
  }
}

void DhchapController::take_negotiate(std::span<const std::uint8_t> message) {
  nvme::AuthNegotiate negotiate;
  std::span<const std::uint8_t> rest;
  if (state_ != State::start && state_ != State::done) return fail(AuthFailureReason::incorrect_message);
  if (!take(message, negotiate, rest)) return fail(AuthFailureReason::incorrect_payload);
  t_id_ = negotiate.header.t_id;
  asked_ = static_cast<AuthSecureChannel>(negotiate.sc_c);
  psk_.reset();
  const bool wants_key = asked_ != AuthSecureChannel::none;
  if (wants_key && asked_ != channel_) return fail(AuthFailureReason::secure_channel_mismatch);
  AuthFailureReason reason = AuthFailureReason::protocol_not_usable;
  for (unsigned i = 0; i < negotiate.napd; ++i) {
    nvme::AuthProtocolDescriptor offer;
    if (!take(rest, offer, rest)) return fail(AuthFailureReason::incorrect_payload);
    if (offer.authid != nvme::kAuthidDhchap) continue;
    if (offer.halen > kMaxIds || offer.dhlen > kMaxIds) return fail(AuthFailureReason::incorrect_payload);
    // The host's order is its preference, and we follow it, except that we take an exchange where it offers one.
    reason = AuthFailureReason::hash_not_usable;
    const std::span hashes(offer.idlist, offer.halen);
    const auto hash = std::find_if(hashes.begin(), hashes.end(), [wants_key](std::uint8_t id) {
      const auto found = static_cast<AuthHash>(id);
      return wants_key ? makes_key(found) : hash_bytes(found) != 0;
    });
    if (hash == hashes.end()) continue;
    reason = AuthFailureReason::dh_group_not_usable;
    const std::span groups(offer.idlist + nvme::kAuthDhGroupsAt, offer.dhlen);
    auto group = std::find_if(groups.begin(), groups.end(), [](std::uint8_t id) { return id != 0 && is_dh_group(id); });
    if (group == groups.end() && !wants_key) group = std::find(groups.begin(), groups.end(), 0);
    if (group == groups.end()) continue;
    hash_ = static_cast<AuthHash>(*hash);
    group_ = static_cast<AuthDhGroup>(*group);
    state_ = State::challenge_due;
    return;
  }
  fail(reason);
}

Bytes DhchapController::challenge() {
  exchange_.emplace(group_);
  challenge_.resize(hash_bytes(hash_));
  fill_random(challenge_);
  seqnum_ = random_seqnum();
  nvme::AuthChallenge head{};
  head.header = header_of(nvme::kAuthTypeDhchap, AuthMessage::challenge, t_id_);
  head.hl = static_cast<std::uint8_t>(challenge_.size());
  head.hashid = static_cast<std::uint8_t>(hash_);
  head.dhgid = static_cast<std::uint8_t>(group_);
  head.dhvlen = static_cast<std::uint16_t>(exchange_->value().size());
  head.seqnum = seqnum_;
  state_ = State::await_reply;
  return message_of(head, challenge_, exchange_->value());
}

void DhchapController::take_reply(std::span<const std::uint8_t> message) {
  nvme::AuthReply reply;
  std::span<const std::uint8_t> rest;
  const std::size_t hl = challenge_.size();
  if (!take(message, reply, rest)) return fail(AuthFailureReason::incorrect_payload);
  if (reply.hl != hl || rest.size() < 2 * hl || rest.size() - 2 * hl < reply.dhvlen)
    return fail(AuthFailureReason::incorrect_payload);
  const auto response = rest.first(hl);
  const auto host_challenge = rest.subspan(hl, hl);
  const auto host_value = rest.subspan(2 * hl, reply.dhvlen);
  std::optional<SecretBytes> shared;
  if (group_ != AuthDhGroup::null) {
    shared = exchange_->shared(host_value);
    exchange_.reset();
    if (!shared) return fail(AuthFailureReason::incorrect_payload);
  } else if (reply.dhvlen != 0) {
    return fail(AuthFailureReason::incorrect_payload);
  }
  const DhchapResponse of_host{challenge_, shared, seqnum_, t_id_, static_cast<std::uint8_t>(asked_)};
  const Bytes key = parties_.host_secret.key_for(parties_.host_nqn);
  const Bytes expected = host_response(hash_, key, of_host, parties_.host_nqn, parties_.subsystem_nqn);
  if (!equal_secretly(response, expected)) return fail(AuthFailureReason::authentication_failed);
  answer_.clear();
  const bool wants_key = asked_ != AuthSecureChannel::none;
  if (wants_key) {
    if (reply.cvalid == 0) return fail(AuthFailureReason::incorrect_payload);
    psk_ = make_key(hash_, parties_, *shared, challenge_, host_challenge);
  }
  if (reply.cvalid != 0 && !(wants_key && reply.seqnum == 0)) {
    // A host that asks who we are, while we have no secret to say it with, cannot be satisfied. One that sends our own
    // challenge back would have us compute its answer.
    if (!parties_.controller_secret || equal_secretly(host_challenge, challenge_))
      return fail(AuthFailureReason::authentication_failed);
    const DhchapResponse ours{host_challenge, shared, reply.seqnum, t_id_, static_cast<std::uint8_t>(asked_)};
    answer_ = controller_response(hash_, parties_.controller_secret->key_for(parties_.subsystem_nqn), ours,
                                  parties_.host_nqn, parties_.subsystem_nqn);
  }
  state_ = State::success1_due;
}

Bytes DhchapController::success1() {
  nvme::AuthSuccess1 head{};
  head.header = header_of(nvme::kAuthTypeDhchap, AuthMessage::success1, t_id_);
  head.hl = static_cast<std::uint8_t>(challenge_.size());
  head.rvalid = !answer_.empty();
  if (answer_.empty()) {
    state_ = State::done;
    authenticated_ = true;
  } else {
    state_ = State::await_success2;
  }
  return message_of(head, answer_);
}

std::optional<TlsPsk> DhchapController::take_psk() {
  return authenticated_ && state_ == State::done ? std::exchange(psk_, std::nullopt) : std::nullopt;
}

Bytes DhchapController::receive() {
  switch (state_) {
    case State::challenge_due:
      return challenge();
    case State::success1_due:
      return success1();
    case State::failure_due:
      break;
    default:
      fail(AuthFailureReason::incorrect_message);
      break;
  }
  nvme::AuthFailure failure{};
  failure.header = header_of(nvme::kAuthTypeCommon, AuthMessage::failure1, t_id_);
  failure.rescode = nvme::kAuthFailed;
  failure.rescode_exp = static_cast<std::uint8_t>(reason_);
  state_ = State::failed;
  return message_of(failure);
}

void DhchapHost::offer(std::vector<AuthHash> hashes, std::vector<AuthDhGroup> groups) {
  hashes_ = std::move(hashes);
  groups_ = std::move(groups);
}

void DhchapHost::ask_for(AuthSecureChannel channel) {
  channel_ = channel;
  std::erase_if(hashes_, [](AuthHash hash) { return !makes_key(hash); });
  std::erase(groups_, AuthDhGroup::null);
}

std::optional<TlsPsk> DhchapHost::take_psk() { return std::exchange(psk_, std::nullopt); }

Bytes DhchapHost::negotiate(std::uint16_t t_id) {
  t_id_ = t_id;
  psk_.reset();
  nvme::AuthNegotiate head{};
  head.header = header_of(nvme::kAuthTypeCommon, AuthMessage::negotiate, t_id_);
  head.sc_c = static_cast<std::uint8_t>(channel_);
  head.napd = 1;
  nvme::AuthProtocolDescriptor offer{};
  offer.authid = nvme::kAuthidDhchap;
  for (const AuthHash hash : hashes_) offer.idlist[offer.halen++] = static_cast<std::uint8_t>(hash);
  for (const AuthDhGroup group : groups_)
    offer.idlist[nvme::kAuthDhGroupsAt + offer.dhlen++] = static_cast<std::uint8_t>(group);
  Bytes descriptor(sizeof(offer));
  std::memcpy(descriptor.data(), &offer, sizeof(offer));
  return message_of(head, descriptor);
}

namespace {

// `asks`: we have asked the controller to prove itself, too.
std::string reason_text(const nvme::AuthFailure& failure, bool asks) {
  switch (static_cast<AuthFailureReason>(failure.rescode_exp)) {
    case AuthFailureReason::authentication_failed:
      return asks ? "this host's secret is wrong there, or it has no secret of its own (dhchap_controller_secret) to "
                    "prove itself with"
                  : "this host's secret is wrong there";
    case AuthFailureReason::protocol_not_usable:
      return "it does not know DH-HMAC-CHAP";
    case AuthFailureReason::secure_channel_mismatch:
      return "it makes no key of TLS here (secure channel concatenation mismatch)";
    case AuthFailureReason::hash_not_usable:
      return "it has none of the hashes that were offered";
    case AuthFailureReason::dh_group_not_usable:
      return "it has none of the Diffie-Hellman groups that were offered";
    case AuthFailureReason::incorrect_payload:
      return "it cannot read a message of this host's";
    case AuthFailureReason::incorrect_message:
      return "it did not expect a message of this host's";
  }
  return "reason " + std::to_string(failure.rescode_exp);
}

}  // namespace

void DhchapHost::reject(AuthFailureReason reason, const std::string& what) const {
  nvme::AuthFailure failure{};
  failure.header = header_of(nvme::kAuthTypeCommon, AuthMessage::failure2, t_id_);
  failure.rescode = nvme::kAuthFailed;
  failure.rescode_exp = static_cast<std::uint8_t>(reason);
  throw AuthenticationError(what, message_of(failure));
}

// Throws if the controller says that it refuses us.
void DhchapHost::check_message(std::span<const std::uint8_t> message, AuthMessage wanted) const {
  nvme::AuthFailure failure;
  std::span<const std::uint8_t> rest;
  if (take(message, failure, rest) && is(failure.header, nvme::kAuthTypeCommon, AuthMessage::failure1))
    throw AuthenticationError("the controller refuses to authenticate this host: " +
                              reason_text(failure, parties_.controller_secret.has_value()));
  AuthHeader header;
  if (!take(message, header, rest) || !is(header, nvme::kAuthTypeDhchap, wanted) || header.t_id != t_id_)
    reject(AuthFailureReason::incorrect_message, "the controller sent an authentication message that was not expected");
}

Bytes DhchapHost::reply(std::span<const std::uint8_t> message) {
  check_message(message, AuthMessage::challenge);
  nvme::AuthChallenge head{};
  std::span<const std::uint8_t> rest;
  const bool whole = take(message, head, rest);
  const auto hash = static_cast<AuthHash>(head.hashid);
  const auto group = static_cast<AuthDhGroup>(head.dhgid);
  const std::size_t hl = hash_bytes(hash);
  const bool offered = std::find(hashes_.begin(), hashes_.end(), hash) != hashes_.end() &&
                       std::find(groups_.begin(), groups_.end(), group) != groups_.end();
  if (!whole || !offered || head.hl != hl || head.dhvlen != dh_value_bytes(group) || rest.size() < hl + head.dhvlen)
    reject(AuthFailureReason::incorrect_payload,
           "the controller's challenge is not one that this host offered to answer");
  const auto challenge = rest.first(hl);
  const DhExchange exchange(group);
  std::optional<SecretBytes> shared;
  if (group != AuthDhGroup::null) {
    shared = exchange.shared(rest.subspan(hl, head.dhvlen));
    if (!shared)
      reject(AuthFailureReason::incorrect_payload, "the controller's Diffie-Hellman value is not one of the group");
  }
  const DhchapResponse ours{challenge, shared, head.seqnum, t_id_, static_cast<std::uint8_t>(channel_)};
  const Bytes response = host_response(hash, parties_.host_secret.key_for(parties_.host_nqn), ours, parties_.host_nqn,
                                       parties_.subsystem_nqn);
  Bytes our_challenge(hl);
  nvme::AuthReply reply{};
  reply.header = header_of(nvme::kAuthTypeDhchap, AuthMessage::reply, t_id_);
  reply.hl = static_cast<std::uint8_t>(hl);
  reply.dhvlen = static_cast<std::uint16_t>(exchange.value().size());
  expected_.clear();
  if (parties_.controller_secret || channel_ != AuthSecureChannel::none) {
    fill_random(our_challenge);
    reply.cvalid = 1;
  }
  if (channel_ != AuthSecureChannel::none) psk_ = make_key(hash, parties_, *shared, challenge, our_challenge);
  if (parties_.controller_secret) {
    reply.seqnum = random_seqnum();
    const DhchapResponse theirs{our_challenge, shared, reply.seqnum, t_id_, static_cast<std::uint8_t>(channel_)};
    expected_ = controller_response(hash, parties_.controller_secret->key_for(parties_.subsystem_nqn), theirs,
                                    parties_.host_nqn, parties_.subsystem_nqn);
  }
  return message_of(reply, response, our_challenge, exchange.value());
}

Bytes DhchapHost::finish(std::span<const std::uint8_t> message) {
  check_message(message, AuthMessage::success1);
  nvme::AuthSuccess1 head;
  std::span<const std::uint8_t> rest;
  if (!take(message, head, rest))
    reject(AuthFailureReason::incorrect_payload, "the controller's last authentication message is too short");
  if (expected_.empty()) return {};
  if (head.rvalid == 0 || rest.size() < expected_.size() || !equal_secretly(rest.first(expected_.size()), expected_))
    reject(AuthFailureReason::authentication_failed, "the controller did not prove that it knows its secret");
  nvme::AuthSuccess2 success{};
  success.header = header_of(nvme::kAuthTypeDhchap, AuthMessage::success2, t_id_);
  return message_of(success);
}

}  // namespace flashmob::fabrics
