// Where only kernels see what they update, as on a GPU: host code lays queues out, gives orders, counts and drains by
// copies. Here such memory crashes whoever touches it while no kernel runs.
#include <sys/mman.h>

#include <cstdlib>
#include <utility>

#include "host/service/service.h"
#include "queue/fixture.h"
#include "queue/kernels.h"

namespace flashmob::gpu::testing {
namespace {

class HiddenMemory final : public QueueMemory {
 public:
  explicit HiddenMemory(driver::PciDevice& device) : shared_(device) {}
  ~HiddenMemory() override {
    for (const auto& [data, bytes] : hidden_) munmap(data, bytes);
  }
  std::byte* allocate(std::size_t bytes) override { return shared_.allocate(bytes); }
  std::byte* allocate_near(std::size_t bytes) override {
    void* const data = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) std::abort();
    hidden_.emplace_back(data, bytes);
    return static_cast<std::byte*>(data);
  }
  bool near_is_seen_by_host() const override { return false; }
  void copy(void* to, const void* from, std::size_t bytes) override {
    show(true);
    QueueMemory::copy(to, from, bytes);
    show(false);
  }
  void show(bool shown) {
    for (const auto& [data, bytes] : hidden_)
      if (mprotect(data, bytes, shown ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) std::abort();
  }
  bool holds(const void* data) const {
    for (const auto& [first, bytes] : hidden_)
      if (data >= first && data < static_cast<const std::byte*>(first) + bytes) return true;
    return false;
  }

 private:
  DmaQueueMemory shared_;
  std::vector<std::pair<void*, std::size_t>> hidden_;
};

class NearMemory : public OnVirtualSsd {
 protected:
  static constexpr std::uint32_t kLanes = 32, kRounds = 3;

  NearMemory() : hidden(ssd.pci()), near_queues(ssd.driver(), {.queues = 2, .entries = 5}, &hidden) {}
  // Beside kernels, which see everything.
  template <class... Args>
  void run(Args... args) {
    hidden.show(true);
    simt::FibreDevice device(world, timed_schedule());
    device.run(args...);
    hidden.show(false);
  }

  HiddenMemory hidden;
  SsdQueues near_queues;
};

TEST_F(NearMemory, HoldsAllThatOnlyKernelsUpdate) {
  const SsdRef ref = near_queues.ref();
  EXPECT_TRUE(hidden.holds(ref.queue(0).get()) && hidden.holds(ref.queue(1).get()) && hidden.holds(&ref.ns(1)));
  const Queue& queue = near_queues.queue(1);
  EXPECT_TRUE(hidden.holds(queue.slots) && hidden.holds(queue.free_slots) && hidden.holds(queue.abort));
  // What the SSD reads and writes.
  EXPECT_FALSE(hidden.holds(queue.sq) || hidden.holds(queue.cq) || hidden.holds(queue.lists));
  EXPECT_FALSE(hidden.holds(queue.sq_doorbell));
  const Service service({ref}, hidden, world.clock());
  EXPECT_TRUE(hidden.holds(service.ref().control) && hidden.holds(service.ref().queues));
  EXPECT_EQ(service.ref().queue_count, 2u);
  EXPECT_EQ(near_queues.namespaces().size(), 2u);
}

TEST_F(NearMemory, HostCodeCountsAndDrainsByCopies) {
  Service service({near_queues.ref()}, hidden, world.clock());
  service.set_mode(ServiceMode::callers);
  std::byte* const data = allocate(kLanes * 512);
  std::vector<std::uint32_t> done(kLanes);
  run(simt::Shape{.blocks = 1}, WriteRead{}, near_queues.ref(), data, kRounds, done.data());
  for (const std::uint32_t each : done) EXPECT_EQ(each, kRounds);
  const QueueStats stats = service.stats(host);
  EXPECT_EQ(stats.submitted, 2 * kLanes * kRounds);
  EXPECT_EQ(stats.completed, 2 * kLanes * kRounds);
  EXPECT_EQ(stats.taken + stats.in_flight + stats.unexpected, 0u);
  EXPECT_TRUE(service.idle());
  EXPECT_EQ(service.passes() + service.started(), 0u);

  const auto leave = [](auto& t, SsdRef on, std::byte* to) { on.read(t, 0, 0, 1, to).abandon(t); };
  service.set_mode(ServiceMode::service);
  run(simt::Shape{.blocks = 1, .block_threads = 3}, leave, near_queues.ref(), data);
  EXPECT_FALSE(service.idle());
  EXPECT_EQ(service.stats(host).in_flight, 3u);
  service.begin();
  service.drain();
  run(simt::Shape{.blocks = 1}, ServiceKernel{}, service.ref());
  EXPECT_TRUE(service.idle());
  EXPECT_EQ(service.stats(host).in_flight, 0u);
  EXPECT_EQ(service.started(), 1u);
  EXPECT_GT(service.passes(), 0u);
}

TEST_F(NearMemory, TheAbortFlagReachesKernels) {
  Service service({near_queues.ref()}, hidden, world.clock());
  IoStatus status;
  const auto read = [](auto& t, SsdRef on, std::byte* to, IoStatus* out) { *out = on.read(t, 0, 0, 1, to).wait(t); };
  std::byte* const data = allocate(512);
  near_queues.set_abort(true);
  run(simt::Shape{.blocks = 1, .block_threads = 1}, read, near_queues.ref(), data, &status);
  EXPECT_EQ(status.kind, IoKind::refused);
  near_queues.set_abort(false);
  run(simt::Shape{.blocks = 1, .block_threads = 1}, read, near_queues.ref(), data, &status);
  EXPECT_TRUE(status.ok());
}

// Counts are those of a moment at which nobody has the words that guard them, so a copy made too early is made again.
TEST_F(NearMemory, CountsAreReadWhenTheirHoldersHaveGivenThemBack) {
  Queue* const queue = near_queues.ref().queue(0).get();
  const QueueView view(hidden, QueueRef(queue));
  const auto change = [&](std::uint32_t held, std::uint64_t count) {
    hidden.show(true);
    queue->combiner.value = queue->reaper.value = held;
    queue->submitted = queue->completed = count;
    hidden.show(false);
  };
  change(1, 7);
  std::uint32_t pauses = 0;
  simt::HostLane lane([] { return 0; },
                      [&](std::uint32_t) {
                        if (++pauses == 3) change(0, 9);
                      });
  const QueueStats stats = view.stats(lane);
  EXPECT_EQ(pauses, 3u);
  EXPECT_EQ(stats.submitted, 9u);
  EXPECT_EQ(stats.completed, 9u);
}

}  // namespace
}  // namespace flashmob::gpu::testing
