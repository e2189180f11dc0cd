// A file that is read and written past the page cache (O_DIRECT), as a BlockStore.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "media/block_store.h"

namespace flashmob::media {

// size_bytes and creation as for FileMedia; `bytes` is the size that the namespace has, which the store's may exceed by
// a part of a page. Throws ConfigError.
std::unique_ptr<BlockStore> open_direct_file(const std::string& path, std::uint64_t size_bytes, std::uint64_t& bytes);

}  // namespace flashmob::media
