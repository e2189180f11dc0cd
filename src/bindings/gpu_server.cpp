// flashmob/gpu_server.h for Python: a GPU engine served to other processes. Everything that waits releases the GIL.
#include "flashmob/gpu_server.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace flashmob::bindings {
namespace {

// As python/flashmob/gpu/serve.py has it in its classes, name for name.
nb::dict client_of(const gpu::GpuServerClient& client) {
  nb::dict out;
  out["client"] = client.client;
  out["pid"] = client.pid;
  out["queues"] = client.queues;
  out["mapped_bytes"] = client.mapped_bytes;
  out["read_commands"] = client.read_commands;
  out["write_commands"] = client.write_commands;
  out["read_bytes"] = client.read_bytes;
  out["written_bytes"] = client.written_bytes;
  return out;
}

nb::dict stats_of(const gpu::GpuServer& server) {
  const gpu::GpuServerStats stats = server.stats();
  nb::list clients;
  for (const gpu::GpuServerClient& client : stats.clients) clients.append(client_of(client));
  nb::dict out;
  out["uptime_s"] = stats.uptime_s;
  out["clients"] = clients;
  out["clients_seen"] = stats.clients_seen;
  out["clients_refused"] = stats.clients_refused;
  out["completions"] = stats.completions;
  out["mean_lateness_ns"] = stats.mean_lateness_ns;
  out["last_event"] = stats.last_event;
  out["lost"] = stats.lost;
  return out;
}

}  // namespace

void bind_gpu_server(nb::module_& m) {
  using NoGil = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<gpu::GpuServer>(m, "GpuServer")
      .def("stop", &gpu::GpuServer::stop, NoGil())
      .def("stats", &stats_of)
      .def("engine", &gpu::GpuServer::engine, nb::rv_policy::copy)
      .def("address", &gpu::GpuServer::address);
  m.def("gpu_serve", &gpu::serve, nb::arg("device"), nb::arg("path"), nb::arg("backend"), NoGil());
}

}  // namespace flashmob::bindings
