// Names in directories: blocks of entries, with or without a hash tree over them, and entries within the inode.
#include "extent/ext4.h"

namespace flashmob::extent {
namespace {

constexpr std::size_t kEntryHead = 8;
constexpr std::size_t kTailBytes = 12;
constexpr std::uint8_t kTailType = 0xDE;
// Where a hash tree's nodes have the count of their entries, of 8 bytes each.
constexpr std::size_t kRootCount = 32;
constexpr std::size_t kNodeCount = 8;

}  // namespace

void Ext4Volume::list(std::uint64_t number, const Visit& visit) {
  const Inode directory = inode(number);
  if (directory.has(kExt4Encrypted))
    throw ExtentError(directory.describe("names") +
                      " are encrypted; mount the file system with its key, and name the mounted directory");
  if (directory.has(kExt4InlineData)) {
    count_directory_bytes(inode_bytes_, device_bytes_);
    // The parent's number, then entries; those that do not fit follow in the attribute, as a list of their own.
    for (const FileExtent& part : inline_parts(directory)) {
      const std::size_t skipped = part.file_offset == 0 ? 4 : 0;
      const Bytes all{std::span(directory.raw)};
      if (part.bytes <= skipped) continue;
      list_entries(directory, all.part(part.device_offset - directory.device_offset + skipped, part.bytes - skipped),
                   visit);
    }
    return;
  }
  for (const FileExtent& extent : mapped(directory, {0, directory.size_bytes})) {
    if (extent.file_offset >= directory.size_bytes || (extent.flags & kExtentUnwritten)) continue;
    const std::uint64_t bytes = std::min(extent.bytes, directory.size_bytes - extent.file_offset);
    count_directory_bytes(bytes, device_bytes_);
    for (std::uint64_t at = 0; at < bytes; at += block_bytes_) {
      const Bytes block = blocks_.read(extent.device_offset + at, block_bytes_, directory.describe("directory"));
      list_block(directory, (extent.file_offset + at) / block_bytes_, block, visit);
    }
  }
}

void Ext4Volume::list_block(const Inode& directory, std::uint64_t file_block, Bytes block, const Visit& visit) const {
  if (has_checksums_ && options_.verify_checksums) check_directory_block(directory, file_block, block);
  list_entries(directory, block, visit);
}

void Ext4Volume::check_directory_block(const Inode& directory, std::uint64_t file_block, Bytes block) const {
  const std::string structure = directory.describe("directory block ") + std::to_string(file_block);
  const std::uint16_t first_length = block.le16(4);
  const bool spans_block =
      first_length == block_bytes_ || (block_bytes_ == 65536 && (first_length | 3) == 3) || first_length == 0xFFFF;
  const bool is_node = directory.has(kExt4HashTree) && (file_block == 0 || (block.le32(0) == 0 && spans_block));
  if (!is_node) {
    const std::size_t tail = block.size() - kTailBytes;
    if (block.le16(tail + 4) != kTailBytes || block.u8(tail + 7) != kTailType)
      damaged(structure, "has no room for its checksum");
    if (chain(directory.checksum_seed, block.data(), tail) != block.le32(tail + 8))
      damaged(structure, "has a wrong checksum");
    return;
  }
  const std::size_t head = file_block == 0 ? kRootCount : kNodeCount;
  const std::size_t limit = block.le16(head);
  const std::size_t count = block.le16(head + 2);
  const std::size_t tail = head + limit * 8;
  if (count > limit || tail + 8 > block.size()) damaged(structure, "says that its hash tree has more than fits");
  constexpr std::array<std::uint8_t, 4> kNoChecksum{};
  std::uint32_t sum = chain(directory.checksum_seed, block.data(), head + count * 8);
  sum = chain(sum, block.data() + tail, 4);
  sum = chain(sum, kNoChecksum.data(), kNoChecksum.size());
  if (sum != block.le32(tail + 4)) damaged(structure, "has a wrong checksum");
}

void Ext4Volume::list_entries(const Inode& directory, Bytes entries, const Visit& visit) const {
  for (std::size_t at = 0; at + kEntryHead <= entries.size();) {
    const std::uint32_t inode = entries.le32(at);
    std::size_t length = entries.le16(at + 4);
    const std::size_t name_bytes = entries.u8(at + 6);
    // Blocks of 64 KiB keep the length's upper bits in its lowest two, which are otherwise zero.
    if (block_bytes_ == 65536) length = length == 0 || length == 0xFFFF ? 65536 : (length & ~3u) | (length & 3u) << 16;
    if (length < kEntryHead || length % 4 != 0 || length > entries.size() - at ||
        (inode != 0 && kEntryHead + name_bytes > length))
      damaged(directory.describe("directory"), "has an entry that ends beyond its block");
    if (inode != 0) {
      const std::string_view name = entries.text(at + kEntryHead, name_bytes);
      if (!is_name(name)) damaged(directory.describe("directory"), "has a name that no file can have");
      if (name != "." && name != "..") visit(name, inode);
    }
    at += length;
  }
}

}  // namespace flashmob::extent
