// Enabling, disabling and resetting a controller (Base 2.0c, 3.5 and 3.7.2).
#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

using nvme::kRegCc, nvme::kRegCsts;

class EnableTest : public UntouchedDeviceTest {
 protected:
  // Admin queues in `ring`, sizes 0's based, and CC as given.
  void enable_with(std::uint64_t asq, std::uint64_t acq, nvme::Aqa aqa, nvme::Cc cc) {
    write32(nvme::kRegAqa, nvme::encode_aqa(aqa));
    host().door.write64(nvme::kRegAsq, asq);
    host().door.write64(nvme::kRegAcq, acq);
    cc.en = true;
    write32(kRegCc, nvme::encode_cc(cc));
    device.pump_for(10'000'000);
  }
  static constexpr nvme::Cc kGood{.iosqes = 6, .iocqes = 4};
};

TEST_F(EnableTest, BecomesReadyOnlyAfterEnable) {
  device.pump_for(1'000'000);
  EXPECT_FALSE(csts().rdy);
  driver().enable();
  EXPECT_TRUE(csts().rdy);
  EXPECT_FALSE(driver().fatal());
}

TEST_F(EnableTest, AdminRingsOutsideMappedMemoryAreFatal) {
  enable_with(0x1000, 0x2000, {31, 31}, kGood);
  EXPECT_TRUE(csts().cfs);
  EXPECT_FALSE(csts().rdy);
  driver().enable();  // a reset with good rings is the way out
  EXPECT_TRUE(csts().rdy);
  EXPECT_FALSE(csts().cfs);
}

TEST_F(EnableTest, ARingThatLeavesItsMappingIsFatal) {
  DmaMemory rings(host().door, 8192);
  // The last page: 64 SQEs of 64 bytes fill it exactly, 65 do not fit.
  const LonelyPage page(host(), rings.data() + rings.size() - 4096);
  const std::uint64_t last_page = page.iova();
  enable_with(last_page, rings.iova(), {63, 15}, kGood);
  EXPECT_TRUE(csts().rdy);
  driver().disable();
  enable_with(last_page, rings.iova(), {64, 15}, kGood);
  EXPECT_TRUE(csts().cfs);
}

TEST_F(EnableTest, UnsupportedConfigurationsAreFatal) {
  DmaMemory rings(host().door, 8192);
  const auto attempt = [&](nvme::Cc cc, nvme::Aqa aqa = {15, 15}) {
    enable_with(rings.iova(), rings.iova() + 4096, aqa, cc);
    const bool fatal = csts().cfs;
    EXPECT_NE(fatal, csts().rdy);
    driver().disable();
    return fatal;
  };
  EXPECT_FALSE(attempt(kGood));
  EXPECT_TRUE(attempt({.mps = 15, .iosqes = 6, .iocqes = 4})) << "a page size beyond CAP.MPSMAX";
  EXPECT_TRUE(attempt({.css = 3, .iosqes = 6, .iocqes = 4})) << "a reserved command set selection";
  EXPECT_TRUE(attempt({.ams = 3, .iosqes = 6, .iocqes = 4})) << "a reserved arbitration mechanism";
  // An admin queue of one entry is no queue: ASQS and ACQS have a minimum of one, 0's based (3.1.3.8).
  EXPECT_TRUE(attempt(kGood, {0, 15}));
  EXPECT_TRUE(attempt(kGood, {15, 0}));
  EXPECT_FALSE(attempt(kGood, {1, 1}));
}

class ResetTest : public DeviceTest {};

