// Completion queues (Base 2.0c, 3.3.1 and 3.3.3): phase tags, full queues, the submission queue head.
#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

class CompletionQueueTest : public DeviceTest {
 protected:
  Sqe read_one() { return data_.attach(make(NvmOpcode::read, kNs512, 0, 1), 512); }

 private:
  Buffer data_ = buffer(512);
};

TEST_F(CompletionQueueTest, PhaseTurnsAtEveryWrap) {
  RawCq cq(host(), 1, 3);
  RawSq sq(host(), 1, 5);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  for (std::uint16_t cid = 0; cid < 100; ++cid) {
    sq.push(read_one(), cid);
    sq.ring();
    const auto entries = wait(cq, 1);
    ASSERT_EQ(entries.size(), 1u) << cid;
    EXPECT_EQ(entries[0].cid, cid);
    EXPECT_EQ(entries[0].status_phase & 1, (cid / 3 + 1) % 2);
    EXPECT_EQ(entries[0].sqhd, (cid + 1) % 5) << "SQHD is where the controller has read to";
    EXPECT_EQ(entries[0].sqid, 1);
    cq.ring();
  }
}

TEST_F(CompletionQueueTest, AFullQueueIsNeverOverrun) {
  constexpr std::uint16_t kCommands = 50;
  RawCq cq(host(), 1, 4);
  RawSq sq(host(), 1, 64);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  for (std::uint16_t cid = 0; cid < kCommands; ++cid) sq.push(read_one(), cid);
  sq.ring();
  device.pump_for(10'000'000);
  // Three entries were posted; the fourth slot stays as it was, or the queue would look empty.
  EXPECT_EQ(cq.at(3).status_phase & 1, 0);
  const Cqe first = cq.at(0);
  device.pump_for(100'000'000);
  EXPECT_EQ(std::memcmp(&first, &cq.at(0), sizeof first), 0) << "an entry was overwritten before it was consumed";

  std::vector<bool> seen(kCommands);
  for (std::uint16_t i = 0; i < kCommands; ++i) {
    const auto entries = wait(cq, 1);
    ASSERT_EQ(entries.size(), 1u) << i;
    EXPECT_FALSE(seen[entries[0].cid]);
    seen[entries[0].cid] = true;
    cq.ring();
  }
  device.pump_for(10'000'000);
  EXPECT_FALSE(cq.ready());
}

TEST_F(CompletionQueueTest, StatisticsCountCommandsOfAFullQueueOnce) {
  if (suite::on_other_engine != nullptr) GTEST_SKIP() << "the host engine's samples";
  constexpr std::uint16_t kCommands = 20;  // few enough for every one to be a sample
  RawCq cq(host(), 1, 4);
  RawSq sq(host(), 1, 64);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  for (std::uint16_t cid = 0; cid < kCommands; ++cid) sq.push(read_one(), cid);
  sq.ring();
  device.pump_for(10'000'000);
  const engine::FidelityStats stats = device.engine().stats(engine::kWarmUp);
  EXPECT_EQ(stats.completions, kCommands);
  EXPECT_EQ(stats.target_ns.count(), kCommands);
  EXPECT_EQ(stats.processing_ns.count(), kCommands);
}

TEST_F(CompletionQueueTest, OneFullQueueDoesNotStallAnother) {
  RawCq full(host(), 1, 2);
  RawSq busy(host(), 1, 32);
  RawCq free(host(), 2, 16);
  RawSq other(host(), 2, 16);
  ASSERT_EQ(create(full), Status::success);
  ASSERT_EQ(create(busy, full), Status::success);
  ASSERT_EQ(create(free), Status::success);
  ASSERT_EQ(create(other, free), Status::success);
  for (std::uint16_t cid = 0; cid < 20; ++cid) busy.push(read_one(), cid);
  busy.ring();
  device.pump_for(1'000'000);
  for (std::uint16_t cid = 0; cid < 10; ++cid) other.push(read_one(), cid);
  other.ring();
  EXPECT_EQ(wait(free, 10).size(), 10u);
}

TEST_F(CompletionQueueTest, SharedQueuesTellTheirSubmissionQueuesApart) {
  RawCq cq(host(), 1, 64);
  RawSq one(host(), 1, 8);
  RawSq two(host(), 2, 16);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(one, cq), Status::success);
  ASSERT_EQ(create(two, cq), Status::success);
  for (std::uint16_t cid = 0; cid < 5; ++cid) {
    one.push(read_one(), cid);
    two.push(read_one(), static_cast<std::uint16_t>(100 + cid));
  }
  two.ring();
  one.ring();
  for (const Cqe& cqe : wait(cq, 10)) {
    EXPECT_EQ(cqe.sqid, cqe.cid < 100 ? 1 : 2);
    EXPECT_EQ(cqe.sqhd, 5);
  }
}

TEST_F(CompletionQueueTest, DwordOneIsReserved) {
  RawCq cq(host(), 1, 8);
  RawSq sq(host(), 1, 8);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  sq.push(read_one(), 1);
  sq.ring();
  const auto entries = wait(cq, 1);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].dw0, 0u);
  EXPECT_EQ(entries[0].dw1, 0u);
}

TEST_F(CompletionQueueTest, DeepQueuesWrapRight) {
  QueuePair& pair = driver().create_queue_pair({.sq_entries = 1024});
  Buffer data = buffer(512);
  Sqe sqe = data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
  std::uint32_t submitted = 0;
  std::uint32_t completed = 0;
  std::vector<std::uint8_t> busy(1024);
  device.pump_until(
      [&] {
        pair.reap(2000, [&](const Cqe& cqe) {
          EXPECT_EQ(field_of(cqe), 0);
          EXPECT_EQ(busy[cqe.cid], 1);
          busy[cqe.cid] = 0;
          ++completed;
        });
        pair.ring_cq();
        while (pair.free_slots() > 0 && submitted < 20'000) {
          sqe.cid = 0;
          while (busy[sqe.cid] != 0) ++sqe.cid;
          busy[sqe.cid] = 1;
          pair.submit() = sqe;
          ++submitted;
        }
        pair.ring_sq();
        return completed == 20'000;
      },
      10'000'000'000);
  EXPECT_EQ(completed, 20'000u);
}

}  // namespace
}  // namespace flashmob::conformance
