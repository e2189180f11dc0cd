#include "media/file_media.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "media/image_file.h"

namespace flashmob::media {
namespace {

// Opens the file, creating it only when a size was given for it. `created` tells which.
FileDescriptor open_or_create(const std::string& path, bool may_create, bool& created) {
  // O_NONBLOCK has no effect on regular files, and keeps a FIFO from blocking us before it is rejected.
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NONBLOCK;
  created = false;
  FileDescriptor existing(::open(path.c_str(), kFlags));
  if (existing.get() >= 0) return existing;
  if (errno == EISDIR) throw_file_error(path, "is a directory", "name a regular file in it");
  if (errno != ENOENT) throw_file_error(path, "cannot be opened for writing", errno, "check path and permissions");
  if (!may_create) {
    throw_file_error(path, "does not exist", "give size_bytes (--size) so that it can be created, or another path");
  }
  FileDescriptor fresh(::open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0600));
  if (fresh.get() < 0) throw_file_error(path, "cannot be created", errno, "check the directory and its permissions");
  created = true;
  return fresh;
}

// False if the file system says that it cannot hold the file: asking first keeps a hopeless reservation from filling
// the disk for everybody else until it fails.
bool disk_has_room(const FileDescriptor& file, std::uint64_t bytes) {
  struct stat info;
  struct statvfs disk;
  if (::fstat(file.get(), &info) != 0 || ::fstatvfs(file.get(), &disk) != 0) return true;
  const std::uint64_t reserved = static_cast<std::uint64_t>(info.st_blocks) * 512;
  return reserved >= bytes || (bytes - reserved) / disk.f_frsize <= disk.f_bavail;
}

// Reserves disk blocks for the whole of a new file. Undoes what it did if the disk is full.
void reserve(const FileDescriptor& file, const std::string& path, std::uint64_t bytes, bool created) {
  int error = ENOSPC;
  if (disk_has_room(file, bytes)) {
    do {
      error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
    } while (error == EINTR);
  }
  if (error == 0) return;
  if (created) {
    ::unlink(path.c_str());
  } else if (::ftruncate(file.get(), 0) != 0) {
    throw_file_error(path, "could not be shortened again after the disk was full", errno, "check the file system");
  }
  throw_file_error(path, "its " + std::to_string(bytes) + " bytes cannot be reserved on disk", error,
                   "free disk space, or use a smaller size_bytes (--size) or another file system");
}

// image_path_of(), and nothing is made on the way to an error; what somebody has put in its place is theirs.
std::string own_path_of(const FileDescriptor& file, const std::string& path, bool created) {
  try {
    return image_path_of(file, path);
  } catch (const ConfigError&) {
    struct stat own, there;
    const bool is_own = ::fstat(file.get(), &own) == 0 && ::stat(path.c_str(), &there) == 0 &&
                        own.st_dev == there.st_dev && own.st_ino == there.st_ino;
    if (created && is_own) ::unlink(path.c_str());
    throw;
  }
}

}  // namespace

OpenedFile open_store_file(const std::string& path, std::uint64_t size_bytes) {
  bool created;
  FileDescriptor file = open_or_create(path, size_bytes != 0, created);
  const std::uint64_t old_bytes = regular_file_size(file, path);
  lock_file(file, path, LOCK_EX);
  const std::string image_path = own_path_of(file, path, created);
  const std::string state_path = StateKeeper::path_of(image_path);
  if (old_bytes == 0 && ::access(state_path.c_str(), F_OK) == 0) {
    if (created) ::unlink(path.c_str());
    throw_file_error(state_path, "says what hosts changed about an image that is gone",
                     "restore the image, or delete this file");
  }
  if (size_bytes == 0) {
    if (old_bytes == 0) throw_file_error(path, "is empty", "give size_bytes (--size) so that it can be filled");
    size_bytes = round_up(old_bytes, kPageBytes);
  } else if (old_bytes != 0 && old_bytes < size_bytes) {
    throw_file_error(
        path, "has " + std::to_string(old_bytes) + " bytes, fewer than size_bytes = " + std::to_string(size_bytes),
        "use size_bytes = 0 (no --size) to take the file as it is, or extend it first with truncate -s " +
            std::to_string(size_bytes));
  }
  if (old_bytes == 0) reserve(file, path, size_bytes, created);
  if (created) sync_parent_directory(path);
  return {std::move(file), size_bytes, created, image_path, old_bytes == 0 ? size_bytes : old_bytes};
}

