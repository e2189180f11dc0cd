// Queue operations, resets and the end of an engine while commands wait for a slow medium: threads are stopped between
// two rounds, and none of them may be waiting then for another one that stands already.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "api/direct_media_test_support.h"

namespace flashmob::api::direct_media {
namespace {

// A command on each of two queues, which different threads of the engine serve: one whose transfer holds its blocks
// while the medium stands still, and one whose thread waits for these blocks.
class TwoThreadsAtOneBlock : public testing::TestWithParam<Shape> {
 protected:
  TwoThreadsAtOneBlock() : machine(GetParam()), memory(machine.door, 8192) {
    auto& holds = machine.driver->create_queue_pair({.sq_entries = 8});
    auto& waits = machine.driver->create_queue_pair({.sq_entries = 8});
    machine.store->stands_still = true;
    nvme::Sqe write = command(nvme::NvmOpcode::write, 0, 0, 8);
    write.prp1 = memory.iova();
    holds.submit() = write;
    holds.ring_sq();
    EXPECT_TRUE(within(milliseconds(5000), [&] { return machine.store->under_way == 1; }));
    nvme::Sqe compare = command(nvme::NvmOpcode::compare, 1, 0, 8);
    compare.prp1 = memory.iova() + 4096;
    waits.submit() = compare;
    waits.ring_sq();
    // There is nothing to see of a thread that waits.
    std::this_thread::sleep_for(milliseconds(30));
  }

  // Runs it while the medium stands still, and for a while after that.
  void during(const std::function<void()>& operation) {
    std::thread disk([this] {
      std::this_thread::sleep_for(milliseconds(100));
      machine.store->stands_still = false;
    });
    std::atomic<bool> is_done{false};
    std::thread patience([&] {
      if (within(milliseconds(30'000), [&] { return is_done.load(); })) return;
      std::fputs("the engine's threads wait for each other\n", stderr);
      std::_Exit(1);
    });
    operation();
    is_done = true;
    patience.join();
    disk.join();
  }

  Machine machine;
  driver::DmaMemory memory;
};

TEST_P(TwoThreadsAtOneBlock, AreReset) {
  during([&] { machine.driver->disable(); });
  EXPECT_TRUE(machine.comes_to_rest());
  EXPECT_EQ(machine.store->under_way, 0u);
}

TEST_P(TwoThreadsAtOneBlock, GetAnotherQueue) {
  during([&] { machine.driver->create_queue_pair({.sq_entries = 8}); });
}

TEST_P(TwoThreadsAtOneBlock, AreStopped) {
  during([&] { machine.stop(); });
  EXPECT_EQ(machine.store->under_way, 0u);
  machine.restart();
}

INSTANTIATE_TEST_SUITE_P(Threads, TwoThreadsAtOneBlock,
                         testing::Values(Shape{.units = 2}, Shape{.workers = 2}, Shape{.units = 2, .workers = 1}),
                         [](const auto& shape) {
                           return std::to_string(shape.param.units) + "units" + std::to_string(shape.param.workers) +
                                  "workers";
                         });

// A thread looks up after each command that has waited for the medium, not after all that its host has rung.
TEST(CommandsThatWaitForTheMedium, HoldUpAResetOneByOne) {
  for (const Shape& shape : {Shape{}, Shape{.units = 2}, Shape{.workers = 1}}) {
    Machine machine(shape);
    machine.driver->create_queue_pair({.sq_entries = 8});
    auto& pair = machine.driver->create_queue_pair({.sq_entries = 256});
    machine.store->waits_ms = 5;
    driver::DmaMemory memory(machine.door, 4096);
    for (std::uint16_t i = 0; i < 127; ++i) {
      for (const bool is_first : {true, false}) {
        const auto cid = static_cast<std::uint16_t>(2 * i + (is_first ? 0 : 1));
        nvme::Sqe half = command(is_first ? nvme::NvmOpcode::compare : nvme::NvmOpcode::write, cid, 8u * i, 8);
        half.flags = is_first ? nvme::kFlagFuseFirst : nvme::kFlagFuseSecond;
        half.prp1 = memory.iova();
        pair.submit() = half;
      }
    }
    pair.ring_sq();
    ASSERT_TRUE(within(milliseconds(5000), [&] { return machine.store->waited_for >= 3; }));
    const std::uint64_t before = machine.store->waited_for;
    machine.driver->disable();
    EXPECT_LE(machine.store->waited_for - before, 10u) << shape.units << " " << shape.workers;
    machine.store->waits_ms = 0;
    EXPECT_TRUE(machine.comes_to_rest());
  }
}

}  // namespace
}  // namespace flashmob::api::direct_media
