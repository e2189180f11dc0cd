// A file that is read and written past the page cache (O_DIRECT), as a BlockStore.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "media/block_store.h"

namespace flashmob::media {

struct OpenedDirectFile {
  std::unique_ptr<BlockStore> store;
  std::uint64_t size_bytes;  // that the namespace has, which the store's may exceed by a part of a page
  std::string image_path;    // image_path_of()
};
// size_bytes and creation as for FileMedia. Throws ConfigError.
OpenedDirectFile open_direct_file(const std::string& path, std::uint64_t size_bytes);

}  // namespace flashmob::media
