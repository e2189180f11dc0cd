// What a request asks of the device's modelled resources. Compiles as CUDA device code.
#pragma once

#include <cstdint>

namespace flashmob::timing {

enum class DemandKind : std::uint8_t {
  immediate,  // done at once: rejected commands, commands that touch no media
  read,
  write,
  flush,  // done when every instance has served what was scheduled before it; occupies nothing
};

// 16 bytes, so that four share a cache line. Units are the model's own (unit_bytes of its configuration).
struct Demand {
  std::uint64_t first_unit;
  std::uint32_t units;  // at least 1 for read and write
  DemandKind kind;
  std::uint8_t reserved[3];
};
static_assert(sizeof(Demand) == 16);

}  // namespace flashmob::timing
