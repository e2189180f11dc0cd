// Enable, disable, reset, shutdown, subsystem reset, fatal status and the keep alive timer.
#include <gtest/gtest.h>

#include <thread>

#include "controller/controller_test_support.h"

namespace flashmob::controller::testing {
namespace {

constexpr std::uint32_t kReady = 1, kFatal = 2, kShutdownOccurring = 1 << 2, kShutdownComplete = 2 << 2,
                        kNssro = 1 << 4;
constexpr nvme::Cc kEnabled{.en = true};

TEST(Lifecycle, EnableCreatesTheAdminQueuesThenReportsReady) {
  TestDevice d;
  d.host.hold = true;
  d.start_enable();
  EXPECT_EQ(d.csts(), 0u);
  d.poll();
  EXPECT_EQ(d.controller().state(), ControllerState::enabling);
  ASSERT_EQ(d.host.requests.size(), 1u);
  EXPECT_EQ(d.host.requests[0].op, QueueOp::create_cq);
  EXPECT_EQ(d.host.requests[0].cq.cqid, 0);
  EXPECT_EQ(d.host.requests[0].cq.entries, 32u);
  EXPECT_EQ(d.host.requests[0].cq.iova, kAdminCq);
  EXPECT_TRUE(d.host.requests[0].cq.interrupts_enabled);
  d.host.reply();
  ASSERT_EQ(d.host.requests.size(), 2u);
  EXPECT_EQ(d.host.requests[1].op, QueueOp::create_sq);
  EXPECT_EQ(d.host.requests[1].sq.entries, 32u);
  EXPECT_EQ(d.host.requests[1].sq.iova, kAdminSq);
  EXPECT_EQ(d.csts(), 0u) << "not ready before both queues are";
  d.host.reply();
  EXPECT_EQ(d.csts(), kReady);
  EXPECT_EQ(d.controller().state(), ControllerState::ready);
}

TEST(Lifecycle, EnableWithWhatIsNotSupportedIsFatal) {
  const std::vector<nvme::Cc> wrong = {{.css = 1}, {.css = 7}, {.mps = 1}, {.ams = 2}, {.ams = 7}};
  for (const nvme::Cc& fields : wrong) {
    TestDevice d;
    d.start_enable(0, fields);
    d.poll();
    EXPECT_EQ(d.csts(), kFatal);
    EXPECT_EQ(d.controller().state(), ControllerState::fatal);
    EXPECT_TRUE(d.host.requests.empty());
  }
}

TEST(Lifecycle, EnableAcceptsEverySupportedChoice) {
  const std::vector<nvme::Cc> right = {{}, {.css = 6}, {.ams = 1}};
  for (const nvme::Cc& fields : right) {
    TestDevice d;
    d.start_enable(0, fields);
    d.poll();
    EXPECT_EQ(d.csts(), kReady);
    EXPECT_EQ(d.controller().arbitration().weighted_round_robin, fields.ams == 1);
  }
}

TEST(Lifecycle, EnableAcceptsEntrySizesOfZero) {
  TestDevice d;
  d.start_enable();
  d.write(nvme::kRegCc, nvme::encode_cc({.en = true}));
  d.poll();
  EXPECT_EQ(d.csts(), kReady);
}

TEST(Lifecycle, AdminQueueOfOneEntryOrInUnmappedMemoryIsFatalUntilReset) {
  for (int wrong = 0; wrong < 4; ++wrong) {
    TestDevice d;
    d.write(nvme::kRegAqa, nvme::encode_aqa({.asqs = static_cast<std::uint16_t>(wrong == 0 ? 0 : 31),
                                             .acqs = static_cast<std::uint16_t>(wrong == 1 ? 0 : 31)}));
    d.write(nvme::kRegAsq, wrong == 2 ? kUnmapped : kAdminSq, 8);
    d.write(nvme::kRegAcq, wrong == 3 ? kUnmapped : kAdminCq, 8);
    d.write(nvme::kRegCc, TestDevice::cc(kEnabled));
    d.poll();
    EXPECT_EQ(d.csts(), kFatal) << wrong;
    d.disable();
    EXPECT_EQ(d.csts(), 0u) << wrong;
    d.enable();
    EXPECT_EQ(d.csts(), kReady) << wrong;
  }
}

TEST(Lifecycle, DisableWaitsForTheEngineThenClearsEverything) {
  TestDevice d;
  d.enable();
  d.create_cq(1);
  d.start(TestDevice::command(nvme::AdminOpcode::async_event_request), 7);
  d.controller().doorbells()[3] = 9;
  d.host.completions.clear();
  d.host.hold = true;
  d.write(nvme::kRegCc, TestDevice::cc());
  d.poll();
  EXPECT_EQ(d.controller().state(), ControllerState::disabling);
  EXPECT_EQ(d.host.requests.back().op, QueueOp::delete_all);
  EXPECT_EQ(d.csts(), kReady) << "ready falls when nothing works any more";
  d.host.reply();
  EXPECT_EQ(d.csts(), 0u);
  EXPECT_EQ(d.controller().state(), ControllerState::disabled);
  EXPECT_EQ(d.controller().doorbells()[3], 0u);
  EXPECT_TRUE(d.host.completions.empty()) << "event requests are dropped silently";
  d.host.hold = false;
  d.enable();
  EXPECT_EQ(d.create_cq(1).status(), nvme::Status::success) << "the old queue 1 is gone";
  EXPECT_EQ(d.controller().read_register(nvme::kRegAsq, 8), kAdminSq) << "AQA, ASQ and ACQ survive a controller reset";
}

TEST(Lifecycle, AShutdownIsCompleteWhenTheDiskIsDone) {
  TestDevice d;
  d.enable();
  d.host.hold_disk = true;
  d.write(nvme::kRegCc, TestDevice::cc({.en = true, .shn = nvme::kCcShnNormal}));
  d.poll();
  EXPECT_EQ(nvme::decode_csts(d.csts()).shst, nvme::kCstsShstOccurring);
  ASSERT_EQ(d.host.at_disk.size(), 1u);
  EXPECT_EQ(d.host.at_disk[0].work.media.size(), 1u) << "a namespace that is deleted now keeps its media";
  d.host.reply_disk();
  EXPECT_EQ(nvme::decode_csts(d.csts()).shst, nvme::kCstsShstComplete);
  EXPECT_EQ(d.controller().state(), ControllerState::shut_down);
}

TEST(Lifecycle, AResetDoesNotWaitForTheDiskOfAShutdown) {
  for (const bool enabled : {true, false}) {
    TestDevice d;
    if (enabled) d.enable();
    d.host.hold_disk = true;
    d.write(nvme::kRegCc, TestDevice::cc({.en = enabled, .shn = nvme::kCcShnNormal}));
    d.poll();
    EXPECT_EQ(nvme::decode_csts(d.csts()).shst, nvme::kCstsShstOccurring);
    if (enabled) d.disable();
    d.enable();
    EXPECT_EQ(d.csts(), kReady);
    ASSERT_EQ(d.host.at_disk.size(), 1u);
    d.host.reply_disk();
    EXPECT_EQ(d.csts(), kReady) << "nobody waits for that shutdown any more";
    EXPECT_EQ(d.controller().state(), ControllerState::ready);
  }
}

// Both are written before the admin thread looks once.
TEST(Lifecycle, AnEnableRightAfterAShutdownIsNotLost) {
  TestDevice d;
  d.host.hold_disk = true;
  d.write(nvme::kRegCc, TestDevice::cc({.shn = nvme::kCcShnNormal}));
  d.start_enable();
  d.poll();
  EXPECT_EQ(d.csts(), kReady);
  EXPECT_TRUE(d.host.at_disk.empty()) << "the host has taken that shutdown back";
}

TEST(Lifecycle, AControllerWhoseSavedCacheIsOffIsDisabledWhenTheDiskIsDone) {
  TestDevice d;
  d.enable();
  ASSERT_EQ(d.set_feature(nvme::Feature::volatile_write_cache, 0, true).status(), nvme::Status::success);
  ASSERT_EQ(d.set_feature(nvme::Feature::volatile_write_cache, 1).status(), nvme::Status::success);
  d.host.hold_disk = true;
  d.disable();
  EXPECT_EQ(d.csts(), kReady) << "what the cache held is not durable yet";
  ASSERT_EQ(d.host.at_disk.size(), 1u);
  d.host.reply_disk();
  EXPECT_EQ(d.csts(), 0u);
  EXPECT_FALSE(d.controller().write_cache_enabled());
}

TEST(Lifecycle, EnableWrittenWhileDisablingIsNotLost) {
  TestDevice d;
  d.enable();
  d.host.hold = true;
  d.write(nvme::kRegCc, TestDevice::cc());
  d.poll();
  d.write(nvme::kRegCc, TestDevice::cc(kEnabled));
  d.poll();
  EXPECT_EQ(d.controller().state(), ControllerState::disabling);
  d.host.reply_all();
  EXPECT_EQ(d.csts(), kReady);
  EXPECT_EQ(d.controller().state(), ControllerState::ready);
}

TEST(Lifecycle, DisableAndEnableBetweenTwoPollsResets) {
  TestDevice d;
  d.enable();
  d.create_cq(1);
  d.write(nvme::kRegCc, TestDevice::cc());
  d.write(nvme::kRegCc, TestDevice::cc(kEnabled));
  d.poll();
  EXPECT_EQ(d.csts(), kReady);
  EXPECT_EQ(d.create_cq(1).status(), nvme::Status::success);
}

TEST(Lifecycle, EnableAndDisableBetweenTwoPollsDoesNothing) {
  TestDevice d;
  d.start_enable();
  d.write(nvme::kRegCc, TestDevice::cc());
  d.poll();
  EXPECT_EQ(d.csts(), 0u);
  EXPECT_TRUE(d.host.requests.empty());
}

TEST(Lifecycle, DisableWhileEnabling) {
  TestDevice d;
  d.host.hold = true;
  d.start_enable();
  d.poll();
  d.write(nvme::kRegCc, TestDevice::cc());
  d.poll();
  EXPECT_EQ(d.controller().state(), ControllerState::disabling);
  d.host.reply();  // the creation of the admin CQ, which nobody waits for any more
  EXPECT_EQ(d.controller().state(), ControllerState::disabling);
  d.host.reply();
  EXPECT_EQ(d.controller().state(), ControllerState::disabled);
  EXPECT_EQ(d.csts(), 0u);
}

TEST(Lifecycle, CommandsFetchedBeforeAResetAreDropped) {
  TestDevice d;
  d.enable();
  d.host.hold = true;
  d.write(nvme::kRegCc, TestDevice::cc());
  d.poll();
  d.start(TestDevice::command(nvme::AdminOpcode::keep_alive), 1);
  EXPECT_TRUE(d.host.completions.empty());
}

TEST(Lifecycle, QueueAnswersThatCrossAResetAreIgnored) {
  TestDevice d;
  d.enable();
  d.host.hold = true;
  d.create_cq(1);
  d.write(nvme::kRegCc, TestDevice::cc());
  d.poll();
  d.host.reply_all();
  EXPECT_EQ(d.controller().state(), ControllerState::disabled);
  EXPECT_TRUE(d.host.completions.empty());
}

class Shutdown : public ::testing::TestWithParam<std::uint8_t> {};

TEST_P(Shutdown, StopsFlushesAndCompletes) {
  TestDevice d;
  d.enable();
  d.host.hold = true;
  d.write(nvme::kRegCc, TestDevice::cc({.en = true, .shn = GetParam()}));
  d.poll();
  EXPECT_EQ(d.csts(), kReady | kShutdownOccurring);
  EXPECT_EQ(d.controller().state(), ControllerState::shutting_down);
  d.host.reply();
  EXPECT_EQ(d.csts(), kReady | kShutdownComplete);
  EXPECT_EQ(d.controller().state(), ControllerState::shut_down);
  d.start(TestDevice::command(nvme::AdminOpcode::keep_alive), 1);
  EXPECT_TRUE(d.host.completions.empty()) << "no commands after a shutdown";
  d.disable();
  EXPECT_EQ(d.csts(), 0u) << "the reset clears SHST";
  d.host.hold = false;
  d.enable();
  EXPECT_EQ(d.csts(), kReady);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Shutdown, ::testing::Values(nvme::kCcShnNormal, nvme::kCcShnAbrupt));

TEST(Lifecycle, ShutdownOfADisabledController) {
  TestDevice d;
  d.write(nvme::kRegCc, TestDevice::cc({.shn = nvme::kCcShnNormal}));
  d.poll();
  EXPECT_EQ(d.csts(), kShutdownComplete);
  d.enable();
  EXPECT_EQ(d.csts(), kReady);
}

TEST(Lifecycle, ResetDuringShutdown) {
  TestDevice d;
  d.enable();
  d.host.hold = true;
  d.write(nvme::kRegCc, TestDevice::cc({.en = true, .shn = nvme::kCcShnNormal}));
  d.poll();
  d.write(nvme::kRegCc, TestDevice::cc());
  d.poll();
  EXPECT_EQ(d.controller().state(), ControllerState::disabling);
  EXPECT_EQ(d.host.held.size(), 1u) << "one delete_all serves both";
  d.host.reply();
  EXPECT_EQ(d.csts(), 0u);
}

// Both are written before the admin thread looks once.
TEST(Lifecycle, AResetForgetsTheShutdownBeforeIt) {
  for (const bool ready : {true, false}) {
    TestDevice d;
    if (ready) d.enable();
    d.host.hold_disk = true;
    if (!ready) d.start_enable();
    d.write(nvme::kRegCc, TestDevice::cc({.en = true, .shn = nvme::kCcShnNormal}));
    d.write(nvme::kRegCc, TestDevice::cc({.shn = nvme::kCcShnNormal}));  // a driver that clears EN alone
    d.poll();
    EXPECT_EQ(d.csts(), 0u);
    EXPECT_TRUE(d.host.at_disk.empty()) << "nobody waits for that shutdown any more";
    EXPECT_EQ(d.controller().state(), ControllerState::disabled);
    d.enable();
    EXPECT_EQ(d.csts(), kReady);
  }
}

// A host may change its mind about the kind of shutdown after the shutdown is over.
TEST(Lifecycle, ASecondShutdownNotificationIsNotOneOfTheNextTime) {
  TestDevice d;
  d.enable();
  d.write(nvme::kRegCc, TestDevice::cc({.en = true, .shn = nvme::kCcShnNormal}));
  d.poll();
  EXPECT_EQ(d.csts(), kReady | kShutdownComplete);
  d.write(nvme::kRegCc, TestDevice::cc({.en = true, .shn = nvme::kCcShnAbrupt}));
  d.poll();
  EXPECT_EQ(d.csts(), kReady | kShutdownComplete);
  d.disable();
  d.enable();
  EXPECT_EQ(d.csts(), kReady) << "it shut down by itself";
  EXPECT_EQ(d.controller().state(), ControllerState::ready);
}

TEST(Lifecycle, AShutdownNotifiedTogetherWithAResetIsAnswered) {
  TestDevice d;
  d.enable();
  d.write(nvme::kRegCc, TestDevice::cc({.en = true, .shn = nvme::kCcShnNormal}));
  d.poll();
  d.write(nvme::kRegCc, TestDevice::cc({.shn = nvme::kCcShnAbrupt}));
  d.poll();
  EXPECT_EQ(d.csts(), kShutdownComplete);
}

TEST(Lifecycle, ARefusedEnableIsFatalUntilReset) {
  TestDevice d;
  d.controller().refuse_enable();
  d.start_enable();
  d.poll();
  EXPECT_EQ(d.csts(), kFatal);
  d.disable();
  EXPECT_EQ(d.csts(), 0u);
  d.enable();
  EXPECT_EQ(d.csts(), kReady) << "it was refused once";
}

TEST(Lifecycle, AResetUnderWayEndsWhateverFailsMeanwhile) {
  TestDevice d;
  d.enable();
  d.host.hold = true;
  d.write(nvme::kRegCc, TestDevice::cc());
  d.poll();
  d.controller().set_fatal();
  d.host.reply_all();
  EXPECT_EQ(d.csts(), 0u) << "CC.EN is clear already: nothing would clear a fatal status";
  EXPECT_EQ(d.controller().state(), ControllerState::disabled);
}

TEST(Lifecycle, FatalStatusStopsEverythingUntilReset) {
  TestDevice d;
  d.enable();
  d.controller().set_fatal();
  EXPECT_EQ(d.csts(), kReady | kFatal);
  EXPECT_EQ(d.host.requests.back().op, QueueOp::delete_all);
  d.start(TestDevice::command(nvme::AdminOpcode::keep_alive), 1);
  EXPECT_TRUE(d.host.completions.empty());
  d.write(nvme::kRegCc, TestDevice::cc({.en = true, .shn = nvme::kCcShnAbrupt}));
  d.poll();
  EXPECT_EQ(d.csts(), kReady | kFatal | kShutdownComplete);
  d.disable();
  EXPECT_EQ(d.csts(), 0u);
  d.enable();
  EXPECT_EQ(d.csts(), kReady);
}

TEST(Lifecycle, FatalDuringAPendingTeardownThenReset) {
  TestDevice d;
  d.enable();
  d.host.hold = true;
  d.controller().set_fatal();
  d.write(nvme::kRegCc, TestDevice::cc());
  d.poll();
  EXPECT_EQ(d.controller().state(), ControllerState::disabling);
  d.host.reply_all();
  EXPECT_EQ(d.csts(), 0u);
}

TEST(Lifecycle, SubsystemResetReachesEveryController) {
  DeviceOptions options;
  options.controllers = 2;
  TestDevice d(options);
  d.enable(0);
  d.enable(1);
  d.write(nvme::kRegNssr, 0x12345678);
  EXPECT_FALSE(d.controller(0).needs_poll()) << "any other value is ignored";
  d.write(nvme::kRegNssr, nvme::kNssrReset);
  d.poll(0);
  EXPECT_TRUE(d.controller(1).needs_poll());
  d.poll(1);
  for (unsigned i = 0; i < 2; ++i) {
    EXPECT_EQ(d.csts(i), kNssro);
    EXPECT_EQ(d.controller(i).read_register(nvme::kRegCc, 4), 0u);
    EXPECT_EQ(d.controller(i).read_register(nvme::kRegAqa, 4), 0u);
    EXPECT_EQ(d.controller(i).read_register(nvme::kRegAsq, 8), 0u);
  }
  d.enable();
  EXPECT_EQ(d.csts(), kReady | kNssro);
  d.write(nvme::kRegCsts, kReady);
  EXPECT_EQ(d.csts(), kReady | kNssro);
  d.write(nvme::kRegCsts, kNssro);
  EXPECT_EQ(d.csts(), kReady) << "NSSRO is cleared by writing one";
  EXPECT_EQ(d.controller().read_register(nvme::kRegNssr, 4), 0u);
}

TEST(Lifecycle, KeepAliveTimeoutIsFatalAndLogged) {
  TestDevice d;
  d.enable();
  EXPECT_EQ(d.poll(), UINT64_MAX) << "off by default";
  EXPECT_EQ(d.set_feature(nvme::Feature::keep_alive_timer, 150).status(), nvme::Status::success);
  EXPECT_TRUE(d.controller().needs_poll()) << "the engine must learn of the deadline";
  const std::uint64_t deadline = d.poll();
  EXPECT_EQ(deadline, d.now_ns + 200'000'000) << "rounded up to 100 ms";
  d.now_ns = deadline - 1;
  EXPECT_EQ(d.run(TestDevice::command(nvme::AdminOpcode::keep_alive)).status(), nvme::Status::success);
  EXPECT_EQ(d.poll(), d.now_ns + 200'000'000) << "Keep Alive restarts it";
  d.now_ns += 200'000'000;
  EXPECT_EQ(d.poll(), d.now_ns + 50'000'000);
  EXPECT_EQ(d.csts(), kReady) << "within the timer's granularity";
  d.now_ns += 50'000'000;
  d.poll();
  EXPECT_EQ(d.csts(), kReady | kFatal);
  d.disable();
  d.enable();
  EXPECT_EQ(d.poll(), UINT64_MAX) << "a reset turns it off";
  ASSERT_EQ(d.log_page(nvme::LogPage::error_information, 64).status(), nvme::Status::success);
  const auto entry = d.data<nvme::ErrorInformationEntry>();
  EXPECT_EQ(nvme::status_of(static_cast<std::uint16_t>(entry.status_field >> 1)),
            nvme::Status::keep_alive_timer_expired);
  EXPECT_EQ(entry.sqid, nvme::kNoQueue);
}

TEST(Lifecycle, KeepAliveGivesAnotherTimeWhereWeStoodStill) {
  TestDevice d;
  d.enable();
  EXPECT_EQ(d.set_feature(nvme::Feature::keep_alive_timer, 1'000).status(), nvme::Status::success);
  d.now_ns = d.poll() + 200'000'000;
  EXPECT_EQ(d.poll(), d.now_ns + 1'000'000'000) << "the host's Keep Alive may lie in its queue";
  EXPECT_EQ(d.csts(), kReady);
  d.now_ns += 1'000'000'000;
  d.now_ns = d.poll();
  d.poll();
  EXPECT_EQ(d.csts(), kReady | kFatal) << "it did not";
}

// We stood still until just after the deadline, and the host's Keep Alive lay in its queue: that is read now.
TEST(Lifecycle, KeepAliveThatIsReadJustAfterTheDeadlineCounts) {
  TestDevice d;
  d.enable();
  EXPECT_EQ(d.set_feature(nvme::Feature::keep_alive_timer, 1'000).status(), nvme::Status::success);
  for (const std::uint64_t late_ns : {0u, 1u, 20'000'000u, 49'999'999u}) {
    d.now_ns = d.poll() + late_ns;
    d.poll();
    EXPECT_EQ(d.run(TestDevice::command(nvme::AdminOpcode::keep_alive)).status(), nvme::Status::success) << late_ns;
    EXPECT_EQ(d.poll(), d.now_ns + 1'000'000'000) << late_ns;
    EXPECT_EQ(d.csts(), kReady) << late_ns;
  }
}

// A host on its own thread toggles the controller while the admin thread polls: the last value written always wins.
TEST(Lifecycle, RegisterWritesFromAnotherThread) {
  TestDevice d;
  d.start_enable();
  d.poll();
  std::atomic<bool> done{false};
  std::thread host([&] {
    for (int i = 0; i < 2000; ++i) {
      d.write(nvme::kRegCc, TestDevice::cc({.en = i % 2 != 0}));
      d.write(nvme::kRegIntms, 1u << (i % 32));
      (void)d.controller().read_register(nvme::kRegCsts, 4);
    }
    done = true;
  });
  while (!done) d.poll();
  host.join();
  d.poll();
  EXPECT_EQ(d.csts(), kReady);
  d.disable();
  EXPECT_EQ(d.csts(), 0u);
}

}  // namespace
}  // namespace flashmob::controller::testing
