// Writing completion queue entries so that a polling host sees each of them whole or not at all.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/platform.h"
#include "engine/queues.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace flashmob::engine {

inline constexpr std::uint32_t kEntriesPerLine = kCacheLineBytes / sizeof(nvme::Cqe);
// How far ahead of the tail the completion ring is fetched for writing.
inline constexpr std::uint32_t kEntriesAhead = 32;

// `low` is dw0; `high` holds SQHD, SQID, CID and status with phase, as dwords 2 and 3 of the entry.
inline void write_entry(nvme::Cqe* to, std::uint32_t low, std::uint64_t high) {
#if defined(__AVX__) && !FLASHMOB_TSAN
  // Aligned 16-byte stores are single-copy atomic on every CPU with AVX: the host sees the whole entry or the old one,
  // and x86 keeps it behind the data stored before; the compiler must not move those past it either.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm_set_epi64x(static_cast<long long>(high), low));
#else
  auto* out = reinterpret_cast<std::uint32_t*>(to);
  out[0] = low;
  out[1] = 0;
  out[2] = static_cast<std::uint32_t>(high);
  // The phase tag is in the last dword: released after everything else, so a host that sees it sees the entry.
  std::atomic_ref<std::uint32_t>(out[3]).store(static_cast<std::uint32_t>(high >> 32), std::memory_order_release);
#endif
}

// Fills a line of the ring, from the upper halves of its entries. In one store where the CPU has one that wide: the
// host polls this line, and would take it away between narrower stores. Each entry still appears whole, because no CPU
// splits an aligned store into pieces of less than 16 bytes.
inline void write_line(nvme::Cqe* to, std::uint64_t first, std::uint64_t second, std::uint64_t third,
                       std::uint64_t fourth) {
#if defined(__AVX512F__) && !FLASHMOB_TSAN
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const auto word = [](std::uint64_t high) { return static_cast<long long>(high); };
  _mm512_store_si512(to, _mm512_set_epi64(word(fourth), 0, word(third), 0, word(second), 0, word(first), 0));
#else
  write_entry(to, 0, first);
  write_entry(to + 1, 0, second);
  write_entry(to + 2, 0, third);
  write_entry(to + 3, 0, fourth);
#endif
}

// Dwords 2 and 3 of every successful entry of a queue until its phase changes, without the CID.
inline std::uint64_t entry_base(const Sq& sq, const Cq& cq) {
  return (sq.head.load(std::memory_order_relaxed) & 0xFFFFu) | (std::uint64_t{sq.sqid} << 16) |
         (std::uint64_t{cq.phase} << 48);
}

inline std::uint64_t entry_of(std::uint64_t base, const HotRequest& hot) {
  return base | (std::uint64_t{hot.cid} << 32) | (std::uint64_t{hot.status} << 49);
}

// The host read these lines last: ask for the line written eight lines from now, or its ownership would be waited for
// in the store buffer, a cross-core round trip for every four entries.
inline void prefetch_ahead(const Cq& cq, std::uint32_t tail) {
  if ((tail & 3) == 0 && tail + kEntriesAhead < cq.entries) __builtin_prefetch(cq.ring + tail + kEntriesAhead, 1, 3);
}

}  // namespace flashmob::engine
