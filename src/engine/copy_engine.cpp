#include "engine/copy_engine.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "engine/dsa_copy_engine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace flashmob::engine {
namespace {

void copy_memcpy(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

#if defined(__x86_64__)
// Vector loops cover whole 64-byte lines and leave the rest to memcpy; streaming stores need an aligned destination.
__attribute__((target("avx2"))) void copy_avx2(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t i = 0;
  for (; i + 128 <= bytes; i += 128) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 32));
    const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 64));
    const __m256i d = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 96));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i + 32), b);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i + 64), c);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i + 96), d);
  }
  if (i < bytes) std::memcpy(to + i, from + i, bytes - i);
}

__attribute__((target("avx2"))) void stream_avx2(std::byte* to, const std::byte* from, std::size_t bytes) {
  if ((reinterpret_cast<std::uintptr_t>(to) & 31) != 0) return copy_avx2(to, from, bytes);
  std::size_t i = 0;
  for (; i + 64 <= bytes; i += 64) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 32), b);
  }
  if (i < bytes) std::memcpy(to + i, from + i, bytes - i);
}

__attribute__((target("avx512f"))) void copy_avx512(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t i = 0;
  for (; i + 256 <= bytes; i += 256) {
    const __m512i a = _mm512_loadu_si512(from + i);
    const __m512i b = _mm512_loadu_si512(from + i + 64);
    const __m512i c = _mm512_loadu_si512(from + i + 128);
    const __m512i d = _mm512_loadu_si512(from + i + 192);
    _mm512_storeu_si512(to + i, a);
    _mm512_storeu_si512(to + i + 64, b);
    _mm512_storeu_si512(to + i + 128, c);
    _mm512_storeu_si512(to + i + 192, d);
  }
  if (i < bytes) std::memcpy(to + i, from + i, bytes - i);
}

__attribute__((target("avx512f"))) void stream_avx512(std::byte* to, const std::byte* from, std::size_t bytes) {
  if ((reinterpret_cast<std::uintptr_t>(to) & 63) != 0) return copy_avx512(to, from, bytes);
  std::size_t i = 0;
  for (; i + 64 <= bytes; i += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
  if (i < bytes) std::memcpy(to + i, from + i, bytes - i);
}

inline void streaming_fence() { _mm_sfence(); }
#else
inline void streaming_fence() {}
#endif

// Copies at this distance ahead are fetched into L2.
constexpr std::size_t kPrefetchCopies = 16;
constexpr std::uint32_t kPrefetchBytes = 1024;

class CpuCopyEngine final : public CopyEngine {
 public:
  CpuCopyEngine(std::string name, CopyFunction cached, CopyFunction streaming)
      : name_(std::move(name)), cached_(cached), streaming_(streaming) {}

  void submit(std::span<const Copy> pending, std::size_t count, bool streaming) override {
    FLASHMOB_CHECK(done_count_ - done_taken_ + count <= kMaxUnpolled);
    const CopyFunction copy = streaming ? streaming_ : cached_;
    // The first line of a copy that comes later is asked for early, so that its address has been translated when the
    // rest is asked for: a miss of the TLB takes 70 ns, and nothing behind such a prefetch retires meanwhile.
    const std::size_t touch = pending.size() - count;
    const std::size_t fetch = std::min(kPrefetchCopies, (pending.size() + 1) / 2);
    for (std::size_t i = 0; i < count; ++i) {
      if (touch != 0) __builtin_prefetch(pending[i + touch].from, 0, 2);
      if (i + fetch < pending.size()) prefetch(pending[i + fetch]);
      copy(pending[i].to, pending[i].from, pending[i].bytes);
    }
    for (std::size_t i = 0; i < count; ++i) done_[done_count_++ % done_.size()] = pending[i].token;
    // Streaming stores are weakly ordered: they must be visible before the completion entry that announces them.
    if (streaming) streaming_fence();
  }

  std::size_t poll(std::span<std::uint32_t> done) override {
    const std::size_t count = std::min<std::size_t>(done.size(), done_count_ - done_taken_);
    for (std::size_t i = 0; i < count; ++i) done[i] = done_[(done_taken_ + i) % done_.size()];
    done_taken_ += count;
    return count;
  }

  std::string describe() const override { return "cpu/" + name_; }

 private:
  static void prefetch(const Copy& copy) {
    const std::uint32_t bytes = std::min(copy.bytes, kPrefetchBytes);
    for (std::uint32_t at = 0; at < bytes; at += 64) __builtin_prefetch(copy.from + at, 0, 2);
  }

  std::string name_;
  CopyFunction cached_;
  CopyFunction streaming_;
  std::array<std::uint32_t, kMaxUnpolled> done_{};
  std::size_t done_count_ = 0;
  std::size_t done_taken_ = 0;
};

bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

bool has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

}  // namespace

CopyFunction copy_function(const std::string& kind, bool streaming) {
#if defined(__x86_64__)
  if (kind == "avx512" || ((kind == "auto" || kind == "nontemporal") && has_avx512())) {
    if (!has_avx512()) throw ConfigError("engine.copy = \"avx512\" needs a CPU with AVX-512; use \"auto\"");
    return streaming || kind == "nontemporal" ? stream_avx512 : copy_avx512;
  }
  if (kind == "avx2" || ((kind == "auto" || kind == "nontemporal") && has_avx2())) {
    if (!has_avx2()) throw ConfigError("engine.copy = \"avx2\" needs a CPU with AVX2; use \"auto\"");
    return streaming || kind == "nontemporal" ? stream_avx2 : copy_avx2;
  }
#endif
  if (kind == "avx2" || kind == "avx512")
    throw ConfigError("engine.copy = \"" + kind + "\" needs an x86-64 CPU that has it; use \"auto\"");
  if (kind != "memcpy" && kind != "auto" && kind != "nontemporal")
    throw ConfigError("engine.copy = \"" + kind + "\" is not one of auto, memcpy, avx2, avx512, nontemporal, dsa");
  return copy_memcpy;
}

std::unique_ptr<CopyEngine> make_cpu_copy_engine(const std::string& kind) {
  const bool never_streams = kind == "memcpy";
  const std::string best = has_avx512() ? "avx512" : has_avx2() ? "avx2" : "memcpy";
  return std::make_unique<CpuCopyEngine>(kind == "auto" ? best : kind, copy_function(kind, false),
                                         copy_function(kind, !never_streams));
}

std::unique_ptr<CopyEngine> make_copy_engine(const std::string& kind) {
  return kind == "dsa" ? dsa::make_copy_engine() : make_cpu_copy_engine(kind);
}

void CopyCounters::add(const CopyCounters& other) {
  offloaded += other.offloaded;
  fallbacks += other.fallbacks;
  page_faults += other.page_faults;
  errors += other.errors;
  refusals += other.refusals;
  lost += other.lost;
}

}  // namespace flashmob::engine
