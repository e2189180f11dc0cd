// Controller shutdown (Base 2.0c, 3.6): normal, abrupt, and the way back.
#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

class ShutdownTest : public DeviceTest {};

TEST_F(ShutdownTest, NormalShutdownCompletes) {
  queue();
  EXPECT_EQ(csts().shst, nvme::kCstsShstNormal);
  driver().shutdown(false);
  EXPECT_EQ(csts().shst, nvme::kCstsShstComplete);
  EXPECT_FALSE(csts().cfs);
}

TEST_F(ShutdownTest, AbruptShutdownWithCommandsInFlight) {
  QueuePair& pair = queue();
  Buffer data = buffer(4096);
  for (std::uint16_t i = 0; i < 20; ++i) {
    Sqe sqe = data.attach(make(NvmOpcode::write, kNs4096, i, 1), 4096);
    sqe.cid = i;
    pair.submit() = sqe;
  }
  pair.ring_sq();
  device.pump_for(2'000);
  driver().shutdown(true);
  EXPECT_EQ(csts().shst, nvme::kCstsShstComplete);
}

TEST_F(ShutdownTest, AResetBringsTheControllerBack) {
  const auto data = noise(512, 1);
  ASSERT_EQ(write(kNs512, 9, data), Status::success);
  driver().shutdown(false);
  driver().enable();
  EXPECT_EQ(csts().shst, nvme::kCstsShstNormal);
  EXPECT_TRUE(csts().rdy);
  QueuePair& pair = driver().create_queue_pair({});
  Buffer target = buffer(512);
  pair.submit() = target.attach(make(NvmOpcode::read, kNs512, 9, 1), 512);
  pair.ring_sq();
  ASSERT_EQ(wait(pair, 1).size(), 1u);
  EXPECT_TRUE(target.copy(512) == data);
}

TEST_F(ShutdownTest, ShutdownIsCountedTruly) {
  const auto unsafe_shutdowns = [&] {
    return log_page<nvme::SmartHealth>(nvme::LogPage::smart_health).unsafe_shutdowns.low;
  };
  const std::uint64_t before = unsafe_shutdowns();
  driver().shutdown(false);
  driver().enable();
  EXPECT_EQ(unsafe_shutdowns(), before);
}

class ShutdownWhileDisabledTest : public UntouchedDeviceTest {};

TEST_F(ShutdownWhileDisabledTest, AControllerThatWasNeverEnabledShutsDownToo) {
  write32(nvme::kRegCc, nvme::encode_cc({.shn = nvme::kCcShnNormal}));
  EXPECT_TRUE(device.pump_until([&] { return csts().shst == nvme::kCstsShstComplete; }));
}

}  // namespace
}  // namespace flashmob::conformance
