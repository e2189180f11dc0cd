// flashmob/ssd.h for Python. Queues hand out tokens; python/flashmob/ssd.py turns them into futures.
#include "flashmob/ssd.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <string_view>
#include <unordered_map>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace flashmob::bindings {
namespace {

// Whether elements of this format (the struct module's language with NumPy's additions) are or have pointers to Python
// objects. Names of a structure's fields stand between colons and may have any letter.
bool holds_objects(std::string_view format) {
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
bool says_it_has_no_objects(const nb::object& array) {
  const nb::object type = nb::getattr(array, "dtype", nb::none());
  const nb::object objects = nb::getattr(type, "hasobject", nb::none());
  return objects.is(nb::bool_(false));
}

// Somebody's array of contiguous bytes, by the buffer protocol or by DLPack, its export pinned as long as this lives.
class HeldBuffer {
 public:
  HeldBuffer(const nb::object& array, bool writable) {
    if (PyObject_CheckBuffer(array.ptr()) != 0) {
      export_bytes(array, PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0));
      data_ = view_.buf;
      bytes_ = static_cast<std::uint64_t>(view_.len);
    } else if (writable) {
      hold<nb::ndarray<nb::c_contig>>(array, "it is read-only, not contiguous, or no array");
    } else {
      hold<nb::ndarray<nb::ro, nb::c_contig>>(array, "it is not contiguous, or no array");
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
  void export_bytes(const nb::object& array, int flags) {
    if (PyObject_GetBuffer(array.ptr(), &view_, flags | PyBUF_FORMAT) != 0) {
      nb::python_error why;  // takes the error, so that the array can be asked
      if (!why.matches(PyExc_ValueError) || !says_it_has_no_objects(array)) throw why;
      if (PyObject_GetBuffer(array.ptr(), &view_, flags) != 0) throw nb::python_error();
    } else if (view_.format != nullptr && holds_objects(view_.format)) {
      PyBuffer_Release(&view_);
      throw nb::type_error("its elements are references to Python objects, not data");
    }
  }

  // Not converted: a copy would not be the caller's array.
  template <class Array>
  void hold(const nb::object& array, const char* what) {
    Array held;
    if (!nb::try_cast(array, held, false)) throw nb::type_error(what);
    const int type = held.device_type();
    if (type != nb::device::cpu::value && type != nb::device::cuda_host::value &&
        type != nb::device::cuda_managed::value)
      throw nb::type_error("it lies on another device");
    data_ = held.data();
    bytes_ = held.nbytes();
    array_ = nb::ndarray<nb::ro>(held);
  }

  Py_buffer view_{};
  nb::ndarray<nb::ro> array_;
  const void* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// A Queue whose completions are collected as (token, status) pairs.
class TokenQueue {
 public:
  explicit TokenQueue(std::unique_ptr<Queue> queue) : queue_(std::move(queue)) {}

  TokenQueue(const TokenQueue&) = delete;
  TokenQueue& operator=(const TokenQueue&) = delete;
  ~TokenQueue() {
    // The queue drains, which may take time and never needs Python; the buffers need it to be let go.
    const nb::gil_scoped_release release;
    queue_.reset();
  }

  std::uint64_t read(std::uint32_t nsid, std::uint64_t lba, const nb::object& buffer, std::uint64_t offset,
                     std::uint64_t bytes) {
    std::byte* const data = nb::cast<HeldBuffer&>(buffer).part(offset, bytes);
    return start(buffer, [&](std::uint64_t token) { queue_->read(nsid, lba, data, bytes, collector(token)); });
  }
  std::uint64_t write(std::uint32_t nsid, std::uint64_t lba, const nb::object& buffer, std::uint64_t offset,
                      std::uint64_t bytes) {
    const std::byte* const data = nb::cast<HeldBuffer&>(buffer).part(offset, bytes);
    return start(buffer, [&](std::uint64_t token) { queue_->write(nsid, lba, data, bytes, collector(token)); });
  }
  std::uint64_t flush(std::uint32_t nsid) {
    return start(nb::object(), [&](std::uint64_t token) { queue_->flush(nsid, collector(token)); });
  }
  std::vector<std::pair<std::uint64_t, std::uint16_t>> poll() {
    {
      const nb::gil_scoped_release release;
      queue_->poll();
    }
    for (const auto& [token, status] : done_) held_.erase(token);
    return std::exchange(done_, {});
  }
  void abandon() {
    queue_->abandon();
    held_.clear();
  }

 private:
  template <class F>
  std::uint64_t start(const nb::object& buffer, F&& submit) {
    const std::uint64_t token = next_++;
    if (buffer.is_valid()) held_[token] = buffer;
    try {
      const nb::gil_scoped_release release;
      submit(token);
    } catch (...) {
      held_.erase(token);
      throw;
    }
    return token;
  }
  Queue::Done collector(std::uint64_t token) {
    return [this, token](std::uint16_t status) { done_.emplace_back(token, status); };
  }

  std::unordered_map<std::uint64_t, nb::object> held_;
  std::vector<std::pair<std::uint64_t, std::uint16_t>> done_;
  std::uint64_t next_ = 1;
  std::unique_ptr<Queue> queue_;
};

template <class F>
auto without_gil(F&& call) {
  const nb::gil_scoped_release release;
  return call();
}

// Ctrl-C ends it, whatever it waits for: Python's handlers run in between, and what they raise is what is raised here.
KeyValueAnswer interruptible_call(Ssd& ssd, const KeyValueRequest& request) {
  const auto interrupted = [] {
    const nb::gil_scoped_acquire gil;
    return PyErr_CheckSignals() != 0;
  };
  try {
    return without_gil([&] { return ssd.key_value(request, interrupted); });
  } catch (...) {
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    throw;
  }
}

}  // namespace

void bind_ssd(nb::module_& m) {
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    const auto errors = [] { return nb::module_::import_("flashmob.errors"); };
    try {
      std::rethrow_exception(error);
    } catch (const TimeoutError& late) {
      PyErr_SetString(PyExc_TimeoutError, late.what());
    } catch (const FatalError& fatal) {
      PyErr_SetString(errors().attr("ControllerFatalError").ptr(), fatal.what());
    } catch (const StatusError& failed) {
      const std::string what = failed.what();
      const nb::object type = errors().attr("NvmeError");
      PyErr_SetObject(type.ptr(), type(failed.status_field(), what.substr(0, what.find(": "))).ptr());
    }
  });
  nb::class_<HeldBuffer>(m, "HeldBuffer")
      .def(nb::init<const nb::object&, bool>(), nb::arg("array"), nb::arg("writable"))
      .def_prop_ro("nbytes", &HeldBuffer::bytes);
  nb::class_<TokenQueue>(m, "Queue")
      .def("read", &TokenQueue::read, nb::arg("nsid"), nb::arg("lba"), nb::arg("buffer"), nb::arg("offset"),
           nb::arg("bytes"))
      .def("write", &TokenQueue::write, nb::arg("nsid"), nb::arg("lba"), nb::arg("buffer"), nb::arg("offset"),
           nb::arg("bytes"))
      .def("flush", &TokenQueue::flush, nb::arg("nsid"))
      .def("poll", &TokenQueue::poll)
      .def("abandon", &TokenQueue::abandon);
  nb::class_<Ssd>(m, "Ssd")
      .def(nb::init<const DeviceConfig&>(), nb::arg("config"))
      .def("close", &Ssd::close, nb::call_guard<nb::gil_scoped_release>())
      .def("reset", &Ssd::reset, nb::call_guard<nb::gil_scoped_release>())
      .def("only_lost_left", &Ssd::only_lost_left, nb::call_guard<nb::gil_scoped_release>())
      .def("set_timeout", &Ssd::set_timeout, nb::arg("timeout_ns"), nb::call_guard<nb::gil_scoped_release>())
      .def("fatal", &Ssd::fatal, nb::call_guard<nb::gil_scoped_release>())
      .def("namespace_count", &Ssd::namespace_count, nb::call_guard<nb::gil_scoped_release>())
      .def("namespace_bytes", &Ssd::namespace_bytes, nb::arg("nsid"), nb::call_guard<nb::gil_scoped_release>())
      .def("lba_bytes", &Ssd::lba_bytes, nb::arg("nsid"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "identify",
          [](const Ssd& ssd, std::uint8_t cns, std::uint32_t nsid, std::uint8_t csi) {
            const std::string data = without_gil([&] { return ssd.identify(cns, nsid, csi); });
            return nb::bytes(data.data(), data.size());
          },
          nb::arg("cns"), nb::arg("nsid"), nb::arg("csi") = 0)
      .def(
          "log_page",
          [](const Ssd& ssd, std::uint8_t lid, std::uint32_t size, std::uint32_t nsid) {
            const std::string data = without_gil([&] { return ssd.log_page(lid, size, nsid); });
            return nb::bytes(data.data(), data.size());
          },
          nb::arg("lid"), nb::arg("size"), nb::arg("nsid") = 0xFFFFFFFFu)
      .def(
          "key_value",
          [](Ssd& ssd, int kind, std::uint32_t nsid, const nb::bytes& key, const nb::bytes& value, std::uint32_t room,
             unsigned options) {
            const KeyValueRequest request{.kind = static_cast<KeyValueRequest::Kind>(kind),
                                          .nsid = nsid,
                                          .key = {key.c_str(), key.size()},
                                          .value = {value.c_str(), value.size()},
                                          .buffer_bytes = room,
                                          .must_exist = (options & 1) != 0,
                                          .must_not_exist = (options & 2) != 0};
            const KeyValueAnswer answer = interruptible_call(ssd, request);
            return nb::make_tuple(answer.status_field, answer.value_bytes,
                                  nb::bytes(answer.data.data(), answer.data.size()));
          },
          nb::arg("kind"), nb::arg("nsid"), nb::arg("key"), nb::arg("value"), nb::arg("room"), nb::arg("options"))
      .def(
          "set_faults",
          [](Ssd& ssd, const std::vector<std::string>& rules) { without_gil([&] { ssd.set_faults(rules); }); },
          nb::arg("rules"))
      .def("faults", [](const Ssd& ssd) { return without_gil([&] { return ssd.faults(); }); })
      .def(
          "queue",
          [](Ssd& ssd, std::uint32_t depth) {
            return std::make_unique<TokenQueue>(without_gil([&] { return ssd.queue(depth); }));
          },
          nb::arg("depth"), nb::keep_alive<0, 1>());
}

}  // namespace flashmob::bindings
