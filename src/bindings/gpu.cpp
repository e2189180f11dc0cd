// flashmob/gpu.h for Python: attached SSDs, memory, service, figures. Everything that waits releases the GIL;
// python/flashmob/gpu/device.py lets one thread in at a time. The kernels are bound in gpu_workloads.cpp.
#include "flashmob/gpu.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "flashmob/error.h"

namespace nb = nanobind;

namespace flashmob::bindings {
namespace {

using NoGil = nb::call_guard<nb::gil_scoped_release>;

const char* name_of(gpu::Placement placement) { return placement == gpu::Placement::device ? "device" : "host"; }

gpu::Placement placement_of(const std::string& name) {
  if (name == "device") return gpu::Placement::device;
  if (name == "host") return gpu::Placement::host;
  throw ConfigError("placement = \"" + name + "\" is not possible: use one of host, device");
}

// Memory as DLPack tells it to others, which then keep it alive: 1 the host's, 2 a GPU's, 3 the host's, pinned.
nb::ndarray<> as_dlpack(const gpu::Memory& memory, const std::vector<std::size_t>& shape, char kind, int bytes,
                        int device_type) {
  const nb::dlpack::dtype_code code = kind == 'f'   ? nb::dlpack::dtype_code::Float
                                      : kind == 'i' ? nb::dlpack::dtype_code::Int
                                      : kind == 'u' ? nb::dlpack::dtype_code::UInt
                                      : kind == 'b' ? nb::dlpack::dtype_code::Bool
                                                    : throw nb::type_error("DLPack has no such type");
  auto* const kept = new gpu::Memory(memory);
  const nb::capsule owner(kept, [](void* held) noexcept { delete static_cast<gpu::Memory*>(held); });
  return {memory.data(), shape.size(),
          shape.data(),  owner,
          nullptr,       nb::dlpack::dtype{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * bytes), 1},
          device_type,   0};
}

// Somebody's array, kept alive: whatever offers DLPack or the buffer protocol.
class HeldArray {
 public:
  HeldArray(const nb::object& array, bool writable) {
    if (writable)
      hold<nb::ndarray<nb::c_contig>>(array, "not contiguous, not writable, or no array");
    else
      hold<nb::ndarray<nb::ro, nb::c_contig>>(array, "not contiguous, or no array");
  }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(array_.data()); }
  std::uint64_t nbytes() const { return array_.nbytes(); }
  int device_type() const { return array_.device_type(); }
  std::vector<std::uint64_t> shape() const {
    std::vector<std::uint64_t> lengths;
    for (std::size_t i = 0; i < array_.ndim(); ++i) lengths.push_back(array_.shape(i));
    return lengths;
  }
  // As NumPy writes it.
  std::string dtype() const {
    const nb::dlpack::dtype type = array_.dtype();
    const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
    const char* kind = code == nb::dlpack::dtype_code::Int     ? "i"
                       : code == nb::dlpack::dtype_code::UInt  ? "u"
                       : code == nb::dlpack::dtype_code::Float ? "f"
                       : code == nb::dlpack::dtype_code::Bool  ? "b"
                                                               : "V";
    return kind + std::to_string(type.bits * type.lanes / 8);
  }

 private:
  // Not converted: a copy would not be the caller's array.
  template <class Array>
  void hold(const nb::object& array, const char* what) {
    Array held;
    if (!nb::try_cast(array, held, false)) throw nb::type_error(what);
    array_ = nb::ndarray<nb::ro>(held);
  }
  nb::ndarray<nb::ro> array_;
};

