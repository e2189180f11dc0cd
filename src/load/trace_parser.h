// The lines of a trace's file, one after another.
//
//   fio      a first line "fio version 2 iolog" (or 3), then "[timestamp_us] file action [offset length]" in bytes;
//            version 2 has no timestamps but "wait" actions in microseconds, which add up (fio's HOWTO, trace formats)
//   msr      Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime: 100 ns since 1601, bytes
//   alibaba  device_id,opcode,offset,length,timestamp: bytes, microseconds
//   tencent  Timestamp,Offset,Size,IOType,VolumeID: seconds, 512-byte sectors, 0 = read, 1 = write
// A CSV header line is recognised and skipped.
//
// Thread rule: one thread. Internal to src/load.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "load/trace.h"

namespace flashmob::load {

// The fields of one line, which outlives them.
class TraceFields {
 public:
  static constexpr std::size_t kMax = 8;  // one more than any format has, so that surplus fields are noticed

  static TraceFields of_csv(std::string_view line);
  static TraceFields of_words(std::string_view line);
  std::size_t count() const { return count_; }
  std::string_view operator[](std::size_t index) const { return items_[index]; }

 private:
  std::array<std::string_view, kMax> items_{};
  std::size_t count_ = 0;
};

class TraceParser {
 public:
  // Fills the parts of the summary that tell of the file. Both arguments outlive the parser.
  TraceParser(const TraceOptions& options, TraceSummary& summary);

  // The next piece of the text, of any length.
  void feed(std::string_view piece);
  // At the end of the text: the requests in order of time.
  std::vector<TraceIo> finish();

 private:
  enum class Format : std::uint8_t { automatic, fio2, fio3, fio, msr, alibaba, tencent };

  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  static Format format_named(const std::string& name);
  static Format guess_format(std::string_view line);
  std::string source() const;
  [[noreturn]] void fail_at(std::uint64_t line, const std::string& expected, std::string_view found) const;
  [[noreturn]] void fail(const std::string& expected, std::string_view found) const;
  void refuse_what_is_no_text(std::string_view start) const;

  void line(std::string_view text);
  bool first_line(std::string_view text);
  void fio_line(const TraceFields& fields);
  void msr_line(const TraceFields& fields);
  void alibaba_line(const TraceFields& fields);
  void tencent_line(const TraceFields& fields);
  std::uint64_t number(std::string_view text, const char* what) const;
  std::uint64_t sectors(std::string_view text, const char* what) const;
  void need_fields(const TraceFields& fields, std::size_t count, const char* layout) const;
  std::uint32_t disk_named(std::string_view name);
  void add(TraceKind kind, std::string_view disk, std::uint64_t ticks, std::uint64_t offset, std::uint64_t bytes);
  void need_requests() const;
  void lay_disks_side_by_side();

  const TraceOptions& options_;
  TraceSummary& summary_;
  Format format_;
  std::string carry_;  // the beginning of a line whose end has not come yet
  std::vector<TraceIo> trace_;  // time_ns holds the format's own ticks until finish() scales them
  std::vector<std::uint32_t> disk_of_;  // of each request, an index of the summary's disks
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> disks_;
  std::uint32_t last_disk_ = 0;
  std::string disk_name_;  // of an MSR line
  bool first_ = true;
  std::uint64_t tick_ns_ = 1;
  std::uint64_t clock_ = 0;  // fio: ticks so far
  std::uint64_t latest_ = 0;
  std::uint64_t latest_line_ = 0;
};

}  // namespace flashmob::load
