// flashmob/ssd.h for Python. Queues hand out tokens; python/flashmob/ssd.py turns them into futures.
#include "flashmob/ssd.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <unordered_map>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace flashmob::bindings {
namespace {

// A contiguous buffer of bytes, kept alive (and its export pinned) while a command uses it.
class HeldBuffer {
 public:
  HeldBuffer(const nb::object& object, bool writable) {
    const int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  ~HeldBuffer() { PyBuffer_Release(&view_); }
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;
  void* data() const { return view_.buf; }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(view_.len); }

 private:
  Py_buffer view_{};
};

// A Queue whose completions are collected as (token, status) pairs.
class TokenQueue {
 public:
  explicit TokenQueue(std::unique_ptr<Queue> queue) : queue_(std::move(queue)) {}

  std::uint64_t read(std::uint32_t nsid, std::uint64_t lba, const nb::object& buffer) {
    const std::uint64_t token = next_++;
    auto held = std::make_unique<HeldBuffer>(buffer, true);
    void* const data = held->data();
    const std::uint64_t bytes = held->bytes();
    held_[token] = std::move(held);
    return start(token, [&] { queue_->read(nsid, lba, data, bytes, collector(token)); });
  }
  std::uint64_t write(std::uint32_t nsid, std::uint64_t lba, const nb::object& buffer) {
    const std::uint64_t token = next_++;
    auto held = std::make_unique<HeldBuffer>(buffer, false);
    const void* const data = held->data();
    const std::uint64_t bytes = held->bytes();
    held_[token] = std::move(held);
    return start(token, [&] { queue_->write(nsid, lba, data, bytes, collector(token)); });
  }
  std::uint64_t flush(std::uint32_t nsid) {
    const std::uint64_t token = next_++;
    return start(token, [&] { queue_->flush(nsid, collector(token)); });
  }
  std::vector<std::pair<std::uint64_t, std::uint16_t>> poll() {
    {
      const nb::gil_scoped_release release;
      queue_->poll();
    }
    for (const auto& [token, status] : done_) held_.erase(token);
    return std::exchange(done_, {});
  }
  std::uint32_t outstanding() const { return queue_->outstanding(); }

 private:
  template <class F>
  std::uint64_t start(std::uint64_t token, F&& submit) {
    try {
      const nb::gil_scoped_release release;
      submit();
    } catch (...) {
      held_.erase(token);
      throw;
    }
    return token;
  }
  Queue::Done collector(std::uint64_t token) {
    return [this, token](std::uint16_t status) { done_.emplace_back(token, status); };
  }

  std::unordered_map<std::uint64_t, std::unique_ptr<HeldBuffer>> held_;
  std::vector<std::pair<std::uint64_t, std::uint16_t>> done_;
  std::uint64_t next_ = 1;
  std::unique_ptr<Queue> queue_;  // last: its destructor drains into done_
};

}  // namespace

void bind_ssd(nb::module_& m) {
  nb::class_<TokenQueue>(m, "Queue")
      .def("read", &TokenQueue::read, nb::arg("nsid"), nb::arg("lba"), nb::arg("buffer"))
      .def("write", &TokenQueue::write, nb::arg("nsid"), nb::arg("lba"), nb::arg("buffer"))
      .def("flush", &TokenQueue::flush, nb::arg("nsid"))
      .def("poll", &TokenQueue::poll)
      .def("outstanding", &TokenQueue::outstanding);
  nb::class_<Ssd>(m, "Ssd")
      .def(nb::init<const DeviceConfig&>(), nb::arg("config"))
      .def("close", &Ssd::close, nb::call_guard<nb::gil_scoped_release>())
      .def("namespace_count", &Ssd::namespace_count)
      .def("namespace_bytes", &Ssd::namespace_bytes, nb::arg("nsid"))
      .def("lba_bytes", &Ssd::lba_bytes, nb::arg("nsid"))
      .def(
          "identify",
          [](const Ssd& ssd, std::uint8_t cns, std::uint32_t nsid) {
            const std::string data = ssd.identify(cns, nsid);
            return nb::bytes(data.data(), data.size());
          },
          nb::arg("cns"), nb::arg("nsid"))
      .def(
          "log_page",
          [](const Ssd& ssd, std::uint8_t lid, std::uint32_t size, std::uint32_t nsid) {
            const std::string data = ssd.log_page(lid, size, nsid);
            return nb::bytes(data.data(), data.size());
          },
          nb::arg("lid"), nb::arg("size"), nb::arg("nsid") = 0xFFFFFFFFu)
      .def("set_faults", &Ssd::set_faults, nb::arg("rules"))
      .def("faults", &Ssd::faults)
      .def(
          "queue", [](Ssd& ssd, std::uint32_t depth) { return std::make_unique<TokenQueue>(ssd.queue(depth)); },
          nb::arg("depth"), nb::keep_alive<0, 1>());
}

}  // namespace flashmob::bindings
