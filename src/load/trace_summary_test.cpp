// Disks of a trace, and what is said of it.
#include "load/trace_summary.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "load/trace.h"

namespace flashmob::load {
namespace {

std::vector<TraceIo> parse(std::string_view text, const std::string& disk, TraceSummary& summary) {
  return parse_trace(text, {"auto", disk}, summary);
}

std::string message(std::string_view text, const std::string& disk) {
  TraceSummary summary;
  summary.path = "t.csv";
  try {
    parse(text, disk, summary);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(accepted)";
}

constexpr const char* kTwoDisks =
    "1000,hm,1,Read,4096,512,0\n"
    "1100,hm,0,Write,0,3145729,0\n"
    "1200,hm,1,Write,0,512,0\n"
    "1300,usr,0,Read,512,512,0\n";

TEST(TraceDisks, LieSideBySideNeverOnTopOfEachOther) {
  TraceSummary summary;
  const auto trace = parse(kTwoDisks, "", summary);
  ASSERT_EQ(trace.size(), 4u);
  // In the order in which they appear, each from a whole MiB on.
  EXPECT_EQ(trace[0].offset_bytes, 4096u);
  EXPECT_EQ(trace[1].offset_bytes, 1u << 20);
  EXPECT_EQ(trace[2].offset_bytes, 0u);
  EXPECT_EQ(trace[3].offset_bytes, (5u << 20) + 512);
  EXPECT_EQ(summary.end_bytes, (5u << 20) + 1024);
  ASSERT_EQ(summary.disks.size(), 3u);
  EXPECT_EQ(summary.disks[0].name, "hm_1");
  EXPECT_EQ(summary.disks[0].requests, 2u);
  EXPECT_EQ(summary.disks[0].bytes, 1024u);
  EXPECT_EQ(summary.disks[0].end_bytes, 4608u);
  EXPECT_EQ(summary.disks[1].name, "hm_0");
  EXPECT_EQ(summary.disks[1].offset_bytes, 1u << 20);
  EXPECT_EQ(summary.disks[2].name, "usr_0");
  EXPECT_EQ(summary.disks[2].offset_bytes, 5u << 20);
}

TEST(TraceDisks, OneOfThemMayBeChosen) {
  TraceSummary summary;
  const auto trace = parse(kTwoDisks, "hm_1", summary);
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0].time_ns, 0u);
  EXPECT_EQ(trace[0].offset_bytes, 4096u);
  EXPECT_EQ(trace[1].time_ns, 20'000u);
  EXPECT_EQ(summary.requests, 2u);
  EXPECT_EQ(summary.disk, "hm_1");
  // What else is in the file is known all the same.
  ASSERT_EQ(summary.disks.size(), 3u);
  EXPECT_TRUE(summary.disks[0].replayed);
  EXPECT_FALSE(summary.disks[1].replayed);
  // Times count from the first request of that disk, and those of others do not make them late.
  TraceSummary other;
  EXPECT_EQ(parse(kTwoDisks, "usr_0", other)[0].time_ns, 0u);
  EXPECT_EQ(other.reordered.count, 0u);
}

TEST(TraceDisks, AreWhatEachFormatCallsThem) {
  const auto names = [](std::string_view text) {
    TraceSummary summary;
    parse(text, "", summary);
    std::string all;
    for (const TraceDisk& disk : summary.disks) all += disk.name + " ";
    return all;
  };
  EXPECT_EQ(names("419,W,0,512,5\n725,R,0,512,6\n419,R,0,512,7\n"), "419 725 ");
  EXPECT_EQ(names("5,0,8,0,1063\n6,0,8,1,1627\n"), "1063 1627 ");
  EXPECT_EQ(names("fio version 2 iolog\n/a add\n/b add\n/b read 0 512\n/a sync\n"), "/b /a ");
  EXPECT_EQ(names("fio version 3 iolog\n1 /a add\n2 /a read 0 512\n"), "/a ");
}

TEST(TraceDisks, OneThatIsNotThereIsAnErrorThatListsThem) {
  EXPECT_EQ(message(kTwoDisks, "0"),
            "--trace-disk \"0\" is not in trace t.csv, which holds hm_1 (2 requests), hm_0 (1) and usr_0 (1): name one "
            "of these");
  std::string many;
  for (int i = 0; i < 1'200; ++i) many += std::to_string(i) + ",R,0,512,5\n";
  many += "7,R,0,512,5\n";
  EXPECT_EQ(message(many, "none"),
            "--trace-disk \"none\" is not in trace t.csv, which holds 7 (2 requests), 0 (1), 1 (1), 2 (1), 3 (1), "
            "4 (1), 5 (1), 6 (1) and 1,192 more: name one of these");
}

TEST(TraceDisks, TooLargeTogetherIsAnErrorThatListsThem) {
  const std::string far = "9223372036854771712";
  EXPECT_EQ(message("1,R," + far + ",4096,5\n2,R,0,512,5\n", ""),
            "the disks of trace t.csv do not fit side by side into 2^63 bytes: choose one with --trace-disk out of 1 "
            "(1 request) and 2 (1)");
  EXPECT_EQ(message("1,R," + far + ",4096,5\n2,R,0,512,5\n", "1"), "(accepted)");
}

TEST(TraceSummary, CountsWhatIsEmptyAndWhatIsOutOfOrder) {
  TraceSummary summary;
  const auto trace =
      parse("device_id,opcode,offset,length,timestamp\n\n1,R,3,1,20\n1,R,1,1,10\n1,R,9,0,5\n1,R,4,1,15\n", "", summary);
  ASSERT_EQ(trace.size(), 3u);
  EXPECT_EQ(trace[0].offset_bytes, 1u);
  EXPECT_EQ(summary.lines, 6u);
  EXPECT_EQ(summary.ignored, 2u);
  EXPECT_EQ(summary.empty.count, 1u);
  EXPECT_EQ(summary.empty.first_line, 5u);
  EXPECT_EQ(summary.reordered.count, 2u);
  EXPECT_EQ(summary.reordered.first_line, 4u);
}

TEST(TraceSummary, IsAnObjectOfTheResult) {
  TraceSummary summary;
  summary.path = "/tmp/t.csv";
  auto trace = parse(
      "1,R,6144,512,20\n"
      "1,R,512,4096,10\n"
      "\"2,W,0,4096,30\n"
      "1,R,0,0,40\n",
      "", summary);
  limit_trace(trace, 2, 0, summary);
  fit_trace(trace, 8192, 4096, summary);
  split_trace(trace, 4096, summary);
  JsonWriter json;
  json.begin_object();
  trace_field(json, summary);
  json.end_object();
  EXPECT_EQ(json.text(),
            R"({"trace":{"path":"/tmp/t.csv","format":"alibaba","disk":null,"disk_count":2,"disks":[)"
            R"({"name":"1","requests":2,"bytes":4608,"end_bytes":6656,"replayed":true,"offset_bytes":0},)"
            R"({"name":"\"2","requests":1,"bytes":4096,"end_bytes":4096,"replayed":true,"offset_bytes":1048576}],)"
            R"("lines":4,"ignored_lines":0,"requests":2,"reads":2,"writes":0,"trims":0,"flushes":0,)"
            R"("read_bytes":4608,"write_bytes":0,"trim_bytes":0,"span_ns":10000,"largest_bytes":4096,)"
            R"("end_bytes":6656,"left_out":1,"empty":{"count":1,"first_line":4},)"
            R"("reordered":{"count":1,"first_line":2},"namespace_bytes":8192,"sized_from_trace":false,)"
            R"("rounded":2,"rounded_bytes":7680,"wrapped":0,"moved":0,"shortened":0,"split":1,"commands":3}})");
}

TEST(TraceSummary, WithoutATraceIsNull) {
  JsonWriter json;
  json.begin_object();
  trace_field(json, {});
  json.end_object();
  EXPECT_EQ(json.text(), R"({"trace":null})");
}

TEST(TraceSummary, NamesOnlyTheBusiestOfManyDisks) {
  TraceSummary summary;
  std::string text;
  for (int i = 0; i < 100; ++i) text += std::to_string(i) + ",R,0,512,5\n";
  parse(text + "99,R,0,512,5\n\xC3\x28\x01,R,0,512,6\n\xC3\x28\x01,R,0,512,6\n\xC3\x28\x01,R,0,512,6\n", "", summary);
  JsonWriter json;
  json.begin_object();
  trace_field(json, summary);
  json.end_object();
  EXPECT_NE(json.text().find(R"("disk_count":101,"disks":[{"name":"?(?","requests":3,)"), std::string::npos);
  EXPECT_NE(json.text().find(R"({"name":"29",)"), std::string::npos) << json.text();
  EXPECT_EQ(json.text().find(R"({"name":"30",)"), std::string::npos);  // two busy ones and 0 to 29 are 32
}

}  // namespace
}  // namespace flashmob::load
