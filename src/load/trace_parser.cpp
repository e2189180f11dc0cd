#include "load/trace_parser.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <span>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace flashmob::load {
namespace {

constexpr std::uint64_t kMaxTime = std::numeric_limits<std::uint64_t>::max();
// Longer than any line of any format, so that a file without line ends is noticed before it fills memory.
constexpr std::size_t kMaxLineBytes = 16 << 10;
// Where a disk's region may begin: a multiple of every LBA size, and a round number in the report.
constexpr std::uint64_t kRegionBytes = 1 << 20;

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

// Requests of one instant stay in the order in which they were written.
std::vector<TraceIo> in_order_of_time(std::vector<TraceIo> trace) {
  const auto earlier = [](const TraceIo& a, const TraceIo& b) { return a.time_ns < b.time_ns; };
  if (!std::is_sorted(trace.begin(), trace.end(), earlier)) std::stable_sort(trace.begin(), trace.end(), earlier);
  return trace;
}

// A header names its columns; every one of them has some form of this word, and no data line has it.
bool is_csv_header(const TraceFields& fields) {
  for (std::size_t i = 0; i < fields.count(); ++i) {
    if (same_word(fields[i], "timestamp")) return true;
  }
  return false;
}

// What a file that is no text begins with, what it is then, and what to do.
struct Foreign {
  std::string_view start;
  const char* what;
};
constexpr Foreign kForeign[] = {
    {"\x1F\x8B", "is compressed; decompress it first (gzip -dk)"},
    {"\x28\xB5\x2F\xFD", "is compressed; decompress it first (zstd -dk)"},
    {{"\xFD\x37zXZ\0", 6}, "is compressed; decompress it first (xz -dk)"},
    {"BZh", "is compressed; decompress it first (bzip2 -dk)"},
    {"PK\x03\x04", "is a zip archive; unpack it first (unzip)"},
    {"\xFF\xFE", "is UTF-16 text; convert it first (iconv -f UTF-16 -t UTF-8)"},
    {"\xFE\xFF", "is UTF-16 text; convert it first (iconv -f UTF-16 -t UTF-8)"},
};
constexpr std::size_t kTarMagicAt = 257;

}  // namespace

TraceFields TraceFields::of_csv(std::string_view line) {
  TraceFields fields;
  while (fields.count_ < kMax) {
    const std::size_t comma = line.find(',');
    fields.items_[fields.count_++] = trimmed(line.substr(0, comma));
    if (comma == std::string_view::npos) break;
    line.remove_prefix(comma + 1);
  }
  return fields;
}

TraceFields TraceFields::of_words(std::string_view line) {
  TraceFields fields;
  for (line = trimmed(line); !line.empty() && fields.count_ < kMax; line = trimmed(line)) {
    const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
    fields.items_[fields.count_++] = line.substr(0, end);
    line.remove_prefix(end);
  }
  return fields;
}

TraceParser::TraceParser(const TraceOptions& options, TraceSummary& summary)
    : options_(options), summary_(summary), format_(format_named(options.format)) {
  summary_.disk = options.disk;
}

TraceParser::Format TraceParser::format_named(const std::string& name) {
  if (name == "auto") return Format::automatic;
  if (name == "fio") return Format::fio;
  if (name == "msr") return Format::msr;
  if (name == "alibaba") return Format::alibaba;
  if (name == "tencent") return Format::tencent;
  throw ConfigError("--trace-format " + quoted_trace_text(name) +
                    " is not possible: use auto, fio, msr, alibaba or tencent");
}

