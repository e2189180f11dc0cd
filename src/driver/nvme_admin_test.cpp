// Admin commands against a scripted device: data in both directions, silence, late and wrong completions, callbacks.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/check.h"
#include "base/rng.h"
#include "driver/fake_nvme.h"
#include "driver/names.h"
#include "driver/nvme_driver.h"
#include "nvme/opcode.h"

namespace flashmob::driver {
namespace {

using nvme::AdminOpcode;

nvme::Sqe make(AdminOpcode opcode, std::uint32_t cdw10 = 0) {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.cdw10 = cdw10;
  return sqe;
}

FakeNvme::Answer succeed(const nvme::Sqe&) { return AdminResult{0, 0}; }
FakeNvme::Answer keep_silent(const nvme::Sqe&) { return std::nullopt; }

std::vector<std::byte> noise(std::size_t bytes, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::byte> data(bytes);
  for (auto& byte : data) byte = static_cast<std::byte>(rng.next());
  return data;
}

struct NvmeAdminTest : testing::Test {
  explicit NvmeAdminTest(std::uint32_t entries = 4) : driver(device, device.waiter(), entries) { driver.enable(); }

  FakeNvme device;
  NvmeDriver driver;
};

TEST_F(NvmeAdminTest, ManyCommandsThroughASmallRing) {
  device.on_admin = [](const nvme::Sqe& sqe) { return AdminResult{0, sqe.cdw10 * 3}; };
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const AdminResult result = driver.admin(make(AdminOpcode::get_features, i), {}, false);
    ASSERT_EQ(result.status_field, 0);
    ASSERT_EQ(result.dw0, i * 3);
  }
  EXPECT_EQ(driver.unexpected_completions(), 0u);
}

TEST_F(NvmeAdminTest, DataOfEverySizeArrivesWhole) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4}, std::size_t{4095}, std::size_t{4096},
                                  std::size_t{4097}, std::size_t{8192}, std::size_t{8193}, std::size_t{1} << 20}) {
    const auto sent = noise(bytes, bytes);
    device.on_admin = [&](const nvme::Sqe& sqe) {
      auto copy = sent;
      device.transfer(sqe, copy, true);
      return AdminResult{0, 0};
    };
    std::vector<std::byte> received(bytes);
    driver.admin(make(AdminOpcode::identify), received, true);
    EXPECT_TRUE(received == sent) << bytes;

    std::vector<std::byte> seen(bytes);
    device.on_admin = [&](const nvme::Sqe& sqe) {
      device.transfer(sqe, seen, false);
      return AdminResult{0, 0};
    };
    auto source = sent;
    driver.admin(make(AdminOpcode::set_features), source, false);
    EXPECT_TRUE(seen == sent) << bytes;
  }
  EXPECT_FALSE(device.transfer_failed());
}

TEST_F(NvmeAdminTest, ReusedBuffersDoNotShowEarlierData) {
  auto secret = noise(4096, 7);
  driver.admin(make(AdminOpcode::set_features), secret, false);
  std::vector<std::byte> answer(4096, std::byte{0x55});
  driver.admin(make(AdminOpcode::identify), answer, true);  // the device transfers nothing
  EXPECT_TRUE(answer == std::vector<std::byte>(4096));
}

TEST_F(NvmeAdminTest, TheCallersDataPointerStaysWithoutData) {
  nvme::Sqe sqe = make(AdminOpcode::doorbell_buffer_config);
  sqe.prp1 = 0x1234000;
  sqe.prp2 = 0x5678000;
  driver.admin(sqe, {}, false);
  EXPECT_EQ(device.admin_commands[0].prp1, 0x1234000u);
  EXPECT_EQ(device.admin_commands[0].prp2, 0x5678000u);
}

TEST_F(NvmeAdminTest, SilenceIsATimeoutThatNamesTheCommand) {
  device.on_admin = keep_silent;
  driver.admin_timeout_ns = 100'000'000;
  const std::uint64_t start_ns = device.now_ns;
  std::array<std::byte, 4096> data;
  try {
    driver.identify(0x1C, 0, data);
    FAIL();
  } catch (const NvmeTimeout& error) {
    EXPECT_STREQ(error.what(), "Identify (CNS 1Ch): no completion within 100 ms");
  }
  EXPECT_GE(device.now_ns - start_ns, 100'000'000u);
  EXPECT_LT(device.now_ns - start_ns, 101'000'000u);
}

