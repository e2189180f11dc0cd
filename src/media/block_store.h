// What DirectMedia stands on: something that reads and writes aligned blocks and says later how that went. A file
// opened with O_DIRECT is one (direct_file.h); tests have one that fails when it is told to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace flashmob::media {

// Offset, length and address are multiples of BlockStore::alignment(). `data` is not touched by anybody else until the
// token has been handed back.
struct BlockRequest {
  std::uint64_t offset;
  std::byte* data;  // nullptr, of a port's alone: BlockStore::deallocate(); `result` is then 0 if that is done
  std::uint32_t bytes;
  std::uint32_t token;
  bool is_write;
  bool durable;  // a write that is done when it would survive a power cut
};

struct BlockDone {
  std::uint32_t token;
  std::int32_t result;  // how many bytes were moved, perhaps fewer than asked, or -errno
};

// One thread's way to a store; several threads never use one at once. Nothing allocates after construction.
class BlockPort {
 public:
  virtual ~BlockPort() = default;
  // At most so many as make_port() was asked for are under way.
  virtual void submit(const BlockRequest& request) = 0;
  // Has those that were submitted begun: once for many of them.
  virtual void kick() = 0;
  // Writes what is done to `done`; returns how many.
  virtual std::size_t poll(std::span<BlockDone> done) = 0;
};

// Thread rule: any thread. Errors are errno values, 0 for success.
class BlockStore {
 public:
  virtual ~BlockStore() = default;
  // A multiple of 4096.
  std::uint64_t size_bytes() const { return size_bytes_; }
  // A power of two from 512 to 4096.
  std::uint32_t alignment() const { return alignment_; }
  // nullptr where this machine has no room for one more.
  virtual std::unique_ptr<BlockPort> make_port(std::uint32_t depth) = 0;
  // As a port does it, but done when it returns; all of the bytes or an error.
  virtual int transfer(const BlockRequest& request) = 0;
  // Afterwards the range, whole pages of 4096 bytes, reads as zeroes and takes no space.
  virtual int deallocate(std::uint64_t offset, std::uint64_t bytes) = 0;
  // Makes all completed writes durable.
  virtual int flush() = 0;
  virtual std::string describe() const = 0;

 protected:
  BlockStore(std::uint64_t size_bytes, std::uint32_t alignment) : size_bytes_(size_bytes), alignment_(alignment) {}

 private:
  std::uint64_t size_bytes_;
  std::uint32_t alignment_;
};

}  // namespace flashmob::media
