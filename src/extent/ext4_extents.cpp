// Where a file's bytes lie: extent trees, the block maps of ext2 and ext3, and inline data.
#include <utility>

#include "extent/ext4.h"

namespace flashmob::extent {
namespace {

constexpr std::uint16_t kExtentMagic = 0xF30A;
constexpr std::size_t kEntryBytes = 12;
constexpr std::uint32_t kMaxDepth = 5;
constexpr std::uint32_t kMaxWritten = 32768;
// Attributes inside an inode.
constexpr std::uint32_t kAttributeMagic = 0xEA020000;
constexpr std::uint8_t kSystemAttribute = 7;

}  // namespace

// Goes down an extent tree. Every node has at least one entry, and what an entry covers ends where the next begins:
// no block is a part of the tree twice.
class Ext4Volume::ExtentWalk {
 public:
  ExtentWalk(Ext4Volume& volume, const Inode& inode, Blocks wanted)
      : volume_(volume), inode_(inode), wanted_(wanted), flags_(inode.has(kExt4Encrypted) ? kExtentEncrypted : 0u) {
    if (volume.read_only_compatible_ & 0x4000) flags_ |= kExtentShared;  // shared_blocks: any block may be
  }

  std::vector<FileExtent> run() {
    const Bytes area = Bytes(std::span(inode_.raw)).part(kExt4BlockArea, kExt4BlockAreaBytes);
    const std::string structure = at_byte(inode_.describe("extent root"), inode_.device_offset + kExt4BlockArea);
    const std::uint32_t depth = area.le16(6);
    if (depth > kMaxDepth) damaged(structure, "says that its tree is " + std::to_string(depth) + " deep");
    walk(area, depth, {0, std::uint64_t{1} << 32}, structure, true);
    return std::move(out_);
  }

 private:
  void walk(Bytes node, std::uint32_t depth, Blocks covered, const std::string& structure, bool is_root) {
    const std::uint32_t entries = node.le16(2);
    const std::uint32_t room = node.le16(4);
    if (node.le16(0) != kExtentMagic || node.le16(6) != depth) damaged(structure, "is no node of its level");
    if (entries > room || kEntryBytes * (1 + std::size_t{room}) > node.size() || (entries == 0 && !is_root))
      damaged(structure, "says that it has " + std::to_string(entries) + " entries");
    std::uint64_t least = covered.begin;
    for (std::uint32_t i = 0; i < entries; ++i) {
      const Bytes entry = node.part(kEntryBytes * (1 + i), kEntryBytes);
      const std::uint64_t begin = entry.le32(0);
      if (begin < least || begin >= covered.end) damaged(structure, "has entries that are not in order");
      if (depth == 0) {
        least = leaf(entry, begin, covered.end, structure);
        continue;
      }
      const std::uint64_t end = i + 1 < entries ? node.le32(kEntryBytes * (2 + i)) : covered.end;
      if (end <= begin || end > covered.end) damaged(structure, "has entries that are not in order");
      if (end > wanted_.begin && begin < wanted_.end) below(entry, depth - 1, {begin, end}, structure);
      least = end;
    }
  }

  void below(Bytes entry, std::uint32_t depth, Blocks covered, const std::string& above) {
    const std::uint64_t block = entry.le32(4) | std::uint64_t{entry.le16(8)} << 32;
    if (!volume_.is_within(block, 1))
      damaged(above, "points to block " + std::to_string(block) + ", which is not there");
    const std::uint64_t offset = block * volume_.block_bytes_;
    const std::string structure = at_byte(inode_.describe("extent node"), offset);
    const Bytes found = volume_.blocks_.read(offset, volume_.block_bytes_, structure);
    // What is read further down may take its place.
    const std::vector<std::byte> kept(found.data(), found.data() + found.size());
    const Bytes node{std::span(kept)};
    const std::size_t tail = kEntryBytes * (1 + std::size_t{node.le16(4)});
    if (volume_.has_checksums_ && volume_.options_.verify_checksums) {
      if (tail + 4 > node.size()) damaged(structure, "has no room for its checksum");
      if (chain(inode_.checksum_seed, node.data(), tail) != node.le32(tail)) damaged(structure, "has a wrong checksum");
    }
    walk(node, depth, covered, structure, false);
  }

