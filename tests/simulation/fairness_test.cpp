// What one host's burst costs another, counted in rounds of the unit that serves both: it does not depend on how fast
// the machine is. A round fetches no more than so many commands and moves a few slices of data, whoever rang how much.
#include <memory>

#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

constexpr std::uint32_t kEntries = 65536;
constexpr std::uint16_t kQueues = 8;
constexpr int kVictimReads = 8;
constexpr std::uint32_t kLargeBytes = 128 << 10;

// What a host other than the only one may have fetched and not moved (Requests::kMostUnmoved).
constexpr std::uint64_t kMostUnmoved = 1024;
// One round to fetch the victim's reads. What was prepared before them is at most 48 copies of 16 KiB and a command
// more, or one run of plain copies; two copies fill a slice, or twice that where nobody waits for a target, and four
// slices are a round.
constexpr int kMostRounds = 1 + (48 + kLargeBytes / (16 << 10)) / (2 * 4) + 1;

DeviceConfig with_deep_queues() {
  DeviceConfig config = suite::small_device();
  config.controller.max_queue_entries = kEntries;
  config.timing.model = "none";
  return config;
}

class FairnessTest : public DeviceTest {
 protected:
  FairnessTest() : DeviceTest(with_deep_queues(), 2) {}

  // Eight queues of one host, each rung at once with as many of this command as fit.
  void burst(const Sqe& sqe, std::uint32_t cq_entries) {
    for (std::uint16_t qid = 1; qid <= kQueues; ++qid) {
      cqs_.push_back(std::make_unique<RawCq>(host(), qid, cq_entries));
      sqs_.push_back(std::make_unique<RawSq>(host(), qid, kEntries));
      ASSERT_EQ(create(*cqs_.back()), Status::success);
      ASSERT_EQ(create(*sqs_.back(), *cqs_.back()), Status::success);
      for (std::uint32_t i = 0; i + 1 < kEntries; ++i) sqs_.back()->push(sqe, static_cast<std::uint16_t>(i));
    }
    for (const auto& sq : sqs_) sq->ring();
  }
  void serve() { device.engine().poll_actor(0); }

  // Rounds until another host's reads of so many bytes are answered.
  int rounds_of_victim(std::uint32_t bytes = 4096) {
    Buffer data(host(1).door, kVictimReads * std::size_t{bytes});
    QueuePair& pair = queue(1);
    for (int i = 0; i < kVictimReads; ++i) {
      pair.submit() =
          data.attach(make(NvmOpcode::read, kNs512, 0, bytes / 512), bytes, static_cast<std::size_t>(i) * bytes);
    }
    pair.ring_sq();
    int answered = 0, rounds = 0;
    for (; answered < kVictimReads && rounds < 10'000; ++rounds) {
      serve();
      pair.reap(kVictimReads, [&](const Cqe& entry) {
        EXPECT_EQ(status_of(entry), Status::success);
        ++answered;
      });
      pair.ring_cq();
    }
    return rounds;
  }

 private:
  std::vector<std::unique_ptr<RawCq>> cqs_;
  std::vector<std::unique_ptr<RawSq>> sqs_;
};

TEST_F(FairnessTest, ABurstOfOnePageReadsDelaysAnotherHostByFewRounds) {
  queue(1);
  Buffer data = buffer(4096);
  burst(data.attach(make(NvmOpcode::read, kNs512, 0, 8), 4096), kEntries);
  for (int at = 0; at < 5; ++at) {
    for (int i = 0; i < 100; ++i) {
      serve();
      ASSERT_LE(device.engine().outstanding(), kMostUnmoved) << "the rest waits in its queues";
    }
    EXPECT_LE(rounds_of_victim(), kMostRounds);
  }
}

TEST_F(FairnessTest, NorDoesOneOfLargeReads) {
  queue(1);
  Buffer data = buffer(kLargeBytes);
  burst(data.attach(make(NvmOpcode::read, kNs512, 0, kLargeBytes / 512), kLargeBytes), kEntries);
  for (int at = 0; at < 5; ++at) {
    for (int i = 0; i < 100; ++i) serve();
    EXPECT_LE(rounds_of_victim(), kMostRounds);
  }
}

TEST_F(FairnessTest, NorOneOfFlushes) {
  queue(1);
  burst(make(NvmOpcode::flush, kNs512), kEntries);
  for (int at = 0; at < 5; ++at) {
    for (int i = 0; i < 100; ++i) serve();
    EXPECT_LE(rounds_of_victim(), kMostRounds);
    // Reads of more than one page are copies that are prepared, and wait beside commands that are no copies at all.
    EXPECT_LE(rounds_of_victim(2 * 4096), kMostRounds);
  }
}

// One that does not read what it is answered is not worked for, either: what it asks for waits in its queues.
TEST_F(FairnessTest, WhoReadsNoCompletionsHoldsFewSlots) {
  queue(1);
  Buffer data = buffer(4096);
  burst(data.attach(make(NvmOpcode::read, kNs512, 0, 8), 4096), 2);
  for (int i = 0; i < 1000; ++i) serve();
  EXPECT_GE(device.engine().outstanding(), kQueues) << "each queue has answers that wait";
  EXPECT_LE(device.engine().outstanding(), kQueues * kMostUnmoved);
  EXPECT_LE(rounds_of_victim(), kMostRounds);
}

// What is answered late because its host had made no room is the host's doing, until there is room.
TEST_F(FairnessTest, RoomThatIsNotSeenIsLate) {
  constexpr std::uint64_t kLongNs = 1'000'000;
  RawCq cq(host(), 1, 2);
  RawSq sq(host(), 1, 8);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  const auto lateness_after = [&](bool we_look) {
    device.engine().set_phase(engine::kAfterwards);
    const std::uint64_t before_ns = device.engine().stats(engine::kAfterwards).lateness_sum_ns;
    for (std::uint16_t cid = 0; cid < 2; ++cid) sq.push(make(NvmOpcode::flush, kNs512), cid);
    sq.ring();
    device.pump_for(kLongNs);
    EXPECT_TRUE(cq.ready());
    cq.take();
    EXPECT_FALSE(cq.ready());
    cq.ring();
    device.skip(we_look ? 1'000 : kLongNs);
    for (int i = 0; i < 3; ++i) serve();
    EXPECT_TRUE(cq.ready());
    cq.take();
    cq.ring();
    return device.engine().stats(engine::kAfterwards).lateness_sum_ns - before_ns;
  };
  EXPECT_LT(lateness_after(true), kLongNs / 2) << "but for the time between two looks";
  EXPECT_GE(lateness_after(false), kLongNs);
}

}  // namespace
}  // namespace flashmob::conformance
