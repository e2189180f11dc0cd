// vfio-user message VFIO_USER_DMA_MAP: legal, boundary and illegal forms (docs/interop/vfio-user).
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

struct DmaMapMessage : testing::Test {
  DmaMapMessage() { EXPECT_EQ(host.negotiate().header.error, 0u); }
  TestDevice device;
  TestHost host{device.path};
};

TEST_F(DmaMapMessage, FilesAreSharedAndCounted) {
  EXPECT_EQ(host.map_dma(0, 8192, host.memory_fd()), 0u);
  EXPECT_EQ(host.map_dma(std::uint64_t{1} << 62, 4096, host.memory_fd(), 8192), 0u);
  EXPECT_EQ(host.map_dma(0x10000, 4096, host.memory_fd(), 0, kDmaReadable), 0u);
  EXPECT_EQ(host.map_dma(0x20000, 1 << 20, -1), 0u) << "memory without a descriptor is taken note of";
  // The list of clients is renewed after each round of messages.
  std::vector<VfioUserClient> clients;
  for (int i = 0; i < 1000 && (clients.empty() || clients[0].unshared_bytes == 0); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    clients = device.server->clients();
  }
  ASSERT_EQ(clients.size(), 1u);
  EXPECT_EQ(clients[0].shared_bytes, 16384u);
  EXPECT_EQ(clients[0].unshared_bytes, 1u << 20);
}

TEST_F(DmaMapMessage, OverlapsAreRefused) {
  ASSERT_EQ(host.map_dma(0x10000, 0x4000, host.memory_fd()), 0u);
  for (const auto& [iova, bytes] :
       {std::pair{0x10000, 0x4000}, {0xF000, 0x2000}, {0x13000, 0x2000}, {0x11000, 0x1000}, {0x8000, 0x10000}})
    EXPECT_EQ(host.map_dma(static_cast<std::uint64_t>(iova), static_cast<std::uint64_t>(bytes), host.memory_fd()),
              std::uint32_t{EEXIST});
  EXPECT_EQ(host.map_dma(0x11000, 0x1000, -1), std::uint32_t{EEXIST});
  EXPECT_EQ(host.map_dma(0xF000, 0x1000, host.memory_fd()), 0u) << "right before";
  EXPECT_EQ(host.map_dma(0x14000, 0x1000, host.memory_fd()), 0u) << "right after";
}

TEST_F(DmaMapMessage, RangesMustLieWithinTheFile) {
  EXPECT_EQ(host.map_dma(0, TestHost::kMemoryBytes, host.memory_fd()), 0u);
  EXPECT_EQ(host.map_dma(std::uint64_t{1} << 32, 4096, host.memory_fd(), 2 * TestHost::kMemoryBytes),
            std::uint32_t{EINVAL});
  EXPECT_EQ(host.map_dma(std::uint64_t{1} << 32, 4096, host.memory_fd(), TestHost::kMemoryBytes),
            std::uint32_t{EINVAL});
  EXPECT_EQ(host.map_dma(std::uint64_t{1} << 32, 4096, host.memory_fd(), UINT64_MAX - 4095), std::uint32_t{EINVAL});
}

TEST_F(DmaMapMessage, EmptyWrappingAndUnalignedRangesAreRefused) {
  EXPECT_EQ(host.map_dma(0, 0, host.memory_fd()), std::uint32_t{EINVAL});
  EXPECT_EQ(host.map_dma(UINT64_MAX - 4095, 8192, host.memory_fd()), std::uint32_t{EINVAL});
  EXPECT_EQ(host.map_dma(512, 4096, host.memory_fd()), std::uint32_t{EINVAL});
  EXPECT_EQ(host.map_dma(0, 4097, host.memory_fd()), std::uint32_t{EINVAL});
  EXPECT_EQ(host.map_dma(0, 4096, host.memory_fd(), 100), std::uint32_t{EINVAL});
}

