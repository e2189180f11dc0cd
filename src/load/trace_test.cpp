#include "load/trace.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace flashmob::load {

void PrintTo(const TraceIo& io, std::ostream* out) {
  *out << "{" << io.time_ns << ", " << io.offset_bytes << ", " << io.bytes << ", " << static_cast<int>(io.kind) << "}";
}
static bool operator==(const TraceIo& a, const TraceIo& b) {
  return a.time_ns == b.time_ns && a.offset_bytes == b.offset_bytes && a.bytes == b.bytes && a.kind == b.kind;
}

namespace {

using enum TraceKind;
using Trace = std::vector<TraceIo>;

Trace parse(std::string_view text, const std::string& format = "auto") {
  TraceSummary summary;
  return parse_trace(text, {format, ""}, summary);
}

// The message must contain every part.
void expect_error(std::string_view text, const std::string& format, const std::vector<std::string>& parts) {
  try {
    parse(text, format);
    ADD_FAILURE() << "accepted " << text;
  } catch (const ConfigError& error) {
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << "\nlacks: " << part;
    }
  }
}

constexpr const char* kFio2 =
    "fio version 2 iolog\n"
    "/dev/nvme0n1 add\n"
    "/dev/nvme0n1 open\n"
    "/dev/nvme0n1 read 4096 512\n"
    "/dev/nvme0n1 wait 250\n"
    "/dev/nvme0n1 write 0 8192\n"
    "/dev/nvme0n1 wait 50 0\n"
    "/dev/nvme0n1 sync 0 0\n"
    "/dev/nvme0n1 trim 1048576 65536\n"
    "/dev/nvme0n1 datasync\n"
    "/dev/nvme0n1 close\n";

