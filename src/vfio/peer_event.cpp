#include "vfio/peer_event.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "vfio/unique_fd.h"

namespace flashmob::vfio {
namespace {

bool is_ready(int fd, short events) {
  pollfd look{fd, events, 0};
  return poll(&look, 1, 0) == 1 && (look.revents & events) != 0;
}

// A thread's own queue of the kernel's asynchronous I/O. A request's end is signalled to an eventfd by the kernel
// itself, which never waits for room in the counter; a write() would, and no flag of the call forbids it.
class Signaller {
 public:
  Signaller() {
    if (syscall(SYS_io_setup, kDepth, &queue_) != 0) queue_ = 0;
  }
  ~Signaller() {
    if (queue_ != 0) syscall(SYS_io_destroy, queue_);
  }
  Signaller(const Signaller&) = delete;
  Signaller& operator=(const Signaller&) = delete;

  // False where the kernel has no such queues for us.
  bool signal(int fd) {
    if (!null_) null_ = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (queue_ == 0 || !null_) return false;
    if (ended_ == kDepth) {
      std::array<io_event, kDepth> ends;
      syscall(SYS_io_getevents, queue_, 0L, long{kDepth}, ends.data(), nullptr);
      ended_ = 0;
    }
    iocb request{};
    request.aio_lio_opcode = IOCB_CMD_PREAD;
    request.aio_fildes = static_cast<std::uint32_t>(null_.get());
    request.aio_buf = reinterpret_cast<std::uintptr_t>(&nothing_);
    request.aio_flags = IOCB_FLAG_RESFD;
    request.aio_resfd = static_cast<std::uint32_t>(fd);
    iocb* const one = &request;
    if (syscall(SYS_io_submit, queue_, 1L, &one) != 1) return false;
    ++ended_;
    return true;
  }

 private:
  static constexpr unsigned kDepth = 64;
  UniqueFd null_;
  aio_context_t queue_ = 0;
  unsigned ended_ = 0;
  char nothing_ = 0;
};

}  // namespace

void signal_event(int fd) {
  thread_local Signaller signaller;
  if (signaller.signal(fd)) return;
  // Without such a queue, room in the counter is looked for first. Only a peer that fills it in between could still
  // make this wait.
  const std::uint64_t one = 1;
  if (is_ready(fd, POLLOUT)) (void)!write(fd, &one, sizeof(one));
}

bool take_event(int fd, std::uint64_t& count) {
  const iovec to{&count, sizeof(count)};
  const ssize_t got = preadv2(fd, &to, 1, -1, RWF_NOWAIT);
  if (got >= 0 || errno != EOPNOTSUPP) return got == sizeof(count);
  // Kernels before 5.8.
  return is_ready(fd, POLLIN) && read(fd, &count, sizeof(count)) == sizeof(count);
}

}  // namespace flashmob::vfio
