// flashmob/bench.h for Python, and machine_info(). Bench.run releases the GIL.
#include "flashmob/bench.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "flashmob/machine.h"

namespace nb = nanobind;

namespace flashmob::bindings {
namespace {

nb::dict machine_info_dict() {
  const MachineInfo machine = machine_info();
  nb::dict info;
  info["cpu"] = machine.cpu;
  info["kernel"] = machine.kernel;
  info["cores"] = machine.cores;
  info["tsc_ghz"] = machine.tsc_ghz;
  info["invariant_tsc"] = machine.invariant_tsc;
  info["features"] = machine.features;
  info["hugepages"] = machine.hugepages;
  info["isolated_cores"] = machine.isolated_cores;
  return info;
}

}  // namespace

void bind_bench(nb::module_& m) {
  nb::class_<BlockSizeShare>(m, "BlockSizeShare")
      .def(nb::init<>())
      .def_rw("bytes", &BlockSizeShare::bytes)
      .def_rw("weight", &BlockSizeShare::weight);
  nb::class_<BenchOptions>(m, "BenchOptions")
      .def(nb::init<>())
      .def_rw("target", &BenchOptions::target)
      .def_rw("allow_writes", &BenchOptions::allow_writes)
      .def_rw("host_nqn", &BenchOptions::host_nqn)
      .def_rw("host_key", &BenchOptions::host_key)
      .def_rw("controller_key", &BenchOptions::controller_key)
      .def_rw("tls_key", &BenchOptions::tls_key)
      .def_rw("secure_channel", &BenchOptions::secure_channel)
      .def_rw("header_digest", &BenchOptions::header_digest)
      .def_rw("data_digest", &BenchOptions::data_digest)
      .def_rw("rw", &BenchOptions::rw)
      .def_rw("read_share", &BenchOptions::read_share)
      .def_rw("block_sizes", &BenchOptions::block_sizes)
      .def_rw("distribution", &BenchOptions::distribution)
      .def_rw("queues", &BenchOptions::queues)
      .def_rw("queue_depth", &BenchOptions::queue_depth)
      .def_rw("completion", &BenchOptions::completion)
      .def_rw("requesters", &BenchOptions::requesters)
      .def_rw("queue_entries", &BenchOptions::queue_entries)
      .def_rw("rate_iops", &BenchOptions::rate_iops)
      .def_rw("arrivals", &BenchOptions::arrivals)
      .def_rw("think_time_ns", &BenchOptions::think_time_ns)
      .def_rw("threads", &BenchOptions::threads)
      .def_rw("ramp_ns", &BenchOptions::ramp_ns)
      .def_rw("runtime_ns", &BenchOptions::runtime_ns)
      .def_rw("ios", &BenchOptions::ios)
      .def_rw("verify_percent", &BenchOptions::verify_percent)
      .def_rw("fill", &BenchOptions::fill)
      .def_rw("precondition", &BenchOptions::precondition)
      .def_rw("placement", &BenchOptions::placement)
      .def_rw("trace_path", &BenchOptions::trace_path)
      .def_rw("trace_format", &BenchOptions::trace_format)
      .def_rw("trace_disk", &BenchOptions::trace_disk)
      .def_rw("trace_as_fast", &BenchOptions::trace_as_fast)
      .def_rw("trace_sizes_namespace", &BenchOptions::trace_sizes_namespace)
      .def_rw("clock", &BenchOptions::clock)
      .def_rw("virtual_poll_ns", &BenchOptions::virtual_poll_ns)
      .def_rw("cores", &BenchOptions::cores)
      .def_rw("command", &BenchOptions::command);
  nb::class_<BenchProgress>(m, "BenchProgress")
      .def_ro("phase", &BenchProgress::phase)
      .def_ro("phase_fraction", &BenchProgress::phase_fraction)
      .def_ro("ios", &BenchProgress::ios)
      .def_ro("iops", &BenchProgress::iops)
      .def_ro("mean_latency_ns", &BenchProgress::mean_latency_ns)
      .def_ro("fill_bytes", &BenchProgress::fill_bytes)
      .def_ro("fill_total_bytes", &BenchProgress::fill_total_bytes)
      .def_ro("mean_lateness_ns", &BenchProgress::mean_lateness_ns)
      .def_ro("verify_errors", &BenchProgress::verify_errors);
  nb::class_<Bench>(m, "Bench")
      .def(nb::init<const DeviceConfig&, const BenchOptions&>(), nb::arg("device"), nb::arg("options"))
      .def("run", &Bench::run, nb::call_guard<nb::gil_scoped_release>())
      .def("progress", &Bench::progress)
      .def("cancel", &Bench::cancel);
  m.def("machine_info", &machine_info_dict);
  m.def("free_memory_bytes", &free_memory_bytes, nb::arg("root") = "/");
  m.def(
      "container_limits",
      [](const std::string& root) {
        const ContainerLimits limits = container_limits(root);
        return std::pair(limits.cores, limits.memory_bytes);
      },
      nb::arg("root") = "/");
}

}  // namespace flashmob::bindings
