// What a request asks of the device's modelled resources. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "base/platform.h"

namespace flashmob::timing {

enum class DemandKind : std::uint8_t {
  immediate,  // done at once: rejected commands, commands that touch no media
  read,
  write,
  flush,  // done when every instance has served what was scheduled before it; occupies nothing
};

// 16 bytes, so that four share a cache line. Units are the model's own (unit_bytes of its configuration); sectors are
// 512 bytes each and count what a Read or Write moves between host and device, so commands without data have none.
struct Demand {
  std::uint64_t first_unit;
  std::uint32_t units;  // at least 1 for read and write
  DemandKind kind;
  std::uint16_t sectors;
};
static_assert(sizeof(Demand) == 16);

// The sectors of a transfer. The largest that a controller can allow (MDTS), 16 MiB, is half of what fits.
FLASHMOB_HD constexpr std::uint16_t sectors_of(std::uint64_t bytes) { return static_cast<std::uint16_t>(bytes >> 9); }

}  // namespace flashmob::timing
