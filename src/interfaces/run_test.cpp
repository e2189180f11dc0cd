// A measured run: what counts, what is refused, and how it ends.
#include "interfaces/run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "interfaces/interface_test_support.h"
#include "interfaces/target.h"
#include "interfaces/worker.h"

namespace flashmob::interfaces {
namespace {

// What a run with these options is refused for; empty: it is not.
std::string refused(const InterfaceOptions& options) {
  try {
    const auto result = run_of(options);
    return result->unsupported.empty() ? "" : "unsupported: " + result->unsupported;
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(RunOptions, ThatCannotBeAreRefusedWithTheFix) {
  const TestFile file;
  const InterfaceOptions good = options_of(file, "posix-sio", 10);
  const auto with = [&](auto change) {
    InterfaceOptions options = good;
    change(options);
    return refused(options);
  };
  EXPECT_EQ(refused(good), "");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {with([](auto& o) { o.interface_name = "aio"; }),
       "interface_name = \"aio\" is not possible: use one of posix-sio"},
      {with([](auto& o) { o.rw = "trim"; }), "rw = \"trim\" is not possible: use one of read, write"},
      {with([](auto& o) { o.depth = 0; }), "depth = 0 is not possible: use 1 to"},
      {with([](auto& o) { o.threads = 0; }), "threads = 0 is not possible: use 1 to 256"},
      {with([](auto& o) { o.threads = 1000; }), "threads = 1000 is not possible: use 1 to 256"},
      {with([](auto& o) { o.block_bytes = 0; }), "block_bytes = 0 is not possible"},
      {with([](auto& o) { o.block_bytes = 1000; }), "block_bytes = 1000 is not possible: use a multiple of"},
      {with([](auto& o) { o.block_bytes = 1u << 30; }), "block_bytes = 1073741824 is not possible"},
      {with([](auto& o) { o.depth = 4096, o.threads = 256, o.ios = 256; }), "use at most 1 GiB of buffers"},
      {with([](auto& o) { o.ios = 0, o.runtime_ns = 0; }), "runtime_ns = 0 is not possible"},
      {with([](auto& o) { o.ios = 1, o.threads = 2; }), "ios = 1 is not possible: use 2 to"},
      {with([](auto& o) { o.block_bytes = 1 << 20; }), "less than a block for each thread"},
      {with([](auto& o) { o.path = ""; }), "name a file or a block device"},
      {with([](auto& o) { o.path += ".none"; }), "No such file or directory; name a file or a block device"},
      {with([](auto& o) { o.path = "."; }), "is a folder; name a file or a block device"},
      {with([](auto& o) { o.path = "/dev/null"; }), "is neither a file nor a block device"},
      {with([](auto& o) { o.rw = "write"; }), "would be overwritten, and nobody allowed that (--allow-writes)"},
  };
  for (const auto& [said, expected] : cases)
    EXPECT_NE(said.find(expected), std::string::npos) << said << "\n" << expected;
}

TEST(MeasuredRun, ByTimeHasAWindowOfExactlyThatTime) {
  const TestFile file;
  InterfaceOptions options = options_of(file, "posix-sio", 0);
  options.ramp_ns = 1'000'000;
  options.runtime_ns = 20'000'000;
  options.threads = 2;
  const std::uint64_t before = monotonic_ns();
  const auto result = run_of(options);
  EXPECT_EQ(result->end_ns - result->begin_ns, options.runtime_ns);
  EXPECT_GE(result->begin_ns, before + options.ramp_ns);
  EXPECT_LE(result->end_ns, monotonic_ns());
  EXPECT_GT(result->realtime_ahead_ns, 0u);
}

TEST(MeasuredRun, ThatIsCancelledEndsAtOnce) {
  const TestFile file;
  InterfaceOptions options = options_of(file, "posix-sio", 0);
  options.runtime_ns = 3'600'000'000'000;
  for (const std::uint64_t ramp_ns : {std::uint64_t{0}, options.runtime_ns}) {
    options.ramp_ns = ramp_ns;
    MeasuredRun run(options);
    std::thread other([&] { run.cancel(); });
    const auto result = run.run();
    other.join();
    EXPECT_TRUE(result->was_cancelled);
    EXPECT_LT(result->end_ns - result->begin_ns, options.runtime_ns);
  }
}

TEST(MeasuredRun, IsAloneInItsProcess) {
  const TestFile file;
  InterfaceOptions options = options_of(file, "posix-sio", 0);
  options.runtime_ns = 3'600'000'000'000;
  MeasuredRun run(options);
  // The short one below may be under way just then.
  std::thread other([&] {
    for (bool is_done = false; !is_done;) try {
        run.run();
        is_done = true;
      } catch (const ConfigError&) {
      }
  });
  const InterfaceOptions second = options_of(file, "posix-sio", 10);
  while (refused(second) == "") std::this_thread::yield();
  EXPECT_NE(refused(second).find("is under way in this process"), std::string::npos);
  run.cancel();
  other.join();
}

// An interface that fails every second transfer, and moves half of every fifth.
class Failing final : public Interface {
 public:
  using Interface::Interface;
  void submit(std::uint32_t slot, std::uint64_t, bool) override {
    const auto whole = static_cast<std::int32_t>(lane_.block_bytes);
    ++count_;
    done_ = {slot, count_ % 5 == 0 ? whole / 2 : count_ % 2 == 0 ? -EIO : whole};
  }
  std::size_t wait(std::span<Done> done) override {
    done[0] = done_;
    return 1;
  }

 private:
  std::uint64_t count_ = 0;
  Done done_;
};

TEST(MeasuredRun, CountsWhatFailsByErrorAndStopsAllTheSame) {
  const TestFile file;
  const InterfaceOptions options = options_of(file, "posix-sio", 1'000);
  const InterfaceKind kind{"failing", "", "", true, false, false, [](const Lane& lane) -> std::unique_ptr<Interface> {
                             return std::make_unique<Failing>(lane);
                           }};
  const Target target(options, kind);
  Stage stage;
  stage.has_started = true;
  stage.may_leave = true;
  stage.end_ns = UINT64_MAX;
  const std::atomic<bool> is_cancelled{false};
  Worker worker(options, kind, target, 0, stage, is_cancelled);
  std::thread([&] { worker.main(); }).join();
  EXPECT_EQ(worker.error(), nullptr);
  const Worker::Seen& seen = worker.seen();
  EXPECT_EQ(seen.ios + seen.failed, 1'000u);
  EXPECT_EQ(seen.short_transfers, 200u);
  EXPECT_EQ(seen.errors.size(), 1u);
  EXPECT_EQ(seen.errors.at(EIO) + seen.short_transfers, seen.failed);
  EXPECT_EQ(seen.latency_ns.count(), seen.ios);
}

// An interface whose requests end one by one, in their order, each after some CPU time of its thread.
class OneByOne final : public Interface {
 public:
  static constexpr std::uint64_t kBusyNs = 1'000'000;
  using Interface::Interface;
  void submit(std::uint32_t slot, std::uint64_t, bool) override {
    under_way_.push_back({slot, static_cast<std::int32_t>(lane_.block_bytes)});
  }
  std::size_t wait(std::span<Done> done) override {
    const std::uint64_t before = usage_of_this_thread().cpu_ns;
    while (usage_of_this_thread().cpu_ns - before < kBusyNs) {
    }
    done[0] = under_way_.front();
    under_way_.pop_front();
    return 1;
  }

 private:
  std::deque<Done> under_way_;
};

constexpr InterfaceKind kOneByOne{
    "one-by-one", "", "", false, false, false, [](const Lane& lane) -> std::unique_ptr<Interface> {
      return std::make_unique<OneByOne>(lane);
    }};

Worker::Seen seen_one_by_one(const InterfaceOptions& options, std::uint64_t begin_ns, std::uint64_t end_ns) {
  const Target target(options, kOneByOne);
  Stage stage;
  stage.has_started = true;
  stage.may_leave = true;
  stage.begin_ns = begin_ns;
  stage.end_ns = end_ns;
  const std::atomic<bool> is_cancelled{false};
  Worker worker(options, kOneByOne, target, 0, stage, is_cancelled);
  std::thread([&] { worker.main(); }).join();
  EXPECT_EQ(worker.error(), nullptr);
  return worker.seen();
}

TEST(MeasuredRun, InWhichNothingEndsHasItsCostAllTheSame) {
  const TestFile file;
  // A window that is over when the first request ends.
  const Worker::Seen seen = seen_one_by_one(options_of(file, "posix-sio", 0), 1, 2);
  EXPECT_EQ(seen.ios, 0u);
  EXPECT_GE(seen.usage.cpu_ns, OneByOne::kBusyNs);
}

TEST(MeasuredRun, SaysWhatWasUnderWayAtItsEnd) {
  const TestFile file;
  InterfaceOptions options = options_of(file, "posix-sio", 1);
  options.depth = 3;
  const Worker::Seen seen = seen_one_by_one(options, 0, UINT64_MAX);
  EXPECT_EQ(seen.ios, 1u);
  EXPECT_EQ(seen.unfinished.requests, 2u);
  EXPECT_GE(seen.unfinished.oldest_ns, OneByOne::kBusyNs);
  EXPECT_GT(seen.unfinished.total_ns, seen.unfinished.oldest_ns);
  EXPECT_EQ(run_of(options_of(file, "posix-sio", 10))->unfinished.requests, 0u);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHasSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kHasSanitizer = true;
#else
constexpr bool kHasSanitizer = false;
#endif
#else
constexpr bool kHasSanitizer = false;
#endif

// In a process of its own, with room for the stacks of some of the threads.
TEST(MeasuredRun, WhoseThreadsCannotAllBeMadeSaysSo) {
  if (kHasSanitizer) GTEST_SKIP() << "a sanitizer's address space cannot be limited";
  const TestFile file;
  InterfaceOptions options = options_of(file, "posix-sio", 1'000);
  options.threads = 100;
  options.block_bytes = 512;
  const pid_t child = ::fork();
  if (child == 0) {
    check_options(options);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (std::size_t{100} << 20);
    const rlimit limit{bytes, bytes};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(77);
    try {
      MeasuredRun(options).run();
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      ::_exit(text.find("threads = 100 is not possible: the system made ") != std::string::npos ? 0 : 1);
    } catch (...) {
      ::_exit(2);
    }
    ::_exit(3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "the address space cannot be limited here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(MeasuredRun, DrawsTheSamePlacesFromTheSameSeed) {
  std::vector<std::string> found;
  for (int round = 0; round < 2; ++round) {
    const TestFile fresh;
    InterfaceOptions options = options_of(fresh, "posix-sio", 40);
    options.rw = "randwrite";
    options.allow_writes = true;
    options.seed = 5;
    ASSERT_EQ(refused(options), "");
    std::string places;
    const int descriptor = ::open(fresh.path().c_str(), O_RDONLY | O_CLOEXEC);
    std::array<std::byte, 512> sector{};
    for (std::uint64_t at = 0; at < kTestFileBytes; at += 4096)
      if (::pread(descriptor, sector.data(), sector.size(), static_cast<off_t>(at)) == 512)
        places += is_stamped(sector, at, 5) ? '1' : '0';
    ::close(descriptor);
    found.push_back(places);
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_NE(found[0].find('1'), std::string::npos);
  EXPECT_NE(found[0].find('0'), std::string::npos);
}

TEST(Polling, NeedsABlockDevice) {
  const int memory = ::memfd_create("interfaces", MFD_CLOEXEC);
  ASSERT_GE(memory, 0);
  EXPECT_NE(why_no_polling(memory).find("no block device is known"), std::string::npos);
  ::close(memory);
}

// A loop device over a file, held as a file system holds what it has mounted.
TEST(BlockDevice, ThatIsInUseIsNeverWrittenTo) {
  const TestFile file;
  const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  const int number = control < 0 ? -1 : ::ioctl(control, LOOP_CTL_GET_FREE);
  if (control >= 0) ::close(control);
  const std::string path = "/dev/loop" + std::to_string(number);
  const int backing = ::open(file.path().c_str(), O_RDWR | O_CLOEXEC);
  int device = number < 0 ? -1 : ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (device < 0 || ::ioctl(device, LOOP_SET_FD, backing) != 0) {
    if (device >= 0) ::close(device);
    ::close(backing);
    GTEST_SKIP() << "no loop device can be made here";
  }
  InterfaceOptions options = options_of(file, "posix-sio", 10);
  options.path = path;
  options.rw = "write";
  options.allow_writes = true;
  const int user = ::open(path.c_str(), O_RDWR | O_EXCL | O_CLOEXEC);
  EXPECT_GE(user, 0);
  EXPECT_NE(refused(options).find("is in use"), std::string::npos) << refused(options);
  options.rw = "read";
  EXPECT_EQ(refused(options), "") << "reading it harms nobody";
  ::close(user);
  options.rw = "write";
  EXPECT_EQ(refused(options), "");
  options.allow_writes = false;
  EXPECT_NE(refused(options).find("nobody allowed that"), std::string::npos);
  ::ioctl(device, LOOP_CLR_FD, 0);
  ::close(device);
  ::close(backing);
}

TEST(Content, TellsPlaceAndSeed) {
  std::vector<std::byte> block(2048);
  fill_noise(block, 3);
  EXPECT_FALSE(is_stamped(block, 4096, 3));
  stamp(block, 4096, 3);
  EXPECT_TRUE(is_stamped(block, 4096, 3));
  EXPECT_FALSE(is_stamped(block, 4096, 4));
  EXPECT_FALSE(is_stamped(block, 0, 3));
  block[1536] ^= std::byte{1};
  EXPECT_FALSE(is_stamped(block, 4096, 3)) << "the last sector counts, too";
}

TEST(Content, AFileThatIsThereIsLeftAlone) {
  const TestFile file;
  EXPECT_THROW(create_stamped_file(file.path(), 512, 9), ConfigError);
  EXPECT_THROW(create_stamped_file(file.path() + ".new", 100, 9), ConfigError);
  EXPECT_EQ(std::filesystem::file_size(file.path()), kTestFileBytes);
}

}  // namespace
}  // namespace flashmob::interfaces
