// flashmob/config.h for Python: plain attributes with the same names.
#include "flashmob/config.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>

#include "bindings/bindings.h"
#include "flashmob/config_text.h"
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

// All keys of a table as attributes of their names.
template <class Config>
nb::class_<Config> bind_table(nb::module_& m, const char* name) {
  nb::class_<Config> bound(m, name);
  bound.def(nb::init<>());
  if constexpr (requires(const Config& config) { config.validate(); }) bound.def("validate", &Config::validate);
  Config one;
  for_each_key(one, [&]<class Value>(const char* key, Value& value) {
    // Where it lies in any other.
    const auto offset = reinterpret_cast<std::byte*>(&value) - reinterpret_cast<std::byte*>(&one);
    const auto in = [offset](Config& config) -> Value& {
      return *reinterpret_cast<Value*>(reinterpret_cast<std::byte*>(&config) + offset);
    };
    bound.def_prop_rw(
        key, [in](Config& config) { return in(config); },
        [in](Config& config, const Value& wanted) { in(config) = wanted; });
  });
  return bound;
}

}  // namespace

void bind_config(nb::module_& m) {
  bind_table<TimingConfig>(m, "TimingConfig")
      .def_prop_rw(
          "nand", [](const TimingConfig& timing) { return dict_of(timing.nand); },
          [](TimingConfig& timing, const nb::dict& values) { set_from(timing.nand, values); });
  bind_table<NamespaceConfig>(m, "NamespaceConfig")
      .def_prop_rw(
          "zoned", [](const NamespaceConfig& ns) { return dict_of(ns.zoned); },
          [](NamespaceConfig& ns, const nb::dict& values) { set_from(ns.zoned, values); })
      .def_prop_rw(
          "kv", [](const NamespaceConfig& ns) { return dict_of(ns.kv); },
          [](NamespaceConfig& ns, const nb::dict& values) { set_from(ns.kv, values); });
  bind_table<SubsystemConfig>(m, "SubsystemConfig")
      .def_prop_rw(
          "placement", [](const SubsystemConfig& subsystem) { return dict_of(subsystem.placement); },
          [](SubsystemConfig& subsystem, const nb::dict& values) { set_from(subsystem.placement, values); })
      .def_rw("namespaces", &SubsystemConfig::namespaces);
  bind_table<ControllerConfig>(m, "ControllerConfig");
  bind_table<EngineConfig>(m, "EngineConfig");
  bind_table<FidelityConfig>(m, "FidelityConfig");
  nb::class_<FaultCount>(m, "FaultCount")
      .def_ro("rule", &FaultCount::rule)
      .def_ro("matched", &FaultCount::matched)
      .def_ro("injected", &FaultCount::injected);
  m.def("check_faults", &check_faults, nb::arg("rules"));
  bind_table<DeviceConfig>(m, "DeviceConfig")
      .def_rw("subsystem", &DeviceConfig::subsystem)
      .def_rw("controller", &DeviceConfig::controller)
      .def_rw("timing", &DeviceConfig::timing)
      .def_rw("engine", &DeviceConfig::engine)
      .def_rw("fidelity", &DeviceConfig::fidelity);
  m.def("on_gpu_engine", &on_gpu_engine, nb::arg("config"), nb::arg("sms"));
  m.def("config_text", &config_text, nb::arg("config"));
}

}  // namespace flashmob::bindings
