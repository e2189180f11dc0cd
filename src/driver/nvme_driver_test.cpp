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

TEST_F(NvmeDriverTest, DoorbellsLieAsFarApartAsTheControllerSays) {
  device.cap.dstrd = 2;
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  QueuePair& pair = driver.create_queue_pair({.sq_entries = 4});
  EXPECT_EQ(pair.sq_doorbell(), device.doorbells() + 8);
  EXPECT_EQ(pair.cq_doorbell(), device.doorbells() + 12);
  EXPECT_GT(device.doorbells()[0], 0u) << "the admin queue's";
  EXPECT_EQ(device.doorbells()[4], device.doorbells()[0]) << "and what was reaped of it";
  pair.submit().cid = 7;
  pair.ring_sq();
  EXPECT_EQ(device.doorbells()[8], 1u);
  device.tick();
  EXPECT_EQ(pair.reap(4, [](const nvme::Cqe& entry) { EXPECT_EQ(entry.cid, 7); }), 1u);
  pair.ring_cq();
  EXPECT_EQ(device.doorbells()[12], 1u);
}

TEST_F(NvmeDriverTest, QueuePairsBeyondTheDoorbellsAreRefused) {
  device.cap.dstrd = 2;  // 64 words hold those of eight pairs, the admin queue's first
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  QueuePair* last = nullptr;
  for (int i = 0; i < 7; ++i) last = &driver.create_queue_pair({.sq_entries = 2});
  EXPECT_EQ(driver.queue_pairs(), 7u);
  EXPECT_NE(message_of<ConfigError>([&] { driver.create_queue_pair({.sq_entries = 2}); }).find("doorbells end"),
            std::string::npos);
  EXPECT_EQ(driver.queue_pairs(), 7u);
  driver.delete_queue_pair(*last);
  EXPECT_EQ(driver.create_queue_pair({.sq_entries = 2}).qid(), 7);
}

TEST_F(NvmeDriverTest, RingsInTheCallersMemoryStayTheCallers) {
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  const std::size_t mappings = device.mappings();
  std::vector<nvme::Sqe> sq(4);
  std::vector<nvme::Cqe> cq(8);
  device.dma_map(0x10000, sq.data(), 4 * sizeof(nvme::Sqe));
  device.dma_map(0x20000, cq.data(), 8 * sizeof(nvme::Cqe));
  device.admin_commands.clear();
  QueuePair& pair = driver.create_queue_pair(
      {.sq_entries = 4, .cq_entries = 8, .rings = QueueRings{sq.data(), 0x10000, cq.data(), 0x20000}});
  EXPECT_EQ(device.admin_commands[0].prp1, 0x20000u);
  EXPECT_EQ(device.admin_commands[1].prp1, 0x10000u);
  EXPECT_EQ(device.mappings(), mappings + 2) << "the driver maps nothing for it";
  pair.submit().cid = 3;
  pair.ring_sq();
  device.tick();
  EXPECT_EQ(sq[0].cid, 3);
  EXPECT_EQ(cq[0].cid, 3);
  EXPECT_EQ(pair.reap(4, [](const nvme::Cqe&) {}), 1u);
  driver.delete_queue_pair(pair);
  EXPECT_EQ(device.mappings(), mappings + 2);
  // Of rings that the host does not see the pair is good for identifier and doorbells.
  QueuePair& unseen = driver.create_queue_pair({.sq_entries = 4, .rings = QueueRings{.sq_iova = 1, .cq_iova = 2}});
  EXPECT_EQ(unseen.sq_doorbell(), device.doorbells() + 2);
}

TEST_F(NvmeDriverTest, InterruptVectorsThatTheDeviceDoesNotHaveAreRefused) {
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  device.vectors = 2;
  driver.create_queue_pair({.sq_entries = 2, .interrupts = true, .vector = 1});
  EXPECT_EQ(
      message_of<ConfigError>([&] { driver.create_queue_pair({.sq_entries = 2, .interrupts = true, .vector = 2}); }),
      "a queue with interrupt vector 2: the device has 2 vectors, counted from 0");
  driver.create_queue_pair({.sq_entries = 2, .vector = 2});  // without interrupts it is no vector at all
}

TEST_F(NvmeDriverTest, AddressesOfTheDevicesChoiceGoIntoRegistersAndCommands) {
  device.iova_offset = 0x1000'0000'0000;
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  std::vector<std::byte> data(20'000, std::byte{5});
  device.on_admin = [&](const nvme::Sqe& sqe) {
    if (sqe.opcode == code(AdminOpcode::identify)) device.transfer(sqe, data, true);
    return AdminResult{0, 0};
  };
  std::vector<std::byte> read(data.size());
  nvme::Sqe sqe{};
  sqe.opcode = code(AdminOpcode::identify);
  EXPECT_EQ(driver.admin(sqe, read, true).status_field, 0);
  EXPECT_EQ(read, data) << "through a list of pages, which lies at such an address too";
  driver.create_queue_pair({.sq_entries = 4}).submit();
  EXPECT_FALSE(device.transfer_failed());
  driver.disable();
  EXPECT_FALSE(device.transfer_failed()) << "unmapped where it was mapped";
  EXPECT_EQ(device.mappings(), 2u) << "the buffer of admin commands is kept, and its list";
}

TEST_F(NvmeDriverTest, AControllerThatStaysReadyIsResetWhereTheFunctionCanBe) {
  NvmeDriver driver(device, device.waiter());
  driver.enable();
  driver.create_queue_pair({.sq_entries = 4});
  const std::uint64_t generation = driver.generation();
  device.never_disabled = true;
  EXPECT_THROW(driver.enable(), NvmeTimeout);
  EXPECT_EQ(device.resets, 0u);
  device.resettable = true;
  driver.enable();
  EXPECT_EQ(device.resets, 1u);
  EXPECT_NE(driver.generation(), generation);
  EXPECT_EQ(driver.queue_pairs(), 0u);
  EXPECT_EQ(driver.create_queue_pair({.sq_entries = 4}).qid(), 1);
  device.never_disabled = false;
}

TEST(QueueIds, AreTheLowestThatAreFreeAndNeverMoreThanThereAre) {
  QueueIds ids;
  EXPECT_EQ(ids.take(), 1);
  EXPECT_EQ(ids.take(), 2);
  EXPECT_EQ(ids.take(), 3);
  ids.give_back(2);
  ids.give_back(1);
  EXPECT_EQ(ids.taken(), 1u);
  EXPECT_EQ(ids.take(), 1);
  EXPECT_EQ(ids.take(), 2);
  EXPECT_EQ(ids.take(), 4);
  for (std::uint32_t id = 5; id <= QueueIds::kAll; ++id) ASSERT_EQ(ids.take(), id);
  EXPECT_EQ(ids.take(), std::nullopt);
  ids.give_back(40'000);
  EXPECT_EQ(ids.take(), 40'000);
  ids.clear();
  EXPECT_EQ(ids.take(), 1);
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
