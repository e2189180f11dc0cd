// What is said of a replayed trace: what is in the file, what of it is replayed, and all that was changed on the way.
// Thread rule: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace flashmob::load {

// A disk, volume or file of a trace: MSR's Hostname_DiskNumber, Alibaba's device_id, Tencent's VolumeID, fio's file.
struct TraceDisk {
  std::string name;
  std::uint64_t requests = 0;  // of the file, whether replayed or not
  std::uint64_t bytes = 0;
  std::uint64_t end_bytes = 0;     // where its last block ends
  bool replayed = false;
  std::uint64_t offset_bytes = 0;  // where it begins among the disks that are replayed
};

struct TraceSummary {
  // Lines of one sort, and the first of them.
  struct Noted {
    std::uint64_t count = 0;
    std::uint64_t first_line = 0;  // 0: none
    void note(std::uint64_t line) {
      if (count++ == 0) first_line = line;
    }
  };

  // Of the file.
  std::string path;
  std::string format;  // "fio version 2", "fio version 3", "msr", "alibaba" or "tencent"
  std::uint64_t lines = 0;
  std::uint64_t ignored = 0;  // lines that ask for nothing: blank ones, headers, fio's add, open, close and wait
  Noted empty;                // requests of no bytes, which are left out
  std::vector<TraceDisk> disks;

  // Of the requests that are replayed, as they are written.
  std::string disk;  // the one that was chosen; empty: all
  std::uint64_t requests = 0, reads = 0, writes = 0, trims = 0, flushes = 0;
  std::uint64_t read_bytes = 0, write_bytes = 0, trim_bytes = 0;
  std::uint64_t span_ns = 0;        // from the first to the last
  std::uint64_t largest_bytes = 0;
  std::uint64_t end_bytes = 0;      // where the highest one ends
  Noted reordered;                  // written after a later one of the same trace
  std::uint64_t left_out = 0;       // beyond the number or the time that was asked for

  // What became of them.
  std::uint64_t namespace_bytes = 0;
  bool sized_from_trace = false;    // the namespace is as large as the trace needs
  std::uint64_t rounded = 0;        // grown to whole blocks, by ...
  std::uint64_t rounded_bytes = 0;  // ... so much together
  std::uint64_t wrapped = 0;        // offset taken modulo the namespace
  std::uint64_t moved = 0;          // began within the namespace and ended beyond it: moved down to end with it
  std::uint64_t shortened = 0;      // larger than the whole namespace
  std::uint64_t split = 0;          // larger than one command
  std::uint64_t commands = 0;       // what is sent
};

// The busiest disks in words, for messages: "hm_1 (2,000 requests), hm_0 (10) and 3 more".
std::string busiest_disks(const std::vector<TraceDisk>& disks);

// Text of a stranger's file as messages show it: printable and short, in quotes.
std::string quoted_trace_text(std::string_view text);

// The field `trace` of a result; null if no trace was replayed (docs/reference/result.md).
void trace_field(JsonWriter& json, const TraceSummary& summary);

}  // namespace flashmob::load
