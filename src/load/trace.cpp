#include "load/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <limits>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace flashmob::load {
namespace {

constexpr std::size_t kMaxFields = 8;  // one more than any format has, so that surplus fields are noticed
constexpr std::uint64_t kMaxTime = std::numeric_limits<std::uint64_t>::max();

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool same_word(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b; });
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 60)) out += c >= 0x20 && c < 0x7F ? c : '?';
  return out + (text.size() > 60 ? "...\"" : "\"");
}

// The fields of one line.
class Fields {
 public:
  static Fields of_csv(std::string_view line) {
    Fields fields;
    while (fields.count_ < kMaxFields) {
      const std::size_t comma = line.find(',');
      fields.items_[fields.count_++] = trimmed(line.substr(0, comma));
      if (comma == std::string_view::npos) break;
      line.remove_prefix(comma + 1);
    }
    return fields;
  }
  static Fields of_words(std::string_view line) {
    Fields fields;
    for (line = trimmed(line); !line.empty() && fields.count_ < kMaxFields; line = trimmed(line)) {
      const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
      fields.items_[fields.count_++] = line.substr(0, end);
      line.remove_prefix(end);
    }
    return fields;
  }
  std::size_t count() const { return count_; }
  std::string_view operator[](std::size_t index) const { return items_[index]; }

 private:
  std::array<std::string_view, kMaxFields> items_{};
  std::size_t count_ = 0;
};

// Requests of one instant stay in the order in which they were written.
std::vector<TraceIo> in_order_of_time(std::vector<TraceIo> trace) {
  const auto earlier = [](const TraceIo& a, const TraceIo& b) { return a.time_ns < b.time_ns; };
  if (std::is_sorted(trace.begin(), trace.end(), earlier)) return trace;
  std::vector<std::size_t> order(trace.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return trace[a].time_ns != trace[b].time_ns ? trace[a].time_ns < trace[b].time_ns : a < b;
  });
  std::vector<TraceIo> sorted;
  sorted.reserve(trace.size());
  for (const std::size_t index : order) sorted.push_back(trace[index]);
  return sorted;
}

enum class Format : std::uint8_t { automatic, fio2, fio3, fio, msr, alibaba, tencent };

// A header names its columns; every one of them has some form of this word, and no data line has it.
bool is_csv_header(const Fields& fields) {
  for (std::size_t i = 0; i < fields.count(); ++i) {
    if (same_word(fields[i], "timestamp")) return true;
  }
  return false;
}

Format guess_format(std::string_view line) {
  if (line.starts_with("fio version ")) return Format::fio;
  const Fields fields = Fields::of_csv(line);
  for (std::size_t i = 0; i < fields.count(); ++i) {
    if (same_word(fields[i], "hostname")) return Format::msr;
    if (same_word(fields[i], "device_id")) return Format::alibaba;
    if (same_word(fields[i], "volumeid")) return Format::tencent;
  }
  if (fields.count() == 7 && (same_word(fields[3], "read") || same_word(fields[3], "write"))) return Format::msr;
  if (fields.count() == 5 && (same_word(fields[1], "r") || same_word(fields[1], "w"))) return Format::alibaba;
  if (fields.count() == 5 && (fields[3] == "0" || fields[3] == "1")) return Format::tencent;
  return Format::automatic;
}

Format format_named(const std::string& name) {
  if (name == "auto") return Format::automatic;
  if (name == "fio") return Format::fio;
  if (name == "msr") return Format::msr;
  if (name == "alibaba") return Format::alibaba;
  if (name == "tencent") return Format::tencent;
  throw ConfigError("trace_format = " + quoted(name) + " is not possible: use auto, fio, msr, alibaba or tencent");
}

// Parses line by line; time_ns holds the format's own ticks until finish() scales them.
class Parser {
 public:
  Parser(Format format, TraceReport& report) : format_(format), report_(report) {}

  void line(std::string_view text) {
    ++report_.lines;
    text = trimmed(text);
    if (text.empty()) return;
    if (first_) {
      first_ = false;
      if (first_line(text)) {
        ++report_.ignored;
        return;
      }
    }
    const std::size_t before = trace_.size();
    switch (format_) {
      case Format::fio2:
      case Format::fio3:
        fio_line(Fields::of_words(text));
        break;
      case Format::msr:
        msr_line(Fields::of_csv(text));
        break;
      case Format::alibaba:
        alibaba_line(Fields::of_csv(text));
        break;
      default:
        tencent_line(Fields::of_csv(text));
    }
    if (trace_.size() == before) ++report_.ignored;
  }

