// flashmob/extents.h for Python. What reads the device releases the GIL; paths are bytes, as file systems have them.
#include "flashmob/extents.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace flashmob::bindings {
namespace {

using NoGil = nb::call_guard<nb::gil_scoped_release>;

std::string text(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

std::unique_ptr<ExtentSource> open_source(const nb::bytes& path, bool verify_checksums, std::uint64_t timeout_ns) {
  const std::string name = text(path);
  const nb::gil_scoped_release released;
  const ExtentOptions options{.verify_checksums = verify_checksums};
  return is_door(name) ? ExtentSource::open(open_door_reader(name, timeout_ns), name, options)
                       : ExtentSource::open(name, options);
}

std::vector<FileExtent> extents(ExtentSource& source, const nb::bytes& path, std::uint64_t offset,
                                std::uint64_t bytes) {
  const std::string name = text(path);
  const nb::gil_scoped_release released;
  return source.extents(name, offset, bytes);
}

FileInfo look_up(ExtentSource& source, const nb::bytes& path) {
  const std::string name = text(path);
  const nb::gil_scoped_release released;
  return source.look_up(name);
}

nb::bytes read(ExtentSource& source, const nb::bytes& path, std::uint64_t offset, std::uint64_t bytes) {
  const std::string name = text(path);
  std::string data;
  {
    const nb::gil_scoped_release released;
    const FileInfo found = source.look_up(name);
    data.resize(offset < found.size_bytes ? std::min(bytes, found.size_bytes - offset) : 0);
    data.resize(source.read(name, offset, std::as_writable_bytes(std::span(data))));
  }
  return nb::bytes(data.data(), data.size());
}

nb::list flags(const FileExtent& extent) {
  nb::list names;
  for (std::uint32_t bit = 0; bit < kExtentFlagCount; ++bit)
    if (extent.flags >> bit & 1) names.append(extent_flag_name(bit));
  return names;
}

}  // namespace

void bind_extents(nb::module_& m) {
  nb::exception<ExtentError>(m, "ExtentError", PyExc_RuntimeError);
  nb::class_<FileExtent>(m, "FileExtent")
      .def_ro("file_offset", &FileExtent::file_offset)
      .def_ro("device_offset", &FileExtent::device_offset)
      .def_ro("bytes", &FileExtent::bytes)
      .def("has_place", &FileExtent::has_place)
      .def("flags", &flags);
  nb::class_<FileInfo>(m, "FileInfo")
      .def_prop_ro("path", [](const FileInfo& info) { return nb::bytes(info.path.data(), info.path.size()); })
      .def_prop_ro("kind", [](const FileInfo& info) { return file_kind_name(info.kind); })
      .def_ro("inode", &FileInfo::inode)
      .def_ro("size_bytes", &FileInfo::size_bytes);
  nb::class_<ExtentSource>(m, "ExtentSource")
      .def_static("open", &open_source, nb::arg("path"), nb::arg("verify_checksums") = true,
                  nb::arg("timeout_ns") = 10'000'000'000)
      .def("file_system", &ExtentSource::file_system)
      .def("device",
           [](const ExtentSource& source) {
             const std::string name = source.device();
             return nb::bytes(name.data(), name.size());
           })
      .def("files", &ExtentSource::files, NoGil())
      .def("problems", &ExtentSource::problems)
      .def("look_up", &look_up, nb::arg("path"))
      .def("extents", &extents, nb::arg("path"), nb::arg("offset"), nb::arg("size_bytes"))
      .def("read", &read, nb::arg("path"), nb::arg("offset"), nb::arg("size_bytes"));
}

}  // namespace flashmob::bindings