void bind_values(nb::module_& m) {
  nb::class_<gpu::GpuOptions>(m, "GpuOptions")
      .def(nb::init<>())
      .def_rw("backend", &gpu::GpuOptions::backend)
      .def_rw("clock", &gpu::GpuOptions::clock)
      .def_rw("service", &gpu::GpuOptions::service)
      .def_rw("queues", &gpu::GpuOptions::queues)
      .def_rw("queue_depth", &gpu::GpuOptions::queue_depth)
      .def_rw("queue_placement", &gpu::GpuOptions::queue_placement)
      .def_rw("max_transfer_bytes", &gpu::GpuOptions::max_transfer_bytes)
      .def_rw("service_blocks", &gpu::GpuOptions::service_blocks)
      .def_rw("schedule", &gpu::GpuOptions::schedule)
      .def_rw("seed", &gpu::GpuOptions::seed)
      .def("validate", &gpu::GpuOptions::validate);
  nb::class_<gpu::BackendInfo>(m, "GpuBackend")
      .def_ro("name", &gpu::BackendInfo::name)
      .def_ro("device", &gpu::BackendInfo::device)
      .def_ro("clock", &gpu::BackendInfo::clock)
      .def_ro("reason", &gpu::BackendInfo::reason);
  nb::class_<gpu::SsdInfo>(m, "GpuSsd")
      .def_ro("profile", &gpu::SsdInfo::profile)
      .def_ro("queues", &gpu::SsdInfo::queues)
      .def_ro("queue_depth", &gpu::SsdInfo::queue_depth)
      .def_prop_ro("queue_placement", [](const gpu::SsdInfo& info) { return name_of(info.queue_placement); })
      .def_ro("max_transfer_bytes", &gpu::SsdInfo::max_transfer_bytes)
      .def_ro("lba_bytes", &gpu::SsdInfo::lba_bytes)
      .def_ro("namespace_bytes", &gpu::SsdInfo::namespace_bytes);
  nb::class_<gpu::GpuStats>(m, "GpuStats")
      .def_ro("now_ns", &gpu::GpuStats::now_ns)
      .def_ro("submitted", &gpu::GpuStats::submitted)
      .def_ro("completed", &gpu::GpuStats::completed)
      .def_ro("failed", &gpu::GpuStats::failed)
      .def_ro("in_flight", &gpu::GpuStats::in_flight)
      .def_ro("doorbells", &gpu::GpuStats::doorbells)
      .def_ro("unexpected", &gpu::GpuStats::unexpected)
      .def_ro("service_passes", &gpu::GpuStats::service_passes)
      .def_ro("allocated_bytes", &gpu::GpuStats::allocated_bytes)
      .def_ro("service", &gpu::GpuStats::service)
      .def_ro("service_running", &gpu::GpuStats::service_running);
  nb::class_<gpu::Memory>(m, "GpuMemory")
      .def_prop_ro("address", [](const gpu::Memory& memory) { return reinterpret_cast<std::uint64_t>(memory.data()); })
      .def_prop_ro("size", &gpu::Memory::size)
      .def_prop_ro("placement", [](const gpu::Memory& memory) { return name_of(memory.placement()); })
      .def("array", &as_dlpack, nb::arg("shape"), nb::arg("kind"), nb::arg("bytes"), nb::arg("device_type"));
  nb::class_<HeldArray>(m, "GpuArray")
      .def(nb::init<const nb::object&, bool>(), nb::arg("array"), nb::arg("writable"))
      .def_prop_ro("address", &HeldArray::address)
      .def_prop_ro("nbytes", &HeldArray::nbytes)
      .def_prop_ro("device_type", &HeldArray::device_type)
      .def_prop_ro("shape", &HeldArray::shape)
      .def_prop_ro("dtype", &HeldArray::dtype);
}

}  // namespace

void bind_gpu(nb::module_& m) {
  bind_values(m);
  nb::class_<gpu::Gpu>(m, "Gpu")
      .def("backend", &gpu::Gpu::backend, nb::rv_policy::copy)
      .def("ssds", &gpu::Gpu::ssds)
      .def("ssd_info", &gpu::Gpu::ssd_info, nb::arg("ssd"), nb::rv_policy::copy)
      .def(
          "allocate",
          [](gpu::Gpu& self, std::uint64_t bytes, const std::string& placement) {
            return self.allocate(bytes, placement_of(placement));
          },
          nb::arg("bytes"), nb::arg("placement") = "device", NoGil())
      .def("allocate_near", &gpu::Gpu::allocate_near, nb::arg("bytes"), nb::arg("for_ssds"), NoGil())
      .def(
          "copy",
          [](gpu::Gpu& self, std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
            self.copy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
          },
          nb::arg("to"), nb::arg("from_"), nb::arg("bytes"), NoGil())
      .def("start_service", &gpu::Gpu::start_service, NoGil())
      .def("stop_service", &gpu::Gpu::stop_service, NoGil())
      .def("service_running", &gpu::Gpu::service_running)
      .def("drain", &gpu::Gpu::drain, nb::arg("timeout_ns"), NoGil())
      .def(
          "write",
          [](gpu::Gpu& self, std::uint32_t ssd, std::uint32_t ns, std::uint64_t lba, std::uint64_t address,
             std::uint64_t bytes) { self.write(ssd, ns, lba, reinterpret_cast<const void*>(address), bytes); },
          nb::arg("ssd"), nb::arg("namespace_"), nb::arg("lba"), nb::arg("address"), nb::arg("bytes"), NoGil())
      .def(
          "read",
          [](gpu::Gpu& self, std::uint32_t ssd, std::uint32_t ns, std::uint64_t lba, std::uint64_t address,
             std::uint64_t bytes) { self.read(ssd, ns, lba, reinterpret_cast<void*>(address), bytes); },
          nb::arg("ssd"), nb::arg("namespace_"), nb::arg("lba"), nb::arg("address"), nb::arg("bytes"), NoGil())
      .def("load_file", &gpu::Gpu::load_file, nb::arg("ssd"), nb::arg("namespace_"), nb::arg("lba"), nb::arg("path"),
           NoGil())
      .def("now_ns", &gpu::Gpu::now_ns)
      .def("pass_time", &gpu::Gpu::pass, nb::arg("duration_ns"), NoGil())
      .def("stats", &gpu::Gpu::stats, NoGil());
  m.def("gpu_attach", &gpu::attach, nb::arg("ssds"), nb::arg("options"), NoGil());
  m.def("gpu_attach_remote", &gpu::attach_remote, nb::arg("path"), nb::arg("options"), NoGil());
  m.def("gpu_choose_backend", &gpu::choose_backend, nb::arg("backend"), nb::arg("clock"), NoGil());
}

}  // namespace flashmob::bindings
