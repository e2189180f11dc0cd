// vfio-user messages VFIO_USER_DMA_READ and VFIO_USER_DMA_WRITE: a client that shares no memory is served through them,
// and only harms itself by answering wrongly (docs/interop/vfio-user).
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "nvme/identify_controller.h"
#include "nvme/status.h"
#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;
using nvme::NvmOpcode;

constexpr std::uint16_t kDataTransferError = static_cast<std::uint16_t>(nvme::Status::data_transfer_error);
constexpr std::uint16_t kStatusMask = 0x7FF;  // without M and DNR

struct DmaAccessMessages : testing::Test {
  // The host with one I/O queue pair.
  TestQueue start(int vector = -1, std::uint32_t entries = 16) {
    host.attach_unshared();
    EXPECT_TRUE(host.enable());
    return host.create_queue(1, entries, vector);
  }
  std::span<std::byte> memory(std::uint64_t iova, std::size_t bytes) { return {host.memory() + iova, bytes}; }
  void fill(std::uint64_t iova, std::size_t bytes, unsigned seed) {
    for (std::size_t i = 0; i < bytes; ++i) host.memory()[iova + i] = static_cast<std::byte>(seed + i * 7 + i / 4096);
  }
  bool same(std::uint64_t a, std::uint64_t b, std::size_t bytes) {
    return std::ranges::equal(memory(a, bytes), memory(b, bytes));
  }

  TestDevice device;
  TestHost host{device.path};
};

TEST_F(DmaAccessMessages, ReadsWritesAndAdminCommands) {
  TestQueue queue = start();
  nvme::Sqe identify{};
  identify.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::identify);
  identify.prp1 = 0x100000;
  identify.cdw10 = 1;
  ASSERT_EQ(host.admin(identify), 0u);
  nvme::IdentifyController controller;
  std::memcpy(&controller, host.memory() + 0x100000, sizeof(controller));
  EXPECT_EQ(controller.vid, 0xF1A5);

  fill(0x200000, 4096, 3);
  ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::write, 8, 0x200000, 8)), 0u);
  ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 8, 0x300000, 8)), 0u);
  EXPECT_TRUE(same(0x200000, 0x300000, 4096));
  EXPECT_GT(host.dma_reads, 0u);
  EXPECT_GT(host.dma_writes, 0u);
}

TEST_F(DmaAccessMessages, TheClientsRegistersAreAsItWroteThem) {
  host.attach_unshared();
  ASSERT_TRUE(host.enable());
  EXPECT_EQ(host.read<std::uint64_t>(kRegionBar0, nvme::kRegAsq), 0u);
  EXPECT_EQ(host.read<std::uint64_t>(kRegionBar0, nvme::kRegAcq), 4096u);
  EXPECT_EQ(host.reg(nvme::kRegAcq), 4096u);
  EXPECT_EQ(host.reg(nvme::kRegAcq + 4), 0u);
}

TEST_F(DmaAccessMessages, ManyCommandsGoRoundTheRings) {
  TestQueue queue = start(-1, 7);
  for (unsigned round = 0; round < 40; ++round) {
    fill(0x200000, 512, round);
    ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::write, round, 0x200000)), 0u) << round;
    ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, round, 0x201000)), 0u) << round;
    ASSERT_TRUE(same(0x200000, 0x201000, 512)) << round;
  }
}

TEST_F(DmaAccessMessages, MoreCommandsThanBuffers) {
  TestQueue queue = start(-1, 64);
  for (std::uint16_t i = 0; i < 60; ++i) {
    fill(0x200000 + i * 4096u, 4096, i);
    host.submit(queue, TestHost::io(NvmOpcode::write, i * 8u, 0x200000 + i * 4096u, 8, i));
  }
  for (int i = 0; i < 60; ++i) ASSERT_EQ(host.complete(queue), 0u);
  for (std::uint16_t i = 0; i < 60; ++i)
    host.submit(queue, TestHost::io(NvmOpcode::read, i * 8u, 0x300000 + i * 4096u, 8, i));
  for (int i = 0; i < 60; ++i) ASSERT_EQ(host.complete(queue), 0u);
  EXPECT_TRUE(same(0x200000, 0x300000, 60 * 4096));
}