TEST_F(NvmeAdminTest, ALateCompletionFreesItsSlotAndDisturbsNobody) {
  device.on_admin = keep_silent;
  driver.admin_timeout_ns = 1'000'000;
  std::array<std::byte, 4096> data;
  EXPECT_THROW(driver.identify(1, 0, data), NvmeTimeout);
  const nvme::Sqe late = device.admin_commands[0];

  // Meanwhile other commands run, with other identifiers and other buffers.
  const auto sent = noise(4096, 3);
  device.on_admin = [&](const nvme::Sqe& sqe) {
    EXPECT_NE(sqe.cid, late.cid);
    EXPECT_NE(sqe.prp1, late.prp1);
    auto copy = sent;
    device.transfer(sqe, copy, true);
    return AdminResult{0, 0};
  };
  for (int i = 0; i < 20; ++i) {
    driver.identify(1, 0, data);
    EXPECT_EQ(std::memcmp(data.data(), sent.data(), sent.size()), 0);
  }
  device.on_admin = keep_silent;
  EXPECT_THROW(driver.identify(1, 0, data), NvmeTimeout);
  const nvme::Sqe second = device.admin_commands.back();

  device.complete(late.cid, {0, 0});
  device.complete(second.cid, {0, 0});
  driver.poll_admin();
  EXPECT_EQ(driver.unexpected_completions(), 0u) << "a late answer is not a wrong one";
  // Both slots serve again: three asynchronous commands fill the ring of four.
  for (int i = 0; i < 3; ++i) driver.admin_async(make(AdminOpcode::async_event_request), [](AdminResult) {});
}

TEST_F(NvmeAdminTest, CompletionsThatNobodyAskedForAreCountedAndIgnored) {
  device.on_admin = [&](const nvme::Sqe& sqe) {
    device.complete(static_cast<std::uint16_t>(sqe.cid ^ 0x0FFF), {0, 1});  // no such slot
    device.complete(static_cast<std::uint16_t>(sqe.cid ^ 0x1000), {0, 2});  // right slot, wrong generation
    return AdminResult{0, 42};
  };
  EXPECT_EQ(driver.admin(make(AdminOpcode::get_features), {}, false).dw0, 42u);
  EXPECT_EQ(driver.unexpected_completions(), 2u);
}

TEST_F(NvmeAdminTest, ASecondAnswerIsUnexpected) {
  device.on_admin = [&](const nvme::Sqe& sqe) {
    device.complete(sqe.cid, {0, 1});
    return AdminResult{0, 2};
  };
  EXPECT_EQ(driver.admin(make(AdminOpcode::get_features), {}, false).dw0, 1u);
  driver.poll_admin();
  EXPECT_EQ(driver.unexpected_completions(), 1u);
}

TEST_F(NvmeAdminTest, AControllerThatDiesEndsTheWaitLongBeforeTheTimeout) {
  device.on_admin = [&](const nvme::Sqe&) -> FakeNvme::Answer {
    device.set_fatal();
    return std::nullopt;
  };
  const std::uint64_t start_ns = device.now_ns;
  EXPECT_THROW(driver.get_feature(1), NvmeFatal);
  EXPECT_LT(device.now_ns - start_ns, 200'000'000u);
  device.on_admin = succeed;
  driver.enable();
  driver.get_feature(1);
}

TEST_F(NvmeAdminTest, AsynchronousCommandsWaitWithoutBlockingOthers) {
  device.on_admin = [](const nvme::Sqe& sqe) -> FakeNvme::Answer {
    if (sqe.opcode == static_cast<std::uint8_t>(AdminOpcode::async_event_request)) return std::nullopt;
    return AdminResult{0, 5};
  };
  std::vector<std::uint32_t> events;
  const auto record = [&](AdminResult result) { events.push_back(result.dw0); };
  const std::uint16_t first = driver.admin_async(make(AdminOpcode::async_event_request), record);
  const std::uint16_t second = driver.admin_async(make(AdminOpcode::async_event_request), record);
  EXPECT_NE(first, second);
  EXPECT_EQ(driver.get_feature(1), 5u);
  EXPECT_TRUE(events.empty());
  device.complete(second, {0, 22});
  device.complete(first, {0, 11});
  EXPECT_TRUE(events.empty()) << "callbacks run in poll_admin() only";
  driver.poll_admin();
  EXPECT_EQ(events, (std::vector<std::uint32_t>{22, 11}));
}

