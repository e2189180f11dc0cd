// libFuzzer target: a click-log file of the DLRM workload that is not what it should be. Reading it gives whole samples
// whose rows lie in their tables, or one DataError; nothing else.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "base/check.h"
#include "workloads/criteo.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flashmob::gpu::workloads;
  static const std::vector<std::uint64_t> kTables = criteo_table_rows(1000);
  std::istringstream file(std::string(reinterpret_cast<const char*>(data), size));
  std::uint64_t line_number = 0;
  try {
    for (;;) {
      const std::uint64_t before = line_number;
      const ClickBatch batch = read_clicks(file, 3, kTables, line_number);
      FLASHMOB_CHECK(line_number - before == batch.samples);
      FLASHMOB_CHECK(batch.labels.size() == batch.samples);
      FLASHMOB_CHECK(batch.dense.size() == std::size_t{batch.samples} * kDenseFeatures);
      FLASHMOB_CHECK(batch.category.size() == std::size_t{batch.samples} * kCategories);
      for (const float value : batch.dense) FLASHMOB_CHECK(std::isfinite(value) && value >= 0);
      for (std::size_t i = 0; i < batch.category.size(); ++i)
        FLASHMOB_CHECK(batch.category[i] < kTables[i % kCategories]);
      if (batch.samples < 3) break;
    }
  } catch (const DataError&) {
  }
  return 0;
}
