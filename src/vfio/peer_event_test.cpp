#include "vfio/peer_event.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "vfio/unique_fd.h"

namespace flashmob::vfio {
namespace {

TEST(PeerEvent, SignalsAreCountedAndTaken) {
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));  // one that blocks
  std::uint64_t count = 7;
  EXPECT_FALSE(take_event(event.get(), count));
  for (int i = 0; i < 200; ++i) signal_event(event.get());
  EXPECT_TRUE(take_event(event.get(), count));
  EXPECT_EQ(count, 200u);
  EXPECT_FALSE(take_event(event.get(), count));
}

TEST(PeerEvent, AFullCounterIsNotWaitedFor) {
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  ASSERT_EQ(eventfd_write(event.get(), UINT64_MAX - 1), 0);
  signal_event(event.get());
  std::uint64_t count = 0;
  EXPECT_TRUE(take_event(event.get(), count));
  EXPECT_GE(count, UINT64_MAX - 1);
}

}  // namespace
}  // namespace flashmob::vfio
