// A file system on a device, as what walks it sees it: numbered inodes, names in directories, mapped ranges of files.
//
// Its contents are a stranger's. Whatever it says is checked against the device and against what else it says; what
// does not fit is an ExtentError, never a loop and never a read beyond the device. Time and memory are bounded: a
// directory's blocks are its own, so that all directories together are no larger than the device; a tree's nodes have
// at least one entry and their ranges do not overlap, so that a file has no more nodes than ExtentOptions::max_extents
// times the tree's height.
//
// One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "extent/bytes.h"
#include "flashmob/extents.h"

namespace flashmob::extent {

struct Node {
  FileKind kind = FileKind::other;
  std::uint64_t size_bytes = 0;
};

// A part of a file, in bytes; the end is beyond it.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Reads of the device, bounds-checked, with the last blocks kept: inodes and directories are read piece by piece.
class BlockCache {
 public:
  explicit BlockCache(DeviceReader& device) : device_(device) {}
  std::uint64_t size_bytes() const { return device_.size_bytes(); }
  // The bytes stay until 32 other places have been read. `structure` is what is read there, for messages.
  Bytes read(std::uint64_t offset, std::size_t bytes, std::string_view structure);

 private:
  struct Slot {
    std::uint64_t offset = 0;
    std::vector<std::byte> data;
  };
  DeviceReader& device_;
  std::array<Slot, 32> slots_;
  std::size_t next_ = 0;
};

class Volume {
 public:
  // `inode` lies in the same volume; "." and ".." are not told.
  using Visit = std::function<void(std::string_view name, std::uint64_t inode)>;

  virtual ~Volume() = default;
  virtual const char* name() const = 0;
  virtual std::uint64_t root() const = 0;
  virtual Node node(std::uint64_t inode) = 0;
  // To be called once for each directory.
  virtual void list(std::uint64_t directory, const Visit& visit) = 0;
  // What has a place, in order; extents that only overlap the range are whole, perhaps beyond the file's end.
  virtual std::vector<FileExtent> map(std::uint64_t file, Range range) = 0;
  virtual std::string link(std::uint64_t inode) = 0;

 protected:
  // "inode 12's extent node at byte 4096"
  static std::string at_byte(const std::string& structure, std::uint64_t offset);
  // Counts what is read of directories; throws once it is more than the device has.
  void count_directory_bytes(std::uint64_t bytes, std::uint64_t device_bytes);

 private:
  std::uint64_t directory_bytes_ = 0;
};

// What a POSIX mode says that a file is.
FileKind kind_of_mode(std::uint32_t mode);
// A name that a directory may hold: not empty, without NUL and '/'.
bool is_name(std::string_view name);

// nullptr where the device holds no such file system. Throws ExtentError where it does and cannot be read.
std::unique_ptr<Volume> open_ext4(DeviceReader& device, const ExtentOptions& options);
std::unique_ptr<Volume> open_xfs(DeviceReader& device, const ExtentOptions& options);

// Cuts extents to the range and to the file, and puts holes between them. They are in order and do not overlap.
std::vector<FileExtent> with_holes(std::span<const FileExtent> mapped, std::uint64_t offset, std::uint64_t bytes,
                                   std::uint64_t size_bytes);

}  // namespace flashmob::extent
