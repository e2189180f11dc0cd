#include "workloads/dlrm_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "flashmob/error.h"

namespace flashmob::gpu::workloads {
namespace {

TEST(DlrmModel, TheThreeConfigurations) {
  EXPECT_EQ(dlrm_config(1).bottom_products, 3u);
  EXPECT_EQ(dlrm_config(2).top_products, 1u);
  EXPECT_EQ(dlrm_config(3).top_products, 18u);
  EXPECT_THROW(dlrm_config(0), ConfigError);
  EXPECT_THROW(dlrm_config(4), ConfigError);
  DlrmConfig odd;
  odd.embedding_dim = 24;
  EXPECT_THROW(odd.validate(), ConfigError);
  const DlrmModel model = make_dlrm(dlrm_config(1), criteo_table_rows(10), 1);
  // The products of the paper, and the projections that fit them to 13 features, 32 floats a row, and one score.
  EXPECT_EQ(model.product_flops(),
            2.0 * (13 * 512 + 3 * 512 * 512 + 512 * 32 + (32 + kPairs) * 1024 + 3 * 1024 * 1024 + 1024));
}

TEST(DlrmModel, RowsOfTablesDoNotOverlap) {
  DlrmConfig config;
  config.embedding_dim = 4;
  config.bottom_width = config.top_width = 8;
  const DlrmModel model = make_dlrm(config, criteo_table_rows(7), 1);
  EXPECT_EQ(model.table_first[1], model.table_rows[0]);
  EXPECT_EQ(model.rows(), model.table_first.back() + model.table_rows.back());
  const ClickBatch batch = synthetic_clicks(50, model.table_rows, 1);
  const std::vector<std::uint64_t> rows = model.rows_of(batch);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_GE(rows[i], model.table_first[i % kCategories]);
    EXPECT_LT(rows[i], model.table_first[i % kCategories] + model.table_rows[i % kCategories]);
  }
}

TEST(DlrmModel, ScoresAreChancesThatDependOnTheInput) {
  for (const unsigned number : {1u, 2u, 3u}) {
    DlrmConfig config = dlrm_config(number);
    config.embedding_dim = 8;
    config.bottom_width = 16;
    config.top_width = 32;
    const DlrmModel model = make_dlrm(config, criteo_table_rows(20), 3);
    const std::vector<float> scores = dlrm_reference(model, synthetic_clicks(40, model.table_rows, 2));
    ASSERT_EQ(scores.size(), 40u);
    const auto [least, most] = std::minmax_element(scores.begin(), scores.end());
    EXPECT_GT(*least, 0.0f);
    EXPECT_LT(*most, 1.0f);
    EXPECT_GT(*most - *least, 1e-4f);
  }
}

}  // namespace
}  // namespace flashmob::gpu::workloads
