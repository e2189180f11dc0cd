// What decoding a command needs to know of its namespace. Trivially copyable, and compiles as CUDA device code: the
// host's Namespace is one, and so is the GPU engine's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/platform.h"
#include "timing/demand.h"

namespace flashmob::command_set {

struct NamespaceShape {
  std::uint64_t blocks = 0;  // NSZE = NCAP
  std::byte* base = nullptr;  // where its blocks lie one after the other; nullptr: they are not addressable
  std::uint64_t unit_base = 0;  // its first timing unit: namespaces share the device's instances
  std::uint32_t nsid = 0;
  std::uint8_t lba_shift = 9;  // 9 or 12
  std::uint8_t unit_shift = 9;  // log2 of the timing model's unit in bytes
  bool has_directives = false;  // its writes may have one, which is checked apart (placement.h)

  FLASHMOB_HD std::uint64_t lba_bytes() const { return std::uint64_t{1} << lba_shift; }
  FLASHMOB_HD timing::UnitMap units() const { return {unit_base, unit_shift}; }
};
static_assert(std::is_trivially_copyable_v<NamespaceShape>);

}  // namespace flashmob::command_set
