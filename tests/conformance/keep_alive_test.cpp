// Keep Alive (Base 2.0c, 5.18 and 3.9): a host that falls silent loses its controller.
#include "conformance/device_fixture.h"
#include "nvme/features.h"

namespace flashmob::conformance {
namespace {

class KeepAliveTest : public DeviceTest {};

TEST_F(KeepAliveTest, AHostThatFallsSilentIsGivenUp) {
  driver().set_feature(static_cast<std::uint8_t>(nvme::Feature::keep_alive_timer), 500);
  for (int i = 0; i < 5; ++i) {
    device.pump_for(400'000'000);
    EXPECT_EQ(admin(make(AdminOpcode::keep_alive)), Status::success);
  }
  EXPECT_FALSE(driver().fatal());
  device.pump_for(5'000'000'000);
  EXPECT_TRUE(driver().fatal());
  driver().enable();
  device.pump_for(5'000'000'000);
  EXPECT_FALSE(driver().fatal()) << "the timer is off after a reset";
}

}  // namespace
}  // namespace flashmob::conformance
