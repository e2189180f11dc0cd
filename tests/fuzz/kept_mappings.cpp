#include "fuzz/kept_mappings.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>

#include "base/check.h"
#include "fuzz/failures.h"

#if defined(FLASHMOB_ASAN)
#include <sanitizer/asan_interface.h>
#endif

// The linker's names: __wrap_X is called for X, __real_X is X.
extern "C" {
void* __real_mmap(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_munmap(void* at, std::size_t bytes);
int __real_madvise(void* at, std::size_t bytes, int advice);
}

namespace flashmob::fuzz {
namespace {

// Smaller ones are cleared as a whole. Of larger ones little is touched, most of it at their beginning: pages that were
// touched there are cleared, all others given back. (To be told which are in memory costs as much for each page that is
// not; to give back what is not there costs next to nothing.)
constexpr std::size_t kClearedBytes = 64 << 10;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kLookedAtBytes = 256 << 10;
// AddressSanitizer refuses what is given back; of larger ones, so much at their beginning, where they are touched
// first.
[[maybe_unused]] constexpr std::size_t kPoisonedBytes = 256 << 10;
// Hints lie in arenas of this size, one for each client (transport/vfio_user/dma_regions.cpp).
constexpr std::uintptr_t kArenaBytes = std::uintptr_t{1} << 40;
constexpr std::uintptr_t kArenasBegin = 20 * kArenaBytes;

struct File {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const File&) const = default;
};

struct Kept {
  std::byte* at = nullptr;
  std::size_t bytes = 0;
  int protection = 0, flags = 0;
  File file;
  off_t offset = 0;
  std::uintptr_t arena = 0;      // that the hint named; 0: none
  std::uint64_t bus_errors = 0;  // when it was handed out
  bool used = false;

  bool is_like(const Kept& other) const {
    return bytes == other.bytes && protection == other.protection && flags == other.flags && file == other.file &&
           offset == other.offset && (other.at == nullptr || other.at == at);
  }
  bool touches(const std::byte* begin, std::size_t count) const { return begin < at + bytes && at < begin + count; }
};

// Without memory of the heap's, which may be failing.
struct Mappings {
  std::mutex mutex;
  bool on = false;
  std::uint64_t (*bus_errors)() = nullptr;
  std::array<Kept, 256> all;
  std::size_t count = 0;
  std::array<File, 40> files;
  std::size_t file_count = 0;
  // The arena that the hints of another one are put in; 0: free.
  std::array<std::uintptr_t, 64> arenas{};

  Kept* end() { return all.data() + count; }
  void forget(Kept* kept) { *kept = all[--count]; }
};
Mappings mappings;

bool is_cleared(const Kept& kept) { return kept.file == File{} && kept.bytes <= kClearedBytes; }
bool is_emptied(const Kept& kept) { return kept.file == File{} && kept.bytes > kClearedBytes; }

void set_poisoned([[maybe_unused]] const Kept& kept, [[maybe_unused]] bool poisoned) {
#if defined(FLASHMOB_ASAN)
  const std::size_t bytes = is_emptied(kept) ? std::min(kept.bytes, kPoisonedBytes) : kept.bytes;
  if (poisoned)
    __asan_poison_memory_region(kept.at, bytes);
  else
    __asan_unpoison_memory_region(kept.at, bytes);
#endif
}

// Where pages may be on a disk, what the kernel says of those in memory is not all that holds something.
bool pages_stay() {
  static const bool stay = [] {
    struct sysinfo info{};
    return ::sysinfo(&info) == 0 && info.totalswap == 0;
  }();
  return stay;
}

// Makes it zero again.
bool empty(const Kept& kept) {
  std::array<unsigned char, kLookedAtBytes / kPageBytes> in_memory;
  std::size_t cleared = std::min(kept.bytes, kLookedAtBytes);
  if (pages_stay() && mincore(kept.at, cleared, in_memory.data()) == 0) {
    for (std::size_t at = 0; at < cleared; at += kPageBytes)
      if ((in_memory[at / kPageBytes] & 1u) != 0) std::memset(kept.at + at, 0, kPageBytes);
  } else {
    cleared = 0;
  }
  return cleared == kept.bytes || __real_madvise(kept.at + cleared, kept.bytes - cleared, MADV_DONTNEED) == 0;
}

void hand_out(Kept& kept) {
  kept.used = true;
  if (mappings.bus_errors != nullptr) kept.bus_errors = mappings.bus_errors();
  set_poisoned(kept, false);
  if (is_cleared(kept)) std::memset(kept.at, 0, kept.bytes);
}

// False if it cannot be kept.
bool take_back(Kept& kept) {
  if (mappings.bus_errors != nullptr && kept.file != File{} && kept.bus_errors != mappings.bus_errors()) return false;
  if (is_emptied(kept) && !empty(kept)) return false;
  set_poisoned(kept, true);
  kept.used = false;
  return true;
}

void unmap(Kept* kept) {
  set_poisoned(*kept, false);
  __real_munmap(kept->at, kept->bytes);
  mappings.forget(kept);
}

// Where the hints of a client's arena lead: the same place for as long as it has mappings there, and the first one that
// is free for the next client, so that mappings of the same shape come to the same addresses.
std::byte* place_of(void* hint, std::uintptr_t& arena) {
  const auto address = reinterpret_cast<std::uintptr_t>(hint);
  arena = address / kArenaBytes;
  auto* own = std::find(mappings.arenas.begin(), mappings.arenas.end(), arena);
  if (own == mappings.arenas.end()) own = std::find(mappings.arenas.begin(), mappings.arenas.end(), 0u);
  if (own == mappings.arenas.end()) return static_cast<std::byte*>(hint);
  *own = arena;
  const auto index = static_cast<std::uintptr_t>(own - mappings.arenas.begin());
  return reinterpret_cast<std::byte*>(kArenasBegin + index * kArenaBytes + address % kArenaBytes);
}

void leave_arena(std::uintptr_t arena) {
  if (arena == 0) return;
  const bool lives = std::any_of(mappings.all.data(), mappings.end(),
                                 [&](const Kept& kept) { return kept.used && kept.arena == arena; });
  if (!lives) std::replace(mappings.arenas.begin(), mappings.arenas.end(), arena, std::uintptr_t{0});
}

bool make_room() {
  if (mappings.count < mappings.all.size()) return true;
  auto* const oldest = std::find_if(mappings.all.data(), mappings.end(), [](const Kept& kept) { return !kept.used; });
  if (oldest == mappings.end()) return false;
  unmap(oldest);
  return true;
}

// Whether such a mapping is kept, and what it is by.
bool is_kept(int fd, Kept& wanted) {
  if ((wanted.flags & MAP_FIXED) != 0 || (wanted.protection & PROT_READ) == 0 || wanted.bytes % kPageBytes != 0)
    return false;
  if (fd < 0) return (wanted.flags & MAP_PRIVATE) != 0 && wanted.at == nullptr;
  struct stat status{};
  if (fstat(fd, &status) != 0) return false;
  wanted.file = {status.st_dev, status.st_ino};
  const auto* const last = mappings.files.data() + mappings.file_count;
  return std::find(static_cast<const File*>(mappings.files.data()), last, wanted.file) != last;
}

void* map(Kept wanted, int fd) {
  void* const hint = wanted.at;
  if (hint != nullptr) wanted.at = place_of(hint, wanted.arena);
  auto* const found = std::find_if(mappings.all.data(), mappings.end(),
                                   [&](const Kept& kept) { return !kept.used && kept.is_like(wanted); });
  if (found != mappings.end()) {
    found->arena = wanted.arena;
    hand_out(*found);
    return found->at;
  }
  // Nothing that is only kept may stand in its way.
  for (std::size_t i = mappings.count; wanted.at != nullptr && i-- > 0;)
    if (!mappings.all[i].used && mappings.all[i].touches(wanted.at, wanted.bytes)) unmap(&mappings.all[i]);
  void* const memory = __real_mmap(wanted.at, wanted.bytes, wanted.protection, wanted.flags, fd, wanted.offset);
  if (memory == MAP_FAILED || !make_room()) return memory;
  wanted.at = static_cast<std::byte*>(memory);
  wanted.used = true;
  if (mappings.bus_errors != nullptr) wanted.bus_errors = mappings.bus_errors();
  mappings.all[mappings.count++] = wanted;
  return memory;
}

}  // namespace

void keep_mappings(std::uint64_t (*bus_errors)()) {
  const std::lock_guard lock(mappings.mutex);
  mappings.on = true;
  mappings.bus_errors = bus_errors;
}

void keep_mappings_of(int fd) {
  struct stat status{};
  const std::lock_guard lock(mappings.mutex);
  FLASHMOB_CHECK(fstat(fd, &status) == 0 && mappings.file_count < mappings.files.size());
  mappings.files[mappings.file_count++] = {status.st_dev, status.st_ino};
}

}  // namespace flashmob::fuzz

