// Mounted file systems, asked by FIEMAP (the kernel's Documentation/filesystems/fiemap.rst).
//
// A file is written back before it is asked for, with fsync; nothing is frozen, so that what others write meanwhile may
// move it afterwards. Only file systems are asked whose answers are places on one block device.
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "extent/sources.h"

namespace flashmob::extent {
namespace {

namespace fs = std::filesystem;

struct KnownSystem {
  std::uint32_t magic;
  const char* name;
};
constexpr std::array<KnownSystem, 3> kSystems{{{0xEF53, "ext4"}, {0x58465342, "xfs"}, {0xF2F52010, "f2fs"}}};
constexpr std::size_t kExtentsAtOnce = 256;
constexpr std::size_t kMaxProblems = 1000;

struct FlagPair {
  std::uint32_t kernels;
  std::uint32_t ours;
};
constexpr std::array<FlagPair, 9> kFlags{{{FIEMAP_EXTENT_UNKNOWN, kExtentUnknown},
                                          {FIEMAP_EXTENT_DELALLOC, kExtentDelalloc},
                                          {FIEMAP_EXTENT_ENCODED, kExtentEncoded},
                                          {FIEMAP_EXTENT_DATA_ENCRYPTED, kExtentEncrypted},
                                          {FIEMAP_EXTENT_NOT_ALIGNED, kExtentUnaligned},
                                          {FIEMAP_EXTENT_DATA_INLINE, kExtentInline},
                                          {FIEMAP_EXTENT_DATA_TAIL, kExtentTail},
                                          {FIEMAP_EXTENT_UNWRITTEN, kExtentUnwritten},
                                          {FIEMAP_EXTENT_SHARED, kExtentShared}}};

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

[[noreturn]] void failed(const std::string& path, const char* what, int error) {
  throw ExtentError(printable(path) + ": " + what + ": " + std::strerror(error));
}

// The kernel's structure ends in an array of no size.
class FiemapRequest {
 public:
  FiemapRequest() : memory_((sizeof(fiemap) + kExtentsAtOnce * sizeof(fiemap_extent)) / sizeof(std::uint64_t)) {}
  fiemap& head() { return *reinterpret_cast<fiemap*>(memory_.data()); }
  std::span<const fiemap_extent> extents() {
    return {head().fm_extents, std::min<std::size_t>(head().fm_mapped_extents, kExtentsAtOnce)};
  }