TEST_F(NvmeAdminTest, ACallbackMayRunCommandsWhileItsCallerWaits) {
  std::uint16_t event_cid = 0;
  const auto log_data = noise(512, 9);
  const auto identify_data = noise(4096, 10);
  device.on_admin = [&](const nvme::Sqe& sqe) -> FakeNvme::Answer {
    switch (static_cast<AdminOpcode>(sqe.opcode)) {
      case AdminOpcode::async_event_request:
        return std::nullopt;
      case AdminOpcode::get_log_page: {
        auto copy = log_data;
        device.transfer(sqe, copy, true);
        return AdminResult{0, 0};
      }
      default: {
        // The event arrives while the Identify is under way, before its completion.
        if (event_cid != 0) device.complete(std::exchange(event_cid, std::uint16_t{0}), {0, 1});
        auto copy = identify_data;
        device.transfer(sqe, copy, true);
        return AdminResult{0, 0};
      }
    }
  };
  std::array<std::byte, 512> log{};
  int events = 0;
  std::function<void(AdminResult)> on_event = [&](AdminResult) {
    ++events;
    driver.log_page(1, 0xFFFFFFFF, 0, log);
    event_cid = driver.admin_async(make(AdminOpcode::async_event_request), on_event);
  };
  event_cid = driver.admin_async(make(AdminOpcode::async_event_request), on_event);
  for (int round = 1; round <= 5; ++round) {
    std::array<std::byte, 4096> data{};
    driver.identify(1, 0, data);
    EXPECT_EQ(std::memcmp(data.data(), identify_data.data(), 4096), 0);
    EXPECT_EQ(std::memcmp(log.data(), log_data.data(), 512), 0);
    EXPECT_EQ(events, round);
  }
}

TEST_F(NvmeAdminTest, AFullAdminQueueIsWaitedFor) {
  device.on_admin = keep_silent;
  std::vector<std::uint16_t> cids;
  int done = 0;
  for (int i = 0; i < 3; ++i)
    cids.push_back(driver.admin_async(make(AdminOpcode::async_event_request), [&](AdminResult) { ++done; }));
  driver.admin_timeout_ns = 1'000'000;
  EXPECT_THROW(driver.get_feature(1), NvmeTimeout);
  EXPECT_EQ(device.admin_commands.size(), 3u) << "a command without a slot must not reach the device";
  device.complete(cids[1], {0, 0});
  device.on_admin = succeed;
  driver.get_feature(1);
  EXPECT_EQ(done, 1);
}

TEST_F(NvmeAdminTest, DisableDropsCallbacks) {
  device.on_admin = keep_silent;
  const auto alive = std::make_shared<int>(0);
  driver.admin_async(make(AdminOpcode::async_event_request), [alive](AdminResult) { ++*alive; });
  EXPECT_EQ(alive.use_count(), 2);
  driver.disable();
  EXPECT_EQ(*alive, 0);
  EXPECT_EQ(alive.use_count(), 1);
  driver.poll_admin();
}

TEST_F(NvmeAdminTest, FailuresCarryTheirStatus) {
  constexpr std::uint16_t kField = nvme::with_do_not_retry(nvme::Status::invalid_log_page);
  device.on_admin = [](const nvme::Sqe&) { return AdminResult{kField, 0}; };
  std::array<std::byte, 64> data;
  try {
    driver.log_page(0xC0, 0, 0, data);
    FAIL();
  } catch (const NvmeError& error) {
    EXPECT_EQ(error.status_field(), kField);
    EXPECT_STREQ(error.what(), "Get Log Page (LID C0h): Invalid Log Page (SCT 1h, SC 09h, do not retry)");
  }
  EXPECT_EQ(driver.admin(make(AdminOpcode::get_log_page), data, true).status_field, kField) << "admin() itself returns";
}

