// vfio-user message VFIO_USER_DMA_UNMAP: legal, boundary and illegal forms (docs/interop/vfio-user).
#include <gtest/gtest.h>

#include <cerrno>

#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

struct DmaUnmapMessage : testing::Test {
  DmaUnmapMessage() {
    EXPECT_EQ(host.negotiate().header.error, 0u);
    EXPECT_EQ(host.map_dma(0x10000, 0x2000, host.memory_fd()), 0u);
    EXPECT_EQ(host.map_dma(0x20000, 0x1000, -1), 0u);
  }
  TestDevice device;
  TestHost host{device.path};
};

TEST_F(DmaUnmapMessage, TheReplyRepeatsTheRequest) {
  const DmaUnmap unmap{sizeof(unmap), 0, 0x10000, 0x2000};
  const Message reply = host.ask(Command::dma_unmap, to_bytes(unmap));
  DmaUnmap got{};
  ASSERT_TRUE(reply.read(got));
  EXPECT_EQ(reply.payload.size(), sizeof(got));
  EXPECT_EQ(got.address, unmap.address);
  EXPECT_EQ(got.size_bytes, unmap.size_bytes);
  EXPECT_EQ(host.unmap_dma(0x10000, 0x2000), std::uint32_t{ENOENT}) << "it is gone";
  EXPECT_EQ(host.unmap_dma(0x20000, 0x1000), 0u);
  EXPECT_EQ(host.map_dma(0x10000, 0x2000, host.memory_fd()), 0u) << "it may come back";
}

TEST_F(DmaUnmapMessage, TheRangeMustBeOneThatWasMapped) {
  for (const auto& [iova, bytes] : {std::pair{0x10000u, 0x1000u},
                                    {0x11000u, 0x1000u},
                                    {0x10000u, 0x3000u},
                                    {0u, 0x1000u},
                                    {0x10000u, 0u},
                                    {0xF000u, 0x4000u}})
    EXPECT_EQ(host.unmap_dma(iova, bytes), std::uint32_t{ENOENT}) << iova;
  EXPECT_EQ(host.unmap_dma(UINT64_MAX, UINT64_MAX), std::uint32_t{ENOENT});
}

TEST_F(DmaUnmapMessage, AllAtOnce) {
  EXPECT_EQ(host.unmap_dma(0x10000, 0, kUnmapAll), std::uint32_t{EINVAL}) << "all of it has no address";
  EXPECT_EQ(host.unmap_dma(0, 0, kUnmapAll), 0u);
  EXPECT_EQ(host.unmap_dma(0x10000, 0x2000), std::uint32_t{ENOENT});
  EXPECT_EQ(host.unmap_dma(0, 0, kUnmapAll), 0u) << "nothing is left, which is no mistake";
}

TEST_F(DmaUnmapMessage, FormsThatDoNotExistAreRefused) {
  EXPECT_EQ(host.unmap_dma(0x10000, 0x2000, kUnmapGetDirtyBitmap), std::uint32_t{EOPNOTSUPP});
  EXPECT_EQ(host.unmap_dma(0x10000, 0x2000, 1u << 31), std::uint32_t{EOPNOTSUPP});
  EXPECT_EQ(host.error_of(Command::dma_unmap, DmaUnmap{23, 0, 0x10000, 0x2000}), std::uint32_t{EINVAL});
  EXPECT_EQ(host.error_of(Command::dma_unmap, std::uint32_t{24}), std::uint32_t{EINVAL});
  EXPECT_EQ(host.unmap_dma(0x10000, 0x2000), 0u) << "none of them unmapped anything";
}

}  // namespace
}  // namespace flashmob::transport
