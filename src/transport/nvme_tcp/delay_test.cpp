// What the door's thread adds to its hosts' commands, in virtual time: a look that comes late, an answer that is sent
// late, and what is the host's own time.
#include <algorithm>
#include <memory>
#include <optional>

#include "gtest/gtest.h"
#include "transport/nvme_tcp/delay_log.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace flashmob::transport::testing {
namespace {

constexpr std::uint64_t kLateNs = 3'000'000;
// Two rounds of the rig, and what it takes to get from one end to the other.
constexpr std::uint64_t kLittleNs = 10'000;

class NvmeTcpDelay : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(admin_.initialize());
    const std::uint16_t cntlid = admin_.attach();
    ASSERT_NE(cntlid, 0);
    ASSERT_TRUE(io_.initialize());
    ASSERT_EQ(io_.attach_io(cntlid).status(), nvme::Status::success);
  }
  std::uint64_t count() { return rig_.engine().door_delays().look().count(); }
  std::uint64_t longest_ns() { return rig_.engine().door_delays().look().max(); }
  void let_the_engine_work() {
    for (int i = 0; i < 4; ++i)
      for (unsigned actor = 0; actor < rig_.engine().actors(); ++actor) rig_.engine().poll_actor(actor);
  }

  Rig rig_;
  Host admin_{rig_};
  Host io_{rig_};
};

TEST_F(NvmeTcpDelay, EveryCommandOfAnIoQueueIsDatedOnce) {
  EXPECT_EQ(count(), 0u) << "the admin queue's are not";
  EXPECT_EQ(io_.write(0, pattern(4096, 1)).status(), nvme::Status::success);
  EXPECT_EQ(io_.read(0, 4096).data, pattern(4096, 1));
  EXPECT_EQ(io_.command(Host::io(nvme::NvmOpcode::flush, 0, 1)).status(), nvme::Status::success);
  EXPECT_EQ(count(), 3u);
  EXPECT_LE(longest_ns(), kLittleNs);
}

