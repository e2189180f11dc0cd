#include "load/trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "load/trace_parser.h"

namespace flashmob::load {
namespace {

bool moves_data(const TraceIo& io) { return io.kind == TraceKind::read || io.kind == TraceKind::write; }

// What the requests are, as they are written.
void describe(std::span<const TraceIo> trace, TraceSummary& summary) {
  std::uint64_t counts[4] = {}, bytes[4] = {};
  summary.largest_bytes = summary.end_bytes = 0;
  for (const TraceIo& io : trace) {
    ++counts[static_cast<std::size_t>(io.kind)];
    bytes[static_cast<std::size_t>(io.kind)] += io.bytes;
    summary.largest_bytes = std::max(summary.largest_bytes, std::uint64_t{io.bytes});
    summary.end_bytes = std::max(summary.end_bytes, io.offset_bytes + io.bytes);
  }
  const auto of = [](const std::uint64_t* figures, TraceKind kind) { return figures[static_cast<std::size_t>(kind)]; };
  summary.requests = trace.size();
  summary.reads = of(counts, TraceKind::read);
  summary.writes = of(counts, TraceKind::write);
  summary.trims = of(counts, TraceKind::trim);
  summary.flushes = of(counts, TraceKind::flush);
  summary.read_bytes = of(bytes, TraceKind::read);
  summary.write_bytes = of(bytes, TraceKind::write);
  summary.trim_bytes = of(bytes, TraceKind::trim);
  summary.span_ns = trace.empty() ? 0 : trace.back().time_ns;
  summary.commands = trace.size();
}

class TraceFile {
 public:
  explicit TraceFile(const std::string& path) : path_(path) {
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) fail("cannot be opened", errno);
    struct stat status{};
    if (::fstat(fd_, &status) != 0) close_and_fail("cannot be read", errno);
    if (S_ISDIR(status.st_mode)) {
      ::close(fd_);
      throw ConfigError("trace " + path + " is a directory; name one of the trace files in it");
    }
    if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) {
      ::close(fd_);
      throw ConfigError("trace " + path + " is a device; name a trace file");
    }
  }
  ~TraceFile() { ::close(fd_); }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Empty at the end.
  std::string_view next_piece() {
    for (;;) {
      const ssize_t got = ::read(fd_, buffer_.data(), buffer_.size());
      if (got >= 0) return {buffer_.data(), static_cast<std::size_t>(got)};
      if (errno != EINTR) fail("cannot be read", errno);
    }
  }

 private:
  [[noreturn]] void fail(const char* what, int error) const {
    throw ConfigError("trace " + path_ + " " + what + " (" + std::generic_category().message(error) +
                      "); name a readable trace file");
  }
  [[noreturn]] void close_and_fail(const char* what, int error) const {
    ::close(fd_);
    fail(what, error);
  }

  const std::string& path_;
  int fd_ = -1;
  std::vector<char> buffer_ = std::vector<char>(1 << 20);
};

}  // namespace

std::vector<TraceIo> parse_trace(std::string_view text, const TraceOptions& options, TraceSummary& summary) {
  TraceParser parser(options, summary);
  parser.feed(text);
  std::vector<TraceIo> trace = parser.finish();
  describe(trace, summary);
  return trace;
}

std::vector<TraceIo> load_trace(const std::string& path, const TraceOptions& options, TraceSummary& summary) {
  summary.path = path;
  TraceParser parser(options, summary);
  {
    TraceFile file(path);
    for (std::string_view piece = file.next_piece(); !piece.empty(); piece = file.next_piece()) parser.feed(piece);
  }
  std::vector<TraceIo> trace = parser.finish();
  describe(trace, summary);
  return trace;
}

void limit_trace(std::vector<TraceIo>& trace, std::uint64_t requests, std::uint64_t span_ns, TraceSummary& summary) {
  std::size_t keep = trace.size();
  if (requests != 0) keep = static_cast<std::size_t>(std::min<std::uint64_t>(keep, requests));
  if (span_ns != 0) {
    const auto beyond =
        std::partition_point(trace.begin(), trace.end(), [&](const TraceIo& io) { return io.time_ns < span_ns; });
    keep = std::min(keep, static_cast<std::size_t>(beyond - trace.begin()));
  }
  if (keep == trace.size()) return;
  summary.left_out += trace.size() - keep;
  trace.resize(keep);
  describe(trace, summary);
}

