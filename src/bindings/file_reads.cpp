// flashmob/file_reads.h for Python. Buffers stay pinned until their reads have ended; waiting releases the GIL.
#include "flashmob/file_reads.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/held_buffer.h"
#include "flashmob/extents.h"

namespace nb = nanobind;

namespace flashmob::bindings {
namespace {

// Where one file lies, as it was when somebody looked. It travels to other processes as bytes.
struct FilePlan {
  std::vector<FileExtent> extents;

  std::uint64_t bytes() const { return extents.empty() ? 0 : extents.back().file_offset + extents.back().bytes; }

  std::vector<FileExtent> part(std::uint64_t begin, std::uint64_t wanted) const {
    if (begin > bytes() || wanted > bytes() - begin) throw std::out_of_range("a part beyond the end of its file");
    const auto ends_behind = [begin](const FileExtent& one) { return one.file_offset + one.bytes > begin; };
    std::vector<FileExtent> cut;
    for (auto at = std::ranges::partition_point(extents, std::not_fn(ends_behind)); wanted != 0; ++at) {
      const std::uint64_t skip = begin - at->file_offset;
      const std::uint64_t taken = std::min(at->bytes - skip, wanted);
      cut.push_back({begin, at->has_place() ? at->device_offset + skip : 0, taken, at->flags});
      begin += taken;
      wanted -= taken;
    }
    return cut;
  }
};

FilePlan plan_of(ExtentSource& source, const nb::bytes& path) {
  const std::string name(path.c_str(), path.size());
  const nb::gil_scoped_release released;
  return {source.extents(name, 0, ~std::uint64_t{0})};
}

// Four words for each extent, because a structure's padding has no value of its own.
nb::bytes packed(const FilePlan& plan) {
  std::vector<std::uint64_t> words;
  words.reserve(plan.extents.size() * 4);
  for (const FileExtent& one : plan.extents)
    words.insert(words.end(), {one.file_offset, one.device_offset, one.bytes, one.flags});
  return nb::bytes(words.data(), words.size() * sizeof(std::uint64_t));
}

FilePlan unpacked(const nb::bytes& data) {
  constexpr std::size_t kBytes = 4 * sizeof(std::uint64_t);
  if (data.size() % kBytes != 0) throw std::invalid_argument("these bytes are no plan of a file");
  FilePlan plan;
  std::uint64_t end = 0;
  for (std::size_t at = 0; at < data.size(); at += kBytes) {
    std::uint64_t words[4];
    std::memcpy(words, data.c_str() + at, kBytes);
    if (words[0] != end || words[2] > ~end)
      throw std::invalid_argument("the extents of a plan do not follow each other");
    end += words[2];
    plan.extents.push_back({words[0], words[1], words[2], static_cast<std::uint32_t>(words[3])});
  }
  return plan;
}

// How long the kernel may take to let go of buffers when reads are closed: Ctrl-C must end it all.
constexpr std::uint64_t kGiveUpNs = 1'000'000'000;

// Reads whose buffers are held until they have ended.
template <class Reads>
class Held {
 public:
  explicit Held(std::unique_ptr<Reads> reads) : reads_(std::move(reads)) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { close(); }

  // The reads first, which need no Python, and of which the kernel's are waited for, as it writes to their buffers;
  // then the buffers, which need it to be let go.
  void close() {
    bool has_ended = true;
    {
      const nb::gil_scoped_release released;
      if constexpr (requires(Reads& reads) { reads.give_up(kGiveUpNs); })
        has_ended = reads_ == nullptr || reads_->give_up(kGiveUpNs);
      if (has_ended) reads_.reset();
    }
    if (!has_ended) keep();
    held_.clear();
  }
  Reads& open() const {
    if (reads_ == nullptr) throw std::runtime_error("the reads are closed; open them again");
    return *reads_;
  }

 protected:
  // `start` begins the read of that tag into a part of the buffer.
  template <class Start>
  void start(std::uint64_t tag, const nb::object& buffer, Start&& start) {
    if (held_.contains(tag)) throw std::invalid_argument("a read of this tag has not ended");
    start(open(), nb::cast<HeldBuffer&>(buffer));
    held_[tag] = buffer;
  }
  // `wait` needs no Python.
  template <class Wait>
  std::vector<FileReadDone> take_ended(Wait&& wait) {
    std::vector<FileReadDone> done;
    {
      Reads& reads = open();
      const nb::gil_scoped_release released;
      done = wait(reads);
    }
    for (const FileReadDone& one : done) held_.erase(one.tag);
    return done;
  }
  void let_go() { held_.clear(); }

 private:
  // A file system that does not answer may still do so: what its bytes go to stays there until the process ends.
  void keep() {
    static_cast<void>(reads_.release());
    for (auto& [tag, buffer] : held_) static_cast<void>(buffer.release());
    nb::set_leak_warnings(false);
  }

