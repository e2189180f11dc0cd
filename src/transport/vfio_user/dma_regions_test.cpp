// Mapping clients' files: what readers see, and files that are cut short.
#include "transport/vfio_user/dma_regions.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/platform.h"
#include "memory/host_memory.h"

namespace flashmob::transport {
namespace {

vfio::UniqueFd file_of(std::size_t bytes) {
  vfio::UniqueFd file(memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  return file;
}

struct DmaRegionsTest : testing::Test {
  ~DmaRegionsTest() override { regions.unmap_all(); }
  memory::AddressSpace space;
  vfio::ClientShare share{-1};
  DmaRegions regions{space, share};
};

TEST_F(DmaRegionsTest, ReadersSeeTheFile) {
  const vfio::UniqueFd file = file_of(16384);
  ASSERT_EQ(pwrite(file.get(), "abc", 3, 4096), 3);
  ASSERT_EQ(regions.map(0x10000, 8192, file, 4096, true), 0);
  memory::AddressSpace::Reader reader(space);
  reader.enter();
  std::byte* seen = reader.translate(0x10000, 8192, true);
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(std::memcmp(seen, "abc", 3), 0);
  std::memcpy(seen, "xyz", 3);
  reader.leave();
  char back[3];
  ASSERT_EQ(pread(file.get(), back, 3, 4096), 3);
  EXPECT_EQ(std::memcmp(back, "xyz", 3), 0);
}

TEST_F(DmaRegionsTest, NeighboursAreContiguous) {
  if (FLASHMOB_TSAN) GTEST_SKIP() << "ThreadSanitizer chooses every address itself";
  const vfio::UniqueFd file = file_of(1 << 20);
  for (const std::uint64_t page : {3u, 0u, 2u, 1u})
    ASSERT_EQ(regions.map(page * 4096, 4096, file, page * 8192, true), 0);
  memory::AddressSpace::Reader reader(space);
  reader.enter();
  EXPECT_NE(reader.translate(0, 16384, true), nullptr);
  reader.leave();
}

TEST_F(DmaRegionsTest, MemoryWithoutAFileIsOutOfReach) {
  ASSERT_EQ(regions.map(0, 4096, vfio::UniqueFd(), 0, true), 0);
  ASSERT_EQ(regions.map(4096, 100, vfio::UniqueFd(), 0, true), 0) << "it need not be whole pages";
  EXPECT_EQ(regions.unshared_bytes(), 4196u);
  EXPECT_EQ(space.region_count(), 0u);
  EXPECT_EQ(regions.unmap(0, 4096), 0);
  EXPECT_EQ(regions.unshared_bytes(), 100u);
}

// Of a file without content all clients together map no more than leaves the process room for its own.
TEST_F(DmaRegionsTest, AFileOfAnyLengthLeavesTheProcessAddresses) {
#if defined(FLASHMOB_ASAN)
  GTEST_SKIP() << "AddressSanitizer has most addresses";
#endif
  if (FLASHMOB_TSAN) GTEST_SKIP() << "ThreadSanitizer has most addresses";
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 44;
  const vfio::UniqueFd endless(memfd_create("endless", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(endless.get(), kLargest), 0);
  std::uint64_t iova = 0, mapped = 0;
  int refused = 0;
  for (std::uint64_t bytes = kLargest; bytes >= std::uint64_t{1} << 30; bytes /= 2) {
    while ((refused = regions.map(iova, bytes, endless, 0, true)) == 0) {
      iova += bytes;
      mapped += bytes;
    }
  }
  EXPECT_EQ(refused, ENOSPC);
  EXPECT_LT(mapped, vfio::ClientBudgets::kAddressBytes);
  void* const ours = mmap(nullptr, kLargest, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(ours, MAP_FAILED);
  if (ours != MAP_FAILED) munmap(ours, kLargest);
  regions.unmap_all();
}

TEST_F(DmaRegionsTest, AFileCutShortReadsAsZeroes) {
  const vfio::UniqueFd file = file_of(64 << 10);
  ASSERT_EQ(regions.map(0, 64 << 10, file, 0, true), 0);
  memory::AddressSpace::Reader reader(space);
  reader.enter();
  std::byte* memory = reader.translate(0, 64 << 10, true);
  std::memset(memory, 7, 64 << 10);
  ASSERT_EQ(ftruncate(file.get(), 4096), 0);
  EXPECT_EQ(memory[0], std::byte{7}) << "what is left of the file";
  EXPECT_EQ(memory[40000], std::byte{0});
  std::memset(memory, 9, 64 << 10);
  EXPECT_EQ(memory[40000], std::byte{9});
  reader.leave();
}

TEST_F(DmaRegionsTest, SeveralThreadsMayMeetALostPageAtOnce) {
  const vfio::UniqueFd file = file_of(1 << 20);
  ASSERT_EQ(regions.map(0, 1 << 20, file, 0, true), 0);
  memory::AddressSpace::Reader reader(space);
  reader.enter();
  std::byte* memory = reader.translate(0, 1 << 20, true);
  ASSERT_EQ(ftruncate(file.get(), 0), 0);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([memory, t] {
      for (std::size_t page = 0; page < 256; ++page) memory[page * 4096 + t] = static_cast<std::byte>(t + 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  reader.leave();
}

TEST(BusErrorGuard, ElsewhereABusErrorIsWhatItWas) {
  // Under a sanitizer, the sanitizer reports it and ends the program.
  EXPECT_DEATH(
      {
        const vfio::UniqueFd file = file_of(4096);
        void* guarded = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), 0);
        {
          const vfio::BusErrorGuard guard(guarded, 4096, 4096);
        }
        if (ftruncate(file.get(), 0) != 0) _exit(0);
        _exit(*static_cast<volatile unsigned char*>(guarded) & 0);
      },
      "");
}

}  // namespace
}  // namespace flashmob::transport
