// Memory of a peer's file: what is refused, what is shared, and what remains when the peer cuts the file short.
#include "vfio/peer_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "vfio/unique_fd.h"

namespace flashmob::vfio {
namespace {

constexpr std::uint64_t kFileBytes = 16384;

class PeerMemoryTest : public ::testing::Test {
 protected:
  PeerMemoryTest() : file(memfd_create("peer", MFD_CLOEXEC)) { EXPECT_EQ(ftruncate(file.get(), kFileBytes), 0); }
  UniqueFd file;
  PeerMemory memory;
};

TEST_F(PeerMemoryTest, PiecesThatCannotBe) {
  EXPECT_EQ(memory.map(file.get(), 0, 0, true), EINVAL);
  EXPECT_EQ(memory.map(file.get(), 0, 100, true), EINVAL);
  EXPECT_EQ(memory.map(file.get(), 512, 4096, true), EINVAL);
  EXPECT_EQ(memory.map(file.get(), 0, kFileBytes + 4096, true), EINVAL);
  EXPECT_EQ(memory.map(file.get(), kFileBytes, 4096, true), EINVAL);
  EXPECT_EQ(memory.map(file.get(), UINT64_MAX - 4095, 4096, true), EINVAL);
  EXPECT_EQ(memory.map(-1, 0, 4096, true), EBADF);
  const UniqueFd device(open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(memory.map(device.get(), 0, 4096, true), EINVAL);
  const UniqueFd read_only(open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(memory.map(read_only.get(), 0, 4096, true), EACCES);
  EXPECT_FALSE(memory);
  EXPECT_EQ(memory.map(read_only.get(), 0, 4096, false), 0);
}

// Where this user may mount one at all: what maps a file of an overlay, or 77.
int map_from_overlay(const std::string& folder) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 77;
  const std::string layers = "lowerdir=" + folder + "/lower,upperdir=" + folder + "/upper,workdir=" + folder + "/work";
  if (mount("overlay", (folder + "/all").c_str(), "overlay", 0, layers.c_str()) != 0) return 77;
  const UniqueFd file(open((folder + "/all/memory").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file || ftruncate(file.get(), kFileBytes) != 0) return 77;
  PeerMemory memory;
  return memory.map(file.get(), 0, kFileBytes, true);
}

// Any user may mount one over FUSE, whose pages then make the engine wait for whoever provides them.
TEST_F(PeerMemoryTest, FilesOfAnOverlayAreRefused) {
  std::string folder = testing::TempDir() + "fm-overlay-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (const char* name : {"lower", "upper", "work", "all"}) std::filesystem::create_directory(folder + "/" + name);
  const pid_t child = fork();
  if (child == 0) _exit(map_from_overlay(folder));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no overlay can be mounted here";
  EXPECT_EQ(WEXITSTATUS(status), EINVAL);
}

TEST_F(PeerMemoryTest, SharesTheFileAndOutlivesItsDescriptor) {
  const char said[] = "said by the peer";
  ASSERT_EQ(pwrite(file.get(), said, sizeof(said), 8192), static_cast<ssize_t>(sizeof(said)));
  ASSERT_EQ(memory.map(file.get(), 8192, 8192, true), 0);
  EXPECT_EQ(memory.size(), 8192u);
  file.reset();
  EXPECT_STREQ(reinterpret_cast<const char*>(memory.data()), said);
  PeerMemory other = std::move(memory);
  EXPECT_FALSE(memory);
  EXPECT_STREQ(reinterpret_cast<const char*>(other.data()), said);
  other.reset();
  EXPECT_EQ(other.data(), nullptr);
}

TEST_F(PeerMemoryTest, ReadsZeroesWhereTheFileWasCutShort) {
  ASSERT_EQ(memory.map(file.get(), 0, kFileBytes, true), 0);
  memory.data()[4096] = std::byte{7};
  ASSERT_EQ(ftruncate(file.get(), 0), 0);
  EXPECT_EQ(memory.data()[4096], std::byte{0});
  memory.data()[4096] = std::byte{1};
  EXPECT_EQ(memory.data()[4096], std::byte{1});
}

}  // namespace
}  // namespace flashmob::vfio
