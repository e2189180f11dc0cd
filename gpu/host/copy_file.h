// A file onto an attached SSD, whoever serves it (Gpu::load_file). For the host thread that owns the Gpu.
#pragma once

#include <cstdint>
#include <string>

#include "flashmob/gpu.h"

namespace flashmob::gpu {

// Writes the file to the blocks of `ns` from `lba` on, its end padded with zeros to a whole block, and reads each part
// back to compare. Returns the file's size. Throws ConfigError if it cannot be read, std::runtime_error if it does not
// read back as written, and what the SSD throws.
std::uint64_t copy_file(Gpu& gpu, std::uint32_t ssd, std::uint32_t ns_index, const NamespaceInfo& ns, std::uint64_t lba,
                        const std::string& path);

}  // namespace flashmob::gpu
