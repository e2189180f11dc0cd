#include "media/mapped_media.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/check.h"

namespace flashmob::media {

MappedMedia::MappedMedia(std::uint64_t size_bytes, std::byte* base, std::uint64_t mapped_bytes,
                         std::uint64_t granule_bytes, bool of_file)
    : Media(size_bytes, base), mapped_bytes_(mapped_bytes), granule_bytes_(granule_bytes) {
  if (of_file) file_pages_.emplace(base, mapped_bytes);
}

MappedMedia::~MappedMedia() {
  file_pages_.reset();
  ::munmap(base(), mapped_bytes_);
}

bool MappedMedia::read(std::uint64_t offset, std::span<std::byte> out) {
  FLASHMOB_CHECK(offset <= size_bytes() && out.size() <= size_bytes() - offset);
  return out.empty() || access([&] { std::memcpy(out.data(), base() + offset, out.size()); });
}

bool MappedMedia::write(std::uint64_t offset, std::span<const std::byte> in) {
  FLASHMOB_CHECK(offset <= size_bytes() && in.size() <= size_bytes() - offset);
  return in.empty() || access([&] { std::memcpy(base() + offset, in.data(), in.size()); });
}

bool MappedMedia::deallocate(std::uint64_t offset, std::uint64_t bytes) {
  FLASHMOB_CHECK(offset <= size_bytes() && bytes <= size_bytes() - offset);
  const std::uint64_t end = offset + bytes;
  const std::uint64_t first = round_up(offset, granule_bytes_);
  const std::uint64_t last = end / granule_bytes_ * granule_bytes_;
  if (first >= last || last - first < kReleaseThresholdBytes || !release(first, last - first)) {
    return zero(offset, bytes);
  }
  return zero(offset, first - offset) && zero(last, end - last);
}

bool MappedMedia::zero(std::uint64_t offset, std::uint64_t bytes) {
  return access([&] { zero_where_needed(base() + offset, bytes); });
}

bool is_zero(const std::byte* start, std::uint64_t bytes) {
  // All bytes are zero if the first is and each equals the one after it.
  return start[0] == std::byte{0} && std::memcmp(start, start + 1, bytes - 1) == 0;
}

void zero_where_needed(std::byte* start, std::uint64_t bytes) {
  while (bytes > 0) {
    const std::uint64_t to_page_end = kPageBytes - (reinterpret_cast<std::uintptr_t>(start) & (kPageBytes - 1));
    const std::uint64_t part = std::min(bytes, to_page_end);
    if (!is_zero(start, part)) std::memset(start, 0, part);
    start += part;
    bytes -= part;
  }
}

void throw_file_error(const std::string& path, const std::string& what, int error, const std::string& fix) {
  throw_file_error(path, what + " (" + std::generic_category().message(error) + ")", fix);
}

void throw_file_error(const std::string& path, const std::string& what, const std::string& fix) {
  throw ConfigError("media file " + path + ": " + what + "; " + fix);
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::uint64_t regular_file_size(const FileDescriptor& file, const std::string& path) {
  struct stat info;
  if (::fstat(file.get(), &info) != 0) throw_file_error(path, "cannot be examined", errno, "check its file system");
  if (S_ISDIR(info.st_mode)) throw_file_error(path, "is a directory", "name a regular file in it");
  if (!S_ISREG(info.st_mode))
    throw_file_error(path, "is not a regular file", "copy its content to a regular file first");
  return static_cast<std::uint64_t>(info.st_size);
}

bool sync_parent_directory(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const FileDescriptor directory(::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return directory.get() >= 0 && ::fsync(directory.get()) == 0;
}

void lock_file(const FileDescriptor& file, const std::string& path, int operation) {
  // A process that was killed with transfers of an io_uring under way is gone before the kernel has let go of its
  // files.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (::flock(file.get(), operation | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw_file_error(path, "is in use by another emulated device",
                   "stop that device, or open the file as cow: in both so that neither writes to it");
}

}  // namespace flashmob::media
