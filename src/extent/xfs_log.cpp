// Whether the log holds changes that are not in place yet. It does not where its last record says that the file system
// was unmounted; everything else counts as changes.
#include "extent/xfs.h"

namespace flashmob::extent {
namespace {

constexpr std::uint32_t kRecordMagic = 0xFEEDBABE;
constexpr std::uint32_t kBasicBlock = 512;
constexpr std::uint32_t kHeaderData = 32768;  // bytes of a record that one block of header describes
constexpr std::uint64_t kMaxRecordBlocks = 1024;
constexpr std::uint8_t kUnmount = 0x20;

}  // namespace

// The first word of each 512 bytes counts how often the log has been written through, but a record's first block has it
// behind the record's name.
std::uint32_t XfsVolume::log_cycle(std::uint64_t log_block) {
  const std::uint64_t offset = place(log_start_, log_blocks_, "the XFS log") + log_block * kBasicBlock;
  const Bytes block = blocks_.read(offset, kBasicBlock, "the XFS log");
  return block.be32(0) == kRecordMagic ? block.be32(4) : block.be32(0);
}

// Where the log would be written next: the first block that is of another cycle than the first.
std::uint64_t XfsVolume::log_head() {
  const std::uint64_t blocks = std::uint64_t{log_blocks_} * (block_bytes_ / kBasicBlock);
  const std::uint32_t first = log_cycle(0);
  if (log_cycle(blocks - 1) == first) return blocks;
  std::uint64_t same = 0;
  std::uint64_t other = blocks - 1;
  while (other - same > 1) {
    const std::uint64_t middle = same + (other - same) / 2;
    (log_cycle(middle) == first ? same : other) = middle;
  }
  return other;
}

bool XfsVolume::ends_in_unmount(std::uint64_t head) {
  const std::uint64_t start = place(log_start_, log_blocks_, "the XFS log");
  const std::uint64_t blocks = std::uint64_t{log_blocks_} * (block_bytes_ / kBasicBlock);
  // The record may have begun before the log's end, and its own end lies at its beginning.
  for (std::uint64_t back = 1; back <= std::min(kMaxRecordBlocks, blocks); ++back) {
    const std::uint64_t at = (head + blocks - back) % blocks;
    const Bytes record = blocks_.read(start + at * kBasicBlock, kBasicBlock, "the XFS log");
    if (record.be32(0) != kRecordMagic) continue;
    if (record.be32(40) != 1) return false;
    const std::uint32_t version = record.be32(8);
    const std::uint64_t size = record.be32(320);
    const std::uint64_t header =
        (version & 2) != 0 ? std::max<std::uint64_t>(1, (size + kHeaderData - 1) / kHeaderData) : 1;
    // It fills the log's stripe unit, of which its one operation takes the first bytes.
    const std::uint64_t data_blocks = (std::uint64_t{record.be32(12)} + kBasicBlock - 1) / kBasicBlock;
    if ((at + header + data_blocks) % blocks != head % blocks) return false;
    const std::uint64_t data = (at + header) % blocks;
    const Bytes operation = blocks_.read(start + data * kBasicBlock, kBasicBlock, "the XFS log");
    return (operation.u8(9) & kUnmount) != 0;
  }
  return false;
}

void XfsVolume::check_log() {
  if (log_start_ == 0)
    throw ExtentError(
        "the XFS file system has its log on another device, so that nobody sees whether it is clean; mount it, and "
        "name "
        "the mounted directory");
  if (log_blocks_ == 0) damaged("the XFS super block", "has no log");
  if (!ends_in_unmount(log_head()))
    throw ExtentError(
        "the XFS log holds changes that are not in place yet: the file system is mounted, or was not unmounted; "
        "unmount it, or mount and unmount a copy");
}

}  // namespace flashmob::extent
