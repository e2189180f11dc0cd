// Bytes that hosts have written are in no core dump, whatever has become of the mapping meanwhile.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "media/media.h"

namespace flashmob::media {
namespace {

// Bytes of the mappings in this range that a dump would hold (proc(5), smaps: VmFlags without dd).
std::uint64_t dumped_bytes(const std::byte* from, std::uint64_t bytes) {
  const auto begin = reinterpret_cast<std::uint64_t>(from), end = begin + bytes;
  std::uint64_t first = 0, last = 0, found = 0;
  std::ifstream maps("/proc/self/smaps");
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t low = 0, high = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> low >> dash >> high && dash == '-') {
      first = std::max(low, begin);
      last = std::min(high, end);
    } else if (line.starts_with("VmFlags:") && first < last && line.find(" dd") == std::string::npos) {
      found += last - first;
    }
  }
  return found;
}

TEST(CoreDump, MediaAreInNoneAfterTheyWereDeallocatedEither) {
  std::string folder = (std::filesystem::temp_directory_path() / "flashmob_dump_XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  constexpr std::uint64_t kBytes = 32 << 20, kPart = 8 << 20;
  {
    std::ofstream image(folder + "/image", std::ios::binary);
    image.seekp(kBytes - 1);
    image.put('x');
  }
  for (const std::string& spec : {"cow:" + folder + "/image", "file:" + folder + "/image", std::string("memory")}) {
    const auto media = open(spec, spec == "memory" ? kBytes : 0, 1, 1);
    ASSERT_NE(media->base(), nullptr);
    EXPECT_EQ(dumped_bytes(media->base(), kBytes), 0u) << spec;
    ASSERT_TRUE(media->deallocate(kPart, kPart)) << spec;
    ASSERT_TRUE(media->write(kPart, std::vector<std::byte>(4096, std::byte{7})));
    EXPECT_EQ(dumped_bytes(media->base(), kBytes), 0u) << spec;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace flashmob::media
