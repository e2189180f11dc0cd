#include "media/media.h"

#include <utility>

#include "base/check.h"
#include "media/block_content.h"
#include "media/cow_media.h"
#include "media/direct_file.h"
#include "media/direct_media.h"
#include "media/file_media.h"
#include "media/generated_media.h"
#include "media/memory_media.h"
#include "media/saved_state.h"

namespace flashmob::media {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 40;

void check_size(const std::string& spec, std::uint64_t size_bytes, bool may_be_zero) {
  const std::string what = "media " + spec + ": size_bytes = " + std::to_string(size_bytes);
  if (size_bytes == 0 && !may_be_zero) throw ConfigError(what + " is no size; give at least 512 bytes");
  if (size_bytes % kSectorBytes != 0) throw ConfigError(what + " is not a multiple of 512; round it");
  if (size_bytes > kMaxBytes) throw ConfigError(what + " is too large; use at most 64 TiB (70368744177664)");
}

}  // namespace

std::unique_ptr<Media> open(const std::string& spec, std::uint64_t size_bytes, std::uint32_t nsid, std::uint64_t seed,
                            std::uint64_t cache_bytes) {
  const std::size_t colon = spec.find(':');
  const std::string kind = spec.substr(0, colon);
  const std::string path = colon == std::string::npos ? "" : spec.substr(colon + 1);
  const bool backed = (kind == "file" || kind == "direct" || kind == "cow") && !path.empty();
  const bool plain = spec == "memory" || spec == "generated";
  if (!backed && !plain) {
    throw ConfigError("media \"" + spec + "\" is unknown; use memory, generated, file:PATH, direct:PATH or cow:PATH");
  }
  if (path.find('\0') != std::string::npos) {
    throw ConfigError("media " + kind + ": the path holds a zero byte, which no file name can; correct the path");
  }
  check_size(spec, size_bytes, backed);
  std::unique_ptr<Media> media;
  if (spec == "memory") {
    media = MemoryMedia::create(size_bytes);
  } else if (spec == "generated") {
    media = std::make_unique<GeneratedMedia>(size_bytes, nsid, seed);
  } else if (kind == "file") {
    media = FileMedia::open(path, size_bytes);
  } else if (kind == "direct") {
    OpenedDirectFile file = open_direct_file(path, size_bytes);
    media = std::make_unique<DirectMedia>(std::move(file.store), file.size_bytes, cache_bytes,
                                          std::make_shared<StateKeeper>(file.image_path, file.size_bytes));
  } else {
    media = CowMedia::open(path, size_bytes);
  }
  check_size(spec, media->size_bytes(), false);
  return media;
}

}  // namespace flashmob::media
