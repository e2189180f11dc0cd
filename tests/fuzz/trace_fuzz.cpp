// libFuzzer target: I/O traces of every format, from a stranger's file.
//
// Input: one byte chooses the format that is named and the namespace that is fitted, the rest is the trace's text. A
// trace is either refused with one printable sentence or gives requests that keep every promise of load/trace.h.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "load/trace.h"

namespace {

using namespace flashmob;
using load::TraceKind;

constexpr std::array<const char*, 5> kFormats{"auto", "fio", "msr", "alibaba", "tencent"};
constexpr std::array<std::uint64_t, 4> kCapacities{4096, 12288, std::uint64_t{1} << 30, std::uint64_t{64} << 40};

void check_message(std::string_view message) {
  FLASHMOB_CHECK(!message.empty() && message.size() < 1000);
  for (const char c : message) FLASHMOB_CHECK(c >= 0x20 && c < 0x7F);
}

void check_parsed(const std::vector<load::TraceIo>& trace, const load::TraceReport& report) {
  FLASHMOB_CHECK(!trace.empty());
  FLASHMOB_CHECK(trace.front().time_ns == 0 && trace.back().time_ns == report.duration_ns);
  FLASHMOB_CHECK(report.reads + report.writes + report.trims + report.flushes == trace.size());
  FLASHMOB_CHECK(report.ignored + trace.size() <= report.lines);
  std::uint64_t before = 0;
  for (const load::TraceIo& io : trace) {
    FLASHMOB_CHECK(io.time_ns >= before);
    before = io.time_ns;
    FLASHMOB_CHECK((io.bytes == 0) == (io.kind == TraceKind::flush) && io.bytes <= load::kMaxTraceIoBytes);
  }
}

void check_fitted(const std::vector<load::TraceIo>& trace, std::uint64_t capacity, std::uint32_t lba_bytes) {
  for (const load::TraceIo& io : trace) {
    FLASHMOB_CHECK(io.offset_bytes % lba_bytes == 0 && io.bytes % lba_bytes == 0);
    FLASHMOB_CHECK(io.bytes <= capacity && io.offset_bytes <= capacity - io.bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::uint64_t capacity = kCapacities[(data[0] >> 4) & 3];
  const std::uint32_t lba_bytes = (data[0] & 0x80) != 0 ? 4096 : 512;
  load::TraceReport report;
  try {
    std::vector<load::TraceIo> trace = load::parse_trace(text, kFormats[(data[0] & 0x0F) % kFormats.size()], report);
    check_parsed(trace, report);
    load::fit_trace(trace, capacity, lba_bytes);
    check_fitted(trace, capacity, lba_bytes);
  } catch (const ConfigError& error) {
    check_message(error.what());
  }
  return 0;
}
