#include "interfaces/mapped.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "media/page_access.h"

namespace flashmob::interfaces {
namespace {

struct Mapping {
  explicit Mapping(const Lane& lane) : bytes(lane.size_bytes) {
    const int protection = lane.writes ? PROT_READ | PROT_WRITE : PROT_READ;
    void* const at = ::mmap(nullptr, bytes, protection, MAP_SHARED, lane.file, 0);
    if (at == MAP_FAILED) throw Unsupported(errno_text("mmap", errno));
    base = static_cast<std::byte*>(at);
    ::madvise(at, bytes, lane.is_random ? MADV_RANDOM : MADV_SEQUENTIAL);
  }
  ~Mapping() { ::munmap(base, bytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* base = nullptr;
  std::size_t bytes;
};

class Mapped final : public Interface {
 public:
  explicit Mapped(const Lane& lane) : Interface(lane), mapping_(lane), pages_(mapping_.base, mapping_.bytes) {}

  void submit(std::uint32_t slot, std::uint64_t offset, bool is_write) override {
    std::byte* const place = mapping_.base + offset;
    std::byte* const buffer = lane_.buffer(slot);
    const std::size_t bytes = lane_.block_bytes;
    // A file that somebody cuts short, or a device that fails, ends the access by a signal.
    const bool moved =
        media::try_access([&] { is_write ? std::memcpy(place, buffer, bytes) : std::memcpy(buffer, place, bytes); });
    done_ = {slot, moved ? static_cast<std::int32_t>(bytes) : -EIO};
  }
  std::size_t wait(std::span<Done> done) override {
    done[0] = done_;
    return 1;
  }

 private:
  Mapping mapping_;
  media::FilePages pages_;
  Done done_;
};

}  // namespace

std::unique_ptr<Interface> make_mapped(const Lane& lane) { return std::make_unique<Mapped>(lane); }

}  // namespace flashmob::interfaces