extern "C" {
void* __wrap_mmap(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  using namespace flashmob::fuzz;
  if (mapping_fails != nullptr && mapping_fails()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  const std::lock_guard lock(mappings.mutex);
  Kept wanted;
  wanted.at = static_cast<std::byte*>(at);
  wanted.bytes = bytes;
  wanted.protection = protection;
  wanted.flags = flags;
  wanted.offset = offset;
  if (!mappings.on || !is_kept(fd, wanted)) return __real_mmap(at, bytes, protection, flags, fd, offset);
  return map(wanted, fd);
}

int __wrap_munmap(void* at, std::size_t bytes) {
  using namespace flashmob::fuzz;
  const std::lock_guard lock(mappings.mutex);
  auto* const begin = static_cast<std::byte*>(at);
  for (Kept* kept = mappings.all.data(); kept != mappings.end(); ++kept) {
    if (!kept->used || !kept->touches(begin, bytes)) continue;
    const std::uintptr_t arena = kept->arena;
    const bool whole = kept->at == begin && kept->bytes == bytes;
    if (!whole || !take_back(*kept)) {
      // A part of it, or pages that are not its file's any more.
      mappings.forget(kept);
      leave_arena(arena);
      break;
    }
    leave_arena(arena);
    return 0;
  }
  return __real_munmap(at, bytes);
}

// Advice on huge pages and core dumps changes nothing that an input could see, and costs as much as a mapping.
int __wrap_madvise(void* at, std::size_t bytes, int advice) {
  const bool counts = advice != MADV_HUGEPAGE && advice != MADV_NOHUGEPAGE && advice != MADV_DONTDUMP;
  return counts || !flashmob::fuzz::mappings.on ? __real_madvise(at, bytes, advice) : 0;
}
}
