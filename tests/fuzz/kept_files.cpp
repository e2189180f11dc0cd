#include "fuzz/kept_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "fuzz/failures.h"
#include "fuzz/kept_mappings.h"

// The linker's names: __wrap_X is called for X, __real_X is X.
extern "C" {
int __real_memfd_create(const char* name, unsigned flags);
int __real_ftruncate(int fd, off_t bytes);
int __real_fcntl(int fd, int what, ...);
int __real_fcntl64(int fd, int what, ...);
void* __real_mmap(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_munmap(void* at, std::size_t bytes);
int __real_close(int fd);
}

namespace flashmob::fuzz {
namespace {

// Larger ones take longer to clear than to make.
constexpr std::size_t kMostBytes = 64 << 10;

struct KeptFile {
  int fd = -1;
  std::size_t bytes = 0;  // 0: its size is not known yet, nor whether it is kept
  std::byte* memory = nullptr;
  bool used = false;
};

// Without memory of the heap's, which may be failing.
struct Files {
  bool on = false;
  std::array<KeptFile, 32> all;

  KeptFile* find(int fd) {
    if (!on || fd < 0) return nullptr;
    auto* const found = std::find_if(all.begin(), all.end(), [&](const KeptFile& file) { return file.fd == fd; });
    return found == all.end() ? nullptr : found;
  }
};
Files files;

// Gives a new file its size; false if it cannot be kept.
bool begin_keeping(KeptFile& file, std::size_t bytes) {
  void* const memory = __real_mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
  if (memory == MAP_FAILED) return false;
  file.bytes = bytes;
  file.memory = static_cast<std::byte*>(memory);
  keep_mappings_of(file.fd);
  return true;
}

}  // namespace

void keep_files() { files.on = true; }

bool forget_kept_file(int fd) {
  KeptFile* const file = files.find(fd);
  if (file == nullptr) return false;
  file->used = false;
  if (file->bytes != 0) return true;
  *file = {};
  return false;
}

}  // namespace flashmob::fuzz

extern "C" {
using namespace flashmob::fuzz;

int __wrap_memfd_create(const char* name, unsigned flags) {
  if (descriptor_fails != nullptr && descriptor_fails()) {
    errno = EMFILE;
    return -1;
  }
  const bool is_kept = files.on && (flags & MFD_ALLOW_SEALING) != 0;
  if (!is_kept) return __real_memfd_create(name, flags);
  auto* const free = std::find_if(files.all.begin(), files.all.end(), [](const KeptFile& file) { return !file.used; });
  if (free == files.all.end()) return __real_memfd_create(name, flags);
  if (free->fd < 0) free->fd = __real_memfd_create(name, flags);
  free->used = free->fd >= 0;
  return free->fd;
}

// All that there is asks for its size at once.
int __wrap_ftruncate(int fd, off_t bytes) {
  KeptFile* const file = files.find(fd);
  if (file == nullptr) return __real_ftruncate(fd, bytes);
  const auto wanted = static_cast<std::size_t>(bytes);
  if (file->bytes == 0) {
    const int error = __real_ftruncate(fd, bytes);
    // A file that is not kept is known by its descriptor no more.
    if (error != 0 || wanted == 0 || wanted > kMostBytes || !begin_keeping(*file, wanted)) *file = {};
    return error;
  }
  if (file->bytes == wanted) {
    std::memset(file->memory, 0, wanted);
    return 0;
  }
  // Another size than the last one's: another file under the same descriptor.
  __real_munmap(file->memory, file->bytes);
  *file = {};
  const int other = __real_memfd_create("flashmob", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (other < 0) return -1;
  const bool is_there = dup3(other, fd, O_CLOEXEC) == fd;
  __real_close(other);
  return is_there ? __real_ftruncate(fd, bytes) : -1;
}

// A kept file has its seals from the first time on.
int __wrap_fcntl(int fd, int what, unsigned long value) {
  const KeptFile* const file = what == F_ADD_SEALS ? files.find(fd) : nullptr;
  const int result = __real_fcntl(fd, what, value);
  return result != 0 && file != nullptr && errno == EPERM ? 0 : result;
}
int __wrap_fcntl64(int fd, int what, unsigned long value) { return __wrap_fcntl(fd, what, value); }
}
