// Reading of I/O traces for replay: fio iolog versions 2 and 3, MSR Cambridge, Alibaba and Tencent block traces.
//
//   fio      a first line "fio version 2 iolog" (or 3), then "[timestamp_us] file action [offset length]" in bytes;
//            version 2 has no timestamps but "wait" actions in microseconds, which add up (fio's HOWTO, trace formats)
//   msr      Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime: 100 ns since 1601, bytes
//   alibaba  device_id,opcode,offset,length,timestamp: bytes, microseconds
//   tencent  Timestamp,Offset,Size,IOType,VolumeID: seconds, 512-byte sectors, 0 = read, 1 = write
// A CSV header line is recognised and skipped. All files, disks and volumes of a trace are played on one namespace.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flashmob::load {

enum class TraceKind : std::uint8_t { read, write, trim, flush };

struct TraceIo {
  std::uint64_t time_ns;       // since the trace's first request
  std::uint64_t offset_bytes;  // flush: 0
  std::uint32_t bytes;         // flush: 0; else at least 1
  TraceKind kind;
};

// The largest request a trace may hold.
inline constexpr std::uint64_t kMaxTraceIoBytes = std::uint64_t{2} << 30;

struct TraceReport {
  std::string source = "the trace";  // in: how messages call it
  std::string format;                // out: "fio version 2", "fio version 3", "msr", "alibaba" or "tencent"
  std::uint64_t lines = 0;
  std::uint64_t ignored = 0;  // lines without a request: headers, file actions, waits, requests of no bytes
  std::uint64_t reads = 0, writes = 0, trims = 0, flushes = 0;
  std::uint64_t duration_ns = 0;  // from the first request to the last
};

// The requests of a trace's text in order of time, with offsets and lengths as written. `format` is auto, fio, msr,
// alibaba or tencent. Throws ConfigError naming the line and what was expected there.
std::vector<TraceIo> parse_trace(std::string_view text, const std::string& format, TraceReport& report);

// Makes requests fit a namespace: offsets are taken modulo the capacity and rounded down to whole LBAs, ends rounded
// up; a request that would reach over the end is moved to end there. Capacity is a multiple of the LBA size.
void fit_trace(std::vector<TraceIo>& trace, std::uint64_t capacity_bytes, std::uint32_t lba_bytes);

// Reads, parses and fits a file. Requests may be larger than one command can be; who replays them splits them.
std::vector<TraceIo> load_trace(const std::string& path, const std::string& format, std::uint64_t capacity_bytes,
                                std::uint32_t lba_bytes);

}  // namespace flashmob::load