  std::unordered_map<std::uint64_t, nb::object> held_;
  std::unique_ptr<Reads> reads_;
};

class HeldReads : public Held<FileReads> {
 public:
  using Held::Held;
  void start(std::uint64_t tag, const FilePlan& plan, std::uint64_t begin, std::uint64_t bytes,
             const nb::object& buffer, std::uint64_t offset) {
    Held::start(tag, buffer, [&](FileReads& reads, const HeldBuffer& held) {
      std::byte* const to = held.part(offset, bytes);
      reads.start(tag, plan.part(begin, bytes), {to, bytes});
    });
  }
  std::vector<FileReadDone> wait(std::uint64_t at_most_ns) {
    return take_ended([&](FileReads& reads) { return at_most_ns == 0 ? reads.poll() : reads.wait(at_most_ns); });
  }
  void abandon() {
    open().abandon();
    let_go();
  }
};

class HeldKernelReads : public Held<KernelFileReads> {
 public:
  HeldKernelReads(const nb::bytes& directory, std::uint32_t depth)
      : Held(KernelFileReads::open({directory.c_str(), directory.size()}, depth)) {}
  void start(std::uint64_t tag, const nb::bytes& path, std::uint64_t begin, const nb::object& buffer) {
    Held::start(tag, buffer, [&](KernelFileReads& reads, const HeldBuffer& held) {
      reads.start(tag, {path.c_str(), path.size()}, begin, {held.part(0, held.bytes()), held.bytes()});
    });
  }
  std::vector<FileReadDone> wait(std::uint64_t at_most_ns) {
    return take_ended([&](KernelFileReads& reads) { return reads.wait(at_most_ns); });
  }
};

FileReadOptions options_of(std::uint32_t depth, std::uint64_t command_bytes, std::uint64_t timeout_ns) {
  return {.depth = depth, .command_bytes = command_bytes, .timeout_ns = timeout_ns};
}

}  // namespace

void bind_file_reads(nb::module_& m) {
  nb::class_<FilePlan>(m, "FilePlan")
      .def(nb::new_([](ExtentSource& source, const nb::bytes& path) { return plan_of(source, path); }),
           nb::arg("source"), nb::arg("path"))
      .def_prop_ro("size_bytes", &FilePlan::bytes)
      .def_prop_ro("extents", [](const FilePlan& plan) { return plan.extents; })
      .def("__getstate__", &packed)
      .def("__setstate__", [](FilePlan& plan, const nb::bytes& data) { new (&plan) FilePlan(unpacked(data)); });
  nb::class_<FileReadDone>(m, "FileReadDone")
      .def_ro("tag", &FileReadDone::tag)
      .def_ro("bytes", &FileReadDone::bytes)
      .def_ro("error", &FileReadDone::error);
  nb::class_<FileReadCounts>(m, "FileReadCounts")
      .def_ro("commands", &FileReadCounts::commands)
      .def_ro("device_bytes", &FileReadCounts::device_bytes)
      .def_ro("file_bytes", &FileReadCounts::file_bytes)
      .def_ro("zero_bytes", &FileReadCounts::zero_bytes);
  nb::class_<HeldKernelReads>(m, "KernelFileReads")
      .def(nb::init<const nb::bytes&, std::uint32_t>(), nb::arg("directory"), nb::arg("depth"))
      .def("start", &HeldKernelReads::start, nb::arg("tag"), nb::arg("path"), nb::arg("begin"), nb::arg("buffer"))
      .def("wait", &HeldKernelReads::wait, nb::arg("at_most_ns"))
      .def("unfinished", [](const HeldKernelReads& reads) { return reads.open().unfinished(); })
      .def("close", &HeldKernelReads::close);
  nb::class_<HeldReads>(m, "FileReads")
      .def_static(
          "open_target",
          [](const std::string& target, std::uint32_t depth, std::uint64_t command_bytes, std::uint64_t timeout_ns) {
            const nb::gil_scoped_release released;
            return std::make_unique<HeldReads>(FileReads::open(target, options_of(depth, command_bytes, timeout_ns)));
          },
          nb::arg("target"), nb::arg("depth"), nb::arg("command_bytes"), nb::arg("timeout_ns"))
      .def_static(
          "open_device",
          [](const DeviceConfig& config, std::uint32_t depth, std::uint64_t command_bytes, std::uint64_t timeout_ns) {
            const nb::gil_scoped_release released;
            return std::make_unique<HeldReads>(FileReads::open(config, options_of(depth, command_bytes, timeout_ns)));
          },
          nb::arg("config"), nb::arg("depth"), nb::arg("command_bytes"), nb::arg("timeout_ns"))
      .def("start", &HeldReads::start, nb::arg("tag"), nb::arg("plan"), nb::arg("begin"), nb::arg("size_bytes"),
           nb::arg("buffer"), nb::arg("offset"))
      .def("wait", &HeldReads::wait, nb::arg("at_most_ns"))
      .def("abandon", &HeldReads::abandon)
      .def("close", &HeldReads::close)
      .def("unfinished", [](const HeldReads& reads) { return reads.open().unfinished(); })
      .def("device_bytes", [](const HeldReads& reads) { return reads.open().device_bytes(); })
      .def("lba_bytes", [](const HeldReads& reads) { return reads.open().lba_bytes(); })
      .def("counts", [](const HeldReads& reads) { return reads.open().counts(); });
}

}  // namespace flashmob::bindings
