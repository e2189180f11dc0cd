// Memory of a file that another process has shared by its descriptor: checked, mapped, and guarded against a peer that
// cuts the file short (vfio/bus_error_guard.h).
//
// Create and destroy on any thread; nothing may use the memory by the time it is destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "vfio/bus_error_guard.h"

namespace flashmob::vfio {

class PeerMemory {
 public:
  PeerMemory() = default;
  ~PeerMemory() { reset(); }
  PeerMemory(PeerMemory&& other) noexcept { *this = std::move(other); }
  PeerMemory& operator=(PeerMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    guard_.swap(other.guard_);
    return *this;
  }

  // Maps `bytes` of the file from `offset` on, whole pages, at `hint` where that is free: 0 or an errno. The descriptor
  // stays the caller's, and is not needed any more.
  int map(int fd, std::uint64_t offset, std::uint64_t bytes, bool writable, void* hint = nullptr);
  void reset();

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  // The peer has cut the file short, and that was noticed.
  bool is_cut() const { return guard_ && guard_->was_hit(); }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::unique_ptr<BusErrorGuard> guard_;
};

}  // namespace flashmob::vfio
