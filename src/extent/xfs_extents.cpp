// Where a file's bytes lie: extents in the inode, b+trees, symbolic links, and blocks that several files share.
#include <utility>

#include "extent/xfs.h"

namespace flashmob::extent {
namespace {

enum Format : std::uint8_t { kLocal = 1, kExtents = 2, kTree = 3 };

constexpr std::uint32_t kMapMagic = 0x424D4133;        // BMA3
constexpr std::uint32_t kGroupMagic = 0x58414746;      // XAGF
constexpr std::uint32_t kReferenceMagic = 0x52334643;  // R3FC
constexpr std::uint32_t kLinkMagic = 0x58534C4D;       // XSLM
constexpr std::size_t kMapHead = 72;
constexpr std::size_t kReferenceHead = 56;
constexpr std::size_t kLinkHead = 56;
constexpr std::size_t kRecordBytes = 16;
constexpr std::uint32_t kMaxLevels = 9;
constexpr std::uint64_t kMaxLinkBytes = 1024;
constexpr std::uint64_t kFileEnd = std::uint64_t{1} << 54;

}  // namespace

// Goes through a data fork. Nodes have at least one entry, and what an entry covers ends where the next begins.
class XfsVolume::ForkWalk {
 public:
  ForkWalk(XfsVolume& volume, const Inode& inode, Blocks wanted) : volume_(volume), inode_(inode), wanted_(wanted) {}

  std::vector<FileExtent> run() {
    const Bytes fork = inode_.fork();
    const std::string structure = at_byte(inode_.describe("data fork"), inode_.device_offset);
    if (inode_.format == kExtents) {
      if (inode_.extents > fork.size() / kRecordBytes) damaged(structure, "says that it has more extents than fit");
      records(fork, static_cast<std::size_t>(inode_.extents), {0, kFileEnd}, structure);
    } else if (inode_.format == kTree) {
      const std::uint32_t level = fork.be16(0);
      const std::size_t count = fork.be16(2);
      const std::size_t room = (fork.size() - 4) / 16;
      if (level == 0 || level > kMaxLevels || count == 0 || count > room) damaged(structure, "is no root of a tree");
      node(fork.part(4, fork.size() - 4), level, count, room, {0, kFileEnd}, structure);
    } else {
      damaged(structure, "has no extents where it should");
    }
    return std::move(out_);
  }

 private:
  // Keys, then pointers to what is below them.
  void node(Bytes entries, std::uint32_t level, std::size_t count, std::size_t room, Blocks covered,
            const std::string& structure) {
    std::uint64_t least = covered.begin;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t begin = entries.be64(8 * i);
      const std::uint64_t end = i + 1 < count ? entries.be64(8 * (i + 1)) : covered.end;
      if (begin < least || end <= begin || end > covered.end) damaged(structure, "has entries that are not in order");
      least = end;
      if (end > wanted_.begin && begin < wanted_.end)
        below(entries.be64(8 * room + 8 * i), level - 1, {begin, end}, structure);
    }
  }

  void below(std::uint64_t block, std::uint32_t level, Blocks covered, const std::string& above) {
    const std::uint64_t offset = volume_.place(block, 1, above);
    const std::string structure = at_byte(inode_.describe("extent tree"), offset);
    const Bytes found = volume_.checked(offset, volume_.block_bytes_, 64, 24, structure);
    const std::size_t count = found.be16(6);
    const std::size_t room = (found.size() - kMapHead) / kRecordBytes;
    if (found.be32(0) != kMapMagic || found.be16(4) != level || count == 0 || count > room)
      damaged(structure, "is no node of its level");
    if (volume_.options_.verify_checksums && found.be64(56) != inode_.number)
      damaged(structure, "belongs to another inode");
    // What is read further down may take its place.
    const std::vector<std::byte> kept(found.data() + kMapHead, found.data() + found.size());
    if (level == 0)
      records(Bytes(std::span(kept)), count, covered, structure);
    else
      node(Bytes(std::span(kept)), level, count, room, covered, structure);
  }

