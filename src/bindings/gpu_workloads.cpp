// gpu/workloads/workloads.h for Python: options, results and one function for each workload, which releases the GIL.
// python/flashmob/gpu/results.py turns results into dataclasses.
#include "workloads/workloads.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "flashmob/error.h"

namespace nb = nanobind;

namespace flashmob::bindings {
namespace {

namespace work = gpu::workloads;

using NoGil = nb::call_guard<nb::gil_scoped_release>;
template <class T>
using Numbers = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Answer = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <class T>
std::vector<T> copy_of(const Numbers<T>& numbers) {
  return {numbers.data(), numbers.data() + numbers.size()};
}

// A NumPy array of its own.
template <class T>
Answer<T> answer(const std::vector<T>& values) {
  auto* copy = new std::vector<T>(values);
  const nb::capsule owner(copy, [](void* data) noexcept { delete static_cast<std::vector<T>*>(data); });
  return Answer<T>(copy->data(), {copy->size()}, owner);
}

// A graph of the caller's must not lead a kernel astray.
work::Csr make_csr(const Numbers<std::uint64_t>& offsets, const Numbers<std::uint64_t>& targets,
                   const Numbers<float>& weights) {
  work::Csr graph{copy_of(offsets), copy_of(targets), copy_of(weights)};
  if (graph.offsets.empty() || graph.offsets.front() != 0 || graph.offsets.back() != graph.targets.size())
    throw ConfigError("offsets is no list of a graph's: it begins with 0 and ends with the number of targets");
  if (graph.weights.size() != graph.targets.size())
    throw ConfigError("weights is too short or too long: give one per target");
  for (std::size_t i = 1; i < graph.offsets.size(); ++i) {
    if (graph.offsets[i] < graph.offsets[i - 1]) throw ConfigError("offsets is no list of a graph's: it must not fall");
  }
  for (const std::uint64_t target : graph.targets) {
    if (target >= graph.vertices())
      throw ConfigError("targets names vertex " + std::to_string(target) + ", but there are " +
                        std::to_string(graph.vertices()));
  }
  return graph;
}

work::Csr draw_graph(const std::string& kind, std::uint32_t scale, std::uint32_t degree, std::uint64_t seed) {
  if (kind != "uniform" && kind != "kronecker")
    throw ConfigError("kind = \"" + kind + "\" is not possible: use one of uniform, kronecker");
  return work::make_graph(
      {kind == "uniform" ? work::GraphKind::uniform : work::GraphKind::kronecker, scale, degree, seed});
}

void bind_options(nb::module_& m) {
  nb::class_<work::AccessOptions>(m, "GpuAccess")
      .def(nb::init<>())
      .def_rw("access", &work::AccessOptions::access)
      .def_rw("cache_bytes", &work::AccessOptions::cache_bytes)
      .def_rw("line_bytes", &work::AccessOptions::line_bytes)
      .def_rw("policy", &work::AccessOptions::policy)
      .def_rw("threads", &work::AccessOptions::threads);
  nb::class_<work::MeanOptions>(m, "GpuMeanOptions")
      .def(nb::init<>())
      .def_rw("access", &work::MeanOptions::access)
      .def_rw("count", &work::MeanOptions::count)
      .def_rw("seed", &work::MeanOptions::seed);
  nb::class_<work::PagerankOptions>(m, "GpuPagerankOptions")
      .def(nb::init<>())
      .def_rw("access", &work::PagerankOptions::access)
      .def_rw("iterations", &work::PagerankOptions::iterations)
      .def_rw("damping", &work::PagerankOptions::damping);
  nb::class_<work::CtcOptions>(m, "GpuCtcOptions")
      .def(nb::init<>())
      .def_rw("threads", &work::CtcOptions::threads)
      .def_rw("commands", &work::CtcOptions::commands)
      .def_rw("bytes", &work::CtcOptions::bytes)
      .def_rw("ratios", &work::CtcOptions::ratios)
      .def_rw("seed", &work::CtcOptions::seed);
  nb::class_<work::RandomIoOptions>(m, "GpuRandomIoOptions")
      .def(nb::init<>())
      .def_rw("write", &work::RandomIoOptions::write)
      .def_rw("bytes", &work::RandomIoOptions::bytes)
      .def_rw("threads", &work::RandomIoOptions::threads)
      .def_rw("in_flight", &work::RandomIoOptions::in_flight)
      .def_rw("commands", &work::RandomIoOptions::commands)
      .def_rw("span_blocks", &work::RandomIoOptions::span_blocks)
      .def_rw("seed", &work::RandomIoOptions::seed);
  nb::class_<work::DlrmOptions>(m, "GpuDlrmOptions")
      .def_rw("access", &work::DlrmOptions::access)
      .def_rw("batch", &work::DlrmOptions::batch)
      .def_rw("batches", &work::DlrmOptions::batches)
      .def_rw("asynchronous", &work::DlrmOptions::async)
      .def_rw("most_rows", &work::DlrmOptions::most_rows)
      .def_rw("clicks", &work::DlrmOptions::clicks)
      .def_rw("seed", &work::DlrmOptions::seed)
      .def_prop_rw(
          "embedding_dim", [](const work::DlrmOptions& options) { return options.model.embedding_dim; },
          [](work::DlrmOptions& options, std::uint32_t floats) { options.model.embedding_dim = floats; });
  m.def("gpu_dlrm_options", [](unsigned config) {
    work::DlrmOptions options;
    options.model = work::dlrm_config(config);
    return options;
  });
  nb::class_<work::ElementOptions>(m, "GpuElementOptions")
      .def(nb::init<>())
      .def_rw("access", &work::ElementOptions::access)
      .def_rw("ssd", &work::ElementOptions::ssd)
      .def_rw("element_bytes", &work::ElementOptions::element_bytes);
}

void bind_results(nb::module_& m) {
  nb::class_<work::CacheFigures>(m, "CacheFigures")
      .def_ro("hits", &work::CacheFigures::hits)
      .def_ro("misses", &work::CacheFigures::misses)
      .def_ro("evictions", &work::CacheFigures::evictions)
      .def_ro("write_backs", &work::CacheFigures::write_backs)
      .def_ro("waits", &work::CacheFigures::waits);
  nb::class_<work::Outcome>(m, "GpuOutcome")
      .def_ro("verified", &work::Outcome::verified)
      .def_ro("mismatches", &work::Outcome::mismatches)
      .def_ro("max_error", &work::Outcome::max_error)
      .def_ro("io_errors", &work::Outcome::io_errors)
      .def_ro("duration_ns", &work::Outcome::duration_ns)
      .def_ro("commands", &work::Outcome::commands)
      .def_ro("cache", &work::Outcome::cache)
      .def_ro("backend", &work::Outcome::backend);
  nb::class_<work::MeanResult, work::Outcome>(m, "GpuMeanResult").def_ro("mean", &work::MeanResult::mean);
  nb::class_<work::BfsResult, work::Outcome>(m, "GpuBfsResult")
      .def_ro("source", &work::BfsResult::source)
      .def_ro("depth", &work::BfsResult::depth)
      .def_ro("reached", &work::BfsResult::reached)
      .def_prop_ro(
          "levels", [](const work::BfsResult& result) { return answer(result.levels); }, nb::rv_policy::automatic);
  nb::class_<work::SpmvResult, work::Outcome>(m, "GpuSpmvResult")
      .def_prop_ro("y", [](const work::SpmvResult& result) { return answer(result.y); }, nb::rv_policy::automatic);
  nb::class_<work::PagerankResult, work::Outcome>(m, "GpuPagerankResult")
      .def_prop_ro(
          "ranks", [](const work::PagerankResult& result) { return answer(result.ranks); }, nb::rv_policy::automatic);
  nb::class_<work::CtcPoint>(m, "GpuCtcPoint")
      .def_ro("ratio", &work::CtcPoint::ratio)
      .def_ro("sync_ns", &work::CtcPoint::sync_ns)
      .def_ro("async_ns", &work::CtcPoint::async_ns)
      .def_ro("speedup", &work::CtcPoint::speedup)
      .def_ro("ideal", &work::CtcPoint::ideal);
  nb::class_<work::CtcResult, work::Outcome>(m, "GpuCtcResult")
      .def_ro("communication_ns", &work::CtcResult::communication_ns)
      .def_ro("points", &work::CtcResult::points)
      .def_ro("peak_speedup", &work::CtcResult::peak_speedup)
      .def_ro("worst_deviation", &work::CtcResult::worst_deviation);
  nb::class_<work::RandomIoResult, work::Outcome>(m, "GpuRandomIoResult")
      .def_ro("iops", &work::RandomIoResult::iops)
      .def_ro("bytes_per_s", &work::RandomIoResult::bytes_per_s);
  nb::class_<work::DlrmResult, work::Outcome>(m, "GpuDlrmResult")
      .def_ro("products", &work::DlrmResult::products)
      .def_ro("samples", &work::DlrmResult::samples)
      .def_prop_ro(
          "scores", [](const work::DlrmResult& result) { return answer(result.scores); }, nb::rv_policy::automatic);
}

void bind_graph(nb::module_& m) {
  nb::class_<work::Csr>(m, "GpuGraph")
      .def(nb::new_(&make_csr), nb::arg("offsets"), nb::arg("targets"), nb::arg("weights"))
      .def_prop_ro("vertices", &work::Csr::vertices)
      .def_prop_ro("edges", &work::Csr::edges)
      .def_prop_ro(
          "offsets", [](const work::Csr& graph) { return answer(graph.offsets); }, nb::rv_policy::automatic)
      .def_prop_ro(
          "targets", [](const work::Csr& graph) { return answer(graph.targets); }, nb::rv_policy::automatic)
      .def_prop_ro(
          "weights", [](const work::Csr& graph) { return answer(graph.weights); }, nb::rv_policy::automatic)
      .def("busiest_vertex", &work::busiest_vertex);
  m.def("gpu_make_graph", &draw_graph, nb::arg("kind"), nb::arg("scale"), nb::arg("degree"), nb::arg("seed"), NoGil());
}

}  // namespace

void bind_gpu_workloads(nb::module_& m) {
  bind_options(m);
  bind_results(m);
  bind_graph(m);
  m.def("gpu_run_mean", &work::run_mean, nb::arg("gpu"), nb::arg("options"), NoGil());
  m.def("gpu_run_bfs", &work::run_bfs, nb::arg("gpu"), nb::arg("graph"), nb::arg("source"), nb::arg("options"),
        NoGil());
  m.def(
      "gpu_run_spmv",
      [](gpu::Gpu& gpu, const work::Csr& graph, const Numbers<float>& x, const work::AccessOptions& options) {
        const std::vector<float> vector = copy_of(x);
        const nb::gil_scoped_release release;
        return work::run_spmv(gpu, graph, vector, options);
      },
      nb::arg("gpu"), nb::arg("graph"), nb::arg("x"), nb::arg("options"));
  m.def("gpu_run_pagerank", &work::run_pagerank, nb::arg("gpu"), nb::arg("graph"), nb::arg("options"), NoGil());
  m.def("gpu_run_ctc", &work::run_ctc, nb::arg("gpu"), nb::arg("options"), NoGil());
  m.def("gpu_run_random_io", &work::run_random_io, nb::arg("gpu"), nb::arg("options"), NoGil());
  m.def("gpu_run_dlrm", &work::run_dlrm, nb::arg("gpu"), nb::arg("options"), NoGil());
  m.def(
      "gpu_gather",
      [](gpu::Gpu& gpu, const work::ElementOptions& options, const Numbers<std::uint64_t>& indices,
         std::uint64_t address) {
        const nb::gil_scoped_release release;
        return work::gather(gpu, options, indices.data(), indices.size(), reinterpret_cast<void*>(address));
      },
      nb::arg("gpu"), nb::arg("options"), nb::arg("indices"), nb::arg("address"));
  m.def(
      "gpu_scatter",
      [](gpu::Gpu& gpu, const work::ElementOptions& options, const Numbers<std::uint64_t>& indices,
         std::uint64_t address) {
        const nb::gil_scoped_release release;
        return work::scatter(gpu, options, indices.data(), indices.size(), reinterpret_cast<const void*>(address));
      },
      nb::arg("gpu"), nb::arg("options"), nb::arg("indices"), nb::arg("address"));
  nb::class_<work::BlockMove>(m, "GpuBlockMove")
      .def("done", &work::BlockMove::done, NoGil())
      .def("wait", &work::BlockMove::wait, NoGil());
  m.def(
      "gpu_move_blocks",
      [](gpu::Gpu& gpu, bool write, std::uint32_t ssd, std::uint32_t ns, const Numbers<std::uint64_t>& lbas,
         std::uint32_t blocks, std::uint64_t address, std::optional<std::uint64_t> stream) {
        const nb::gil_scoped_release release;
        const gpu::simt::CudaStream named{reinterpret_cast<void*>(stream.value_or(0))};
        const gpu::simt::CudaStream* const in = stream ? &named : nullptr;
        void* const data = reinterpret_cast<void*>(address);
        const work::BlockOptions options{ssd, ns, blocks};
        return write ? work::scatter_blocks_async(gpu, options, lbas.data(), lbas.size(), data, in)
                     : work::gather_blocks_async(gpu, options, lbas.data(), lbas.size(), data, in);
      },
      nb::arg("gpu"), nb::arg("write"), nb::arg("ssd"), nb::arg("namespace_"), nb::arg("lbas"), nb::arg("blocks"),
      nb::arg("address"), nb::arg("stream").none(), nb::keep_alive<0, 1>());
}

}  // namespace flashmob::bindings
