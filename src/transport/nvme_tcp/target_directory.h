// The NVMe/TCP targets of this process: what a discovery controller tells of its neighbours (NVMe Base 2.0c, clause
// 3.1.2.3), so that a host that knows one door of a process finds all of its SSDs. Any thread; a mutex inside.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "transport/nvme_tcp/discovery.h"

namespace flashmob::transport {

struct TargetContext;

class TargetDirectory {
 public:
  static TargetDirectory& of_process();

  // A target has begun to listen, or will no more. What its context says of it does not change in between.
  void enter(const TargetContext& target);
  void leave(const TargetContext& target);

  // The subsystems that a host of this name may attach to, as one sees them who has reached `own` at `address`: own
  // first, then those whose targets listen on the same address, or on all. Sets `generation`, which grows with every
  // change.
  std::vector<DiscoveryRecord> visible(const TargetContext& own, const DiscoveryAddress& address,
                                       const std::string& host_nqn, std::uint64_t& generation) const;

 private:
  mutable std::mutex mutex_;  // guards everything
  std::vector<const TargetContext*> targets_;
  std::uint64_t generation_ = 0;
};

}  // namespace flashmob::transport
