#include "interfaces/target.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/config_checks.h"
#include "base/text.h"

namespace flashmob::interfaces {
namespace {

constexpr std::uint32_t kLeastSectorBytes = 512;

[[noreturn]] void reject_path(const std::string& path, const std::string& why) {
  throw ConfigError(printable(path) + ": " + why);
}

int open_or_say(const InterfaceOptions& options) {
  const int flags = (is_write(options) ? O_RDWR : O_RDONLY) | (options.direct ? O_DIRECT : 0);
  const int file = ::open(options.path.c_str(), flags | O_CLOEXEC);
  if (file >= 0) return file;
  const int error = errno;
  if (options.direct && error == EINVAL)
    throw Unsupported("the file system of " + printable(options.path) +
                      " has no direct I/O (O_DIRECT); use another, such as ext4 or xfs, or ask for buffered I/O");
  reject_path(options.path, "cannot be opened (" + std::string(::strerrordesc_np(error)) + ")");
}

// What direct transfers are aligned to; where nobody says, what disks have at least.
std::uint32_t sector_bytes_of(int file, bool is_block_device) {
  if (int bytes = 0; is_block_device && ::ioctl(file, BLKSSZGET, &bytes) == 0 && bytes > 0)
    return static_cast<std::uint32_t>(bytes);
#ifdef STATX_DIOALIGN
  struct statx info{};
  if (::statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 && (info.stx_mask & STATX_DIOALIGN) != 0 &&
      info.stx_dio_offset_align != 0)
    return std::max(info.stx_dio_offset_align, kLeastSectorBytes);
#endif
  return kLeastSectorBytes;
}

}  // namespace

bool is_write(const InterfaceOptions& options) { return options.rw == "write" || options.rw == "randwrite"; }
bool is_random(const InterfaceOptions& options) { return options.rw == "randread" || options.rw == "randwrite"; }

Target::Target(const InterfaceOptions& options, const InterfaceKind& kind)
    : options_(options), writes_(is_write(options)) {
  check_kind_of_file();
  if (options.direct && kind.is_cached)
    throw Unsupported(std::string(kind.name) + " goes through the page cache; it is measured with buffered I/O only");
  if (kind.is_polled && !options.direct)
    throw Unsupported(std::string(kind.name) + " polls for completions, which only direct I/O has");
  if (writes_ && is_block_device_) claim();
  // After the claim, which fails while somebody has the device open for himself.
  file_.emplace(open_or_say(options));
  check_blocks();
  if (!kind.is_polled) return;
  if (const std::string why = why_no_polling(file_->get()); !why.empty()) throw Unsupported(why);
}

media::FileDescriptor Target::open_file() const { return media::FileDescriptor(open_or_say(options_)); }

void Target::check_kind_of_file() {
  struct stat info{};
  if (options_.path.empty()) throw ConfigError("path = \"\" is not possible: name a file or a block device");
  if (::stat(options_.path.c_str(), &info) != 0)
    reject_path(options_.path, std::string(::strerrordesc_np(errno)) + "; name a file or a block device");
  if (S_ISDIR(info.st_mode)) reject_path(options_.path, "is a folder; name a file or a block device");
  if (!S_ISREG(info.st_mode) && !S_ISBLK(info.st_mode))
    reject_path(options_.path, "is neither a file nor a block device; name one");
  is_block_device_ = S_ISBLK(info.st_mode);
  if (writes_ && !options_.allow_writes)
    reject_path(options_.path, "would be overwritten, and nobody allowed that (--allow-writes)");
}

void Target::claim() {
  // The kernel refuses whoever asks for a device for himself while a file system, a volume, swap or another claim is on
  // it or on a partition of it.
  const int file = ::open(options_.path.c_str(), O_RDWR | O_EXCL | O_CLOEXEC);
  if (file < 0) {
    const std::string why = errno == EBUSY
                                ? "is in use: it, or a partition of it, is mounted or part of something else; "
                                  "it is not written to"
                                : "cannot be opened (" + std::string(::strerrordesc_np(errno)) + ")";
    reject_path(options_.path, why);
  }
  claim_.emplace(file);
}

void Target::check_blocks() {
  const std::uint32_t block = options_.block_bytes;
  const std::uint32_t sector = options_.direct ? sector_bytes_of(file_->get(), is_block_device_) : kLeastSectorBytes;
  if (block == 0 || block % sector != 0)
    config_checks::reject(
        "block_bytes", std::to_string(block),
        "use a multiple of " + std::to_string(sector) + ", the sector of " + printable(options_.path));
  const off_t end = ::lseek(file_->get(), 0, SEEK_END);
  if (end < 0) reject_path(options_.path, "has no size (" + std::string(::strerrordesc_np(errno)) + ")");
  const auto bytes = static_cast<std::uint64_t>(end);
  size_bytes_ = bytes - bytes % block;
  if (size_bytes_ / block < options_.threads)
    reject_path(options_.path, "holds " + bytes_in_words(bytes) +
                                   ", which is less than a block for each thread; use a " +
                                   "larger target, or fewer threads");
}

std::string why_no_polling(int file) {
  struct stat info{};
  if (::fstat(file, &info) != 0) return errno_text("fstat", errno);
  const dev_t device = S_ISBLK(info.st_mode) ? info.st_rdev : info.st_dev;
  const std::string numbers = std::to_string(major(device)) + ":" + std::to_string(minor(device));
  const std::string folder = "/sys/dev/block/" + numbers;
  // A partition's queue is its disk's.
  for (const char* const queue : {"/queue/io_poll", "/../queue/io_poll"}) {
    std::ifstream text(folder + queue);
    int polls = 0;
    if (!(text >> polls)) continue;
    if (polls != 0) return {};
    return "the device (" + numbers +
           ") has no queues to poll (queue/io_poll is 0), and the kernel would wait for the " +
           "interrupt; for NVMe load the driver with nvme.poll_queues=N";
  }
  return "no block device is known behind the target (" + numbers + ") that could be polled";
}

}  // namespace flashmob::interfaces