TEST_F(DmaAccessMessages, PrpListsAndUnalignedBuffers) {
  TestQueue queue = start();
  constexpr std::size_t kBytes = 128 << 10;
  fill(0x200004, kBytes, 1);
  // 33 pages, the first one cut: the list has 32 entries.
  auto* list = reinterpret_cast<std::uint64_t*>(host.memory() + 0x100000 - 64);
  // It begins in a page's last eight entries, the last of which names its continuation.
  auto* rest = reinterpret_cast<std::uint64_t*>(host.memory() + 0x110000);
  for (std::uint64_t i = 0; i < 7; ++i) list[i] = 0x201000 + i * 4096;
  list[7] = 0x110000;
  for (std::uint64_t i = 7; i < 32; ++i) rest[i - 7] = 0x201000 + i * 4096;
  nvme::Sqe write = TestHost::io(NvmOpcode::write, 0, 0x200004, kBytes / 512);
  write.prp2 = 0x100000 - 64;
  ASSERT_EQ(host.run(queue, write), 0u);
  nvme::Sqe read = TestHost::io(NvmOpcode::read, 0, 0x300000, kBytes / 512);
  for (std::uint64_t i = 0; i < 31; ++i) rest[i] = 0x301000 + i * 4096;
  read.prp2 = 0x110000;
  ASSERT_EQ(host.run(queue, read), 0u);
  EXPECT_TRUE(same(0x200004, 0x300000, kBytes));
  read.prp2 = 0x110004;
  EXPECT_NE(host.run(queue, read), 0u) << "a list that is not aligned";
  rest[5] += 8;
  read.prp2 = 0x110000;
  EXPECT_NE(host.run(queue, read), 0u) << "an entry that is not aligned";
}

TEST_F(DmaAccessMessages, ScatterGatherLists) {
  TestQueue queue = start();
  fill(0x200000, 4096, 9);
  ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::write, 0, 0x200000, 8)), 0u);
  auto* segment = reinterpret_cast<nvme::SglDescriptor*>(host.memory() + 0x100000);
  segment[0] = {.address = 0x300000, .length_bytes = 1000, .reserved = {}, .identifier = 0};
  segment[1] = {.address = 0, .length_bytes = 1000, .reserved = {}, .identifier = 0x10};
  segment[2] = {.address = 0x300000 + 2000, .length_bytes = 2096, .reserved = {}, .identifier = 0};
  nvme::Sqe read = TestHost::io(NvmOpcode::read, 0, 0, 8);
  read.flags = nvme::kFlagPsdtSglBufferMetadata;
  read.sgl1 = {.address = 0x100000, .length_bytes = 48, .reserved = {}, .identifier = 0x30};
  ASSERT_EQ(host.run(queue, read), 0u);
  std::memset(host.memory() + 0x200000 + 1000, 0, 1000);  // what went into the bucket
  EXPECT_TRUE(same(0x200000, 0x300000, 4096));
  segment[1].identifier = 0x30;
  EXPECT_NE(host.run(queue, read), 0u) << "a link that is not the last one";
}

