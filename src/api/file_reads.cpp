// flashmob/file_reads.h: reads of files over one BlockQueue, whose slots' buffers are scattered to where bytes belong.
#include "flashmob/file_reads.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <thread>
#include <utility>

#include "api/device.h"
#include "api/door_store.h"
#include "api/open_target.h"
#include "base/backoff.h"
#include "base/check.h"
#include "base/clock.h"
#include "driver/block_queue.h"
#include "driver/names.h"
#include "driver/namespaces.h"
#include "driver/nvme_driver.h"
#include "flashmob/error.h"
#include "nvme/opcode.h"

namespace flashmob {
namespace {

constexpr std::uint64_t kMaxCommandBytes = 1 << 20;
constexpr std::uint64_t kPageOfCommands = 4096;
// Zeroes that one look at the reads makes, so that a hole of terabytes keeps nobody from completions.
constexpr std::uint64_t kZeroesAtOnce = 16 << 20;

void check_file_read_options(const FileReadOptions& options) {
  if (options.depth < 1 || options.depth > 1024) throw ConfigError("depth of file reads must be 1...1024");
  if (options.command_bytes < kPageOfCommands || options.command_bytes > kMaxCommandBytes ||
      options.command_bytes % kPageOfCommands != 0)
    throw ConfigError("command_bytes of file reads must be a multiple of 4096 up to 1048576");
}

std::uint64_t bytes_of(std::span<const FileExtent> extents) {
  std::uint64_t sum = 0;
  for (const FileExtent& extent : extents) {
    if (extent.bytes > ~std::uint64_t{0} - sum) throw std::invalid_argument("the extents are longer than any file");
    sum += extent.bytes;
  }
  return sum;
}

// One that a caller has taken on, and how far it is.
struct PendingFile {
  std::uint64_t tag = 0;
  std::vector<FileExtent> extents;
  std::span<std::byte> to;
  std::size_t extent = 0;      // the one that the next command is of, and ...
  std::uint64_t done_of_it = 0;  // ... how much of it has been asked for
  std::uint64_t asked = 0;     // bytes of `to`
  std::uint32_t in_flight = 0;
  std::string error = {};

  bool is_asked() const { return !error.empty() || extent == extents.size(); }
};

// What a command's slot holds of whose.
struct Piece {
  PendingFile* file = nullptr;
  std::byte* to = nullptr;
  std::uint64_t skip = 0;   // of the slot's buffer
  std::uint64_t bytes = 0;  // that are the file's
  std::uint64_t lba = 0;
  std::uint64_t read_bytes = 0;
};

}  // namespace

struct FileReads::Impl {
  Impl(const std::string& target, const FileReadOptions& options)
      : door_(api::open_target({.address = target, .timeout_ns = options.timeout_ns, .is_hurried = &is_broken_})),
        driver_(*door_, waiter()),
        ns_(enable(options.timeout_ns)),
        options_(options) {
    make_queue();
  }
  Impl(const DeviceConfig& config, const FileReadOptions& options)
      : device_(std::make_unique<api::Device>(config, clock_)),
        driver_((device_->start(), device_->pci()), waiter()),
        ns_(enable(options.timeout_ns)),
        options_(options) {
    make_queue();
  }
  ~Impl() {
    // A controller that is told to lose commands must not keep its owner.
    if (device_ != nullptr) device_->engine().faults().set({});
    queue_.reset();
    try {
      driver_.disable();
    } catch (const std::exception&) {
      // It does not answer; its mappings go with the memory.
    }
  }

  driver::Waiter waiter() {
    return {[this] { backoff_.pause(); }, [this] { return clock_.now_ns(); }};
  }

  api::DoorNamespace enable(std::uint64_t timeout_ns) {
    driver_.admin_timeout_ns = timeout_ns;
    driver_.enable();
    return api::examine_namespace(driver_);
  }

  void make_queue() {
    const std::uint64_t slot_bytes = std::min<std::uint64_t>(options_.command_bytes, ns_.max_transfer_bytes);
    command_bytes_ = slot_bytes / kPageOfCommands * kPageOfCommands;
    FLASHMOB_CHECK(command_bytes_ >= ns_.blocks.lba_bytes());
    queue_ = std::make_unique<driver::BlockQueue>(
        driver_, driver::BlockQueue::Options{.slots = options_.depth, .slot_bytes = command_bytes_});
    queue_->timeout_ns = options_.timeout_ns;
    pieces_.resize(options_.depth);
    progress_ns_ = clock_.now_ns();
  }

  // --- Reads become commands ---

  // Submits what there are slots for. Returns whether there is more to do that needs no completion.
  bool submit() {
    std::uint64_t zeroes = 0;
    while (first_unasked_ < files_.size()) {
      PendingFile& file = *files_[first_unasked_];
      if (!file.is_asked() && !submit_of(file, zeroes)) return zeroes >= kZeroesAtOnce;
      if (!file.is_asked()) continue;
      ++first_unasked_;
      if (file.in_flight == 0) end(file);
    }
    return false;
  }

