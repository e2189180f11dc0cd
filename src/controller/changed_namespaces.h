// The namespaces that changed since the host last read the Changed Namespace List log page (NVMe Base 2.0c, 5.16.1.5).
// Any thread: changes come from other controllers' admin threads.
#pragma once

#include <bitset>
#include <cstdint>
#include <mutex>

#include "controller/subsystem.h"
#include "nvme/log_page.h"

namespace flashmob::controller {

class ChangedNamespaces {
 public:
  void add(std::uint32_t nsid) {
    const std::lock_guard lock(mutex_);
    changed_.set(nsid);
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    changed_.reset();
  }
  // The list in increasing order; forgotten afterwards unless it is to be retained.
  nvme::ChangedNamespaceList read(bool retain) {
    const std::lock_guard lock(mutex_);
    nvme::ChangedNamespaceList list{};
    std::size_t count = 0;
    for (std::uint32_t nsid = 1; nsid <= kMaxNamespaces; ++nsid) {
      if (changed_.test(nsid)) list.nsid[count++] = nsid;
    }
    if (!retain) changed_.reset();
    return list;
  }

 private:
  static_assert(kMaxNamespaces <= nvme::NamespaceList::kMaxEntries, "the list never overflows");
  std::mutex mutex_;
  std::bitset<kMaxNamespaces + 1> changed_;
};

}  // namespace flashmob::controller
