#include "vfio/peer_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>

#include "base/check.h"

namespace flashmob::vfio {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr long kFuseMagic = 0x65735546;
constexpr long kOverlayMagic = 0x794c7630;  // its files may lie on FUSE, and whoever asks may have mounted it
constexpr long kHugetlbMagic = 0x958458f6;

// What must hold of a file before its memory is touched: 0 or an errno. Pages of other kinds of files could make the
// engine's threads wait for whoever provides them.
int check_file(int fd, std::uint64_t offset, std::uint64_t bytes, std::size_t& page_bytes) {
  struct stat status{};
  struct statfs system{};
  if (fstat(fd, &status) != 0 || fstatfs(fd, &system) != 0) return EBADF;
  if (!S_ISREG(status.st_mode) || system.f_type == kFuseMagic || system.f_type == kOverlayMagic) return EINVAL;
  page_bytes = system.f_type == kHugetlbMagic ? static_cast<std::size_t>(system.f_bsize) : kPageBytes;
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  return offset > file_bytes || bytes > file_bytes - offset ? EINVAL : 0;
}

}  // namespace

int PeerMemory::map(int fd, std::uint64_t offset, std::uint64_t bytes, bool writable, void* hint) {
  FLASHMOB_CHECK(data_ == nullptr);
  if (bytes == 0 || offset % kPageBytes != 0 || bytes % kPageBytes != 0) return EINVAL;
  std::size_t page_bytes = kPageBytes;
  if (const int error = check_file(fd, offset, bytes, page_bytes); error != 0) return error;
  void* const memory = mmap(hint, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED | MAP_NORESERVE, fd,
                            static_cast<off_t>(offset));
  if (memory == MAP_FAILED) return errno;
  madvise(memory, bytes, MADV_DONTDUMP);  // what a guest holds is not ours to write to a disk
  data_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
  guard_ = std::make_unique<BusErrorGuard>(memory, bytes, page_bytes);
  return 0;
}

void PeerMemory::reset() {
  guard_.reset();
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace flashmob::vfio
