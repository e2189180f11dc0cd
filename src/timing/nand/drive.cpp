#include "timing/nand/drive.h"

#include <algorithm>

namespace flashmob::timing::nand {
namespace {

std::uint64_t ticks_for(std::uint64_t bytes, std::uint64_t ticks_per_kib) {
  return (bytes * ticks_per_kib + 512) / 1024;
}

}  // namespace

Drive::Drive(const Params& params)
    : params_(params),
      firmware_ticks_(std::uint64_t{params.ways.firmware_ns} * Calendar::kTicksPerNs / std::max(1u, params.ways.cores)),
      link_ticks_per_kib_(ticks_of(1024, params.ways.link_bytes_per_s)),
      ftl_(params) {}

std::uint64_t Drive::firmware(std::uint64_t ready_ns) {
  return cores_.reserve(ready_ns, firmware_ticks_, params_.ways.firmware_ns);
}

std::uint64_t Drive::read(Unit first, std::uint32_t units, std::uint32_t bytes, std::uint64_t now_ns) {
  ftl_.come(now_ns);
  const std::uint64_t begun_ns = firmware(now_ns);
  const std::uint32_t unit_bytes = params_.geometry.unit_bytes;
  std::uint64_t done_ns = begun_ns;
  for (std::uint32_t i = 0; i < units;) {
    const std::uint32_t together = ftl_.together(first + i, units - i);
    const std::uint32_t whole_bytes = together * unit_bytes;
    const std::uint32_t moved_bytes = std::min(bytes, whole_bytes);
    const std::uint64_t link_ticks = ticks_for(moved_bytes, link_ticks_per_kib_);
    // A part of a unit is all that is read of it; whoever asks for no data, as Verify does, has it looked at whole.
    const std::uint32_t read_bytes = units == 1 && bytes != 0 ? moved_bytes : whole_bytes;
    const std::uint64_t there_ns = ftl_.read(first + i, read_bytes, begun_ns) + params_.ways.correction_ns;
    done_ns = std::max(done_ns, to_host_.reserve(there_ns, link_ticks, link_ticks / Calendar::kTicksPerNs));
    bytes -= moved_bytes;
    i += together;
  }
  ftl_.went(done_ns);
  return done_ns;
}

std::uint64_t Drive::write(Unit first, std::uint32_t units, std::uint32_t bytes, std::uint64_t now_ns,
                           std::uint32_t begin_bytes, bool durable, std::uint32_t stream) {
  ftl_.come(now_ns);
  const std::uint64_t link_ticks = ticks_for(bytes, link_ticks_per_kib_);
  const std::uint64_t there_ns = to_drive_.reserve(firmware(now_ns), link_ticks, link_ticks / Calendar::kTicksPerNs);
  std::uint64_t done_ns = there_ns;
  // What moves no data, as Write Zeroes does, writes whole units.
  const std::uint32_t unit_sectors = params_.geometry.unit_bytes / kSectorBytes;
  std::uint32_t begin = begin_bytes / kSectorBytes;
  std::uint32_t left = bytes == 0 ? units * unit_sectors : bytes / kSectorBytes;
  for (std::uint32_t i = 0; i < units; ++i) {
    const Part part{begin, std::min(unit_sectors, begin + left)};
    done_ns = std::max(done_ns, ftl_.write(first + i, part, there_ns, stream));
    left -= part.sectors();
    begin = 0;
  }
  done_ns += params_.buffer_write_ns;
  if (durable && !params_.protected_buffer) done_ns = std::max(done_ns, ftl_.program_units(first, units, there_ns));
  ftl_.went(done_ns);
  return done_ns;
}

std::uint64_t Drive::flush(std::uint64_t now_ns) {
  const std::uint64_t begun_ns = firmware(now_ns);
  return params_.protected_buffer ? begun_ns : ftl_.program_all(begun_ns);
}

void Drive::deallocate(Unit first, std::uint32_t units) { ftl_.deallocate(first, units); }

void Drive::assume_written(Unit first, std::uint32_t units, const std::atomic<bool>* cancelled) {
  constexpr std::uint32_t kUnitsBetweenLooks = 4096;
  ftl_.assume(true);
  for (std::uint32_t i = 0; i < units; ++i) {
    if (i % kUnitsBetweenLooks == 0 && cancelled != nullptr && *cancelled) break;
    ftl_.write(first + i, 0);
  }
  ftl_.assume(false);
  ftl_.forget_counters();
  forget_load();
}

void Drive::forget_load() {
  for (Calendar* way : {&cores_, &to_host_, &to_drive_}) way->clear();
  ftl_.forget_load();
}

}  // namespace flashmob::timing::nand
