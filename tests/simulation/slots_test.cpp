// Who gets the engine's slots: a host that takes all it can leaves enough for the others, and for its own events.
#include "conformance/device_fixture.h"
#include "engine/slab.h"

namespace flashmob::conformance {
namespace {

constexpr std::uint32_t kEntries = 65536;
constexpr std::uint32_t kRounds = engine::Slab::kCapacity / kEntries + 1;
constexpr std::uint64_t kSecond = 1'000'000'000;

DeviceConfig with_deep_queues(unsigned workers) {
  DeviceConfig config = suite::small_device();
  config.controller.max_queue_entries = kEntries;
  config.engine.workers = workers;
  return config;
}

class DeepSlotsTest : public DeviceTest {
 protected:
  explicit DeepSlotsTest(const DeviceConfig& config) : DeviceTest(config, 2) {}

  // Rings a full queue whose entries are all the same command; true if every one was fetched within some time.
  bool ring_full(RawSq& sq, const Sqe& sqe) {
    for (std::uint32_t i = 0; i + 1 < kEntries; ++i) sq.push(sqe, static_cast<std::uint16_t>(i));
    sq.ring();
    rung_ += kEntries - 1;
    std::uint64_t before = 0;
    do {  // as long as it goes on
      before = fetched();
      device.pump_for(kSecond / 1000);
    } while (fetched() != before);
    return before == rung_;
  }
  std::uint64_t fetched() { return device.engine().counters(host().controller).read_commands; }

  std::uint64_t rung_ = 0;
};

class SlotsTest : public DeepSlotsTest, public ::testing::WithParamInterface<unsigned> {
 protected:
  SlotsTest() : DeepSlotsTest(with_deep_queues(GetParam())) {}
};

// What its host does not read is fetched no further by the dispatcher that has the worker's thread; any other finds out
// when its controller's share of the slots is taken.
TEST_P(SlotsTest, AQueueThatIsNeverReadStarvesNobody) {
  RawCq cq(host(), 1, 16);
  RawSq sq(host(), 1, kEntries);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  Buffer data = buffer(512);
  const Sqe read = data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
  std::uint32_t rounds = 0;
  while (rounds < kRounds && ring_full(sq, read)) ++rounds;
  EXPECT_LT(rounds, kRounds) << "one host got every slot there is";
  if (GetParam() == 0)
    EXPECT_LT(device.engine().outstanding(), kEntries) << "it has slots for what it does not read";
  else
    EXPECT_GT(rounds, kRounds / 2) << "and no host got enough for deep queues";

  Sqe other = make(NvmOpcode::read, kNs512, 0, 1);
  Buffer theirs(host(1).door, 512);
  EXPECT_EQ(status_of(run(theirs.attach(other, 512), 1)), Status::success) << "another host's I/O";
  host().door.doorbells()[2 * sq.id()] = kEntries + 1;  // an event: an invalid doorbell value
  device.pump_for(kSecond / 1000);
  EXPECT_EQ(status_of(driver().admin(make(AdminOpcode::keep_alive), {}, false)), Status::success);
}

TEST_P(SlotsTest, EveryCommandIsAnsweredOnceTheHostReads) {
  RawCq cq(host(), 1, kEntries);
  RawSq sq(host(), 1, kEntries);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  Buffer data = buffer(512);
  const Sqe read = data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
  while (ring_full(sq, read)) {
  }
  std::uint64_t answered = 0;
  while (answered < rung_) {
    const std::size_t some = wait(cq, std::min<std::uint64_t>(rung_ - answered, kEntries / 2)).size();
    ASSERT_NE(some, 0u) << answered << " of " << rung_;
    cq.ring();
    answered += some;
  }
  device.pump_for(kSecond / 1000);
  EXPECT_FALSE(cq.ready());
  EXPECT_EQ(device.engine().outstanding(), 0u);
}

// With a slow drive all commands are under way for long: a host may have many of those, too, but not all slots.
class SlowDeepSlotsTest : public DeepSlotsTest {
 protected:
  SlowDeepSlotsTest() : DeepSlotsTest(slow_device()) {}
  static DeviceConfig slow_device() {
    DeviceConfig config = with_deep_queues(0);
    config.timing.read_latency_ns = 100 * kSecond;
    return config;
  }
};

TEST_F(SlowDeepSlotsTest, AHostMayHaveManyButNotAll) {
  RawCq cq(host(), 1, 16);
  RawSq sq(host(), 1, kEntries);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  Buffer data = buffer(512);
  const Sqe read = data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
  std::uint32_t rounds = 0;
  while (rounds < kRounds && ring_full(sq, read)) ++rounds;
  EXPECT_LT(rounds, kRounds) << "one host got every slot there is";
  EXPECT_GT(rounds, kRounds / 2) << "and no host got enough for deep queues";

  QueuePair& theirs = queue(1);
  Buffer other(host(1).door, 512);
  theirs.submit() = other.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
  theirs.ring_sq();
  device.pump_for(kSecond / 1000);
  EXPECT_EQ(device.engine().counters(host(1).controller).read_commands, 1u) << "another host's is under way, too";
}

// Nobody fetches what is in a queue that goes, so its wait is entered when the queue does.
class UnfetchedTest : public SlowDeepSlotsTest {
 protected:
  // Leaves commands in the ring for which there is no slot; how many.
  std::uint64_t leave_some(RawCq& cq, RawSq& sq) {
    EXPECT_EQ(create(cq), Status::success);
    EXPECT_EQ(create(sq, cq), Status::success);
    Buffer data = buffer(512);
    const Sqe read = data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
    while (ring_full(sq, read)) {
    }
    device.pump_for(kWaitNs);
    const std::uint64_t left = rung_ - fetched();
    EXPECT_NE(left, 0u);
    EXPECT_EQ(waits(), fetched());
    return left;
  }
  std::uint64_t waits() { return device.engine().stats(engine::kWarmUp).wait_ns.count(); }
  std::uint64_t longest_ns() { return device.engine().stats(engine::kWarmUp).wait_ns.max(); }

