// Memory of Python's callers that the device reads from or writes to, pinned while commands use it. With the GIL.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace flashmob::bindings {

// Whether elements of this format (the struct module's language with NumPy's additions) are or have pointers to Python
// objects. Names of a structure's fields stand between colons and may have any letter.
inline bool holds_objects(std::string_view format) {
  bool in_name = false;
  for (const char letter : format) {
    if (letter == ':')
      in_name = !in_name;
    else if (letter == 'O' && !in_name)
      return true;
  }
  return false;
}

// Whether an array that NumPy cannot name a format for (dates, bfloat16 of other packages) says that it has no objects.
inline bool says_it_has_no_objects(const nanobind::object& array) {
  const nanobind::object type = nanobind::getattr(array, "dtype", nanobind::none());
  const nanobind::object objects = nanobind::getattr(type, "hasobject", nanobind::none());
  return objects.is(nanobind::bool_(false));
}

// Somebody's array of contiguous bytes, by the buffer protocol or by DLPack, its export pinned as long as this lives.
class HeldBuffer {
 public:
  HeldBuffer(const nanobind::object& array, bool writable) {
    if (PyObject_CheckBuffer(array.ptr()) != 0) {
      export_bytes(array, PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0));
      data_ = view_.buf;
      bytes_ = static_cast<std::uint64_t>(view_.len);
    } else if (writable) {
      hold<nanobind::ndarray<nanobind::c_contig>>(array, "it is read-only, not contiguous, or no array");
    } else {
      hold<nanobind::ndarray<nanobind::ro, nanobind::c_contig>>(array, "it is not contiguous, or no array");
    }
  }
  ~HeldBuffer() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;

  std::uint64_t bytes() const { return bytes_; }
  std::byte* part(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset > bytes_ || bytes > bytes_ - offset) throw std::out_of_range("a part beyond the end of its buffer");
    return static_cast<std::byte*>(const_cast<void*>(data_)) + offset;
  }

 private:
  // Bytes read into a pointer to an object would crash the interpreter later, and pointers written to the medium mean
  // nothing there; only the format tells them from numbers.
  void export_bytes(const nanobind::object& array, int flags) {
    if (PyObject_GetBuffer(array.ptr(), &view_, flags | PyBUF_FORMAT) != 0) {
      nanobind::python_error why;  // takes the error, so that the array can be asked
      if (!why.matches(PyExc_ValueError) || !says_it_has_no_objects(array)) throw why;
      if (PyObject_GetBuffer(array.ptr(), &view_, flags) != 0) throw nanobind::python_error();
    } else if (view_.format != nullptr && holds_objects(view_.format)) {
      PyBuffer_Release(&view_);
      throw nanobind::type_error("its elements are references to Python objects, not data");
    }
  }

  // Not converted: a copy would not be the caller's array.
  template <class Array>
  void hold(const nanobind::object& array, const char* what) {
    Array held;
    if (!nanobind::try_cast(array, held, false)) throw nanobind::type_error(what);
    const int type = held.device_type();
    if (type != nanobind::device::cpu::value && type != nanobind::device::cuda_host::value &&
        type != nanobind::device::cuda_managed::value)
      throw nanobind::type_error("it lies on another device");
    data_ = held.data();
    bytes_ = held.nbytes();
    array_ = nanobind::ndarray<nanobind::ro>(held);
  }

  Py_buffer view_{};
  nanobind::ndarray<nanobind::ro> array_;
  const void* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace flashmob::bindings
