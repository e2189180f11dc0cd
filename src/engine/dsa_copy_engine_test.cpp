// The DSA copy engine over a work queue in software: descriptors, batches, and everything that can go wrong.
#include "engine/dsa_copy_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "engine/dsa_queue_model.h"

namespace flashmob::engine::dsa {
namespace {

constexpr std::uint32_t kBlock = 512;
constexpr std::size_t kBlocks = 600;
constexpr std::uint64_t kNever = UINT64_MAX;

class DsaCopyEngineTest : public testing::Test {
 protected:
  DsaCopyEngineTest() : from_(kBlocks * kBlock), to_(kBlocks * kBlock) {
    Rng rng(3);
    for (std::byte& byte : from_) byte = static_cast<std::byte>(rng.next());
  }

  void make(Pace pace, const Options& options = {},
            const QueueInfo& info = {"wq0.0", true, DsaCopyEngine::kMaxBatches, 1024, 2 << 20}) {
    auto queue = std::make_unique<ModelQueue>(pace, info);
    queue_ = queue.get();
    engine_ = std::make_unique<DsaCopyEngine>(std::move(queue), options);
  }

  Copy block(std::uint32_t index) {
    return {to_.data() + index * kBlock, from_.data() + index * kBlock, kBlock, index};
  }
  std::vector<Copy> blocks(std::uint32_t first, std::uint32_t count) {
    std::vector<Copy> copies;
    for (std::uint32_t i = 0; i < count; ++i) copies.push_back(block(first + i));
    return copies;
  }
  void submit(std::uint32_t first, std::uint32_t count, bool streaming = false) {
    const std::vector<Copy> copies = blocks(first, count);
    CopyRun run{copies};
    if (!engine_->submit(run, count, streaming)) return;
    for (const Copy& copy : copies) EXPECT_TRUE(done_.insert(copy.token).second) << copy.token << " twice";
  }
  // Every token that a poll hands back, each of them once.
  std::size_t poll() {
    std::uint32_t tokens[7];
    std::size_t total = 0;
    while (const std::size_t count = engine_->poll(tokens)) {
      for (std::size_t i = 0; i < count; ++i) EXPECT_TRUE(done_.insert(tokens[i]).second) << tokens[i] << " twice";
      total += count;
    }
    return total;
  }
  void poll_until(std::size_t tokens) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (done_.size() < tokens) {
      poll();
      ASSERT_LT(std::chrono::steady_clock::now(), limit) << done_.size() << " of " << tokens;
    }
  }
  void expect_copied(std::uint32_t count) {
    EXPECT_EQ(done_.size(), count);
    EXPECT_EQ(std::memcmp(to_.data(), from_.data(), count * kBlock), 0);
    const auto untouched = [](std::byte byte) { return byte == std::byte{0}; };
    EXPECT_TRUE(std::all_of(to_.begin() + count * kBlock, to_.end(), untouched));
  }

  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
  ModelQueue* queue_ = nullptr;
  std::unique_ptr<DsaCopyEngine> engine_;
  std::set<std::uint32_t> done_;
};

TEST_F(DsaCopyEngineTest, OneCopyIsOneDescriptor) {
  make(Pace::when_told);
  submit(0, 1);
  EXPECT_EQ(queue_->submitted, 1u);
  EXPECT_EQ(poll(), 0u) << "nothing is done before the device says so";
  queue_->run();
  EXPECT_EQ(poll(), 1u);
  expect_copied(1);
  EXPECT_EQ(engine_->counters().offloaded, 1u);
  EXPECT_EQ(engine_->counters().fallbacks, 0u);
}

TEST_F(DsaCopyEngineTest, DescriptorsSayWhatTheSpecificationAsksFor) {
  make(Pace::when_told);
  std::vector<Descriptor> seen;
  queue_->fate = [&](const Descriptor& d) {
    seen.push_back(d);
    return Fate{};
  };
  submit(0, 3, false);
  submit(3, 2, true);
  queue_->run();
  poll();
  queue_->run();
  poll_until(5);
  ASSERT_EQ(seen.size(), 7u) << "two batches: of three, and of two";
  EXPECT_EQ(seen[0].opcode(), Opcode::batch);
  EXPECT_EQ(seen[0].size, 3u);
  EXPECT_EQ(seen[0].flags(), kFlagRecordAddressValid | kFlagRequestRecord);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Descriptor& d = seen[1 + i];
    EXPECT_EQ(d.opcode(), Opcode::memory_move);
    EXPECT_EQ(d.flags(), kFlagRecordAddressValid | kFlagCacheControl) << "successful members write no records";
    EXPECT_EQ(d.source, reinterpret_cast<std::uint64_t>(block(i).from));
    EXPECT_EQ(d.destination, reinterpret_cast<std::uint64_t>(block(i).to));
    EXPECT_EQ(d.size, kBlock);
    EXPECT_EQ(d.pasid, 0u) << "ENQCMD and the queue fill it in";
  }
  EXPECT_EQ(seen[5].flags(), kFlagRecordAddressValid) << "streaming copies bypass the cache";
  EXPECT_NE(seen[1].record, seen[2].record);
  expect_copied(5);
}

