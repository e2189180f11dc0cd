// Keeps blocks of a mapped file whole where the process is killed in the middle of a store: what is about to be written
// lies in a second mapped file (PATH.flashmob-redo) until it has been. A signal that kills stops a thread between two
// instructions, and both files' pages outlive it in the page cache, so at the next start whatever was under way is
// there to be finished. A power cut is another matter: nothing here orders what reaches the disk.
//
// Any thread; each write takes a lane of its own.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace flashmob::media {

class RedoLog {
 public:
  // The most that begin() takes. Writes are cut where the file's offset is a multiple of it, so never inside a block.
  static constexpr std::uint64_t kPieceBytes = 16 * 1024;

  // Finishes in `image`, the mapped file of this inode, what a killed process had begun. The log stays as it is.
  static void finish_what_was_begun(const std::string& image_path, std::span<std::byte> image, std::uint64_t image_id);
  // Does so, then starts anew. Throws ConfigError.
  RedoLog(const std::string& image_path, std::span<std::byte> image, std::uint64_t image_id);
  ~RedoLog();
  RedoLog(const RedoLog&) = delete;
  RedoLog& operator=(const RedoLog&) = delete;

  // A lane for one store; waits where all are taken.
  unsigned take();
  // Notes that `in`, at most kPieceBytes, is about to be stored at `offset` of the image.
  void begin(unsigned lane, std::uint64_t offset, std::span<const std::byte> in);
  // What begin() took, to be stored.
  const std::byte* data(unsigned lane) const;
  // The store is done, or given up.
  void release(unsigned lane);

  static std::string path_of(const std::string& image_path) { return image_path + ".flashmob-redo"; }

 private:
  struct Lane;
  static constexpr unsigned kLanes = 32;

  const std::string path_;
  Lane* lanes_ = nullptr;
  std::array<std::atomic<bool>, kLanes> taken_{};
};

}  // namespace flashmob::media
