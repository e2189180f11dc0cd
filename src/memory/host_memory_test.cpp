#include "memory/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/platform.h"
#include "gtest/gtest.h"

namespace flashmob::memory {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::uintptr_t address(const HostMemory& memory) { return reinterpret_cast<std::uintptr_t>(memory.data()); }

TEST(HostMemory, RoundsUpToPagesAndIsZero) {
  const HostMemory memory(5000);
  EXPECT_EQ(memory.size(), 8192u);
  EXPECT_EQ(memory.fd(), -1);
  EXPECT_EQ(address(memory) % 4096, 0u);
  EXPECT_TRUE(std::all_of(memory.data(), memory.data() + memory.size(), [](std::byte b) { return b == std::byte{0}; }));
  std::memset(memory.data(), 1, memory.size());
}

TEST(HostMemory, IsAlignedToHugePagesFromTwoMebibytesOn) {
  EXPECT_EQ(HostMemory(2 * kMiB - 1).size(), 2 * kMiB);
  for (const auto kind : {HostMemory::Kind::anonymous, HostMemory::Kind::shared_memfd}) {
    for (const std::size_t bytes : {2 * kMiB, 2 * kMiB + 1, 7 * kMiB}) {
      const HostMemory memory(bytes, kind);
      EXPECT_EQ(address(memory) % (2 * kMiB), 0u);
      EXPECT_EQ(memory.size(), (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB));
      memory.data()[0] = std::byte{1};
      memory.data()[memory.size() - 1] = std::byte{2};
    }
  }
}

TEST(HostMemory, MemfdIsTheSameMemoryElsewhere) {
  const HostMemory memory(3 * 4096, HostMemory::Kind::shared_memfd);
  ASSERT_GE(memory.fd(), 0);
  struct stat info{};
  ASSERT_EQ(fstat(memory.fd(), &info), 0);
  EXPECT_EQ(static_cast<std::size_t>(info.st_size), memory.size());
  void* other = mmap(nullptr, memory.size(), PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  memory.data()[4097] = std::byte{0x5A};
  EXPECT_EQ(static_cast<std::byte*>(other)[4097], std::byte{0x5A});
  munmap(other, memory.size());
}

TEST(HostMemory, MovesAndCloses) {
  int fd = -1;
  {
    HostMemory first(4096, HostMemory::Kind::shared_memfd);
    fd = first.fd();
    std::byte* data = first.data();
    HostMemory second(std::move(first));
    EXPECT_EQ(second.data(), data);
    HostMemory third;
    EXPECT_EQ(third.data(), nullptr);
    third = std::move(second);
    EXPECT_EQ(third.data(), data);
    EXPECT_EQ(third.fd(), fd);
    EXPECT_NE(fcntl(fd, F_GETFD), -1);
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

TEST(HostMemory, SixteenTebibytesCostNothingUntilTouched) {
  if (FLASHMOB_TSAN) GTEST_SKIP() << "ThreadSanitizer's shadow leaves no room for so large a mapping";
  const HostMemory memory(std::size_t{16} << 40);
  memory.data()[memory.size() - 1] = std::byte{7};
  memory.data()[0] = std::byte{7};
  EXPECT_EQ(memory.data()[memory.size() / 2], std::byte{0});
}

TEST(HostMemory, RefusesWhatTheKernelCannotGive) {
  EXPECT_THROW(HostMemory(0), ConfigError);
  EXPECT_THROW(HostMemory{SIZE_MAX}, ConfigError);
  EXPECT_THROW(HostMemory(std::size_t{1} << 60), ConfigError);
  EXPECT_THROW(HostMemory(std::size_t{1} << 60, HostMemory::Kind::shared_memfd), ConfigError);
}

TEST(HostMemory, ASharedFileCannotBeCutShort) {
  const HostMemory memory(4096, HostMemory::Kind::shared_memfd);
  EXPECT_NE(ftruncate(memory.fd(), 0), 0) << "who holds the file could kill whoever maps it";
  EXPECT_NE(ftruncate(memory.fd(), 8192), 0);
}

}  // namespace
}  // namespace flashmob::memory