  // The next command of a file, or zeroes; false where it must wait.
  bool submit_of(PendingFile& file, std::uint64_t& zeroes) {
    const FileExtent& extent = file.extents[file.extent];
    const std::uint64_t left = extent.bytes - file.done_of_it;
    std::uint64_t taken = left;
    if (left != 0 && (extent.flags & (kExtentHole | kExtentUnwritten)) != 0) {
      if (zeroes >= kZeroesAtOnce) return false;
      taken = std::min(left, kZeroesAtOnce);
      std::memset(file.to.data() + file.asked, 0, taken);
      zeroes += taken;
      counts_.zero_bytes += taken;
    } else if (left != 0) {
      if (!is_readable(file, extent)) return true;
      if (!queue_->has_slot()) return false;
      taken = command(file, extent.device_offset + file.done_of_it, left);
    }
    file.asked += taken;
    file.done_of_it += taken;
    if (file.done_of_it == extent.bytes) {
      ++file.extent;
      file.done_of_it = 0;
    }
    return true;
  }

  // Says in the file's error why not.
  bool is_readable(PendingFile& file, const FileExtent& extent) const {
    if (!extent.has_place() || (extent.flags & (kExtentEncoded | kExtentEncrypted)) != 0) {
      file.error = "at byte " + std::to_string(extent.file_offset) +
                   " the file's bytes do not lie on the device as they are; read it through the kernel";
    } else if (extent.device_offset > ns_.blocks.bytes() || extent.bytes > ns_.blocks.bytes() - extent.device_offset) {
      file.error = "the extent at byte " + std::to_string(extent.file_offset) +
                   " of the file lies beyond the device's " + std::to_string(ns_.blocks.bytes()) +
                   " bytes; take extents of what this device holds";
    }
    return file.error.empty();
  }

  // One command from a byte of the device on; how many of the bytes that are wanted it brings.
  std::uint64_t command(PendingFile& file, std::uint64_t offset, std::uint64_t wanted) {
    const std::uint64_t block = ns_.blocks.lba_bytes();
    const std::uint64_t skip = offset % block;
    const std::uint64_t bytes = std::min(wanted, command_bytes_ - skip);
    const std::uint64_t read_bytes = (skip + bytes + block - 1) / block * block;
    const std::uint16_t slot = queue_->take_slot();
    pieces_[slot] = {&file, file.to.data() + file.asked, skip, bytes, offset / block, read_bytes};
    ++file.in_flight;
    ++counts_.commands;
    counts_.device_bytes += read_bytes;
    if (queue_->outstanding() == 0) progress_ns_ = clock_.now_ns();
    queue_->submit(slot, nvme::NvmOpcode::read, ns_.blocks, offset / block, read_bytes,
                   [this, slot](std::uint16_t status) { finish(slot, status); });
    return bytes;
  }

  // --- Commands end, and reads with them ---

  void finish(std::uint16_t slot, std::uint16_t status) {
    const Piece piece = std::exchange(pieces_[slot], {});
    PendingFile& file = *piece.file;
    ended_a_command_ = true;
    if (status == 0)
      std::memcpy(piece.to, queue_->buffer(slot, piece.read_bytes).data() + piece.skip, piece.bytes);
    else if (file.error.empty())
      file.error =
          "the device fails a read of block " + std::to_string(piece.lba) + " with " + driver::status_text(status);
    --file.in_flight;
    // What has failed while more was to be asked for is ended by submit(), in its turn.
    if (file.in_flight == 0 && file.is_asked() && !is_next(file)) end(file);
  }
  bool is_next(const PendingFile& file) const {
    return first_unasked_ < files_.size() && files_[first_unasked_].get() == &file;
  }

  void end(PendingFile& file) {
    if (file.error.empty()) counts_.file_bytes += file.to.size();
    done_.push_back({file.tag, file.error.empty() ? file.to.size() : 0, std::move(file.error)});
    file.error.clear();
    const auto at = std::ranges::find(files_, &file, [](const auto& one) { return one.get(); });
    if (static_cast<std::size_t>(at - files_.begin()) < first_unasked_) --first_unasked_;
    files_.erase(at);
  }

  bool step() {
    if (!broken_.empty()) return false;
    bool has_more = false;
    guarded([&] {
      has_more = submit();
      queue_->poll();
      // What completions have made room for goes out at once.
      if (std::exchange(ended_a_command_, false)) {
        progress_ns_ = clock_.now_ns();
        has_more = submit() || has_more;
        queue_->poll();
      }
    });
    return has_more;
  }