// One that reads so slowly that an answer always waits for it costs no more memory for that.
TEST(NvmeTcpDelayLog, KeepsNoAnswersThatAreGone) {
  DoorLooks looks;
  DelayLog log(looks);
  log.answer(1);
  std::size_t most = 0;
  for (int i = 0; i < 100'000; ++i) {
    log.answer(1);
    log.answered(10);
    looks.delays_ns.clear();
    most = std::max(most, log.answers_held());
  }
  EXPECT_LT(most, 10'000u);
}

TEST_F(NvmeTcpDelay, AHostThatAsksNothingWaitsForNothing) {
  for (int i = 0; i < 50; ++i) {
    rig_.pass_ns(kLateNs);
    rig_.pump();
  }
  EXPECT_EQ(io_.read(0, 4096).status(), nvme::Status::success);
  EXPECT_LE(longest_ns(), kLittleNs);
}

TEST_F(NvmeTcpDelay, CommandsThatNobodyReadsAreLate) {
  const std::uint16_t cid = io_.submit([] {
    nvme::Sqe sqe = Host::io(nvme::NvmOpcode::read, 0, 8);
    Host::transport_sgl(sqe, 4096);
    return sqe;
  }());
  rig_.pass_ns(kLateNs);
  EXPECT_EQ(io_.finish(cid, {}).status(), nvme::Status::success);
  EXPECT_GE(longest_ns(), kLateNs);
  EXPECT_LE(longest_ns(), kLateNs + kLittleNs);
}

TEST_F(NvmeTcpDelay, AnswersThatNobodySendsAreLate) {
  const std::uint16_t cid = io_.submit(Host::io(nvme::NvmOpcode::flush, 0, 1));
  rig_.target().poll();
  let_the_engine_work();
  rig_.pass_ns(kLateNs);
  EXPECT_EQ(io_.finish(cid, {}).status(), nvme::Status::success);
  EXPECT_GE(longest_ns(), kLateNs);
}

TEST_F(NvmeTcpDelay, DataOfAWriteThatNobodyReadsIsLateAndItsHostsOwnTimeIsNot) {
  const auto data = pattern(65536, 3);
  nvme::Sqe sqe = Host::io(nvme::NvmOpcode::write, 0, 128);
  Host::transport_sgl(sqe, 65536);
  io_.submit(sqe);
  const auto first = io_.receive();
  ASSERT_TRUE(first && first->type == nvme::tcp::PduType::r2t);
  // The host takes its time.
  rig_.pass_ns(100 * kLateNs);
  rig_.pump();
  const auto r2t = first->as<nvme::tcp::R2t>();
  io_.send_pdu(Host::h2c(r2t, 0, r2t.r2tl, true), data);
  rig_.pump();
  ASSERT_EQ(count(), 1u);
  EXPECT_LE(longest_ns(), kLittleNs);
  const std::uint16_t again = io_.submit(sqe);
  const auto second = io_.receive();
  ASSERT_TRUE(second && second->type == nvme::tcp::PduType::capsule_resp) << "of the first";
  const auto third = io_.receive();
  ASSERT_TRUE(third && third->type == nvme::tcp::PduType::r2t);
  io_.send_pdu(Host::h2c(third->as<nvme::tcp::R2t>(), 0, 65536, true), data);
  rig_.pass_ns(kLateNs);
  EXPECT_EQ(io_.finish(again, {}).status(), nvme::Status::success);
  EXPECT_GE(longest_ns(), kLateNs);
}

TEST_F(NvmeTcpDelay, AHostThatReadsNoAnswersWaitsForItself) {
  nvme::Sqe sqe = Host::io(nvme::NvmOpcode::read, 0, 256);
  Host::transport_sgl(sqe, 131072);
  std::optional<std::uint16_t> last;
  for (int i = 0; i < 12; ++i) last = io_.submit(sqe);
  for (int i = 0; i < 20; ++i) {
    rig_.pump();
    rig_.pass_ns(kLateNs);
    rig_.target().poll();
  }
  ASSERT_LT(count(), 12u) << "the socket takes all of it";
  for (int i = 0; i < 12; ++i) {
    const auto pdu = io_.receive();
    ASSERT_TRUE(pdu && pdu->type == nvme::tcp::PduType::c2h_data);
    ASSERT_TRUE(io_.receive());
  }
  EXPECT_EQ(count(), 12u);
  EXPECT_LE(longest_ns(), kLateNs + 4 * kLittleNs) << "what passed before the thread looked for the last time";
}

// A host that gives up because nobody serves it has waited as long all the same.
TEST_F(NvmeTcpDelay, AHostThatGivesUpHasWaited) {
  io_.submit(Host::io(nvme::NvmOpcode::flush, 0, 1));
  rig_.target().poll();
  let_the_engine_work();
  rig_.pass_ns(kLateNs);
  io_.hang_up();
  rig_.pump();
  ASSERT_EQ(count(), 1u);
  EXPECT_GE(longest_ns(), kLateNs);
}

TEST_F(NvmeTcpDelay, AHostThatGivesUpBetweenItsCommandAndItsDataHasWaitedForItself) {
  nvme::Sqe sqe = Host::io(nvme::NvmOpcode::write, 0, 128);
  Host::transport_sgl(sqe, 65536);
  io_.submit(sqe);
  ASSERT_TRUE(io_.receive());  // the R2T
  rig_.pass_ns(100 * kLateNs);
  io_.hang_up();
  rig_.pump();
  EXPECT_LE(longest_ns(), kLittleNs);
}

TEST(NvmeTcpDelayPath, WhatThePathTakesByItselfIsTakenOff) {
  DeviceConfig config = Rig::small_device();
  config.timing.path_ns = 5'000;
  Rig rig({}, config);
  const std::uint64_t delays_ns[] = {4'000, 7'000};
  rig.engine().door_delays().add(delays_ns);
  EXPECT_EQ(rig.engine().door_delays().look().min(), 0u);
  EXPECT_EQ(rig.engine().door_delays().look().max(), 2'000u);
}

}  // namespace
}  // namespace flashmob::transport::testing
