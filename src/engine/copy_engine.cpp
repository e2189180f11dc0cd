#include "engine/copy_engine.h"

#include <algorithm>
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
constexpr std::size_t kFirstPrefetches = 8;

inline void prefetch(const Copy& copy) {
  const std::uint32_t bytes = std::min(copy.bytes, kPrefetchBytes);
#pragma GCC unroll 8
  for (std::uint32_t at = 0; at < bytes; at += 64) __builtin_prefetch(copy.from + at, 0, 2);
}

// How many copies of this size lie between asking for one and making it.
inline std::size_t distance(std::uint32_t bytes) {
  return std::min(kPrefetchCopies, kPrefetchWindowBytes / std::max(1u, bytes) + 1);
}

// Makes copies and asks for those that follow.
[[gnu::always_inline]] inline void copy_all(CopyRun& run, std::size_t count, CopyFunction copy) {
  const std::span<const Copy> pending = run.copies;
  const std::size_t ahead = distance(pending[0].bytes);
  std::size_t asked = run.asked;
  // Nothing was asked for: a few at once, then two for each that is made, until they are far enough ahead.
  while (asked < std::min(kFirstPrefetches, pending.size())) prefetch(pending[asked++]);
  std::size_t i = 0;
  for (; i < count && asked - i < ahead && asked < pending.size(); ++i) {
    prefetch(pending[asked++]);
    if (asked < pending.size()) prefetch(pending[asked++]);
    copy(pending[i].to, pending[i].from, pending[i].bytes);
  }
  const std::size_t far = asked - i;
  const std::size_t followed = std::min(count, pending.size() - far);
  for (; i < followed; ++i) {
    prefetch(pending[i + far]);
    copy(pending[i].to, pending[i].from, pending[i].bytes);
  }
  run.asked = i + far;
  for (; i < count; ++i) copy(pending[i].to, pending[i].from, pending[i].bytes);
}

using CopyLoop = void (*)(CopyRun& run, std::size_t count);

void copy_all_memcpy(CopyRun& run, std::size_t count) { copy_all(run, count, copy_memcpy); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) void copy_all_avx2(CopyRun& run, std::size_t count) { copy_all(run, count, copy_avx2); }

__attribute__((target("avx512f"))) void copy_all_avx512(CopyRun& run, std::size_t count) {
  copy_all(run, count, copy_avx512);
}

// Streaming stores are weakly ordered: they must be visible before the completion entry that announces them.
__attribute__((target("avx2"))) void stream_all_avx2(CopyRun& run, std::size_t count) {
  copy_all(run, count, stream_avx2);
  _mm_sfence();
}

__attribute__((target("avx512f"))) void stream_all_avx512(CopyRun& run, std::size_t count) {
  copy_all(run, count, stream_avx512);
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

  bool submit(CopyRun& run, std::size_t count, bool streaming) override {
    (streaming ? streaming_ : cached_)(run, count);
    return true;
  }

  void ask(CopyRun& run) override {
    const std::size_t ahead = std::min(distance(run.copies[0].bytes), run.copies.size());
    while (run.asked < ahead) prefetch(run.copies[run.asked++]);
  }

  std::size_t poll(std::span<std::uint32_t>) override { return 0; }

  bool may_be_cut_short() const override { return true; }
  std::string describe() const override { return "cpu/" + name_; }

 private:
  std::string name_;
  CopyLoop cached_;
  CopyLoop streaming_;
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
