#include "interfaces/posix_sio.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

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
std::unique_ptr<Interface> make_posix_sio_hipri(const Lane& lane) { return std::make_unique<PosixSio>(lane, true); }

}  // namespace flashmob::interfaces