TEST_F(ResetTest, DisableForgetsQueuesAndCommands) {
  QueuePair& pair = queue();
  Buffer data = buffer(512);
  data.fill(std::byte{0xAA});
  pair.submit() = data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
  pair.ring_sq();
  device.pump_until([&] { return device.engine().outstanding() != 0; }, 10'000);
  ASSERT_NE(device.engine().outstanding(), 0u);

  // The ring stays this test's, to see that nothing is written after the reset.
  write32(kRegCc, read32(kRegCc) & ~1u);
  ASSERT_TRUE(device.pump_until([&] { return !csts().rdy; }));
  int completions = 0;
  device.pump_for(100'000'000);
  pair.reap(64, [&](const Cqe&) { ++completions; });
  EXPECT_EQ(completions, 0);
  EXPECT_EQ(device.engine().outstanding(), 0u);
}

TEST_F(ResetTest, QueuesMustBeMadeAgain) {
  queue();
  driver().disable();
  driver().enable();
  EXPECT_EQ(delete_sq(1), Status::invalid_queue_identifier);
  EXPECT_EQ(delete_cq(1), Status::invalid_queue_identifier);
  QueuePair& pair = driver().create_queue_pair({.sq_entries = 16});
  Buffer data = buffer(512);
  Sqe sqe = data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
  sqe.cid = 5;
  pair.submit() = sqe;
  pair.ring_sq();
  EXPECT_EQ(wait(pair, 1).size(), 1u);
}

DeviceConfig busy_device() {
  DeviceConfig config = suite::small_device();
  config.timing.instances = 1;
  config.timing.read_iops = 100;  // 10 ms each
  config.timing.read_latency_ns = 10'000'000;
  return config;
}

class BusyResetTest : public DeviceTest {
 protected:
  BusyResetTest() : DeviceTest(busy_device()) {}
};

// Work that was dropped with a reset occupies nothing afterwards.
TEST_F(BusyResetTest, TheModelForgetsItsLoad) {
  Buffer data = buffer(512);
  for (const unsigned reads : {32u, 1u}) {
    QueuePair& pair = driver().create_queue_pair({.sq_entries = 64});
    for (unsigned i = 0; i < reads; ++i) {
      Sqe sqe = data.attach(make(NvmOpcode::read, kNs512, i, 1), 512);
      sqe.cid = static_cast<std::uint16_t>(i);
      pair.submit() = sqe;
    }
    pair.ring_sq();
    const std::uint64_t rung_ns = device.now_ns();
    ASSERT_TRUE(device.pump_until([&] { return pair.reap(1, [](const Cqe&) {}) != 0; }));
    EXPECT_LT(device.now_ns() - rung_ns, 15'000'000u) << reads;
    driver().enable();  // resets the controller
  }
}

TEST_F(ResetTest, StaleDoorbellsDoNotHauntTheNextLife) {
  QueuePair& pair = queue();
  for (int i = 0; i < 5; ++i) {
    Buffer data = buffer(512);
    EXPECT_EQ(io(data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512)), Status::success);
  }
  EXPECT_EQ(host().door.doorbells()[2 * pair.qid()], 5u);
  driver().enable();
  QueuePair& fresh = driver().create_queue_pair({.sq_entries = 64});
  device.pump_for(10'000'000);
  EXPECT_TRUE(wait(fresh, 1).empty()) << "commands of the former life were fetched again";
}

TEST_F(ResetTest, DataSurvivesAReset) {
  const auto data = noise(4096, 1);
  ASSERT_EQ(write(kNs4096, 7, data), Status::success);
  driver().disable();
  driver().enable();
  Buffer target = buffer(4096);
  QueuePair& pair = driver().create_queue_pair({});
  pair.submit() = target.attach(make(NvmOpcode::read, kNs4096, 7, 1), 4096);
  pair.ring_sq();
  ASSERT_EQ(wait(pair, 1).size(), 1u);
  EXPECT_TRUE(target.copy(4096) == data);
}

TEST_F(ResetTest, FeaturesReturnToTheirDefaults) {
  constexpr std::uint8_t kErrorRecovery = 0x05;
  const std::uint32_t before = driver().get_feature(kErrorRecovery, 0, 0, kNs512);
  driver().set_feature(kErrorRecovery, 0x1234, false, kNs512);
  EXPECT_EQ(driver().get_feature(kErrorRecovery, 0, 0, kNs512), 0x1234u);
  driver().disable();
  driver().enable();
  EXPECT_EQ(driver().get_feature(kErrorRecovery, 0, 0, kNs512), before);
}

TEST_F(ResetTest, AdminQueueRegistersSurviveAControllerReset) {
  const std::uint32_t aqa = read32(nvme::kRegAqa);
  const std::uint64_t asq = host().door.read64(nvme::kRegAsq);
  write32(kRegCc, read32(kRegCc) & ~1u);
  ASSERT_TRUE(device.pump_until([&] { return !csts().rdy; }));
  // 3.7.2: AQA, ASQ and ACQ keep their values when CC.EN is cleared.
  EXPECT_EQ(read32(nvme::kRegAqa), aqa);
  EXPECT_EQ(host().door.read64(nvme::kRegAsq), asq);
}

TEST_F(ResetTest, FatalStatusNeedsAReset) {
  host().controller.set_fatal();
  EXPECT_TRUE(device.pump_until([&] { return csts().cfs; }, 10'000'000));
  driver().admin_timeout_ns = 200'000'000;
  EXPECT_THROW(driver().get_feature(1), driver::NvmeFatal);
  driver().enable();
  EXPECT_FALSE(csts().cfs);
  driver().get_feature(1);
}

TEST_F(ResetTest, ManyResetsInARow) {
  for (int i = 0; i < 50; ++i) {
    QueuePair& pair = driver().create_queue_pair({.sq_entries = 8});
    Buffer data = buffer(4096);
    for (int k = 0; k < 5; ++k) pair.submit() = data.attach(make(NvmOpcode::read, kNs4096, 0, 1), 4096);
    pair.ring_sq();
    device.pump_for(static_cast<std::uint64_t>(i) * 400);  // resets hit every stage of the commands' lives
    driver().disable();
    driver().enable();
  }
  EXPECT_EQ(device.engine().outstanding(), 0u);
}

}  // namespace
}  // namespace flashmob::conformance
