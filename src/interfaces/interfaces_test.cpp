// Every interface on a file: what it writes is there, what it reads is what was written, and what it cannot do it says.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "interfaces/interface.h"
#include "interfaces/interface_test_support.h"
#include "interfaces/mapped.h"
#include "interfaces/posix_aio.h"
#include "interfaces/posix_sio.h"

namespace flashmob::interfaces {
namespace {

constexpr std::uint32_t kBlock = 4096;
constexpr std::uint64_t kBlocks = kTestFileBytes / kBlock;

class EachInterface : public testing::TestWithParam<const char*> {};

std::vector<const char*> names() {
  std::vector<const char*> all;
  for (const InterfaceKind& kind : kinds()) all.push_back(kind.name);
  return all;
}

std::vector<std::byte> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

TEST_P(EachInterface, WritesWhatIsReadBack) {
  const TestFile file;
  InterfaceOptions options = options_of(file, GetParam(), kBlocks);
  options.threads = 2;
  options.depth = find_kind(GetParam())->is_synchronous ? 1 : 4;
  options.rw = "write";
  options.seed = 7;
  options.allow_writes = true;
  const auto written = run_of(options);
  if (!written->unsupported.empty()) {
    const std::string name = GetParam();
    EXPECT_NE(name, "posix-sio");
    EXPECT_NE(name, "posix-aio");
    EXPECT_NE(name, "mmap");
    GTEST_SKIP() << name << ": " << written->unsupported;
  }
  EXPECT_EQ(written->ios, kBlocks);
  EXPECT_TRUE(written->errors.empty());
  EXPECT_EQ(written->short_transfers, 0u);
  EXPECT_TRUE(is_stamped(bytes_of(file.path()), 0, 7)) << "not all of the file was written, or not in its place";

  options.rw = "randread";
  options.allow_writes = false;
  options.verify = true;
  const auto read = run_of(options);
  EXPECT_EQ(read->ios, kBlocks);
  EXPECT_EQ(read->wrong_reads, 0u);
  EXPECT_EQ(read->latency_ns.count(), read->ios);
  EXPECT_EQ(read->bytes, kTestFileBytes);
  options.seed = 8;
  EXPECT_EQ(run_of(options)->wrong_reads, kBlocks) << "nobody looked";
}

TEST_P(EachInterface, KeepsManyRequestsUnderWay) {
  const TestFile file;
  InterfaceOptions options = options_of(file, GetParam(), 200);
  options.depth = 31;
  options.rw = "read";
  options.verify = true;
  const auto result = run_of(options);
  if (find_kind(GetParam())->is_synchronous) {
    EXPECT_NE(result->unsupported.find("one request under way"), std::string::npos) << result->unsupported;
    return;
  }
  if (!result->unsupported.empty()) GTEST_SKIP() << result->unsupported;
  EXPECT_EQ(result->ios, 200u);
  EXPECT_EQ(result->wrong_reads, 0u);
  EXPECT_GT(result->threads.cpu_ns, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, EachInterface, testing::ValuesIn(names()), [](const auto& tested) {
  std::string name = tested.param;
  for (char& letter : name)
    if (letter == '-') letter = '_';
  return name;
});

TEST(Interfaces, HelpersAreCountedApart) {
  for (const char* const name : {"posix-aio", "io_uring-sqpoll"}) {
    const TestFile file;
    InterfaceOptions options = options_of(file, name, 500);
    const auto result = run_of(options);
    if (!result->unsupported.empty()) continue;
    EXPECT_GE(result->helper_count, 1u) << name;
    // A second run finds those of the first, which may linger, as helpers again.
    EXPECT_GE(run_of(options)->helper_count, 1u) << name;
  }
}

TEST(Interfaces, SystemCallsAreThoseThatWereMade) {
  const TestFile file;
  EXPECT_EQ(run_of(options_of(file, "posix-sio", 100))->system_calls, 99u)
      << "the window begins at the first one's end";
  const auto aio = run_of(options_of(file, "libaio", 100));
  if (aio->unsupported.empty()) {
    EXPECT_GE(aio->system_calls.value_or(0), 2u * 99);
  }
}

TEST(Interfaces, SystemCallsThatALibraryHidesAreNotSaidToBeNone) {
  const TestFile file;
  EXPECT_EQ(run_of(options_of(file, "posix-aio", 10))->system_calls, std::nullopt);
}

// Polling without a device that has queues for it would be waiting for interrupts by another name.
TEST(Interfaces, NothingIsPolledWhereNothingCanBe) {
  const TestFile file;
  for (const InterfaceKind& kind : kinds()) {
    if (!kind.is_polled) continue;
    InterfaceOptions options = options_of(file, kind.name, 10);
    options.direct = false;
    EXPECT_NE(run_of(options)->unsupported.find("only direct I/O"), std::string::npos) << kind.name;
  }
  InterfaceOptions mapped = options_of(file, "mmap", 10);
  mapped.direct = true;
  EXPECT_NE(run_of(mapped)->unsupported.find("page cache"), std::string::npos);
}

TEST(Interfaces, AMappedFileThatIsCutShortFailsTheTransferAlone) {
  const TestFile file;
  const int descriptor = ::open(file.path().c_str(), O_RDWR | O_CLOEXEC);
  alignas(kBlock) std::array<std::byte, kBlock> buffer{};
  const Lane lane{descriptor, kTestFileBytes, kBlock, 1, true, true, buffer};
  const auto mapped = make_mapped(lane);
  std::array<Done, 1> done;
  mapped->submit(0, 0, false);
  ASSERT_EQ(mapped->wait(done), 1u);
  EXPECT_EQ(done[0].result, static_cast<std::int32_t>(kBlock));
  ASSERT_EQ(::ftruncate(descriptor, 0), 0);
  for (const bool is_write : {false, true}) {
    mapped->submit(0, kBlock, is_write);
    ASSERT_EQ(mapped->wait(done), 1u);
    EXPECT_EQ(done[0].result, -EIO);
  }
  const auto plain = make_posix_sio(lane);
  plain->submit(0, kBlock, false);
  ASSERT_EQ(plain->wait(done), 1u);
  EXPECT_EQ(done[0].result, 0) << "nothing was there to be read";
  ::close(descriptor);
}

// Where no device has queues to poll, the kernel ends such requests in its own way; the calls are the right ones.
TEST(Interfaces, PolledTransfersEnd) {
  const TestFile file;
  if (!file.has_direct_io()) GTEST_SKIP() << "no direct I/O here";
  const int descriptor = ::open(file.path().c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  alignas(kBlock) std::array<std::byte, kBlock> buffer{};
  const Lane lane{descriptor, kTestFileBytes, kBlock, 1, true, false, buffer};
  for (const InterfaceKind& kind : kinds()) {
    if (!kind.is_polled) continue;
    buffer.fill(std::byte{0});
    std::array<Done, 1> done;
    try {
      const auto polled = kind.make(lane);
      polled->submit(0, 2 * kBlock, false);
      ASSERT_EQ(polled->wait(done), 1u);
    } catch (const Unsupported& error) {
      EXPECT_NE(std::string(error.what()), "") << kind.name;
      continue;
    }
    if (done[0].result == static_cast<std::int32_t>(kBlock)) {
      EXPECT_TRUE(is_stamped(buffer, 2 * kBlock, kTestFileSeed)) << kind.name;
    } else {
      EXPECT_TRUE(done[0].result == -EOPNOTSUPP || done[0].result == -EINVAL) << kind.name << done[0].result;
    }
  }
  ::close(descriptor);
}

TEST(Interfaces, AKernelThatIgnoresHipriDoesNotPoll) {
  for (const char* const release : {"5.19.0", "5.20-rc1", "6.1", "6.18.4-generic", "10.0"})
    EXPECT_TRUE(is_hipri_ignored(release)) << release;
  for (const char* const release : {"4.19.0", "5.18.19", "5.4", "5", ""}) EXPECT_FALSE(is_hipri_ignored(release));
}

// The C library serves one descriptor by one thread.
TEST(Interfaces, PosixAioHasADescriptorForEachRequestUnderWay) {
  const TestFile file;
  const int descriptor = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
  alignas(kBlock) std::array<std::byte, 4 * kBlock> buffers{};
  const Lane lane{descriptor, kTestFileBytes, kBlock, 4, true, false, buffers};
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto before = open_files();
  {
    const auto aio = make_posix_aio(lane);
    EXPECT_EQ(open_files(), before + 4);
  }
  EXPECT_EQ(open_files(), before);
  ::close(descriptor);
}

// As containers do it: the system call is there, and forbidden.
void forbid(long call) {
  const std::array<sock_filter, 4> rules = {
      sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<std::uint32_t>(call)},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program{static_cast<unsigned short>(rules.size()), const_cast<sock_filter*>(rules.data())};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    ::_exit(77);
}

TEST(Interfaces, WhatAContainerForbidsIsSaid) {
  const TestFile file;
  for (const auto& [name, call] : {std::pair{"io_uring", SYS_io_uring_setup}, std::pair{"libaio", SYS_io_setup}}) {
    const InterfaceOptions options = options_of(file, name, 10);
    const pid_t child = ::fork();
    if (child == 0) {
      forbid(call);
      const Lane lane{-1, kTestFileBytes, kBlock, 1, true, false, {}};
      try {
        find_kind(options.interface_name)->make(lane);
      } catch (const Unsupported& error) {
        const std::string text = error.what();
        ::_exit(text.find("Operation not permitted; ") != std::string::npos ? 0 : 1);
      }
      ::_exit(2);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "there are no filters of system calls here";
    EXPECT_EQ(WEXITSTATUS(status), 0) << name;
  }
}

}  // namespace
}  // namespace flashmob::interfaces
