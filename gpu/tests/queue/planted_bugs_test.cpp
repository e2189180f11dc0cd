// Faults put in on purpose: the seeded scheduler must find each within a thousand seeds and give a report that its seed
// replays word for word, and must find nothing in the same kernel without the fault.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "flashmob/gpu/simt/fibre.h"
#include "flashmob/gpu/ssd.h"
#include "queue/scripted_ssd.h"

namespace flashmob::gpu::testing {
namespace {

constexpr std::uint32_t kLanes = 12;
constexpr std::uint32_t kWords = ScriptedSsd::kBlockBytes / sizeof(std::uint64_t);

Command command(bool reads, std::uint64_t lba, void* data) {
  return {reads ? nvme::NvmOpcode::read : nvme::NvmOpcode::write,
          1,
          lba,
          1,
          reinterpret_cast<std::uint64_t>(data),
          ScriptedSsd::kBlockBytes};
}

struct Correct {
  template <class Lane>
  static Token submit(Lane& t, QueueRef queue, bool reads, std::uint64_t lba, void* data) {
    std::uint32_t slot = 0;
    for (Backoff backoff; !queue.claim(t, slot); backoff.pause(t)) queue.help(t);
    const Token token(queue, slot, queue.slot(slot).ticket.load(t));
    queue.fill(slot, command(reads, lba, data), nullptr);
    queue.publish(t, slot);
    queue.combine(t);
    return token;
  }
};

// The combiner may come between the two.
struct PublishedBeforeItsData {
  template <class Lane>
  static Token submit(Lane& t, QueueRef queue, bool reads, std::uint64_t lba, void* data) {
    std::uint32_t slot = 0;
    for (Backoff backoff; !queue.claim(t, slot); backoff.pause(t)) queue.help(t);
    const Token token(queue, slot, queue.slot(slot).ticket.load(t));
    queue.publish(t, slot);
    queue.fill(slot, command(reads, lba, data), nullptr);
    queue.combine(t);
    return token;
  }
};

// Who waits for a free slot keeps the one word that others need to bring their commands, and so their slots, further.
struct LockHeldWhileWaiting {
  template <class Lane>
  static Token submit(Lane& t, QueueRef queue, bool reads, std::uint64_t lba, void* data) {
    for (Backoff backoff; queue.get()->combiner.exchange(t, 1) != 0;) backoff.pause(t);
    std::uint32_t slot = 0;
    for (Backoff backoff; !queue.claim(t, slot); backoff.pause(t)) queue.reap(t, 1u << t.lane());
    const Token token(queue, slot, queue.slot(slot).ticket.load(t));
    queue.fill(slot, command(reads, lba, data), nullptr);
    queue.publish(t, slot);
    queue.get()->combiner.exchange(t, 0);
    queue.combine(t);
    return token;
  }
};

template <class Submission>
struct WriteAndReadBack {
  template <class Lane>
  void operator()(Lane& t, QueueRef queue, std::uint64_t* data, std::uint32_t* wrong) const {
    std::uint64_t* mine = data + t.thread() * kWords;
    const std::uint64_t lba = t.thread() * 4;
    for (std::uint64_t round = 1; round <= 2; ++round) {
      for (std::uint32_t i = 0; i < kWords; ++i) mine[i] = t.thread() + round * 1000;
      if (!Submission::submit(t, queue, false, lba, mine).wait(t).ok()) wrong[t.thread()] = 1;
      std::memset(mine, 0, ScriptedSsd::kBlockBytes);
      if (!Submission::submit(t, queue, true, lba, mine).wait(t).ok()) wrong[t.thread()] = 1;
      if (mine[7] != t.thread() + round * 1000) wrong[t.thread()] = 1;
    }
  }
};

// What went wrong, "" if nothing.
template <class Submission>
std::string run(ScriptedSsd& ssd, std::uint64_t seed) {
  ssd.reset(seed, {});
  const SsdRef ref = ssd.attach(
      {.queues = 1, .entries = 4, .cq_entries = 4, .max_transfer_bytes = kPageBytes, .timeout_ns = 1'000'000'000});
  auto* data = reinterpret_cast<std::uint64_t*>(ssd.allocate(kLanes * ScriptedSsd::kBlockBytes));
  std::uint32_t wrong[kLanes] = {};
  std::string report;
  try {
    simt::FibreDevice device(ssd, {.seed = seed, .patience_ns = 1'000'000, .stack_bytes = 32 << 10});
    device.run({.blocks = 1, .block_threads = kLanes}, WriteAndReadBack<Submission>{}, ref.queue(0), data, &wrong[0]);
  } catch (const simt::StuckError& e) {
    report += e.what();
  }
  for (std::uint32_t i = 0; i < kLanes; ++i) {
    if (wrong[i] != 0) report += "lane " + std::to_string(i) + " has got the wrong status or data\n";
  }
  for (const std::string& each : ssd.violations()) report += each + "\n";
  return report.empty() ? report : "seed " + std::to_string(seed) + "\n" + report;
}

template <class Submission>
std::string first_report(std::uint64_t& seed) {
  ScriptedSsd ssd;
  for (seed = 1; seed <= 1'000; ++seed) {
    if (std::string report = run<Submission>(ssd, seed); !report.empty()) return report;
  }
  return "";
}

TEST(PlantedBugs, ASlotPublishedBeforeItsDataIsFound) {
  std::uint64_t seed = 0;
  const std::string report = first_report<PublishedBeforeItsData>(seed);
  ASSERT_NE(report, "");
  ScriptedSsd ssd;
  EXPECT_EQ(run<PublishedBeforeItsData>(ssd, seed), report);
  RecordProperty("seed", std::to_string(seed));
}

TEST(PlantedBugs, ALockHeldWhileWaitingIsFound) {
  std::uint64_t seed = 0;
  const std::string report = first_report<LockHeldWhileWaiting>(seed);
  ASSERT_NE(report.find("livelock"), std::string::npos);
  // It names the line at which the lanes stand that want the lock.
  EXPECT_NE(report.find("planted_bugs_test.cpp:"), std::string::npos) << report;
  ScriptedSsd ssd;
  EXPECT_EQ(run<LockHeldWhileWaiting>(ssd, seed), report);
  RecordProperty("seed", std::to_string(seed));
}

TEST(PlantedBugs, TheSameKernelWithoutThemIsClean) {
  std::uint64_t seed = 0;
  EXPECT_EQ(first_report<Correct>(seed), "");
}

}  // namespace
}  // namespace flashmob::gpu::testing
