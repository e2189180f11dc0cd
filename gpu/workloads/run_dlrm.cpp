#include <algorithm>
#include <cmath>
#include <fstream>

#include "workloads/dlrm.h"
#include "workloads/matrix_products.h"
#include "workloads/reference.h"
#include "workloads/workbench.h"

namespace flashmob::gpu::workloads {
namespace {

// Scores lie in (0, 1); floats that are added in another order differ by about this at most.
constexpr double kScoreTolerance = 1e-4;

std::vector<ClickBatch> read_batches(const DlrmOptions& options, const std::vector<std::uint64_t>& table_rows) {
  std::vector<ClickBatch> batches;
  std::ifstream file;
  if (!options.clicks.empty()) {
    file.open(options.clicks, std::ios::binary);
    if (!file) throw ConfigError("clicks: cannot read " + options.clicks);
  }
  std::uint64_t line_number = 0;
  for (std::uint32_t b = 0; b < options.batches; ++b) {
    batches.push_back(options.clicks.empty() ? synthetic_clicks(options.batch, table_rows, options.seed + 1 + b)
                                             : read_clicks(file, options.batch, table_rows, line_number));
    // A batch is whole or is not taken.
    if (batches.back().samples < options.batch) batches.pop_back();
  }
  if (batches.empty())
    throw ConfigError("clicks: " + options.clicks + " has fewer than one batch of " + std::to_string(options.batch) +
                      " samples");
  return batches;
}

// Where an SSD's engine stays on the GPU, for what a library loads when it is first used would wait for it.
class KernelProducts final : public MatrixProducts {
 public:
  explicit KernelProducts(Workbench& bench) : bench_(bench) {}
  std::string name() const override {
    return "a kernel of flashmob's own (cuBLAS loads code while it runs, which waits for the SSD's engine on the GPU)";
  }
  bool on_gpu() const override { return true; }
  void multiply(const float* a, const float* b, float* c, std::size_t rows, std::size_t inner,
                std::size_t columns) override {
    bench_.gpu().run(bench_.shape(), MatrixProductKernel{}, a, b, c, std::uint64_t{rows}, std::uint64_t{inner},
                     std::uint64_t{columns});
  }

 private:
  Workbench& bench_;
};

struct Layer {
  const float* weights;
  const float* bias;
  std::uint32_t inputs;
  std::uint32_t outputs;
  bool rectify;
};

// The networks, in memory of who multiplies, and the way through them.
class Networks {
 public:
  Networks(Workbench& bench, const DlrmModel& model, const DlrmOptions& options, MatrixProducts& products)
      : bench_(bench), options_(options), products_(products), dim_(model.config.embedding_dim) {
    std::uint32_t widest = dim_ + kPairs;
    for (const auto& [from, to] : {std::pair{&model.bottom, &bottom_}, std::pair{&model.top, &top_}}) {
      for (const DlrmLayer& layer : *from) {
        to->push_back({put(layer.weights), put(layer.bias), layer.inputs, layer.outputs, layer.rectify});
        widest = std::max({widest, layer.inputs, layer.outputs});
      }
    }
    for (float*& values : values_) values = put(std::vector<float>(std::uint64_t{options.batch} * widest));
    load_code();
  }

  // The scores of one batch whose rows are gathered.
  std::vector<float> scores(const ClickBatch& batch, const float* rows) {
    bench_.gpu().copy(values_[0], batch.dense.data(), batch.dense.size() * sizeof(float));
    float* x = through(bottom_, values_[0], values_[1], batch.samples);
    float* features = x == values_[0] ? values_[1] : values_[0];
    bench_.gpu().run(bench_.shape(), DlrmInteract{}, static_cast<const float*>(x), rows, std::uint64_t{batch.samples},
                     kCategories, dim_, features);
    x = through(top_, features, x, batch.samples);
    bench_.gpu().run(bench_.shape(), DlrmScore{}, x, std::uint64_t{batch.samples});
    return bench_.values(x, batch.samples);
  }

 private:
  float* put(const std::vector<float>& values) {
    return products_.on_gpu() ? bench_.copy_of(values) : bench_.copy_for_host(values);
  }

  // See MatrixProducts::on_gpu(): the service is what stays.
  void load_code() {
    if (!products_.on_gpu() || bench_.gpu().engine_stays()) return;
    bench_.gpu().stop_service();
    for (const std::vector<Layer>* const network : {&bottom_, &top_})
      for (const Layer& layer : *network)
        products_.multiply(values_[0], layer.weights, values_[1], options_.batch, layer.inputs, layer.outputs);
    bench_.gpu().start_service();
  }

