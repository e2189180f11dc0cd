// Fuzzes what is saved beside an image (src/media/saved_state.h): a file that anybody may have written.
//
// Input: the file. Where its first byte is odd, magic, version, length and checksum are made right, else no input would
// come past them. Checked: what is taken means exactly the bytes that it was taken from; what is refused has a reason.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "media/saved_state.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flashmob::media;
  constexpr std::size_t kVersionAt = 8, kCrcAt = 12, kLengthAt = 16;
  std::vector<std::byte> bytes(size);
  if (size != 0) std::memcpy(bytes.data(), data, size);
  if (size > kLengthAt + 8 && (data[0] & 1) != 0) {
    const std::uint32_t version = 1;
    const std::uint64_t length = size;
    std::memcpy(bytes.data(), "FLASHMOB", 8);
    std::memcpy(&bytes[kVersionAt], &version, sizeof(version));
    std::memcpy(&bytes[kLengthAt], &length, sizeof(length));
    const std::uint32_t crc = flashmob::crc32c(0, &bytes[kLengthAt], size - kLengthAt);
    std::memcpy(&bytes[kCrcAt], &crc, sizeof(crc));
  }
  std::string why;
  const auto state = decode(bytes, why);
  if (!state) {
    if (why.empty()) std::abort();
    return 0;
  }
  if (encode(*state) != bytes) std::abort();
  const std::uint64_t blocks = state->size_bytes / state->lba_bytes;
  for (const SavedRange& range : state->uncorrectable)
    if (range.first >= blocks || range.blocks > blocks - range.first) std::abort();
  return 0;
}
