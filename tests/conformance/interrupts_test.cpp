// Interrupts and their coalescing (Base 2.0c, 5.27.1.6 and 5.27.1.7; PCIe transport 1.0c, 3.2).
#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

class InterruptsTest : public DeviceTest {
 protected:
  QueuePair& pair_with_vector(std::uint16_t vector) {
    return driver().create_queue_pair({.sq_entries = 128, .interrupts = true, .vector = vector});
  }
  void submit(QueuePair& pair, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      Sqe sqe = data_.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
      sqe.cid = static_cast<std::uint16_t>(i);
      pair.submit() = sqe;
    }
    pair.ring_sq();
  }
  std::uint64_t interrupts(std::uint16_t vector) { return host().interrupt_counts[vector]; }
  void coalesce(std::uint8_t threshold, std::uint8_t time_100us) {
    driver().set_feature(0x08, threshold | (std::uint32_t{time_100us} << 8));
  }

 private:
  Buffer data_ = buffer(512);
};

TEST_F(InterruptsTest, EveryCompletionIsAnnounced) {
  QueuePair& pair = pair_with_vector(3);
  int calls = 0;
  host().door.set_interrupt(3, [&] { ++calls; });
  for (int i = 0; i < 10; ++i) {
    submit(pair, 1);
    ASSERT_EQ(wait(pair, 1).size(), 1u);
    device.pump_for(10'000);
    EXPECT_EQ(calls, i + 1);
  }
  host().door.set_interrupt(3, nullptr);
  submit(pair, 1);
  ASSERT_EQ(wait(pair, 1).size(), 1u);
  EXPECT_EQ(calls, 10);
}

TEST_F(InterruptsTest, OnlyTheQueuesOwnVector) {
  QueuePair& pair = pair_with_vector(5);
  submit(pair, 4);
  ASSERT_EQ(wait(pair, 4).size(), 4u);
  device.pump_for(10'000);
  for (std::uint16_t vector = 1; vector < 8; ++vector) EXPECT_EQ(interrupts(vector) != 0, vector == 5) << vector;
}

TEST_F(InterruptsTest, QueuesWithoutInterruptsAreSilent) {
  QueuePair& pair = driver().create_queue_pair({.sq_entries = 16, .interrupts = false, .vector = 4});
  submit(pair, 5);
  ASSERT_EQ(wait(pair, 5).size(), 5u);
  EXPECT_EQ(interrupts(4), 0u);
}

TEST_F(InterruptsTest, AdminCompletionsUseVectorZero) {
  const std::uint64_t before = interrupts(0);
  driver().get_feature(1);
  device.pump_for(10'000);
  EXPECT_GT(interrupts(0), before);
}

TEST_F(InterruptsTest, AnInterruptComesAfterItsEntry) {
  QueuePair& pair = pair_with_vector(1);
  bool entry_was_there = false;
  host().door.set_interrupt(1, [&] { pair.reap(8, [&](const Cqe&) { entry_was_there = true; }); });
  submit(pair, 1);
  device.pump_until([&] { return interrupts(1) > 0; });
  EXPECT_TRUE(entry_was_there);
}

TEST_F(InterruptsTest, CoalescingWaitsForTheThreshold) {
  coalesce(9, 50);  // ten entries, or five milliseconds
  QueuePair& pair = pair_with_vector(2);
  submit(pair, 9);
  ASSERT_EQ(wait(pair, 9).size(), 9u);
  device.pump_for(1'000'000);
  EXPECT_EQ(interrupts(2), 0u);
  submit(pair, 1);
  ASSERT_EQ(wait(pair, 1).size(), 1u);
  device.pump_for(100'000);
  EXPECT_EQ(interrupts(2), 1u);
}

TEST_F(InterruptsTest, CoalescingEndsAfterItsTime) {
  coalesce(255, 20);  // two milliseconds
  QueuePair& pair = pair_with_vector(2);
  submit(pair, 3);
  ASSERT_EQ(wait(pair, 3).size(), 3u);
  device.pump_for(1'000'000);
  EXPECT_EQ(interrupts(2), 0u);
  device.pump_for(1'500'000);
  EXPECT_EQ(interrupts(2), 1u) << "a lone completion may not wait for ever";
}

TEST_F(InterruptsTest, AVectorMayOptOutOfCoalescing) {
  coalesce(255, 255);
  driver().set_feature(0x09, 6 | (1u << 16));
  QueuePair& waits = pair_with_vector(5);
  QueuePair& at_once = pair_with_vector(6);
  submit(waits, 1);
  submit(at_once, 1);
  device.pump_for(1'000'000);
  EXPECT_EQ(interrupts(5), 0u);
  EXPECT_EQ(interrupts(6), 1u);
}

TEST_F(InterruptsTest, AdminCompletionsAreNeverCoalesced) {
  coalesce(255, 255);
  const std::uint64_t before = interrupts(0);
  driver().get_feature(1);
  device.pump_for(100'000);
  EXPECT_GT(interrupts(0), before);
}

}  // namespace
}  // namespace flashmob::conformance
