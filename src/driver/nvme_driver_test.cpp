// The driver's life cycle against a scripted device: enable, disable, shutdown, queue pairs, and what goes wrong.
#include "driver/nvme_driver.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "driver/fake_nvme.h"
#include "driver/names.h"
#include "nvme/opcode.h"

namespace flashmob::driver {
namespace {

using nvme::AdminOpcode;

std::uint8_t code(AdminOpcode opcode) { return static_cast<std::uint8_t>(opcode); }

template <class Exception, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

struct NvmeDriverTest : testing::Test {
  std::vector<std::uint8_t> opcodes() const {
    std::vector<std::uint8_t> result;
    for (const auto& sqe : device.admin_commands) result.push_back(sqe.opcode);
    return result;
  }

  FakeNvme device;
};

TEST_F(NvmeDriverTest, EnablesInTheOrderTheSpecificationGives) {
  NvmeDriver driver(device, device.waiter(), 32);
  EXPECT_TRUE(device.register_writes.empty()) << "the constructor must not touch the device";
  driver.enable();
  ASSERT_EQ(device.register_writes.size(), 5u);
  const auto& writes = device.register_writes;
  EXPECT_EQ(writes[0], (std::pair<std::uint32_t, std::uint64_t>(nvme::kRegAqa, 31u | (31u << 16))));
  EXPECT_EQ(writes[1].first, nvme::kRegAsq);
  EXPECT_EQ(writes[2].first, nvme::kRegAcq);
  EXPECT_TRUE(device.reaches(writes[1].second, 32 * 64));
  EXPECT_TRUE(device.reaches(writes[2].second, 32 * 16));
  EXPECT_EQ(writes[3], (std::pair<std::uint32_t, std::uint64_t>(nvme::kRegCc, 0x00460000)));
  EXPECT_EQ(writes[4], (std::pair<std::uint32_t, std::uint64_t>(nvme::kRegCc, 0x00460001)));
  EXPECT_FALSE(driver.fatal());
}

TEST_F(NvmeDriverTest, SelectsCommandSetsAndArbitrationThatTheDeviceOffers) {
  NvmeDriver driver(device, device.waiter());
  driver.enable(true);
  EXPECT_EQ(nvme::decode_cc(device.cc()).ams, nvme::kCcAmsRoundRobin);
  device.cap.ams = nvme::kCapAmsWeightedRoundRobin;
  device.cap.css = nvme::kCapCssNvm | nvme::kCapCssIoCommandSets;
  driver.enable(true);
  EXPECT_EQ(nvme::decode_cc(device.cc()).ams, nvme::kCcAmsWeightedRoundRobin);
  EXPECT_EQ(nvme::decode_cc(device.cc()).css, nvme::kCcCssAllSupported);
  driver.enable(false);
  EXPECT_EQ(nvme::decode_cc(device.cc()).ams, nvme::kCcAmsRoundRobin);
}

TEST_F(NvmeDriverTest, ResetsAControllerThatSomebodyLeftEnabled) {
  device.write32(nvme::kRegCc, 0x00460001);  // ready only some ticks later
  device.register_writes.clear();
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  ASSERT_FALSE(device.register_writes.empty());
  EXPECT_EQ(device.register_writes[0], (std::pair<std::uint32_t, std::uint64_t>(nvme::kRegCc, 0x00460000)));
  EXPECT_EQ(device.cc() & 1, 1u);
}

TEST_F(NvmeDriverTest, EnableTimesOutAfterCapTo) {
  device.never_ready = true;
  NvmeDriver driver(device, device.waiter());
  const std::uint64_t start_ns = device.now_ns;
  const std::string message = message_of<NvmeTimeout>([&] { driver.enable(); });
  EXPECT_EQ(message, "enable: not done within 2000 ms (CC 00460001h, CSTS 00000000h)");
  EXPECT_GE(device.now_ns - start_ns, 2'000'000'000u);
  EXPECT_LT(device.now_ns - start_ns, 2'100'000'000u);
}

// A device on the cores of a host that seldom gets them has its turn as seldom.
TEST_F(NvmeDriverTest, TimeInWhichTheHostDidNotRunIsNotTheDevices) {
  device.ready_ticks = 15;
  device.pump_ns = 30'000'000'000;
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  driver.disable();
  device.never_ready = true;
  EXPECT_THROW(driver.enable(), NvmeTimeout);
}

TEST_F(NvmeDriverTest, DisableTimesOutAndKeepsTheRingsMapped) {
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  const std::size_t mappings = device.mappings();
  device.never_disabled = true;
  EXPECT_THROW(driver.disable(), NvmeTimeout);
  EXPECT_EQ(device.mappings(), mappings) << "the device may still use them";
  device.never_disabled = false;
  driver.disable();
  EXPECT_EQ(device.mappings(), 0u);
}

TEST_F(NvmeDriverTest, AFatalStatusDuringEnableEndsTheWaitAtOnce) {
  device.fatal_on_enable = true;
  NvmeDriver driver(device, device.waiter());
  const std::uint64_t start_ns = device.now_ns;
  EXPECT_EQ(message_of<NvmeFatal>([&] { driver.enable(); }),
            "enable: the controller reports a fatal status (CC 00460001h, CSTS 00000002h)");
  EXPECT_LT(device.now_ns - start_ns, 10'000'000u);
  EXPECT_TRUE(driver.fatal());
  device.fatal_on_enable = false;
  driver.enable();  // a reset is the way out
  EXPECT_FALSE(driver.fatal());
}

TEST_F(NvmeDriverTest, AControllerThatIsGoneIsSaidToBe) {
  device.gone = true;
  {
    NvmeDriver driver(device, device.waiter());
    EXPECT_THROW(driver.enable(), NvmeFatal);
  }
  device.gone = false;
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  device.gone = true;
  EXPECT_TRUE(driver.fatal());
  EXPECT_THROW(driver.disable(), NvmeFatal);
  EXPECT_THROW(driver.shutdown(false), NvmeFatal);
}

TEST_F(NvmeDriverTest, RefusesWhatItCannotDrive) {
  NvmeDriver driver(device, device.waiter());
  const nvme::Cap good = device.cap;
  device.cap.dstrd = 1;
  EXPECT_THROW(driver.enable(), ConfigError);
  device.cap = good;
  device.cap.mpsmin = 4;
  EXPECT_THROW(driver.enable(), ConfigError);
  device.cap = good;
  device.cap.css = nvme::kCapCssAdminOnly;
  EXPECT_THROW(driver.enable(), ConfigError);
  device.cap = good;
  device.cap.mqes = 62;
  EXPECT_THROW(driver.enable(), ConfigError);
  device.cap.mqes = 63;
  driver.enable();
  EXPECT_THROW(NvmeDriver(device, device.waiter(), 1), ConfigError);
  EXPECT_THROW(NvmeDriver(device, device.waiter(), 4097), ConfigError);
}

TEST_F(NvmeDriverTest, DestructionDisablesTheDeviceAndUnmapsEverything) {
  {
    NvmeDriver driver(device, device.waiter());
    driver.enable();
    driver.create_queue_pair({.sq_entries = 16});
    std::array<std::byte, 4096> data;
    driver.identify(1, 0, data);
  }
  EXPECT_EQ(device.cc() & 1, 0u);
  EXPECT_EQ(device.mappings(), 0u);
  EXPECT_FALSE(device.transfer_failed());
}

TEST_F(NvmeDriverTest, DestructionOfADeadDeviceEnds) {
  {
    NvmeDriver driver(device, device.waiter());
    driver.enable();
    device.never_disabled = true;
  }
  EXPECT_EQ(device.mappings(), 0u);
}

TEST_F(NvmeDriverTest, CreatesQueuePairsWithTheNextFreeIdentifier) {
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  QueuePair& first = driver.create_queue_pair({.sq_entries = 256, .cq_entries = 2, .interrupts = true, .vector = 9});
  QueuePair& second = driver.create_queue_pair({.sq_entries = 2, .priority = 3});
  EXPECT_EQ(first.qid(), 1);
  EXPECT_EQ(second.qid(), 2);
  ASSERT_EQ(device.admin_commands.size(), 4u);
  const nvme::Sqe create_cq = device.admin_commands[0];
  EXPECT_EQ(create_cq.opcode, code(AdminOpcode::create_io_cq));
  EXPECT_EQ(create_cq.cdw10, 1u | (1u << 16));
  EXPECT_EQ(create_cq.cdw11, 1u | 2u | (9u << 16));
  EXPECT_TRUE(device.reaches(create_cq.prp1, 2 * 16));
  const nvme::Sqe create_sq = device.admin_commands[1];
  EXPECT_EQ(create_sq.opcode, code(AdminOpcode::create_io_sq));
  EXPECT_EQ(create_sq.cdw10, 1u | (255u << 16));
  EXPECT_EQ(create_sq.cdw11, 1u | (1u << 16));
  EXPECT_TRUE(device.reaches(create_sq.prp1, 256 * 64));
  EXPECT_EQ(device.admin_commands[2].cdw11, 1u) << "no interrupts unless asked for";
  EXPECT_EQ(device.admin_commands[3].cdw11, 1u | (3u << 1) | (2u << 16));

  driver.delete_queue_pair(first);
  EXPECT_EQ(device.admin_commands[4].opcode, code(AdminOpcode::delete_io_sq));
  EXPECT_EQ(device.admin_commands[5].opcode, code(AdminOpcode::delete_io_cq));
  EXPECT_FALSE(device.reaches(create_sq.prp1, 64));
  EXPECT_EQ(driver.create_queue_pair({}).qid(), 1);
  EXPECT_EQ(driver.create_queue_pair({}).qid(), 3);
}

TEST_F(NvmeDriverTest, QueueSizesAreCheckedAgainstMqes) {
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  EXPECT_THROW(driver.create_queue_pair({.sq_entries = 1}), ConfigError);
  EXPECT_THROW(driver.create_queue_pair({.sq_entries = 257}), ConfigError);
  EXPECT_THROW(driver.create_queue_pair({.sq_entries = 16, .cq_entries = 257}), ConfigError);
  EXPECT_TRUE(device.admin_commands.empty());
  driver.create_queue_pair({.sq_entries = 256});
}

TEST_F(NvmeDriverTest, AFailingSubmissionQueueTakesItsCompletionQueueWithIt) {
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  const std::size_t mappings = device.mappings();
  device.on_admin = [](const nvme::Sqe& sqe) {
    const bool fail = sqe.opcode == code(AdminOpcode::create_io_sq);
    return AdminResult{fail ? nvme::with_do_not_retry(nvme::Status::invalid_queue_size) : std::uint16_t{0}, 0};
  };
  EXPECT_EQ(message_of<NvmeError>([&] { driver.create_queue_pair({}); }),
            "Create I/O Submission Queue 1: Invalid Queue Size (SCT 1h, SC 02h, do not retry)");
  EXPECT_EQ(opcodes(), (std::vector<std::uint8_t>{code(AdminOpcode::create_io_cq), code(AdminOpcode::create_io_sq),
                                                  code(AdminOpcode::delete_io_cq)}));
  EXPECT_EQ(device.mappings(), mappings);
  device.on_admin = [](const nvme::Sqe&) { return AdminResult{0, 0}; };
  EXPECT_EQ(driver.create_queue_pair({}).qid(), 1);
}

TEST_F(NvmeDriverTest, APairWhoseDeletionFailsIsKept) {
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  QueuePair& pair = driver.create_queue_pair({});
  const std::size_t mappings = device.mappings();
  device.on_admin = [](const nvme::Sqe&) { return std::nullopt; };
  EXPECT_THROW(driver.delete_queue_pair(pair), NvmeTimeout);
  EXPECT_EQ(device.mappings(), mappings);
  device.on_admin = [](const nvme::Sqe&) { return AdminResult{0, 0}; };
  driver.delete_queue_pair(pair);
  EXPECT_EQ(device.mappings(), mappings - 2);
}

TEST_F(NvmeDriverTest, NormalShutdownDeletesQueuesFirst) {
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  driver.create_queue_pair({});
  driver.create_queue_pair({});
  device.admin_commands.clear();
  driver.shutdown(false);
  EXPECT_EQ(opcodes(), (std::vector<std::uint8_t>{code(AdminOpcode::delete_io_sq), code(AdminOpcode::delete_io_cq),
                                                  code(AdminOpcode::delete_io_sq), code(AdminOpcode::delete_io_cq)}));
  EXPECT_EQ(nvme::decode_cc(device.cc()).shn, nvme::kCcShnNormal);
  driver.enable();
  EXPECT_EQ(nvme::decode_cc(device.cc()).shn, nvme::kCcShnNone);
  EXPECT_EQ(driver.create_queue_pair({}).qid(), 1);
}

TEST_F(NvmeDriverTest, AbruptShutdownLosesNoTime) {
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  driver.create_queue_pair({});
  device.admin_commands.clear();
  driver.shutdown(true);
  EXPECT_TRUE(device.admin_commands.empty());
  EXPECT_EQ(nvme::decode_cc(device.cc()).shn, nvme::kCcShnAbrupt);
  EXPECT_EQ(nvme::decode_csts(device.read32(nvme::kRegCsts)).shst, nvme::kCstsShstComplete);
}

TEST_F(NvmeDriverTest, ShutdownTimesOut) {
  device.never_shut_down = true;
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  driver.shutdown_timeout_ns = 30'000'000;
  const std::uint64_t start_ns = device.now_ns;
  EXPECT_THROW(driver.shutdown(false), NvmeTimeout);
  EXPECT_LT(device.now_ns - start_ns, 31'000'000u);
}

}  // namespace
}  // namespace flashmob::driver
