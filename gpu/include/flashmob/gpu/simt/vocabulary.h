// The words that device code is written in, and what a backend must offer for them.
//
// Device code is a template over its *lane*: one thread of a warp of up to 32. It never names threadIdx, __shared__ or
// a CUDA intrinsic, so that the same source runs as a CUDA kernel (simt/cuda.h), as fibres under a seeded scheduler
// (simt/fibre.h) and as operating-system threads (simt/threads.h). A kernel is a functor:
//
//   struct Scale {
//     template <class Lane>
//     FLASHMOB_HD void operator()(Lane& t, float* values, std::uint64_t count) const {
//       for (std::uint64_t i = t.thread(); i < count; i += t.threads()) values[i] *= 2;
//     }
//   };
//   device.run({.blocks = 8, .block_threads = 128}, Scale{}, values, count);
//
// Every lane offers
//   place       lane() warp() warps() thread() threads() block() blocks() thread_in_block() block_threads();
//               lanes(): the mask of the lanes that this warp has, all 32 but in a block's last, partial warp
//   collectives sync(mask) ballot(mask, predicate) shuffle(mask, value, source_lane) match(mask, value): every lane of
//               `mask` calls the same one with the same mask, and no lane outside of it; sync_block(): all of the block
//   elect(mask) true for the lowest lane of mask; no meeting takes place
//   time        now_ns(), of a clock that all lanes share; pause(ns): gives way within a spin loop, for about that
//   long;
//               busy(ns): stands for so much computation (virtual time passes; on hardware the core is kept busy)
//   kSharesInstructions: lanes of a warp that have gone apart run one after the other, so who is busy should meet first
//   shared()    the block's shared memory, Shape::shared_bytes of it, zeroed on a CPU and not on a GPU
// Values of shuffle and match are trivially copyable and at most 8 bytes. Atomics are simt/word.h's Word and WordRef.
//
// Rules: lockstep is never assumed and the active mask never asked for; whoever needs its warp takes the mask as a
// parameter. Every spin loop calls pause(), has a deadline and an abort flag. No exceptions cross device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"

namespace flashmob::gpu::simt {

inline constexpr std::uint32_t kWarpLanes = 32;

// Who must see an atomic's effect: the block, the device, or also the host and other devices (doorbells, completion
// queues, stop flags).
enum class Scope : std::uint8_t { block, device, system };

enum class Order : std::uint8_t { relaxed, acquire, release, acq_rel };

// How many threads a kernel has; one-dimensional, because queues and blocks are.
struct Shape {
  std::uint32_t blocks = 1;
  std::uint32_t block_threads = kWarpLanes;  // 1...1024
  std::uint32_t shared_bytes = 0;
};

// The line of device code that a lane stands at, for the report of a deadlock. Costs nothing on a GPU.
#if defined(__CUDACC__)
struct Here {
  FLASHMOB_HD static constexpr Here current() { return {}; }
};
#else
struct Here {
  const char* file;
  std::uint32_t line;
  static constexpr Here current(const char* file = __builtin_FILE(), std::uint32_t line = __builtin_LINE()) {
    return {file, line};
  }
};
#endif

// The mask of the lowest `count` lanes, 0...32.
FLASHMOB_HD constexpr std::uint32_t mask_of(std::uint32_t count) {
  return count >= kWarpLanes ? 0xFFFFFFFFu : (1u << count) - 1;
}
// The lanes of `mask` below `lane`: a lane's rank among them is the number of these.
FLASHMOB_HD constexpr std::uint32_t lanes_below(std::uint32_t mask, std::uint32_t lane) {
  return mask & ((1u << lane) - 1);
}
FLASHMOB_HD constexpr std::uint32_t count_lanes(std::uint32_t mask) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__popc(mask));
#else
  return static_cast<std::uint32_t>(__builtin_popcount(mask));
#endif
}
// The lowest lane of a mask that is not empty.
FLASHMOB_HD constexpr std::uint32_t first_lane(std::uint32_t mask) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__ffs(static_cast<int>(mask)) - 1);
#else
  return static_cast<std::uint32_t>(__builtin_ctz(mask));
#endif
}

}  // namespace flashmob::gpu::simt
