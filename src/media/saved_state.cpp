#include "media/saved_state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "media/mapped_media.h"

namespace flashmob::media {
namespace {

constexpr char kMagic[8] = {'F', 'L', 'A', 'S', 'H', 'M', 'O', 'B'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kFlagDeleted = 1;
constexpr unsigned kWriteProtectionShift = 8;
// Of feature 84h's states those that outlive a power cycle: none, protected, permanently protected.
constexpr bool is_kept(std::uint32_t write_protection) { return write_protection <= 1 || write_protection == 3; }

// The file's beginning; ranges and features follow. All little-endian.
struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t crc;  // of everything behind it
  std::uint64_t length;
  std::uint64_t generation;
  std::uint64_t size_bytes;
  std::uint32_t lba_bytes;
  std::uint32_t flags;
  std::array<std::uint8_t, 16> nguid;
  std::array<std::uint8_t, 8> eui64;
  std::array<std::uint8_t, 16> uuid;
  std::uint32_t ranges;
  std::uint32_t features;
};
static_assert(sizeof(Header) == 96 && std::endian::native == std::endian::little);
constexpr std::size_t kCrcStart = 16;
constexpr std::size_t kMaxBytes =
    sizeof(Header) + kMaxSavedRanges * sizeof(SavedRange) + kMaxSavedFeatures * sizeof(SavedFeature);

bool are_ranges_sound(std::span<const SavedRange> ranges, std::uint64_t blocks) {
  std::uint64_t free = 0;  // the first block that the next range may begin at
  for (const SavedRange& range : ranges) {
    if (range.first < free || range.first >= blocks || range.blocks == 0 || range.blocks > blocks - range.first)
      return false;
    free = range.first + range.blocks + 1;
  }
  return true;
}

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

// Up to `limit` bytes of a file; nothing where there is no such file.
std::optional<std::vector<std::byte>> read_file(const std::string& path, std::size_t limit) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (file.get() < 0) {
    if (errno == ENOENT) return std::nullopt;
    throw_file_error(path, "cannot be read", errno, "it says what hosts changed about the image; make it readable");
  }
  regular_file_size(file, path);
  std::vector<std::byte> bytes(limit);
  std::size_t have = 0;
  while (have < limit) {
    const ssize_t got = ::read(file.get(), bytes.data() + have, limit - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file_error(path, "cannot be read", errno, "check the disk");
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace

std::vector<std::byte> encode(const SavedState& state) {
  const std::size_t range_bytes = state.uncorrectable.size() * sizeof(SavedRange);
  const std::size_t feature_bytes = state.features.size() * sizeof(SavedFeature);
  std::vector<std::byte> out(sizeof(Header) + range_bytes + feature_bytes);
  Header header{};
  std::copy_n(kMagic, sizeof(kMagic), header.magic);
  header.version = kVersion;
  header.length = out.size();
  header.generation = state.generation;
  header.size_bytes = state.size_bytes;
  header.lba_bytes = state.lba_bytes;
  header.flags = (state.deleted ? kFlagDeleted : 0) | (std::uint32_t{state.write_protection} << kWriteProtectionShift);
  header.nguid = state.nguid;
  header.eui64 = state.eui64;
  header.uuid = state.uuid;
  header.ranges = static_cast<std::uint32_t>(state.uncorrectable.size());
  header.features = static_cast<std::uint32_t>(state.features.size());
  std::memcpy(out.data(), &header, sizeof(header));
  if (range_bytes != 0) std::memcpy(out.data() + sizeof(header), state.uncorrectable.data(), range_bytes);
  if (feature_bytes != 0) std::memcpy(out.data() + sizeof(header) + range_bytes, state.features.data(), feature_bytes);
  const std::uint32_t crc = crc32c(0, out.data() + kCrcStart, out.size() - kCrcStart);
  std::memcpy(out.data() + offsetof(Header, crc), &crc, sizeof(crc));
  return out;
}

std::optional<SavedState> decode(std::span<const std::byte> bytes, std::string& why) {
  Header header;
  why = "is damaged";
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    why = "is not a file of flashmob's";
    return std::nullopt;
  }
  if (header.version != kVersion) {
    why = "is of version " + std::to_string(header.version) + ", and this flashmob knows version " +
          std::to_string(kVersion);
    return std::nullopt;
  }
  if (header.length != bytes.size() || header.ranges > kMaxSavedRanges || header.features > kMaxSavedFeatures ||
      header.length != sizeof(header) + header.ranges * sizeof(SavedRange) + header.features * sizeof(SavedFeature) ||
      header.crc != crc32c(0, bytes.data() + kCrcStart, bytes.size() - kCrcStart))
    return std::nullopt;
  const std::uint32_t protection = header.flags >> kWriteProtectionShift;
  if ((header.lba_bytes != 512 && header.lba_bytes != 4096) || header.size_bytes < header.lba_bytes ||
      header.size_bytes % 512 != 0 || (header.flags & 0xFF & ~kFlagDeleted) != 0 || !is_kept(protection))
    return std::nullopt;
  SavedState state;
  state.generation = header.generation;
  state.size_bytes = header.size_bytes;
  state.lba_bytes = header.lba_bytes;
  state.deleted = (header.flags & kFlagDeleted) != 0;
  state.write_protection = static_cast<std::uint8_t>(protection);
  state.nguid = header.nguid;
  state.eui64 = header.eui64;
  state.uuid = header.uuid;
  state.uncorrectable.resize(header.ranges);
  state.features.resize(header.features);
  const std::size_t range_bytes = header.ranges * sizeof(SavedRange);
  if (range_bytes != 0) std::memcpy(state.uncorrectable.data(), bytes.data() + sizeof(header), range_bytes);
  if (header.features != 0)
    std::memcpy(state.features.data(), bytes.data() + sizeof(header) + range_bytes,
                header.features * sizeof(SavedFeature));
  if (!are_ranges_sound(state.uncorrectable, state.size_bytes / state.lba_bytes)) return std::nullopt;
  return state;
}

std::optional<SavedState> read_saved(const std::string& image_path) {
  const std::string path = StateKeeper::path_of(image_path);
  const auto bytes = read_file(path, kMaxBytes + 1);
  if (!bytes) return std::nullopt;
  std::string why;
  auto state = decode(*bytes, why);
  if (!state)
    throw_file_error(path, why,
                     "restore it from a copy, or delete it, and then set lba_bytes as the image was formatted");
  return state;
}

StateKeeper::StateKeeper(const std::string& image_path, std::uint64_t size_bytes)
    : path_(path_of(image_path)), size_bytes_(size_bytes), loaded_(read_saved(image_path)) {
  state_.size_bytes = size_bytes;
  if (!loaded_) return;
  if (loaded_->size_bytes != size_bytes)
    throw_file_error(path_,
                     "is about an image of " + std::to_string(loaded_->size_bytes) + " bytes, and size_bytes is " +
                         std::to_string(size_bytes),
                     "use size_bytes (--size) = " + std::to_string(loaded_->size_bytes) +
                         ", or delete this file if the image is a new one");
  state_ = *loaded_;
}

void StateKeeper::set_base(const SavedState& base) {
  const std::lock_guard lock(mutex_);
  state_ = base;
  state_.size_bytes = size_bytes_;
}

SavedState StateKeeper::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

bool StateKeeper::change(const std::function<void(SavedState&)>& edit, bool* holds) {
  const std::lock_guard one_at_a_time(change_mutex_);
  const SavedState before = state();
  SavedState next = before;
  edit(next);
  const bool is_new = next != before;
  if (holds != nullptr) *holds = !is_new;
  if (!is_new && is_synced_) return true;
  ++next.generation;
  if (next.uncorrectable.size() > kMaxSavedRanges || next.features.size() > kMaxSavedFeatures || !store(next))
    return false;
  {
    const std::lock_guard lock(mutex_);
    state_ = std::move(next);
  }
  if (holds != nullptr) *holds = true;
  is_synced_ = sync_parent_directory(path_);
  return is_synced_;
}

bool StateKeeper::store(const SavedState& state) const {
  const std::vector<std::byte> bytes = encode(state);
  const std::string fresh_path = path_ + ".new";
  ::unlink(fresh_path.c_str());  // of a run that was killed
  {
    const FileDescriptor file(::open(fresh_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) return false;
    if (!write_all(file.get(), bytes) || ::fsync(file.get()) != 0) {
      ::unlink(fresh_path.c_str());
      return false;
    }
  }
  return ::rename(fresh_path.c_str(), path_.c_str()) == 0;
}

}  // namespace flashmob::media