  std::vector<TraceIo> finish() {
    if (trace_.empty()) {
      throw ConfigError(report_.source +
                        " holds no requests; check that it is the right file, of format fio, msr, "
                        "alibaba or tencent");
    }
    std::uint64_t start = kMaxTime;
    for (const TraceIo& io : trace_) start = std::min(start, io.time_ns);
    if ((latest_ - start) > kMaxTime / tick_ns_) {
      fail_at(latest_line_, "a time less than 584 years after the first", std::to_string(latest_));
    }
    for (TraceIo& io : trace_) io.time_ns = (io.time_ns - start) * tick_ns_;
    report_.duration_ns = (latest_ - start) * tick_ns_;
    return in_order_of_time(std::move(trace_));
  }

 private:
  [[noreturn]] void fail_at(std::uint64_t line, const std::string& expected, std::string_view found) const {
    throw ConfigError(report_.source + ", line " + std::to_string(line) + ": expected " + expected + ", found " +
                      quoted(found));
  }
  [[noreturn]] void fail(const std::string& expected, std::string_view found) const {
    fail_at(report_.lines, expected, found);
  }

  // Settles the format; true if the line is a header and not a request.
  bool first_line(std::string_view text) {
    if (format_ == Format::automatic) {
      format_ = guess_format(text);
      if (format_ == Format::automatic) {
        fail("a line of a fio, msr, alibaba or tencent trace (name the format with trace_format to learn more)", text);
      }
    }
    switch (format_) {
      case Format::fio:
        if (text != "fio version 2 iolog" && text != "fio version 3 iolog") {
          fail("\"fio version 2 iolog\" or \"fio version 3 iolog\"", text);
        }
        format_ = text[12] == '2' ? Format::fio2 : Format::fio3;
        report_.format = format_ == Format::fio2 ? "fio version 2" : "fio version 3";
        tick_ns_ = 1'000;
        return true;
      case Format::msr:
        report_.format = "msr";
        tick_ns_ = 100;
        break;
      case Format::alibaba:
        report_.format = "alibaba";
        tick_ns_ = 1'000;
        break;
      default:
        report_.format = "tencent";
        tick_ns_ = 1'000'000'000;
    }
    return is_csv_header(Fields::of_csv(text));
  }

  std::uint64_t number(std::string_view text, const char* what) const {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) {
      fail(std::string("a whole number from 0 to 18446744073709551615 as ") + what, text);
    }
    return value;
  }

  void need_fields(const Fields& fields, std::size_t count, const char* layout) const {
    if (fields.count() == count) return;
    const std::string surplus = fields.count() == kMaxFields ? " or more" : "";
    fail(std::to_string(count) + " fields, " + layout, std::to_string(fields.count()) + surplus + " fields");
  }

  void add(TraceKind kind, std::uint64_t ticks, std::uint64_t offset, std::uint64_t bytes) {
    if (kind == TraceKind::flush) {
      offset = bytes = 0;
    } else if (bytes == 0) {
      return;
    } else if (bytes > kMaxTraceIoBytes) {
      fail("a request of at most 2 GiB", std::to_string(bytes) + " bytes");
    }
    if (trace_.empty() || ticks > latest_) {
      latest_ = ticks;
      latest_line_ = report_.lines;
    }
    std::uint64_t* const counts[] = {&report_.reads, &report_.writes, &report_.trims, &report_.flushes};
    ++*counts[static_cast<std::size_t>(kind)];
    trace_.push_back({ticks, offset, static_cast<std::uint32_t>(bytes), kind});
  }

  void fio_line(const Fields& fields) {
    // Version 3 puts a timestamp before what version 2 has.
    const bool timed = format_ == Format::fio3;
    const std::size_t action_at = timed ? 2 : 1;
    if (fields.count() <= action_at) {
      fail(timed ? "timestamp, file, action and perhaps offset and length"
                 : "file, action and perhaps offset and length",
           std::to_string(fields.count()) + " words");
    }
    if (timed) clock_ = number(fields[0], "timestamp in microseconds");
    const std::string_view action = fields[action_at];
    const std::size_t arguments = fields.count() - action_at - 1;
    if (action == "add" || action == "open" || action == "close") return;
    if (action == "sync" || action == "datasync") return add(TraceKind::flush, clock_, 0, 0);
    if (action == "wait" && !timed) {
      if (arguments < 1) fail("wait and a number of microseconds", "wait alone");
      const std::uint64_t wait = number(fields[action_at + 1], "microseconds to wait");
      if (wait > kMaxTime - clock_) fail("waits that add up to less than 584,000 years", fields[action_at + 1]);
      clock_ += wait;
      return;
    }
    TraceKind kind;
    if (action == "read") {
      kind = TraceKind::read;
    } else if (action == "write") {
      kind = TraceKind::write;
    } else if (action == "trim") {
      kind = TraceKind::trim;
    } else {
      fail(timed ? "an action: add, open, close, read, write, trim, sync or datasync"
                 : "an action: add, open, close, read, write, trim, sync, datasync or wait",
           action);
    }
    if (arguments != 2) fail("offset and length after " + std::string(action), std::to_string(arguments) + " words");
    add(kind, clock_, number(fields[action_at + 1], "offset in bytes"),
        number(fields[action_at + 2], "length in bytes"));
  }

  void msr_line(const Fields& fields) {
    need_fields(fields, 7, "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime");
    const bool is_read = same_word(fields[3], "read");
    if (!is_read && !same_word(fields[3], "write")) fail("Read or Write as Type", fields[3]);
    add(is_read ? TraceKind::read : TraceKind::write, number(fields[0], "Timestamp"), number(fields[4], "Offset"),
        number(fields[5], "Size"));
  }

  void alibaba_line(const Fields& fields) {
    need_fields(fields, 5, "device_id,opcode,offset,length,timestamp");
    const bool is_read = same_word(fields[1], "r");
    if (!is_read && !same_word(fields[1], "w")) fail("R or W as opcode", fields[1]);
    add(is_read ? TraceKind::read : TraceKind::write, number(fields[4], "timestamp"), number(fields[2], "offset"),
        number(fields[3], "length"));
  }

  void tencent_line(const Fields& fields) {
    need_fields(fields, 5, "Timestamp,Offset,Size,IOType,VolumeID");
    const bool is_read = fields[3] == "0";
    if (!is_read && fields[3] != "1") fail("0 (read) or 1 (write) as IOType", fields[3]);
    add(is_read ? TraceKind::read : TraceKind::write, number(fields[0], "Timestamp"), sectors(fields[1], "Offset"),
        sectors(fields[2], "Size"));
  }

  std::uint64_t sectors(std::string_view text, const char* what) const {
    const std::uint64_t count = number(text, what);
    if (count > (std::numeric_limits<std::uint64_t>::max() >> 9)) {
      fail(std::string("at most 36028797018963967 sectors as ") + what, text);
    }
    return count << 9;
  }

  Format format_;
  TraceReport& report_;
  std::vector<TraceIo> trace_;
  bool first_ = true;
  std::uint64_t tick_ns_ = 1;
  std::uint64_t clock_ = 0;  // fio: ticks so far
  std::uint64_t latest_ = 0;
  std::uint64_t latest_line_ = 0;
};

