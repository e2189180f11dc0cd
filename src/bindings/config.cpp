// flashmob/config.h for Python: plain attributes with the same names.
#include "flashmob/config.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "flashmob/faults.h"

namespace nb = nanobind;

namespace flashmob::bindings {

namespace {

// [timing.nand], [subsystem.placement], or a namespace's table `zoned` or `kv`, as a dict with its keys.
template <class Config>
nb::dict dict_of(const Config& config) {
  nb::dict values;
  for_each_key(config, [&values](const char* key, const auto& value) { values[key] = nb::cast(value); });
  return values;
}

// Of the keys that are there.
template <class Config>
void set_from(Config& config, const nb::dict& values) {
  for_each_key(config, [&values]<class Value>(const char* key, Value& value) {
    if (values.contains(key)) value = nb::cast<Value>(values[key]);
  });
}

}  // namespace

void bind_config(nb::module_& m) {
  nb::class_<TimingConfig>(m, "TimingConfig")
      .def(nb::init<>())
      .def_rw("model", &TimingConfig::model)
      .def_rw("read_iops", &TimingConfig::read_iops)
      .def_rw("write_iops", &TimingConfig::write_iops)
      .def_rw("read_latency_ns", &TimingConfig::read_latency_ns)
      .def_rw("write_latency_ns", &TimingConfig::write_latency_ns)
      .def_rw("instances", &TimingConfig::instances)
      .def_rw("unit_bytes", &TimingConfig::unit_bytes)
      .def_rw("read_bytes_per_s", &TimingConfig::read_bytes_per_s)
      .def_rw("write_bytes_per_s", &TimingConfig::write_bytes_per_s)
      .def_rw("link_bytes_per_s", &TimingConfig::link_bytes_per_s)
      .def_rw("path_ns", &TimingConfig::path_ns)
      .def_rw("per_request_updates", &TimingConfig::per_request_updates)
      .def_prop_rw(
          "nand", [](const TimingConfig& timing) { return dict_of(timing.nand); },
          [](TimingConfig& timing, const nb::dict& values) { set_from(timing.nand, values); })
      .def("validate", &TimingConfig::validate);
  nb::class_<NamespaceConfig>(m, "NamespaceConfig")
      .def(nb::init<>())
      .def_rw("size_bytes", &NamespaceConfig::size_bytes)
      .def_rw("lba_bytes", &NamespaceConfig::lba_bytes)
      .def_rw("media", &NamespaceConfig::media)
      .def_rw("command_set", &NamespaceConfig::command_set)
      .def_prop_rw(
          "zoned", [](const NamespaceConfig& ns) { return dict_of(ns.zoned); },
          [](NamespaceConfig& ns, const nb::dict& values) { set_from(ns.zoned, values); })
      .def_prop_rw(
          "kv", [](const NamespaceConfig& ns) { return dict_of(ns.kv); },
          [](NamespaceConfig& ns, const nb::dict& values) { set_from(ns.kv, values); })
      .def_rw("placement_handles", &NamespaceConfig::placement_handles)
      .def_rw("shared", &NamespaceConfig::shared)
      .def_rw("cache_bytes", &NamespaceConfig::cache_bytes);
  nb::class_<SubsystemConfig>(m, "SubsystemConfig")
      .def(nb::init<>())
      .def_rw("nqn", &SubsystemConfig::nqn)
      .def_rw("serial", &SubsystemConfig::serial)
      .def_rw("model", &SubsystemConfig::model)
      .def_rw("firmware", &SubsystemConfig::firmware)
      .def_rw("spare_capacity_bytes", &SubsystemConfig::spare_capacity_bytes)
      .def_prop_rw(
          "placement", [](const SubsystemConfig& subsystem) { return dict_of(subsystem.placement); },
          [](SubsystemConfig& subsystem, const nb::dict& values) { set_from(subsystem.placement, values); })
      .def_rw("namespaces", &SubsystemConfig::namespaces)
      .def("validate", &SubsystemConfig::validate);
  nb::class_<ControllerConfig>(m, "ControllerConfig")
      .def(nb::init<>())
      .def_rw("max_queue_pairs", &ControllerConfig::max_queue_pairs)
      .def_rw("max_queue_entries", &ControllerConfig::max_queue_entries)
      .def_rw("max_transfer_bytes", &ControllerConfig::max_transfer_bytes)
      .def_rw("interrupt_vectors", &ControllerConfig::interrupt_vectors)
      .def_rw("max_append_bytes", &ControllerConfig::max_append_bytes)
      .def_rw("volatile_write_cache", &ControllerConfig::volatile_write_cache)
      .def_rw("abort_limit", &ControllerConfig::abort_limit)
      .def_rw("async_event_limit", &ControllerConfig::async_event_limit)
      .def("validate", &ControllerConfig::validate);
  nb::class_<EngineConfig>(m, "EngineConfig")
      .def(nb::init<>())
      .def_rw("kind", &EngineConfig::kind)
      .def_rw("sms", &EngineConfig::sms)
      .def_rw("gpu_media", &EngineConfig::gpu_media)
      .def_rw("units", &EngineConfig::units)
      .def_rw("workers", &EngineConfig::workers)
      .def_rw("fetch_limit", &EngineConfig::fetch_limit)
      .def_rw("cores", &EngineConfig::cores)
      .def_rw("copy", &EngineConfig::copy)
      .def_rw("idle_spin_ns", &EngineConfig::idle_spin_ns)
      .def_rw("idle_sleep_ns", &EngineConfig::idle_sleep_ns)
      .def_rw("move_data", &EngineConfig::move_data)
      .def_rw("wheel_shift", &EngineConfig::wheel_shift)
      .def("validate", &EngineConfig::validate);
  nb::class_<FidelityConfig>(m, "FidelityConfig")
      .def(nb::init<>())
      .def_rw("max_iops_error", &FidelityConfig::max_iops_error)
      .def_rw("max_error_ns", &FidelityConfig::max_error_ns)
      .def_rw("max_error_share", &FidelityConfig::max_error_share)
      .def_rw("gap_ns", &FidelityConfig::gap_ns)
      .def("validate", &FidelityConfig::validate);
  nb::class_<FaultCount>(m, "FaultCount")
      .def_ro("rule", &FaultCount::rule)
      .def_ro("matched", &FaultCount::matched)
      .def_ro("injected", &FaultCount::injected);
  m.def("check_faults", &check_faults, nb::arg("rules"));
  nb::class_<DeviceConfig>(m, "DeviceConfig")
      .def(nb::init<>())
      .def_rw("profile", &DeviceConfig::profile)
      .def_rw("seed", &DeviceConfig::seed)
      .def_rw("subsystem", &DeviceConfig::subsystem)
      .def_rw("controller", &DeviceConfig::controller)
      .def_rw("timing", &DeviceConfig::timing)
      .def_rw("engine", &DeviceConfig::engine)
      .def_rw("fidelity", &DeviceConfig::fidelity)
      .def_rw("faults", &DeviceConfig::faults)
      .def("validate", &DeviceConfig::validate);
  m.def("on_gpu_engine", &on_gpu_engine, nb::arg("config"), nb::arg("sms"));
}

}  // namespace flashmob::bindings
