#include "media/io_ring.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/backoff.h"
#include "base/uring.h"

namespace flashmob::media {
namespace {

class IoRing final : public BlockPort {
 public:
  IoRing(std::unique_ptr<Uring> ring, int file) : ring_(std::move(ring)), file_(file) {}
  ~IoRing() override {
    // Closing the ring would leave what is under way to the kernel, and its buffers to us.
    std::array<BlockDone, 16> done;
    for (Backoff backoff; under_way_ != 0;) {
      kick();
      if (poll(done) == 0) backoff.pause();
    }
  }

  void submit(const BlockRequest& request) override {
    while (ring_->full()) kick();
    io_uring_sqe& entry = ring_->next_entry();
    entry.opcode = request.is_write ? IORING_OP_WRITE : IORING_OP_READ;
    entry.fd = file_;
    entry.off = request.offset;
    entry.addr = reinterpret_cast<std::uintptr_t>(request.data);
    entry.len = request.bytes;
    entry.rw_flags = request.is_write && request.durable ? RWF_DSYNC : 0;
    if (request.data == nullptr) {
      entry.opcode = IORING_OP_FALLOCATE;
      entry.addr = request.bytes;
      entry.len = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    }
    entry.user_data = request.token;
    ++under_way_;
  }

  void kick() override {
    ring_->show();
    if (ring_->untaken() != 0) ring_->enter(0, 0);
  }

  std::size_t poll(std::span<BlockDone> done) override {
    std::size_t count = 0;
    ring_->reap(done.size(), [&](const io_uring_cqe& entry) {
      done[count++] = {static_cast<std::uint32_t>(entry.user_data), entry.res};
    });
    under_way_ -= static_cast<std::uint32_t>(count);
    return count;
  }

 private:
  std::unique_ptr<Uring> ring_;
  int file_;
  std::uint32_t under_way_ = 0;
};

}  // namespace

std::unique_ptr<BlockPort> make_io_ring(int fd, std::uint32_t depth) {
  // Old kernels count the rings' memory against a small limit of the user's; entries are taken as soon as they are
  // shown, completions wait.
  constexpr std::uint32_t kEntries = 256;
  io_uring_params params{};
  params.flags = IORING_SETUP_CQSIZE;
  params.cq_entries = std::max(depth, 2 * kEntries);
  std::unique_ptr<Uring> ring = Uring::make(kEntries, params);
  return ring == nullptr ? nullptr : std::make_unique<IoRing>(std::move(ring), fd);
}

}  // namespace flashmob::media
