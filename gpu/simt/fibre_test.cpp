#include "flashmob/gpu/simt/fibre.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "flashmob/gpu/simt/word.h"

namespace flashmob::gpu::simt {
namespace {

FibreOptions options(std::uint64_t seed, Schedule schedule = Schedule::random) {
  FibreOptions o;
  o.seed = seed;
  o.schedule = schedule;
  o.patience_ns = 1'000'000;
  return o;
}

struct AddOne {
  template <class Lane>
  void operator()(Lane& t, Word<std::uint64_t>* sum, std::uint64_t times) const {
    for (std::uint64_t i = 0; i < times; ++i) sum->fetch_add(t, 1);
  }
};

TEST(Fibre, EveryThreadOfTheGridRunsOnce) {
  EmptyWorld world;
  FibreDevice device(world, options(1));
  Word<std::uint64_t> sum;
  device.run({.blocks = 5, .block_threads = 70}, AddOne{}, &sum, 3);
  EXPECT_EQ(sum.value, 5 * 70 * 3u);
}

// The classic lost update: only a switch between the load and the store shows it.
struct LosesUpdates {
  template <class Lane>
  void operator()(Lane& t, Word<std::uint64_t>* sum) const {
    sum->store(t, sum->load(t) + 1);
  }
};

TEST(Fibre, SwitchesBetweenAtomics) {
  EmptyWorld world;
  unsigned seen = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    FibreDevice device(world, options(seed));
    Word<std::uint64_t> sum;
    device.run({.blocks = 1, .block_threads = 8}, LosesUpdates{}, &sum);
    seen += sum.value != 8;
  }
  EXPECT_GE(seen, 10u);
}

struct RecordOrder {
  template <class Lane>
  void operator()(Lane& t, Word<std::uint32_t>* next, std::uint32_t* order) const {
    for (int i = 0; i < 4; ++i) order[next->fetch_add(t, 1)] = t.thread();
  }
};

std::vector<std::uint32_t> order_of(std::uint64_t seed) {
  EmptyWorld world;
  FibreDevice device(world, options(seed));
  Word<std::uint32_t> next;
  std::vector<std::uint32_t> order(4 * 64);
  device.run({.blocks = 2, .block_threads = 32}, RecordOrder{}, &next, order.data());
  return order;
}

TEST(Fibre, ASeedIsASchedule) {
  EXPECT_EQ(order_of(7), order_of(7));
  EXPECT_NE(order_of(7), order_of(8));
}

struct Collectives {
  template <class Lane>
  void operator()(Lane& t, std::uint32_t* wrong) const {
    const std::uint32_t lanes = t.lanes();
    const std::uint32_t odd = t.ballot(lanes, t.lane() % 2 == 1);
    if (odd != (lanes & 0xAAAAAAAAu)) ++*wrong;
    const std::uint64_t value = t.thread() * 3ull;
    const std::uint32_t last = count_lanes(lanes) - 1;
    if (t.shuffle(lanes, value, last) != (t.thread() - t.lane() + last) * 3ull) ++*wrong;
    if (t.match(lanes, t.lane() / 4) != (lanes & (0xFu << (t.lane() / 4 * 4)))) ++*wrong;
    // Two halves of a warp meet apart from each other, several times.
    const std::uint32_t half = t.lane() % 2 == 1 ? odd : lanes & ~odd;
    for (std::uint32_t i = 0; i < (t.lane() % 2 == 1 ? 5u : 3u); ++i) {
      if (t.ballot(half, true) != half) ++*wrong;
    }
    t.sync(lanes);
  }
};

TEST(Fibre, CollectivesMeetWholeAndPartialWarps) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    EmptyWorld world;
    FibreDevice device(world, options(seed));
    std::uint32_t wrong = 0;
    device.run({.blocks = 2, .block_threads = 45}, Collectives{}, &wrong);
    ASSERT_EQ(wrong, 0u) << "seed " << seed;
  }
}

struct SumInSharedMemory {
  template <class Lane>
  void operator()(Lane& t, std::uint32_t* sums) const {
    auto* slots = reinterpret_cast<std::uint32_t*>(t.shared());
    slots[t.thread_in_block()] = t.thread();
    t.sync_block();
    if (t.thread_in_block() == 0) sums[t.block()] = std::accumulate(slots, slots + t.block_threads(), 0u);
  }
};

TEST(Fibre, TheBarrierWaitsForTheWholeBlock) {
  EmptyWorld world;
  FibreDevice device(world, options(3));
  std::uint32_t sums[2] = {};
  device.run({.blocks = 2, .block_threads = 64, .shared_bytes = 256}, SumInSharedMemory{}, sums);
  EXPECT_EQ(sums[0], 63u * 64 / 2);
  EXPECT_EQ(sums[1], 63u * 64 / 2 + 64u * 64);
}

struct WaitsForever {
  template <class Lane>
  void operator()(Lane& t, Word<std::uint32_t>* flag) const {
    while (flag->load(t) == 0) t.pause(100);
  }
};

TEST(Fibre, ReportsALivelockWithEachWaitersPlace) {
  EmptyWorld world;
  FibreDevice device(world, options(5));
  Word<std::uint32_t> flag;
  try {
    device.run({.blocks = 1, .block_threads = 3}, WaitsForever{}, &flag);
    FAIL() << "it ended";
  } catch (const StuckError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("livelock"), std::string::npos) << text;
    EXPECT_NE(text.find("seed 5"), std::string::npos) << text;
    EXPECT_NE(text.find("fibre_test.cpp:"), std::string::npos) << text;
    EXPECT_NE(text.find("3 threads"), std::string::npos) << text;
  }
  // The device is empty again and usable.
  Word<std::uint64_t> sum;
  device.run({}, AddOne{}, &sum, 1);
  EXPECT_EQ(sum.value, 32u);
}