  std::vector<FileReadDone> wait(std::uint64_t at_most_ns) {
    const std::uint64_t begin_ns = clock_.now_ns();
    backoff_ = Backoff();
    while (true) {
      const bool has_more = step();
      if (!done_.empty() || files_.empty()) break;
      const std::uint64_t now_ns = clock_.now_ns();
      if (now_ns - begin_ns >= at_most_ns) break;
      if (!has_more && queue_->outstanding() != 0)
        guarded([&] { queue_->default_idle(now_ns - std::min(now_ns, progress_ns_)); });
    }
    return std::exchange(done_, {});
  }

  // A device that does not answer, or is gone, ends all reads, those of later as well.
  template <class F>
  void guarded(F&& what) {
    try {
      what();
    } catch (const std::runtime_error& error) {
      is_broken_ = true;
      driver_.give_up();
      broken_ = std::string("the device does not answer: ") + error.what();
      queue_->abandon();
      fail_all();
    }
  }
  void fail_all() {
    for (const auto& file : files_) done_.push_back({file->tag, 0, broken_});
    files_.clear();
    first_unasked_ = 0;
  }

  const pid_t process_ = ::getpid();
  const Clock clock_ = Clock::real();
  Backoff backoff_;
  std::atomic<bool> is_broken_ = false;  // what takes the door down then waits for nobody
  std::unique_ptr<driver::PciDevice> door_;
  std::unique_ptr<api::Device> device_;  // of ours, where there is no door
  driver::NvmeDriver driver_;
  const api::DoorNamespace ns_;
  const FileReadOptions options_;
  std::uint64_t command_bytes_ = 0;
  std::unique_ptr<driver::BlockQueue> queue_;
  std::deque<std::unique_ptr<PendingFile>> files_;  // that have not ended, in the order of start()
  std::size_t first_unasked_ = 0;                   // those before it wait for completions alone
  std::vector<Piece> pieces_;                       // by slot
  std::vector<FileReadDone> done_;
  FileReadCounts counts_;
  std::uint64_t progress_ns_ = 0;  // when a command last ended, or began while there was no other
  bool ended_a_command_ = false;
  std::string broken_;  // why nothing more can be read
};

std::unique_ptr<FileReads> FileReads::open(const std::string& target, const FileReadOptions& options) {
  check_file_read_options(options);
  try {
    return std::unique_ptr<FileReads>(new FileReads(std::make_unique<Impl>(target, options)));
  } catch (const std::runtime_error& error) {
    // A driver's own exceptions are no part of what is public.
    if (dynamic_cast<const ConfigError*>(&error) != nullptr) throw;
    throw ExtentError(target + ": " + error.what());
  }
}

std::unique_ptr<FileReads> FileReads::open(const DeviceConfig& config, const FileReadOptions& options) {
  check_file_read_options(options);
  try {
    return std::unique_ptr<FileReads>(new FileReads(std::make_unique<Impl>(config, options)));
  } catch (const std::runtime_error& error) {
    if (dynamic_cast<const ConfigError*>(&error) != nullptr) throw;
    throw ExtentError(std::string("the SSD: ") + error.what());
  }
}

FileReads::FileReads(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FileReads::~FileReads() {
  // After a fork the queues are the parent's, who still uses them.
  if (::getpid() != impl_->process_) static_cast<void>(impl_.release());
}

void FileReads::start(std::uint64_t tag, std::vector<FileExtent> extents, std::span<std::byte> to) {
  const std::uint64_t bytes = bytes_of(extents);
  if (bytes != to.size())
    throw std::invalid_argument("a buffer of " + std::to_string(to.size()) + " bytes is not for extents of " +
                                std::to_string(bytes) + " bytes");
  if (!impl_->broken_.empty()) {
    impl_->done_.push_back({tag, 0, impl_->broken_});
    return;
  }
  auto file = std::make_unique<PendingFile>();
  file->tag = tag;
  file->extents = std::move(extents);
  file->to = to;
  impl_->files_.push_back(std::move(file));
}

std::vector<FileReadDone> FileReads::poll() {
  impl_->step();
  return std::exchange(impl_->done_, {});
}

std::vector<FileReadDone> FileReads::wait(std::uint64_t at_most_ns) { return impl_->wait(at_most_ns); }

void FileReads::abandon() {
  impl_->queue_->abandon();
  impl_->files_.clear();
  impl_->first_unasked_ = 0;
  impl_->done_.clear();
  impl_->progress_ns_ = impl_->clock_.now_ns();
}

std::uint64_t FileReads::unfinished() const { return impl_->files_.size(); }
std::uint64_t FileReads::device_bytes() const { return impl_->ns_.blocks.bytes(); }
std::uint32_t FileReads::lba_bytes() const { return static_cast<std::uint32_t>(impl_->ns_.blocks.lba_bytes()); }
FileReadCounts FileReads::counts() const { return impl_->counts_; }

}  // namespace flashmob