// As of a client that shares its memory.
TEST_F(DmaAccessMessages, ScatterGatherListsThatBreakARule) {
  using nvme::SglDescriptor;
  using nvme::Status;
  TestQueue queue = start();
  auto* segment = reinterpret_cast<SglDescriptor*>(host.memory() + 0x100000);
  const SglDescriptor good{.address = 0x300000, .length_bytes = 4096, .reserved = {}, .identifier = 0};
  const auto status = [&](NvmOpcode opcode, const SglDescriptor& first, std::uint8_t kind = 0x40) {
    nvme::Sqe sqe = TestHost::io(opcode, 0, 0, 8);
    sqe.flags = kind;
    sqe.sgl1 = first;
    return static_cast<Status>(host.run(queue, sqe) & kStatusMask);
  };
  const auto read = [&](const SglDescriptor& first) { return status(NvmOpcode::read, first); };
  fill(0x300000, 8192, 1);
  std::memcpy(host.memory() + 0x200000, host.memory() + 0x300000, 8192);
  SglDescriptor bad = good;
  bad.identifier = 0x01;  // an offset, not an address
  EXPECT_EQ(read(bad), Status::sgl_descriptor_type_invalid);
  for (const std::uint32_t bytes : {4092u, 4100u}) {
    bad = good;
    bad.length_bytes = bytes;
    EXPECT_EQ(read(bad), Status::data_sgl_length_invalid);
  }
  SglDescriptor link{.address = 0x100000, .length_bytes = 32, .reserved = {}, .identifier = 0x30};
  const SglDescriptor half{.address = 0x300000, .length_bytes = 2048, .reserved = {}, .identifier = 0};
  segment[0] = segment[1] = half;
  for (const std::uint32_t bytes : {0u, 24u}) {
    bad = link;
    bad.length_bytes = bytes;
    EXPECT_EQ(read(bad), Status::invalid_sgl_segment_descriptor);
  }
  bad = link;
  bad.address += 4;
  EXPECT_EQ(read(bad), Status::invalid_sgl_segment_descriptor);
  bad = link;
  bad.identifier = 0x20;  // it leads nowhere
  EXPECT_EQ(read(bad), Status::invalid_sgl_segment_descriptor);
  bad = link;
  bad.length_bytes = 65552;
  EXPECT_EQ(read(bad), Status::invalid_number_of_sgl_descriptors);
  EXPECT_EQ(status(NvmOpcode::read, good, nvme::kFlagPsdtMask), Status::invalid_field) << "there is no such kind";
  EXPECT_TRUE(same(0x200000, 0x300000, 8192)) << "none of them was carried out";

  EXPECT_EQ(read(link), Status::success);
  segment[1].identifier = 0x10;
  EXPECT_EQ(status(NvmOpcode::write, link), Status::data_sgl_length_invalid) << "a bucket holds nothing to write";
  segment[0].length_bytes = 4096;
  EXPECT_EQ(status(NvmOpcode::write, link), Status::success);

  nvme::Sqe identify{};
  identify.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::identify);
  identify.cdw10 = 1;
  identify.flags = nvme::kFlagPsdtSglBufferMetadata;
  identify.sgl1 = good;
  std::memcpy(host.memory() + 0x300000, host.memory() + 0x200000, 8192);
  EXPECT_EQ(static_cast<Status>(host.admin(identify) & kStatusMask), Status::invalid_field);
  EXPECT_TRUE(same(0x200000, 0x300000, 8192));
}

TEST_F(DmaAccessMessages, InterruptsComeAfterTheirCompletions) {
  host.attach_unshared();
  TestEvent event;
  const int fd = event.fd.get();
  ASSERT_EQ(host.set_irqs(kIrqMsix, kIrqSetEventfd | kIrqSetTrigger, 1, 1, {&fd, 1}), 0u);
  ASSERT_TRUE(host.enable());
  TestQueue queue = host.create_queue(1, 16, 1);
  for (std::uint16_t i = 0; i < 20; ++i) {
    event.take();
    host.submit(queue, TestHost::io(NvmOpcode::read, i, 0x200000));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (event.take() == 0) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      host.answer_all();
    }
    EXPECT_EQ(queue.cq[queue.head].status_phase & 1u, queue.phase) << "told before it was there";
    ASSERT_EQ(host.complete(queue), 0u);
  }
}

