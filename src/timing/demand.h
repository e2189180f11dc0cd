// What a request asks of the device's modelled resources, and which of them bytes lie in. Compiles as CUDA device code.
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
  std::uint32_t units;  // at least 1 for read and write; of a write also its stream (set_stream())
  DemandKind kind;
  std::uint8_t within = 0;  // within_unit() of it; only models with a medium look at it
  std::uint16_t sectors = 0;
};
static_assert(sizeof(Demand) == 16);

// Which of its streams a write belongs to, in what units leave free: asked by models that keep streams apart
// (TimingModel::placement()), and told to no others.
inline constexpr unsigned kStreamShift = 24;
inline constexpr std::uint32_t kUnitsMask = (std::uint32_t{1} << kStreamShift) - 1;
FLASHMOB_HD constexpr void set_stream(Demand& write, std::uint32_t stream) { write.units |= stream << kStreamShift; }
FLASHMOB_HD constexpr std::uint32_t stream_of(const Demand& demand) { return demand.units >> kStreamShift; }
FLASHMOB_HD constexpr std::uint32_t units_of(const Demand& demand) { return demand.units & kUnitsMask; }

// What is written must be on the medium when it is done.
inline constexpr std::uint8_t kForceUnitAccess = 0x80;
// In which sector of its first unit a transfer begins. Models that ask have units of at most 128 sectors.
inline constexpr std::uint8_t kFirstSectorMask = 0x7F;

FLASHMOB_HD constexpr std::uint8_t within_unit(std::uint64_t offset_bytes, unsigned unit_shift,
                                               bool force_unit_access = false) {
  const std::uint64_t sector = (offset_bytes & ((std::uint64_t{1} << unit_shift) - 1)) >> 9;
  return static_cast<std::uint8_t>((sector & kFirstSectorMask) | (force_unit_access ? kForceUnitAccess : 0));
}

// The sectors of a transfer. The largest that a controller can allow (MDTS), 16 MiB, is half of what fits.
FLASHMOB_HD constexpr std::uint16_t sectors_of(std::uint64_t bytes) { return static_cast<std::uint16_t>(bytes >> 9); }

// In which of the model's units the bytes of a namespace lie. The only place that turns the one into the other.
struct UnitMap {
  std::uint64_t base = 0;  // the first unit
  unsigned shift = 9;  // log2 of a unit in bytes

  // What it takes to touch `bytes` bytes, one at least: every unit that they lie in. Into a demand field by field: a
  // 16-byte copy of a structure just built would wait for its narrow stores.
  FLASHMOB_HD void touch(std::uint64_t offset, std::uint64_t bytes, DemandKind kind, Demand& demand) const {
    const std::uint64_t first = offset >> shift;
    const std::uint64_t last = (offset + bytes - 1) >> shift;
    demand.first_unit = base + first;
    demand.units = static_cast<std::uint32_t>(last - first + 1);
    demand.kind = kind;
    demand.within = 0;
    demand.sectors = 0;
  }
  // The same of a Read or Write.
  FLASHMOB_HD void transfer(std::uint64_t offset, std::uint64_t bytes, bool is_write, Demand& demand,
                            bool force_unit_access = false) const {
    touch(offset, bytes, is_write ? DemandKind::write : DemandKind::read, demand);
    demand.within = within_unit(offset, shift, force_unit_access);
    demand.sectors = sectors_of(bytes);
  }
  // The units that lie wholly within some bytes.
  struct Range {
    std::uint64_t first;
    std::uint64_t count;
  };
  FLASHMOB_HD Range within(std::uint64_t offset, std::uint64_t bytes) const {
    const std::uint64_t first = (offset + (std::uint64_t{1} << shift) - 1) >> shift;
    const std::uint64_t end = (offset + bytes) >> shift;
    return {base + first, end > first ? end - first : 0};
  }
};

}  // namespace flashmob::timing
