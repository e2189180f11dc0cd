// A copy-on-write view of a file: reads see the file, writes stay in this process's memory and are gone afterwards.
//
// The file is only ever opened for reading. Bytes between its end and the end of its last 4 KiB page read as zeroes.
// What hosts changed about it while it was served otherwise holds: its format, its marks, blocks that a killed process
// was writing. The file must not change while it is open; reads of what somebody cuts off fail. A shared advisory lock
// keeps devices that would write to it away.
//
// Thread rule: as media.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "media/mapped_media.h"

namespace flashmob::media {

class CowMedia final : public MappedMedia {
 public:
  // size_bytes 0: the file's own size, rounded up to 4096; at most that. Throws ConfigError.
  static std::unique_ptr<CowMedia> open(const std::string& path, std::uint64_t size_bytes);

  ~CowMedia() override;
  bool discard(std::uint64_t offset, std::uint64_t bytes) override;
  bool discard_zeroes() const override { return false; }
  bool flush() override { return true; }
  bool sync(std::uint64_t, std::uint64_t) override { return true; }
  void take_in() override;
  std::optional<SavedState> found() const override { return found_; }
  std::string describe() const override { return "cow:" + path_; }

 protected:
  bool release(std::uint64_t offset, std::uint64_t bytes) override;

 private:
  CowMedia(std::uint64_t size_bytes, std::byte* base, std::uint64_t mapped_bytes, FileDescriptor file, std::string path,
           const std::string& image_path, std::optional<SavedState> found);

  bool note_released(std::uint64_t first, std::uint64_t end);

  FileDescriptor file_;  // kept for its lock
  std::string path_;
  std::optional<SavedState> found_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> released_;  // spans that anonymous memory has replaced: first -> end
};

}  // namespace flashmob::media