  // Returns where the next one may begin.
  std::uint64_t leaf(Bytes entry, std::uint64_t begin, std::uint64_t covered_end, const std::string& structure) {
    const std::uint32_t length = entry.le16(4);
    const bool is_unwritten = length > kMaxWritten;
    const std::uint64_t count = is_unwritten ? length - kMaxWritten : length;
    const std::uint64_t block = entry.le32(8) | std::uint64_t{entry.le16(6)} << 32;
    if (count == 0 || count > covered_end - begin) damaged(structure, "has an extent that ends in the next one");
    if (!volume_.is_within(block, count))
      damaged(structure, "has an extent at block " + std::to_string(block) + ", which is not there");
    if (begin + count <= wanted_.begin || begin >= wanted_.end) return begin + count;
    if (out_.size() >= volume_.options_.max_extents) damaged(structure, "has more extents than are read");
    const std::uint64_t bytes = volume_.block_bytes_;
    out_.push_back({begin * bytes, block * bytes, count * bytes, flags_ | (is_unwritten ? kExtentUnwritten : 0u)});
    return begin + count;
  }

  Ext4Volume& volume_;
  const Inode& inode_;
  const Blocks wanted_;
  std::uint32_t flags_;
  std::vector<FileExtent> out_;
};

// Goes through the numbers of blocks as ext2 and ext3 have them: twelve, and three trees. What they point to is
// counted: a file has no more blocks than the device.
class Ext4Volume::MapWalk {
 public:
  MapWalk(Ext4Volume& volume, const Inode& inode, Blocks wanted) : volume_(volume), inode_(inode), wanted_(wanted) {}

  std::vector<FileExtent> run() {
    const Bytes area = Bytes(std::span(inode_.raw)).part(kExt4BlockArea, kExt4BlockAreaBytes);
    for (std::uint32_t i = 0; i < 12; ++i) found(area.le32(4 * i), i);
    std::uint64_t first = 12;
    std::uint64_t below = 1;
    for (std::uint32_t level = 1; level <= 3; ++level) {
      below *= volume_.block_bytes_ / 4;
      walk(area.le32(4 * (11 + level)), level, first, below);
      first += below;
    }
    return std::move(out_);
  }

 private:
  // A block of numbers, each of which stands for `covered` / its count blocks of the file.
  void walk(std::uint64_t block, std::uint32_t level, std::uint64_t first, std::uint64_t covered) {
    if (block == 0 || first >= wanted_.end || first + covered <= wanted_.begin) return;
    count(block);
    const std::uint64_t offset = block * volume_.block_bytes_;
    const Bytes read = volume_.blocks_.read(offset, volume_.block_bytes_, inode_.describe("block map"));
    const std::vector<std::byte> kept(read.data(), read.data() + read.size());
    const Bytes numbers{std::span(kept)};
    const std::uint64_t per_number = covered / (volume_.block_bytes_ / 4);
    for (std::uint32_t i = 0; i < volume_.block_bytes_ / 4; ++i) {
      if (level == 1)
        found(numbers.le32(4 * i), first + i);
      else
        walk(numbers.le32(4 * i), level - 1, first + i * per_number, per_number);
    }
  }

  void count(std::uint64_t block) {
    if (!volume_.is_within(block, 1) || ++counted_ > volume_.block_count_)
      damaged(inode_.describe("block map"), "points to block " + std::to_string(block) + ", which is not there");
  }

  void found(std::uint64_t block, std::uint64_t file_block) {
    if (block == 0 || file_block < wanted_.begin || file_block >= wanted_.end) return;
    count(block);
    const std::uint64_t bytes = volume_.block_bytes_;
    if (!out_.empty()) {
      FileExtent& last = out_.back();
      if (last.file_offset + last.bytes == file_block * bytes && last.device_offset + last.bytes == block * bytes) {
        last.bytes += bytes;
        return;
      }
    }
    if (out_.size() >= volume_.options_.max_extents)
      damaged(inode_.describe("block map"), "has more extents than are read");
    out_.push_back({file_block * bytes, block * bytes, bytes, inode_.has(kExt4Encrypted) ? kExtentEncrypted : 0u});
  }