void fit_trace(std::vector<TraceIo>& trace, std::uint64_t capacity_bytes, std::uint32_t lba_bytes,
               TraceSummary& summary) {
  FLASHMOB_CHECK(lba_bytes > 0 && capacity_bytes >= lba_bytes && capacity_bytes % lba_bytes == 0);
  summary.namespace_bytes = capacity_bytes;
  for (TraceIo& io : trace) {
    if (io.kind == TraceKind::flush) continue;
    const std::uint64_t offset = io.offset_bytes % capacity_bytes;
    const std::uint64_t head = offset % lba_bytes;
    const std::uint64_t whole = (head + io.bytes + lba_bytes - 1) / lba_bytes * lba_bytes;
    const std::uint64_t bytes = std::min(whole, capacity_bytes);
    const std::uint64_t at = std::min(offset - head, capacity_bytes - bytes);
    summary.wrapped += io.offset_bytes >= capacity_bytes;
    summary.rounded += whole != io.bytes;
    summary.rounded_bytes += whole - io.bytes;
    summary.moved += at != offset - head;
    summary.shortened += bytes != whole;
    io.offset_bytes = at;
    io.bytes = static_cast<std::uint32_t>(bytes);
  }
}

void split_trace(std::vector<TraceIo>& trace, std::uint32_t max_bytes, TraceSummary& summary) {
  const auto too_large = [&](const TraceIo& io) { return moves_data(io) && io.bytes > max_bytes; };
  summary.split = static_cast<std::uint64_t>(std::count_if(trace.begin(), trace.end(), too_large));
  if (summary.split != 0) {
    std::vector<TraceIo> pieces;
    for (const TraceIo& io : trace) {
      std::uint32_t done = 0;
      for (; too_large(io) && io.bytes - done > max_bytes; done += max_bytes)
        pieces.push_back({io.time_ns, io.offset_bytes + done, max_bytes, io.kind});
      pieces.push_back({io.time_ns, io.offset_bytes + done, io.bytes - done, io.kind});
    }
    trace = std::move(pieces);
  }
  summary.commands = trace.size();
}

std::vector<ByteRange> touched_ranges(std::span<const TraceIo> trace, Touch touch, std::uint64_t granule_bytes) {
  std::vector<ByteRange> touched;
  for (const TraceIo& io : trace) {
    if (!moves_data(io) || (touch == Touch::writes && io.kind != TraceKind::write)) continue;
    const std::uint64_t first = io.offset_bytes & ~(granule_bytes - 1);
    const std::uint64_t end = (io.offset_bytes + io.bytes + granule_bytes - 1) & ~(granule_bytes - 1);
    // Neighbours and repetitions are common, and need not be sorted.
    if (!touched.empty() && first >= touched.back().offset_bytes &&
        first <= touched.back().offset_bytes + touched.back().bytes) {
      touched.back().bytes = std::max(touched.back().bytes, end - touched.back().offset_bytes);
    } else {
      touched.push_back({first, end - first});
    }
  }
  std::sort(touched.begin(), touched.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.offset_bytes < b.offset_bytes; });
  std::size_t kept = 0;
  for (const ByteRange& range : touched) {
    if (kept > 0 && range.offset_bytes <= touched[kept - 1].offset_bytes + touched[kept - 1].bytes) {
      ByteRange& last = touched[kept - 1];
      last.bytes = std::max(last.bytes, range.offset_bytes + range.bytes - last.offset_bytes);
    } else {
      touched[kept++] = range;
    }
  }
  touched.resize(kept);
  return touched;
}

std::uint64_t total_bytes(std::span<const ByteRange> ranges) {
  std::uint64_t bytes = 0;
  for (const ByteRange& range : ranges) bytes += range.bytes;
  return bytes;
}

}  // namespace flashmob::load
