// The Python module flashmob._core: the public C++ API, name for name (python/flashmob/_core.pyi describes it).
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "flashmob/error.h"
#include "flashmob/gpu.h"

NB_MODULE(_core, module) {
  module.attr("__version__") = FLASHMOB_VERSION;
  nanobind::exception<flashmob::ConfigError>(module, "ConfigError", PyExc_ValueError);
  flashmob::gpu::enable_engine();
  flashmob::bindings::bind_config(module);
  flashmob::bindings::bind_bench(module);
  flashmob::bindings::bind_interfaces(module);
  flashmob::bindings::bind_extents(module);
  flashmob::bindings::bind_server(module);
  flashmob::bindings::bind_ssd(module);
  flashmob::bindings::bind_file_reads(module);
  flashmob::bindings::bind_gpu(module);
  flashmob::bindings::bind_gpu_server(module);
  flashmob::bindings::bind_gpu_workloads(module);
  flashmob::bindings::bind_gpu_evaluation(module);
}
