// Click-log data of the shape of the Criteo data sets: a label, 13 integers, 26 categories per sample. Synthetic data
// from a seed, and a reader of the real files (tab-separated text, one sample a line: label, 13 decimal integers, 26
// hexadecimal categories; an integer or category may be empty).
//
// Host code; one reader per thread. Bad lines throw DataError, which names line, column and what is wrong.
#pragma once

#include <cstdint>
#include <istream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace flashmob::gpu::workloads {

inline constexpr std::uint32_t kDenseFeatures = 13;
inline constexpr std::uint32_t kCategories = 26;
inline constexpr std::uint64_t kMaxCriteoLineBytes = 4096;  // of a real line, about 300

class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Samples, feature by feature as the model takes them.
struct ClickBatch {
  std::uint32_t samples = 0;
  std::vector<float> dense;             // samples x kDenseFeatures: log(1 + max(x, 0)); a missing one is 0
  std::vector<std::uint64_t> category;  // samples x kCategories: the row within the feature's table
  std::vector<std::uint8_t> labels;
};

// How many rows each of the 26 tables has: the number of values that the features have in the public Kaggle set, cut
// at `most`.
std::vector<std::uint64_t> criteo_table_rows(std::uint64_t most);

// Samples whose categories favour low rows by a power law, as real categories do.
ClickBatch synthetic_clicks(std::uint32_t samples, const std::vector<std::uint64_t>& table_rows, std::uint64_t seed);

// Reads the next up to `samples` lines of a real file; fewer at its end. `line_number` is that of the last line read
// and is moved on. A category's row is its value modulo the table's rows; a missing category is row 0.
ClickBatch read_clicks(std::istream& file, std::uint32_t samples, const std::vector<std::uint64_t>& table_rows,
                       std::uint64_t& line_number);

// Adds one line's sample to the batch; DataError's text has no line number.
void parse_click(std::string_view line, const std::vector<std::uint64_t>& table_rows, ClickBatch& batch);

}  // namespace flashmob::gpu::workloads
