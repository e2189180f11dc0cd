#include "memory/address_space.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"

namespace flashmob::memory {
namespace {

using Reader = AddressSpace::Reader;

class AddressSpaceTest : public ::testing::Test {
 protected:
  std::vector<std::byte> memory_ = std::vector<std::byte>(1 << 16);
  std::byte* at(std::size_t offset) { return memory_.data() + offset; }
};

TEST_F(AddressSpaceTest, TranslatesOnlyInsideOneRegion) {
  AddressSpace space;
  space.map(0x10000, 0x2000, at(0));
  space.map(0x12000, 0x1000, at(0x8000));  // a neighbour
  Reader reader(space);
  reader.enter();
  EXPECT_EQ(reader.translate(0x10000, 0x2000, true), at(0));
  EXPECT_EQ(reader.translate(0x11FFF, 1, false), at(0x1FFF));
  EXPECT_EQ(reader.translate(0x12000, 0x1000, false), at(0x8000));
  EXPECT_EQ(reader.translate(0x11FFF, 2, false), nullptr) << "spans two regions";
  EXPECT_EQ(reader.translate(0x0FFFF, 1, false), nullptr);
  EXPECT_EQ(reader.translate(0x0FFFF, 2, false), nullptr);
  EXPECT_EQ(reader.translate(0x13000, 1, false), nullptr);
  EXPECT_EQ(reader.translate(0x12000, 0x1001, false), nullptr);
  EXPECT_EQ(reader.translate(0x12000, UINT64_MAX, false), nullptr);
  EXPECT_EQ(reader.translate(UINT64_MAX, 2, false), nullptr);
  reader.leave();
}

TEST_F(AddressSpaceTest, NothingIsMappedAtFirst) {
  AddressSpace space;
  EXPECT_EQ(space.region_count(), 0u);
  Reader reader(space);
  reader.enter();
  EXPECT_EQ(reader.translate(0, 1, false), nullptr);
  EXPECT_EQ(reader.translate(0, 0, false), nullptr);
  EXPECT_EQ(reader.translate(UINT64_MAX, 1, true), nullptr);
}

TEST_F(AddressSpaceTest, ReadOnlyRegionsRefuseWrites) {
  AddressSpace space;
  space.map(0x1000, 0x1000, at(0), false);
  Reader reader(space);
  reader.enter();
  EXPECT_EQ(reader.translate(0x1000, 8, true), nullptr);
  EXPECT_EQ(reader.translate(0x1000, 8, false), at(0));
  EXPECT_EQ(reader.translate(0x1000, 8, true), nullptr) << "also when the region was the last hit";
  std::uint64_t contiguous = 0;
  EXPECT_EQ(reader.translate_prefix(0x1000, 8, true, contiguous), nullptr);
}

TEST_F(AddressSpaceTest, PrefixStopsAtTheRegionsEnd) {
  AddressSpace space;
  space.map(0x1000, 0x1000, at(0));
  space.map(0x2000, 0x1000, at(0x4000));
  Reader reader(space);
  reader.enter();
  std::uint64_t contiguous = 0;
  EXPECT_EQ(reader.translate_prefix(0x1800, 0x1000, true, contiguous), at(0x800));
  EXPECT_EQ(contiguous, 0x800u);
  EXPECT_EQ(reader.translate_prefix(0x2000, 0x800, true, contiguous), at(0x4000));
  EXPECT_EQ(contiguous, 0x800u);
  EXPECT_EQ(reader.translate_prefix(0x3000, 1, true, contiguous), nullptr);
}

TEST_F(AddressSpaceTest, RefusesWrongMaps) {
  AddressSpace space;
  space.map(0x2000, 0x1000, at(0));
  EXPECT_THROW(space.map(0x2000, 0x1000, at(0)), ConfigError);
  EXPECT_THROW(space.map(0x1001, 0x1000, at(0)), ConfigError);
  EXPECT_THROW(space.map(0x2FFF, 1, at(0)), ConfigError);
  EXPECT_THROW(space.map(0x1000, 0x4000, at(0)), ConfigError);
  EXPECT_THROW(space.map(0x2800, 0x100, at(0)), ConfigError);
  EXPECT_THROW(space.map(0x8000, 0, at(0)), ConfigError);
  EXPECT_THROW(space.map(0x8000, 0x1000, nullptr), ConfigError);
  EXPECT_THROW(space.map(0xFFFFFFFFFFFFF000, 0x1000, at(0)), ConfigError);
  EXPECT_THROW(space.map(0x8000, UINT64_MAX, at(0)), ConfigError);
  EXPECT_EQ(space.region_count(), 1u);
  space.map(0x1000, 0x1000, at(0));
  space.map(0x3000, 0x1000, at(0));
  EXPECT_EQ(space.region_count(), 3u);
}

TEST_F(AddressSpaceTest, UnmapTakesExactlyWhatWasMapped) {
  AddressSpace space;
  space.map(0x2000, 0x2000, at(0));
  EXPECT_FALSE(space.unmap(0x2000, 0x1000));
  EXPECT_FALSE(space.unmap(0x3000, 0x1000));
  EXPECT_FALSE(space.unmap(0x9000, 0x1000));
  EXPECT_EQ(space.region_count(), 1u);
  EXPECT_TRUE(space.unmap(0x2000, 0x2000));
  EXPECT_FALSE(space.unmap(0x2000, 0x2000));
  EXPECT_EQ(space.region_count(), 0u);
}

TEST_F(AddressSpaceTest, TheLastHitDiesWithItsRegion) {
  AddressSpace space;
  space.map(0x2000, 0x1000, at(0));
  Reader reader(space);
  reader.enter();
  const std::uint64_t generation = reader.generation();
  ASSERT_EQ(reader.translate(0x2000, 1, false), at(0));
  reader.leave();
  ASSERT_TRUE(space.unmap(0x2000, 0x1000));
  reader.enter();
  EXPECT_EQ(reader.generation(), generation + 1);
  EXPECT_EQ(reader.translate(0x2000, 1, false), nullptr);
  reader.leave();
  space.map(0x2000, 0x1000, at(0x1000));
  reader.enter();
  EXPECT_EQ(reader.generation(), generation + 2);
  EXPECT_EQ(reader.translate(0x2000, 1, false), at(0x1000));
  reader.leave();
}

TEST_F(AddressSpaceTest, AGuardKeepsItsGenerationUntilItMissesARegion) {
  AddressSpace space;
  space.map(0x2000, 0x1000, at(0));
  Reader reader(space);
  reader.enter();
  const std::uint64_t generation = reader.generation();
  std::thread([&] { space.map(0x5000, 0x1000, at(0x1000)); }).join();
  EXPECT_EQ(reader.generation(), generation);
  EXPECT_EQ(reader.translate(0x2000, 1, false), at(0));
  EXPECT_EQ(reader.generation(), generation);
  // The host may have mapped it and rung a doorbell for it after the guard was opened.
  EXPECT_EQ(reader.translate(0x5000, 1, false), at(0x1000));
  EXPECT_EQ(reader.generation(), generation + 1);
  EXPECT_EQ(reader.translate(0x9000, 1, false), nullptr);
}

// The pointers of a guard stay good until it ends, whichever table gave them.
TEST_F(AddressSpaceTest, AGuardKnowsThatItIsStale) {
  AddressSpace space;
  space.map(0x1000, 0x1000, at(0));
  Reader reader(space);
  reader.enter();
  EXPECT_FALSE(reader.stale());
  space.map(0x2000, 0x1000, at(0x4000));
  EXPECT_TRUE(reader.stale());
  EXPECT_EQ(reader.translate(0x2000, 1, false), at(0x4000)) << "it goes on with the newer table";
  EXPECT_TRUE(reader.stale()) << "but holds up whoever unmaps what was in the older one";
  reader.leave();
  reader.enter();
  EXPECT_FALSE(reader.stale());
  reader.leave();
}

TEST_F(AddressSpaceTest, UnmapWaitsForAGuardThatFoundTheRegionInANewerTable) {
  AddressSpace space;
  space.map(0x2000, 0x1000, at(0));
  Reader reader(space);
  reader.enter();
  space.map(0x5000, 0x1000, at(0x1000));
  ASSERT_EQ(reader.translate(0x5000, 1, false), at(0x1000));
  for (std::uint64_t i = 0; i < 8; ++i) space.map(0x10000 + i * 0x1000, 0x1000, at(0x1000));
  EXPECT_EQ(reader.translate(0x5000, 1, false), at(0x1000)) << "its table is kept while newer ones come";
  std::atomic<bool> unmapped{false};
  std::thread unmapper([&] {
    space.unmap(0x5000, 0x1000);
    unmapped = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(unmapped);
  reader.leave();
  unmapper.join();
  EXPECT_TRUE(unmapped);
}

TEST_F(AddressSpaceTest, FindsTheRightOneAmongManyRegions) {
  AddressSpace space;
  constexpr std::uint64_t kRegions = 300;
  // In an order that is neither rising nor falling.
  for (std::uint64_t i = 0; i < kRegions; ++i) {
    const std::uint64_t k = (i * 7) % kRegions;
    space.map(0x100000 + k * 0x2000, 0x1000, at(k * 16));
  }
  Reader reader(space);
  reader.enter();
  for (std::uint64_t k = 0; k < kRegions; ++k) {
    EXPECT_EQ(reader.translate(0x100000 + k * 0x2000 + 5, 1, true), at(k * 16 + 5));
    EXPECT_EQ(reader.translate(0x101000 + k * 0x2000, 1, true), nullptr);
  }
}

TEST_F(AddressSpaceTest, HasAPlaceForSoManyReaders) {
  AddressSpace space;
  std::vector<std::optional<Reader>> readers(AddressSpace::kMaxReaders);
  for (auto& reader : readers) reader.emplace(space);
  EXPECT_THROW(Reader{space}, ConfigError);
  readers[17].reset();
  EXPECT_NO_THROW(Reader{space});
}

TEST_F(AddressSpaceTest, UnmapWaitsForTheGuardThatMayUseTheRegion) {
  AddressSpace space;
  space.map(0x2000, 0x1000, at(0));
  Reader old_reader(space);
  Reader idle_reader(space);
  old_reader.enter();
  // The guard is older than this map(): its table is not the last one before the unmap.
  space.map(0x8000, 0x1000, at(0x1000));
  std::atomic<bool> done{false};
  std::thread unmapper([&] {
    EXPECT_TRUE(space.unmap(0x2000, 0x1000));
    done.store(true, std::memory_order_release);
  });
  // Wait until the unmap is published, which the other reader can see while the first still has its guard.
  for (bool gone = false; !gone;) {
    idle_reader.enter();
    gone = idle_reader.translate(0x2000, 1, false) == nullptr;
    idle_reader.leave();
  }
  idle_reader.enter();  // a newer guard must not hold it up
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(done.load(std::memory_order_acquire));
  EXPECT_EQ(old_reader.translate(0x2000, 1, false), at(0));
  old_reader.leave();
  unmapper.join();
  EXPECT_TRUE(done.load());
  idle_reader.leave();
}

// Readers copy out of whatever is mapped while regions come and go. A region's memory is filled with one value, which
// changes as soon as unmap() has returned and then the memory is freed: a reader must never see two values.
TEST_F(AddressSpaceTest, ReadersCopyWhileRegionsComeAndGo) {
  constexpr std::uint64_t kSlots = 8;
  constexpr std::size_t kBytes = 4096;
  // Each unmap may have to wait until a reader gets its core back, so the time is bounded, not only the rounds.
  constexpr int kRounds = 4000;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  AddressSpace space;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> copies{0};
  std::atomic<std::uint64_t> torn{0};

  // On a busy machine the readers may get their turn late: the writers go on until one has.
  const auto more_rounds = [&](int round) {
    const auto now = std::chrono::steady_clock::now();
    if (copies.load() == 0) return now < deadline + std::chrono::seconds(20);
    return round < kRounds && now < deadline;
  };

  auto read = [&](std::uint64_t seed) {
    Reader reader(space);
    Rng rng(seed);
    std::vector<std::byte> copy(kBytes);
    while (!stop.load(std::memory_order_relaxed)) {
      reader.enter();
      for (int i = 0; i < 4; ++i) {
        const std::byte* host = reader.translate(rng.below(kSlots) * 0x10000, kBytes, false);
        if (host == nullptr) continue;
        std::memcpy(copy.data(), host, kBytes);
        if (std::any_of(copy.begin(), copy.end(), [&](std::byte b) { return b != copy[0]; })) torn.fetch_add(1);
        copies.fetch_add(1, std::memory_order_relaxed);
      }
      reader.leave();
      std::this_thread::yield();
    }
  };
  auto write = [&](std::uint64_t seed, std::uint64_t first, std::uint64_t last) {
    Rng rng(seed);
    std::array<std::unique_ptr<std::byte[]>, kSlots> mapped;
    for (int round = 0; more_rounds(round); ++round) {
      const std::uint64_t slot = first + rng.below(last - first);
      if (mapped[slot] != nullptr) {
        EXPECT_TRUE(space.unmap(slot * 0x10000, kBytes));
        std::memset(mapped[slot].get(), 0xDD, kBytes);
        mapped[slot].reset();
      } else {
        mapped[slot] = std::make_unique<std::byte[]>(kBytes);
        std::memset(mapped[slot].get(), round & 0x7F, kBytes);
        space.map(slot * 0x10000, kBytes, mapped[slot].get());
      }
    }
    for (std::uint64_t slot = first; slot < last; ++slot) {
      if (mapped[slot] == nullptr) continue;
      EXPECT_TRUE(space.unmap(slot * 0x10000, kBytes));
    }
  };

  std::vector<std::thread> readers;
  for (std::uint64_t i = 0; i < 2; ++i) readers.emplace_back(read, i);
  std::vector<std::thread> writers;
  writers.emplace_back(write, 101, 0, kSlots / 2);
  writers.emplace_back(write, 102, kSlots / 2, kSlots);
  for (auto& thread : writers) thread.join();
  stop.store(true);
  for (auto& thread : readers) thread.join();
  EXPECT_EQ(torn.load(), 0u);
  EXPECT_GT(copies.load(), 0u);
  EXPECT_EQ(space.region_count(), 0u);
}

TEST(AddressSpaceSpans, NeighboursInBothSpacesAreOneSpan) {
  AddressSpace space;
  Reader reader(space);
  std::array<std::byte, 4 * 4096> memory;
  // Mapped out of order; the third lies elsewhere in host memory, the last is read-only.
  space.map(0x11000, 4096, memory.data() + 4096);
  space.map(0x10000, 4096, memory.data());
  space.map(0x12000, 4096, memory.data() + 3 * 4096);
  space.map(0x13000, 4096, memory.data(), false);
  reader.enter();
  EXPECT_EQ(reader.translate(0x10000, 8192, true), memory.data()) << "across the border";
  EXPECT_EQ(reader.translate(0x10FFF, 2, true), memory.data() + 4095);
  EXPECT_EQ(reader.translate(0x11000, 4097, true), nullptr) << "the next one is elsewhere";
  std::uint64_t contiguous = 0;
  EXPECT_EQ(reader.translate_prefix(0x10800, 0x10000, true, contiguous), memory.data() + 0x800);
  EXPECT_EQ(contiguous, 8192u - 0x800u);
  reader.leave();
  EXPECT_FALSE(space.unmap(0x10000, 8192)) << "regions are unmapped as they were mapped";
  EXPECT_TRUE(space.unmap(0x10000, 4096));
  reader.enter();
  EXPECT_EQ(reader.translate(0x10FFF, 2, true), nullptr);
  EXPECT_EQ(reader.translate(0x11000, 4096, true), memory.data() + 4096);
  reader.leave();
}

TEST(AddressSpaceSpans, AReadOnlyNeighbourIsAnotherSpan) {
  AddressSpace space;
  Reader reader(space);
  std::array<std::byte, 2 * 4096> memory;
  space.map(0, 4096, memory.data());
  space.map(4096, 4096, memory.data() + 4096, false);
  reader.enter();
  EXPECT_EQ(reader.translate(0, 8192, true), nullptr);
  EXPECT_EQ(reader.translate(4096, 4096, true), nullptr);
  EXPECT_EQ(reader.translate(4096, 4096, false), memory.data() + 4096);
  reader.leave();
}

}  // namespace
}  // namespace flashmob::memory
