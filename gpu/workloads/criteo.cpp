#include "workloads/criteo.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/rng.h"
#include "flashmob/error.h"

namespace flashmob::gpu::workloads {
namespace {

// The numbers of distinct values of the features C1...C26 in the public Kaggle data set.
constexpr std::array<std::uint64_t, kCategories> kKaggleRows{
    1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
    27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572};

void check_tables(const std::vector<std::uint64_t>& table_rows) {
  if (table_rows.size() != kCategories || *std::min_element(table_rows.begin(), table_rows.end()) == 0)
    throw ConfigError("dlrm.table_rows: must be 26 numbers of at least 1");
}

float dense_value(double x) { return static_cast<float>(std::log1p(std::max(x, 0.0))); }

std::string shown(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 24)) out += c >= 0x20 && c < 0x7F ? c : '?';
  return out + (text.size() > 24 ? "...\"" : "\"");
}

// Cuts the line at its tabs, one field at a time.
class Fields {
 public:
  explicit Fields(std::string_view line) : rest_(line) {}

  std::string_view next() {
    if (done_)
      throw DataError("has only " + std::to_string(number_) + " columns instead of " +
                      std::to_string(1 + kDenseFeatures + kCategories));
    ++number_;
    const std::size_t tab = rest_.find('\t');
    const std::string_view field = rest_.substr(0, tab);
    done_ = tab == std::string_view::npos;
    if (!done_) rest_.remove_prefix(tab + 1);
    return field;
  }
  bool done() const { return done_; }

  template <class T>
  T number(std::string_view field, int base, const char* what) const {
    T value{};
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, base);
    if (error != std::errc{} || end != field.data() + field.size())
      throw DataError("column " + std::to_string(number_) + ": " + shown(field) + " is no " + what);
    return value;
  }

 private:
  std::string_view rest_;
  unsigned number_ = 0;
  bool done_ = false;
};

// getline() with a bound, so that a file without line ends is refused instead of read into memory.
bool bounded_line(std::istream& file, std::string& line) {
  line.clear();
  for (int c = file.get(); c != std::istream::traits_type::eof(); c = file.get()) {
    if (c == '\n') return true;
    if (line.size() == kMaxCriteoLineBytes)
      throw DataError("is longer than " + std::to_string(kMaxCriteoLineBytes) + " bytes");
    line.push_back(static_cast<char>(c));
  }
  return !line.empty();
}

}  // namespace

std::vector<std::uint64_t> criteo_table_rows(std::uint64_t most) {
  std::vector<std::uint64_t> rows(kKaggleRows.begin(), kKaggleRows.end());
  for (std::uint64_t& count : rows) count = std::clamp<std::uint64_t>(most, 1, count);
  return rows;
}

ClickBatch synthetic_clicks(std::uint32_t samples, const std::vector<std::uint64_t>& table_rows, std::uint64_t seed) {
  check_tables(table_rows);
  constexpr double kMostDense = 1000;
  Rng rng(seed);
  ClickBatch batch;
  batch.samples = samples;
  for (std::uint32_t s = 0; s < samples; ++s) {
    batch.labels.push_back(rng.below(4) == 0 ? 1 : 0);
    for (std::uint32_t f = 0; f < kDenseFeatures; ++f) {
      const double u = rng.unit();
      batch.dense.push_back(dense_value(std::floor(kMostDense * u * u * u)));
    }
    for (std::uint32_t f = 0; f < kCategories; ++f) {
      // With rows * u^3, a tenth of the rows takes almost half of the look-ups.
      const double u = rng.unit();
      const auto row = static_cast<std::uint64_t>(static_cast<double>(table_rows[f]) * u * u * u);
      batch.category.push_back(std::min(row, table_rows[f] - 1));
    }
  }
  return batch;
}

void parse_click(std::string_view line, const std::vector<std::uint64_t>& table_rows, ClickBatch& batch) {
  check_tables(table_rows);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  Fields fields(line);
  const std::string_view label = fields.next();
  if (label != "0" && label != "1") throw DataError("column 1: " + shown(label) + " is no label; it must be 0 or 1");
  std::array<float, kDenseFeatures> dense;
  for (float& value : dense) {
    const std::string_view field = fields.next();
    value = field.empty() ? 0.0f : dense_value(static_cast<double>(fields.number<std::int64_t>(field, 10, "integer")));
  }
  std::array<std::uint64_t, kCategories> category;
  for (std::uint32_t f = 0; f < kCategories; ++f) {
    const std::string_view field = fields.next();
    category[f] = field.empty() ? 0 : fields.number<std::uint64_t>(field, 16, "hexadecimal number") % table_rows[f];
  }
  if (!fields.done()) throw DataError("has more than " + std::to_string(1 + kDenseFeatures + kCategories) + " columns");
  ++batch.samples;
  batch.labels.push_back(label == "1" ? 1 : 0);
  batch.dense.insert(batch.dense.end(), dense.begin(), dense.end());
  batch.category.insert(batch.category.end(), category.begin(), category.end());
}

ClickBatch read_clicks(std::istream& file, std::uint32_t samples, const std::vector<std::uint64_t>& table_rows,
                       std::uint64_t& line_number) {
  ClickBatch batch;
  std::string line;
  while (batch.samples < samples) {
    ++line_number;
    try {
      if (!bounded_line(file, line)) {
        --line_number;
        break;
      }
      parse_click(line, table_rows, batch);
    } catch (const DataError& error) {
      throw DataError("line " + std::to_string(line_number) + " " + error.what());
    }
  }
  return batch;
}

}  // namespace flashmob::gpu::workloads
