// What each namespace's blocks are long, as far as it is known: a host on fabrics must state a command's length in
// bytes, and the command itself counts blocks.
//
// Any thread; readers of the first 1,024 namespaces take no lock. An entry is forgotten when something may have changed
// it, and is looked up again with Identify by whoever needs it next.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

namespace flashmob::initiator {

class BlockSizes {
 public:
  static constexpr std::uint32_t kUnknown = 0;
  static constexpr std::uint32_t kAbsent = UINT32_MAX;  // there is no such namespace

  std::uint32_t get(std::uint32_t nsid) {
    if (nsid == 0 || nsid == UINT32_MAX) return kAbsent;
    if (nsid <= first_.size()) [[likely]]
      return first_[nsid - 1].load(std::memory_order_acquire);
    const std::lock_guard lock(mutex_);
    const auto at = others_.find(nsid);
    return at == others_.end() ? kUnknown : at->second;
  }
  void set(std::uint32_t nsid, std::uint32_t bytes) {
    if (nsid <= first_.size()) {
      first_[nsid - 1].store(bytes, std::memory_order_release);
      return;
    }
    const std::lock_guard lock(mutex_);
    if (bytes == kUnknown) {
      others_.erase(nsid);
    } else {
      others_[nsid] = bytes;
    }
  }
  void forget_all() {
    for (auto& entry : first_) entry.store(kUnknown, std::memory_order_release);
    const std::lock_guard lock(mutex_);
    others_.clear();
  }

 private:
  std::array<std::atomic<std::uint32_t>, 1024> first_{};
  std::mutex mutex_;
  std::map<std::uint32_t, std::uint32_t> others_;
};

}  // namespace flashmob::initiator
