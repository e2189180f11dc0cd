// The two ends of a DH-HMAC-CHAP authentication (NVMe Base 2.0c, clause 8.13.5): state machines that turn received
// messages into messages to send. They know no commands and no sockets. One thread at a time.
//
// A host may ask that the authentication makes a key of TLS (8.13.5.9, secure channel concatenation), with which it
// then connects again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "fabrics/dhchap_crypto.h"
#include "fabrics/tls_psk.h"
#include "nvme/fabrics.h"

namespace flashmob::fabrics {

struct DhchapParties {
  std::string host_nqn;
  std::string subsystem_nqn;
  DhchapSecret host_secret;
  std::optional<DhchapSecret> controller_secret;  // needed where the host wants to know who the controller is
};

// The controller's end. A host that makes a mistake is told so by a Failure1 message, which receive() hands out.
class DhchapController {
 public:
  // `channel` is what the host may ask for besides, on this connection.
  explicit DhchapController(DhchapParties parties, nvme::AuthSecureChannel channel = nvme::AuthSecureChannel::none)
      : parties_(std::move(parties)), channel_(channel) {}

  // What may be asked for may change between two authentications.
  void allow(nvme::AuthSecureChannel channel) { channel_ = channel; }
  // Authentication Send brought these bytes.
  void send(std::span<const std::uint8_t> message);
  // The message that Authentication Receive asks for.
  Bytes receive();
  // The host has proved who it is, and no later attempt failed.
  bool authenticated() const { return authenticated_; }
  // It has failed, told or not, and there is no other attempt.
  bool refused() const { return state_ == State::failure_due || state_ == State::failed; }
  // True once the host has been told that it failed, or has given up: the connection must end.
  bool failed() const { return state_ == State::failed; }
  // The key of TLS that the authentication has made, once; nothing where the host has not asked for one, or has not
  // proved yet who it is.
  std::optional<TlsPsk> take_psk();

 private:
  enum class State : std::uint8_t {
    start,
    challenge_due,
    await_reply,
    success1_due,
    await_success2,
    done,
    failure_due,
    failed
  };

  void fail(nvme::AuthFailureReason reason);
  void take_negotiate(std::span<const std::uint8_t> message);
  void take_reply(std::span<const std::uint8_t> message);
  Bytes challenge();
  Bytes success1();

  DhchapParties parties_;
  nvme::AuthSecureChannel channel_;
  nvme::AuthSecureChannel asked_ = nvme::AuthSecureChannel::none;
  std::optional<TlsPsk> psk_;
  State state_ = State::start;
  bool authenticated_ = false;
  std::uint16_t t_id_ = 0;
  nvme::AuthHash hash_ = nvme::AuthHash::sha256;
  nvme::AuthDhGroup group_{};
  std::optional<DhExchange> exchange_;
  Bytes challenge_;
  std::uint32_t seqnum_ = 0;
  Bytes answer_;  // our response to the host's challenge; empty: it sent none
  nvme::AuthFailureReason reason_ = nvme::AuthFailureReason::authentication_failed;
};

class AuthenticationError : public std::runtime_error {
 public:
  explicit AuthenticationError(const std::string& message, Bytes last_words = {})
      : std::runtime_error(message), last_words_(std::move(last_words)) {}
  // What the controller is to be told, AUTH_Failure2; empty: nothing, because it is the one that refused.
  const Bytes& last_words() const { return last_words_; }

 private:
  Bytes last_words_;
};

// The host's end. Each step takes what Authentication Receive brought and returns what to send next; a controller that
// refuses us, or whom we do not believe, is an AuthenticationError.
class DhchapHost {
 public:
  explicit DhchapHost(DhchapParties parties) : parties_(std::move(parties)) {}
  // What it offers, best first; all by default.
  void offer(std::vector<nvme::AuthHash> hashes, std::vector<nvme::AuthDhGroup> groups);
  // Asks for a key of TLS, and no longer offers what makes none.
  void ask_for(nvme::AuthSecureChannel channel);
  // The key, once finish() has returned.
  std::optional<TlsPsk> take_psk();

  Bytes negotiate(std::uint16_t t_id);
  Bytes reply(std::span<const std::uint8_t> challenge);
  // Empty: nothing is left to send.
  Bytes finish(std::span<const std::uint8_t> success1);

 private:
  [[noreturn]] void reject(nvme::AuthFailureReason reason, const std::string& what) const;
  void check_message(std::span<const std::uint8_t> message, nvme::AuthMessage wanted) const;

  DhchapParties parties_;
  std::vector<nvme::AuthHash> hashes_{nvme::AuthHash::sha512, nvme::AuthHash::sha384, nvme::AuthHash::sha256};
  std::vector<nvme::AuthDhGroup> groups_{nvme::AuthDhGroup::ffdhe2048, nvme::AuthDhGroup::ffdhe3072,
                                         nvme::AuthDhGroup::ffdhe4096, nvme::AuthDhGroup::ffdhe6144,
                                         nvme::AuthDhGroup::ffdhe8192, nvme::AuthDhGroup::null};
  nvme::AuthSecureChannel channel_ = nvme::AuthSecureChannel::none;
  std::optional<TlsPsk> psk_;
  std::uint16_t t_id_ = 0;
  Bytes expected_;  // from the controller; empty: we sent no challenge
};

}  // namespace flashmob::fabrics
