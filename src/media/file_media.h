// A file, mapped shared: persistent, survives restarts, flush() makes it durable.
//
// All blocks of the file are reserved when it is opened, so that a full disk is an error at the start and not a fatal
// signal later. Deallocated ranges are given back to the file system (holes) and are reserved again at the next start;
// until then a write to them needs free disk space. The file must not be truncated while it is open. An exclusive
// advisory lock keeps a second device away.
//
// Thread rule: as media.h.
#pragma once

#include <memory>
#include <string>

#include "media/mapped_media.h"

namespace flashmob::media {

class FileMedia final : public MappedMedia {
 public:
  // size_bytes 0: the file's own size, rounded up to 4096. Throws ConfigError.
  static std::unique_ptr<FileMedia> open(const std::string& path, std::uint64_t size_bytes);

  bool flush() override;
  std::string describe() const override { return "file:" + path_; }

 protected:
  bool release(std::uint64_t offset, std::uint64_t bytes) override;

 private:
  FileMedia(std::uint64_t size_bytes, std::byte* base, std::uint64_t mapped_bytes, FileDescriptor file,
            std::string path);

  FileDescriptor file_;
  std::string path_;
};

}  // namespace flashmob::media
