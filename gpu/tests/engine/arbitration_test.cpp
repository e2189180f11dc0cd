// Weighted round robin on the GPU engine (Base 2.0c, 3.4.4.2): who is fetched from where there is less room for
// requests than there are commands, under any schedule of the warps.
#include "engine_rig.h"

namespace flashmob::gpu {
namespace {

using controller::QueuePriority;
using nvme::NvmOpcode;

// An engine with fewer slots than its queues have commands.
RigOptions narrow(std::uint64_t seed) {
  RigOptions options;
  options.timing = rig_timing();
  options.timing.read_iops = 4e6;
  options.engine.slots = 32;
  options.engine.controllers = 2;
  options.engine.trace_entries = 1 << 16;
  options.fibres.seed = seed;
  options.fibres.schedule = seed % 2 == 0 ? simt::Schedule::timed : simt::Schedule::random;
  return options;
}

class Hosts {
 public:
  explicit Hosts(std::uint64_t seed) : rig_(narrow(seed)) {}

  EngineRig& rig() { return rig_; }
  void add(QueuePriority priority, std::uint32_t controller = 0) {
    queues_.push_back(&rig_.add_queue(64, 64, priority, controller));
  }
  // Keeps every queue full until so many commands more have been fetched; answers how many of them each queue had.
  std::vector<std::uint32_t> fetched(std::uint32_t count) {
    const std::size_t before = rig_.engine().trace().size();
    // One batch more, because an entry is counted before it is written.
    while (rig_.engine().trace().size() < before + count + engine::kBatch) {
      for (RigQueue* queue : queues_) {
        while (queue->free_slots() != 0) queue->submit(command(NvmOpcode::read, 0, 1, 5, 1, rig_.iova(0)));
        queue->ring();
      }
      rig_.pass(2'000);
      for (RigQueue* queue : queues_) queue->reap();
    }
    std::vector<std::uint32_t> shares(queues_.size());
    const auto trace = rig_.engine().trace();
    for (std::size_t i = before; i < before + count; ++i) ++shares[trace[i].sqid - 1u];
    return shares;
  }

 private:
  EngineRig rig_;
  std::vector<RigQueue*> queues_;
};

TEST(GpuEngineArbitration, ClassesShareByTheirWeightsWhichMayChange) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Hosts hosts(seed);
    for (const auto priority : {QueuePriority::low, QueuePriority::high, QueuePriority::medium}) hosts.add(priority);
    hosts.rig().engine().set_arbitration({.weighted = true, .high_weight = 5, .medium_weight = 1, .low_weight = 0});
    hosts.rig().start();
    hosts.fetched(100);
    auto shares = hosts.fetched(450);  // 50 rounds of six, two and one
    EXPECT_NEAR(shares[1], 300, 7) << "high, seed " << seed;
    EXPECT_NEAR(shares[2], 100, 3) << "medium, seed " << seed;
    EXPECT_NEAR(shares[0], 50, 2) << "low, seed " << seed;
    hosts.rig().engine().set_arbitration({.weighted = true, .high_weight = 0, .medium_weight = 0, .low_weight = 3});
    hosts.rig().change();
    hosts.fetched(100);
    shares = hosts.fetched(300);  // 50 rounds of one, one and four
    EXPECT_NEAR(shares[1], 50, 2) << "high, seed " << seed;
    EXPECT_NEAR(shares[2], 50, 2) << "medium, seed " << seed;
    EXPECT_NEAR(shares[0], 200, 5) << "low, seed " << seed;
    hosts.rig().end(engine::Run::stop);
  }
}

TEST(GpuEngineArbitration, UrgentCommandsLeaveNothingForOthers) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Hosts hosts(seed);
    for (const auto priority : {QueuePriority::low, QueuePriority::urgent, QueuePriority::high}) hosts.add(priority);
    hosts.rig().engine().set_arbitration({.weighted = true, .high_weight = 255, .medium_weight = 255, .low_weight = 9});
    hosts.rig().start();
    hosts.fetched(100);
    const auto shares = hosts.fetched(300);
    EXPECT_EQ(shares[1], 300u) << "seed " << seed;
    hosts.rig().end(engine::Run::stop);
  }
}

TEST(GpuEngineArbitration, QueuesOfAClassTakeTurnsByTheirBurst) {
  Hosts hosts(2);
  for (unsigned i = 0; i < 3; ++i) hosts.add(QueuePriority::medium);
  hosts.rig().engine().set_arbitration({.weighted = true, .burst = 2, .medium_weight = 3});
  hosts.rig().start();
  hosts.fetched(100);
  // A host that refills its queue a moment late misses a turn or two.
  for (const std::uint32_t share : hosts.fetched(300)) EXPECT_NEAR(share, 100, 12);
  hosts.rig().end(engine::Run::stop);
}

// Two controllers on one unit, one with weights and one without: each has its own rules.
TEST(GpuEngineArbitration, EachControllerHasItsOwnRules) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Hosts hosts(seed);
    hosts.add(QueuePriority::high, 0);
    hosts.add(QueuePriority::low, 0);
    hosts.add(QueuePriority::urgent, 1);  // which means nothing under plain round robin
    hosts.add(QueuePriority::low, 1);
    hosts.rig().engine().set_arbitration({.weighted = true, .high_weight = 3, .low_weight = 0}, 0);
    hosts.rig().engine().set_arbitration({.burst = 1}, 1);
    hosts.rig().start();
    hosts.fetched(100);
    const auto shares = hosts.fetched(1'000);
    EXPECT_NEAR(shares[0], 4.0 * shares[1], 0.15 * shares[0]) << "seed " << seed;
    EXPECT_NEAR(shares[2], shares[3], 0.1 * shares[2]) << "seed " << seed;
    // Nobody is kept from the unit by the other's wishes.
    EXPECT_GT(shares[0] + shares[1], 150u) << "seed " << seed;
    EXPECT_GT(shares[2] + shares[3], 150u) << "seed " << seed;
    hosts.rig().end(engine::Run::stop);
  }
}

}  // namespace
}  // namespace flashmob::gpu
