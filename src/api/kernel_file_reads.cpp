// flashmob/file_reads.h: files below a directory by the kernel's io_uring.
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <utility>

#include "base/clock.h"
#include "base/uring.h"
#include "flashmob/error.h"
#include "flashmob/file_reads.h"

namespace flashmob {
namespace {

// What one entry can ask for has 32 bits.
constexpr std::size_t kMaxEntryBytes = 1 << 30;
// What entries that cancel others have in place of a slot's number.
constexpr std::uint64_t kCancel = ~std::uint64_t{0};
// How often a read is asked for again that got nothing but EINTR or EAGAIN: some file systems answer nothing else.
constexpr std::uint32_t kMaxRepeats = 64;
// How long nothing is looked at while the kernel takes no entries.
constexpr std::uint64_t kRefusedNs = 1'000'000;

// One that a caller has taken on, from open to close.
struct KernelRead {
  std::uint64_t tag = 0;
  std::string path;
  std::uint64_t offset = 0;  // of what is still to be read
  std::span<std::byte> to;   // the same
  std::uint64_t bytes = 0;   // all of it
  int file = -1;
  std::uint32_t repeats = 0;  // since bytes last came
  bool holds_up = false;      // see holds_up()
};

// Whether reads may hold up the thread that asks for them, whatever io_uring(7) says: those of file systems in user
// space do, of networks might. The kernel's threads ask for them. A disk's own file systems are known not to.
bool holds_up(int file) {
  struct statfs found{};
  if (::fstatfs(file, &found) != 0) return true;
  switch (static_cast<std::uint32_t>(found.f_type)) {
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
      return false;
    default:
      return true;
  }
}

// A plain file for reading: its descriptor, or -1 with what is wrong in `error`. It waits for nobody: a pipe that has
// taken the file's place is open at once, and refused.
int open_plain(int root, const char* path, dev_t& device, std::string& error) {
  const int file = ::openat(root, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  struct stat found{};
  if (file < 0 || ::fstat(file, &found) != 0)
    error = std::strerror(errno);
  else if (device = found.st_dev; !S_ISREG(found.st_mode))
    error = "it is no plain file";
  // Else reads of what is not in memory yet end with EAGAIN, by some kernels.
  else if (::fcntl(file, F_SETFL, 0) == 0)
    return file;
  else
    error = std::strerror(errno);
  if (file >= 0) ::close(file);
  return -1;
}

}  // namespace

struct KernelFileReads::Impl {
  Impl(const std::string& directory, std::uint32_t depth) {
    if (depth < 1 || depth > 1024) throw ConfigError("depth of file reads must be 1...1024");
    io_uring_params params{};
    params.flags = IORING_SETUP_CQSIZE;
    params.cq_entries = std::bit_ceil(2 * depth);
    ring_ = Uring::make(std::bit_ceil(depth), params);
    if (ring_ == nullptr)
      throw ConfigError(std::string("this kernel or container gives no io_uring (") + std::strerror(errno) +
                        "); use back end posix");
    root_ = ::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root_ < 0) throw ConfigError(directory + ": " + std::strerror(errno) + "; name a directory");
    slots_.resize(depth);
    for (std::uint32_t slot = depth; slot-- > 0;) free_.push_back(slot);
  }
  ~Impl() {
    while (!give_up(1'000'000'000)) {
    }
    ::close(root_);
  }

  void begin_what_fits() {
    while (!free_.empty() && !waiting_.empty()) {
      KernelRead read = std::move(waiting_.front());
      waiting_.pop_front();
      const std::size_t begin = std::min(read.path.find_first_not_of('/'), read.path.size());
      std::string error;
      dev_t device = 0;
      read.file = open_plain(root_, read.path.c_str() + begin, device, error);
      if (read.file < 0) {
        end(read, std::move(error));
        continue;
      }
      // Most files lie where the one before did.
      if (std::exchange(device_, device) != device) device_holds_up_ = holds_up(read.file);
      read.holds_up = device_holds_up_;
      const std::uint32_t slot = free_.back();
      free_.pop_back();
      slots_[slot] = std::move(read);
      ask(slot);
    }
  }

  void ask(std::uint32_t slot) {
    const KernelRead& read = slots_[slot];
    io_uring_sqe& entry = ring_->next_entry();
    entry.opcode = IORING_OP_READ;
    entry.flags = read.holds_up ? IOSQE_ASYNC : 0;
    entry.fd = read.file;
    entry.off = read.offset;
    entry.addr = reinterpret_cast<std::uintptr_t>(read.to.data());
    entry.len = static_cast<std::uint32_t>(std::min(read.to.size(), kMaxEntryBytes));
    entry.user_data = slot;
    ring_->show();
    ++in_flight_;
  }

  // Has the kernel take what is asked for; what it said where that is a mistake of ours, and else 0, also while it is
  // out of memory.
  int tell() {
    const long taken = ring_->untaken() != 0 ? ring_->enter(0, 0) : 0;
    return taken < 0 && taken != -EINTR && taken != -EAGAIN && taken != -EBUSY ? static_cast<int>(-taken) : 0;
  }

  // Takes in what has ended; if that is nothing, once more after a sleep. False after a signal.
  bool take_in(std::uint64_t at_most_ns) {
    if (reap() != 0) return true;
    const bool slept = ring_->await(ring_->untaken() != 0 ? std::min(at_most_ns, kRefusedNs) : at_most_ns);
    reap();
    return slept;
  }
  std::size_t reap() {
    const std::size_t count = ring_->reap(2 * slots_.size(), [this](const io_uring_cqe& entry) {
      if (entry.user_data == kCancel) return;
      --in_flight_;
      ended_.emplace_back(static_cast<std::uint32_t>(entry.user_data), entry.res);
    });
    for (const auto& [slot, result] : std::exchange(ended_, {})) go_on(slot, result);
    return count;
  }

  void go_on(std::uint32_t slot, std::int32_t result) {
    KernelRead& read = slots_[slot];
    const bool may_ask = !gives_up_ && (result > 0 || read.repeats < kMaxRepeats);
    if ((result == -EINTR || result == -EAGAIN) && may_ask) {
      ++read.repeats;
      return ask(slot);
    }
    if (result > 0) {
      read.repeats = 0;
      read.offset += static_cast<std::uint64_t>(result);
      read.to = read.to.subspan(static_cast<std::size_t>(result));
      if (!read.to.empty() && may_ask) return ask(slot);
    }
    const bool is_short = result == 0 && !read.to.empty();
    end(read, result < 0 ? std::strerror(-result)
              : is_short ? "it ends at byte " + std::to_string(read.offset) + "; it has become shorter"
                         : std::string());
    free_.push_back(slot);
  }

  void end(KernelRead& read, std::string error) {
    if (read.file >= 0) ::close(read.file);
    read.file = -1;
    const std::uint64_t bytes = error.empty() ? read.bytes : 0;
    done_.push_back({read.tag, bytes, std::move(error)});
  }

  std::vector<FileReadDone> wait(std::uint64_t at_most_ns) {
    const std::uint64_t begin_ns = clock_.now_ns();
    begin_what_fits();
    while (done_.empty() && in_flight_ != 0) {
      if (const int error = tell(); error != 0)
        throw std::runtime_error(std::string("io_uring_enter: ") + std::strerror(error));
      const std::uint64_t passed_ns = std::min(clock_.now_ns() - begin_ns, at_most_ns);
      const bool slept = take_in(at_most_ns - passed_ns);
      begin_what_fits();
      if (!slept || passed_ns == at_most_ns) break;
    }
    return std::exchange(done_, {});
  }

  bool give_up(std::uint64_t at_most_ns) {
    waiting_.clear();
    if (!std::exchange(gives_up_, true)) cancel_all();
    const std::uint64_t begin_ns = clock_.now_ns();
    while (in_flight_ != 0) {
      // One that is not taken now is as good as in flight: the next call may have it taken.
      static_cast<void>(tell());
      const std::uint64_t passed_ns = clock_.now_ns() - begin_ns;
      if (passed_ns >= at_most_ns) break;
      take_in(at_most_ns - passed_ns);
    }
    done_.clear();
    return in_flight_ == 0;
  }

  // Those that wait in the kernel, for a pipe's bytes or a server's, then end; a disk's own reads end by themselves.
  void cancel_all() {
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].file < 0) continue;
      if (ring_->full() && (tell() != 0 || ring_->full())) return;
      io_uring_sqe& entry = ring_->next_entry();
      entry.opcode = IORING_OP_ASYNC_CANCEL;
      entry.fd = -1;
      entry.addr = slot;
      entry.user_data = kCancel;
      ring_->show();
    }
  }

  const pid_t process_ = ::getpid();
  const Clock clock_ = Clock::real();
  int root_ = -1;
  std::unique_ptr<Uring> ring_;
  std::deque<KernelRead> waiting_;
  std::vector<KernelRead> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<std::pair<std::uint32_t, std::int32_t>> ended_;
  std::vector<FileReadDone> done_;
  std::uint32_t in_flight_ = 0;
  bool gives_up_ = false;
  dev_t device_ = ~dev_t{0};  // of the file that was opened last, and ...
  bool device_holds_up_ = true;
};

std::unique_ptr<KernelFileReads> KernelFileReads::open(const std::string& directory, std::uint32_t depth) {
  return std::unique_ptr<KernelFileReads>(new KernelFileReads(std::make_unique<Impl>(directory, depth)));
}

KernelFileReads::KernelFileReads(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KernelFileReads::~KernelFileReads() {
  // After a fork the rings are the parent's, who still uses them.
  if (::getpid() != impl_->process_) static_cast<void>(impl_.release());
}

void KernelFileReads::start(std::uint64_t tag, const std::string& path, std::uint64_t offset, std::span<std::byte> to) {
  impl_->waiting_.push_back({tag, path, offset, to, to.size()});
}

std::vector<FileReadDone> KernelFileReads::wait(std::uint64_t at_most_ns) { return impl_->wait(at_most_ns); }

bool KernelFileReads::give_up(std::uint64_t at_most_ns) {
  return ::getpid() != impl_->process_ || impl_->give_up(at_most_ns);
}

std::uint64_t KernelFileReads::unfinished() const {
  return impl_->waiting_.size() + impl_->in_flight_ + impl_->done_.size();
}

}  // namespace flashmob
