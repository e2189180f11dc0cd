#include "interfaces/posix_aio.h"

#include <aio.h>
#include <fcntl.h>

#include <cerrno>
#include <mutex>
#include <vector>

#include "media/mapped_media.h"

namespace flashmob::interfaces {
namespace {

// As many as a run may ask for at once; the C library starts one when there is something to do and no other is idle.
constexpr int kMostThreads = 4096;

// The C library serves the requests of one descriptor one after the other, in one thread, so each slot has a descriptor
// of its own: else the drive would see a depth of 1 whatever was asked. Waits in aio_suspend(3) and does not spin on
// aio_error(3): what is measured is the interface, not a poll of ours.
class PosixAio final : public Interface {
 public:
  explicit PosixAio(const Lane& lane) : Interface(lane), blocks_(lane.depth), waited_(lane.depth) {
    refused_.reserve(lane.depth);
    files_.reserve(lane.depth);
    for (std::uint32_t slot = 0; slot < lane.depth; ++slot) {
      const int file = ::fcntl(lane.file, F_DUPFD_CLOEXEC, 0);
      if (file < 0)
        throw Unsupported(errno_text("posix-aio needs a descriptor for each request under way", errno) +
                          "; raise ulimit -n, or use less depth");
      files_.emplace_back(file);
    }
  }

  void submit(std::uint32_t slot, std::uint64_t offset, bool is_write) override {
    aiocb& block = blocks_[slot];
    block = {};
    block.aio_fildes = files_[slot].get();
    block.aio_buf = lane_.buffer(slot);
    block.aio_nbytes = lane_.block_bytes;
    block.aio_offset = static_cast<off_t>(offset);
    block.aio_sigevent.sigev_notify = SIGEV_NONE;
    if ((is_write ? ::aio_write(&block) : ::aio_read(&block)) == 0)
      waited_[slot] = &block;
    else
      refused_.push_back({slot, -errno});
  }

  std::size_t wait(std::span<Done> done) override {
    std::size_t count = 0;
    for (const Done& one : refused_) done[count++] = one;
    refused_.clear();
    while (count == 0) {
      // Anything but a signal is found out by aio_error() below.
      while (::aio_suspend(waited_.data(), static_cast<int>(waited_.size()), nullptr) != 0 && errno == EINTR) {
      }
      count = collect(done);
    }
    return count;
  }

 private:
  std::size_t collect(std::span<Done> done) {
    std::size_t count = 0;
    for (std::uint32_t slot = 0; slot < lane_.depth; ++slot) {
      if (waited_[slot] == nullptr) continue;
      const int error = ::aio_error(&blocks_[slot]);
      if (error == EINPROGRESS) continue;
      const ssize_t moved = ::aio_return(&blocks_[slot]);
      waited_[slot] = nullptr;
      done[count++] = {slot, error != 0 ? -error : static_cast<std::int32_t>(moved)};
    }
    return count;
  }

  std::vector<media::FileDescriptor> files_;  // by slot
  std::vector<aiocb> blocks_;
  std::vector<const aiocb*> waited_;  // by slot; nullptr: not under way
  std::vector<Done> refused_;
};

}  // namespace

std::unique_ptr<Interface> make_posix_aio(const Lane& lane) {
  // Only what is said before the first request counts: without it there are at most 20 threads.
  static std::once_flag said;
  std::call_once(said, [] {
    aioinit wanted{};
    wanted.aio_threads = kMostThreads;
    wanted.aio_num = kMostThreads;
    wanted.aio_idle_time = 1;
    ::aio_init(&wanted);
  });
  return std::make_unique<PosixAio>(lane);
}

}  // namespace flashmob::interfaces
