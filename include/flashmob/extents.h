// Where the bytes of files lie on a drive: `flashmob extents`, and what reads files past the kernel.
//
// A source is a directory or file of a mounted file system, asked by FIEMAP, or an ext4 or XFS file system that is not
// mounted, read from an image, a block device or whatever implements DeviceReader. Nothing is ever written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace flashmob {

// A source that cannot be read: not there, refused, or damaged. `what()` is one sentence that names path, structure and
// fix.
class ExtentError : public std::runtime_error {
 public:
  explicit ExtentError(const std::string& message) : std::runtime_error(message) {}
};

// What is known of an extent besides its place, as bits.
enum ExtentFlag : std::uint32_t {
  kExtentHole = 1 << 0,       // no place on the device: reads as zeroes
  kExtentUnwritten = 1 << 1,  // has a place, and reads as zeroes whatever lies there
  kExtentInline = 1 << 2,     // lies within the file system's own structures, at any byte
  kExtentShared = 1 << 3,     // other files have the same place
  kExtentDelalloc = 1 << 4,   // has no place yet
  kExtentEncoded = 1 << 5,    // what lies there is not the file's bytes: compressed, ...
  kExtentEncrypted = 1 << 6,  // ... or encrypted
  kExtentUnaligned = 1 << 7,  // begins or ends within a block
  kExtentUnknown = 1 << 8,    // the file system does not say where
  kExtentTail = 1 << 9,       // packed together with other files' ends
};
inline constexpr std::uint32_t kExtentFlagCount = 10;
// "hole", "unwritten", ...; of a single bit by its number.
const char* extent_flag_name(std::uint32_t bit);

// `device_offset` is 0 and says nothing where flags have hole, delalloc or unknown.
struct FileExtent {
  std::uint64_t file_offset = 0;
  std::uint64_t device_offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t flags = 0;

  bool has_place() const { return (flags & (kExtentHole | kExtentDelalloc | kExtentUnknown)) == 0; }
  bool operator==(const FileExtent&) const = default;
};

enum class FileKind : std::uint8_t { file, directory, link, other };
const char* file_kind_name(FileKind kind);

struct FileInfo {
  std::string path;  // from the source's root: "/a/b"; any bytes but NUL
  FileKind kind = FileKind::other;
  std::uint64_t inode = 0;
  std::uint64_t size_bytes = 0;
};

// What a file system is read from. One thread at a time.
class DeviceReader {
 public:
  virtual ~DeviceReader() = default;
  virtual std::uint64_t size_bytes() const = 0;
  // All of `to`, which lies within the device. Throws ExtentError.
  virtual void read(std::uint64_t offset, std::span<std::byte> to) = 0;
};

struct ExtentOptions {
  // Off for what has wrong checksums and is to be read all the same.
  bool verify_checksums = true;
  // What is beyond is refused: it bounds memory, whatever an image says.
  std::uint64_t max_files = 32'000'000;
  std::uint64_t max_extents = 8'000'000;  // of one file
};

// The first namespace of a device that another process serves: vfio-user:PATH or nvme-tcp:ADDRESS:PORT/NQN. Throws
// ConfigError where it is no target or nobody serves it, ExtentError where it does not answer within `timeout_ns`. One
// that has once not answered a read in that time is not asked again.
std::unique_ptr<DeviceReader> open_door_reader(const std::string& target, std::uint64_t timeout_ns = 10'000'000'000);
bool is_door(const std::string& target);

// One thread at a time. Everything throws ExtentError.
class ExtentSource {
 public:
  // A directory or file of a mounted file system, or an image or block device.
  static std::unique_ptr<ExtentSource> open(const std::string& path, const ExtentOptions& options = {});
  // `name` is what device() then says.
  static std::unique_ptr<ExtentSource> open(std::unique_ptr<DeviceReader> device, const std::string& name,
                                            const ExtentOptions& options = {});

  virtual ~ExtentSource() = default;
  ExtentSource(const ExtentSource&) = delete;
  ExtentSource& operator=(const ExtentSource&) = delete;

  // "ext4", "xfs"; of a mounted file system its type.
  virtual std::string file_system() const = 0;
  // What offsets of extents count from: the image, or the block device below a mounted file system.
  virtual std::string device() const = 0;
  // Everything below the root, each directory before what it holds, names in their order. Parts that cannot be read are
  // left out and told in problems().
  virtual std::vector<FileInfo> files() = 0;
  // One sentence for each part that the last files() left out, the first thousand of them.
  virtual std::vector<std::string> problems() const = 0;
  // Links on the way are followed, within the source's root; a link at the end, too.
  virtual FileInfo look_up(const std::string& path) = 0;
  // The whole of the range, as far as the file goes, in order and without gaps: what has no place is a hole.
  virtual std::vector<FileExtent> extents(const std::string& path, std::uint64_t offset, std::uint64_t bytes) = 0;
  // Reads a file by its extents, and zeroes where they are holes or unwritten; how many bytes the file had there.
  // Where the device cannot be read, or an extent has no plain bytes, it throws.
  virtual std::size_t read(const std::string& path, std::uint64_t offset, std::span<std::byte> to) = 0;

 protected:
  ExtentSource() = default;
};

}  // namespace flashmob