// SPDK without memory of one file: neighbouring pages of several files, announced with the first one's descriptor.
TEST_F(DmaMapMessage, WhatTheFileDoesNotHoldIsOutOfReach) {
  constexpr std::uint64_t kIova = 0x10000000;
  TestQueue queue;
  ASSERT_EQ(host.map_dma(0, TestHost::kMemoryBytes, host.memory_fd()), 0u);
  host.map_doorbells();
  ASSERT_TRUE(host.enable());
  queue = host.create_queue(1);
  const UniqueFd file(memfd_create("first", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 8192), 0);
  EXPECT_EQ(host.map_dma(kIova, 16384, file.get()), 0u);
  EXPECT_EQ(host.run(queue, TestHost::io(nvme::NvmOpcode::read, 0, kIova + 4096, 8)), 0u);
  const std::uint16_t status = host.run(queue, TestHost::io(nvme::NvmOpcode::read, 0, kIova + 8192, 8));
  EXPECT_EQ(status & 0x07FF, 0x0004) << "Data Transfer Error";
  EXPECT_EQ(host.map_dma(kIova + 8192, 4096, file.get()), std::uint32_t{EEXIST}) << "it is one region";
  EXPECT_EQ(host.unmap_dma(kIova, 16384), 0u);
  EXPECT_EQ(host.map_dma(kIova, 16384, file.get(), 8192), std::uint32_t{EINVAL}) << "it holds nothing of that";
}

TEST_F(DmaMapMessage, OnlyRegularFilesAreMapped) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const UniqueFd read_end(pipes[0]), write_end(pipes[1]);
  const TestEvent event;
  const UniqueFd zero(open("/dev/zero", O_RDWR | O_CLOEXEC));
  for (const int fd : {read_end.get(), event.fd.get(), zero.get(), host.socket().fd()})
    EXPECT_NE(host.map_dma(0, 4096, fd), 0u);
}

TEST_F(DmaMapMessage, AReadOnlyDescriptorGivesReadOnlyMemory) {
  const std::string path = testing::TempDir() + "fm-read-only-" + std::to_string(getpid());
  const UniqueFd writable(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const UniqueFd read_only(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  unlink(path.c_str());
  ASSERT_EQ(ftruncate(writable.get(), 4096), 0);
  EXPECT_EQ(host.map_dma(0, 4096, read_only.get()), std::uint32_t{EACCES});
  EXPECT_EQ(host.map_dma(0, 4096, read_only.get(), 0, kDmaReadable), 0u);
}

TEST_F(DmaMapMessage, FormsThatDoNotExistAreRefused) {
  const int fd = host.memory_fd();
  const int two[2] = {fd, fd};
  const DmaMap good{sizeof(DmaMap), 3, 0, 0, 4096};
  EXPECT_EQ(host.error_of(Command::dma_map, good, two), std::uint32_t{EINVAL});
  for (const std::uint32_t flags : {0u, kDmaWritable, 4u, 0xFFFFFFFFu})
    EXPECT_EQ(host.map_dma(0, 4096, fd, 0, flags), std::uint32_t{EINVAL}) << flags;
  DmaMap small = good;
  small.argsz = 31;
  EXPECT_EQ(host.error_of(Command::dma_map, small, {&fd, 1}), std::uint32_t{EINVAL});
  EXPECT_EQ(host.error_of(Command::dma_map, std::uint64_t{0}, {&fd, 1}), std::uint32_t{EINVAL}) << "truncated";
  EXPECT_EQ(host.error_of(Command::dma_map, good, {&fd, 1}), 0u);
}

TEST_F(DmaMapMessage, MoreThanTheLimitIsRefused) {
  for (std::uint64_t i = 0; i < 16384; ++i)
    host.post(Command::dma_map, to_bytes(DmaMap{sizeof(DmaMap), 3, 0, i * 8192, 4096}), {}, kFlagNoReply);
  EXPECT_EQ(host.map_dma(std::uint64_t{1} << 40, 4096, -1), std::uint32_t{ENOSPC});
  EXPECT_EQ(host.unmap_dma(0, 4096), 0u);
  EXPECT_EQ(host.map_dma(std::uint64_t{1} << 40, 4096, -1), 0u);
}

}  // namespace
}  // namespace flashmob::transport
