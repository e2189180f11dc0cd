#include "api/fill.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/check.h"
#include "flashmob/machine.h"
#include "media/block_content.h"

namespace flashmob::api {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{2} << 20;

std::string path_of(const std::string& media) {
  const bool named = media.starts_with("file:") || media.starts_with("direct:") || media.starts_with("cow:");
  return named ? media.substr(media.find(':') + 1) : std::string();
}

// What one helper fills at a time.
std::vector<load::ByteRange> in_chunks(std::span<const load::ByteRange> ranges) {
  std::vector<load::ByteRange> chunks;
  for (const load::ByteRange& range : ranges) {
    for (std::uint64_t done = 0; done < range.bytes; done += kChunkBytes)
      chunks.push_back({range.offset_bytes + done, std::min<std::uint64_t>(kChunkBytes, range.bytes - done)});
  }
  return chunks;
}

}  // namespace

std::uint64_t fillable_bytes() { return free_memory_bytes() / 4 * 3; }

bool fill_media(media::Media& media, std::uint64_t bytes, std::span<const load::ByteRange> ranges, std::uint32_t nsid,
                std::uint64_t seed, bool anonymous, std::atomic<double>& fraction, const std::atomic<bool>& cancelled) {
  const load::ByteRange all{0, bytes};
  if (ranges.empty()) ranges = {&all, 1};
  if (anonymous && total_bytes(ranges) > fillable_bytes()) return false;
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> done{0};
  const std::vector<load::ByteRange> chunks = in_chunks(ranges);
  std::atomic<bool> failed{false};
  const auto work = [&] {
    std::vector<std::byte> buffer(media.base() == nullptr ? kChunkBytes : 0);
    for (std::size_t chunk = next++; chunk < chunks.size() && !cancelled && !failed; chunk = next++) {
      const load::ByteRange range = chunks[chunk];
      const std::uint64_t at = range.offset_bytes;
      const std::span<std::byte> data(buffer.empty() ? media.base() + at : buffer.data(), range.bytes);
      media::fill_sectors(data, at / media::kSectorBytes, nsid, 0, seed);
      if (!buffer.empty() && !media.write(at, data)) failed = true;
      // Helpers overtake each other between counting and telling; what is shown must not run backwards.
      const double now = static_cast<double>(++done) / static_cast<double>(chunks.size());
      double told = fraction;
      while (told < now && !fraction.compare_exchange_weak(told, now)) {
      }
    }
  };
  std::vector<std::thread> helpers;
  for (unsigned t = 1; t < std::min(4u, std::thread::hardware_concurrency()); ++t) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  if (failed) throw ConfigError("media " + media.describe() + " could not be filled; is there room on its disk?");
  fraction = 1;
  return !cancelled;
}

bool FileView::exists(const std::string& media) {
  struct stat info{};
  const std::string path = path_of(media);
  return !path.empty() && stat(path.c_str(), &info) == 0 && info.st_size > 0;
}

FileView::FileView(const std::string& media) {
  const std::string path = path_of(media);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info{};
  if (fd < 0 || fstat(fd, &info) != 0) {
    if (fd >= 0) close(fd);
    throw ConfigError("cannot read " + path + " to verify against; check its permissions");
  }
  const auto bytes = static_cast<std::size_t>(info.st_size);
  void* const view = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (view == MAP_FAILED) throw ConfigError("cannot map " + path + " to verify against");
  bytes_ = {static_cast<const std::byte*>(view), bytes};
  pages_.emplace(view, bytes);
}

FileView::~FileView() {
  pages_.reset();
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace flashmob::api