std::string read_whole_file(const std::string& path) {
  const auto fail = [&](const char* what) {
    throw ConfigError("trace_path = " + path + " " + what + " (" + std::generic_category().message(errno) +
                      "); name a readable trace file");
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("cannot be opened");
  std::string text;
  for (;;) {
    constexpr std::size_t kPiece = 1 << 20;
    const std::size_t have = text.size();
    text.resize(have + kPiece);
    const ssize_t got = ::read(fd, text.data() + have, kPiece);
    text.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) break;
    if (got < 0 && errno != EINTR) {
      const int error = errno;
      ::close(fd);
      errno = error;
      fail("cannot be read");
    }
  }
  ::close(fd);
  return text;
}

}  // namespace

std::vector<TraceIo> parse_trace(std::string_view text, const std::string& format, TraceReport& report) {
  Parser parser(format_named(format), report);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark that some spreadsheets write
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    parser.line(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parser.finish();
}

void fit_trace(std::vector<TraceIo>& trace, std::uint64_t capacity_bytes, std::uint32_t lba_bytes) {
  FLASHMOB_CHECK(lba_bytes > 0 && capacity_bytes >= lba_bytes && capacity_bytes % lba_bytes == 0);
  for (TraceIo& io : trace) {
    if (io.kind == TraceKind::flush) continue;
    const std::uint64_t offset = io.offset_bytes % capacity_bytes;
    const std::uint64_t head = offset % lba_bytes;
    const std::uint64_t whole = (head + io.bytes + lba_bytes - 1) / lba_bytes * lba_bytes;
    const std::uint64_t bytes = std::min(whole, capacity_bytes);
    io.offset_bytes = std::min(offset - head, capacity_bytes - bytes);
    io.bytes = static_cast<std::uint32_t>(bytes);
  }
}

std::vector<TraceIo> load_trace(const std::string& path, const std::string& format, std::uint64_t capacity_bytes,
                                std::uint32_t lba_bytes) {
  const std::string text = read_whole_file(path);
  if (text.starts_with("\x1F\x8B") || text.starts_with("\x28\xB5\x2F\xFD")) {
    throw ConfigError("trace_path = " + path + " is compressed; decompress it first (gzip -dk or zstd -dk)");
  }
  TraceReport report;
  report.source = "trace " + path;
  std::vector<TraceIo> trace = parse_trace(text, format, report);
  fit_trace(trace, capacity_bytes, lba_bytes);
  return trace;
}

}  // namespace flashmob::load
