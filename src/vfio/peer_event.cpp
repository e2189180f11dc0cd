#include "vfio/peer_event.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>

#include "flashmob/error.h"

namespace flashmob::vfio {
namespace {

bool is_ready(int fd, short events) {
  pollfd look{fd, events, 0};
  return poll(&look, 1, 0) == 1 && (look.revents & events) != 0;
}

// Read by requests that are to do nothing. Opened once, so that it is there when descriptors have run out.
std::atomic<int> null_fd{-1};

// A queue of the kernel's asynchronous I/O. A request's end is signalled to an eventfd by the kernel itself, which
// never waits for room in the counter; a write() would, and no flag of the call forbids it.
class Signaller {
 public:
  ~Signaller() {
    if (queue_ != 0) syscall(SYS_io_destroy, queue_);
  }
  // False where the kernel has no more such queues; another time it may.
  bool open() {
    if (queue_ == 0 && syscall(SYS_io_setup, kDepth, &queue_) != 0) queue_ = 0;
    return queue_ != 0;
  }
  bool signal(int fd) {
    if (!open()) return false;
    if (ended_ == kDepth) {
      std::array<io_event, kDepth> ends;
      syscall(SYS_io_getevents, queue_, 0L, long{kDepth}, ends.data(), nullptr);
      ended_ = 0;
    }
    iocb request{};
    request.aio_lio_opcode = IOCB_CMD_PREAD;
    request.aio_fildes = static_cast<std::uint32_t>(null_fd.load(std::memory_order_acquire));
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
  aio_context_t queue_ = 0;
  unsigned ended_ = 0;
  char nothing_ = 0;
};

// For threads that get none of their own.
struct SharedSignaller {
  std::mutex mutex;
  Signaller signaller;

  static SharedSignaller& get() {
    static auto* const shared = new SharedSignaller;
    return *shared;
  }
  bool prepare() {
    if (null_fd.load(std::memory_order_relaxed) < 0)
      null_fd.store(::open("/dev/null", O_RDONLY | O_CLOEXEC), std::memory_order_release);
    return null_fd.load(std::memory_order_relaxed) >= 0 && signaller.open();
  }
};

}  // namespace

void prepare_events() {
  SharedSignaller& shared = SharedSignaller::get();
  const std::lock_guard lock(shared.mutex);
  if (!shared.prepare())
    throw ConfigError(std::string("interrupts of clients cannot be signalled without waiting for them (") +
                      std::strerror(errno) +
                      "): raise the number of asynchronous I/O requests (sysctl fs.aio-max-nr), or of open files "
                      "(ulimit -n)");
}

void signal_event(int fd) {
  thread_local Signaller own;
  if (null_fd.load(std::memory_order_acquire) >= 0 && own.signal(fd)) return;
  SharedSignaller& shared = SharedSignaller::get();
  const std::lock_guard lock(shared.mutex);
  if (shared.prepare()) (void)shared.signaller.signal(fd);
}

bool take_event(int fd, std::uint64_t& count) {
  const iovec to{&count, sizeof(count)};
  const ssize_t got = preadv2(fd, &to, 1, -1, RWF_NOWAIT);
  if (got >= 0 || errno != EOPNOTSUPP) return got == sizeof(count);
  // Kernels before 5.8.
  return is_ready(fd, POLLIN) && read(fd, &count, sizeof(count)) == sizeof(count);
}

}  // namespace flashmob::vfio
