// What the tests of commands that change blocks without data share: such commands, and reads to look at their effect.
#pragma once

#include "conformance/device_fixture.h"
#include "nvme/dataset.h"
#include "nvme/io_command.h"

namespace flashmob::conformance {

inline constexpr std::uint64_t kBlocks512 = kNsBytes / 512;

class MappingTest : public DeviceTest {
 protected:
  Status on_blocks(NvmOpcode opcode, std::uint64_t lba, std::uint32_t blocks, std::uint32_t flags = 0) {
    Sqe sqe = make(opcode, kNs512, lba, blocks);
    sqe.cdw12 |= flags;
    return io(sqe);
  }
  Status read_status(std::uint64_t lba, std::uint32_t blocks) {
    Buffer target = buffer(std::max<std::size_t>(blocks * 512, 512));
    return io(target.attach(make(NvmOpcode::read, kNs512, lba, blocks), blocks * 512));
  }
  Status deallocate(const std::vector<nvme::DatasetRange>& ranges, std::uint32_t attributes = nvme::kDatasetDeallocate,
                    std::uint32_t nsid = kNs512) {
    Buffer list = buffer(4096);
    list.store(std::as_bytes(std::span(ranges)));
    Sqe sqe = list.attach(make(NvmOpcode::dataset_management, nsid), ranges.size() * sizeof ranges[0]);
    sqe.cdw10 = static_cast<std::uint32_t>(ranges.size() - 1);
    sqe.cdw11 = attributes;
    return io(sqe);
  }
  const std::vector<std::byte> data_ = noise(16 * 512, 1);
  std::vector<std::byte> with_zeroes(std::size_t first, std::size_t count) const {
    auto copy = data_;
    std::fill_n(copy.begin() + static_cast<std::ptrdiff_t>(first * 512), count * 512, std::byte{0});
    return copy;
  }
};

}  // namespace flashmob::conformance
