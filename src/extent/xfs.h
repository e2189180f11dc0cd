// XFS, version 5, from its bytes. Source: "XFS Algorithms & Data Structures" (3rd edition, with its chapters on
// self-describing metadata, reflink and big extent counts): super block, inodes, data forks (local, extents, b+tree),
// directories, symbolic links, the reference counts of shared blocks, the log's records.
// What is read and what is refused: docs/decisions/0018.
//
// A directory's names all lie in its data blocks, whichever index is above them (leaf, node, b+tree): the indexes are
// not read. Checksums (crc32c) and the places that structures say of themselves are verified of everything that is
// read.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "extent/volume.h"

namespace flashmob::extent {

class XfsVolume : public Volume {
 public:
  // Throws ExtentError where the file system is not one that can be read as it is.
  XfsVolume(DeviceReader& device, const ExtentOptions& options);

  const char* name() const override { return "xfs"; }
  std::uint64_t root() const override { return root_inode_; }
  Node node(std::uint64_t inode) override;
  void list(std::uint64_t directory, const Visit& visit) override;
  std::vector<FileExtent> map(std::uint64_t file, Range range) override;
  std::string link(std::uint64_t inode) override;

 private:
  struct Inode {
    std::uint64_t number = 0;
    std::uint64_t device_offset = 0;
    std::vector<std::byte> raw;
    std::uint16_t mode = 0;
    std::uint8_t format = 0;
    std::uint64_t size_bytes = 0;
    std::uint64_t extents = 0;  // as the inode says
    bool may_share = false;

    Bytes fork() const;
    std::string describe(const char* part) const { return "inode " + std::to_string(number) + "'s " + part; }
  };
  // Blocks of the file, by number; the end is beyond it.
  struct Blocks {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  // A part of an allocation group that several files have.
  struct Shared {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  class ForkWalk;
  class ReferenceWalk;

  void read_super_block();
  void check_features(Bytes super) const;
  void check_geometry() const;
  void check_log();
  std::uint32_t log_cycle(std::uint64_t log_block);
  std::uint64_t log_head();
  bool ends_in_unmount(std::uint64_t head);
  Inode inode(std::uint64_t number);
  // A file system's block as its byte on the device; the blocks must lie in one allocation group.
  std::uint64_t place(std::uint64_t block, std::uint64_t count, const std::string& structure) const;
  Bytes checked(std::uint64_t offset, std::size_t bytes, std::size_t checksum_at, std::size_t address_at,
                const std::string& structure);
  // What has a place among the file's blocks, shared or not, in order.
  std::vector<FileExtent> mapped(const Inode& inode, Blocks wanted);
  std::vector<FileExtent> with_sharing(const std::vector<FileExtent>& extents);
  const std::vector<Shared>& shared_of(std::uint32_t group);

  void list_short(const Inode& directory, const Visit& visit) const;
  void list_block(const Inode& directory, Bytes block, const Visit& visit) const;
  static void tell(const Inode& directory, std::string_view name, std::uint64_t inode, const Visit& visit);
  [[noreturn]] static void damaged(const std::string& structure, const std::string& what);

  BlockCache blocks_;
  const ExtentOptions options_;
  std::uint64_t device_bytes_;
  std::uint32_t block_bytes_ = 0;
  std::uint64_t block_count_ = 0;
  std::uint64_t log_start_ = 0;
  std::uint64_t root_inode_ = 0;
  std::uint32_t group_blocks_ = 0;
  std::uint32_t group_count_ = 0;
  std::uint32_t log_blocks_ = 0;
  std::uint32_t sector_bytes_ = 0;
  std::uint32_t inode_bytes_ = 0;
  std::uint8_t inode_log_ = 0;       // inodes in a block, as a power of two
  std::uint8_t group_log_ = 0;       // blocks in a group, rounded up to a power of two
  std::uint8_t directory_log_ = 0;   // blocks in a directory's block, as a power of two
  std::uint32_t read_only_compatible_ = 0;
  std::uint32_t incompatible_ = 0;
  std::map<std::uint32_t, std::vector<Shared>> shared_;  // by allocation group, read when first asked for
};

// Whether the four bytes there are the crc32c of all the others.
bool has_checksum(Bytes bytes, std::size_t at);

}  // namespace flashmob::extent
