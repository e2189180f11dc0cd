// Where a namespace's bytes live: anonymous memory, a file, a copy-on-write view of a file, or generated content.
//
// Thread rule: all operations may run concurrently; overlapping concurrent writes leave some mix of both, as on any
// memory. Ranges are always inside [0, size_bytes()); callers have checked (FLASHMOB_CHECK guards).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace flashmob::media {

class Media {
 public:
  virtual ~Media() = default;
  Media(const Media&) = delete;
  Media& operator=(const Media&) = delete;

  std::uint64_t size_bytes() const { return size_bytes_; }
  // Start of the bytes when all of them are directly addressable (memory, file, cow), else nullptr (generated).
  // The engine then copies with its own copy engine instead of calling read() and write().
  std::byte* base() const { return base_; }
  // Whether bytes at base() may be gone when they are touched (page_access.h); read() and the others then return false.
  virtual bool pages_may_go() const { return false; }
  // Why a write has just failed: true if the disk behind the media has no room for it.
  virtual bool is_disk_full() const { return false; }
  // False when writes are refused (generated content): the namespace then reports Namespace is Write Protected.
  virtual bool writable() const { return true; }

  // Each returns false on an I/O error of the backing store.
  virtual bool read(std::uint64_t offset, std::span<std::byte> out) = 0;
  virtual bool write(std::uint64_t offset, std::span<const std::byte> in) = 0;
  // Afterwards the range reads as zeroes; whole pages are given back to the host where possible.
  virtual bool deallocate(std::uint64_t offset, std::uint64_t bytes) = 0;
  // As deallocate(), but what cannot be given back may stay as it is: the host has only said that it needs it no more.
  virtual bool discard(std::uint64_t offset, std::uint64_t bytes) { return deallocate(offset, bytes); }
  // Whether what was discarded reads as zeroes, always.
  virtual bool discard_zeroes() const { return true; }
  // Makes all completed writes durable (file: fdatasync); nothing to do for the others.
  virtual bool flush() = 0;
  // Makes those of a range durable, and others only where they cannot be told apart.
  virtual bool sync(std::uint64_t offset, std::uint64_t bytes) = 0;
  // "memory", "file:PATH", ...: for reports.
  virtual std::string describe() const = 0;

 protected:
  Media(std::uint64_t size_bytes, std::byte* base) : size_bytes_(size_bytes), base_(base) {}

 private:
  std::uint64_t size_bytes_;
  std::byte* base_;
};

// Opens media from its command-line form: "memory", "generated", "file:PATH", "cow:PATH".
// `size_bytes` is the namespace's size, a multiple of 512 up to 64 TiB; for file: and cow: 0 means "the file's own
// size, rounded up to 4096 bytes". A file that does not exist is created with size_bytes for file:, an error for cow:.
// `nsid` and `seed` name the generated content. Throws ConfigError with path and fix.
std::unique_ptr<Media> open(const std::string& spec, std::uint64_t size_bytes, std::uint32_t nsid, std::uint64_t seed);

}  // namespace flashmob::media