TraceParser::Format TraceParser::guess_format(std::string_view line) {
  if (line.starts_with("fio version ")) return Format::fio;
  const TraceFields fields = TraceFields::of_csv(line);
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

std::string TraceParser::source() const { return summary_.path.empty() ? "the trace" : "trace " + summary_.path; }

void TraceParser::fail_at(std::uint64_t line, const std::string& expected, std::string_view found) const {
  throw ConfigError(source() + ", line " + std::to_string(line) + ": expected " + expected + ", found " +
                    quoted_trace_text(found));
}

void TraceParser::fail(const std::string& expected, std::string_view found) const {
  fail_at(summary_.lines, expected, found);
}

void TraceParser::refuse_what_is_no_text(std::string_view start) const {
  for (const Foreign& foreign : kForeign) {
    if (start.starts_with(foreign.start)) throw ConfigError(source() + " " + foreign.what);
  }
  if (start.size() > kTarMagicAt && start.substr(kTarMagicAt).starts_with("ustar"))
    throw ConfigError(source() + " is a tar archive; unpack it first (tar -xf) and name one of its files");
}

void TraceParser::feed(std::string_view piece) {
  while (!piece.empty()) {
    const std::size_t end = piece.find('\n');
    const std::string_view part = piece.substr(0, end);
    if (carry_.size() + part.size() > kMaxLineBytes) {
      carry_.append(part.substr(0, kMaxLineBytes));
      if (summary_.lines == 0) refuse_what_is_no_text(carry_);
      fail_at(summary_.lines + 1, "a line of at most 16384 bytes", carry_);
    }
    if (end == std::string_view::npos) {
      carry_.append(part);
      return;
    }
    if (carry_.empty()) {
      line(part);
    } else {
      carry_.append(part);
      line(carry_);
      carry_.clear();
    }
    piece.remove_prefix(end + 1);
  }
}

void TraceParser::line(std::string_view text) {
  if (++summary_.lines == 1) {
    refuse_what_is_no_text(text);
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark that some spreadsheets write
  }
  text = trimmed(text);
  if (text.empty() || (std::exchange(first_, false) && first_line(text))) {
    ++summary_.ignored;
    return;
  }
  switch (format_) {
    case Format::fio2:
    case Format::fio3:
      fio_line(TraceFields::of_words(text));
      break;
    case Format::msr:
      msr_line(TraceFields::of_csv(text));
      break;
    case Format::alibaba:
      alibaba_line(TraceFields::of_csv(text));
      break;
    default:
      tencent_line(TraceFields::of_csv(text));
  }
}

// Settles the format; true if the line is a header and not a request.
bool TraceParser::first_line(std::string_view text) {
  if (format_ == Format::automatic) {
    format_ = guess_format(text);
    if (format_ == Format::automatic) {
      fail("a line of a fio, msr, alibaba or tencent trace (name its format with --trace-format to learn more)", text);
    }
  }
  switch (format_) {
    case Format::fio:
      if (text != "fio version 2 iolog" && text != "fio version 3 iolog") {
        fail("\"fio version 2 iolog\" or \"fio version 3 iolog\"", text);
      }
      format_ = text[12] == '2' ? Format::fio2 : Format::fio3;
      summary_.format = format_ == Format::fio2 ? "fio version 2" : "fio version 3";
      tick_ns_ = 1'000;
      return true;
    case Format::msr:
      summary_.format = "msr";
      tick_ns_ = 100;
      break;
    case Format::alibaba:
      summary_.format = "alibaba";
      tick_ns_ = 1'000;
      break;
    default:
      summary_.format = "tencent";
      tick_ns_ = 1'000'000'000;
  }
  return is_csv_header(TraceFields::of_csv(text));
}

std::uint64_t TraceParser::number(std::string_view text, const char* what) const {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    fail(std::string("a whole number from 0 to 18446744073709551615 as ") + what, text);
  }
  return value;
}

std::uint64_t TraceParser::sectors(std::string_view text, const char* what) const {
  const std::uint64_t count = number(text, what);
  if (count > (std::numeric_limits<std::uint64_t>::max() >> 9)) {
    fail(std::string("at most 36028797018963967 sectors as ") + what, text);
  }
  return count << 9;
}

void TraceParser::need_fields(const TraceFields& fields, std::size_t count, const char* layout) const {
  if (fields.count() == count) return;
  const std::string surplus = fields.count() == TraceFields::kMax ? " or more" : "";
  fail(std::to_string(count) + " fields, " + layout, std::to_string(fields.count()) + surplus + " fields");
}

std::uint32_t TraceParser::disk_named(std::string_view name) {
  if (!summary_.disks.empty() && summary_.disks[last_disk_].name == name) return last_disk_;
  const auto known = disks_.find(name);
  if (known != disks_.end()) return last_disk_ = known->second;
  last_disk_ = static_cast<std::uint32_t>(summary_.disks.size());
  disks_.emplace(name, last_disk_);
  TraceDisk disk;
  disk.name = name;
  disk.replayed = options_.disk.empty() || options_.disk == name;
  summary_.disks.push_back(std::move(disk));
  return last_disk_;
}

void TraceParser::add(TraceKind kind, std::string_view disk_name, std::uint64_t ticks, std::uint64_t offset,
                      std::uint64_t bytes) {
  if (kind == TraceKind::flush) {
    offset = bytes = 0;
  } else if (bytes == 0) {
    summary_.empty.note(summary_.lines);
    return;
  } else if (bytes > kMaxTraceIoBytes) {
    fail("a request of at most 2 GiB", std::to_string(bytes) + " bytes");
  } else if (offset > kMaxTraceEnd - bytes) {
    fail("a request that ends below 2^63 bytes", "offset " + std::to_string(offset));
  }
  const std::uint32_t index = disk_named(disk_name);
  TraceDisk& disk = summary_.disks[index];
  ++disk.requests;
  disk.bytes += bytes;
  disk.end_bytes = std::max(disk.end_bytes, offset + bytes);
  if (!disk.replayed) return;
  if (trace_.empty() || ticks > latest_) {
    latest_ = ticks;
    latest_line_ = summary_.lines;
  } else if (ticks < latest_) {
    summary_.reordered.note(summary_.lines);
  }
  trace_.push_back({ticks, offset, static_cast<std::uint32_t>(bytes), kind});
  disk_of_.push_back(index);
}

