// flashmob/ssd.h for Python. Queues hand out tokens; python/flashmob/ssd.py turns them into futures.
#include "flashmob/ssd.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <unordered_map>

#include "bindings/bindings.h"
#include "bindings/held_buffer.h"

namespace nb = nanobind;

namespace flashmob::bindings {
namespace {

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
