// flashmob/interfaces.h for Python. InterfaceRun.run and create_interface_file release the GIL.
#include "flashmob/interfaces.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace flashmob::bindings {

void bind_interfaces(nb::module_& m) {
  nb::class_<InterfaceOptions>(m, "InterfaceOptions")
      .def(nb::init<>())
      .def_rw("interface_name", &InterfaceOptions::interface_name)
      .def_rw("path", &InterfaceOptions::path)
      .def_rw("rw", &InterfaceOptions::rw)
      .def_rw("block_bytes", &InterfaceOptions::block_bytes)
      .def_rw("depth", &InterfaceOptions::depth)
      .def_rw("threads", &InterfaceOptions::threads)
      .def_rw("direct", &InterfaceOptions::direct)
      .def_rw("allow_writes", &InterfaceOptions::allow_writes)
      .def_rw("verify", &InterfaceOptions::verify)
      .def_rw("seed", &InterfaceOptions::seed)
      .def_rw("ramp_ns", &InterfaceOptions::ramp_ns)
      .def_rw("runtime_ns", &InterfaceOptions::runtime_ns)
      .def_rw("ios", &InterfaceOptions::ios);
  nb::class_<InterfaceInfo>(m, "InterfaceInfo")
      .def_ro("name", &InterfaceInfo::name)
      .def_ro("submission", &InterfaceInfo::submission)
      .def_ro("completion", &InterfaceInfo::completion)
      .def_ro("is_synchronous", &InterfaceInfo::is_synchronous);
  m.def("kernel_interfaces", &kernel_interfaces);
  m.def("create_interface_file", &create_interface_file, nb::arg("path"), nb::arg("size_bytes"), nb::arg("seed"),
        nb::call_guard<nb::gil_scoped_release>());
  nb::class_<InterfaceRun>(m, "InterfaceRun")
      .def(nb::init<const InterfaceOptions&>(), nb::arg("options"))
      .def("run", &InterfaceRun::run, nb::call_guard<nb::gil_scoped_release>())
      .def("cancel", &InterfaceRun::cancel);
}

}  // namespace flashmob::bindings
