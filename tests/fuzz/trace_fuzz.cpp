// libFuzzer target: I/O traces of every format, from a stranger's file.
//
// Input: one byte chooses the format that is named, the namespace that is fitted and whether one disk is chosen; the
// rest is the trace's text. A trace is either refused with one printable sentence or gives requests that keep every
// promise of load/trace.h, the same ones however the text is cut into pieces.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "load/trace.h"
#include "load/trace_parser.h"

namespace {

using namespace flashmob;
using load::TraceKind;

constexpr std::array<const char*, 5> kFormats{"auto", "fio", "msr", "alibaba", "tencent"};
constexpr std::array<std::uint64_t, 4> kCapacities{4096, 12288, std::uint64_t{1} << 30, std::uint64_t{64} << 40};

void check_printable(std::string_view text, std::size_t most) {
  FLASHMOB_CHECK(!text.empty() && text.size() < most);
  for (const char c : text) FLASHMOB_CHECK(c >= 0x20 && c < 0x7F);
}

void check_disks(const load::TraceSummary& summary) {
  std::uint64_t end = 0;
  std::uint64_t requests = 0;
  for (const load::TraceDisk& disk : summary.disks) {
    FLASHMOB_CHECK(disk.requests > 0);
    if (!disk.replayed) continue;
    FLASHMOB_CHECK(disk.offset_bytes >= end);
    end = disk.offset_bytes + disk.end_bytes;
    requests += disk.requests;
  }
  FLASHMOB_CHECK(summary.end_bytes <= end && end <= load::kMaxTraceEnd && requests == summary.requests);
}

void check_parsed(const std::vector<load::TraceIo>& trace, const load::TraceSummary& summary) {
  FLASHMOB_CHECK(!trace.empty());
  FLASHMOB_CHECK(trace.front().time_ns == 0 && trace.back().time_ns == summary.span_ns);
  FLASHMOB_CHECK(summary.reads + summary.writes + summary.trims + summary.flushes == trace.size());
  FLASHMOB_CHECK(summary.ignored + summary.empty.count + trace.size() <= summary.lines);
  FLASHMOB_CHECK(summary.reordered.count < trace.size() && summary.reordered.first_line <= summary.lines);
  std::uint64_t before = 0;
  for (const load::TraceIo& io : trace) {
    FLASHMOB_CHECK(io.time_ns >= before);
    before = io.time_ns;
    FLASHMOB_CHECK((io.bytes == 0) == (io.kind == TraceKind::flush) && io.bytes <= load::kMaxTraceIoBytes);
    FLASHMOB_CHECK(io.offset_bytes + io.bytes <= summary.end_bytes && io.bytes <= summary.largest_bytes);
  }
  check_disks(summary);
}

// The same text, some bytes at a time.
void check_pieces(std::string_view text, const load::TraceOptions& options, const std::vector<load::TraceIo>& whole) {
  load::TraceSummary summary;
  load::TraceParser parser(options, summary);
  for (std::size_t at = 0; at < text.size(); at += 7) parser.feed(text.substr(at, 7));
  const std::vector<load::TraceIo> trace = parser.finish();
  FLASHMOB_CHECK(std::equal(
      trace.begin(), trace.end(), whole.begin(), whole.end(), [](const load::TraceIo& a, const load::TraceIo& b) {
        return a.time_ns == b.time_ns && a.offset_bytes == b.offset_bytes && a.bytes == b.bytes && a.kind == b.kind;
      }));
}

void check_fitted(const std::vector<load::TraceIo>& trace, std::uint64_t capacity, std::uint32_t lba_bytes,
                  const load::TraceSummary& summary) {
  for (const load::TraceIo& io : trace) {
    FLASHMOB_CHECK(io.offset_bytes % lba_bytes == 0 && io.bytes % lba_bytes == 0);
    FLASHMOB_CHECK(io.bytes <= capacity && io.offset_bytes <= capacity - io.bytes);
  }
  FLASHMOB_CHECK(summary.wrapped <= trace.size() && summary.rounded <= trace.size());
  if (summary.end_bytes <= capacity) FLASHMOB_CHECK(summary.wrapped + summary.moved + summary.shortened == 0);
}

std::uint64_t data_bytes(const std::vector<load::TraceIo>& trace) {
  std::uint64_t bytes = 0;
  for (const load::TraceIo& io : trace) bytes += io.bytes;
  return bytes;
}

void check_split(std::vector<load::TraceIo> trace, std::uint32_t lba_bytes, load::TraceSummary& summary) {
  const std::uint64_t before = data_bytes(trace);
  const std::size_t requests = trace.size();
  // A trace of a few bytes may ask for very much.
  const std::uint32_t max_bytes = before > (std::uint64_t{1} << 30) ? 16u << 20 : lba_bytes * 4;
  load::split_trace(trace, max_bytes, summary);
  FLASHMOB_CHECK(data_bytes(trace) == before && summary.commands == trace.size());
  FLASHMOB_CHECK(trace.size() >= requests + summary.split);
  for (const load::TraceIo& io : trace) FLASHMOB_CHECK(io.kind == TraceKind::trim || io.bytes <= max_bytes);
  std::uint64_t end = 0;
  for (const load::ByteRange& range : load::touched_ranges(trace, load::Touch::reads_and_writes, 4096)) {
    FLASHMOB_CHECK(range.offset_bytes % 4096 == 0 && range.bytes % 4096 == 0 && range.bytes > 0);
    FLASHMOB_CHECK(end == 0 || range.offset_bytes > end);
    end = range.offset_bytes + range.bytes;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::uint64_t capacity = kCapacities[(data[0] >> 4) & 3];
  const std::uint32_t lba_bytes = (data[0] & 0x80) != 0 ? 4096 : 512;
  const load::TraceOptions options{kFormats[(data[0] & 0x0F) % kFormats.size()], (data[0] & 0x40) != 0 ? "hm_0" : ""};
  load::TraceSummary summary;
  try {
    std::vector<load::TraceIo> trace = load::parse_trace(text, options, summary);
    check_parsed(trace, summary);
    check_pieces(text, options, trace);
    load::fit_trace(trace, capacity, lba_bytes, summary);
    check_fitted(trace, capacity, lba_bytes, summary);
    if (trace.size() < 100) check_split(trace, lba_bytes, summary);
    load::limit_trace(trace, 2, 1'000'000, summary);
    FLASHMOB_CHECK(!trace.empty() && trace.size() <= 2 && summary.requests == trace.size());
    JsonWriter json;
    json.begin_object();
    load::trace_field(json, summary);
    check_printable(json.end_object().text(), 100'000);
  } catch (const ConfigError& error) {
    check_printable(error.what(), 2'000);
  }
  return 0;
}
