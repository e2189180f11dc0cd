// Several service units and movers under random schedules: nothing is lost or done twice, what is read is what was
// written, and together they keep the one model's rate.
#include <algorithm>
#include <cstdlib>

#include "engine_rig.h"

namespace flashmob::gpu {
namespace {

using nvme::NvmOpcode;

std::uint64_t seeds(std::uint64_t usual) {
  const char* const wish = std::getenv("FLASHMOB_GPU_SEEDS");
  return wish == nullptr ? usual : std::min<std::uint64_t>(usual, std::strtoull(wish, nullptr, 10));
}

// Writes a block's number into every one of its words and reads it back, each block by one queue.
void write_and_read(std::uint64_t seed) {
  RigOptions options;
  options.timing = rig_timing();
  options.engine.units = 2;
  options.engine.movers = 2;
  options.engine.slots = 32;
  options.fibres.seed = seed;
  options.fibres.schedule = simt::Schedule::random;
  EngineRig rig(options);
  constexpr std::uint32_t kUnitQueues = 4, kCommands = 24;
  RigQueue* queues[kUnitQueues];
  for (RigQueue*& queue : queues) queue = &rig.add_queue(13, 9);
  rig.start();
  for (const NvmOpcode opcode : {NvmOpcode::write, NvmOpcode::read}) {
    std::vector<std::uint32_t> answers(kUnitQueues * kCommands);
    std::uint32_t sent[kUnitQueues] = {}, done = 0;
    auto* const words = reinterpret_cast<std::uint64_t*>(rig.host());
    for (std::uint64_t i = 0; i < kUnitQueues * kCommands * 64; ++i) words[i] = opcode == NvmOpcode::write ? i / 64 : 0;
    for (int round = 0; round < 5'000 && done < kUnitQueues * kCommands; ++round) {
      for (std::uint32_t q = 0; q < kUnitQueues; ++q) {
        for (; sent[q] < kCommands && queues[q]->free_slots() != 0; ++sent[q]) {
          const std::uint32_t block = q * kCommands + sent[q];
          queues[q]->submit(
              command(opcode, static_cast<std::uint16_t>(sent[q]), 1, block, 1, rig.iova(512 * std::uint64_t{block})));
        }
        queues[q]->ring();
      }
      rig.pass(1'000);
      for (std::uint32_t q = 0; q < kUnitQueues; ++q) {
        for (const nvme::Cqe& cqe : queues[q]->reap(3)) {
          ASSERT_LT(cqe.cid, kCommands);
          ASSERT_EQ(status_of(cqe), nvme::Status::success);
          ++answers[q * kCommands + cqe.cid];
          ++done;
        }
      }
    }
    for (const std::uint32_t count : answers) ASSERT_EQ(count, 1u);
    for (std::uint64_t i = 0; i < kUnitQueues * kCommands * 64; ++i) ASSERT_EQ(words[i], i / 64);
  }
  rig.end();
  for (const engine::TraceEntry& entry : rig.engine().trace()) ASSERT_GE(entry.posted_ns, entry.target_ns);
  ASSERT_EQ(rig.engine().fidelity(0).completions, 2 * kUnitQueues * kCommands);
}

TEST(GpuEngineUnits, LoseNothingUnderAnySchedule) {
  for (std::uint64_t seed = 1; seed <= seeds(12); ++seed) {
    write_and_read(seed);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(GpuEngineUnits, TogetherKeepTheModelsRateAndSayHowLateTheyWere) {
  RigOptions options;
  options.timing = rig_timing();
  options.timing.read_iops = 2e6;
  options.engine.units = 2;
  EngineRig rig(options);
  RigQueue* queues[] = {&rig.add_queue(), &rig.add_queue()};
  rig.start();
  std::uint64_t done = 0;
  const std::uint64_t start_ns = rig.now_ns();
  while (rig.now_ns() - start_ns < 150'000) {
    for (RigQueue* queue : queues) {
      while (queue->free_slots() != 0) queue->submit(command(NvmOpcode::read, 0, 1, 5, 1, rig.iova(0)));
      queue->ring();
    }
    rig.pass(2'000);
    for (RigQueue* queue : queues) done += queue->reap().size();
  }
  rig.end();
  // 2 million a second, once the first latency has passed.
  EXPECT_NEAR(static_cast<double>(done), 2e6 * 140e-6, 8);
  const auto stats = rig.engine().fidelity(0);
  EXPECT_EQ(stats.completions, done + queues[0]->reap().size() + queues[1]->reap().size());
  EXPECT_GT(stats.lateness_ns.count(), 0u);
  EXPECT_LT(stats.lateness_ns.quantile(0.99), 2'000u);
  EXPECT_GT(stats.target_ns.quantile(0.5), 10'000u);
}

}  // namespace
}  // namespace flashmob::gpu