TEST_F(DsaCopyEngineTest, FullBatchesGoAtOnceAndSeveralAreInFlight) {
  make(Pace::when_told, {.issue_timeout_ns = kNever});
  submit(0, 40);
  EXPECT_EQ(queue_->submitted, 2u) << "two batches of 16; eight copies wait for company";
  submit(40, 8);
  EXPECT_EQ(queue_->submitted, 3u);
  EXPECT_EQ(poll(), 0u);
  EXPECT_EQ(queue_->run(2), 2u);
  EXPECT_EQ(poll(), 32u) << "the third batch goes on";
  queue_->run();
  poll();
  expect_copied(48);
}

TEST_F(DsaCopyEngineTest, AnIncompleteBatchGoesWhenTheDeviceIsIdleOrAfterItsTimeOut) {
  make(Pace::when_told, {.issue_timeout_ns = kNever});
  submit(0, 1);
  EXPECT_EQ(queue_->submitted, 1u) << "an idle device gets whatever there is";
  submit(1, 3);
  poll();
  EXPECT_EQ(queue_->submitted, 1u) << "a busy one is left alone";
  queue_->run();
  poll();
  EXPECT_EQ(queue_->submitted, 2u) << "until it has finished";
  queue_->run();
  poll_until(4);

  make(Pace::when_told, {.issue_timeout_ns = 1'000});
  done_.clear();
  submit(0, 1);
  submit(1, 3);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (queue_->submitted < 2 && std::chrono::steady_clock::now() < limit) poll();
  EXPECT_EQ(queue_->submitted, 2u) << "or until the time-out";
  queue_->run();
  poll_until(4);
  expect_copied(4);
}

TEST_F(DsaCopyEngineTest, BatchesAreNoLargerThanTheQueueAllows) {
  make(Pace::at_once, {}, {"wq0.0", true, 32, 4, 2 << 20});
  submit(0, 30);
  poll_until(30);
  expect_copied(30);
  EXPECT_EQ(queue_->submitted, 8u);
  EXPECT_EQ(engine_->counters().errors, 0u);

  make(Pace::at_once, {}, {"wq0.0", true, 32, 0, 2 << 20});
  done_.clear();
  submit(0, 5);
  poll_until(5);
  EXPECT_EQ(queue_->submitted, 5u) << "no batches at all";
}

TEST_F(DsaCopyEngineTest, ADedicatedQueueIsNeverOverrun) {
  make(Pace::when_told, {.batch_copies = 1}, {"wq0.0", false, 4, 16, 2 << 20});
  submit(0, 20);
  EXPECT_EQ(queue_->submitted, 4u);
  while (done_.size() < 20) {
    queue_->run(1);
    poll();
  }
  EXPECT_EQ(queue_->overflows, 0u);
  expect_copied(20);
  EXPECT_EQ(engine_->describe(), "dsa/wq0.0 dedicated");
}

TEST_F(DsaCopyEngineTest, TheCpuMakesCopiesThatTheDeviceDoesNotTake) {
  make(Pace::at_once, {}, {"wq0.0", true, 32, 16, 256});
  submit(0, 3);
  poll_until(3);
  expect_copied(3);
  EXPECT_EQ(queue_->submitted, 0u) << "larger than its largest transfer";
  EXPECT_EQ(engine_->counters().refusals, 3u);
}

TEST_F(DsaCopyEngineTest, TheCpuHelpsWhenEveryBatchIsTaken) {
  make(Pace::when_told, {.batch_copies = 4});
  submit(0, 512);
  EXPECT_EQ(engine_->counters().fallbacks, 512u - 4 * DsaCopyEngine::kMaxBatches);
  while (done_.size() < 512) {
    queue_->run();
    poll();
  }
  expect_copied(512);
  EXPECT_EQ(engine_->counters().offloaded, 4u * DsaCopyEngine::kMaxBatches);
}

TEST_F(DsaCopyEngineTest, AMissingPageIsFinishedByTheCpu) {
  for (const bool alone : {true, false}) {
    for (const bool backwards : {false, true}) {
      make(Pace::at_once);
      std::fill(to_.begin(), to_.end(), std::byte{0});
      done_.clear();
      queue_->fate = [&](const Descriptor& d) {
        Fate fate;
        const std::uint64_t odd = reinterpret_cast<std::uint64_t>(block(alone ? 0 : 1).from);
        if (d.opcode() == Opcode::memory_move && d.source == odd) fate = {{}, 100, backwards, {}};
        return fate;
      };
      submit(0, alone ? 1 : 4);
      poll_until(alone ? 1 : 4);
      expect_copied(alone ? 1 : 4);
      EXPECT_EQ(engine_->counters().page_faults, 1u);
      EXPECT_EQ(engine_->counters().fallbacks, 1u);
      EXPECT_EQ(engine_->counters().offloaded, alone ? 0u : 3u);
      EXPECT_EQ(engine_->counters().errors, 0u);
    }
  }
}

TEST_F(DsaCopyEngineTest, MissingPagesNeverMakeItGiveUp) {
  make(Pace::at_once);
  queue_->fate = [](const Descriptor& d) {
    Fate fate;
    if (d.opcode() == Opcode::memory_move) fate.fault_after = 0;
    return fate;
  };
  for (std::uint32_t i = 0; i < 100; ++i) submit(5 * i, 5);
  poll_until(500);
  expect_copied(500);
  EXPECT_EQ(engine_->counters().page_faults, 500u);
  EXPECT_FALSE(queue_->closed);
}

TEST_F(DsaCopyEngineTest, ErrorsOfMembersAndOfListsAreCopiedByTheCpu) {
  for (const Opcode wrong : {Opcode::memory_move, Opcode::batch}) {
    for (const Status status : {Status::unsupported_opcode, Status::invalid_flags, Status::batch_page_fault}) {
      if (wrong == Opcode::memory_move && status == Status::batch_page_fault) continue;
      make(Pace::at_once);
      std::fill(to_.begin(), to_.end(), std::byte{0});
      done_.clear();
      queue_->fate = [&](const Descriptor& d) {
        Fate fate;
        if (d.opcode() == wrong) fate.error = status;
        return fate;
      };
      submit(0, 4);
      poll_until(4);
      expect_copied(4);
      const CopyCounters counters = engine_->counters();
      EXPECT_EQ(counters.fallbacks, 4u);
      EXPECT_EQ(status == Status::batch_page_fault ? counters.page_faults : counters.errors, 4u);
      // A record that was written once is read afresh the next time.
      queue_->fate = nullptr;
      submit(4, 4);
      poll_until(8);
      expect_copied(8);
      EXPECT_EQ(engine_->counters().offloaded, 4u);
    }
  }
}

TEST_F(DsaCopyEngineTest, ADeviceThatOnlyFailsIsGivenUp) {
  make(Pace::at_once);
  queue_->fate = [](const Descriptor&) {
    Fate fate;
    fate.error = Status::invalid_flags;
    return fate;
  };
  for (std::uint32_t i = 0; i < 20; ++i) {
    submit(2 * i, 2);
    poll_until(2 * i + 2);
  }
  EXPECT_TRUE(queue_->closed);
  EXPECT_EQ(queue_->submitted, 8u) << "eight bad batches in a row are enough";
  expect_copied(40);
  EXPECT_EQ(engine_->counters().fallbacks, 40u);
}

TEST_F(DsaCopyEngineTest, AFullSharedQueueIsTriedAgain) {
  make(Pace::when_told, {.refusal_timeout_ns = kNever});
  queue_->refuse = 3;
  submit(0, 2);
  EXPECT_EQ(queue_->submitted, 0u);
  for (int i = 0; i < 3; ++i) poll();
  EXPECT_EQ(queue_->submitted, 1u);
  queue_->run();
  poll_until(2);
  EXPECT_EQ(queue_->refused, 3u);
  EXPECT_EQ(engine_->counters().offloaded, 2u);
}

TEST_F(DsaCopyEngineTest, AQueueThatStaysFullIsGoneRound) {
  make(Pace::when_told, {.refusal_timeout_ns = 10'000});
  submit(0, 20);
  queue_->refuse = -1;
  submit(20, 40);
  EXPECT_EQ(queue_->submitted, 1u);
  queue_->run();
  poll_until(60);
  expect_copied(60);
  EXPECT_FALSE(queue_->closed);
  EXPECT_EQ(engine_->counters().offloaded, 16u);
  EXPECT_EQ(engine_->counters().refusals, 44u);
  queue_->refuse = 0;
  submit(60, 2);
  queue_->run();
  poll_until(62);
  EXPECT_EQ(engine_->counters().offloaded, 18u) << "once there is room, it is used again";
}

TEST_F(DsaCopyEngineTest, ABatchThatNeverFinishesIsCopiedByTheCpuOnceTheQueueIsClosed) {
  make(Pace::when_told, {.issue_timeout_ns = kNever, .wait_timeout_ns = 2'000'000});
  queue_->never_finishes = [](std::uint64_t number) { return number == 1; };
  submit(0, 50);  // three batches, the second of which is lost, and two copies that wait
  queue_->run();
  poll();
  EXPECT_EQ(done_.size(), 16u);
  EXPECT_FALSE(queue_->closed);
  poll_until(50);
  EXPECT_TRUE(queue_->closed) << "before the CPU copied anything: a late write must not follow";
  expect_copied(50);
  EXPECT_EQ(engine_->counters().lost, 16u);
  EXPECT_EQ(engine_->counters().offloaded, 32u) << "the third batch was done";
  EXPECT_EQ(engine_->counters().fallbacks, 18u);
  submit(50, 100);
  poll_until(150);
  expect_copied(150);
  EXPECT_EQ(queue_->submitted, 3u);
}

TEST_F(DsaCopyEngineTest, CopiesInFlightEndWithTheEngine) {
  auto queue = std::make_unique<ModelQueue>(Pace::own_thread);
  queue->fate = [](const Descriptor&) {
    Fate fate;
    fate.delay = std::chrono::microseconds(100);
    return fate;
  };
  auto engine = std::make_unique<DsaCopyEngine>(std::move(queue), Options{});
  const std::vector<Copy> copies = blocks(0, 100);
  CopyRun run{copies};
  EXPECT_FALSE(engine->submit(run, 100, false));
  engine.reset();  // sanitizers watch the descriptors and the buffers
  to_.clear();
  to_.shrink_to_fit();
}

TEST_F(DsaCopyEngineTest, RandomCopiesWithRandomMisfortunesOnAThread) {
  Rng fortune(17);
  make(Pace::own_thread, {.issue_timeout_ns = 5'000, .refusal_timeout_ns = 20'000});
  queue_->fate = [&fortune](const Descriptor& d) {
    Fate fate;
    if (fortune.below(10) == 0) fate.error = Status::invalid_flags;
    if (d.opcode() == Opcode::memory_move && fortune.below(5) == 0)
      fate.fault_after = static_cast<std::uint32_t>(fortune.below(d.size));
    fate.backwards = fortune.below(2) == 0;
    return fate;
  };
  Rng rng(8);
  std::uint32_t next = 0;
  while (next < kBlocks) {
    if (rng.below(8) == 0) queue_->refuse = static_cast<int>(rng.below(4));
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(1 + rng.below(48), kBlocks - next));
    while (next + count - done_.size() > CopyEngine::kMaxUnpolled) poll();
    submit(next, count, rng.below(2) == 0);
    next += count;
    poll();
  }
  poll_until(kBlocks);
  expect_copied(kBlocks);
  const CopyCounters counters = engine_->counters();
  EXPECT_EQ(counters.offloaded + counters.fallbacks, kBlocks);
  EXPECT_GT(counters.page_faults, 0u);
  EXPECT_GT(counters.errors, 0u);
}

TEST(CopyCounters, AddUp) {
  CopyCounters sum{1, 2, 3, 4, 5, 6};
  sum.add({10, 20, 30, 40, 50, 60});
  EXPECT_EQ(sum.offloaded, 11u);
  EXPECT_EQ(sum.fallbacks, 22u);
  EXPECT_EQ(sum.page_faults, 33u);
  EXPECT_EQ(sum.errors, 44u);
  EXPECT_EQ(sum.refusals, 55u);
  EXPECT_EQ(sum.lost, 66u);
}

// On a machine that has the device.
TEST(DsaHardware, CopiesThroughARealWorkQueue) {
  std::unique_ptr<CopyEngine> engine;
  try {
    engine = make_copy_engine();
  } catch (const ConfigError& error) {
    GTEST_SKIP() << error.what();
  }
  std::vector<std::byte> from(256 * 4096), to(256 * 4096);
  Rng rng(1);
  for (std::byte& byte : from) byte = static_cast<std::byte>(rng.next());
  std::vector<Copy> copies;
  for (std::uint32_t i = 0; i < 256; ++i) copies.push_back({to.data() + 4096 * i, from.data() + 4096 * i, 4096, i});
  for (int round = 0; round < 100; ++round) {
    std::fill(to.begin(), to.end(), std::byte{0});
    CopyRun run{copies};
    std::uint32_t tokens[256];
    if (!engine->submit(run, copies.size(), round % 2 != 0))
      for (std::size_t done = 0; done < copies.size();) done += engine->poll(tokens);
    ASSERT_EQ(std::memcmp(to.data(), from.data(), from.size()), 0) << engine->describe();
  }
  EXPECT_GT(engine->counters().offloaded, 0u) << engine->describe();
  EXPECT_EQ(engine->counters().errors, 0u);
  EXPECT_EQ(engine->counters().lost, 0u);
}

}  // namespace
}  // namespace flashmob::engine::dsa
