#include "media/cow_media.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

namespace flashmob::media {
namespace {

// Each released span may become a mapping of its own, and the kernel allows some 65,000 of them: release only spans
// that are worth one.
constexpr std::uint64_t kSpanBytes = kHugePageBytes;

}  // namespace

CowMedia::CowMedia(std::uint64_t size_bytes, std::byte* base, std::uint64_t mapped_bytes, FileDescriptor file,
                   std::string path)
    : MappedMedia(size_bytes, base, mapped_bytes, kPageBytes, true), file_(std::move(file)), path_(std::move(path)) {}

std::unique_ptr<CowMedia> CowMedia::open(const std::string& path, std::uint64_t size_bytes) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    throw_file_error(path, "cannot be opened for reading", errno, "name an existing file that you may read");
  }
  const std::uint64_t file_bytes = regular_file_size(file, path);
  lock_file(file, path, LOCK_SH);
  if (file_bytes == 0) throw_file_error(path, "is empty", "name a file with content, or use memory");
  const std::uint64_t whole_pages = round_up(file_bytes, kPageBytes);
  if (size_bytes == 0) size_bytes = whole_pages;
  if (size_bytes > whole_pages) {
    throw_file_error(
        path, "has " + std::to_string(file_bytes) + " bytes, fewer than size_bytes = " + std::to_string(size_bytes),
        "use size_bytes = 0 (no --size) to take the file's own size");
  }
  const std::uint64_t mapped_bytes = round_up(size_bytes, kPageBytes);
  void* mapping = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  if (mapping == MAP_FAILED) {
    throw_file_error(path, "cannot be mapped", errno, "use a smaller size_bytes (--size) or another file system");
  }
  ::madvise(mapping, mapped_bytes, MADV_DONTDUMP);
  return std::unique_ptr<CowMedia>(
      new CowMedia(size_bytes, static_cast<std::byte*>(mapping), mapped_bytes, std::move(file), path));
}

bool CowMedia::release(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes < kSpanBytes) return false;
  // Dropping private pages would bring the file's bytes back, so anonymous memory takes the place of the view. The
  // replacement is atomic for concurrent readers.
  return ::mmap(base() + offset, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                -1, 0) != MAP_FAILED;
}

}  // namespace flashmob::media