TEST_F(DmaAccessMessages, MemoryThatIsSharedAfterAllIsCopied) {
  host.attach_unshared();
  const vfio::UniqueFd file(memfd_create("data", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 8192), 0);
  ASSERT_EQ(host.map_dma(0x1000000, 8192, file.get()), 0u);
  ASSERT_TRUE(host.enable());
  TestQueue queue = host.create_queue(1);
  fill(0x200000, 4096, 5);
  ASSERT_EQ(pwrite(file.get(), host.memory() + 0x200000, 4096, 0), 4096);
  ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::write, 0, 0x1000000, 8)), 0u);
  ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, 0x300000, 8)), 0u);
  EXPECT_TRUE(same(0x200000, 0x300000, 4096));
}

TEST_F(DmaAccessMessages, AClientThatTakesLittleAtOnceIsAskedInPieces) {
  ASSERT_EQ(host.negotiate(R"({"capabilities":{"max_data_xfer_size":512}})").header.error, 0u);
  ASSERT_EQ(host.map_dma(0, TestHost::kMemoryBytes, -1), 0u);
  ASSERT_TRUE(host.enable());
  TestQueue queue = host.create_queue(1);
  host.twist = [](Command, const DmaAccess& access, Header&, auto&) {
    EXPECT_LE(access.count_bytes, 512u);
    return true;
  };
  fill(0x200000, 4096, 2);
  ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::write, 0, 0x200000, 8)), 0u);
  ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, 0x300000, 8)), 0u);
  EXPECT_TRUE(same(0x200000, 0x300000, 4096));
}

TEST_F(DmaAccessMessages, DataThatCannotBeReachedFailsItsCommand) {
  TestQueue queue = start();
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::write, 0, 0x8000000)) & kStatusMask, kDataTransferError)
      << "mapped nowhere";
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, 0x8000000)) & kStatusMask, kDataTransferError);
  host.twist = [](Command, const DmaAccess& access, Header& header, std::vector<std::byte>& payload) {
    if (access.address < 0x200000) return true;
    header.flags |= kFlagError;
    header.error = EFAULT;
    payload.clear();
    return true;
  };
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::write, 0, 0x200000)) & kStatusMask, kDataTransferError)
      << "refused";
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, 0x200000)) & kStatusMask, kDataTransferError);
  host.twist = [](Command, const DmaAccess& access, Header&, std::vector<std::byte>& payload) {
    if (access.address >= 0x200000) payload[8] = std::byte{1};
    return true;
  };
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::write, 0, 0x200000)) & kStatusMask, kDataTransferError)
      << "another count";
  host.twist = {};
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::write, 0, 0x200000)), 0u);
}

TEST_F(DmaAccessMessages, ReadOnlyMemoryIsNotWritten) {
  TestQueue queue = start();
  ASSERT_EQ(host.map_dma(TestHost::kMemoryBytes, 0x10000, -1, 0, kDmaReadable), 0u);
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, TestHost::kMemoryBytes)) & kStatusMask,
            kDataTransferError);
}

TEST_F(DmaAccessMessages, QueuesComeAndGo) {
  start();
  for (int round = 0; round < 5; ++round) {
    TestQueue second = host.create_queue(2, 8);
    ASSERT_EQ(host.run(second, TestHost::io(NvmOpcode::read, 0, 0x200000)), 0u);
    nvme::Sqe create{};
    create.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::create_io_cq);
    create.prp1 = 0x100000;
    nvme::encode_create_io_cq({2, 7, true, false, 0}, create);
    EXPECT_NE(host.admin(create), 0u) << "there is such a queue";
    for (const auto opcode : {nvme::AdminOpcode::delete_io_sq, nvme::AdminOpcode::delete_io_cq}) {
      nvme::Sqe remove{};
      remove.opcode = static_cast<std::uint8_t>(opcode);
      remove.cdw10 = 2;
      ASSERT_EQ(host.admin(remove), 0u);
      EXPECT_NE(host.admin(remove), 0u) << "it is gone";
    }
  }
}

