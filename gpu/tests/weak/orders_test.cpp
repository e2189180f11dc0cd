// Which orders of memory the protocols need: a line of theirs that orders something is run once more as if it ordered
// nothing, and the seeds must find that. So a release or an acquire that is taken away from such a line is found, too.
//
// needed_orders.txt lists these lines by protocol, first seed that found them, and text, so that the list outlives
// changes elsewhere. FLASHMOB_WEAK_ORDERS=1 goes through all lines that order anything instead and prints the list
// anew; seed 0: another line orders the same in what these programs do, or nothing of theirs hangs on it.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "weak/protocols.h"

namespace flashmob::gpu::test {
namespace {

using Lines = std::set<std::pair<std::string, std::uint32_t>>;

// "queue.h: t.sync(mask);"
std::string text_of(const std::string& file, std::uint32_t line) {
  // The name is as the compiler was told it, which may be from the build's folder.
  std::ifstream source(FLASHMOB_SOURCE_DIR + file.substr(file.find("/gpu/")));
  std::string text;
  for (std::uint32_t i = 0; i < line; ++i) std::getline(source, text);
  const std::size_t first = text.find_first_not_of(' ');
  return file.substr(file.rfind('/') + 1) + ": " + (first == std::string::npos ? "" : text.substr(first));
}

std::set<std::string> needed_by(const std::string& protocol) {
  std::ifstream list(FLASHMOB_SOURCE_DIR "/gpu/tests/weak/needed_orders.txt");
  std::set<std::string> needed;
  for (std::string row; std::getline(list, row);) {
    std::istringstream fields(row);
    std::string name, seed, text;
    fields >> name >> seed >> std::ws;
    std::getline(fields, text);
    if (name == protocol) needed.insert(text);
  }
  return needed;
}

struct Found {
  std::uint64_t seed = 0;  // 0: by none
  std::string report;
};
Found first_seed_without(const Protocol& protocol, const std::string& file, std::uint32_t line, std::uint64_t seeds) {
  const WithWeakMemory weak({file.c_str(), line});
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    std::string report = protocol.run(seed);
    if (!report.empty()) return {seed, std::move(report)};
  }
  return {};
}

Lines ordered_lines(const Protocol& protocol) {
  Lines lines;
  const WithWeakMemory weak({}, &lines);
  for (std::uint64_t seed = 1; seed <= protocol.seeds / 20; ++seed) EXPECT_EQ(protocol.run(seed), "");
  return lines;
}

class WeakMemoryOrders : public testing::TestWithParam<Protocol> {};

TEST_P(WeakMemoryOrders, EachThatIsNeededIsFoundMissing) {
  const Protocol& protocol = GetParam();
  const bool all = from_environment("FLASHMOB_WEAK_ORDERS", 0) != 0;
  const std::uint64_t seeds = from_environment("FLASHMOB_WEAK_SEEDS", protocol.seeds / 2);
  const std::set<std::string> needed = needed_by(protocol.name);
  EXPECT_NE(needed.size(), 0u);
  std::map<std::string, std::uint64_t> found_by;  // of lines with one text, any
  for (const auto& [file, line] : ordered_lines(protocol)) {
    const std::string text = text_of(file, line);
    if (!all && needed.count(text) == 0) continue;
    const Found found = first_seed_without(protocol, file, line, seeds);
    if (all) std::cout << protocol.name << " " << found.seed << " " << text << " | " << found.report << std::endl;
    found_by[text] = std::max(found_by[text], found.seed);
  }
  for (const std::string& text : needed) {
    EXPECT_EQ(found_by.count(text), 1u) << "nothing is ordered by a line like " << text;
    EXPECT_NE(found_by[text], 0u) << text << " is not found missing by " << seeds << " seeds";
  }
}

INSTANTIATE_TEST_SUITE_P(All, WeakMemoryOrders, testing::ValuesIn(protocols()),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace flashmob::gpu::test