  // 1 bit: unwritten; 54: block of the file; 52: block of the file system; 21: how many.
  void records(Bytes list, std::size_t count, Blocks covered, const std::string& structure) {
    std::uint64_t least = covered.begin;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t high = list.be64(kRecordBytes * i);
      const std::uint64_t low = list.be64(kRecordBytes * i + 8);
      const bool is_unwritten = (high >> 63) != 0;
      const std::uint64_t begin = high >> 9 & (kFileEnd - 1);
      const std::uint64_t block = (high & 0x1FF) << 43 | low >> 21;
      const std::uint64_t blocks = low & 0x1FFFFF;
      if (begin < least || blocks == 0 || begin >= covered.end || blocks > covered.end - begin)
        damaged(structure, "has extents that are not in order");
      least = begin + blocks;
      const std::uint64_t offset = volume_.place(block, blocks, structure);
      if (least <= wanted_.begin || begin >= wanted_.end) continue;
      if (out_.size() >= volume_.options_.max_extents) damaged(structure, "has more extents than are read");
      const std::uint64_t bytes = volume_.block_bytes_;
      // What begins beyond every file's end cannot be a part of one.
      if (least > (std::uint64_t{1} << 63) / bytes) damaged(structure, "has extents beyond every file's end");
      out_.push_back({begin * bytes, offset, blocks * bytes, is_unwritten ? kExtentUnwritten : 0u});
    }
  }

  XfsVolume& volume_;
  const Inode& inode_;
  const Blocks wanted_;
  std::vector<FileExtent> out_;
};

std::vector<FileExtent> XfsVolume::mapped(const Inode& inode, Blocks wanted) {
  if (inode.format == kLocal) {
    if (inode.size_bytes == 0) return {};
    if (inode.size_bytes > inode.fork().size()) damaged(inode.describe("data"), "is longer than its room");
    const std::uint64_t begin = static_cast<std::uint64_t>(inode.fork().data() - inode.raw.data());
    return {{0, inode.device_offset + begin, inode.size_bytes, kExtentInline | kExtentUnaligned}};
  }
  return ForkWalk(*this, inode, wanted).run();
}

std::string XfsVolume::link(std::uint64_t number) {
  const Inode found = inode(number);
  if (found.size_bytes == 0 || found.size_bytes > kMaxLinkBytes)
    damaged(found.describe("target"), "has a length that no link has");
  if (found.format == kLocal) return std::string(found.fork().text(0, found.size_bytes));
  std::string text;
  const std::uint64_t blocks = (kMaxLinkBytes + block_bytes_ - kLinkHead - 1) / (block_bytes_ - kLinkHead);
  for (const FileExtent& extent : mapped(found, {0, blocks})) {
    // Each extent has a head of its own.
    const std::uint64_t left = found.size_bytes - text.size();
    const std::uint64_t room = (left + block_bytes_ - 1 + kLinkHead) / block_bytes_ * block_bytes_;
    const std::size_t bytes = std::min(extent.bytes, std::max<std::uint64_t>(room, block_bytes_));
    const Bytes block = checked(extent.device_offset, bytes, 12, 40, found.describe("target"));
    const std::uint32_t here = block.be32(8);
    if (block.be32(0) != kLinkMagic || block.be32(4) != text.size() || here == 0 || here > left)
      damaged(found.describe("target"), "has blocks that do not fit together");
    text += block.text(kLinkHead, here);
    if (text.size() == found.size_bytes) return text;
  }
  damaged(found.describe("target"), "is not all there");
}

// Goes through an allocation group's tree of reference counts.
class XfsVolume::ReferenceWalk {
 public:
  ReferenceWalk(XfsVolume& volume, std::uint32_t group)
      : volume_(volume),
        start_(std::uint64_t{group} * volume.group_blocks_ * volume.block_bytes_),
        structure_("allocation group " + std::to_string(group) + "'s reference counts"),
        blocks_(static_cast<std::uint32_t>(std::min<std::uint64_t>(
            volume.group_blocks_, volume.block_count_ - std::uint64_t{group} * volume.group_blocks_))) {}

  std::vector<Shared> run() {
    const std::uint64_t head = start_ + volume_.sector_bytes_;
    const Bytes group = volume_.blocks_.read(head, volume_.sector_bytes_, structure_);
    if (group.be32(0) != kGroupMagic) damaged(at_byte(structure_, head), "have no header");
    const std::uint32_t levels = group.be32(92);
    if (levels == 0 || levels > kMaxLevels) damaged(at_byte(structure_, head), "have no tree");
    walk(group.be32(88), levels - 1, {0, std::uint64_t{1} << 32});
    return std::move(out_);
  }