TEST_F(DmaAccessMessages, ResetsUnderLoadAndCommandsAfterwards) {
  for (int round = 0; round < 5; ++round) {
    if (round == 0) host.attach_unshared();
    ASSERT_TRUE(host.enable());
    TestQueue queue = host.create_queue(1, 16);
    for (std::uint16_t i = 0; i < 10; ++i) host.submit(queue, TestHost::io(NvmOpcode::read, i, 0x200000, 8, i));
    ASSERT_EQ(host.complete(queue), 0u);
    if (round % 2 == 0) {
      host.write<std::uint32_t>(kRegionBar0, nvme::kRegCc, 0);
      EXPECT_TRUE(host.wait_for_csts(1, 0));
    } else {
      EXPECT_EQ(host.ask(Command::device_reset).header.error, 0u);
    }
    host.answer_all();
    const unsigned writes = host.dma_writes;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    host.answer_all();
    EXPECT_EQ(host.dma_writes, writes) << "nothing is written after a reset";
  }
}

TEST_F(DmaAccessMessages, AClientThatDoesNotAnswerHoldsUpNobody) {
  TestQueue queue = start();
  host.twist = [](Command, const DmaAccess&, Header&, auto&) { return false; };
  host.submit(queue, TestHost::io(NvmOpcode::read, 0, 0x200000));
  TestHost other(device.path);
  TestQueue others = other.start();
  EXPECT_EQ(other.run(others, TestHost::io(NvmOpcode::read, 0, 0x100000)), 0u);
  EXPECT_EQ(host.reg(nvme::kRegCsts) & 1, 1u) << "its registers answer";
  host.write<std::uint32_t>(kRegionBar0, nvme::kRegCc, 0);
  EXPECT_TRUE(host.wait_for_csts(1, 0));
  host.twist = {};
  EXPECT_TRUE(host.enable()) << "and it can begin anew";
  EXPECT_NE(host.create_queue(1).entries, 0u);
}

TEST_F(DmaAccessMessages, AClientThatGoesAwayInBetweenLeavesNothing) {
  {
    TestHost gone(device.path);
    gone.attach_unshared();
    ASSERT_TRUE(gone.enable());
    TestQueue queue = gone.create_queue(1);
    gone.twist = [](Command, const DmaAccess&, Header&, auto&) { return false; };
    gone.submit(queue, TestHost::io(NvmOpcode::write, 0, 0x200000, 8));
  }
  EXPECT_TRUE(device.wait_for_controllers(0));
}

TEST_F(DmaAccessMessages, RepliesToNothingEndTheConnection) {
  start();
  const DmaAccess access{};
  ASSERT_TRUE(host.socket().send({999, static_cast<std::uint16_t>(Command::dma_read), 0, kTypeReply, 0},
                                 std::as_bytes(std::span(&access, 1))));
  EXPECT_TRUE(host.is_disconnected());
}

TEST_F(DmaAccessMessages, AClientWithMappedDoorbellsIsNotServedSo) {
  ASSERT_EQ(host.negotiate().header.error, 0u);
  host.map_doorbells();
  ASSERT_EQ(host.map_dma(0, TestHost::kMemoryBytes, -1), 0u);
  EXPECT_TRUE(host.enable(2)) << "its rings would not be noticed: a fatal status";
  EXPECT_EQ(host.reg(nvme::kRegCsts) & 1, 0u);
}

TEST_F(DmaAccessMessages, DoorbellsAreMappableOnlyWhereMemoryIsShared) {
  ASSERT_EQ(host.negotiate().header.error, 0u);
  const auto flags = [&] {
    RegionInfo info{256, 0, kRegionBar0, 0, 0, 0};
    EXPECT_TRUE(host.ask(Command::device_get_region_info, to_bytes(info)).read(info));
    return info.flags & kRegionMappable;
  };
  EXPECT_NE(flags(), 0u);
  ASSERT_EQ(host.map_dma(0x10000000, 4096, -1), 0u);
  EXPECT_EQ(flags(), 0u);
  ASSERT_EQ(host.map_dma(0, 4096, host.memory_fd()), 0u);
  EXPECT_NE(flags(), 0u) << "a machine with shared memory has firmware that is not";
}

}  // namespace
}  // namespace flashmob::transport
