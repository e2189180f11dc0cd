#include "interfaces/io_uring.h"

#include <linux/io_uring.h>
#include <sys/uio.h>

#include <bit>
#include <cerrno>
#include <thread>
#include <vector>

#include "base/platform.h"
#include "base/uring.h"

namespace flashmob::interfaces {
namespace {

// Linux 6.13; headers may be older.
constexpr std::uint32_t kSetupHybridIoPoll = 1u << 17;
// A thread of the kernel's that has found nothing for so long goes to sleep.
constexpr std::uint32_t kThreadIdleMs = 1'000;
// So many looks at an empty ring (some 100 us) before the core is offered to others: the kernel's thread may need it.
constexpr std::uint32_t kLooks = 2'000;

[[noreturn]] void say_why_no_ring(unsigned mode, int error) {
  const std::string text = errno_text("io_uring_setup", error);
  if (error == EPERM || error == EACCES)
    throw Unsupported(text + "; kernel.io_uring_disabled or a container's seccomp rules forbid io_uring");
  if (error == ENOSYS) throw Unsupported(text + "; this kernel has no io_uring, which began with Linux 5.6");
  if (error == EINVAL && (mode & kHybridPoll) != 0)
    throw Unsupported(text + "; this kernel has no hybrid polling, which began with Linux 6.13");
  if (error == EINVAL) throw Unsupported(text + "; this kernel does not know such a ring");
  if (error == ENOMEM) throw Unsupported(text + "; raise the limit of locked memory (ulimit -l)");
  throw Unsupported(text);
}

class IoUring final : public Interface {
 public:
  IoUring(const Lane& lane, unsigned mode) : Interface(lane), mode_(mode) {
    io_uring_params params{};
    params.flags = IORING_SETUP_CQSIZE;
    params.cq_entries = std::bit_ceil(2 * lane.depth);
    if ((mode & kSqPoll) != 0) {
      params.flags |= IORING_SETUP_SQPOLL;
      params.sq_thread_idle = kThreadIdleMs;
    }
    if (is_polled()) params.flags |= IORING_SETUP_IOPOLL;
    if ((mode & kHybridPoll) != 0) params.flags |= kSetupHybridIoPoll;
    ring_ = Uring::make(std::bit_ceil(lane.depth), params);
    if (ring_ == nullptr) say_why_no_ring(mode, errno);
    if ((mode & kFixed) != 0) fix();
  }

  void submit(std::uint32_t slot, std::uint64_t offset, bool is_write) override {
    io_uring_sqe& entry = ring_->next_entry();
    const bool is_fixed = (mode_ & kFixed) != 0;
    if (is_fixed) {
      entry.opcode = is_write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
      entry.flags = IOSQE_FIXED_FILE;
      entry.buf_index = static_cast<std::uint16_t>(slot);
    } else {
      entry.opcode = is_write ? IORING_OP_WRITE : IORING_OP_READ;
    }
    entry.fd = is_fixed ? 0 : lane_.file;
    entry.off = offset;
    entry.addr = reinterpret_cast<std::uintptr_t>(lane_.buffer(slot));
    entry.len = lane_.block_bytes;
    entry.user_data = slot;
    ring_->show();
  }

  std::size_t wait(std::span<Done> done) override {
    if ((mode_ & kSqPoll) != 0) return wait_for_thread(done);
    std::size_t count = 0;
    while (count == 0) {
      ++system_calls_;
      const long taken = ring_->enter(1, IORING_ENTER_GETEVENTS);
      // Interrupted, or out of memory for the moment: what is shown stays shown.
      if (taken < 0 && taken != -EINTR && taken != -EAGAIN && taken != -EBUSY)
        throw Unsupported(errno_text("io_uring_enter", static_cast<int>(-taken)));
      count = reap(done);
    }
    return count;
  }

 private:
  bool is_polled() const { return (mode_ & (kIoPoll | kHybridPoll)) != 0; }

  void fix() {
    std::vector<iovec> buffers(lane_.depth);
    for (std::uint32_t slot = 0; slot < lane_.depth; ++slot) buffers[slot] = {lane_.buffer(slot), lane_.block_bytes};
    if (const long error = ring_->enroll(IORING_REGISTER_BUFFERS, buffers.data(), lane_.depth); error != 0)
      throw Unsupported(errno_text("io_uring_register of buffers", static_cast<int>(-error)) +
                        "; raise the limit of locked memory (ulimit -l), or leave fixed buffers out");
    if (const long error = ring_->enroll(IORING_REGISTER_FILES, &lane_.file, 1); error != 0)
      throw Unsupported(errno_text("io_uring_register of files", static_cast<int>(-error)));
  }

  // Looks at the completions until there is one, without a system call unless the kernel's thread sleeps.
  std::size_t wait_for_thread(std::span<Done> done) {
    ring_->leave_to_thread();
    if (ring_->thread_sleeps()) {
      ++system_calls_;
      ring_->enter(0, IORING_ENTER_SQ_WAKEUP);
    }
    for (std::uint32_t look = 1;; ++look) {
      if (const std::size_t count = reap(done); count != 0) return count;
      cpu_pause();
      if (look % kLooks != 0) continue;
      ++system_calls_;
      std::this_thread::yield();
    }
  }

  std::size_t reap(std::span<Done> done) {
    std::size_t count = 0;
    ring_->reap(done.size(), [&](const io_uring_cqe& entry) {
      done[count++] = {static_cast<std::uint32_t>(entry.user_data), entry.res};
    });
    return count;
  }

  unsigned mode_;
  std::unique_ptr<Uring> ring_;
};

}  // namespace

std::unique_ptr<Interface> make_io_uring_of(const Lane& lane, unsigned mode) {
  return std::make_unique<IoUring>(lane, mode);
}

}  // namespace flashmob::interfaces
