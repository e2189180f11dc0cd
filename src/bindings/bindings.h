// The parts of the Python module, one per public header.
#pragma once

#include <nanobind/nanobind.h>

namespace flashmob::bindings {

void bind_config(nanobind::module_& module);
void bind_bench(nanobind::module_& module);
void bind_interfaces(nanobind::module_& module);
void bind_extents(nanobind::module_& module);
void bind_file_reads(nanobind::module_& module);
void bind_server(nanobind::module_& module);
void bind_ssd(nanobind::module_& module);
void bind_gpu(nanobind::module_& module);
void bind_gpu_server(nanobind::module_& module);
void bind_gpu_workloads(nanobind::module_& module);
void bind_gpu_evaluation(nanobind::module_& module);

}  // namespace flashmob::bindings
