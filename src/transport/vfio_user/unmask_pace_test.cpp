#include "transport/vfio_user/unmask_pace.h"

#include <gtest/gtest.h>

namespace flashmob::transport {
namespace {

TEST(UnmaskPace, SoManyInEachWindow) {
  UnmaskPace pace;
  UnmaskPace::Time now = std::chrono::steady_clock::now();
  for (int round = 0; round < 3; ++round) {
    unsigned gone = 0;
    for (unsigned i = 0; i < 4 * UnmaskPace::kMost; ++i) gone += pace.may_go(now) ? 1 : 0;
    EXPECT_EQ(gone, UnmaskPace::kMost);
    now += UnmaskPace::kWindow;
  }
  for (unsigned i = 0; i < 1000; ++i) {
    EXPECT_TRUE(pace.may_go(now)) << "a handler every 50 us";
    now += std::chrono::microseconds(50);
  }
}

}  // namespace
}  // namespace flashmob::transport
