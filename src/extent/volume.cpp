#include "extent/volume.h"

namespace flashmob::extent {

Bytes BlockCache::read(std::uint64_t offset, std::size_t bytes, std::string_view structure) {
  for (const Slot& slot : slots_)
    if (slot.offset == offset && slot.data.size() == bytes && bytes != 0) return std::span(slot.data);
  if (offset > size_bytes() || bytes > size_bytes() - offset)
    throw ExtentError(std::string(structure) + " lies at byte " + std::to_string(offset) + ", and the device ends at " +
                      std::to_string(size_bytes()) + "; check the file system, or whether the image is whole");
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  slot.data.resize(bytes);
  slot.offset = ~std::uint64_t{0};  // a read that fails leaves nothing to be found
  device_.read(offset, slot.data);
  slot.offset = offset;
  return std::span<const std::byte>(slot.data);
}

std::string Volume::at_byte(const std::string& structure, std::uint64_t offset) {
  return structure + " at byte " + std::to_string(offset);
}

void Volume::count_directory_bytes(std::uint64_t bytes, std::uint64_t device_bytes) {
  directory_bytes_ += bytes;
  if (bytes > device_bytes || directory_bytes_ > device_bytes)
    throw ExtentError("the directories say that they hold more bytes than the device has; check the file system");
}

FileKind kind_of_mode(std::uint32_t mode) {
  switch (mode >> 12 & 0xF) {
    case 0x4:
      return FileKind::directory;
    case 0x8:
      return FileKind::file;
    case 0xA:
      return FileKind::link;
    default:
      return FileKind::other;
  }
}

bool is_name(std::string_view name) {
  return !name.empty() && name.find_first_of(std::string_view("\0/", 2)) == name.npos;
}

std::vector<FileExtent> with_holes(std::span<const FileExtent> mapped, std::uint64_t offset, std::uint64_t bytes,
                                   std::uint64_t size_bytes) {
  std::vector<FileExtent> out;
  if (offset >= size_bytes || bytes == 0) return out;
  const std::uint64_t end = offset + std::min(bytes, size_bytes - offset);
  std::uint64_t at = offset;
  const auto hole_until = [&](std::uint64_t until) {
    if (until > at) out.push_back({at, 0, until - at, kExtentHole});
    at = std::max(at, until);
  };
  for (FileExtent extent : mapped) {
    if (extent.file_offset + extent.bytes <= at) continue;
    if (extent.file_offset >= end) break;
    hole_until(extent.file_offset);
    const std::uint64_t cut = at - extent.file_offset;
    extent.bytes = std::min(extent.bytes - cut, end - at);
    extent.file_offset = at;
    extent.device_offset = extent.has_place() ? extent.device_offset + cut : 0;
    at += extent.bytes;
    out.push_back(extent);
  }
  hole_until(end);
  return out;
}

}  // namespace flashmob::extent
