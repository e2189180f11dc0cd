#include "interfaces/posix_sio.h"

#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace flashmob::interfaces {
namespace {

class PosixSio final : public Interface {
 public:
  PosixSio(const Lane& lane, bool is_polled) : Interface(lane), is_polled_(is_polled) {}

  void submit(std::uint32_t slot, std::uint64_t offset, bool is_write) override {
    ++system_calls_;
    const ssize_t moved = transfer(lane_.buffer(slot), static_cast<off_t>(offset), is_write);
    done_ = {slot, moved < 0 ? -errno : static_cast<std::int32_t>(moved)};
  }
  std::size_t wait(std::span<Done> done) override {
    done[0] = done_;
    return 1;
  }

 private:
  ssize_t transfer(std::byte* data, off_t at, bool is_write) const {
    if (!is_polled_)
      return is_write ? ::pwrite(lane_.file, data, lane_.block_bytes, at)
                      : ::pread(lane_.file, data, lane_.block_bytes, at);
    const iovec part{data, lane_.block_bytes};
    return is_write ? ::pwritev2(lane_.file, &part, 1, at, RWF_HIPRI) : ::preadv2(lane_.file, &part, 1, at, RWF_HIPRI);
  }

  bool is_polled_;
  Done done_;
};

}  // namespace

std::unique_ptr<Interface> make_posix_sio(const Lane& lane) { return std::make_unique<PosixSio>(lane, false); }
std::unique_ptr<Interface> make_posix_sio_hipri(const Lane& lane) {
  utsname system{};
  if (::uname(&system) == 0 && is_hipri_ignored(system.release))
    throw Unsupported("posix-sio-hipri: Linux " + std::string(system.release) +
                      " ignores RWF_HIPRI for synchronous direct I/O, as all do since 5.19, and would wait for the "
                      "interrupt; use an older kernel, or io_uring-iopoll");
  return std::make_unique<PosixSio>(lane, true);
}

bool is_hipri_ignored(const char* release) {
  char* end = nullptr;
  const unsigned long major = std::strtoul(release, &end, 10);
  const unsigned long minor = *end == '.' ? std::strtoul(end + 1, nullptr, 10) : 0;
  return std::pair(major, minor) >= std::pair(5ul, 19ul);
}

}  // namespace flashmob::interfaces
