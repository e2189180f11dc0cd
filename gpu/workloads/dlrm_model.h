// The recommendation model of the DLRM workload: 13 dense features through a bottom network, 26 categories as rows of
// embedding tables, products of all pairs of these 27 vectors, a top network, one score per sample.
//
// The three configurations are those of the AGILE paper, section 4.4: three hidden products of width 512 below and of
// 1024 above; one of each; and six times as many as in the first. Weights come from a seed. Host code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "workloads/criteo.h"

namespace flashmob::gpu::workloads {

struct DlrmConfig {
  std::string name = "config-1";
  std::uint32_t embedding_dim = 32;  // floats per row, a power of two, 4...1024
  std::uint32_t bottom_width = 512;
  std::uint32_t bottom_products = 3;
  std::uint32_t top_width = 1024;
  std::uint32_t top_products = 3;

  // Throws ConfigError.
  void validate() const;
};

// Configuration 1, 2 or 3; else throws ConfigError.
DlrmConfig dlrm_config(unsigned number);

// The number of vectors that meet in the interaction, and of their pairs.
inline constexpr std::uint32_t kInteracting = kCategories + 1;
inline constexpr std::uint32_t kPairs = kInteracting * (kInteracting - 1) / 2;

// One fully connected layer: y = activate(x W + b), W row by row (inputs x outputs).
struct DlrmLayer {
  std::uint32_t inputs = 0;
  std::uint32_t outputs = 0;
  bool rectify = true;  // else the output is taken as it is
  std::vector<float> weights;
  std::vector<float> bias;
};

struct DlrmModel {
  DlrmConfig config;
  std::vector<std::uint64_t> table_rows;   // 26
  std::vector<std::uint64_t> table_first;  // each table's first row in `embeddings`
  std::vector<float> embeddings;           // all tables one behind the other, embedding_dim floats a row
  std::vector<DlrmLayer> bottom;           // from 13 dense features to one vector of embedding_dim
  std::vector<DlrmLayer> top;              // from that vector and the products of pairs to one number

  std::uint64_t rows() const { return embeddings.size() / config.embedding_dim; }
  // The row in `embeddings` of each category of each sample.
  std::vector<std::uint64_t> rows_of(const ClickBatch& batch) const;
  // Operations of all matrix products for one sample: two per weight.
  double product_flops() const;
};

DlrmModel make_dlrm(const DlrmConfig& config, const std::vector<std::uint64_t>& table_rows, std::uint64_t seed);

// The scores of a batch in (0, 1), computed in the plainest way.
std::vector<float> dlrm_reference(const DlrmModel& model, const ClickBatch& batch);

}  // namespace flashmob::gpu::workloads
