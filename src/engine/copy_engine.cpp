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
#endif

// The sources of copies at this distance ahead are fetched into L2, whole or as far as kPrefetchBytes. A miss of the
// TLB takes 70 ns and nothing behind it retires meanwhile, so the lines of a source are asked for together, and far
// enough ahead that many misses overlap.
constexpr std::size_t kPrefetchCopies = 64;
constexpr std::uint32_t kPrefetchBytes = 2048;
constexpr std::size_t kPrefetchWindowBytes = 32 * 1024;

inline void prefetch(const Copy& copy) {
  const std::uint32_t bytes = std::min(copy.bytes, kPrefetchBytes);
#pragma GCC unroll 8
  for (std::uint32_t at = 0; at < bytes; at += 64) __builtin_prefetch(copy.from + at, 0, 2);
}

[[gnu::always_inline]] inline void copy_all(std::span<const Copy> pending, std::size_t count, CopyFunction copy) {
  const std::size_t later = pending.size() - count;
  std::size_t ahead = std::min(kPrefetchCopies, kPrefetchWindowBytes / std::max(1u, pending[0].bytes) + 1);
  if (later != 0) {
    ahead = std::min(ahead, later);  // the call before this one has asked for as many
  } else {
    // A short queue, nothing of which has been asked for.
    ahead = std::min(ahead, count);
    for (std::size_t i = 0; i < ahead; ++i) prefetch(pending[i]);
  }
  const std::size_t covered = std::min(count, pending.size() - ahead);
  std::size_t i = 0;
  for (; i < covered; ++i) {
    prefetch(pending[i + ahead]);
    copy(pending[i].to, pending[i].from, pending[i].bytes);
  }
  for (; i < count; ++i) copy(pending[i].to, pending[i].from, pending[i].bytes);
}

void copy_all_memcpy(std::span<const Copy> pending, std::size_t count) { copy_all(pending, count, copy_memcpy); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) void copy_all_avx2(std::span<const Copy> pending, std::size_t count) {
  copy_all(pending, count, copy_avx2);
}

__attribute__((target("avx512f"))) void copy_all_avx512(std::span<const Copy> pending, std::size_t count) {
  copy_all(pending, count, copy_avx512);
}

// Streaming stores are weakly ordered: they must be visible before the completion entry that announces them.
__attribute__((target("avx2"))) void stream_all_avx2(std::span<const Copy> pending, std::size_t count) {
  copy_all(pending, count, stream_avx2);
  _mm_sfence();
}

__attribute__((target("avx512f"))) void stream_all_avx512(std::span<const Copy> pending, std::size_t count) {
  copy_all(pending, count, stream_avx512);
  _mm_sfence();
}
#endif

CopyLoop loop_of(CopyFunction copy) {
#if defined(__x86_64__)
  if (copy == copy_avx2) return copy_all_avx2;
  if (copy == copy_avx512) return copy_all_avx512;
  if (copy == stream_avx2) return stream_all_avx2;
  if (copy == stream_avx512) return stream_all_avx512;
#endif
  FLASHMOB_CHECK(copy == copy_memcpy);
  return copy_all_memcpy;
}

class CpuCopyEngine final : public CopyEngine {
 public:
  CpuCopyEngine(std::string name, CopyFunction cached, CopyFunction streaming)
      : name_(std::move(name)), cached_(loop_of(cached)), streaming_(loop_of(streaming)) {}

  void submit(std::span<const Copy> pending, std::size_t count, bool streaming) override {
    FLASHMOB_CHECK(done_count_ - done_taken_ + count <= kMaxUnpolled);
    synchronous(streaming)(pending, count);
    for (std::size_t i = 0; i < count; ++i) done_[done_count_++ % done_.size()] = pending[i].token;
  }

  CopyLoop synchronous(bool streaming) const override { return streaming ? streaming_ : cached_; }

  std::size_t poll(std::span<std::uint32_t> done) override {
    const std::size_t count = std::min<std::size_t>(done.size(), done_count_ - done_taken_);
    for (std::size_t i = 0; i < count; ++i) done[i] = done_[(done_taken_ + i) % done_.size()];
    done_taken_ += count;
    return count;
  }

  std::string describe() const override { return "cpu/" + name_; }

 private:
  std::string name_;
  CopyLoop cached_;
  CopyLoop streaming_;
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