FileMedia::FileMedia(OpenedFile opened, std::byte* base, std::uint64_t mapped_bytes, std::string path)
    : MappedMedia(opened.size_bytes, base, mapped_bytes, kPageBytes, true),
      file_(std::move(opened.file)),
      path_(std::move(path)),
      file_bytes_(std::min(opened.file_bytes, opened.size_bytes)),
      saved_(std::make_shared<StateKeeper>(opened.image_path, opened.size_bytes)),
      redo_(opened.image_path, {base, opened.size_bytes}, identity_of(file_)) {}

std::unique_ptr<FileMedia> FileMedia::open(const std::string& path, std::uint64_t size_bytes) {
  OpenedFile opened = open_store_file(path, size_bytes);
  const bool created = opened.created;
  const std::uint64_t mapped_bytes = round_up(opened.size_bytes, kPageBytes);
  void* mapping = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened.file.get(), 0);
  if (mapping == MAP_FAILED) {
    const int error = errno;
    if (created) ::unlink(path.c_str());
    throw_file_error(path, "cannot be mapped", error, "use a smaller size_bytes (--size) or another file system");
  }
  ::madvise(mapping, mapped_bytes, MADV_DONTDUMP);
  try {
    return std::unique_ptr<FileMedia>(
        new FileMedia(std::move(opened), static_cast<std::byte*>(mapping), mapped_bytes, path));
  } catch (const ConfigError&) {
    if (created) ::unlink(path.c_str());
    throw;
  }
}

// What is stored behind a file's end in its last page is never in the file. Whoever only reads leaves the file as it
// is.
bool FileMedia::grow() {
  const std::uint64_t had_bytes = file_bytes_.load(std::memory_order_relaxed);
  struct stat info;
  // Of what somebody has cut off nothing is made up; of two who write at once, one may have done it already.
  if (::fstat(file_.get(), &info) != 0 || static_cast<std::uint64_t>(info.st_size) < had_bytes) return false;
  if (static_cast<std::uint64_t>(info.st_size) < size_bytes() &&
      ::ftruncate(file_.get(), static_cast<off_t>(size_bytes())) != 0)
    return false;
  file_bytes_.store(size_bytes(), std::memory_order_relaxed);
  return true;
}

bool FileMedia::write(std::uint64_t offset, std::span<const std::byte> in) {
  FLASHMOB_CHECK(offset <= size_bytes() && in.size() <= size_bytes() - offset);
  if (offset + in.size() > file_bytes_.load(std::memory_order_relaxed) && !grow()) [[unlikely]]
    return false;
  while (!in.empty()) {
    const auto piece =
        in.first(std::min<std::uint64_t>(in.size(), RedoLog::kPieceBytes - offset % RedoLog::kPieceBytes));
    if (!redo_.store(offset, piece)) return false;
    offset += piece.size();
    in = in.subspan(piece.size());
  }
  return true;
}

bool FileMedia::zero(std::uint64_t offset, std::uint64_t bytes) {
  static constexpr std::array<std::byte, kPageBytes> kZeroes{};
  while (bytes != 0) {
    const std::uint64_t part = std::min(bytes, kPageBytes - offset % kPageBytes);
    bool needed = false;
    if (!access([&] { needed = !is_zero(base() + offset, part); })) return false;
    if (needed && !write(offset, std::span(kZeroes).first(part))) return false;
    offset += part;
    bytes -= part;
  }
  return true;
}

// On Linux pages written through a shared mapping are the file's own, so this writes them, too, and what the file
// system needs to find them again (new extents).
bool FileMedia::flush() {
  if (!sync_failed_ && ::fdatasync(file_.get()) != 0) sync_failed_ = true;
  return !sync_failed_;
}

// Linux makes this an fdatasync() of the range alone.
bool FileMedia::sync(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t first = offset / kPageBytes * kPageBytes;
  if (!sync_failed_ && ::msync(base() + first, round_up(offset + bytes, kPageBytes) - first, MS_SYNC) != 0)
    sync_failed_ = true;
  return !sync_failed_;
}

bool FileMedia::is_disk_full() const {
  constexpr std::uint64_t kHardlyAnyBytes = 16 << 20;  // file systems keep a little for themselves
  struct stat info;
  struct statvfs disk;
  return ::fstat(file_.get(), &info) == 0 && static_cast<std::uint64_t>(info.st_size) >= file_bytes_ &&
         ::fstatvfs(file_.get(), &disk) == 0 && disk.f_bavail * disk.f_frsize < kHardlyAnyBytes;
}

bool FileMedia::release(std::uint64_t offset, std::uint64_t bytes) {
  return ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                     static_cast<off_t>(bytes)) == 0;
}

}  // namespace flashmob::media
