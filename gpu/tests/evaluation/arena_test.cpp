// Arenas: every part has its room, and an engine serves one that it sees at another address than the application does,
// as it is between two processes. Here both mappings are of this process.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "base/check.h"
#include "evaluation/random_reads.h"
#include "flashmob/gpu/simt/fibre.h"
#include "host/engine/queue_attachment.h"

namespace flashmob::gpu {
namespace {

// One piece of memory at two addresses.
class TwiceMapped {
 public:
  explicit TwiceMapped(std::size_t bytes) : bytes_(bytes) {
    const int file = memfd_create("arena", MFD_CLOEXEC);
    FLASHMOB_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0);
    for (void*& view : views_) {
      view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      FLASHMOB_CHECK(view != MAP_FAILED);
    }
    close(file);
  }
  ~TwiceMapped() {
    for (void* view : views_) munmap(view, bytes_);
  }
  TwiceMapped(const TwiceMapped&) = delete;
  TwiceMapped& operator=(const TwiceMapped&) = delete;
  std::byte* view(int index) const { return static_cast<std::byte*>(views_[index]); }

 private:
  std::size_t bytes_;
  void* views_[2];
};

TEST(QueueArena, PartsOfAllQueuesHaveTheirRoom) {
  const ArenaShape shape{.queues = 3, .entries = 66, .max_transfer_bytes = 8192, .data_bytes = 5000};
  TwiceMapped memory(QueueArena(nullptr, shape).bytes());
  const QueueArena arena(memory.view(0), shape);
  EXPECT_GE(reinterpret_cast<std::byte*>(arena.sq_doorbell(0)), arena.base() + kPageBytes);
  EXPECT_EQ(arena.sq(1) - arena.sq(0), 66);
  EXPECT_GE(reinterpret_cast<std::byte*>(arena.cq(0)), reinterpret_cast<std::byte*>(arena.sq(2) + 66));
  EXPECT_GE(reinterpret_cast<std::byte*>(arena.cq(1)), reinterpret_cast<std::byte*>(arena.cq(0) + 66));
  EXPECT_GE(arena.base() + arena.bytes(), arena.data() + 5000);
  for (std::uint32_t q = 0; q < 3; ++q) arena.place(q, ServiceMode::callers, 1000);
  for (std::uint32_t q = 0; q < 3; ++q) {
    const Queue& queue = *arena.ssd().queue(q).get();
    EXPECT_EQ(queue.slot_count, 65u);
    EXPECT_EQ(queue.free_slots[0].value, ~std::uint64_t{0});
    EXPECT_EQ(queue.free_slots[1].value, 1u);
    // Lists begin at a multiple of their size, and the last one ends before the data.
    EXPECT_EQ(reinterpret_cast<std::uint64_t>(queue.lists) % queue.list_stride, 0u);
    EXPECT_LE(queue.lists + 65 * queue.list_stride, arena.data());
  }
}

TEST(QueueAttachment, ServesAnApplicationThatSeesItElsewhere) {
  constexpr std::uint32_t kThreads = 32, kBytes = 8192;
  constexpr std::uint64_t kMediaBytes = 1 << 18;
  const ArenaShape shape{.queues = 2, .entries = 32, .data_bytes = std::uint64_t{kThreads} * kBytes};
  TwiceMapped memory(QueueArena(nullptr, shape).bytes());
  const QueueArena own(memory.view(0), shape), seen(memory.view(1), shape);
  ASSERT_NE(own.base(), seen.base());

  simt::EmptyWorld world{1'000'000};
  simt::FibreDevice device(world, {.schedule = simt::Schedule::timed});
  HostEngineMemory host_memory;
  auto* const media = static_cast<std::byte*>(host_memory.allocate_device(kMediaBytes));
  device.run({}, evaluation::FillMedia{}, media, kMediaBytes);
  device.run({}, PlaceQueues{}, own, NamespaceInfo{1, 9, kMediaBytes / 512}, ServiceMode::callers, 10'000'000u);
  DeviceEngine engine(host_memory, {}, {.movers = 1, .slots = 64, .look_every_ns = 400});
  engine.set_namespaces({{{kMediaBytes / 512, media, 0, 1, 9, 9}, false}}, engine::kMaxTransferBytes, 1);
  engine.set_regions({region_of(seen, reinterpret_cast<std::uint64_t>(own.base()))});
  QueueAttachment attachment(engine, queues_of(seen));
  engine.commit();
  const auto kernel = device.launch(engine.shape(), engine::EngineKernel{}, engine.ref());

  evaluation::ReadAccount account;
  std::vector<Completion> completions(kThreads);
  evaluation::ReadPlan plan;
  plan.ssd = own.ssd();
  plan.bytes = kBytes;
  plan.span = kMediaBytes / kBytes;
  plan.reads_each = 3;
  plan.until_ns = UINT64_MAX;
  plan.buffers = own.data();
  plan.completions = completions.data();
  plan.account = &account;
  device.run({.blocks = 1, .block_threads = kThreads}, evaluation::RandomReads{}, plan);
  EXPECT_EQ(account.reads.value, 3 * kThreads);
  EXPECT_EQ(account.checked.value, 3 * kThreads * kBytes / 512);
  EXPECT_EQ(account.wrong.value + account.failed.value, 0u);

  attachment.drop();
  engine.commit();
  for (int i = 0; i < 100 && !attachment.closed(); ++i) device.pass(1'000);
  EXPECT_TRUE(attachment.closed());
  attachment.remove();
  engine.end(engine::Run::drain);
  engine.commit();
  device.wait(kernel);
}

}  // namespace
}  // namespace flashmob::gpu
