// Faults that GPU storage libraries before this one have had in their queues, each as a test that they would fail.
#include <cstring>
#include <type_traits>

#include "nvme/status.h"
#include "queue/fixture.h"
#include "queue/kernels.h"
#include "queue/scripted_ssd.h"

namespace flashmob::gpu::testing {
namespace {

using KnownDefects = OnVirtualSsd;

void expect_all(const std::vector<std::uint32_t>& done, std::uint32_t rounds) {
  for (std::size_t i = 0; i < done.size(); ++i) ASSERT_EQ(done[i], rounds) << "thread " << i;
}

// AGILE: a slot that is taken between reading the position and locking it leaves a hole, and all behind it hang.
TEST_F(KnownDefects, ASlotTakenByALaneThatIsHeldUpLeavesNoHole) {
  for (const std::uint32_t entries : {3u, 8u}) {
    const SsdRef ref = make_queues({.queues = 1, .entries = entries});
    std::byte* data = allocate(32 * 512);
    std::vector<std::uint32_t> done(32);
    simt::Word<std::uint32_t> finished;
    simt::FibreDevice device(world, random_schedule(entries));
    device.run({.blocks = 1}, HeldUp{}, ref, data, &finished, done.data());
    expect_all(done, 4);
  }
}

// AGILE: a queue of 32 hangs after one command, and the depth must be a multiple of 32.
TEST_F(KnownDefects, AnyDepthWorksAlsoTwoAndThirtyTwoAndThoseAround) {
  std::byte* data = allocate(64 * 512);
  for (const std::uint32_t entries : {2u, 3u, 31u, 32u, 33u, 100u}) {
    const SsdRef ref = make_queues({.queues = 1, .entries = entries});
    std::vector<std::uint32_t> done(64);
    simt::FibreDevice device(world, timed_schedule());
    device.run({.blocks = 2}, WriteRead{}, ref, data, 5, done.data());
    expect_all(done, 5);
    EXPECT_EQ(stats(ref).completed, 640u);
  }
}

TEST_F(KnownDefects, TheDeepestQueueGoesRoundItsRing) {
  const SsdRef ref = make_queues({.queues = 1, .entries = 65'536, .max_transfer_bytes = 4096});
  const auto many = [](auto& t, SsdRef on, std::uint32_t* failed) {
    for (int i = 0; i < 1'040; ++i) *failed += !on.flush(t, 0).wait(t).ok();
  };
  std::uint32_t failed = 0;
  simt::FibreDevice device(world, timed_schedule());
  device.run({.blocks = 2}, many, ref, &failed);
  EXPECT_EQ(failed, 0u);
  EXPECT_EQ(stats(ref).completed, 2 * 32 * 1'040u);  // more than 65,536
}

// AGILE: the completion doorbell moves only when a window of 32 is full. Here a completion queue of 3 serves a
// submission queue of 33 although only one completion comes at a time.
TEST_F(KnownDefects, TheCompletionDoorbellMovesWithEveryCompletion) {
  const SsdRef ref = make_queues({.queues = 1, .entries = 33, .cq_entries = 3, .mode = ServiceMode::service});
  const ServiceRef service = make_service(ref);
  std::byte* data = allocate(32 * 512);
  std::vector<std::uint32_t> done(32);
  simt::FibreDevice device(world, timed_schedule());
  const auto server = device.launch({.blocks = 1}, ServiceKernel{}, service);
  device.run({.blocks = 1}, WriteRead{}, ref, data, 3, done.data());
  expect_all(done, 3);
  const auto one_read = [](auto& t, SsdRef on, std::byte* to, std::uint32_t* doorbell, std::uint32_t* moved) {
    const std::uint32_t before = simt::WordRef<std::uint32_t>(*doorbell).load(t);
    *moved = on.read(t, 0, 0, 1, to).wait(t).ok();
    for (int i = 0; i < 100 && simt::WordRef<std::uint32_t>(*doorbell).load(t) == before; ++i) t.pause(50);
    *moved &= simt::WordRef<std::uint32_t>(*doorbell).load(t) != before;
  };
  std::uint32_t moved = 0;
  device.run({.blocks = 1, .block_threads = 1}, one_read, ref, data, queues->queue(0).cq_doorbell, &moved);
  EXPECT_EQ(moved, 1u);
  service.control->order.store(host, ServiceOrder::drain);
  device.wait(server);
}

// AGILE: lanes of a warp are taken to run in step. Here a schedule that knows no warps decides.
TEST_F(KnownDefects, LanesOfAWarpNeedNotRunInStep) {
  std::byte* data = allocate(64 * 512);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const SsdRef ref = make_queues({.queues = 2, .entries = 7});
    std::vector<std::uint32_t> done(64);
    simt::FibreDevice device(world, random_schedule(seed));
    device.run({.blocks = 2}, OwnWays{}, ref, data, done.data());
    expect_all(done, 2);
  }
}

// AGILE: block addresses of 32 bits. A block beyond 2^32 of 512 bytes lies behind 2 TiB.
TEST_F(KnownDefects, BlockAddressesHave64Bits) {
  DeviceConfig config = small_ssd();
  config.subsystem.namespaces.resize(1);
  config.subsystem.namespaces[0].size_bytes = std::uint64_t{4} << 40;
  config.subsystem.namespaces[0].media = "generated";
  VirtualSsd& large = world.add(config);
  const SsdQueues on_large(large.driver(), {.queues = 1, .entries = 4});
  const driver::DmaMemory data(large.pci(), 3 * 512);
  const auto near = [](auto& t, SsdRef on, std::byte* to, IoStatus* out) {
    out[0] = on.read(t, 0, 7, 1, to).wait(t);
    out[1] = on.read(t, 0, (std::uint64_t{1} << 32) + 7, 1, to + 512).wait(t);
    out[2] = on.read(t, 0, (std::uint64_t{8} << 30) - 1, 1, to + 1024).wait(t);
    out[3] = on.read(t, 0, std::uint64_t{8} << 30, 1, to + 1024).wait(t);
  };
  IoStatus out[4];
  simt::FibreDevice device(world, timed_schedule());
  device.run({.blocks = 1, .block_threads = 1}, near, on_large.ref(), data.data(), &out[0]);
  EXPECT_TRUE(out[0].ok() && out[1].ok() && out[2].ok());
  EXPECT_NE(std::memcmp(data.data(), data.data() + 512, 512), 0);  // another block, not the same one again
  EXPECT_EQ(out[3].code(), 0x80);
}

// AGILE tests one bit of the status, BaM's check is commented out: errors count as success.
TEST_F(KnownDefects, EveryErrorReachesTheCallerWithTypeAndCode) {
  const SsdRef ref = make_queues({.queues = 1, .entries = 4});
  std::byte* data = allocate(4096);
  IoStatus out[4];
  simt::FibreDevice device(world, timed_schedule());
  device.run({.blocks = 1, .block_threads = 1}, MakeErrors{}, ref, data, &out[0]);
  EXPECT_EQ(nvme::status_of(out[0].field), nvme::Status::lba_out_of_range);
  EXPECT_EQ(nvme::status_of(out[1].field), nvme::Status::prp_offset_invalid);
  EXPECT_EQ(nvme::status_of(out[2].field), nvme::Status::data_transfer_error);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(out[i].ok());
  EXPECT_TRUE(out[3].ok());
  EXPECT_EQ(stats(ref).failed, 3u);
  for (std::uint32_t field = 1; field < 0x800; ++field)
    EXPECT_FALSE((IoStatus{static_cast<std::uint16_t>(field), IoKind::completed}.ok())) << field;
}

// AGILE: stop does not drain. Commands that nobody waits for are complete when the service has left.
TEST_F(KnownDefects, StopDrainsWhatIsInFlight) {
  const SsdRef ref = make_queues({.queues = 2, .entries = 33, .mode = ServiceMode::service});
  const ServiceRef service = make_service(ref);
  std::byte* data = allocate(32 * 4096);
  auto* completions = new (allocate(32 * sizeof(Completion))) Completion[32];
  simt::FibreDevice device(world, timed_schedule());
  const auto server = device.launch({.blocks = 1}, ServiceKernel{}, service);
  device.run({.blocks = 1}, FireAndForget{}, ref, data, completions);
  EXPECT_GT(stats(ref).in_flight, 0u);
  service.control->order.store(host, ServiceOrder::drain);
  device.wait(server);
  for (int i = 0; i < 32; ++i) EXPECT_TRUE(completions[i].status(host).ok());
  EXPECT_EQ(stats(ref).taken, 0u);
}

// An earlier version of ours: words that host and GPU both updated, at the system's scope. No bus makes that atomic
// (compute-sanitizer on an H200: "system-scoped atomic ... not allowed"). What is updated is the GPU's own; what the
// host tells warps while they run, it alone writes, and the system's scope is for that.
TEST(KnownDefectsOfScope, NoWordIsUpdatedFromBothSidesOfABus) {
  const auto is_of_the_gpu = []<class T>(const simt::Word<T, simt::Scope::device>&) { return true; };
  const auto comes_from_the_host = []<class T>(const simt::Word<T, simt::Scope::system>&) { return true; };
  const Queue queue;
  const Slot slot;
  const ServiceControl control;
  EXPECT_TRUE(is_of_the_gpu(slot.ticket) && is_of_the_gpu(slot.state) && is_of_the_gpu(Completion{}.word));
  EXPECT_TRUE(is_of_the_gpu(queue.ready) && is_of_the_gpu(queue.combiner) && is_of_the_gpu(queue.reaper));
  EXPECT_TRUE(is_of_the_gpu(queue.cq_head) && is_of_the_gpu(queue.failed) && is_of_the_gpu(control.started));
  EXPECT_TRUE(comes_from_the_host(control.order));
  static_assert(std::is_same_v<decltype(Queue::free_slots), simt::Word<std::uint64_t>*>);
  static_assert(std::is_same_v<decltype(Queue::abort), simt::Word<std::uint32_t, simt::Scope::system>*>);
}

// BaM: tickets of 32 bits, and a hang after 2^32 commands.
TEST_F(KnownDefects, TicketsPass2ToThe16And32And64) {
  std::byte* data = allocate(32 * 512);
  for (const std::uint64_t first : {std::uint64_t{0xFFFE}, std::uint64_t{0xFFFF'FFFE}, UINT64_MAX - 1}) {
    const SsdRef ref = make_queues({.queues = 1, .entries = 4, .first_ticket = first});
    std::vector<std::uint32_t> done(32);
    simt::FibreDevice device(world, random_schedule(first));
    device.run({.blocks = 1}, WriteRead{}, ref, data, 2, done.data());
    expect_all(done, 2);
    for (std::uint32_t i = 0; i < 3; ++i) {
      EXPECT_GT(queues->queue(0).slots[i].ticket.value - first, 4u);
      EXPECT_LT(queues->queue(0).slots[i].ticket.value - first, 64u);  // counted on in 64 bits, not begun again
    }
  }
}

// A token that was kept for very long is not taken for that of the slot's later use with the same low bits.
TEST_F(KnownDefects, AnOldTokenIsStaleAfter2ToThe16And32UsesOfItsSlot) {
  const SsdRef ref = make_queues({.queues = 1, .entries = 2});
  std::byte* data = allocate(512);
  const auto keep = [](auto& t, SsdRef on, std::byte* to, Token* kept) {
    *kept = on.read(t, 0, 0, 1, to);
    EXPECT_TRUE(kept->wait(t).ok());
  };
  const auto ask = [](auto& t, const Token* kept, std::uint32_t* stale) {
    *stale = kept->test(t) && kept->status(t).kind == IoKind::stale;
  };
  simt::FibreDevice device(world, timed_schedule());
  for (const std::uint64_t uses : {std::uint64_t{1} << 16, std::uint64_t{1} << 32}) {
    Token kept;
    std::uint32_t stale = 0;
    device.run({.block_threads = 1}, keep, ref, data, &kept);
    queues->queue(0).slots[0].ticket.value += uses - 1;
    device.run({.block_threads = 1}, ask, &kept, &stale);
    EXPECT_EQ(stale, 1u) << uses;
  }
}

// Whoever sees that a queue has nothing in flight may take down what its commands announce their ends to.
struct WatchesTheSlots {
  template <class Lane>
  void operator()(Lane& t, SsdRef ssd, std::byte* data, Completion* completions, std::uint32_t* early) const {
    const QueueRef queue = ssd.queue(0);
    if (t.thread() != 0) {
      completions[t.thread()].arm(t);
      ssd.read_into(t, 0, t.thread(), 1, data + std::uint64_t{t.thread()} * 512, completions[t.thread()]);
      while (!completions[t.thread()].finished(t)) queue.help(t);
      return;
    }
    while (queue.get()->submitted != t.threads() - 1) t.pause(10);
    for (std::uint32_t taken = 1; taken != 0;) {
      taken = 0;
      for (std::uint32_t s = 0; s < queue.get()->slot_count; ++s)
        taken += (queue.slot(s).state.load(t) & slot_state::kMask) != slot_state::kFree;
    }
    for (std::uint32_t c = 1; c < t.threads(); ++c) *early += !completions[c].finished(t);
  }
};
TEST_F(KnownDefects, AFreeSlotHasAnnouncedItsEnd) {
  std::byte* data = allocate(4 * 512);
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const SsdRef ref = make_queues({.queues = 1, .entries = 8});
    std::vector<Completion> completions(4);
    std::uint32_t early = 0;
    simt::FibreDevice device(world, random_schedule(seed));
    device.run({.block_threads = 4}, WatchesTheSlots{}, ref, data, completions.data(), &early);
    ASSERT_EQ(early, 0u) << "seed " << seed;
  }
}

// GPUs before: waits without end. A lost command costs its owner the deadline and the queue one slot, nothing else.
TEST(KnownDefectsOfWaiting, ALostCommandCostsOneSlotUntilItsAnswerComes) {
  ScriptedSsd ssd;
  ssd.reset(1, {.lost_one_in = 1});
  const SsdRef ref =
      ssd.attach({.queues = 1, .entries = 4, .cq_entries = 4, .max_transfer_bytes = 4096, .timeout_ns = 50'000});
  std::byte* data = ssd.allocate(4096);
  const auto lost = [](auto& t, SsdRef on, std::byte* to, IoStatus* out) {
    const Token token = on.read(t, 0, 0, 1, to);
    out[0] = token.wait(t);
    out[1] = token.wait(t, {.timeout_ns = 1'000});  // still ours
    token.abandon(t);
    for (int i = 2; i < 5; ++i) {
      const Token next = on.read(t, 0, 0, 1, to);
      out[i] = next.wait(t);
      next.abandon(t);
    }
  };
  IoStatus out[5];
  simt::FibreDevice device(ssd, {.schedule = simt::Schedule::timed});
  device.run({.blocks = 1, .block_threads = 1}, lost, ref, data, &out[0]);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i].kind, IoKind::deadline);
  EXPECT_EQ(out[4].kind, IoKind::queues_full);  // the fourth found all three slots with lost commands
  ssd.answer_lost();
  const auto again = [](auto& t, SsdRef on, Completion* unused) { on.wait(t, *unused, {.timeout_ns = 10'000}); };
  Completion never;
  never.word.value = 0;
  device.run({.blocks = 1, .block_threads = 1}, again, ref, &never);
  simt::HostLane host([&] { return ssd.now_ns(); }, [](std::uint32_t) {});
  EXPECT_EQ(ref.queue(0).stats(host).taken, 0u);
}

}  // namespace
}  // namespace flashmob::gpu::testing
