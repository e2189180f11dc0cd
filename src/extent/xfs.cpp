// Super block and inodes.
#include "extent/xfs.h"

#include <bit>
#include <utility>

#include "base/crc32c.h"

namespace flashmob::extent {
namespace {

constexpr std::uint32_t kSuperMagic = 0x58465342;  // XFSB
constexpr std::uint16_t kInodeMagic = 0x494E;      // IN
constexpr std::size_t kSuperBytes = 512;
constexpr std::size_t kSuperChecksum = 224;
constexpr std::size_t kInodeChecksum = 100;
constexpr std::size_t kInodeCore = 176;
constexpr std::uint32_t kBasicBlock = 512;

enum Incompatible : std::uint32_t {
  kFileType = 0x1,
  kSparseInodes = 0x2,
  kMetaUuid = 0x4,
  kBigTime = 0x8,
  kNeedsRepair = 0x10,
  kBigCounts = 0x20,
  kExchange = 0x40,
  kParents = 0x80,
};
constexpr std::uint32_t kKnown = kFileType | kSparseInodes | kMetaUuid | kBigTime | kBigCounts | kExchange | kParents;
// Of inodes.
constexpr std::uint16_t kRealtime = 0x1;
constexpr std::uint64_t kReflink = 0x2;
constexpr std::uint64_t kBigCountsInode = 0x10;

}  // namespace

bool has_checksum(Bytes bytes, std::size_t at) {
  constexpr std::array<std::uint8_t, 4> kNone{};
  std::uint32_t sum = crc32c(0, bytes.data(), at);
  sum = crc32c(sum, kNone.data(), kNone.size());
  sum = crc32c(sum, bytes.data() + at + 4, bytes.size() - at - 4);
  return sum == bytes.le32(at);
}

void XfsVolume::damaged(const std::string& structure, const std::string& what) {
  throw ExtentError(structure + " " + what + "; see what xfs_repair -n says");
}

XfsVolume::XfsVolume(DeviceReader& device, const ExtentOptions& options)
    : blocks_(device), options_(options), device_bytes_(device.size_bytes()) {
  read_super_block();
  check_log();
}

void XfsVolume::check_features(Bytes super) const {
  if ((super.be16(100) & 0xF) != 5)
    throw ExtentError("the XFS file system has version " + std::to_string(super.be16(100) & 0xF) +
                      ", and only 5 is read here; mount it, and name the mounted directory");
  if (incompatible_ & kNeedsRepair)
    throw ExtentError("the XFS file system says that it needs repair; run xfs_repair on it");
  if (const std::uint32_t unknown = incompatible_ & ~std::uint32_t{kKnown})
    throw ExtentError("the XFS file system has features that are not read here (incompat " + std::to_string(unknown) +
                      "); mount it, and name the mounted directory");
  if (super.u8(126) != 0) throw ExtentError("mkfs.xfs has not ended on this device; run it again");
}

void XfsVolume::read_super_block() {
  const Bytes head = blocks_.read(0, kSuperBytes, "the XFS super block");
  sector_bytes_ = head.be16(102);
  if (!std::has_single_bit(sector_bytes_) || sector_bytes_ < 512 || sector_bytes_ > 32768)
    damaged("the XFS super block", "has sectors of " + std::to_string(sector_bytes_) + " bytes");
  read_only_compatible_ = head.be32(212);
  incompatible_ = head.be32(216);
  check_features(head);
  const Bytes super = blocks_.read(0, sector_bytes_, "the XFS super block");
  if (options_.verify_checksums && !has_checksum(super, kSuperChecksum))
    damaged("the XFS super block", "has a wrong checksum");
  block_bytes_ = super.be32(4);
  block_count_ = super.be64(8);
  log_start_ = super.be64(48);
  root_inode_ = super.be64(56);
  group_blocks_ = super.be32(84);
  group_count_ = super.be32(88);
  log_blocks_ = super.be32(96);
  inode_bytes_ = super.be16(104);
  inode_log_ = super.u8(123);
  group_log_ = super.u8(124);
  directory_log_ = super.u8(192);
  check_geometry();
}

void XfsVolume::check_geometry() const {
  const std::string super = "the XFS super block";
  if (!std::has_single_bit(block_bytes_) || block_bytes_ < 1024 || block_bytes_ > 65536)
    damaged(super, "has blocks of " + std::to_string(block_bytes_) + " bytes");
  if (block_count_ > device_bytes_ / block_bytes_)
    throw ExtentError("the XFS file system has " + std::to_string(block_count_) + " blocks of " +
                      std::to_string(block_bytes_) + " bytes, and the device ends at byte " +
                      std::to_string(device_bytes_) + "; name the whole device or image");
  if (!std::has_single_bit(inode_bytes_) || inode_bytes_ < 256 || inode_bytes_ > 2048 || inode_bytes_ > block_bytes_ ||
      inode_log_ > 8 || block_bytes_ / inode_bytes_ != 1u << inode_log_)
    damaged(super, "has inodes of " + std::to_string(inode_bytes_) + " bytes");
  if (group_blocks_ == 0 || group_count_ == 0 || group_log_ > 31 || group_blocks_ > std::uint64_t{1} << group_log_ ||
      (block_count_ + group_blocks_ - 1) / group_blocks_ != group_count_)
    damaged(super, "has allocation groups that cannot be");
  if (directory_log_ > 6 || std::uint64_t{block_bytes_} << directory_log_ > 65536)
    damaged(super, "has directory blocks larger than 64 KiB");
}

std::uint64_t XfsVolume::place(std::uint64_t block, std::uint64_t count, const std::string& structure) const {
  const std::uint64_t group = block >> group_log_;
  const std::uint64_t within = block & ((std::uint64_t{1} << group_log_) - 1);
  if (group < group_count_ && within < group_blocks_ && count <= group_blocks_ - within) {
    const std::uint64_t first = group * group_blocks_ + within;
    if (first < block_count_ && count <= block_count_ - first) return first * block_bytes_;
  }
  damaged(structure, "points to block " + std::to_string(block) + ", which is not there");
}

Bytes XfsVolume::checked(std::uint64_t offset, std::size_t bytes, std::size_t checksum_at, std::size_t address_at,
                         const std::string& structure) {
  const Bytes found = blocks_.read(offset, bytes, structure);
  if (options_.verify_checksums) {
    if (!has_checksum(found, checksum_at)) damaged(at_byte(structure, offset), "has a wrong checksum");
    if (found.be64(address_at) != offset / kBasicBlock)
      damaged(at_byte(structure, offset), "says that it belongs elsewhere");
  }
  return found;
}

XfsVolume::Inode XfsVolume::inode(std::uint64_t number) {
  const std::string structure = "inode " + std::to_string(number);
  const std::uint64_t block = place(number >> inode_log_, 1, structure);
  const std::uint64_t index = number & ((std::uint64_t{1} << inode_log_) - 1);
  // All inodes of a block are read at once.
  const Bytes raw = blocks_.read(block, block_bytes_, structure).part(index * inode_bytes_, inode_bytes_);
  Inode found;
  found.number = number;
  found.device_offset = block + index * inode_bytes_;
  const std::string where = at_byte(structure, found.device_offset);
  if (raw.be16(0) != kInodeMagic || raw.u8(4) != 3) damaged(where, "is no inode");
  if (options_.verify_checksums) {
    if (!has_checksum(raw, kInodeChecksum)) damaged(where, "has a wrong checksum");
    if (raw.be64(152) != number) damaged(where, "says that it is another one");
  }
  found.raw.assign(raw.data(), raw.data() + raw.size());
  found.mode = raw.be16(2);
  if (found.mode == 0) damaged(where, "has a name, but holds no file");
  found.format = raw.u8(5);
  found.size_bytes = raw.be64(56);
  const std::uint64_t flags = raw.be64(120);
  found.extents = (flags & kBigCountsInode) ? raw.be64(24) : raw.be32(76);
  found.may_share = (flags & kReflink) != 0;
  if (found.size_bytes > std::uint64_t{1} << 62) damaged(where, "says that its file has no end");
  if (kInodeCore + std::size_t{raw.u8(82)} * 8 > raw.size()) damaged(where, "has its attributes beyond its end");
  return found;
}

Bytes XfsVolume::Inode::fork() const {
  const Bytes all{std::span(raw)};
  const std::size_t attributes = std::size_t{all.u8(82)} * 8;
  return all.part(kInodeCore, attributes != 0 ? attributes : raw.size() - kInodeCore);
}

Node XfsVolume::node(std::uint64_t number) {
  const Inode found = inode(number);
  return {kind_of_mode(found.mode), found.size_bytes};
}

std::vector<FileExtent> XfsVolume::map(std::uint64_t file, Range range) {
  const Inode found = inode(file);
  if (Bytes(std::span(found.raw)).be16(90) & kRealtime)
    throw ExtentError("lies on the file system's realtime device, which is not read; copy it to the data device");
  const std::uint64_t last = range.end == 0 ? 0 : (range.end - 1) / block_bytes_ + 1;
  const std::vector<FileExtent> extents = mapped(found, {range.begin / block_bytes_, last});
  return found.may_share ? with_sharing(extents) : extents;
}

std::unique_ptr<Volume> open_xfs(DeviceReader& device, const ExtentOptions& options) {
  if (device.size_bytes() < kSuperBytes) return nullptr;
  std::array<std::byte, 4> magic;
  device.read(0, magic);
  if (Bytes(magic).be32(0) != kSuperMagic) return nullptr;
  return std::make_unique<XfsVolume>(device, options);
}

}  // namespace flashmob::extent
