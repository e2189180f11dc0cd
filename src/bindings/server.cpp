// flashmob/server.h for Python. start(), stop() and stats() release the GIL.
#include "flashmob/server.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace flashmob::bindings {
namespace {

// A HostRule in Python.
using PlainRule = std::tuple<std::string, std::string, std::vector<std::uint32_t>>;

void bind_stats(nb::module_& m) {
  nb::class_<IoRates>(m, "IoRates")
      .def_ro("iops", &IoRates::iops)
      .def_ro("read_iops", &IoRates::read_iops)
      .def_ro("write_iops", &IoRates::write_iops)
      .def_ro("read_bytes_per_s", &IoRates::read_bytes_per_s)
      .def_ro("written_bytes_per_s", &IoRates::written_bytes_per_s);
  nb::class_<HostStats, IoRates>(m, "HostStats")
      .def_ro("door", &HostStats::door)
      .def_ro("host", &HostStats::host)
      .def_ro("controller_id", &HostStats::controller_id)
      .def_ro("state", &HostStats::state)
      .def_ro("queues", &HostStats::queues)
      .def_ro("read_commands", &HostStats::read_commands)
      .def_ro("write_commands", &HostStats::write_commands)
      .def_ro("read_bytes", &HostStats::read_bytes)
      .def_ro("written_bytes", &HostStats::written_bytes);
  nb::class_<LeftHosts, IoRates>(m, "LeftHosts").def_ro("count", &LeftHosts::count);
  nb::class_<TimeFigures>(m, "TimeFigures")
      .def_ro("mean_ns", &TimeFigures::mean_ns)
      .def_ro("p50_ns", &TimeFigures::p50_ns)
      .def_ro("p99_ns", &TimeFigures::p99_ns)
      .def_ro("p999_ns", &TimeFigures::p999_ns);
  nb::class_<ServerStats, IoRates>(m, "ServerStats")
      .def_ro("uptime_s", &ServerStats::uptime_s)
      .def_ro("interval_s", &ServerStats::interval_s)
      .def_ro("hosts", &ServerStats::hosts)
      .def_ro("leases", &ServerStats::leases)
      .def_ro("left", &ServerStats::left)
      .def_ro("queue_depth", &ServerStats::queue_depth)
      .def_ro("latency", &ServerStats::latency)
      .def_ro("target", &ServerStats::target)
      .def_ro("lateness", &ServerStats::lateness)
      .def_ro("error_bound", &ServerStats::error_bound)
      .def_ro("door_delay", &ServerStats::door_delay)
      .def_ro("backlog_share", &ServerStats::backlog_share)
      .def_ro("busy_share", &ServerStats::busy_share)
      .def_ro("door_busy_share", &ServerStats::door_busy_share)
      .def_ro("verdict", &ServerStats::verdict)
      .def_ro("verdict_cause", &ServerStats::verdict_cause)
      .def_ro("tolerance_share", &ServerStats::tolerance_share)
      .def_ro("completions", &ServerStats::completions)
      .def_ro("read_commands", &ServerStats::read_commands)
      .def_ro("write_commands", &ServerStats::write_commands)
      .def_ro("read_bytes", &ServerStats::read_bytes)
      .def_ro("written_bytes", &ServerStats::written_bytes)
      .def_ro("hosts_seen", &ServerStats::hosts_seen)
      .def_ro("total_latency", &ServerStats::total_latency)
      .def_ro("total_lateness", &ServerStats::total_lateness)
      .def_ro("total_error_bound", &ServerStats::total_error_bound)
      .def_ro("total_door_delay", &ServerStats::total_door_delay)
      .def_ro("lateness_max_ns", &ServerStats::lateness_max_ns)
      .def_ro("gap_count", &ServerStats::gap_count)
      .def_ro("gap_longest_ns", &ServerStats::gap_longest_ns)
      .def_ro("faults", &ServerStats::faults)
      .def_ro("verdict_so_far", &ServerStats::verdict_so_far)
      .def_ro("verdict_so_far_cause", &ServerStats::verdict_so_far_cause)
      .def_ro("tolerance_share_so_far", &ServerStats::tolerance_share_so_far);
}

void bind_leases(nb::module_& m) {
  nb::class_<LeaseOptions>(m, "LeaseOptions")
      .def(nb::init<>())
      .def_rw("name", &LeaseOptions::name)
      .def_rw("vfio_user_path", &LeaseOptions::vfio_user_path)
      .def_rw("nqn", &LeaseOptions::nqn)
      .def_rw("serial", &LeaseOptions::serial)
      .def_rw("nsid", &LeaseOptions::nsid)
      .def_rw("first_byte", &LeaseOptions::first_byte)
      .def_rw("size_bytes", &LeaseOptions::size_bytes)
      .def_rw("queue_pairs", &LeaseOptions::queue_pairs)
      .def_rw("is_read_only", &LeaseOptions::is_read_only)
      .def_rw("max_commands_per_s", &LeaseOptions::max_commands_per_s)
      .def_rw("max_bytes_per_s", &LeaseOptions::max_bytes_per_s)
      .def_rw("uid", &LeaseOptions::uid);
  nb::class_<LeaseStats>(m, "LeaseStats")
      .def_ro("name", &LeaseStats::name)
      .def_ro("uid", &LeaseStats::uid)
      .def_ro("nsid", &LeaseStats::nsid)
      .def_ro("first_byte", &LeaseStats::first_byte)
      .def_ro("size_bytes", &LeaseStats::size_bytes)
      .def_ro("queue_pairs", &LeaseStats::queue_pairs)
      .def_ro("is_read_only", &LeaseStats::is_read_only)
      .def_ro("is_attached", &LeaseStats::is_attached)
      .def_ro("attached_ever", &LeaseStats::attached_ever)
      .def_ro("refused", &LeaseStats::refused)
      .def_ro("read_commands", &LeaseStats::read_commands)
      .def_ro("write_commands", &LeaseStats::write_commands)
      .def_ro("read_bytes", &LeaseStats::read_bytes)
      .def_ro("written_bytes", &LeaseStats::written_bytes);
}

}  // namespace