 private:
  void walk(std::uint32_t block, std::uint32_t level, Blocks covered) {
    if (block >= blocks_) damaged(structure_, "point to block " + std::to_string(block) + ", which is not there");
    const std::uint64_t offset = start_ + std::uint64_t{block} * volume_.block_bytes_;
    const Bytes found = volume_.checked(offset, volume_.block_bytes_, 52, 16, structure_);
    const std::size_t count = found.be16(6);
    const std::size_t entry = level == 0 ? 12 : 8;
    const std::size_t room = (found.size() - kReferenceHead) / entry;
    // Only a root may be empty, and then there is nothing that is shared.
    const bool may_be_empty = level == 0 && covered.begin == 0 && covered.end > 0xFFFFFFFF;
    if (found.be32(0) != kReferenceMagic || found.be16(4) != level || count > room || (count == 0 && !may_be_empty))
      damaged(at_byte(structure_, offset), "have no node of its level");
    const std::vector<std::byte> kept(found.data() + kReferenceHead, found.data() + found.size());
    const Bytes entries{std::span(kept)};
    std::uint64_t least = covered.begin;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t begin = entries.be32((level == 0 ? 12 : 4) * i);
      if (begin < least || begin >= covered.end) damaged(at_byte(structure_, offset), "are not in order");
      if (level == 0) {
        least = begin + entries.be32(12 * i + 4);
        add(begin, least, entries.be32(12 * i + 8));
        continue;
      }
      const std::uint64_t end = i + 1 < count ? entries.be32(4 * (i + 1)) : covered.end;
      if (end <= begin || end > covered.end) damaged(at_byte(structure_, offset), "are not in order");
      least = end;
      walk(entries.be32(4 * room + 4 * i), level - 1, {begin, end});
    }
  }

  void add(std::uint64_t begin, std::uint64_t end, std::uint32_t references) {
    // Above are blocks that wait to be copied to; they belong to nobody.
    if (begin >> 31 != 0 || references < 2) return;
    if (end > blocks_ || end <= begin) damaged(structure_, "count blocks that are not there");
    if (out_.size() >= volume_.options_.max_extents) damaged(structure_, "have more entries than are read");
    if (!out_.empty() && out_.back().end == begin)
      out_.back().end = static_cast<std::uint32_t>(end);
    else
      out_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
  }

  XfsVolume& volume_;
  const std::uint64_t start_;
  const std::string structure_;
  const std::uint32_t blocks_;
  std::vector<Shared> out_;
};

const std::vector<XfsVolume::Shared>& XfsVolume::shared_of(std::uint32_t group) {
  const auto [found, is_new] = shared_.try_emplace(group);
  if (is_new) {
    try {
      found->second = ReferenceWalk(*this, group).run();
    } catch (...) {
      shared_.erase(found);
      throw;
    }
  }
  return found->second;
}

std::vector<FileExtent> XfsVolume::with_sharing(const std::vector<FileExtent>& extents) {
  constexpr std::uint32_t kReferenceCounts = 0x4;
  if ((read_only_compatible_ & kReferenceCounts) == 0) return extents;
  std::vector<FileExtent> out;
  for (FileExtent rest : extents) {
    if (rest.flags & kExtentInline) return extents;
    const std::uint64_t block = rest.device_offset / block_bytes_;
    const auto group = static_cast<std::uint32_t>(block / group_blocks_);
    const std::uint64_t group_start = std::uint64_t{group} * group_blocks_ * block_bytes_;
    const std::vector<Shared>& shared = shared_of(group);
    const auto first_after = [&](const FileExtent& from) {
      const std::uint64_t at = (from.device_offset - group_start) / block_bytes_;
      return std::upper_bound(shared.begin(), shared.end(), at,
                              [](std::uint64_t value, const Shared& one) { return value < one.end; });
    };
    for (auto next = first_after(rest); rest.bytes != 0; ++next) {
      const std::uint64_t end = rest.device_offset + rest.bytes;
      const std::uint64_t begins = next == shared.end() ? end : group_start + std::uint64_t{next->begin} * block_bytes_;
      const std::uint64_t ends = next == shared.end() ? end : group_start + std::uint64_t{next->end} * block_bytes_;
      const auto cut = [&](std::uint64_t until, std::uint32_t flags) {
        if (until <= rest.device_offset) return;
        if (out.size() >= 2 * options_.max_extents) throw ExtentError("has more extents than are read");
        const std::uint64_t bytes = until - rest.device_offset;
        out.push_back({rest.file_offset, rest.device_offset, bytes, rest.flags | flags});
        rest.file_offset += bytes;
        rest.device_offset += bytes;
        rest.bytes -= bytes;
      };
      cut(std::min(begins, end), 0);
      cut(std::min(ends, end), kExtentShared);
    }
  }
  return out;
}

}  // namespace flashmob::extent