TEST(Trace, FioVersion2) {
  TraceSummary summary;
  const Trace trace = parse_trace(kFio2, {}, summary);
  EXPECT_EQ(trace, (Trace{{0, 4096, 512, read},
                          {250'000, 0, 8192, write},
                          {300'000, 0, 0, flush},
                          {300'000, 1048576, 65536, trim},
                          {300'000, 0, 0, flush}}));
  EXPECT_EQ(summary.format, "fio version 2");
  EXPECT_EQ(summary.lines, 11u);
  EXPECT_EQ(summary.ignored, 6u);
  EXPECT_EQ(summary.requests, 5u);
  EXPECT_EQ(summary.reads, 1u);
  EXPECT_EQ(summary.writes, 1u);
  EXPECT_EQ(summary.trims, 1u);
  EXPECT_EQ(summary.flushes, 2u);
  EXPECT_EQ(summary.read_bytes, 512u);
  EXPECT_EQ(summary.write_bytes, 8192u);
  EXPECT_EQ(summary.trim_bytes, 65536u);
  EXPECT_EQ(summary.largest_bytes, 65536u);
  EXPECT_EQ(summary.end_bytes, 1048576u + 65536);
  EXPECT_EQ(summary.span_ns, 300'000u);
  EXPECT_EQ(parse(kFio2, "fio"), trace);
}

TEST(Trace, FioVersion3StartsAtItsFirstRequest) {
  const Trace trace = parse(
      "fio version 3 iolog\n"
      "5 /tmp/a add\n"
      "6 /tmp/a open\n"
      "1000 /tmp/a read 0 4096\n"
      "1010 /tmp/a write 4096 4096\n"
      "1020 /tmp/a sync 0 0\n");
  EXPECT_EQ(trace, (Trace{{0, 0, 4096, read}, {10'000, 4096, 4096, write}, {20'000, 0, 0, flush}}));
  expect_error("fio version 3 iolog\n5 a wait 100\n", "fio", {"line 2", "read, write, trim, sync or datasync", "wait"});
}

TEST(Trace, MsrCambridge) {
  const std::string text =
      "128166372003061629,hm,1,Read,383496192,32768,413\n"
      "128166372002061629,hm,1,Write,1024,512,100\n"
      "128166372003061630,hm,1,write,7,0,9\n";
  TraceSummary summary;
  EXPECT_EQ(parse_trace(text, {}, summary), (Trace{{0, 1024, 512, write}, {100'000'000, 383496192, 32768, read}}));
  EXPECT_EQ(summary.format, "msr");
  EXPECT_EQ(parse("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n" + text), parse(text, "msr"));
}

TEST(Trace, Alibaba) {
  const std::string text = "419,W,8792731648,16384,1577808000000041\n419,R,59110326272,360448,1577808000000046\n";
  const Trace expected{{0, 8792731648, 16384, write}, {5'000, 59110326272, 360448, read}};
  EXPECT_EQ(parse(text), expected);
  EXPECT_EQ(parse(text, "alibaba"), expected);
  EXPECT_EQ(parse("device_id,opcode,offset,length,timestamp\n" + text), expected);
}

TEST(Trace, Tencent) {
  const std::string text = "1538323200,12910952,128,0,1063\n1538323202,6265662,8,1,1063\n";
  const Trace expected{{0, 12910952ull * 512, 65536, read}, {2'000'000'000, 6265662ull * 512, 4096, write}};
  EXPECT_EQ(parse(text), expected);
  EXPECT_EQ(parse(text, "tencent"), expected);
  EXPECT_EQ(parse("Timestamp,Offset,Size,IOType,VolumeID\n" + text), expected);
}

TEST(Trace, LineEndsBlanksAndMissingLastNewline) {
  const Trace expected{{0, 0, 512, read}, {1'000, 512, 512, write}};
  EXPECT_EQ(parse("1,R,0,512,10\r\n\r\n1,W,512,512,11\r\n"), expected);
  EXPECT_EQ(parse("\n \n1,R,0,512,10\n\t\n1,W,512,512,11"), expected);
  EXPECT_EQ(parse("\xEF\xBB\xBF 1 , R , 0 , 512 , 10 \n1,w,512,512,11\n\n"), expected);
  EXPECT_EQ(parse("fio version 2 iolog\r\nf  read \t 0 512\r\nf wait 1\r\nf write 512 512\r\n"), expected);
}

TEST(Trace, SortingKeepsTheOrderOfEqualTimes) {
  EXPECT_EQ(parse("1,R,3,1,20\n1,R,1,1,10\n1,R,4,1,20\n1,R,2,1,10\n"),
            (Trace{{0, 1, 1, read}, {0, 2, 1, read}, {10'000, 3, 1, read}, {10'000, 4, 1, read}}));
}

TEST(Trace, EmptyTracesAreErrors) {
  for (const char* text : {"", "\n", " \r\n\n", "fio version 2 iolog\n", "fio version 2 iolog\nf add\nf wait 5\n",
                           "Timestamp,Offset,Size,IOType,VolumeID\n", "1,R,0,0,5\n"}) {
    expect_error(text, "auto", {"holds no requests"});
  }
}

TEST(Trace, BadLinesNameLineAndExpectation) {
  expect_error("nonsense", "auto", {"the trace, line 1", "fio, msr, alibaba or tencent", "nonsense"});
  expect_error("1,2,3\n", "auto", {"line 1"});
  expect_error("fio version 1 iolog\n", "auto", {"line 1", "fio version 2 iolog"});
  expect_error("f read 0 512\n", "fio", {"line 1", "fio version 2 iolog"});
  expect_error("fio version 2 iolog\nf read 0 512\n\nf reed 0 512\n", "fio", {"line 4", "an action", "\"reed\""});
  expect_error("fio version 2 iolog\nf\n", "fio", {"line 2", "file, action", "1 words"});
  expect_error("fio version 3 iolog\n1 f\n", "fio", {"line 2", "timestamp, file, action"});
  expect_error("fio version 3 iolog\nx f read 0 512\n", "fio", {"line 2", "timestamp in microseconds", "\"x\""});
  expect_error("fio version 2 iolog\nf read 0\n", "fio", {"line 2", "offset and length after read"});
  expect_error("fio version 2 iolog\nf read 0 1 2\n", "fio", {"line 2", "offset and length after read"});
  expect_error("fio version 2 iolog\nf wait\n", "fio", {"line 2", "microseconds"});
  expect_error("1,R,0,512,10\n1,R,0,512\n", "auto", {"line 2", "5 fields", "4 fields"});
  expect_error("1,R,0,512,10\n1,X,0,512,1\n", "auto", {"line 2", "R or W"});
  expect_error("1,R,0,512,10\n1,R,0x10,512,1\n", "auto", {"line 2", "offset", "0x10"});
  expect_error("1,R,0,512,10\n1,R,,512,1\n", "auto", {"line 2", "offset"});
  expect_error("9,hm,1,Erase,0,512,1\n", "msr", {"line 1", "Read or Write"});
  expect_error("9,hm,1,Read,0,512\n", "msr", {"line 1", "7 fields", "6 fields"});
  expect_error("9,hm,1,Read,0,512,1,2,3,4\n", "msr", {"line 1", "8 or more fields"});
  expect_error("9,0,8,2,1\n", "tencent", {"line 1", "0 (read) or 1 (write)"});
  expect_error("1,R,0,512,10\n", "csv", {"--trace-format \"csv\"", "tencent"});
  // What is shown of a bad line is printable and short.
  expect_error(std::string("\x01\x02") + std::string(500, 'x'), "auto", {"\"??xxx", "...\""});
}

TEST(Trace, NumbersOutOfRangeAreErrors) {
  expect_error("1,R,-5,512,10\n", "auto", {"line 1", "offset", "-5"});
  expect_error("1,R,18446744073709551616,512,10\n", "auto", {"line 1", "offset"});
  expect_error("1,R,0,512,1e9\n", "auto", {"timestamp"});
  expect_error("1,R,0,512,10\n1,R,0,512,-10\n", "auto", {"line 2", "whole number from 0", "timestamp", "-10"});
  // Offsets: a request ends at most where 2^63 bytes end.
  EXPECT_EQ(parse("1,R,9223372034707292160,2147483648,10\n"), (Trace{{0, 9223372034707292160ull, 2147483648u, read}}));
  expect_error("1,R,0,512,9\n1,R,9223372034707292161,2147483648,10\n", "auto",
               {"line 2", "ends below 2^63", "9223372034707292161"});
  expect_error("1,R,18446744073709551615,512,10\n", "auto", {"line 1", "ends below 2^63"});
  expect_error("36028797018963967,36028797018963967,1,0,1\n", "auto", {"line 1", "ends below 2^63"});
  expect_error("1,R,0,2147483649,10\n", "auto", {"at most 2 GiB"});
  expect_error("5,36028797018963968,8,0,1\n", "auto", {"sectors", "Offset"});
  expect_error("5,0,4194305,0,1\n", "auto", {"at most 2 GiB"});
  // Times: the span must fit, not the timestamps themselves.
  EXPECT_EQ(parse("18446744073709551614,0,1,0,1\n18446744073709551615,0,1,0,1\n")[1].time_ns, 1'000'000'000u);
  expect_error("0,0,1,0,1\n99999999999,0,1,0,1\n", "auto", {"line 2", "584 years"});
  expect_error("fio version 2 iolog\nf wait 18446744073709551615\nf wait 1\n", "fio", {"line 3", "add up"});
}

TEST(Trace, FitsTheNamespaceAndCountsWhatItChanged) {
  // A namespace of ten 4 KiB blocks.
  TraceSummary summary;
  const auto fitted = [&](std::uint64_t offset, std::uint32_t bytes) {
    Trace trace{{7, offset, bytes, read}};
    summary = {};
    fit_trace(trace, 40960, 4096, summary);
    EXPECT_EQ(trace[0].time_ns, 7u);
    EXPECT_EQ(summary.namespace_bytes, 40960u);
    return std::pair{trace[0].offset_bytes, trace[0].bytes};
  };
  using Result = std::pair<std::uint64_t, std::uint32_t>;
  const auto expect_changes = [&](std::uint64_t rounded_bytes, unsigned wrapped, unsigned moved, unsigned shortened) {
    EXPECT_EQ(summary.rounded, rounded_bytes > 0 ? 1u : 0u);
    EXPECT_EQ(summary.rounded_bytes, rounded_bytes);
    EXPECT_EQ(summary.wrapped, wrapped);
    EXPECT_EQ(summary.moved, moved);
    EXPECT_EQ(summary.shortened, shortened);
  };
  EXPECT_EQ(fitted(0, 1), (Result{0, 4096}));
  expect_changes(4095, 0, 0, 0);
  EXPECT_EQ(fitted(4096, 4096), (Result{4096, 4096}));
  expect_changes(0, 0, 0, 0);
  EXPECT_EQ(fitted(4095, 2), (Result{0, 8192}));  // touches two blocks
  expect_changes(8190, 0, 0, 0);
  EXPECT_EQ(fitted(40960 + 8192 + 512, 512), (Result{8192, 4096}));
  expect_changes(3584, 1, 0, 0);
  EXPECT_EQ(fitted(36864, 8192), (Result{32768, 8192}));
  expect_changes(0, 0, 1, 0);
  EXPECT_EQ(fitted(0, 2147483648u), (Result{0, 40960}));
  expect_changes(0, 0, 0, 1);
  Trace trace{{0, 0, 0, flush}};
  fit_trace(trace, 4096, 4096, summary);
  EXPECT_EQ(trace, (Trace{{0, 0, 0, flush}}));
}

TEST(Trace, SplitsWhatOneCommandCannotCarry) {
  Trace trace{{5, 0, 2560, read}, {6, 4096, 1024, write}, {7, 8192, 1 << 20, trim}, {8, 0, 0, flush}};
  TraceSummary summary;
  split_trace(trace, 1024, summary);
  EXPECT_EQ(trace, (Trace{{5, 0, 1024, read},
                          {5, 1024, 1024, read},
                          {5, 2048, 512, read},
                          {6, 4096, 1024, write},
                          {7, 8192, 1 << 20, trim},  // carries no data
                          {8, 0, 0, flush}}));
  EXPECT_EQ(summary.split, 1u);
  EXPECT_EQ(summary.commands, 6u);
}

TEST(Trace, LimitsLeaveOutWhatIsBeyondThem) {
  const std::string text = "1,R,0,512,0\n1,W,8192,512,10\n1,R,4096,1024,20\n1,R,512,512,20\n";
  const auto limited = [&](std::uint64_t requests, std::uint64_t span_ns, TraceSummary& summary) {
    Trace trace = parse_trace(text, {}, summary);
    limit_trace(trace, requests, span_ns, summary);
    return trace.size();
  };
  TraceSummary all, three, early, first;
  EXPECT_EQ(limited(0, 0, all), 4u);
  EXPECT_EQ(all.left_out, 0u);
  EXPECT_EQ(limited(3, 1'000'000, three), 3u);
  EXPECT_EQ(three.left_out, 1u);
  EXPECT_EQ(three.largest_bytes, 1024u);
  EXPECT_EQ(limited(100, 20'000, early), 2u);  // wanted before 20 us
  EXPECT_EQ(early.left_out, 2u);
  EXPECT_EQ(early.requests, 2u);
  EXPECT_EQ(early.span_ns, 10'000u);
  EXPECT_EQ(early.largest_bytes, 512u);
  EXPECT_EQ(early.commands, 2u);
  EXPECT_EQ(limited(2, 1, first), 1u);
  EXPECT_EQ(first.writes, 0u);
  EXPECT_EQ(first.end_bytes, 512u);
}

TEST(Trace, TouchedRangesAreInOrderAndApart) {
  const Trace trace{{0, 20480, 512, write}, {0, 4096, 4096, read},   {1, 4096, 4096, read}, {2, 8192, 1, write},
                    {3, 0, 0, flush},       {4, 1 << 20, 512, trim}, {5, 5000, 5000, read}, {6, 24576, 512, read}};
  const auto touched = [&](Touch touch, std::uint64_t granule_bytes) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> pairs;
    const auto ranges = touched_ranges(trace, touch, granule_bytes);
    std::uint64_t sum = 0;
    for (const ByteRange& range : ranges) {
      pairs.emplace_back(range.offset_bytes, range.bytes);
      sum += range.bytes;
    }
    EXPECT_EQ(total_bytes(ranges), sum);
    return pairs;
  };
  using Pairs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  EXPECT_EQ(touched(Touch::reads_and_writes, 4096), (Pairs{{4096, 8192}, {20480, 8192}}));
  EXPECT_EQ(touched(Touch::writes, 4096), (Pairs{{8192, 4096}, {20480, 4096}}));
  EXPECT_EQ(touched(Touch::writes, 1 << 21), (Pairs{{0, 1 << 21}}));
}

class TraceFile : public testing::Test {
 protected:
  TraceFile() {
    std::string name = (std::filesystem::temp_directory_path() / "flashmob_trace_XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~TraceFile() override { std::filesystem::remove_all(directory_); }
  std::string make(std::string_view content) const {
    std::ofstream(directory_ + "/t", std::ios::binary) << content;
    return directory_ + "/t";
  }
  static void expect_load_error(const std::string& path, const std::string& part) {
    TraceSummary summary;
    try {
      load_trace(path, {}, summary);
      ADD_FAILURE() << "loaded " << path;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("trace " + path), std::string::npos) << error.what();
    }
  }
  std::string directory_;
};

TEST_F(TraceFile, LinesThatLieOnTwoPiecesAreWhole) {
  std::string large;
  for (int i = 0; i < 100'000; ++i) large += "1,R," + std::to_string(i) + "000,4096," + std::to_string(i) + "\n";
  ASSERT_GT(large.size(), 2u << 20);  // more than two pieces
  TraceSummary summary;
  const Trace trace = load_trace(make(large), {"alibaba", ""}, summary);
  ASSERT_EQ(trace.size(), 100'000u);
  for (std::size_t i = 0; i < trace.size(); ++i) {
    ASSERT_EQ(trace[i].time_ns, i * 1'000);
    ASSERT_EQ(trace[i].offset_bytes, i * 1'000);
  }
  EXPECT_EQ(summary.lines, 100'000u);
  EXPECT_EQ(summary.path, directory_ + "/t");
}

TEST_F(TraceFile, APipeIsReadLikeAFile) {
  const std::string pipe = directory_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "1,R,0,512,10\n"; });
  TraceSummary summary;
  EXPECT_EQ(load_trace(pipe, {}, summary).size(), 1u);
  writer.join();
}

TEST_F(TraceFile, UnusableFilesNamePathAndReason) {
  using namespace std::string_view_literals;
  expect_load_error(directory_ + "/missing", "cannot be opened (No such file or directory); name");
  expect_load_error(directory_, "is a directory; name one of the trace files in it");
  expect_load_error("/dev/zero", "is a device");
  expect_load_error(make(""), "holds no requests (0 lines)");
  expect_load_error(make("1,R,0,512,10\nbad\n"), ", line 2: expected 5 fields");
  expect_load_error(make("1,R,0,512,10\r\n1,R,0,512,x\r\n"), ", line 2: expected a whole number");
  expect_load_error(make("\x1F\x8B\x08 gzip"), "decompress it first (gzip -dk)");
  expect_load_error(make("\x28\xB5\x2F\xFD zstd"), "zstd -dk");
  expect_load_error(make("\xFD\x37zXZ\0 xz"sv), "xz -dk");
  expect_load_error(make("BZh91AY"), "bzip2 -dk");
  expect_load_error(make("PK\x03\x04 zip"), "unzip");
  expect_load_error(make("\xFF\xFE"
                         "1\0,\0"sv),
                    "UTF-16");
  expect_load_error(make("hm_0.csv" + std::string(249, '\0') + "ustar\n"), "is a tar archive; unpack it first");
  expect_load_error(make("hm_0.csv" + std::string(249, '\0') + "ustar" + std::string(20'000, '\0')), "tar archive");
  expect_load_error(make(std::string(1 << 20, '\0')), ", line 1: expected a line of at most 16384 bytes");
  expect_load_error(make("1,R,0,512,10\n" + std::string(3 << 20, '7')), ", line 2: expected a line of at most 16384");
}

}  // namespace
}  // namespace flashmob::load