  static constexpr std::uint64_t kWaitNs = kSecond / 100;
};

TEST_F(UnfetchedTest, CommandsOfADeletedQueueHaveWaited) {
  RawCq cq(host(), 1, 16);
  RawSq sq(host(), 1, kEntries);
  const std::uint64_t left = leave_some(cq, sq);
  const std::uint64_t before = waits();
  ASSERT_EQ(delete_sq(1), Status::success);
  EXPECT_EQ(waits(), before + left);
  EXPECT_GE(longest_ns(), kWaitNs);
}

TEST_F(UnfetchedTest, CommandsOfAControllerThatIsResetHaveWaited) {
  RawCq cq(host(), 1, 16);
  RawSq sq(host(), 1, kEntries);
  const std::uint64_t left = leave_some(cq, sq);
  const std::uint64_t before = waits();
  driver().disable();
  device.pump_for(kSecond / 100);
  EXPECT_EQ(waits(), before + left);
  EXPECT_GE(longest_ns(), kWaitNs);
}

// Targets are far away, but slots of queues that are gone come back at once.
class SlowSlotsTest : public DeviceTest {
 protected:
  SlowSlotsTest() : DeviceTest(slow_device()) {}
  static DeviceConfig slow_device() {
    DeviceConfig config = suite::small_device();
    config.timing.read_latency_ns = 100 * kSecond;
    return config;
  }
  void fill(RawCq& cq, RawSq& sq) {
    ASSERT_EQ(create(cq), Status::success);
    ASSERT_EQ(create(sq, cq), Status::success);
    Buffer data = buffer(512);
    for (std::uint16_t cid = 0; cid < 1000; ++cid) sq.push(data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512), cid);
    sq.ring();
    device.pump_for(kSecond / 100);
    ASSERT_EQ(device.engine().outstanding(), 1000u);
  }
};

TEST_F(SlowSlotsTest, AResetGivesThemBack) {
  RawCq cq(host(), 1, 1024);
  RawSq sq(host(), 1, 1024);
  fill(cq, sq);
  driver().disable();
  device.pump_for(kSecond / 100);
  EXPECT_EQ(device.engine().outstanding(), 0u);
}

TEST_F(SlowSlotsTest, DeletingTheQueueGivesThemBack) {
  RawCq cq(host(), 1, 1024);
  RawSq sq(host(), 1, 1024);
  fill(cq, sq);
  ASSERT_EQ(delete_sq(1), Status::success);
  EXPECT_EQ(wait(cq, 1000).size(), 1000u);
  EXPECT_EQ(device.engine().outstanding(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Workers, SlotsTest, ::testing::Values(0u, 1u));

}  // namespace
}  // namespace flashmob::conformance
