// The common part of media whose bytes are all mapped into this process (memory, file, cow): copies in and out, and
// the choice between giving pages back to the host and writing zeroes.
//
// Thread rule: as media.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "media/media.h"
#include "media/page_access.h"

namespace flashmob::media {

inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;
// A system call and the TLB flush that follows cost as much as zeroing about this much memory, so smaller ranges are
// zeroed in place.
inline constexpr std::uint64_t kReleaseThresholdBytes = 64 << 10;

class MappedMedia : public Media {
 public:
  ~MappedMedia() override;
  bool read(std::uint64_t offset, std::span<std::byte> out) override;
  bool write(std::uint64_t offset, std::span<const std::byte> in) override;
  // Splits the range into an inner part of whole granules, for release(), and edges, which are zeroed.
  bool deallocate(std::uint64_t offset, std::uint64_t bytes) override;
  bool pages_may_go() const override { return file_pages_.has_value(); }

 protected:
  // Owns the mapping [base, base + mapped_bytes). `granule_bytes` is the smallest piece that release() takes: a power
  // of two, at least a page. `of_file`: pages are a file's, which others may cut short.
  MappedMedia(std::uint64_t size_bytes, std::byte* base, std::uint64_t mapped_bytes, std::uint64_t granule_bytes,
              bool of_file);
  // Makes a range read as zeroes in place.
  virtual bool zero(std::uint64_t offset, std::uint64_t bytes);
  // Makes [offset, offset + bytes), whole granules, read as zeroes and gives its pages to the host. False: it could
  // not, and the caller zeroes.
  virtual bool release(std::uint64_t offset, std::uint64_t bytes) = 0;
  // From now on all pages are memory's.
  void forget_file() { file_pages_.reset(); }
  // Runs `touch`, which touches the mapping and owns nothing; false if it met a page that is gone.
  template <class F>
  bool access(F&& touch) {
    if (file_pages_) return try_access(touch);
    touch();
    return true;
  }

 private:
  std::uint64_t mapped_bytes_;
  std::uint64_t granule_bytes_;
  std::optional<FilePages> file_pages_;
};

// Whether all bytes are zero; there is at least one.
bool is_zero(const std::byte* start, std::uint64_t bytes);
// Zeroes memory, but only those pages that hold something else: a page that was never written stays unallocated.
void zero_where_needed(std::byte* start, std::uint64_t bytes);

// "PATH: cannot open: Permission denied; check ..." as a ConfigError, from an errno value.
[[noreturn]] void throw_file_error(const std::string& path, const std::string& what, int error, const std::string& fix);
[[noreturn]] void throw_file_error(const std::string& path, const std::string& what, const std::string& fix);

// A file descriptor that closes itself.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// The size of an open regular file; a ConfigError for a directory, a device or anything else.
std::uint64_t regular_file_size(const FileDescriptor& file, const std::string& path);
// Makes a new or renamed directory entry durable.
bool sync_parent_directory(const std::string& path);
// Takes an advisory lock (LOCK_EX or LOCK_SH) or throws that the file is in use. File systems without locks are let by.
void lock_file(const FileDescriptor& file, const std::string& path, int operation);

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

}  // namespace flashmob::media