  Ext4Volume& volume_;
  const Inode& inode_;
  const Blocks wanted_;
  std::uint64_t counted_ = 0;
  std::vector<FileExtent> out_;
};

std::vector<FileExtent> Ext4Volume::inline_parts(const Inode& inode) const {
  constexpr std::uint32_t kFlags = kExtentInline | kExtentUnaligned;
  const std::uint64_t size = inode.size_bytes;
  std::vector<FileExtent> parts;
  if (size == 0) return parts;
  parts.push_back(
      {0, inode.device_offset + kExt4BlockArea, std::min<std::uint64_t>(size, kExt4BlockAreaBytes), kFlags});
  if (size <= kExt4BlockAreaBytes) return parts;
  const std::string structure = at_byte(inode.describe("inline data"), inode.device_offset);
  const Bytes raw{std::span(inode.raw)};
  if (raw.size() <= 128) damaged(structure, "has no room beyond its first 60 bytes");
  const std::size_t header = 128 + std::size_t{raw.le16(0x80)};
  if (header % 4 != 0 || header + 4 > raw.size() || raw.le32(header) != kAttributeMagic)
    damaged(structure, "goes on in attributes that are not there");
  const Bytes attributes = raw.part(header + 4, raw.size() - header - 4);
  for (std::size_t at = 0; at + 4 <= attributes.size() && attributes.le32(at) != 0;) {
    const std::size_t name_bytes = attributes.u8(at);
    const std::uint64_t value = attributes.le16(at + 2);
    const std::uint64_t value_bytes = attributes.le32(at + 8);
    if (attributes.u8(at + 1) == kSystemAttribute && attributes.text(at + 16, name_bytes) == "data") {
      if (attributes.le32(at + 4) != 0 || value > attributes.size() || value_bytes > attributes.size() - value ||
          size - kExt4BlockAreaBytes > value_bytes)
        damaged(structure, "is shorter than its file");
      parts.push_back(
          {kExt4BlockAreaBytes, inode.device_offset + header + 4 + value, size - kExt4BlockAreaBytes, kFlags});
      return parts;
    }
    at += 16 + (name_bytes + 3) / 4 * 4;
  }
  damaged(structure, "goes on in attributes that are not there");
}

std::vector<FileExtent> Ext4Volume::mapped(const Inode& inode, Range range) {
  if (inode.has(kExt4InlineData)) return inline_parts(inode);
  const std::uint64_t last = range.end == 0 ? 0 : (range.end - 1) / block_bytes_ + 1;
  const Blocks wanted{range.begin / block_bytes_, last};
  if (inode.has(kExt4Extents)) return ExtentWalk(*this, inode, wanted).run();
  return MapWalk(*this, inode, wanted).run();
}

std::vector<FileExtent> Ext4Volume::map(std::uint64_t file, Range range) { return mapped(inode(file), range); }

std::string Ext4Volume::link(std::uint64_t number) {
  const Inode found = inode(number);
  if (found.has(kExt4Encrypted))
    throw ExtentError(found.describe("target") +
                      " is encrypted; mount the file system, and name the mounted directory");
  if (found.size_bytes < kExt4BlockAreaBytes && !found.has(kExt4InlineData) && !found.has(kExt4Extents))
    return std::string(Bytes(std::span(found.raw)).text(kExt4BlockArea, found.size_bytes));
  if (found.size_bytes > block_bytes_) damaged(found.describe("target"), "is longer than a block");
  return contents(found, found.size_bytes);
}

std::string Ext4Volume::contents(const Inode& inode, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  for (const FileExtent& part : with_holes(mapped(inode, {0, bytes}), 0, bytes, bytes)) {
    if (!part.has_place() || (part.flags & kExtentUnwritten)) damaged(inode.describe("bytes"), "are not all there");
    const Bytes read = blocks_.read(part.device_offset, part.bytes, inode.describe("bytes"));
    read.text(0, part.bytes).copy(text.data() + part.file_offset, part.bytes);
  }
  return text;
}

}  // namespace flashmob::extent
