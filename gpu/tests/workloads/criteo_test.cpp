#include "workloads/criteo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "flashmob/error.h"

namespace flashmob::gpu::workloads {
namespace {

std::vector<std::uint64_t> tables() { return std::vector<std::uint64_t>(kCategories, 1000); }

// A line with these fields replaced; field 0 is the label.
std::string line_with(std::initializer_list<std::pair<unsigned, std::string>> replaced = {}) {
  std::vector<std::string> fields{"1"};
  for (unsigned i = 0; i < kDenseFeatures; ++i) fields.push_back(std::to_string(i));
  for (unsigned i = 0; i < kCategories; ++i) fields.push_back("68fd1e6" + std::to_string(i % 10));
  for (const auto& [at, text] : replaced) fields[at] = text;
  std::string line;
  for (const std::string& field : fields) line += (line.empty() ? "" : "\t") + field;
  return line;
}

std::string error_of(const std::string& text) {
  std::istringstream file(text);
  std::uint64_t line_number = 0;
  try {
    read_clicks(file, 100, tables(), line_number);
  } catch (const DataError& error) {
    return error.what();
  }
  return "none";
}

TEST(Criteo, ReadsALine) {
  ClickBatch batch;
  parse_click(line_with({{1, "-2"}, {2, ""}, {14, "3e9"}, {15, ""}}) + "\r", tables(), batch);
  ASSERT_EQ(batch.samples, 1u);
  EXPECT_EQ(batch.labels, (std::vector<std::uint8_t>{1}));
  EXPECT_EQ(batch.dense[0], 0);
  EXPECT_EQ(batch.dense[1], 0);
  EXPECT_FLOAT_EQ(batch.dense[12], std::log(13.0f));
  EXPECT_EQ(batch.category[0], 0x3e9u % 1000);
  EXPECT_EQ(batch.category[1], 0u);
  EXPECT_EQ(batch.category[2], 0x68fd1e62u % 1000);
}

TEST(Criteo, ReadsAFileInBatches) {
  std::istringstream file(line_with() + "\n" + line_with({{0, "0"}}) + "\n" + line_with());
  std::uint64_t line_number = 0;
  EXPECT_EQ(read_clicks(file, 2, tables(), line_number).samples, 2u);
  EXPECT_EQ(line_number, 2u);
  EXPECT_EQ(read_clicks(file, 2, tables(), line_number).samples, 1u);
  EXPECT_EQ(line_number, 3u);
  EXPECT_EQ(read_clicks(file, 2, tables(), line_number).samples, 0u);
}

TEST(Criteo, ErrorsNameLineColumnAndFault) {
  const std::string good = line_with() + "\n";
  EXPECT_EQ(error_of(good), "none");
  EXPECT_EQ(error_of(good + line_with({{0, "2"}})), "line 2 column 1: \"2\" is no label; it must be 0 or 1");
  EXPECT_EQ(error_of(good + good + line_with({{3, "1.5"}})), "line 3 column 4: \"1.5\" is no integer");
  EXPECT_EQ(error_of(line_with({{1, "99999999999999999999"}})),
            "line 1 column 2: \"99999999999999999999\" is no integer");
  EXPECT_EQ(error_of(line_with({{14, "xyz"}})), "line 1 column 15: \"xyz\" is no hexadecimal number");
  EXPECT_EQ(error_of("1\t2\t3\n"), "line 1 has only 3 columns instead of 40");
  EXPECT_EQ(error_of("\n"), "line 1 column 1: \"\" is no label; it must be 0 or 1");
  EXPECT_EQ(error_of(line_with() + "\t0"), "line 1 has more than 40 columns");
  EXPECT_EQ(error_of(std::string(5000, '1')), "line 1 is longer than 4096 bytes");
  EXPECT_EQ(error_of(line_with({{39, std::string(40, '\x01')}})),
            "line 1 column 40: \"????????????????????????...\" is no hexadecimal number");
}

TEST(Criteo, ABadLineAddsNothing) {
  ClickBatch batch;
  EXPECT_THROW(parse_click(line_with({{39, "-"}}), tables(), batch), DataError);
  EXPECT_EQ(batch.samples, 0u);
  EXPECT_TRUE(batch.dense.empty());
  EXPECT_TRUE(batch.category.empty());
}

TEST(Criteo, SyntheticClicksHaveTheShapeAndTheSkew) {
  const std::vector<std::uint64_t> rows = criteo_table_rows(1000);
  ASSERT_EQ(rows.size(), kCategories);
  EXPECT_EQ(*std::max_element(rows.begin(), rows.end()), 1000u);
  EXPECT_EQ(*std::min_element(rows.begin(), rows.end()), 3u);
  const ClickBatch batch = synthetic_clicks(500, rows, 4);
  ASSERT_EQ(batch.dense.size(), 500u * kDenseFeatures);
  ASSERT_EQ(batch.category.size(), 500u * kCategories);
  unsigned hot = 0;
  for (std::size_t i = 0; i < batch.category.size(); ++i) {
    const std::uint64_t table = rows[i % kCategories];
    ASSERT_LT(batch.category[i], table);
    hot += batch.category[i] * 10 < table;
  }
  EXPECT_GT(hot, batch.category.size() * 4 / 10);
  EXPECT_EQ(batch.category, synthetic_clicks(500, rows, 4).category);
  EXPECT_NE(batch.category, synthetic_clicks(500, rows, 5).category);
}

TEST(Criteo, TablesAreChecked) {
  EXPECT_THROW(synthetic_clicks(1, {}, 1), ConfigError);
  EXPECT_THROW(synthetic_clicks(1, std::vector<std::uint64_t>(kCategories, 0), 1), ConfigError);
}

}  // namespace
}  // namespace flashmob::gpu::workloads