void bind_server(nb::module_& m) {
  nb::class_<HostSecret>(m, "HostSecret")
      .def(nb::init<>())
      .def_rw("host_nqn", &HostSecret::host_nqn)
      .def_rw("host_key", &HostSecret::host_key)
      .def_rw("controller_key", &HostSecret::controller_key)
      .def_rw("tls_key", &HostSecret::tls_key);
  nb::class_<ServerOptions>(m, "ServerOptions")
      .def(nb::init<>())
      .def_rw("lends", &ServerOptions::lends)
      .def_rw("vfio_user_path", &ServerOptions::vfio_user_path)
      .def_rw("vfio_user_mode", &ServerOptions::vfio_user_mode)
      .def_rw("tcp_address", &ServerOptions::tcp_address)
      .def_rw("host_nqns", &ServerOptions::host_nqns)
      .def_rw("host_secrets", &ServerOptions::host_secrets)
      .def_rw("vfio_user_allow", &ServerOptions::vfio_user_allow)
      .def_rw("tcp_allow", &ServerOptions::tcp_allow)
      .def_prop_rw(
          "host_rules",
          [](const ServerOptions& options) {
            std::vector<PlainRule> plain;
            for (const HostRule& rule : options.host_rules)
              plain.emplace_back(rule.host_nqn, rule.allow, rule.namespaces);
            return plain;
          },
          [](ServerOptions& options, const std::vector<PlainRule>& plain) {
            options.host_rules.clear();
            for (const auto& [nqn, allow, namespaces] : plain) options.host_rules.push_back({nqn, allow, namespaces});
          })
      .def_rw("tls", &ServerOptions::tls)
      .def_rw("tls_key", &ServerOptions::tls_key);
  bind_stats(m);
  bind_leases(m);
  nb::class_<Server>(m, "Server")
      .def(nb::init<const DeviceConfig&, const ServerOptions&>(), nb::arg("device"), nb::arg("options"))
      .def("start", &Server::start, nb::call_guard<nb::gil_scoped_release>())
      .def("stop", &Server::stop, nb::call_guard<nb::gil_scoped_release>())
      .def("stats", &Server::stats, nb::call_guard<nb::gil_scoped_release>())
      .def("set_faults", &Server::set_faults, nb::arg("rules"))
      .def("open_lease", &Server::open_lease, nb::arg("options"), nb::call_guard<nb::gil_scoped_release>())
      .def("close_lease", &Server::close_lease, nb::arg("name"), nb::call_guard<nb::gil_scoped_release>())
      .def("leases", &Server::leases, nb::call_guard<nb::gil_scoped_release>())
      .def("namespace_bytes", &Server::namespace_bytes, nb::arg("nsid"))
      .def("addresses", &Server::addresses);
}

}  // namespace flashmob::bindings
