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
#include <optional>
#include <span>
#include <string>

#include "media/image_file.h"
#include "media/page_access.h"

namespace flashmob::media {

class RedoLog {
 public:
  // The most that begin() takes. Writes are cut where the file's offset is a multiple of it, so never inside a block.
  static constexpr std::uint64_t kPieceBytes = 16 * 1024;

  // Finishes in `image`, the mapped file, what a killed process had begun there. The log stays as it is. Throws
  // ConfigError where it holds writes that were under way to another image.
  static void finish_what_was_begun(const std::string& image_path, std::span<std::byte> image,
                                    const ImageIdentity& identity);
  // Does so, then starts anew. Throws ConfigError.
  RedoLog(const std::string& image_path, std::span<std::byte> image, const ImageIdentity& identity);
  ~RedoLog();
  RedoLog(const RedoLog&) = delete;
  RedoLog& operator=(const RedoLog&) = delete;

  // Stores `in`, at most kPieceBytes, at `offset` of the image. False if a page of the image or of the log is gone.
  // Somebody who cuts the log may also make it longer again, with anything in it, so a log that was found cut is never
  // used again: from then on all stores fail until a new one is made, at the next start. What is in it by then may be
  // finished all the same: a lane is announced by its last store, so it is there whole or not at all.
  bool store(std::uint64_t offset, std::span<const std::byte> in);

  // The steps of store(); what touches the log does so inside try_access().
  // A lane for one store; waits where all are taken.
  unsigned take();
  // Notes that `in` is about to be stored at `offset`. False if the lane is no longer what this log has made.
  bool begin(unsigned lane, std::uint64_t offset, std::span<const std::byte> in);
  // What begin() took, to be stored.
  const std::byte* data(unsigned lane) const;
  // The store is done. False as for begin(): what was stored may not be what begin() took.
  bool end(unsigned lane);

  static std::string path_of(const std::string& image_path) { return image_path + ".flashmob-redo"; }

 private:
  struct Lane;
  static constexpr unsigned kLanes = 32;

  // After a store that failed half-way: nothing is announced any more, and whether the log is cut is known.
  void give_up(unsigned lane);

  const std::string path_;
  std::byte* const image_;
  Lane* lanes_ = nullptr;
  std::optional<FilePages> pages_;
  std::atomic<bool> is_cut_{false};
  std::array<std::atomic<bool>, kLanes> taken_{};
};

}  // namespace flashmob::media
