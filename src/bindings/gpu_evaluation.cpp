// The GPU engine's evaluation for Python (gpu/evaluation/evaluation.h). Everything that runs kernels releases the GIL.
#include "evaluation/evaluation.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace flashmob::bindings {

void bind_gpu_evaluation(nb::module_& m) {
  using namespace gpu::evaluation;
  using NoGil = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<PointOptions>(m, "GpuPointOptions")
      .def(nb::init<>())
      .def_rw("threads", &PointOptions::threads)
      .def_rw("queues", &PointOptions::queues)
      .def_rw("entries", &PointOptions::entries)
      .def_rw("bytes", &PointOptions::bytes)
      .def_rw("seed", &PointOptions::seed)
      .def_rw("iops", &PointOptions::iops)
      .def_rw("latency_ns", &PointOptions::latency_ns)
      .def_rw("media", &PointOptions::media)
      .def_rw("media_bytes", &PointOptions::media_bytes)
      .def_rw("units", &PointOptions::units)
      .def_rw("movers", &PointOptions::movers)
      .def_rw("fetch_batch", &PointOptions::fetch_batch)
      .def_rw("per_request_updates", &PointOptions::per_request_updates)
      .def_rw("statistics", &PointOptions::statistics)
      .def_rw("service_warps", &PointOptions::service_warps)
      .def_rw("ramp_ns", &PointOptions::ramp_ns)
      .def_rw("measure_ns", &PointOptions::measure_ns);
  nb::class_<PointReport>(m, "GpuPointReport")
      .def_ro("result", &PointReport::result)
      .def_ro("engine", &PointReport::engine);
  nb::class_<Evaluation>(m, "GpuEvaluation")
      .def("describe", &Evaluation::describe)
      .def("multiprocessors", &Evaluation::multiprocessors)
      .def("run", &Evaluation::run, nb::arg("options"), nb::arg("command"), NoGil())
      .def("media_limit", &Evaluation::media_limit, nb::arg("media"), nb::arg("media_bytes"), nb::arg("stripe_bytes"),
           NoGil());
  m.def("gpu_open_evaluation", &Evaluation::open, nb::arg("backend"), NoGil());
}

}  // namespace flashmob::bindings
