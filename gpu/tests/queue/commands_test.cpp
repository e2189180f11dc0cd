// Every command on a real emulated SSD, from lanes: data, statuses, sizes, namespaces, several SSDs.
#include <cstring>
#include <set>

#include "base/rng.h"
#include "flashmob/error.h"
#include "queue/fixture.h"

namespace flashmob::gpu::testing {
namespace {

using Commands = OnVirtualSsd;

// One thread does it all.
template <class Body>
void once(simt::World& world, Body body) {
  simt::FibreDevice device(world, {.schedule = simt::Schedule::timed, .patience_ns = 20'000'000});
  device.run({.blocks = 1, .block_threads = 1}, body);
}

TEST_F(Commands, ReadGivesWhatWriteHasWrittenInBothNamespaces) {
  const SsdRef ref = make_queues({.queues = 1, .entries = 8});
  std::byte* data = allocate(8 * 4096);
  for (int i = 0; i < 4 * 4096; ++i) data[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const std::uint32_t ns : {kSmall, kLarge}) {
    std::memset(data + 4 * 4096, 0, 4 * 4096);
    once(world, [&](auto& t) {
      EXPECT_EQ(ref.block_bytes(ns), ns == kSmall ? 512u : 4096u);
      const auto blocks = static_cast<std::uint32_t>(4 * 4096 / ref.block_bytes(ns));
      EXPECT_TRUE(ref.write(t, ns, 5, blocks, data).wait(t).ok());
      EXPECT_TRUE(ref.read(t, ns, 5, blocks, data + 4 * 4096).wait(t).ok());
    });
    EXPECT_EQ(std::memcmp(data, data + 4 * 4096, 4 * 4096), 0);
  }
}

TEST_F(Commands, FlushWriteZeroesAndDeallocate) {
  const SsdRef ref = make_queues({.queues = 1, .entries = 8});
  std::byte* data = allocate(4 * 512);
  once(world, [&](auto& t) {
    std::memset(data, 0x5A, 4 * 512);
    EXPECT_TRUE(ref.write(t, kSmall, 0, 4, data).wait(t).ok());
    EXPECT_TRUE(ref.flush(t, kSmall).wait(t).ok());
    EXPECT_TRUE(ref.write_zeroes(t, kSmall, 1, 1).wait(t).ok());
    EXPECT_TRUE(ref.deallocate(t, kSmall, 2, 1).wait(t).ok());
    EXPECT_TRUE(ref.read(t, kSmall, 0, 4, data).wait(t).ok());
    for (int block = 0; block < 4; ++block)
      EXPECT_EQ(data[block * 512 + 9], std::byte(block == 1 || block == 2 ? 0 : 0x5A)) << block;
  });
}

// AGILE has PRP1 only.
TEST_F(Commands, TransfersOfManyPagesUsePrp2AndLists) {
  const SsdRef ref = make_queues({.queues = 1, .entries = 4});
  const std::uint64_t most = ref.max_transfer_bytes();
  ASSERT_EQ(most, 128u << 10);
  std::byte* out = allocate(most + 4096);
  std::byte* in = allocate(most + 4096);
  Rng rng(3);
  for (std::uint64_t i = 0; i < most + 4096; ++i) out[i] = static_cast<std::byte>(rng.next());
  once(world, [&](auto& t) {
    for (const std::uint32_t blocks : {1u, 7u, 8u, 9u, 15u, 16u, 17u, 255u, 256u}) {
      for (const std::uint32_t offset : {0u, 4u, 512u, 3584u, 4092u}) {
        std::memset(in, 0, most + 4096);
        EXPECT_TRUE(ref.write(t, kSmall, 3, blocks, out + offset).wait(t).ok());
        EXPECT_TRUE(ref.read(t, kSmall, 3, blocks, in + offset).wait(t).ok());
        EXPECT_EQ(std::memcmp(out + offset, in + offset, blocks * 512), 0) << blocks << " blocks at " << offset;
        EXPECT_EQ(in[offset + blocks * 512], std::byte{0});
      }
    }
  });
}

TEST_F(Commands, ListsLongerThanOnePageAreChained) {
  DeviceConfig config = small_ssd();
  config.controller.max_transfer_bytes = 8 << 20;
  config.subsystem.namespaces[1].size_bytes = 32 << 20;
  VirtualSsd& big = world.add(config);
  const std::uint64_t most = 8 << 20;
  const SsdQueues big_queues(big.driver(), {.queues = 1, .entries = 3, .max_transfer_bytes = most});
  const driver::DmaMemory out(big.pci(), most + 4096);
  const driver::DmaMemory in(big.pci(), most + 4096);
  Rng rng(4);
  for (std::uint64_t i = 0; i < out.size(); i += 8) {
    const std::uint64_t value = rng.next();
    std::memcpy(out.data() + i, &value, 8);
  }
  once(world, [&](auto& t) {
    const SsdRef ref = big_queues.ref();
    for (const std::uint32_t blocks : {512u, 513u, 514u, 1023u, 1024u, 1025u, 2048u}) {
      const auto bytes = std::uint64_t{blocks} * 4096;
      EXPECT_TRUE(ref.write(t, 1, 1, blocks, out.data() + 64).wait(t).ok());
      std::memset(in.data(), 0, in.size());
      EXPECT_TRUE(ref.read(t, 1, 1, blocks, in.data() + 64).wait(t).ok());
      EXPECT_EQ(std::memcmp(out.data() + 64, in.data() + 64, bytes), 0) << blocks;
    }
  });
}

TEST_F(Commands, WhatOneCommandCannotSayIsRefusedWithoutBeingSent) {
  const SsdRef ref = make_queues({.queues = 1, .entries = 4});
  std::byte* data = allocate(4096);
  once(world, [&](auto& t) {
    const IoStatus bad{0, IoKind::bad_request};
    EXPECT_EQ(ref.read(t, 2, 0, 1, data).wait(t), bad);
    EXPECT_EQ(ref.read(t, kSmall, 0, 0, data).wait(t), bad);
    EXPECT_EQ(ref.read(t, kSmall, 0, 257, data).wait(t), bad);
    EXPECT_EQ(ref.read(t, kSmall, 0, 1, nullptr).wait(t), bad);
    EXPECT_EQ(ref.write_zeroes(t, kSmall, 0, 65'537).wait(t), bad);
    Completion done;
    done.arm(t);
    EXPECT_EQ(ref.read_into(t, kSmall, 0, 257, data, done), bad);
    EXPECT_EQ(done.status(t), bad);
  });
  EXPECT_EQ(stats(ref).submitted, 0u);
}

TEST_F(Commands, SeveralSsdsWithEqualBlockNumbersDoNotMix) {
  VirtualSsd& other = world.add(small_ssd());
  const SsdRef first = make_queues({.queues = 2, .entries = 5});
  const SsdQueues other_queues(other.driver(), {.queues = 1, .entries = 3});
  const SsdRef second = other_queues.ref();
  std::byte* data = allocate(4096);
  const driver::DmaMemory other_data(other.pci(), 4096);
  once(world, [&](auto& t) {
    std::memset(data, 1, 512);
    std::memset(other_data.data(), 2, 512);
    const Token a = first.write(t, kSmall, 9, 1, data);
    const Token b = second.write(t, kSmall, 9, 1, other_data.data());
    EXPECT_TRUE(b.wait(t).ok());
    EXPECT_TRUE(a.wait(t).ok());
    std::memset(data, 0, 512);
    EXPECT_TRUE(first.read(t, kSmall, 9, 1, data).wait(t).ok());
    EXPECT_EQ(data[100], std::byte{1});
  });
}

TEST_F(Commands, ACompletionIsSeenByAllWhoLook) {
  const SsdRef ref = make_queues({.queues = 1, .entries = 2});
  std::byte* data = allocate(4096);
  auto* done = new (allocate(sizeof(Completion))) Completion();
  done->word.value = 0;
  const auto all_look = [](auto& t, SsdRef on, std::byte* to, Completion* word, std::uint32_t* seen) {
    if (t.thread() == 7) on.read_into(t, kLarge, 1, 1, to, *word);
    seen[t.thread()] = on.wait(t, *word).ok();
  };
  std::uint32_t seen[32] = {};
  simt::FibreDevice device(world, random_schedule());
  device.run({.blocks = 1}, all_look, ref, data, done, &seen[0]);
  for (const std::uint32_t each : seen) EXPECT_EQ(each, 1u);
  EXPECT_EQ(stats(ref).taken, 0u);
}

TEST_F(Commands, ImpossibleLayoutsAreNamed) {
  for (const QueueLayout& layout : {QueueLayout{.entries = 1}, QueueLayout{.entries = 65'537}, QueueLayout{.queues = 0},
                                    QueueLayout{.queues = 17}, QueueLayout{.max_transfer_bytes = 512}})
    EXPECT_THROW(SsdQueues(ssd.driver(), layout), ConfigError);
  EXPECT_NO_THROW(SsdQueues(ssd.driver(), {.queues = 16, .entries = 2}));
}

TEST_F(Commands, QueuesOfSeveralOwnersTakeDifferentIdentifiers) {
  driver::QueuePair& pair = ssd.driver().create_queue_pair({.sq_entries = 4});
  SsdQueues some(ssd.driver(), {.queues = 2, .entries = 8});
  SsdQueues others(ssd.driver(), {.queues = 3, .entries = 8});
  EXPECT_EQ(ssd.driver().queue_pairs(), 6u);
  std::set<std::uint32_t*> doorbells{pair.sq_doorbell()};
  for (std::uint32_t i = 0; i < 2; ++i) doorbells.insert(some.queue(i).sq_doorbell);
  for (std::uint32_t i = 0; i < 3; ++i) doorbells.insert(others.queue(i).sq_doorbell);
  EXPECT_EQ(doorbells.size(), 6u);
  EXPECT_EQ(others.doorbell_bytes(), (6 + 1) * 2 * sizeof(std::uint32_t));
  EXPECT_THROW(SsdQueues(ssd.driver(), {.queues = 11}), ConfigError) << "sixteen there are, and six are taken";
  ssd.driver().disable();  // takes all of them away: what comes after it deletes nothing
  EXPECT_EQ(ssd.driver().queue_pairs(), 0u);
}

TEST(Lists, TakeWhatTheLongestTransferNeeds) {
  EXPECT_EQ(list_bytes(4096), 16u);  // a range of Dataset Management
  EXPECT_EQ(list_bytes(8192), 16u);
  EXPECT_EQ(list_bytes(12'288), 32u);
  EXPECT_EQ(list_bytes(128 << 10), 256u);
  EXPECT_EQ(list_bytes(2 << 20), 4096u);
  EXPECT_EQ(list_bytes((2 << 20) + 4096), 8192u);
  EXPECT_EQ(list_bytes(4 << 20), 3 * 4096u);
}

}  // namespace
}  // namespace flashmob::gpu::testing
