// A file, mapped shared: persistent, survives restarts, flush() makes it durable.
//
// All blocks of a new file are reserved, so that a disk that is too small is an error at the start. A file that exists
// is taken as it is: opening a sparse one allocates nothing. Deallocated ranges are given back to the file system. A
// write to a hole needs free disk space, and fails where there is none; so does every access to what somebody has cut
// off the file. An exclusive advisory lock keeps a second device away. Stores go through a redo log, so that blocks are
// whole even where the process is killed; what hosts change besides is saved next to the image.
//
// Thread rule: as media.h.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "media/mapped_media.h"
#include "media/redo_log.h"
#include "media/saved_state.h"

namespace flashmob::media {

// A file as FileMedia takes it: it is there, locked, and has all its bytes but those that round it up to whole pages.
struct OpenedFile {
  FileDescriptor file;
  std::uint64_t size_bytes;
  bool created;
  std::string image_path;  // image_path_of()
  std::uint64_t file_bytes;
};
// size_bytes 0: the file's own size, rounded up to 4096. Throws ConfigError.
OpenedFile open_store_file(const std::string& path, std::uint64_t size_bytes);

class FileMedia final : public MappedMedia {
 public:
  // size_bytes 0: the file's own size, rounded up to 4096. Throws ConfigError.
  static std::unique_ptr<FileMedia> open(const std::string& path, std::uint64_t size_bytes);

  bool direct_stores() const override { return false; }
  bool write(std::uint64_t offset, std::span<const std::byte> in) override;
  bool flush() override;
  bool sync_waits() const override { return true; }
  bool sync(std::uint64_t offset, std::uint64_t bytes) override;
  bool is_disk_full() const override;
  std::string describe() const override { return "file:" + path_; }
  std::shared_ptr<StateKeeper> saved() const override { return saved_; }

 protected:
  bool release(std::uint64_t offset, std::uint64_t bytes) override;
  bool zero(std::uint64_t offset, std::uint64_t bytes) override;

 private:
  FileMedia(OpenedFile opened, std::byte* base, std::uint64_t mapped_bytes, std::string path);

  bool grow();

  FileDescriptor file_;
  std::string path_;  // as it was given
  std::atomic<std::uint64_t> file_bytes_;  // beyond them nothing has been written yet
  std::shared_ptr<StateKeeper> saved_;
  RedoLog redo_;
  // Linux says once that a disk has not taken what was written, and counts it as written from then on. Nobody knows
  // what it was, so nothing is durable any more until the drive is started again and shows what the disk has.
  std::atomic<bool> sync_failed_{false};
};

}  // namespace flashmob::media
