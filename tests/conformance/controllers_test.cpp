// Several controllers of one subsystem: shared namespaces hold one truth, resets stay private.
#include "conformance/namespaces_fixture.h"

namespace flashmob::conformance {
namespace {

using ControllersTest = NamespacesTest;

TEST_F(ControllersTest, SharedNamespacesHoldOneTruth) {
  const auto data = noise(4096, 5);
  ASSERT_EQ(write(kNs4096, 10, data), Status::success);
  Buffer target(host(1).door, 4096);
  EXPECT_EQ(status_of(run(target.attach(make(NvmOpcode::read, kNs4096, 10, 1), 4096), 1)), Status::success);
  EXPECT_TRUE(target.copy(4096) == data);
}

TEST_F(ControllersTest, ControllersAreResetOneByOne) {
  queue(0);
  EXPECT_EQ(touch(kNs512, 1), Status::success);
  driver(0).enable();
  EXPECT_EQ(touch(kNs512, 1), Status::success);
  EXPECT_NE(id(0), id(1));
  EXPECT_FALSE(driver(1).fatal());
}

}  // namespace
}  // namespace flashmob::conformance
