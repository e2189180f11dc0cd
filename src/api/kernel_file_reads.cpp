// flashmob/file_reads.h: files below a directory by the kernel's io_uring.
#include <fcntl.h>
#include <linux/io_uring.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <utility>

#include "base/uring.h"
#include "flashmob/error.h"
#include "flashmob/file_reads.h"

namespace flashmob {
namespace {

// What one entry can ask for has 32 bits.
constexpr std::size_t kMaxEntryBytes = 1 << 30;

// One that a caller has taken on, from open to close.
struct KernelRead {
  std::uint64_t tag = 0;
  std::string path;
  std::uint64_t offset = 0;  // of what is still to be read
  std::span<std::byte> to;   // the same
  std::uint64_t bytes = 0;   // all of it
  int file = -1;
};

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
    waiting_.clear();
    while (in_flight_ != 0) take_in();
    ::close(root_);
  }

  void begin_what_fits() {
    while (!free_.empty() && !waiting_.empty()) {
      KernelRead read = std::move(waiting_.front());
      waiting_.pop_front();
      const std::size_t begin = std::min(read.path.find_first_not_of('/'), read.path.size());
      read.file = ::openat(root_, read.path.c_str() + begin, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
      if (read.file < 0) {
        end(read, std::strerror(errno));
        continue;
      }
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
    entry.fd = read.file;
    entry.off = read.offset;
    entry.addr = reinterpret_cast<std::uintptr_t>(read.to.data());
    entry.len = static_cast<std::uint32_t>(std::min(read.to.size(), kMaxEntryBytes));
    entry.user_data = slot;
    ring_->show();
    ++in_flight_;
  }

  // Waits for at least one entry. A ring that cannot be entered is a mistake of ours, or the kernel is out of memory
  // for the moment.
  void take_in() {
    const long taken = ring_->enter(1, IORING_ENTER_GETEVENTS);
    if (taken < 0 && taken != -EINTR && taken != -EAGAIN && taken != -EBUSY)
      throw std::runtime_error(std::string("io_uring_enter: ") + std::strerror(static_cast<int>(-taken)));
    ring_->reap(slots_.size(), [this](const io_uring_cqe& entry) {
      --in_flight_;
      ended_.emplace_back(static_cast<std::uint32_t>(entry.user_data), entry.res);
    });
    for (const auto& [slot, result] : std::exchange(ended_, {})) go_on(slot, result);
  }

  void go_on(std::uint32_t slot, std::int32_t result) {
    KernelRead& read = slots_[slot];
    if (result == -EINTR || result == -EAGAIN) return ask(slot);
    if (result > 0) {
      read.offset += static_cast<std::uint64_t>(result);
      read.to = read.to.subspan(static_cast<std::size_t>(result));
      if (!read.to.empty()) return ask(slot);
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

  std::vector<FileReadDone> wait() {
    begin_what_fits();
    while (done_.empty() && in_flight_ != 0) {
      take_in();
      begin_what_fits();
    }
    return std::exchange(done_, {});
  }

  const pid_t process_ = ::getpid();
  int root_ = -1;
  std::unique_ptr<Uring> ring_;
  std::deque<KernelRead> waiting_;
  std::vector<KernelRead> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<std::pair<std::uint32_t, std::int32_t>> ended_;
  std::vector<FileReadDone> done_;
  std::uint32_t in_flight_ = 0;
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

std::vector<FileReadDone> KernelFileReads::wait() { return impl_->wait(); }

std::uint64_t KernelFileReads::unfinished() const {
  return impl_->waiting_.size() + impl_->in_flight_ + impl_->done_.size();
}

}  // namespace flashmob
