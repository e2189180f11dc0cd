#include "media/redo_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/backoff.h"
#include "media/mapped_media.h"

namespace flashmob::media {

// Whole pages, so that no lane shares one with another thread's. What is up to `boot` has its place in every version.
struct RedoLog::Lane {
  std::uint64_t offset;
  std::uint32_t bytes;        // 0: nothing is under way
  std::uint32_t version;      // 0: of before it was counted, when an image was known by its inode alone
  std::uint64_t inode;        // this and the last two: of the image, as another may have taken the path
  std::array<char, 40> boot;  // pages outlive a process, not the machine's next start
  std::uint64_t device;
  std::int64_t born_ns;
  std::array<std::byte, kPageBytes - 80> padding;
  std::array<std::byte, kPieceBytes> data;
};

namespace {

constexpr std::uint32_t kVersion = 1;

std::array<char, 40> boot_id() {
  std::array<char, 40> id{};
  const FileDescriptor file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 || ::read(file.get(), id.data(), id.size() - 1) <= 0) id = {};
  return id;
}

}  // namespace

RedoLog::RedoLog(const std::string& image_path, std::span<std::byte> image, const ImageIdentity& identity)
    : path_(path_of(image_path)), image_(image.data()) {
  static_assert(sizeof(Lane) == kPageBytes + kPieceBytes && offsetof(Lane, boot) == 24);
  finish_what_was_begun(image_path, image, identity);
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
  pages_.emplace(mapping, kLanes * sizeof(Lane));
  const auto boot = boot_id();
  // Where somebody cuts it already, the first store finds no version and says so.
  (void)try_access([&] {
    for (Lane& lane : std::span(lanes_, kLanes)) {
      lane.inode = identity.inode;
      lane.device = identity.device;
      lane.born_ns = identity.born_ns;
      lane.boot = boot;
      lane.version = kVersion;
    }
  });
}

RedoLog::~RedoLog() {
  pages_.reset();
  ::munmap(lanes_, kLanes * sizeof(Lane));
  ::unlink(path_.c_str());
}

void RedoLog::finish_what_was_begun(const std::string& image_path, std::span<std::byte> image,
                                    const ImageIdentity& identity) {
  const std::string path = path_of(image_path);
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (file.get() < 0) return;
  const auto boot = boot_id();
  const auto lane = std::make_unique<Lane>();
  for (unsigned i = 0; i < kLanes; ++i) {
    if (::pread(file.get(), lane.get(), sizeof(Lane), static_cast<off_t>(i * sizeof(Lane))) != sizeof(Lane)) return;
    if (lane->bytes == 0 || lane->boot != boot) continue;
    if (lane->version != kVersion)
      throw_file_error(path, "holds the last writes to the image as another version of flashmob notes them",
                       "serve the image with that version once, or delete this file if the image is a new one");
    if (ImageIdentity{lane->inode, lane->device, lane->born_ns} != identity)
      throw_file_error(path, "holds the last writes to another image, which was at this path before",
                       "put that image back and serve it once, or delete this file if that image is gone");
    if (lane->bytes > kPieceBytes || lane->offset >= image.size() || lane->bytes > image.size() - lane->offset)
      continue;
    // A page of the image that is gone by now is met by the commands that read it.
    (void)try_access([&] { std::memcpy(image.data() + lane->offset, lane->data.data(), lane->bytes); });
  }
}

unsigned RedoLog::take() {
  static std::atomic<unsigned> next_thread{0};
  thread_local const unsigned favourite = next_thread.fetch_add(1, std::memory_order_relaxed);
  Backoff backoff(0);
  for (unsigned tries = 0;; ++tries) {
    const unsigned lane = (favourite + tries) % kLanes;
    if (!taken_[lane].load(std::memory_order_relaxed) && !taken_[lane].exchange(true, std::memory_order_acquire))
      return lane;
    if (tries >= kLanes) backoff.pause();
  }
}

bool RedoLog::store(std::uint64_t offset, std::span<const std::byte> in) {
  const unsigned lane = take();
  bool good = false;
  // One guard for the log and the image: each costs as much as a short copy.
  const bool reached = !is_cut_.load(std::memory_order_relaxed) && try_access([&] {
    if (!begin(lane, offset, in)) return;
    // From the log: it is in the cache, and the caller's memory may be changing.
    std::memcpy(image_ + offset, data(lane), in.size());
    good = end(lane);
  });
  const bool stored = reached && good;
  if (!stored) give_up(lane);
  taken_[lane].store(false, std::memory_order_release);
  return stored;
}

void RedoLog::give_up(unsigned lane) {
  bool is_whole = false;
  const bool reached = try_access([&] {
    is_whole = end(lane);
    const volatile std::byte* const data = lanes_[lane].data.data();
    for (std::size_t at = 0; at < kPieceBytes; at += kPageBytes) {
      [[maybe_unused]] const std::byte touched = data[at];
    }
  });
  if (!reached || !is_whole) is_cut_.store(true, std::memory_order_relaxed);
}

// The order of stores is all that matters, and only to this thread's own end: a compiler's barrier makes it.
bool RedoLog::begin(unsigned lane, std::uint64_t offset, std::span<const std::byte> in) {
  Lane& held = lanes_[lane];
  if (held.version != kVersion) return false;
  std::memcpy(held.data.data(), in.data(), in.size());
  held.offset = offset;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::atomic_ref(held.bytes).store(static_cast<std::uint32_t>(in.size()), std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return true;
}

const std::byte* RedoLog::data(unsigned lane) const { return lanes_[lane].data.data(); }

bool RedoLog::end(unsigned lane) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::atomic_ref(lanes_[lane].bytes).store(0, std::memory_order_release);
  return lanes_[lane].version == kVersion;
}

}  // namespace flashmob::media
