#include "media/generated_media.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "media/block_content.h"

namespace flashmob::media {

bool GeneratedMedia::read(std::uint64_t offset, std::span<std::byte> out) {
  FLASHMOB_CHECK(offset <= size_bytes() && out.size() <= size_bytes() - offset);
  while (!out.empty()) {
    const std::uint64_t sector = offset >> kSectorShift;
    const std::size_t skip = offset & (kSectorBytes - 1);
    std::size_t done;
    if (skip == 0 && out.size() >= kSectorBytes) {
      done = out.size() & ~(kSectorBytes - 1);
      fill_sectors(out.first(done), sector, nsid_, 0, seed_);
    } else {
      std::array<std::byte, kSectorBytes> whole;
      fill_block(whole, {sector, nsid_, 0, seed_});
      done = std::min(kSectorBytes - skip, out.size());
      std::memcpy(out.data(), whole.data() + skip, done);
    }
    out = out.subspan(done);
    offset += done;
  }
  return true;
}

}  // namespace flashmob::media
