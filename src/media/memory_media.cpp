#include "media/memory_media.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/check.h"

namespace flashmob::media {
namespace {

std::uint64_t machine_memory_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes) : 0;
}

}  // namespace

std::uint64_t MemoryMedia::page_bytes_for(std::uint64_t size_bytes) {
  return size_bytes >= kHugePageBytes && size_bytes <= machine_memory_bytes() ? kHugePageBytes : kPageBytes;
}

std::unique_ptr<MemoryMedia> MemoryMedia::create(std::uint64_t size_bytes) {
  const std::uint64_t granule = page_bytes_for(size_bytes);
  const bool huge = granule == kHugePageBytes;
  const std::uint64_t wanted = round_up(size_bytes, granule);
  // One granule more than wanted, cut to size below, so that the namespace starts on a huge-page boundary.
  const std::uint64_t reserved = wanted + (huge ? granule : 0);
  void* mapping = ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    throw ConfigError("a memory namespace of " + std::to_string(size_bytes) + " bytes cannot be mapped (" +
                      std::generic_category().message(errno) +
                      "); lower size_bytes, or raise the address-space limit (ulimit -v), or set vm.overcommit_memory "
                      "to 0 or 1");
  }
  auto* start = static_cast<std::byte*>(mapping);
  const std::uint64_t skip =
      round_up(reinterpret_cast<std::uintptr_t>(start), granule) - reinterpret_cast<std::uintptr_t>(start);
  if (skip > 0) ::munmap(start, skip);
  if (const std::uint64_t tail = reserved - wanted - skip; tail > 0) ::munmap(start + skip + wanted, tail);
  start += skip;
  // Advice only: without it, or where the kernel refuses, everything works in 4 KiB pages.
  ::madvise(start, wanted, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  ::madvise(start, wanted, MADV_DONTDUMP);
  return std::unique_ptr<MemoryMedia>(new MemoryMedia(size_bytes, start, wanted, granule, false));
}

bool MemoryMedia::release(std::uint64_t offset, std::uint64_t bytes) {
  return ::madvise(base() + offset, bytes, MADV_DONTNEED) == 0;
}

}  // namespace flashmob::media
