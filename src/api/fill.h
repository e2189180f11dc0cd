// Preparing media before a run: filling it with verifiable content, and looking at a file beside the device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "load/trace.h"
#include "media/media.h"
#include "media/page_access.h"

namespace flashmob::api {

// Writes generation 0 of the content of media/block_content.h to every sector of `ranges` (of all `bytes` where there
// are none), by several threads. `anonymous` media is filled only if that fits into three quarters of the memory that
// is available; false if it was left alone, or cancelled. Throws ConfigError where it cannot be written.
bool fill_media(media::Media& media, std::uint64_t bytes, std::span<const load::ByteRange> ranges, std::uint32_t nsid,
                std::uint64_t seed, bool anonymous, std::atomic<double>& fraction, const std::atomic<bool>& cancelled);

// How large a store in memory may be to be filled: three quarters of the memory that is available.
std::uint64_t fillable_bytes();

// A read-only mapping of the file behind "file:PATH", "direct:PATH" or "cow:PATH" media.
class FileView {
 public:
  // True if the media specification names a file that exists and is not empty.
  static bool exists(const std::string& media);
  explicit FileView(const std::string& media);
  ~FileView();
  FileView(const FileView&) = delete;
  FileView& operator=(const FileView&) = delete;
  // Touched by media::try_access(): somebody may cut the file short meanwhile.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
  std::optional<media::FilePages> pages_;
};

}  // namespace flashmob::api