TEST_F(NvmeAdminTest, LongLogsAreReadInPieces) {
  const auto page = noise(10'000, 4);
  device.on_admin = [&](const nvme::Sqe& sqe) {
    const std::size_t bytes = ((sqe.cdw10 >> 16) + 1) * std::size_t{4};
    auto piece = std::vector<std::byte>(bytes);
    std::copy_n(page.begin() + sqe.cdw12, std::min<std::size_t>(bytes, page.size() - sqe.cdw12), piece.begin());
    device.transfer(sqe, piece, true);
    return AdminResult{0, 0};
  };
  std::vector<std::byte> out(9'999);  // not a whole number of dwords
  driver.log_page(0x02, 5, 0, out);
  EXPECT_TRUE(std::equal(out.begin(), out.end(), page.begin()));
  ASSERT_EQ(device.admin_commands.size(), 3u);
  EXPECT_EQ(device.admin_commands[0].cdw10, 0x02u | (1u << 15) | (1023u << 16)) << "only the last piece ends the event";
  EXPECT_EQ(device.admin_commands[2].cdw10, 0x02u | (451u << 16));
  EXPECT_EQ(device.admin_commands[2].cdw12, 8192u);
  EXPECT_EQ(device.admin_commands[2].nsid, 5u);

  std::array<std::byte, 4> small;
  driver.log_page(0x02, 5, 100, small, true);
  EXPECT_EQ(device.admin_commands[3].cdw10, 0x02u | (1u << 15));
}

TEST_F(NvmeAdminTest, ShorthandsPutTheirArgumentsInPlace) {
  device.on_admin = [](const nvme::Sqe& sqe) -> FakeNvme::Answer {
    if (sqe.opcode == static_cast<std::uint8_t>(AdminOpcode::abort))
      return AdminResult{0, sqe.cdw10 >> 16 == 9 ? 0u : 1u};
    return AdminResult{0, 3u | (7u << 16)};
  };
  std::array<std::byte, 16> data;
  driver.identify(0x13, 4, data, 0x22, 0x33);
  driver.get_feature(0x0B, 2, 77, 6);
  driver.set_feature(0x0B, 88, true, 7);
  EXPECT_EQ(driver.request_queues(20), 4u);
  EXPECT_EQ(driver.request_queues(2), 2u);
  EXPECT_TRUE(driver.abort(5, 9));
  EXPECT_FALSE(driver.abort(5, 10));
  const auto& commands = device.admin_commands;
  EXPECT_EQ(commands[0].nsid, 4u);
  EXPECT_EQ(commands[0].cdw10, 0x13u | (0x22u << 16));
  EXPECT_EQ(commands[0].cdw11, 0x33u << 24);
  EXPECT_EQ(commands[1].cdw10, 0x0Bu | (2u << 8));
  EXPECT_EQ(commands[1].cdw11, 77u);
  EXPECT_EQ(commands[1].nsid, 6u);
  EXPECT_EQ(commands[2].cdw10, 0x0Bu | (1u << 31));
  EXPECT_EQ(commands[2].cdw11, 88u);
  EXPECT_EQ(commands[3].cdw11, 19u | (19u << 16));
  EXPECT_EQ(commands[5].cdw10, 5u | (9u << 16));
}

TEST(NvmeAdminIdentifiers, TheLargestRingUsesOnlyValidIdentifiers) {
  FakeNvme device;
  device.cap.mqes = 4095;
  NvmeDriver driver(device, device.waiter(), 4096);
  driver.enable();
  device.on_admin = keep_silent;
  std::set<std::uint16_t> cids;
  for (int i = 0; i < 4095; ++i)
    cids.insert(driver.admin_async(make(AdminOpcode::async_event_request), [](AdminResult) {}));
  EXPECT_EQ(cids.size(), 4095u);
  EXPECT_FALSE(cids.contains(0xFFFF)) << "the Error Information log means 'no command' by it";
}

TEST(Names, SayWhatPeopleLookFor) {
  EXPECT_EQ(admin_command_name(make(AdminOpcode::abort, 5 | (9 << 16))), "Abort (queue 5, command 9)");
  EXPECT_EQ(admin_command_name(make(static_cast<AdminOpcode>(0xC5))), "Admin command C5h");
  EXPECT_EQ(status_text(0), "Successful Completion (SCT 0h, SC 00h)");
  EXPECT_EQ(status_text(nvme::to_field(nvme::Status::lba_out_of_range)), "LBA Out of Range (SCT 0h, SC 80h)");
  EXPECT_EQ(status_text(0x7FF), "Status (SCT 7h, SC FFh)");
}

}  // namespace
}  // namespace flashmob::driver
