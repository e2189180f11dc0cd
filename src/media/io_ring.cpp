#include "media/io_ring.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "media/mapped_media.h"

namespace flashmob::media {
namespace {

// Where one of the rings' fields lies, as the kernel says.
std::atomic_ref<std::uint32_t> field(std::byte* ring, std::uint32_t offset) {
  return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(ring + offset));
}

class IoRing final : public BlockPort {
 public:
  IoRing(int ring, const io_uring_params& params, int file) : ring_(ring), file_(file), params_(params) {}
  ~IoRing() override {
    // Closing the ring would leave what is under way to the kernel, and its buffers to us.
    std::array<BlockDone, 16> done;
    while (under_way_ != 0) {
      kick();
      if (poll(done) == 0) std::this_thread::yield();
    }
    if (rings_ != nullptr) ::munmap(rings_, rings_bytes_);
    if (entries_ != nullptr) ::munmap(entries_, params_.sq_entries * sizeof(io_uring_sqe));
  }

  bool map() {
    rings_bytes_ = std::max<std::size_t>(params_.sq_off.array + params_.sq_entries * sizeof(std::uint32_t),
                                         params_.cq_off.cqes + params_.cq_entries * sizeof(io_uring_cqe));
    rings_ = static_cast<std::byte*>(map_part(rings_bytes_, IORING_OFF_SQ_RING));
    entries_ = static_cast<io_uring_sqe*>(map_part(params_.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
    return rings_ != nullptr && entries_ != nullptr;
  }

  void submit(const BlockRequest& request) override {
    if (unsent_ == params_.sq_entries) kick();
    const std::uint32_t at = (tail_ + unsent_) & (params_.sq_entries - 1);
    io_uring_sqe& entry = entries_[at];
    entry = {};
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
    field(rings_, params_.sq_off.array + at * 4).store(at, std::memory_order_relaxed);
    ++unsent_;
    ++under_way_;
  }

  // The kernel takes fewer than it is shown only while it lacks memory or completions are not picked up; the rest is
  // shown again by the next call.
  void kick() override {
    tail_ += unsent_;
    shown_ += unsent_;
    unsent_ = 0;
    if (shown_ == 0) return;
    field(rings_, params_.sq_off.tail).store(tail_, std::memory_order_release);
    const long taken = ::syscall(SYS_io_uring_enter, ring_.get(), shown_, 0, 0, nullptr, 0);
    if (taken > 0) shown_ -= static_cast<std::uint32_t>(taken);
  }

  std::size_t poll(std::span<BlockDone> done) override {
    std::uint32_t head = field(rings_, params_.cq_off.head).load(std::memory_order_relaxed);
    const std::uint32_t tail = field(rings_, params_.cq_off.tail).load(std::memory_order_acquire);
    const auto* const cqes = reinterpret_cast<const io_uring_cqe*>(rings_ + params_.cq_off.cqes);
    std::size_t count = 0;
    for (; head != tail && count < done.size(); ++head, ++count) {
      const io_uring_cqe& entry = cqes[head & (params_.cq_entries - 1)];
      done[count] = {static_cast<std::uint32_t>(entry.user_data), entry.res};
    }
    field(rings_, params_.cq_off.head).store(head, std::memory_order_release);
    under_way_ -= static_cast<std::uint32_t>(count);
    return count;
  }

 private:
  void* map_part(std::size_t bytes, std::uint64_t offset) {
    void* const part = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_.get(),
                              static_cast<off_t>(offset));
    return part == MAP_FAILED ? nullptr : part;
  }

  FileDescriptor ring_;
  int file_;
  io_uring_params params_;
  std::byte* rings_ = nullptr;
  std::size_t rings_bytes_ = 0;
  io_uring_sqe* entries_ = nullptr;
  std::uint32_t tail_ = 0;       // as the kernel was shown last
  std::uint32_t unsent_ = 0;     // entries beyond it
  std::uint32_t shown_ = 0;      // entries before it that the kernel has not taken
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
  const long ring = ::syscall(SYS_io_uring_setup, kEntries, &params);
  if (ring < 0) return nullptr;
  auto made = std::make_unique<IoRing>(static_cast<int>(ring), params, fd);
  constexpr std::uint32_t kNeeded = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS;
  if ((params.features & kNeeded) != kNeeded) {
    errno = ENOSYS;
    return nullptr;
  }
  return made->map() ? std::move(made) : nullptr;
}

}  // namespace flashmob::media
