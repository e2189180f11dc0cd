// ext4 (and ext2, ext3) from its bytes. Source: the kernel's "ext4 Data Structures and Algorithms"
// (Documentation/filesystems/ext4): super block, group descriptors, inodes, extent trees, block maps, inline data,
// directories, checksums. What is read and what is refused: docs/decisions/0018.
//
// Directories are read block by block, also those that have a hash tree: its nodes look like blocks without names.
// Checksums (crc32c, feature metadata_csum) are verified of everything that is read.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "extent/volume.h"

namespace flashmob::extent {

class Ext4Volume : public Volume {
 public:
  // Throws ExtentError where the file system is not one that can be read as it is.
  Ext4Volume(DeviceReader& device, const ExtentOptions& options);

  const char* name() const override { return "ext4"; }
  std::uint64_t root() const override { return 2; }
  Node node(std::uint64_t inode) override;
  void list(std::uint64_t directory, const Visit& visit) override;
  std::vector<FileExtent> map(std::uint64_t file, Range range) override;
  std::string link(std::uint64_t inode) override;

 private:
  struct Inode {
    std::uint64_t number = 0;
    std::uint64_t device_offset = 0;
    std::vector<std::byte> raw;
    std::uint32_t checksum_seed = 0;
    std::uint32_t flags = 0;
    std::uint16_t mode = 0;
    std::uint64_t size_bytes = 0;

    bool has(std::uint32_t flag) const { return (flags & flag) != 0; }
    std::string describe(const char* part) const { return "inode " + std::to_string(number) + "'s " + part; }
  };
  // Blocks of the file, by number; the end is beyond it.
  struct Blocks {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  class ExtentWalk;
  class MapWalk;

  void read_super_block();
  void check_features(std::uint32_t incompatible);
  void check_geometry();
  bool has_super_block(std::uint64_t group) const;
  std::uint64_t descriptor_offset(std::uint64_t group) const;
  std::uint64_t inode_table(std::uint64_t group);
  Inode inode(std::uint64_t number);
  void check_inode_checksum(const Inode& inode) const;
  // As the format continues a crc32c: from a seed, without its last inversion.
  static std::uint32_t chain(std::uint32_t seed, const void* data, std::size_t bytes);
  static std::uint32_t chain32(std::uint32_t seed, std::uint32_t value);
  bool is_within(std::uint64_t block, std::uint64_t count) const;

  // What is inline: the inode's 60 bytes and the value of its attribute system.data, as they lie on the device.
  std::vector<FileExtent> inline_parts(const Inode& inode) const;
  std::vector<FileExtent> mapped(const Inode& inode, Range range);
  std::string contents(const Inode& inode, std::uint64_t bytes);

  void list_block(const Inode& directory, std::uint64_t file_block, Bytes block, const Visit& visit) const;
  void check_directory_block(const Inode& directory, std::uint64_t file_block, Bytes block) const;
  void list_entries(const Inode& directory, Bytes entries, const Visit& visit) const;
  [[noreturn]] static void damaged(const std::string& structure, const std::string& what);

  BlockCache blocks_;
  const ExtentOptions options_;
  std::uint64_t device_bytes_;
  std::uint32_t block_bytes_ = 0;
  std::uint64_t block_count_ = 0;
  std::uint32_t first_data_block_ = 0;
  std::uint32_t blocks_per_group_ = 0;
  std::uint32_t inodes_per_group_ = 0;
  std::uint32_t inode_count_ = 0;
  std::uint32_t inode_bytes_ = 0;
  std::uint32_t descriptor_bytes_ = 0;
  std::uint64_t group_count_ = 0;
  std::uint32_t first_meta_group_ = 0;
  std::uint32_t backup_groups_[2] = {};
  std::uint32_t compatible_ = 0;
  std::uint32_t incompatible_ = 0;
  std::uint32_t read_only_compatible_ = 0;
  bool has_checksums_ = false;
  std::uint32_t checksum_seed_ = 0;
};

// Of inodes.
inline constexpr std::uint32_t kExt4Encrypted = 0x800;
inline constexpr std::uint32_t kExt4HashTree = 0x1000;
inline constexpr std::uint32_t kExt4Extents = 0x80000;
inline constexpr std::uint32_t kExt4InlineData = 0x10000000;
// Where an inode has its 60 bytes for extents, block numbers or data.
inline constexpr std::uint32_t kExt4BlockArea = 0x28;
inline constexpr std::uint32_t kExt4BlockAreaBytes = 60;

}  // namespace flashmob::extent
