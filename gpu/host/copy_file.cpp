#include "host/copy_file.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "flashmob/error.h"

namespace flashmob::gpu {
namespace {

constexpr std::uint64_t kChunkBytes = 4 << 20;

}  // namespace

std::uint64_t copy_file(Gpu& gpu, std::uint32_t ssd, std::uint32_t ns_index, const NamespaceInfo& ns, std::uint64_t lba,
                        const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError("path = \"" + path + "\" is not possible: give a file that can be read");
  const std::uint64_t lba_bytes = std::uint64_t{1} << ns.lba_shift;
  std::vector<char> chunk(kChunkBytes);
  std::vector<char> back(kChunkBytes);
  std::uint64_t total = 0;
  while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())), file.gcount() > 0) {
    const auto got = static_cast<std::uint64_t>(file.gcount());
    const std::uint64_t padded = (got + lba_bytes - 1) / lba_bytes * lba_bytes;
    std::fill(chunk.begin() + static_cast<std::ptrdiff_t>(got), chunk.begin() + static_cast<std::ptrdiff_t>(padded),
              '\0');
    gpu.write(ssd, ns_index, lba, chunk.data(), padded);
    gpu.read(ssd, ns_index, lba, back.data(), padded);
    if (std::memcmp(chunk.data(), back.data(), padded) != 0)
      throw std::runtime_error(path + ": block " + std::to_string(lba) + " or one of the " +
                               std::to_string(padded / lba_bytes) + " behind it does not read back as written");
    lba += padded / lba_bytes;
    total += got;
  }
  if (file.bad()) throw std::runtime_error(path + ": cannot be read to its end");
  return total;
}

}  // namespace flashmob::gpu