 private:
  std::vector<std::uint64_t> memory_;
};

FileExtent translated(const fiemap_extent& found) {
  FileExtent extent{found.fe_logical, found.fe_physical, found.fe_length, 0};
  for (const FlagPair& pair : kFlags)
    if (found.fe_flags & pair.kernels) extent.flags |= pair.ours;
  if (!extent.has_place()) extent.device_offset = 0;
  return extent;
}

std::vector<FileExtent> ask(int file, const std::string& path, Range range, std::uint64_t max_extents) {
  if (::fsync(file) != 0) failed(path, "fsync", errno);
  std::vector<FileExtent> out;
  FiemapRequest request;
  for (std::uint64_t at = range.begin; at < range.end;) {
    const std::uint64_t asked = at;
    request.head().fm_start = at;
    request.head().fm_length = range.end - at;
    request.head().fm_flags = 0;
    request.head().fm_mapped_extents = 0;
    request.head().fm_extent_count = kExtentsAtOnce;
    if (::ioctl(file, FS_IOC_FIEMAP, &request.head()) != 0) failed(path, "FIEMAP", errno);
    for (const fiemap_extent& one : request.extents()) {
      const FileExtent extent = translated(one);
      const std::uint64_t end = extent.file_offset + extent.bytes;
      // Of a file that changes meanwhile, the second answer may begin within the first one's last extent.
      if (end <= at || end < extent.file_offset) continue;
      if (out.size() >= max_extents) throw ExtentError(printable(path) + ": has more extents than are read");
      if (extent.file_offset < at && !out.empty())
        throw ExtentError(printable(path) + ": was changed while it was asked for; ask again");
      out.push_back(extent);
      at = end;
      if (one.fe_flags & FIEMAP_EXTENT_LAST) return out;
    }
    if (at == asked) break;
  }
  return out;
}

class MountedSource : public ExtentSource {
 public:
  MountedSource(const std::string& path, const ExtentOptions& options)
      : options_(options), path_(fs::canonical(path)), only_(fs::is_directory(path_) ? "" : path_.filename().string()) {
    if (!only_.empty()) path_ = path_.parent_path();
    root_ = std::make_unique<File>(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat found{};
    struct statfs system{};
    if (root_->get() < 0 || ::fstat(root_->get(), &found) != 0 || ::fstatfs(root_->get(), &system) != 0)
      throw ExtentError(std::strerror(errno));
    device_ = found.st_dev;
    for (const KnownSystem& known : kSystems)
      if (known.magic == static_cast<std::uint32_t>(system.f_type)) system_ = known.name;
    if (system_.empty() || major(device_) == 0)
      throw ExtentError(
          "lies on a file system whose extents are no places on one block device; "
          "name a directory or file on ext4, XFS or F2FS, or an image or block device");
  }

  std::string file_system() const override { return system_; }
  std::vector<std::string> problems() const override { return problems_; }

  std::string device() const override {
    const std::string number = std::to_string(major(device_)) + ":" + std::to_string(minor(device_));
    std::error_code error;
    const fs::path name = fs::read_symlink("/sys/dev/block/" + number, error).filename();
    return error ? number : "/dev/" + name.string();
  }

  std::vector<FileInfo> files() override {
    problems_.clear();
    std::vector<FileInfo> out;
    if (!only_.empty()) return {look_up("/" + only_)};
    out.push_back(look_up("/"));
    std::vector<std::string> pending{""};
    while (!pending.empty()) {
      const std::string directory = std::move(pending.back());
      pending.pop_back();
      if (!directory.empty()) {
        if (!add(directory, out) || out.back().kind != FileKind::directory) continue;
      }
      std::vector<std::string> names = names_of(directory);
      if (out.size() + pending.size() + names.size() > options_.max_files)
        throw ExtentError("there are more than " + std::to_string(options_.max_files) + " files, which is the limit");
      std::sort(names.rbegin(), names.rend());
      for (const std::string& name : names) pending.emplace_back(directory).append("/").append(name);
    }
    return out;
  }

  FileInfo look_up(const std::string& path) override {
    const File file(open_inside(path, O_PATH));
    return info(path, file.get());
  }

  std::vector<FileExtent> extents(const std::string& path, std::uint64_t offset, std::uint64_t bytes) override {
    // What is no file is not opened: opening a pipe waits, and opening a device does something.
    const FileInfo before = look_up(path);
    if (before.kind != FileKind::file)
      throw ExtentError(printable(path) + ": is a " + file_kind_name(before.kind) +
                        ", which has no extents; name a file");
    const File file(open_inside(path, O_RDONLY | O_NONBLOCK));
    fsxattr attributes{};
    if (::ioctl(file.get(), FS_IOC_FSGETXATTR, &attributes) == 0 && (attributes.fsx_xflags & FS_XFLAG_REALTIME) != 0)
      throw ExtentError(printable(path) +
                        ": lies on the file system's realtime device, which is not read; copy it to the data device");
    const FileInfo found = info(path, file.get());
    if (offset >= found.size_bytes || bytes == 0) return {};
    const Range range{offset, offset + std::min(bytes, found.size_bytes - offset)};
    return with_holes(ask(file.get(), path, range, options_.max_extents), offset, bytes, found.size_bytes);
  }

  std::size_t read(const std::string& path, std::uint64_t offset, std::span<std::byte> to) override {
    const std::vector<FileExtent> found = extents(path, offset, to.size());
    if (found.empty()) return 0;
    // Such bytes may still be in the journal alone, and the kernel tells of ext4's only where the first 60 lie.
    for (const FileExtent& extent : found)
      if (extent.flags & kExtentInline)
        throw ExtentError(printable(path) +
                          ": lies within the mounted file system's own structures, where only the "
                          "kernel can read it; read it through the kernel, or unmount");
    if (!reader_) {
      try {
        reader_ = open_direct_reader(device());
      } catch (const ExtentError& error) {
        throw ExtentError(device() + ": " + error.what());
      }
    }
    const std::uint64_t bytes = found.back().file_offset + found.back().bytes - offset;
    read_extents(*reader_, found, to.first(bytes));
    return bytes;
  }

 private:
  // Links lead nowhere beyond the source, and no way to another file system.
  int open_inside(const std::string& path, std::uint64_t flags) const {
    open_how how{};
    how.flags = flags | O_CLOEXEC;
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS;
    const char* name = path.empty() ? "/" : path.c_str();
    int error = EAGAIN;
    // Names that others change meanwhile make the kernel ask for another try.
    for (int tries = 0; error == EAGAIN && tries < 100; ++tries) {
      const long file = ::syscall(SYS_openat2, root_->get(), name, &how, sizeof how);
      if (file >= 0) return static_cast<int>(file);
      error = errno;
    }
    if (error == EXDEV)
      throw ExtentError(printable(path) + ": lies on another file system than " + printable(path_.string()) +
                        "; name a directory on that one");
    throw ExtentError(printable(path) + ": " + std::strerror(error));
  }

  FileInfo info(const std::string& path, int file) const {
    struct stat found{};
    if (::fstat(file, &found) != 0) failed(path, "fstat", errno);
    const std::string absolute = path.starts_with('/') ? path : "/" + path;
    return {absolute, kind_of_mode(found.st_mode), found.st_ino, static_cast<std::uint64_t>(found.st_size)};
  }

  bool add(const std::string& path, std::vector<FileInfo>& out) {
    struct stat found{};
    if (::fstatat(root_->get(), path.c_str() + 1, &found, AT_SYMLINK_NOFOLLOW) != 0) {
      problem(path, std::strerror(errno));
      return false;
    }
    if (found.st_dev != device_) return false;
    out.push_back({path, kind_of_mode(found.st_mode), found.st_ino, static_cast<std::uint64_t>(found.st_size)});
    return true;
  }

  std::vector<std::string> names_of(const std::string& directory) {
    std::vector<std::string> names;
    std::error_code error;
    fs::directory_iterator entries(path_.string() + directory, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error))
      names.push_back(entries->path().filename().string());
    if (error) problem(directory.empty() ? "/" : directory, error.message());
    return names;
  }

  void problem(const std::string& path, const std::string& what) {
    if (problems_.size() < kMaxProblems) problems_.push_back(printable(path) + ": " + what);
  }

  const ExtentOptions options_;
  fs::path path_;
  const std::string only_;  // the one file that the source is
  std::unique_ptr<File> root_;
  dev_t device_ = 0;
  std::string system_;
  std::vector<std::string> problems_;
  std::unique_ptr<DeviceReader> reader_;
};

}  // namespace

std::unique_ptr<ExtentSource> open_mounted(const std::string& path, const ExtentOptions& options) {
  try {
    return std::make_unique<MountedSource>(path, options);
  } catch (const fs::filesystem_error& error) {
    throw ExtentError(error.code().message());
  }
}

}  // namespace flashmob::extent
