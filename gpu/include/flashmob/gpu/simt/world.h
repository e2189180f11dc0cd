// What there is besides the emulated GPU: time, and devices that work as it passes.
#pragma once

#include <cstdint>

#include "flashmob/gpu/simt/vocabulary.h"

namespace flashmob::gpu::simt {

// Called by the one thread that schedules the fibres.
class World {
 public:
  virtual ~World() = default;
  virtual std::uint64_t now_ns() = 0;
  // What lanes read as the time, where that is another clock than the one by which they take their turns.
  virtual std::uint64_t clock_ns() { return now_ns(); }
  // Lets time come to `to_ns`, which is not in the past, and everything happen until then. True if anything did.
  virtual bool pass(std::uint64_t to_ns) = 0;
  // When something will happen by itself, at the earliest; UINT64_MAX if nothing will.
  virtual std::uint64_t next_event_ns() = 0;
};

// A virtual clock and nothing else.
class EmptyWorld final : public World {
 public:
  explicit EmptyWorld(std::uint64_t start_ns = 1) : now_ns_(start_ns) {}
  std::uint64_t now_ns() override { return now_ns_; }
  bool pass(std::uint64_t to_ns) override {
    now_ns_ = to_ns;
    return false;
  }
  std::uint64_t next_event_ns() override { return UINT64_MAX; }

 private:
  std::uint64_t now_ns_;
};

}  // namespace flashmob::gpu::simt
