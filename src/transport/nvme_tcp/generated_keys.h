// Keys of TLS that authentications have made (secure channel concatenation), for hosts to come back with: the newest of
// each host. One thread, the target's loop.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "fabrics/tls_psk.h"

namespace flashmob::transport {

class GeneratedKeys {
 public:
  // Takes the place of the host's earlier one. Only hosts that have a secret get here, so their list bounds this one.
  void put(fabrics::TlsPsk psk) {
    const std::string host_nqn = psk.identity.parties.host_nqn;
    keys_.insert_or_assign(host_nqn, std::move(psk));
  }
  // Nothing if this is none of them, or no longer.
  std::optional<fabrics::TlsPsk> find(const fabrics::PskIdentity& identity) const {
    const auto found = keys_.find(identity.parties.host_nqn);
    if (found == keys_.end() || fabrics::text_of(found->second.identity) != fabrics::text_of(identity))
      return std::nullopt;
    return found->second;
  }
  void forget_all() { keys_.clear(); }

 private:
  std::map<std::string, fabrics::TlsPsk> keys_;  // by the host's NQN: a target has one subsystem
};

}  // namespace flashmob::transport
