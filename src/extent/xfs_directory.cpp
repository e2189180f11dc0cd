// Names in directories: within the inode, or in data blocks, which are the same whatever index stands above them.
#include "extent/xfs.h"

namespace flashmob::extent {
namespace {

constexpr std::uint8_t kLocal = 1;
constexpr std::uint32_t kBlockMagic = 0x58444233;  // XDB3: the only block, with the index in its end
constexpr std::uint32_t kDataMagic = 0x58444433;   // XDD3
constexpr std::size_t kHead = 64;
constexpr std::uint16_t kUnused = 0xFFFF;
// Beyond lie indexes, at places that no name has.
constexpr std::uint64_t kDataEnd = std::uint64_t{32} << 30;
constexpr std::uint32_t kFileType = 0x1;

}  // namespace

void XfsVolume::tell(const Inode& directory, std::string_view name, std::uint64_t inode, const Visit& visit) {
  if (!is_name(name)) damaged(directory.describe("directory"), "has a name that no file can have");
  if (name != "." && name != "..") visit(name, inode);
}

void XfsVolume::list(std::uint64_t number, const Visit& visit) {
  const Inode directory = inode(number);
  if (directory.format == kLocal) {
    count_directory_bytes(inode_bytes_, device_bytes_);
    list_short(directory, visit);
    return;
  }
  const std::uint64_t unit = std::uint64_t{block_bytes_} << directory_log_;
  const std::vector<FileExtent> extents = mapped(directory, {0, kDataEnd / block_bytes_});
  // A block of the directory may lie in several places.
  std::vector<std::byte> whole;
  std::uint64_t at = 0;
  for (const FileExtent& extent : extents) {
    count_directory_bytes(extent.bytes, device_bytes_);
    for (std::uint64_t done = 0; done < extent.bytes; done += block_bytes_) {
      const std::uint64_t file_offset = extent.file_offset + done;
      if (whole.empty()) at = file_offset;
      if (file_offset != at + whole.size() || at % unit != 0)
        damaged(directory.describe("directory"), "has blocks that are not all there");
      const Bytes block = blocks_.read(extent.device_offset + done, block_bytes_, directory.describe("directory"));
      if (whole.empty() && options_.verify_checksums && block.be64(8) != (extent.device_offset + done) / 512)
        damaged(at_byte(directory.describe("directory block"), extent.device_offset + done),
                "says that it belongs elsewhere");
      whole.insert(whole.end(), block.data(), block.data() + block.size());
      if (whole.size() < unit) continue;
      list_block(directory, Bytes(std::span(whole)), visit);
      whole.clear();
    }
  }
  if (!whole.empty()) damaged(directory.describe("directory"), "has blocks that are not all there");
}

void XfsVolume::list_short(const Inode& directory, const Visit& visit) const {
  const Bytes fork = directory.fork();
  if (directory.size_bytes > fork.size()) damaged(directory.describe("directory"), "is longer than its room");
  const Bytes all = fork.part(0, directory.size_bytes);
  const std::size_t count = all.u8(0);
  const std::size_t number_bytes = all.u8(1) != 0 ? 8 : 4;
  const std::size_t type_bytes = (incompatible_ & kFileType) ? 1 : 0;
  std::size_t at = 2 + number_bytes;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t name_bytes = all.u8(at);
    const std::size_t number_at = at + 3 + name_bytes + type_bytes;
    tell(directory, all.text(at + 3, name_bytes), number_bytes == 8 ? all.be64(number_at) : all.be32(number_at), visit);
    at = number_at + number_bytes;
  }
}

void XfsVolume::list_block(const Inode& directory, Bytes block, const Visit& visit) const {
  const std::string structure = directory.describe("directory block");
  const std::uint32_t magic = block.be32(0);
  if (magic != kBlockMagic && magic != kDataMagic) damaged(structure, "is no block of names");
  if (options_.verify_checksums) {
    if (!has_checksum(block, 4)) damaged(structure, "has a wrong checksum");
    if (block.be64(40) != directory.number) damaged(structure, "belongs to another inode");
  }
  std::size_t end = block.size();
  if (magic == kBlockMagic) {
    const std::uint64_t index = 8 + std::uint64_t{block.be32(block.size() - 8)} * 8;
    if (index > block.size() - kHead) damaged(structure, "says that its index is longer than it is");
    end -= index;
  }
  const std::size_t type_bytes = (incompatible_ & kFileType) ? 1 : 0;
  for (std::size_t at = kHead; at < end;) {
    if (block.be16(at) == kUnused) {
      const std::size_t length = block.be16(at + 2);
      if (length < 8 || length % 8 != 0 || length > end - at) damaged(structure, "has a gap that does not fit");
      at += length;
      continue;
    }
    const std::size_t name_bytes = block.u8(at + 8);
    // The number, the name's length, the name, what it is, and where this entry begins.
    const std::size_t length = (8 + 1 + name_bytes + type_bytes + 2 + 7) / 8 * 8;
    if (length > end - at || block.be16(at + length - 2) != at) damaged(structure, "has an entry that does not fit");
    tell(directory, block.text(at + 9, name_bytes), block.be64(at), visit);
    at += length;
  }
}

}  // namespace flashmob::extent