struct HalfMeets {
  template <class Lane>
  void operator()(Lane& t) const {
    if (t.lane() != 0) t.sync(t.lanes());
  }
};

TEST(Fibre, ReportsADeadlockInACollective) {
  EmptyWorld world;
  FibreDevice device(world, options(5));
  try {
    device.run({.blocks = 1, .block_threads = 32}, HalfMeets{});
    FAIL() << "it ended";
  } catch (const StuckError& error) {
    EXPECT_NE(std::string(error.what()).find("deadlock"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("31 threads"), std::string::npos) << error.what();
  }
}

struct Disagrees {
  template <class Lane>
  void operator()(Lane& t) const {
    if (t.lane() == 0)
      t.sync(t.lanes());
    else
      t.ballot(t.lanes(), true);
  }
};

TEST(Fibre, RefusesDifferentCollectivesInOneMeeting) {
  EmptyWorld world;
  FibreDevice device(world, options(5));
  EXPECT_THROW(device.run({.blocks = 1, .block_threads = 2}, Disagrees{}), DivergenceError);
}

struct Raises {
  template <class Lane>
  void operator()(Lane& t) const {
    if (t.thread() == 3) throw std::runtime_error("thread 3");
    t.pause(10);
  }
};

TEST(Fibre, PassesOnWhatALaneThrows) {
  EmptyWorld world;
  FibreDevice device(world, options(5));
  EXPECT_THROW(device.run({.blocks = 2}, Raises{}), std::runtime_error);
}

// What a lane has on its stack when it is cancelled may use the lane once more.
struct LeavesByAnAtomic {
  template <class Lane>
  struct Guard {
    Lane& t;
    Word<std::uint32_t>* left;
    ~Guard() {
      t.pause(10);
      left->fetch_add(t, 1);
    }
  };
  template <class Lane>
  void operator()(Lane& t, Word<std::uint32_t>* left) const {
    const Guard<Lane> guard{t, left};
    for (std::uint32_t round = 0;; ++round) {
      if (t.block() == 0 && t.thread() == 3 && round == 5) throw std::runtime_error("thread 3");
      t.sync(t.lanes());
    }
  }
};

TEST(Fibre, CancelledLanesAreUnwoundToTheirEnds) {
  for (const Schedule schedule : {Schedule::random, Schedule::timed}) {
    EmptyWorld world;
    FibreDevice device(world, options(5, schedule));
    Word<std::uint32_t> left;
    EXPECT_THROW(device.run({.blocks = 2, .block_threads = 64}, LeavesByAnAtomic{}, &left), std::runtime_error);
    EXPECT_EQ(left.value, 128u);
    // Their stacks serve the next kernel's lanes.
    Word<std::uint64_t> sum;
    device.run({.blocks = 2, .block_threads = 64}, AddOne{}, &sum, 3);
    EXPECT_EQ(sum.value, 128 * 3u);
  }
}

struct Computes {
  template <class Lane>
  void operator()(Lane& t, std::uint64_t* end_ns) const {
    t.busy(1000 * (1 + t.thread()));
    end_ns[t.thread()] = t.now_ns();
  }
};

TEST(Fibre, InTimedOrderWorkOverlaps) {
  EmptyWorld world(100);
  FibreDevice device(world, options(1, Schedule::timed));
  std::uint64_t end_ns[64] = {};
  device.run({.blocks = 2, .block_threads = 32}, Computes{}, end_ns);
  for (std::uint64_t i = 0; i < 64; ++i) EXPECT_EQ(end_ns[i], 100 + 1000 * (1 + i));
}

struct PingPong {
  template <class Lane>
  void operator()(Lane& t, Word<std::uint32_t>* ball, std::uint32_t me, std::uint32_t rounds) const {
    for (std::uint32_t i = 0; i < rounds; ++i) {
      while (ball->load(t) % 2 != me) t.pause(10);
      ball->fetch_add(t, 1);
    }
  }
};

TEST(Fibre, KernelsRunBesideEachOther) {
  EmptyWorld world;
  FibreDevice device(world, options(9));
  Word<std::uint32_t> ball;
  const auto ping = device.launch({.blocks = 1, .block_threads = 1}, PingPong{}, &ball, 0u, 50u);
  const auto pong = device.launch({.blocks = 1, .block_threads = 1}, PingPong{}, &ball, 1u, 50u);
  device.wait(pong);
  device.wait(ping);
  EXPECT_EQ(ball.value, 100u);
}

TEST(Fibre, AResidentKernelOutlivesWaits) {
  EmptyWorld world;
  FibreDevice device(world, options(9));
  Word<std::uint32_t> flag;
  const auto resident = device.launch({.blocks = 1, .block_threads = 4}, WaitsForever{}, &flag);
  device.pass(10'000);
  EXPECT_FALSE(device.finished(resident));
  Word<std::uint64_t> sum;
  device.run({}, AddOne{}, &sum, 1);
  EXPECT_FALSE(device.finished(resident));
  flag.value = 1;
  device.wait(resident);
  EXPECT_TRUE(device.finished(resident));
}

TEST(Fibre, HundredThousandLanes) {
  EmptyWorld world;
  auto o = options(2);
  o.stack_bytes = 16 << 10;
  FibreDevice device(world, o);
  Word<std::uint64_t> sum;
  device.run({.blocks = 100, .block_threads = 1000}, AddOne{}, &sum, 1);
  EXPECT_EQ(sum.value, 100'000u);
}

}  // namespace
}  // namespace flashmob::gpu::simt
