// Volumes as sources, and which source a path is.
#include "extent/sources.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace flashmob {
namespace extent {
namespace {

class VolumeSource : public ExtentSource {
 public:
  VolumeSource(std::unique_ptr<DeviceReader> device, std::unique_ptr<Volume> volume, std::string name,
               const ExtentOptions& options)
      : device_(std::move(device)), volume_(std::move(volume)), name_(std::move(name)), tree_(*volume_, options) {}

  std::string file_system() const override { return volume_->name(); }
  std::string device() const override { return name_; }
  std::vector<FileInfo> files() override { return tree_.files(); }
  std::vector<std::string> problems() const override { return tree_.problems(); }
  FileInfo look_up(const std::string& path) override { return tree_.info(tree_.look_up(path)); }

  std::vector<FileExtent> extents(const std::string& path, std::uint64_t offset, std::uint64_t bytes) override {
    const Tree::Item item = tree_.look_up(path);
    const FileInfo found = tree_.info(item);
    try {
      if (found.kind != FileKind::file)
        throw ExtentError(std::string("is a ") + file_kind_name(found.kind) + ", which has no extents; name a file");
      if (offset >= found.size_bytes || bytes == 0) return {};
      const Range range{offset, offset + std::min(bytes, found.size_bytes - offset)};
      return with_holes(volume_->map(tree_.inode(item), range), offset, bytes, found.size_bytes);
    } catch (const ExtentError& error) {
      throw ExtentError(printable(found.path) + ": " + error.what());
    }
  }

  std::size_t read(const std::string& path, std::uint64_t offset, std::span<std::byte> to) override {
    const std::vector<FileExtent> found = extents(path, offset, to.size());
    if (found.empty()) return 0;
    const std::uint64_t bytes = found.back().file_offset + found.back().bytes - offset;
    read_extents(*device_, found, to.first(bytes));
    return bytes;
  }

 private:
  std::unique_ptr<DeviceReader> device_;
  std::unique_ptr<Volume> volume_;
  const std::string name_;
  Tree tree_;
};

}  // namespace

void read_extents(DeviceReader& device, std::span<const FileExtent> extents, std::span<std::byte> to) {
  for (const FileExtent& extent : extents) {
    const std::span<std::byte> part = to.first(extent.bytes);
    to = to.subspan(extent.bytes);
    if (extent.flags & (kExtentHole | kExtentUnwritten)) {
      std::memset(part.data(), 0, part.size());
      continue;
    }
    if (!extent.has_place() || (extent.flags & (kExtentEncoded | kExtentEncrypted)))
      throw ExtentError("at byte " + std::to_string(extent.file_offset) +
                        " the file's bytes do not lie on the device as they are; read it through the kernel");
    device.read(extent.device_offset, part);
  }
}

std::unique_ptr<ExtentSource> open_volume(std::unique_ptr<DeviceReader> device, const std::string& name,
                                          const ExtentOptions& options) {
  std::unique_ptr<Volume> volume = open_ext4(*device, options);
  if (!volume) volume = open_xfs(*device, options);
  if (!volume) return nullptr;
  return std::make_unique<VolumeSource>(std::move(device), std::move(volume), name, options);
}

}  // namespace extent

std::unique_ptr<ExtentSource> ExtentSource::open(std::unique_ptr<DeviceReader> device, const std::string& name,
                                                 const ExtentOptions& options) {
  try {
    if (auto source = extent::open_volume(std::move(device), name, options)) return source;
    throw ExtentError("holds neither an ext4 nor an XFS file system; name a device that does");
  } catch (const ExtentError& error) {
    throw ExtentError(printable(name) + ": " + error.what());
  }
}

std::unique_ptr<ExtentSource> ExtentSource::open(const std::string& path, const ExtentOptions& options) {
  try {
    struct stat found{};
    if (::stat(path.c_str(), &found) != 0) throw ExtentError(std::strerror(errno));
    if (S_ISDIR(found.st_mode)) return extent::open_mounted(path, options);
    if (!S_ISREG(found.st_mode) && !S_ISBLK(found.st_mode))
      throw ExtentError("is no directory, image or block device; name one");
    if (auto source = extent::open_volume(extent::open_file_reader(path), path, options)) return source;
    if (S_ISREG(found.st_mode)) return extent::open_mounted(path, options);
    throw ExtentError("holds neither an ext4 nor an XFS file system; name a device that does");
  } catch (const ExtentError& error) {
    throw ExtentError(printable(path) + ": " + error.what());
  }
}

}  // namespace flashmob
