// flashmob/extents.h: what flags and kinds are called.
#include <array>

#include "base/check.h"
#include "flashmob/extents.h"

namespace flashmob {

const char* extent_flag_name(std::uint32_t bit) {
  static constexpr std::array<const char*, kExtentFlagCount> kNames{
      "hole", "unwritten", "inline", "shared", "delalloc", "encoded", "encrypted", "unaligned", "unknown", "tail"};
  FLASHMOB_CHECK(bit < kNames.size());
  return kNames[bit];
}

const char* file_kind_name(FileKind kind) {
  switch (kind) {
    case FileKind::file:
      return "file";
    case FileKind::directory:
      return "directory";
    case FileKind::link:
      return "link";
    case FileKind::other:
      break;
  }
  return "other";
}

}  // namespace flashmob
