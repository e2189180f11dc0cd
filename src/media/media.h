// Where a namespace's bytes live: anonymous memory, a file, mapped or past the page cache, a copy-on-write view of a
// file, or generated content.
//
// Thread rule: all operations may run concurrently; overlapping concurrent writes leave some mix of both, as on any
// memory. Ranges are always inside [0, size_bytes()); callers have checked (FLASHMOB_CHECK guards).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "media/saved_state.h"

namespace flashmob::media {

class MediaQueue;

class Media {
 public:
  virtual ~Media() = default;
  Media(const Media&) = delete;
  Media& operator=(const Media&) = delete;

  std::uint64_t size_bytes() const { return size_bytes_; }
  // Start of the bytes when all of them are directly addressable (memory, file, cow), else nullptr (direct, generated).
  // The engine then copies with its own copy engine instead of calling read() and write().
  std::byte* base() const { return base_; }
  // Whether base() may be stored to. False: reading there is fine, and changes go through write() and the others.
  virtual bool direct_stores() const { return true; }
  // Where what hosts change beside blocks is saved; nullptr where nothing outlives the run.
  virtual std::shared_ptr<StateKeeper> saved() const { return nullptr; }
  // What an earlier run saved that holds for this one, whether or not this one saves: the image's format and marks.
  virtual std::optional<SavedState> found() const {
    const auto keeper = saved();
    return keeper != nullptr ? keeper->loaded() : std::nullopt;
  }
  // Whether bytes at base() may be gone when they are touched (page_access.h); read() and the others then return false.
  virtual bool pages_may_go() const { return false; }
  // Takes what base() shows out of the reach of those who change the file behind it, for somebody who touches it
  // without a guard (a GPU). Nobody else uses the media yet. Throws ConfigError.
  virtual void take_in() {}
  // Why a write has just failed: true if the disk behind the media has no room for it.
  virtual bool is_disk_full() const { return false; }
  // A way to read and write without waiting (media_queue.h), for those who copy no bytes from base(): each thread has
  // one of its own, named by a small number, made when it is asked for first. nullptr: there is only read() and
  // write().
  virtual MediaQueue* queue(unsigned thread) {
    (void)thread;
    return nullptr;
  }
  // False when writes are refused (generated content): the namespace then reports Namespace is Write Protected.
  virtual bool writable() const { return true; }

  // Keeps other threads from a range: until let_go(), what this thread reads and writes of it, and of nothing else, is
  // one step for them. For threads that hold nothing, as read() and write() are. Nothing to do for media that the
  // engine locks by base().
  virtual void hold(std::uint64_t offset, std::uint64_t bytes) { (void)offset, (void)bytes; }
  virtual void let_go(std::uint64_t offset, std::uint64_t bytes) { (void)offset, (void)bytes; }

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
  // Whether flush() and sync() wait for a disk.
  virtual bool sync_waits() const { return false; }
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

class MediaHold {
 public:
  MediaHold(Media& media, std::uint64_t offset, std::uint64_t bytes) : media_(media), offset_(offset), bytes_(bytes) {
    media_.hold(offset_, bytes_);
  }
  ~MediaHold() { media_.let_go(offset_, bytes_); }
  MediaHold(const MediaHold&) = delete;
  MediaHold& operator=(const MediaHold&) = delete;

 private:
  Media& media_;
  std::uint64_t offset_;
  std::uint64_t bytes_;
};

// Opens media from its command-line form: "memory", "generated", "file:PATH", "direct:PATH", "cow:PATH".
// `size_bytes` is the namespace's size, a multiple of 512 up to 64 TiB; for those with a path 0 means "the file's own
// size, rounded up to 4096 bytes". A file that does not exist is created with size_bytes, but an error for cow:.
// `nsid` and `seed` name the generated content; `cache_bytes` is direct:'s. Throws ConfigError with path and fix.
std::unique_ptr<Media> open(const std::string& spec, std::uint64_t size_bytes, std::uint32_t nsid, std::uint64_t seed,
                            std::uint64_t cache_bytes = 0);

}  // namespace flashmob::media
