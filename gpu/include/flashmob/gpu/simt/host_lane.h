// The lane that host code is when it touches words which it shares with device code: a warp of one, on the calling
// thread. For host threads of the library (a service on the CPU, set-up, draining). One per thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#include "flashmob/gpu/simt/vocabulary.h"

namespace flashmob::gpu::simt {

class HostLane {
 public:
  static constexpr bool kSeesProgress = false;
  static constexpr bool kSharesInstructions = false;

  // `now_ns` reads the clock that the device's lanes read; `pause` lets `ns` pass or others work.
  HostLane(std::function<std::uint64_t()> now_ns, std::function<void(std::uint32_t)> pause)
      : now_ns_(std::move(now_ns)), pause_(std::move(pause)) {}

  std::uint32_t lane() const { return 0; }
  std::uint32_t lanes() const { return 1; }
  std::uint32_t warp() const { return 0; }
  std::uint32_t warps() const { return 1; }
  std::uint32_t thread() const { return 0; }
  std::uint32_t threads() const { return 1; }
  std::uint32_t block() const { return 0; }
  std::uint32_t blocks() const { return 1; }
  std::uint32_t thread_in_block() const { return 0; }
  std::uint32_t block_threads() const { return 1; }
  bool elect(std::uint32_t) const { return true; }
  void sync(std::uint32_t, Here = Here::current()) {}
  void sync_block(Here = Here::current()) {}
  std::uint32_t ballot(std::uint32_t, bool predicate, Here = Here::current()) { return predicate ? 1 : 0; }
  template <class T>
  T shuffle(std::uint32_t, T value, std::uint32_t, Here = Here::current()) {
    return value;
  }
  template <class T>
  std::uint32_t match(std::uint32_t, T, Here = Here::current()) {
    return 1;
  }
  std::uint64_t now_ns() { return now_ns_(); }
  void pause(std::uint32_t ns = 0, Here = Here::current()) { pause_(ns); }
  void busy(std::uint64_t ns, Here = Here::current()) {
    for (const std::uint64_t end = now_ns() + ns; now_ns() < end;) pause_(0);
  }
  void before_atomic(Here) {}
  void after_atomic(bool, Here) {}

 private:
  std::function<std::uint64_t()> now_ns_;
  std::function<void(std::uint32_t)> pause_;
};

}  // namespace flashmob::gpu::simt
