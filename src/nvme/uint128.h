// 128-bit little-endian numbers of capacities and counters (NVMe Base 2.0c, clauses 5.16.1.3 and 5.17.2.1). No native
// 128-bit type has 8-byte alignment and works on every device compiler, so the two halves are spelled out.
// Plain values; no thread rule. Compiles as CUDA device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"

namespace flashmob::nvme {

struct Uint128 {
  std::uint64_t low;
  std::uint64_t high;
};
static_assert(sizeof(Uint128) == 16 && alignof(Uint128) == 8);
static_assert(offsetof(Uint128, high) == 8);

FLASHMOB_HD constexpr Uint128 to_uint128(std::uint64_t value) { return {value, 0}; }

FLASHMOB_HD constexpr Uint128 add(Uint128 a, std::uint64_t b) {
  const std::uint64_t low = a.low + b;
  return {low, a.high + (low < b ? 1 : 0)};
}

}  // namespace flashmob::nvme
