#include "workloads/dlrm_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "flashmob/error.h"
#include "workloads/matrix.h"

namespace flashmob::gpu::workloads {
namespace {

constexpr std::uint32_t kMaxWidth = 1 << 16;

// Uniform weights whose variance keeps the size of a layer's outputs about that of its inputs.
DlrmLayer make_layer(std::uint32_t inputs, std::uint32_t outputs, bool rectify, Rng& rng) {
  DlrmLayer layer{inputs, outputs, rectify, {}, {}};
  const double bound = std::sqrt((rectify ? 6.0 : 3.0) / inputs);
  layer.weights.resize(std::size_t{inputs} * outputs);
  for (float& weight : layer.weights) weight = static_cast<float>(bound * (2 * rng.unit() - 1));
  layer.bias.resize(outputs);
  for (float& bias : layer.bias) bias = static_cast<float>(0.1 * (2 * rng.unit() - 1));
  return layer;
}

std::vector<DlrmLayer> make_network(std::uint32_t inputs, std::uint32_t width, std::uint32_t products,
                                    std::uint32_t outputs, bool rectify_last, Rng& rng) {
  std::vector<DlrmLayer> network{make_layer(inputs, width, true, rng)};
  for (std::uint32_t i = 0; i < products; ++i) network.push_back(make_layer(width, width, true, rng));
  network.push_back(make_layer(width, outputs, rectify_last, rng));
  return network;
}

std::vector<float> through(const std::vector<DlrmLayer>& network, std::vector<float> x, std::uint32_t samples) {
  for (const DlrmLayer& layer : network) {
    std::vector<float> y(std::size_t{samples} * layer.outputs);
    multiply_plain(x.data(), layer.weights.data(), y.data(), samples, layer.inputs, layer.outputs);
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] += layer.bias[i % layer.outputs];
      if (layer.rectify) y[i] = std::max(y[i], 0.0f);
    }
    x = std::move(y);
  }
  return x;
}

double flops_of(const std::vector<DlrmLayer>& network) {
  return std::accumulate(network.begin(), network.end(), 0.0, [](double sum, const DlrmLayer& layer) {
    return sum + 2.0 * static_cast<double>(layer.weights.size());
  });
}

}  // namespace

void DlrmConfig::validate() const {
  if (embedding_dim < 4 || embedding_dim > 1024 || (embedding_dim & (embedding_dim - 1)) != 0)
    throw ConfigError("dlrm.embedding_dim: " + std::to_string(embedding_dim) + " is no power of two from 4 to 1024");
  if (bottom_width < 1 || bottom_width > kMaxWidth || top_width < 1 || top_width > kMaxWidth)
    throw ConfigError("dlrm.bottom_width, dlrm.top_width: must be 1 to 65536");
}

DlrmConfig dlrm_config(unsigned number) {
  DlrmConfig config;
  config.name = "config-" + std::to_string(number);
  switch (number) {
    case 1:
      return config;
    case 2:
      config.bottom_products = config.top_products = 1;
      return config;
    case 3:
      config.bottom_products = config.top_products = 18;
      return config;
    default:
      throw ConfigError("dlrm.config: " + std::to_string(number) + " is none of 1, 2 and 3");
  }
}

DlrmModel make_dlrm(const DlrmConfig& config, const std::vector<std::uint64_t>& table_rows, std::uint64_t seed) {
  config.validate();
  if (table_rows.size() != kCategories || *std::min_element(table_rows.begin(), table_rows.end()) == 0)
    throw ConfigError("dlrm.table_rows: must be 26 numbers of at least 1");
  Rng rng(seed);
  DlrmModel model;
  model.config = config;
  model.table_rows = table_rows;
  std::uint64_t rows = 0;
  for (const std::uint64_t count : table_rows) {
    model.table_first.push_back(rows);
    rows += count;
  }
  model.embeddings.resize(rows * config.embedding_dim);
  const double bound = 1 / std::sqrt(config.embedding_dim);
  for (float& value : model.embeddings) value = static_cast<float>(bound * (2 * rng.unit() - 1));
  model.bottom =
      make_network(kDenseFeatures, config.bottom_width, config.bottom_products, config.embedding_dim, true, rng);
  model.top = make_network(config.embedding_dim + kPairs, config.top_width, config.top_products, 1, false, rng);
  return model;
}

std::vector<std::uint64_t> DlrmModel::rows_of(const ClickBatch& batch) const {
  std::vector<std::uint64_t> rows(batch.category.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = table_first[i % kCategories] + batch.category[i];
  return rows;
}

double DlrmModel::product_flops() const { return flops_of(bottom) + flops_of(top); }

std::vector<float> dlrm_reference(const DlrmModel& model, const ClickBatch& batch) {
  const std::uint32_t dim = model.config.embedding_dim;
  const std::vector<float> dense = through(model.bottom, batch.dense, batch.samples);
  const std::vector<std::uint64_t> rows = model.rows_of(batch);
  std::vector<float> features;
  for (std::uint32_t s = 0; s < batch.samples; ++s) {
    std::vector<const float*> vectors{&dense[std::size_t{s} * dim]};
    for (std::uint32_t f = 0; f < kCategories; ++f)
      vectors.push_back(&model.embeddings[rows[std::size_t{s} * kCategories + f] * dim]);
    features.insert(features.end(), vectors[0], vectors[0] + dim);
    for (std::uint32_t i = 1; i < kInteracting; ++i) {
      for (std::uint32_t j = 0; j < i; ++j)
        features.push_back(std::inner_product(vectors[i], vectors[i] + dim, vectors[j], 0.0f));
    }
  }
  std::vector<float> scores = through(model.top, std::move(features), batch.samples);
  for (float& score : scores) score = 1 / (1 + std::exp(-score));
  return scores;
}

}  // namespace flashmob::gpu::workloads
