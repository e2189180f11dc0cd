// I/O traces for replay: fio iolog versions 2 and 3, MSR Cambridge, Alibaba and Tencent block traces.
//
// A trace's disks, volumes or files are laid side by side, in the order in which they first appear, each from a whole
// MiB on; or one of them is chosen. Whatever is changed on the way from file to commands is counted in a TraceSummary.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "load/trace_summary.h"

namespace flashmob::load {

enum class TraceKind : std::uint8_t { read, write, trim, flush };

struct TraceIo {
  std::uint64_t time_ns;       // since the trace's first request
  std::uint64_t offset_bytes;  // flush: 0
  std::uint32_t bytes;         // flush: 0; else at least 1
  TraceKind kind;
};

struct ByteRange {
  std::uint64_t offset_bytes;
  std::uint64_t bytes;
};

// The largest request a trace may hold, and where the last one must have ended.
inline constexpr std::uint64_t kMaxTraceIoBytes = std::uint64_t{2} << 30;
inline constexpr std::uint64_t kMaxTraceEnd = std::uint64_t{1} << 63;

struct TraceOptions {
  std::string format = "auto";  // auto | fio | msr | alibaba | tencent
  std::string disk;             // only requests of this one; empty: of all
};

// The requests of a trace's text in order of time, with offsets (within their disk's region) and lengths as written.
// Throws ConfigError naming the line and what was expected there.
std::vector<TraceIo> parse_trace(std::string_view text, const TraceOptions& options, TraceSummary& summary);

// The same of a file, which may be larger than memory where one disk is chosen.
std::vector<TraceIo> load_trace(const std::string& path, const TraceOptions& options, TraceSummary& summary);

// Leaves out what comes after so many requests or after so much of the trace's time; 0: no such limit.
void limit_trace(std::vector<TraceIo>& trace, std::uint64_t requests, std::uint64_t span_ns, TraceSummary& summary);

// Makes requests fit a namespace: offsets are taken modulo the capacity and rounded down to whole LBAs, ends rounded
// up; a request that would reach over the end is moved to end there. Capacity is a multiple of the LBA size.
void fit_trace(std::vector<TraceIo>& trace, std::uint64_t capacity_bytes, std::uint32_t lba_bytes,
               TraceSummary& summary);

// Cuts reads and writes that are larger than one command may be, a multiple of the LBA size, into several of the same
// time, as a host's block layer would.
void split_trace(std::vector<TraceIo>& trace, std::uint32_t max_bytes, TraceSummary& summary);

enum class Touch : std::uint8_t { reads_and_writes, writes };

// What requests touch, in whole granules (a power of two), in order and without overlaps.
std::vector<ByteRange> touched_ranges(std::span<const TraceIo> trace, Touch touch, std::uint64_t granule_bytes);
std::uint64_t total_bytes(std::span<const ByteRange> ranges);

}  // namespace flashmob::load
