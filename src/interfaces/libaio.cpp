#include "interfaces/libaio.h"

#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace flashmob::interfaces {
namespace {

class LibAio final : public Interface {
 public:
  explicit LibAio(const Lane& lane) : Interface(lane), blocks_(lane.depth), events_(lane.depth) {
    begun_.reserve(lane.depth);
    refused_.reserve(lane.depth);
    if (::syscall(SYS_io_setup, lane.depth, &context_) == 0) return;
    const int error = errno;
    if (error == EAGAIN)
      throw Unsupported(errno_text("io_setup", error) + "; all of the machine's fs.aio-max-nr requests are taken");
    throw Unsupported(errno_text("io_setup", error) + "; this kernel, or a container's rules, has no asynchronous I/O");
  }
  ~LibAio() override { ::syscall(SYS_io_destroy, context_); }

  void submit(std::uint32_t slot, std::uint64_t offset, bool is_write) override {
    iocb& block = blocks_[slot];
    block = {};
    block.aio_data = slot;
    block.aio_lio_opcode = is_write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
    block.aio_fildes = static_cast<std::uint32_t>(lane_.file);
    block.aio_buf = reinterpret_cast<std::uintptr_t>(lane_.buffer(slot));
    block.aio_nbytes = lane_.block_bytes;
    block.aio_offset = static_cast<std::int64_t>(offset);
    begun_.push_back(&block);
  }

  std::size_t wait(std::span<Done> done) override {
    hand_over();
    std::size_t count = 0;
    for (const Done& one : refused_) done[count++] = one;
    refused_.clear();
    while (count == 0) {
      ++system_calls_;
      const long found = ::syscall(SYS_io_getevents, context_, 1, events_.size(), events_.data(), nullptr);
      for (long i = 0; i < found; ++i)
        done[count++] = {static_cast<std::uint32_t>(events_[i].data), static_cast<std::int32_t>(events_[i].res)};
    }
    return count;
  }

 private:
  // The kernel stops at the first one that it refuses, and says why when that one stands first.
  void hand_over() {
    std::size_t first = 0;
    while (first < begun_.size()) {
      ++system_calls_;
      const long taken = ::syscall(SYS_io_submit, context_, begun_.size() - first, begun_.data() + first);
      if (taken > 0) {
        first += static_cast<std::size_t>(taken);
      } else if (errno != EINTR) {
        refused_.push_back({static_cast<std::uint32_t>(begun_[first]->aio_data), taken == 0 ? -EAGAIN : -errno});
        ++first;
      }
    }
    begun_.clear();
  }

  aio_context_t context_ = 0;
  std::vector<iocb> blocks_;
  std::vector<io_event> events_;
  std::vector<iocb*> begun_;
  std::vector<Done> refused_;
};

}  // namespace

std::unique_ptr<Interface> make_libaio(const Lane& lane) { return std::make_unique<LibAio>(lane); }

}  // namespace flashmob::interfaces
