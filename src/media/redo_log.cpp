#include "media/redo_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "media/mapped_media.h"
#include "media/page_access.h"

namespace flashmob::media {

// Whole pages, so that no lane shares one with another thread's.
struct RedoLog::Lane {
  std::uint64_t offset;
  std::uint32_t bytes;  // 0: nothing is under way
  std::uint64_t image;        // its inode: another image may have taken the path
  std::array<char, 40> boot;  // pages outlive a process, not the machine's next start
  std::array<std::byte, kPageBytes - 64> padding;
  std::array<std::byte, kPieceBytes> data;
};

namespace {

std::array<char, 40> boot_id() {
  std::array<char, 40> id{};
  const FileDescriptor file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 || ::read(file.get(), id.data(), id.size() - 1) <= 0) id = {};
  return id;
}

}  // namespace

RedoLog::RedoLog(const std::string& image_path, std::span<std::byte> image, std::uint64_t image_id)
    : path_(path_of(image_path)) {
  static_assert(sizeof(Lane) == kPageBytes + kPieceBytes);
  finish_what_was_begun(image_path, image, image_id);
  ::unlink(path_.c_str());
  const char* const fix = "make its folder writable, or open the image as cow:";
  const FileDescriptor file(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) throw_file_error(path_, "cannot be created", errno, fix);
  // Reserved, because a full disk would be met in the middle of a store.
  const int error = ::posix_fallocate(file.get(), 0, kLanes * sizeof(Lane));
  void* const mapping = error != 0
                            ? MAP_FAILED
                            : ::mmap(nullptr, kLanes * sizeof(Lane), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapping == MAP_FAILED) {
    const int reason = error != 0 ? error : errno;
    ::unlink(path_.c_str());
    throw_file_error(path_, "cannot be reserved and mapped", reason, "free some disk space");
  }
  ::madvise(mapping, kLanes * sizeof(Lane), MADV_DONTDUMP);
  lanes_ = static_cast<Lane*>(mapping);
  const auto boot = boot_id();
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    lanes_[lane].image = image_id;
    lanes_[lane].boot = boot;
  }
}

RedoLog::~RedoLog() {
  ::munmap(lanes_, kLanes * sizeof(Lane));
  ::unlink(path_.c_str());
}

void RedoLog::finish_what_was_begun(const std::string& image_path, std::span<std::byte> image, std::uint64_t image_id) {
  const FileDescriptor file(::open(path_of(image_path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (file.get() < 0) return;
  const auto boot = boot_id();
  const auto lane = std::make_unique<Lane>();
  for (unsigned i = 0; i < kLanes; ++i) {
    if (::pread(file.get(), lane.get(), sizeof(Lane), static_cast<off_t>(i * sizeof(Lane))) != sizeof(Lane)) return;
    if (lane->image != image_id || lane->boot != boot || lane->bytes == 0 || lane->bytes > kPieceBytes ||
        lane->offset >= image.size() || lane->bytes > image.size() - lane->offset)
      continue;
    // A page of the image that is gone by now is met by the commands that read it.
    (void)try_access([&] { std::memcpy(image.data() + lane->offset, lane->data.data(), lane->bytes); });
  }
}

unsigned RedoLog::take() {
  static std::atomic<unsigned> next_thread{0};
  thread_local const unsigned favourite = next_thread.fetch_add(1, std::memory_order_relaxed);
  for (unsigned tries = 0;; ++tries) {
    const unsigned lane = (favourite + tries) % kLanes;
    if (!taken_[lane].load(std::memory_order_relaxed) && !taken_[lane].exchange(true, std::memory_order_acquire))
      return lane;
    if (tries >= kLanes) std::this_thread::yield();
  }
}

// The order of stores is all that matters, and only to this thread's own end: a compiler's barrier makes it.
void RedoLog::begin(unsigned lane, std::uint64_t offset, std::span<const std::byte> in) {
  Lane& held = lanes_[lane];
  std::memcpy(held.data.data(), in.data(), in.size());
  held.offset = offset;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::atomic_ref(held.bytes).store(static_cast<std::uint32_t>(in.size()), std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

const std::byte* RedoLog::data(unsigned lane) const { return lanes_[lane].data.data(); }

void RedoLog::release(unsigned lane) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::atomic_ref(lanes_[lane].bytes).store(0, std::memory_order_release);
  taken_[lane].store(false, std::memory_order_release);
}

}  // namespace flashmob::media
