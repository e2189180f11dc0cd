// Eight 64-bit lanes with the operations that sector content needs, in AVX-512, AVX2 or plain C++, chosen when
// compiling. All three give the same bits, which the tests pin with constants. Values; no thread rule.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace flashmob::media {

#if defined(__AVX512F__)

struct Lanes {
  __m512i v;

  static Lanes zero() { return {_mm512_setzero_si512()}; }
  static Lanes all(std::uint64_t x) { return {_mm512_set1_epi64(static_cast<long long>(x))}; }
  static Lanes load(const void* from) { return {_mm512_loadu_si512(from)}; }
  void store(void* to) const { _mm512_storeu_si512(to, v); }
  friend Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_epi64(a.v, b.v)}; }
  friend Lanes operator^(Lanes a, Lanes b) { return {_mm512_xor_si512(a.v, b.v)}; }
  // The zero-masking forms with a full mask are the plain instructions; GCC 12 warns about the plain intrinsics.
  // Each lane's low half times its high half.
  Lanes product_of_halves() const { return {_mm512_maskz_mul_epu32(0xFF, v, _mm512_maskz_srli_epi64(0xFF, v, 32))}; }
  // Each lane with its halves exchanged.
  Lanes swap_halves() const { return {_mm512_maskz_shuffle_epi32(0xFFFF, v, _MM_PERM_CDAB)}; }
  // Each even lane exchanged with the odd lane after it.
  Lanes swap_neighbours() const { return {_mm512_maskz_shuffle_epi32(0xFFFF, v, _MM_PERM_BADC)}; }
  Lanes without_lane3() const { return {_mm512_maskz_mov_epi64(0xF7, v)}; }
  // Lanes 0 to 2 replaced, lane 3 zero; in registers, because a wide load would wait for narrow stores.
  Lanes with_front(std::uint64_t x0, std::uint64_t x1, std::uint64_t x2) const {
    const auto word = [](std::uint64_t x) { return static_cast<long long>(x); };
    return {_mm512_maskz_inserti64x4(0xFF, v, _mm256_set_epi64x(0, word(x2), word(x1), word(x0)), 0)};
  }
};

#elif defined(__AVX2__)

struct Lanes {
  __m256i a, b;

  static Lanes zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Lanes all(std::uint64_t x) {
    const __m256i v = _mm256_set1_epi64x(static_cast<long long>(x));
    return {v, v};
  }
  static Lanes load(const void* from) {
    const auto* p = static_cast<const __m256i*>(from);
    return {_mm256_loadu_si256(p), _mm256_loadu_si256(p + 1)};
  }
  void store(void* to) const {
    auto* p = static_cast<__m256i*>(to);
    _mm256_storeu_si256(p, a);
    _mm256_storeu_si256(p + 1, b);
  }
  friend Lanes operator+(Lanes x, Lanes y) { return {_mm256_add_epi64(x.a, y.a), _mm256_add_epi64(x.b, y.b)}; }
  friend Lanes operator^(Lanes x, Lanes y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
  Lanes product_of_halves() const {
    return {_mm256_mul_epu32(a, _mm256_srli_epi64(a, 32)), _mm256_mul_epu32(b, _mm256_srli_epi64(b, 32))};
  }
  Lanes swap_halves() const { return {_mm256_shuffle_epi32(a, 0xB1), _mm256_shuffle_epi32(b, 0xB1)}; }
  Lanes swap_neighbours() const { return {_mm256_shuffle_epi32(a, 0x4E), _mm256_shuffle_epi32(b, 0x4E)}; }
  Lanes without_lane3() const { return {_mm256_blend_epi32(a, _mm256_setzero_si256(), 0xC0), b}; }
  Lanes with_front(std::uint64_t x0, std::uint64_t x1, std::uint64_t x2) const {
    const auto word = [](std::uint64_t x) { return static_cast<long long>(x); };
    return {_mm256_set_epi64x(0, word(x2), word(x1), word(x0)), b};
  }
};

#else

struct Lanes {
  std::uint64_t v[8];

  template <class F>
  static Lanes make(F&& lane) {
    Lanes out;
    for (unsigned i = 0; i < 8; ++i) out.v[i] = lane(i);
    return out;
  }
  static Lanes zero() { return all(0); }
  static Lanes all(std::uint64_t x) {
    return make([x](unsigned) { return x; });
  }
  static Lanes load(const void* from) {
    Lanes out;
    std::memcpy(out.v, from, sizeof(out.v));
    return out;
  }
  void store(void* to) const { std::memcpy(to, v, sizeof(v)); }
  friend Lanes operator+(const Lanes& a, const Lanes& b) {
    return make([&](unsigned i) { return a.v[i] + b.v[i]; });
  }
  friend Lanes operator^(const Lanes& a, const Lanes& b) {
    return make([&](unsigned i) { return a.v[i] ^ b.v[i]; });
  }
  Lanes product_of_halves() const {
    return make([&](unsigned i) { return (v[i] & 0xFFFFFFFFu) * (v[i] >> 32); });
  }
  Lanes swap_halves() const {
    return make([&](unsigned i) { return (v[i] << 32) | (v[i] >> 32); });
  }
  Lanes swap_neighbours() const {
    return make([&](unsigned i) { return v[i ^ 1]; });
  }
  Lanes without_lane3() const {
    return make([&](unsigned i) { return i == 3 ? 0 : v[i]; });
  }
  Lanes with_front(std::uint64_t x0, std::uint64_t x1, std::uint64_t x2) const {
    return make([&](unsigned i) { return i == 0 ? x0 : i == 1 ? x1 : i == 2 ? x2 : i == 3 ? 0 : v[i]; });
  }
};

#endif

}  // namespace flashmob::media