  float* through(const std::vector<Layer>& network, float* x, float* y, std::uint32_t samples) {
    for (const Layer& layer : network) {
      products_.multiply(x, layer.weights, y, samples, layer.inputs, layer.outputs);
      if (bench_.gpu().backend().clock == "virtual") {
        const double flops = 2.0 * samples * layer.inputs * layer.outputs;
        bench_.gpu().pass(options_.product_overhead_ns +
                          static_cast<std::uint64_t>(flops / std::max(options_.flops_per_ns, 1.0)));
      }
      bench_.gpu().run(bench_.shape(), DlrmActivate{}, y, layer.bias, std::uint64_t{samples}, layer.outputs,
                       layer.rectify);
      std::swap(x, y);
    }
    return x;
  }

  Workbench& bench_;
  const DlrmOptions& options_;
  MatrixProducts& products_;
  std::uint32_t dim_;
  std::vector<Layer> bottom_, top_;
  float* values_[2] = {};
};

struct Expected {
  const DlrmModel& model;
  const std::vector<ClickBatch>& batches;
  std::vector<std::vector<std::uint64_t>> rows;  // of each batch
};

// Rows must be what is in the tables, bit by bit; scores about what the plain computation says.
void compare(DlrmResult& result, const Expected& expected, std::size_t b, const float* rows, const float* scores) {
  const std::uint32_t dim = expected.model.config.embedding_dim;
  for (std::size_t i = 0; i < expected.rows[b].size(); ++i)
    result.mismatches +=
        std::memcmp(rows + i * dim, &expected.model.embeddings[expected.rows[b][i] * dim], dim * sizeof(float)) != 0;
  const std::vector<float> plain = dlrm_reference(expected.model, expected.batches[b]);
  for (std::size_t s = 0; s < plain.size(); ++s) {
    const double error = std::abs(static_cast<double>(scores[s]) - static_cast<double>(plain[s]));
    result.max_error = std::max(result.max_error, error);
    if (!(error <= kScoreTolerance)) ++result.mismatches;
  }
  result.scores.assign(scores, scores + plain.size());
  result.samples += expected.batches[b].samples;
}

}  // namespace

DlrmResult run_dlrm(Gpu& gpu, const DlrmOptions& options) {
  if (options.batch < 1 || options.batches < 1) throw ConfigError("batch, batches: must be at least 1");
  const DlrmModel model = make_dlrm(options.model, criteo_table_rows(options.most_rows), options.seed);
  if (options.access.line_bytes % (model.config.embedding_dim * sizeof(float)) != 0)
    throw ConfigError("line_bytes: " + std::to_string(options.access.line_bytes) +
                      " is no whole number of rows; choose a multiple of " +
                      std::to_string(model.config.embedding_dim * sizeof(float)));
  const std::vector<ClickBatch> batches = read_batches(options, model.table_rows);
  Expected expected{model, batches, {}};
  for (const ClickBatch& batch : batches) expected.rows.push_back(model.rows_of(batch));

  DlrmResult result;
  // cuBLAS takes memory when it is found, which must not be while a kernel is resident.
  const bool uses_library = !gpu.engine_stays();
  const bool on_gpu = gpu.backend().backend == Backend::cuda && uses_library;
  if (on_gpu) gpu.stop_service();
  const FoundProducts found = matrix_products(on_gpu);
  Workbench bench(gpu, options.access, result);
  KernelProducts own(bench);
  MatrixProducts& products = uses_library ? found.products : own;
  result.products = uses_library ? found.name : own.name();
  Networks networks(bench, model, options, products);
  std::vector<const std::uint64_t*> rows;
  for (const std::vector<std::uint64_t>& batch : expected.rows) rows.push_back(bench.copy_of(batch));
  const std::uint32_t dim = model.config.embedding_dim;
  const std::uint64_t count = std::uint64_t{options.batch} * kCategories;
  auto* gathered = bench.array<float>(count * dim);
  with_access(bench, result, [&](auto access) {
    const auto table = access.array(model.embeddings);
    using Table = std::remove_const_t<decltype(table)>;
    const std::uint64_t start_ns = gpu.now_ns();
    std::vector<std::vector<float>> kept_rows, kept_scores;
    for (std::size_t b = 0; b < batches.size(); ++b) {
      gpu.run(bench.shape(), DlrmGather<Table>{}, table, rows[b], count, dim, gathered);
      gpu.visit([&](auto& device) {
        const bool ahead = options.async && b + 1 < batches.size();
        const auto kernel =
            ahead ? device.launch(bench.shape(), DlrmPrefetch<Table>{}, table, rows[b + 1], count, dim) : 0;
        kept_scores.push_back(networks.scores(batches[b], gathered));
        if (ahead) device.wait(kernel);
      });
      kept_rows.push_back(bench.values(gathered, count * dim));
    }
    result.duration_ns = gpu.now_ns() - start_ns;
    for (std::size_t b = 0; b < batches.size(); ++b)
      compare(result, expected, b, kept_rows[b].data(), kept_scores[b].data());
  });
  result.verified = result.mismatches == 0;
  bench.finish();
  return result;
}

}  // namespace flashmob::gpu::workloads