void TraceParser::fio_line(const TraceFields& fields) {
  // Version 3 puts a timestamp before what version 2 has.
  const bool timed = format_ == Format::fio3;
  const std::size_t action_at = timed ? 2 : 1;
  if (fields.count() <= action_at) {
    fail(timed ? "timestamp, file, action and perhaps offset and length" : "file, action and perhaps offset and length",
         std::to_string(fields.count()) + " words");
  }
  if (timed) clock_ = number(fields[0], "timestamp in microseconds");
  const std::string_view file = fields[action_at - 1];
  const std::string_view action = fields[action_at];
  const std::size_t arguments = fields.count() - action_at - 1;
  if (action == "add" || action == "open" || action == "close") {
    ++summary_.ignored;
    return;
  }
  if (action == "sync" || action == "datasync") return add(TraceKind::flush, file, clock_, 0, 0);
  if (action == "wait" && !timed) {
    if (arguments < 1) fail("wait and a number of microseconds", "wait alone");
    const std::uint64_t wait = number(fields[action_at + 1], "microseconds to wait");
    if (wait > kMaxTime - clock_) fail("waits that add up to less than 584,000 years", fields[action_at + 1]);
    clock_ += wait;
    ++summary_.ignored;
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
  add(kind, file, clock_, number(fields[action_at + 1], "offset in bytes"),
      number(fields[action_at + 2], "length in bytes"));
}

void TraceParser::msr_line(const TraceFields& fields) {
  need_fields(fields, 7, "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime");
  const bool is_read = same_word(fields[3], "read");
  if (!is_read && !same_word(fields[3], "write")) fail("Read or Write as Type", fields[3]);
  // As the collection's own files are named: hm_0 is disk 0 of host hm.
  disk_name_.assign(fields[1]).append("_").append(fields[2]);
  add(is_read ? TraceKind::read : TraceKind::write, disk_name_, number(fields[0], "Timestamp"),
      number(fields[4], "Offset"), number(fields[5], "Size"));
}

void TraceParser::alibaba_line(const TraceFields& fields) {
  need_fields(fields, 5, "device_id,opcode,offset,length,timestamp");
  const bool is_read = same_word(fields[1], "r");
  if (!is_read && !same_word(fields[1], "w")) fail("R or W as opcode", fields[1]);
  add(is_read ? TraceKind::read : TraceKind::write, fields[0], number(fields[4], "timestamp"),
      number(fields[2], "offset"), number(fields[3], "length"));
}

void TraceParser::tencent_line(const TraceFields& fields) {
  need_fields(fields, 5, "Timestamp,Offset,Size,IOType,VolumeID");
  const bool is_read = fields[3] == "0";
  if (!is_read && fields[3] != "1") fail("0 (read) or 1 (write) as IOType", fields[3]);
  add(is_read ? TraceKind::read : TraceKind::write, fields[4], number(fields[0], "Timestamp"),
      sectors(fields[1], "Offset"), sectors(fields[2], "Size"));
}

void TraceParser::need_requests() const {
  if (!trace_.empty()) return;
  if (!summary_.disks.empty()) {
    throw ConfigError("--trace-disk " + quoted_trace_text(options_.disk) + " is not in " + source() + ", which holds " +
                      busiest_disks(summary_.disks) + ": name one of these");
  }
  throw ConfigError(source() + " holds no requests (" + std::to_string(summary_.lines) +
                    " lines); check that it is the right file, of format fio, msr, alibaba or tencent");
}

// Never on top of each other: what one disk writes, another one would read.
void TraceParser::lay_disks_side_by_side() {
  std::uint64_t end = 0;
  for (TraceDisk& disk : summary_.disks) {
    if (!disk.replayed) continue;
    disk.offset_bytes = end;
    const std::uint64_t region = (disk.end_bytes + kRegionBytes - 1) / kRegionBytes * kRegionBytes;
    if (region > kMaxTraceEnd - end) {
      throw ConfigError("the disks of " + source() + " do not fit side by side into 2^63 bytes: choose one with " +
                        "--trace-disk out of " + busiest_disks(summary_.disks));
    }
    end += region;
  }
  for (std::size_t i = 0; i < trace_.size(); ++i) {
    if (trace_[i].kind != TraceKind::flush) trace_[i].offset_bytes += summary_.disks[disk_of_[i]].offset_bytes;
  }
  disk_of_ = {};
}

std::vector<TraceIo> TraceParser::finish() {
  if (!carry_.empty()) line(std::exchange(carry_, {}));
  need_requests();
  std::uint64_t start = kMaxTime;
  for (const TraceIo& io : trace_) start = std::min(start, io.time_ns);
  if ((latest_ - start) > kMaxTime / tick_ns_) {
    fail_at(latest_line_, "a time less than 584 years after the first", std::to_string(latest_));
  }
  lay_disks_side_by_side();
  for (TraceIo& io : trace_) io.time_ns = (io.time_ns - start) * tick_ns_;
  return in_order_of_time(std::move(trace_));
}

}  // namespace flashmob::load
