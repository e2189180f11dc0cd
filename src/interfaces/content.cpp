#include "interfaces/content.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/config_checks.h"
#include "base/rng.h"
#include "base/text.h"
#include "media/mapped_media.h"

namespace flashmob::interfaces {
namespace {

constexpr std::size_t kSectorBytes = 512;
using Mark = std::array<std::uint64_t, 2>;

Mark mark_of(std::uint64_t place, std::uint64_t seed) { return {place, splitmix64(place ^ splitmix64(seed))}; }

}  // namespace

void stamp(std::span<std::byte> block, std::uint64_t offset, std::uint64_t seed) {
  for (std::size_t at = 0; at + kSectorBytes <= block.size(); at += kSectorBytes) {
    const Mark mark = mark_of(offset + at, seed);
    std::memcpy(block.data() + at, mark.data(), sizeof(mark));
  }
}

bool is_stamped(std::span<const std::byte> block, std::uint64_t offset, std::uint64_t seed) {
  for (std::size_t at = 0; at + kSectorBytes <= block.size(); at += kSectorBytes) {
    const Mark mark = mark_of(offset + at, seed);
    if (std::memcmp(block.data() + at, mark.data(), sizeof(mark)) != 0) return false;
  }
  return true;
}

void fill_noise(std::span<std::byte> bytes, std::uint64_t seed) {
  Rng rng(seed);
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = rng.next();
    std::memcpy(bytes.data() + at, &word, sizeof(word));
  }
}

void create_stamped_file(const std::string& path, std::uint64_t size_bytes, std::uint64_t seed) {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  if (size_bytes == 0 || size_bytes % kSectorBytes != 0)
    config_checks::reject("size_bytes", std::to_string(size_bytes), "use a multiple of 512");
  const media::FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const auto fail = [&](int error, bool is_ours) {
    if (is_ours) ::unlink(path.c_str());
    throw ConfigError(printable(path) + ": cannot be made (" + ::strerrordesc_np(error) +
                      "); name another, with room for " + bytes_in_words(size_bytes));
  };
  if (file.get() < 0) fail(errno, false);
  std::vector<std::byte> piece(kPieceBytes);
  fill_noise(piece, seed);
  for (std::uint64_t at = 0; at < size_bytes;) {
    const std::size_t bytes = std::min<std::uint64_t>(kPieceBytes, size_bytes - at);
    const std::span<std::byte> part(piece.data(), bytes);
    stamp(part, at, seed);
    const ssize_t moved = ::pwrite(file.get(), part.data(), part.size(), static_cast<off_t>(at));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < static_cast<ssize_t>(kSectorBytes)) fail(moved < 0 ? errno : ENOSPC, true);
    // A piece that was taken in part goes on at its last whole sector.
    at += static_cast<std::uint64_t>(moved) / kSectorBytes * kSectorBytes;
  }
  if (::fsync(file.get()) != 0) fail(errno, true);
}

}  // namespace flashmob::interfaces
