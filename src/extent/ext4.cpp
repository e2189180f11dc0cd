// Super block, group descriptors and inodes.
#include "extent/ext4.h"

#include <bit>
#include <utility>

#include "base/crc32c.h"

namespace flashmob::extent {
namespace {

constexpr std::uint64_t kSuperOffset = 1024;
constexpr std::uint64_t kSuperBytes = 1024;
constexpr std::uint16_t kMagic = 0xEF53;

// Features: those that a reader must know.
enum Incompatible : std::uint32_t {
  kCompression = 0x1,
  kFileType = 0x2,
  kRecover = 0x4,
  kJournalDevice = 0x8,
  kMetaGroups = 0x10,
  kExtents = 0x40,
  k64Bit = 0x80,
  kMultiMount = 0x100,
  kFlexGroups = 0x200,
  kAttributeInodes = 0x400,
  kChecksumSeed = 0x2000,
  kLargeDirectory = 0x4000,
  kInlineData = 0x8000,
  kEncrypt = 0x10000,
  kCaseFold = 0x20000,
};
constexpr std::uint32_t kKnown = kFileType | kMetaGroups | kExtents | k64Bit | kMultiMount | kFlexGroups |
                                 kAttributeInodes | kChecksumSeed | kLargeDirectory | kInlineData | kEncrypt |
                                 kCaseFold;
constexpr std::uint32_t kCompatibleSparseSuper2 = 0x200;
constexpr std::uint32_t kUnmounted = 0x1;  // of the state
// Those that only a writer must know.
constexpr std::uint32_t kReadOnlySparseSuper = 0x1;
constexpr std::uint32_t kReadOnlyMetadataChecksums = 0x400;

bool is_power_of(std::uint64_t value, std::uint64_t base) {
  while (value % base == 0) value /= base;
  return value == 1;
}

}  // namespace

void Ext4Volume::damaged(const std::string& structure, const std::string& what) {
  throw ExtentError(structure + " " + what + "; see what e2fsck -fn says");
}

std::uint32_t Ext4Volume::chain(std::uint32_t seed, const void* data, std::size_t bytes) {
  return ~crc32c(~seed, data, bytes);
}

std::uint32_t Ext4Volume::chain32(std::uint32_t seed, std::uint32_t value) {
  const std::array<std::uint8_t, 4> bytes{static_cast<std::uint8_t>(value), static_cast<std::uint8_t>(value >> 8),
                                          static_cast<std::uint8_t>(value >> 16),
                                          static_cast<std::uint8_t>(value >> 24)};
  return chain(seed, bytes.data(), bytes.size());
}

Ext4Volume::Ext4Volume(DeviceReader& device, const ExtentOptions& options)
    : blocks_(device), options_(options), device_bytes_(device.size_bytes()) {
  read_super_block();
}

void Ext4Volume::check_features(std::uint32_t incompatible) {
  if (incompatible & kJournalDevice)
    throw ExtentError(
        "the device holds the journal of an ext4 file system, no files; name the file system's own device");
  if (incompatible & kRecover)
    throw ExtentError(
        "the ext4 journal holds changes that are not in place yet: the file system is mounted, or was not unmounted; "
        "unmount it, or let e2fsck -fy apply the journal to a copy");
  if (const std::uint32_t unknown = incompatible & ~std::uint32_t{kKnown | kRecover})
    throw ExtentError("the ext4 file system has features that are not read here (incompat " + std::to_string(unknown) +
                      "); mount it, and name the mounted directory");
}

void Ext4Volume::read_super_block() {
  const Bytes super = blocks_.read(kSuperOffset, kSuperBytes, "the ext4 super block");
  incompatible_ = super.le32(0x60);
  compatible_ = super.le32(0x5C);
  read_only_compatible_ = super.le32(0x64);
  has_checksums_ = (read_only_compatible_ & kReadOnlyMetadataChecksums) != 0;
  if (has_checksums_ && options_.verify_checksums) {
    if (super.u8(0x175) != 1) damaged("the ext4 super block", "names a checksum that is not crc32c");
    if (chain(~0u, super.data(), 0x3FC) != super.le32(0x3FC)) damaged("the ext4 super block", "has a wrong checksum");
  }
  check_features(incompatible_);
  // Without a journal this is all that tells.
  if ((super.le16(0x3A) & kUnmounted) == 0)
    throw ExtentError(
        "the file system is mounted, or was not unmounted: it may hold changes that are not in place yet; unmount it, "
        "or let e2fsck -fy mend a copy");
  checksum_seed_ = (incompatible_ & kChecksumSeed) ? super.le32(0x270) : chain(~0u, super.part(0x68, 16).data(), 16);
  if (super.le32(0x18) > 6) damaged("the ext4 super block", "has blocks larger than 64 KiB");
  block_bytes_ = 1024u << super.le32(0x18);
  const bool is_64bit = (incompatible_ & k64Bit) != 0;
  block_count_ = super.le32(4) | (is_64bit ? std::uint64_t{super.le32(0x150)} << 32 : 0);
  first_data_block_ = super.le32(0x14);
  blocks_per_group_ = super.le32(0x20);
  inodes_per_group_ = super.le32(0x28);
  inode_count_ = super.le32(0);
  inode_bytes_ = super.le32(0x4C) == 0 ? 128 : super.le16(0x58);
  descriptor_bytes_ = is_64bit ? super.le16(0xFE) : 32;
  first_meta_group_ = super.le32(0x104);
  backup_groups_[0] = super.le32(0x24C);
  backup_groups_[1] = super.le32(0x250);
  check_geometry();
}

void Ext4Volume::check_geometry() {
  const std::string super = "the ext4 super block";
  if (block_count_ > device_bytes_ / block_bytes_)
    throw ExtentError("the ext4 file system has " + std::to_string(block_count_) + " blocks of " +
                      std::to_string(block_bytes_) + " bytes, and the device ends at byte " +
                      std::to_string(device_bytes_) + "; name the whole device or image");
  if (first_data_block_ > 1 || first_data_block_ >= block_count_) damaged(super, "has no first block");
  if (!std::has_single_bit(inode_bytes_) || inode_bytes_ < 128 || inode_bytes_ > block_bytes_)
    damaged(super, "has inodes of " + std::to_string(inode_bytes_) + " bytes");
  if (!std::has_single_bit(descriptor_bytes_) || descriptor_bytes_ < ((incompatible_ & k64Bit) ? 64 : 32) ||
      descriptor_bytes_ > 1024)
    damaged(super, "has group descriptors of " + std::to_string(descriptor_bytes_) + " bytes");
  if (blocks_per_group_ == 0 || inodes_per_group_ == 0 || inodes_per_group_ > block_bytes_ * 8)
    damaged(super, "has groups that cannot be");
  group_count_ = (block_count_ - first_data_block_ + blocks_per_group_ - 1) / blocks_per_group_;
  if (inode_count_ == 0 || (inode_count_ - 1) / inodes_per_group_ >= group_count_)
    damaged(super, "has more inodes than its groups");
}

bool Ext4Volume::has_super_block(std::uint64_t group) const {
  if (group == 0) return true;
  if (compatible_ & kCompatibleSparseSuper2) return group == backup_groups_[0] || group == backup_groups_[1];
  if (group == 1 || (read_only_compatible_ & kReadOnlySparseSuper) == 0) return true;
  return is_power_of(group, 3) || is_power_of(group, 5) || is_power_of(group, 7);
}

std::uint64_t Ext4Volume::descriptor_offset(std::uint64_t group) const {
  const std::uint64_t per_block = block_bytes_ / descriptor_bytes_;
  const std::uint64_t table_block = group / per_block;
  std::uint64_t block = kSuperOffset / block_bytes_ + 1 + table_block;
  if ((incompatible_ & kMetaGroups) != 0 && table_block >= first_meta_group_) {
    const std::uint64_t first_group = table_block * per_block;
    block = first_data_block_ + first_group * blocks_per_group_ + (has_super_block(first_group) ? 1 : 0);
    if (block_bytes_ == 1024 && first_group == 0 && first_data_block_ == 0) ++block;
  }
  return block * block_bytes_ + group % per_block * descriptor_bytes_;
}

std::uint64_t Ext4Volume::inode_table(std::uint64_t group) {
  const std::string structure = "group " + std::to_string(group) + "'s descriptor";
  const std::uint64_t offset = descriptor_offset(group);
  const Bytes descriptor = blocks_.read(offset, descriptor_bytes_, structure);
  if (has_checksums_ && options_.verify_checksums) {
    constexpr std::array<std::uint8_t, 2> kNoChecksum{};
    std::uint32_t sum = chain32(checksum_seed_, static_cast<std::uint32_t>(group));
    sum = chain(sum, descriptor.data(), 0x1E);
    sum = chain(sum, kNoChecksum.data(), kNoChecksum.size());
    sum = chain(sum, descriptor.part(0x20, descriptor_bytes_ - 0x20).data(), descriptor_bytes_ - 0x20);
    if ((sum & 0xFFFF) != descriptor.le16(0x1E)) damaged(at_byte(structure, offset), "has a wrong checksum");
  }
  const std::uint64_t high = descriptor_bytes_ >= 64 ? descriptor.le32(0x28) : 0;
  const std::uint64_t table = high << 32 | descriptor.le32(8);
  if (!is_within(table, 1)) damaged(at_byte(structure, offset), "has its inodes beyond the device");
  return table * block_bytes_;
}

bool Ext4Volume::is_within(std::uint64_t block, std::uint64_t count) const {
  return block > first_data_block_ && block < block_count_ && count <= block_count_ - block;
}

Ext4Volume::Inode Ext4Volume::inode(std::uint64_t number) {
  const std::string structure = "inode " + std::to_string(number);
  if (number == 0 || number > inode_count_) damaged(structure, "is not there: the file system ends before it");
  const std::uint64_t table = inode_table((number - 1) / inodes_per_group_);
  const std::uint64_t place = table + (number - 1) % inodes_per_group_ * inode_bytes_;
  // All inodes of a block are read at once.
  const std::uint64_t block = place / block_bytes_ * block_bytes_;
  const Bytes raw = blocks_.read(block, block_bytes_, structure).part(place - block, inode_bytes_);
  Inode found;
  found.number = number;
  found.device_offset = place;
  found.raw.assign(raw.data(), raw.data() + raw.size());
  found.mode = raw.le16(0);
  found.flags = raw.le32(0x20);
  found.size_bytes = raw.le32(4) | std::uint64_t{raw.le32(0x6C)} << 32;
  if (found.mode == 0 || raw.le16(0x1A) == 0) damaged(at_byte(structure, place), "has a name, but holds no file");
  found.checksum_seed = chain32(chain32(checksum_seed_, static_cast<std::uint32_t>(number)), raw.le32(0x64));
  if (has_checksums_ && options_.verify_checksums) check_inode_checksum(found);
  // Older file systems keep something else in the upper half where a directory or link has none.
  if (kind_of_mode(found.mode) != FileKind::file && (incompatible_ & kLargeDirectory) == 0)
    found.size_bytes &= 0xFFFFFFFF;
  if (found.size_bytes > std::uint64_t{1} << 62) damaged(at_byte(structure, place), "says that its file has no end");
  return found;
}

void Ext4Volume::check_inode_checksum(const Inode& inode) const {
  const Bytes raw{std::span(inode.raw)};
  constexpr std::array<std::uint8_t, 2> kNoChecksum{};
  std::uint32_t sum = chain(inode.checksum_seed, raw.data(), 0x7C);
  sum = chain(sum, kNoChecksum.data(), 2);
  std::uint32_t stored = raw.le16(0x7C);
  std::uint32_t mask = 0xFFFF;
  std::size_t from = 0x7E;
  // The upper half lies in the part that an inode of 128 bytes does not have.
  if (inode_bytes_ > 128 && raw.le16(0x80) >= 4) {
    sum = chain(sum, raw.data() + from, 0x82 - from);
    sum = chain(sum, kNoChecksum.data(), 2);
    stored |= std::uint32_t{raw.le16(0x82)} << 16;
    mask = 0xFFFFFFFF;
    from = 0x84;
  }
  sum = chain(sum, raw.data() + from, raw.size() - from);
  if ((sum & mask) != stored)
    damaged(at_byte("inode " + std::to_string(inode.number), inode.device_offset), "has a wrong checksum");
}

Node Ext4Volume::node(std::uint64_t number) {
  const Inode found = inode(number);
  return {kind_of_mode(found.mode), found.size_bytes};
}

std::unique_ptr<Volume> open_ext4(DeviceReader& device, const ExtentOptions& options) {
  if (device.size_bytes() < kSuperOffset + kSuperBytes) return nullptr;
  std::array<std::byte, 2> magic;
  device.read(kSuperOffset + 0x38, magic);
  if (Bytes(magic).le16(0) != kMagic) return nullptr;
  return std::make_unique<Ext4Volume>(device, options);
}

}  // namespace flashmob::extent
