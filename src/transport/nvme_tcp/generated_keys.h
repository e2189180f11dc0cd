// Keys of TLS that authentications have made (secure channel concatenation), for hosts to come back with.
//
// A host may have several associations, begun side by side, and a key of each. What takes the place of a key is what
// its own association asks for over a channel that such a key opened (Base 2.1, AUTH_Negotiate: SC_C of 3h); a key that
// is made on a connection in the clear (2h) takes nobody's. So that they do not pile up, a host keeps its newest ones.
// One thread, the target's loop.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabrics/tls_psk.h"

namespace flashmob::transport {

class GeneratedKeys {
 public:
  static constexpr std::size_t kMostOfAHost = 32;

  // Only hosts that have a secret get here, so their list bounds this one.
  void put(fabrics::TlsPsk psk) {
    std::vector<fabrics::TlsPsk>& keys = keys_[psk.identity.parties.host_nqn];
    if (keys.size() == kMostOfAHost) keys.erase(keys.begin());
    keys.push_back(std::move(psk));
  }
  // In the place of the one that its association has had until now: the one it came with, or the last that took the
  // place of that.
  void replace(const std::string& earlier_digest, fabrics::TlsPsk psk) {
    const auto host = keys_.find(psk.identity.parties.host_nqn);
    if (host != keys_.end())
      std::erase_if(host->second, [&](const auto& key) { return key.identity.digest == earlier_digest; });
    put(std::move(psk));
  }
  // Nothing if this is none of them, or no longer. It counts as new again.
  std::optional<fabrics::TlsPsk> find(const fabrics::PskIdentity& identity) {
    const auto host = keys_.find(identity.parties.host_nqn);
    if (host == keys_.end()) return std::nullopt;
    const auto found = find_in(host->second, identity);
    if (found == host->second.end()) return std::nullopt;
    std::rotate(found, found + 1, host->second.end());
    return host->second.back();
  }
  void forget_all() { keys_.clear(); }

 private:
  static std::vector<fabrics::TlsPsk>::iterator find_in(std::vector<fabrics::TlsPsk>& keys,
                                                        const fabrics::PskIdentity& identity) {
    const std::string text = fabrics::text_of(identity);
    return std::ranges::find_if(keys, [&](const auto& key) { return fabrics::text_of(key.identity) == text; });
  }

  // By the host's NQN: a target has one subsystem. Those that were used latest come last.
  std::map<std::string, std::vector<fabrics::TlsPsk>> keys_;
};

}  // namespace flashmob::transport
