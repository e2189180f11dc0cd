#include "transport/nvme_tcp/target_directory.h"

#include <algorithm>

#include "transport/nvme_tcp/context.h"

namespace flashmob::transport {
namespace {

// Whether a target that listens on `text` takes what comes to any address of the family.
bool is_wildcard(const std::string& text) { return text == "0.0.0.0" || text == "::"; }

// Whether `other` is to be found at the address where a host has reached us.
bool answers_at(const TargetContext& other, const DiscoveryAddress& address) {
  return other.ipv6 == address.ipv6 && (other.options.address == address.address || is_wildcard(other.options.address));
}

}  // namespace

TargetDirectory& TargetDirectory::of_process() {
  static TargetDirectory directory;
  return directory;
}

void TargetDirectory::enter(const TargetContext& target) {
  const std::lock_guard lock(mutex_);
  targets_.push_back(&target);
  ++generation_;
}

void TargetDirectory::leave(const TargetContext& target) {
  const std::lock_guard lock(mutex_);
  if (std::erase(targets_, &target) != 0) ++generation_;
}

std::vector<DiscoveryRecord> TargetDirectory::visible(const TargetContext& own, const DiscoveryAddress& address,
                                                      const std::string& host_nqn, std::uint64_t& generation) const {
  const std::lock_guard lock(mutex_);
  generation = generation_;
  std::vector<DiscoveryRecord> records;
  if (own.admits(host_nqn)) records.push_back({address, own.subsystem.config().nqn, own.must_be_secure(host_nqn)});
  for (const TargetContext* const other : targets_) {
    if (other == &own || !other->admits(host_nqn) || !answers_at(*other, address)) continue;
    records.push_back(
        {{address.address, other->port, address.ipv6}, other->subsystem.config().nqn, other->must_be_secure(host_nqn)});
  }
  return records;
}

}  // namespace flashmob::transport
