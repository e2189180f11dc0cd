#include "initiator/vfio_pci/iova_space.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "flashmob/error.h"

namespace flashmob::initiator {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

TEST(IovaSpace, HandsOutTheLowestWholePagesButNeverAddressZero) {
  const std::array usable{IovaRange{0, 0xFFFF}};
  IovaSpace space(usable);
  EXPECT_EQ(space.allocate(1), 0x1000u);
  EXPECT_EQ(space.allocate(4097), 0x2000u);
  EXPECT_TRUE(space.holds(0x2000, 8192));
  EXPECT_FALSE(space.holds(0x2000, 4096));
  EXPECT_EQ(space.allocate(4096), 0x4000u);
  space.release(0x2000);
  EXPECT_EQ(space.allocate(12288), 0x5000u) << "it does not fit into the gap";
  EXPECT_EQ(space.allocate(8192), 0x2000u);
}

TEST(IovaSpace, StepsOverWhatTheIommuReserves) {
  // As on a PC: the addresses of message signalled interrupts are not memory.
  const std::array usable{IovaRange{0xFEF00000, 0xFEF01FFF}, IovaRange{0xFEDFF000, 0xFEDFFFFF}};
  IovaSpace space(usable);
  EXPECT_EQ(space.allocate(8192), 0xFEF00000u);
  EXPECT_EQ(space.allocate(4096), 0xFEDFF000u);
  EXPECT_THROW(space.allocate(4096), ConfigError);
}

TEST(IovaSpace, RangesThatTouchAreOne) {
  const std::array usable{IovaRange{0x3000, 0x3FFF}, IovaRange{0x1000, 0x1FFF}, IovaRange{0x1800, 0x2FFF}};
  IovaSpace space(usable);
  EXPECT_EQ(space.allocate(0x3000), 0x1000u);
  space.release(0x1000);
  EXPECT_EQ(space.allocate(0x1000), 0x1000u);
  EXPECT_EQ(space.allocate(0x1000), 0x2000u);
  EXPECT_EQ(space.allocate(0x1000), 0x3000u);
  space.release(0x1000);
  space.release(0x3000);
  EXPECT_THROW(space.allocate(0x2000), ConfigError);
  space.release(0x2000);
  EXPECT_EQ(space.allocate(0x3000), 0x1000u);
}

TEST(IovaSpace, PartsOfPagesAreNotUsable) {
  const std::array usable{IovaRange{0x1001, 0x2FFE}, IovaRange{0x8001, 0x8FFF}, IovaRange{kMost - 10, kMost}};
  IovaSpace space(usable);
  EXPECT_THROW(space.allocate(1), ConfigError);
}

TEST(IovaSpace, GoesToTheLastAddressOfAll) {
  const std::array usable{IovaRange{kMost - 0x1FFF, kMost}};
  IovaSpace space(usable);
  EXPECT_EQ(space.allocate(0x1000), kMost - 0x1FFF);
  EXPECT_EQ(space.allocate(0x1000), kMost - 0xFFF);
  EXPECT_THROW(space.allocate(1), ConfigError);
  space.release(kMost - 0xFFF);
  space.release(kMost - 0x1FFF);
  EXPECT_EQ(space.allocate(0x2000), kMost - 0x1FFF);
  EXPECT_THROW(space.allocate(kMost), ConfigError);
  EXPECT_THROW(space.allocate(0), ConfigError);
}

TEST(IovaSpace, AnAddressThatTheCallerChoseIsTakenOnce) {
  const std::array usable{IovaRange{0x1000, 0x7FFF}};
  IovaSpace space(usable);
  EXPECT_TRUE(space.take(0x3000, 0x2000));
  EXPECT_FALSE(space.take(0x4000, 0x1000));
  EXPECT_FALSE(space.take(0x2000, 0x2000));
  EXPECT_FALSE(space.take(0x5800, 0x1000)) << "no whole page";
  EXPECT_FALSE(space.take(0x0, 0x1000));
  EXPECT_FALSE(space.take(0x7000, 0x2000));
  EXPECT_EQ(space.allocate(0x3000), 0x5000u);
  space.release(0x4000);
  EXPECT_TRUE(space.holds(0x3000, 0x2000)) << "nothing begins at 4000h";
}

}  // namespace
}  // namespace flashmob::initiator
