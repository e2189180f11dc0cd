#include "interfaces/posix_aio.h"

#include <aio.h>

#include <cerrno>
#include <vector>

namespace flashmob::interfaces {
namespace {

// Waits in aio_suspend(3) and does not spin on aio_error(3): what is measured is the interface, not a poll of ours.
class PosixAio final : public Interface {
 public:
  explicit PosixAio(const Lane& lane) : Interface(lane), blocks_(lane.depth), waited_(lane.depth) {
    refused_.reserve(lane.depth);
  }

  void submit(std::uint32_t slot, std::uint64_t offset, bool is_write) override {
    aiocb& block = blocks_[slot];
    block = {};
    block.aio_fildes = lane_.file;
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

  std::vector<aiocb> blocks_;
  std::vector<const aiocb*> waited_;  // by slot; nullptr: not under way
  std::vector<Done> refused_;
};

}  // namespace

std::unique_ptr<Interface> make_posix_aio(const Lane& lane) { return std::make_unique<PosixAio>(lane); }

}  // namespace flashmob::interfaces
