#include "memory/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"

namespace flashmob::memory {
namespace {

constexpr std::size_t kSmallPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

[[noreturn]] void refuse(const std::string& what, std::size_t bytes, int error) {
  throw ConfigError("cannot get " + std::to_string(bytes) + " bytes of host memory (" + what + ": " +
                    std::strerror(error) +
                    "): ask for less, or raise the limits (ulimit -v, vm.overcommit_memory, size of /dev/shm)");
}

int make_memfd(std::size_t size) {
  const int fd = memfd_create("flashmob", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) refuse("memfd_create", size, errno);
  if (ftruncate(fd, static_cast<off_t>(size)) != 0) {
    const int error = errno;
    close(fd);
    refuse("ftruncate", size, error);
  }
  // Whoever is given the file must not be able to cut it short: touching a lost page would kill this process.
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int error = errno;
    close(fd);
    refuse("F_ADD_SEALS", size, error);
  }
  return fd;
}

// Maps at an address that is a multiple of `alignment`. Small pages are always aligned, and kernels from 6.7 on align
// huge ones by themselves; where they do not, more than needed is reserved, mapped over in the aligned part, and the
// ends are given back.
std::byte* map_aligned(std::size_t size, std::size_t alignment, int fd) {
  const int flags = (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | MAP_NORESERVE;
  void* const plain = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (plain == MAP_FAILED) return nullptr;
  if (reinterpret_cast<std::uintptr_t>(plain) % alignment == 0) return static_cast<std::byte*>(plain);
  munmap(plain, size);
  void* const reserved = mmap(nullptr, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  const auto base = reinterpret_cast<std::uintptr_t>(reserved);
  const std::uintptr_t aligned = (base + alignment - 1) & ~(alignment - 1);
  void* const data = mmap(reinterpret_cast<void*>(aligned), size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    munmap(reserved, size + alignment);
    errno = error;
    return nullptr;
  }
  const std::size_t before = aligned - base;
  if (before > 0) munmap(reserved, before);
  if (alignment > before) munmap(reinterpret_cast<void*>(aligned + size), alignment - before);
  return static_cast<std::byte*>(data);
}

}  // namespace

HostMemory::HostMemory(std::size_t bytes, Kind kind) {
  if (bytes == 0) throw ConfigError("host memory of 0 bytes was asked for: give a size of at least one byte");
  const std::size_t page = bytes >= kHugePage ? kHugePage : kSmallPage;
  // Also leaves room for the alignment's slack, and for the signed sizes of the kernel.
  if (bytes > static_cast<std::size_t>(PTRDIFF_MAX) - 2 * page) refuse("size", bytes, ENOMEM);
  const std::size_t size = (bytes + page - 1) & ~(page - 1);
  const int fd = kind == Kind::shared_memfd ? make_memfd(size) : -1;
  std::byte* data = map_aligned(size, page, fd);
  if (data == nullptr) {
    const int error = errno;
    if (fd >= 0) close(fd);
    refuse("mmap", size, error);
  }
  // Advice only: kernels without transparent huge pages refuse it, and small pages do as well.
  if (page == kHugePage) (void)madvise(data, size, MADV_HUGEPAGE);
  data_ = data;
  size_ = size;
  fd_ = fd;
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) munmap(data_, size_);
  close_fd();
}

void HostMemory::close_fd() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

}  // namespace flashmob::memory
