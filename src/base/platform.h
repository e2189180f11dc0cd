// What the compiler is told about code that also compiles as CUDA device code, and small hardware facts.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define FLASHMOB_HD __host__ __device__
#else
#define FLASHMOB_HD
#endif

#if defined(__SANITIZE_THREAD__)
#define FLASHMOB_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FLASHMOB_TSAN 1
#endif
#endif
#ifndef FLASHMOB_TSAN
#define FLASHMOB_TSAN 0
#endif

namespace flashmob {

inline constexpr std::size_t kCacheLineBytes = 64;

// Tells the core that this is a spin loop. No memory-ordering meaning.
inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace flashmob
