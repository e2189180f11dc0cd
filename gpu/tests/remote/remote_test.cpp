// SSDs in another process. The server is this process's, on its own thread; clients that must be able to die are
// children. Everything runs on fibres, in real time.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "evaluation/random_reads.h"
#include "flashmob/error.h"
#include "flashmob/gpu.h"
#include "flashmob/gpu_server.h"
#include "host/attach/virtual_ssd.h"

namespace flashmob::gpu {
namespace {

constexpr std::uint32_t kThreads = 32;
constexpr std::uint32_t kBytes = 4096;

DeviceConfig served_ssd() { return on_gpu_engine(small_ssd(), 1); }

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

std::size_t mappings_of(const std::string& name) {
  std::size_t count = 0;
  FILE* const maps = fopen("/proc/self/maps", "r");
  char line[512];
  while (fgets(line, sizeof(line), maps) != nullptr) count += std::strstr(line, name.c_str()) != nullptr;
  fclose(maps);
  return count;
}

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class Remote : public ::testing::Test {
 protected:
  Remote() {
    char folder[] = "/tmp/flashmob_remote_XXXXXX";
    path_ = std::string(mkdtemp(folder)) + "/ssd";
  }
  ~Remote() override { std::filesystem::remove_all(std::filesystem::path(path_).parent_path()); }

  void start(const DeviceConfig& config = served_ssd()) { server_ = serve(config, path_, "fibres"); }
  std::unique_ptr<Gpu> attach(GpuOptions options = {}) const {
    options.backend = options.backend == "auto" ? "fibres" : options.backend;
    return attach_remote(path_, options);
  }

  // Fills the namespace with what RandomReads expects, by the host's own writes.
  static void fill(Gpu& gpu) {
    constexpr std::uint32_t kWords = 512 / 8;
    std::vector<std::uint64_t> media(gpu.ssd_info(0).namespace_bytes[0] / 8);
    for (std::size_t i = 0; i < media.size(); ++i)
      media[i] = workloads::pattern_word(0, 0, i / kWords, static_cast<std::uint32_t>(i % kWords));
    gpu.write(0, 0, 0, media.data(), media.size() * 8);
  }

  // Random reads by kernels, each block compared.
  static evaluation::ReadAccount read(Gpu& gpu, std::uint64_t reads_each) {
    const Memory buffers = gpu.allocate(kThreads * kBytes);
    const Memory completions = gpu.allocate(kThreads * sizeof(Completion), Placement::host);
    const Memory account = gpu.allocate(sizeof(evaluation::ReadAccount), Placement::host);
    evaluation::ReadPlan plan;
    plan.ssd = gpu.ssd(0);
    plan.bytes = kBytes;
    plan.span = gpu.ssd_info(0).namespace_bytes[0] / kBytes;
    plan.reads_each = reads_each;
    plan.until_ns = UINT64_MAX;
    plan.buffers = buffers.data();
    plan.completions = new (completions.data()) Completion[kThreads];
    plan.account = new (account.data()) evaluation::ReadAccount();
    gpu.run({.blocks = 1, .block_threads = kThreads}, evaluation::RandomReads{}, plan);
    return *account.as<evaluation::ReadAccount>();
  }

  static void expect_verified(const evaluation::ReadAccount& account, std::uint64_t reads) {
    EXPECT_EQ(account.reads.value, reads);
    EXPECT_EQ(account.checked.value, reads * kBytes / 512);
    EXPECT_EQ(account.wrong.value + account.failed.value, 0u);
  }

  // A child that reads until it is killed; returns when it has begun.
  pid_t fork_reader() const {
    int begun[2];
    EXPECT_EQ(pipe(begun), 0);
    const pid_t child = fork();
    if (child == 0) {
      try {
        const auto gpu = attach({.queues = 2, .queue_depth = 64});
        (void)!write(begun[1], "x", 1);
        for (;;) read(*gpu, 1000);
      } catch (const std::exception& error) {
        fprintf(stderr, "the child: %s\n", error.what());
      }
      _exit(1);
    }
    close(begun[1]);
    char byte;
    EXPECT_EQ(::read(begun[0], &byte, 1), 1);
    close(begun[0]);
    return child;
  }

  std::string path_;
  std::unique_ptr<GpuServer> server_;
};

TEST_F(Remote, KernelsReadWhatTheHostWrote) {
  start();
  EXPECT_EQ(server_->address(), "gpu-socket:" + path_);
  EXPECT_NE(server_->engine().find("far slower than on a GPU"), std::string::npos);
  const auto gpu = attach({.queues = 2, .queue_depth = 32});
  EXPECT_EQ(gpu->backend().name, "fibres");
  EXPECT_EQ(gpu->backend().clock, "real");
  EXPECT_NE(gpu->backend().reason.find("another process's"), std::string::npos);
  EXPECT_EQ(gpu->ssd_info(0).profile, "small");
  EXPECT_EQ(gpu->ssd_info(0).lba_bytes, (std::vector<std::uint32_t>{512, 4096}));
  fill(*gpu);
  expect_verified(read(*gpu, 3), 3 * kThreads);
  const GpuStats stats = gpu->stats();
  EXPECT_EQ(stats.submitted, 3 * kThreads);
  EXPECT_EQ(stats.completed, 3 * kThreads);
  EXPECT_EQ(stats.unexpected, 0u);
  EXPECT_TRUE(eventually([&] {
    const GpuServerStats served = server_->stats();
    return served.clients.size() == 1 && served.clients[0].read_commands >= 3 * kThreads;
  }));
  const GpuServerClient client = server_->stats().clients[0];
  EXPECT_EQ(client.pid, getpid());
  EXPECT_EQ(client.queues, 3u);  // one is the host's own
}

TEST_F(Remote, EveryServiceAndBothBackendsOfTheCpu) {
  start();
  for (const char* const backend : {"fibres", "threads"}) {
    for (const char* const service : {"kernel", "host", "callers"}) {
      SCOPED_TRACE(std::string(backend) + " " + service);
      const auto gpu = attach({.backend = backend, .service = service, .queues = 2, .queue_depth = 64});
      fill(*gpu);
      expect_verified(read(*gpu, 1), kThreads);
      gpu->stop_service();
      EXPECT_TRUE(gpu->drain(1'000'000'000));
    }
  }
}

TEST_F(Remote, SecondNamespaceFilesAndMistakes) {
  start();
  const auto gpu = attach();
  std::vector<std::uint8_t> data(3 * 4096), back(data.size());
  std::iota(data.begin(), data.end(), std::uint8_t{1});
  gpu->write(0, 1, 7, data.data(), data.size());
  gpu->read(0, 1, 7, back.data(), back.size());
  EXPECT_EQ(data, back);
  const std::string file = path_ + ".bin";
  std::FILE* const out = fopen(file.c_str(), "w");
  fwrite(data.data(), 1, 1000, out);
  fclose(out);
  EXPECT_EQ(gpu->load_file(0, 0, 0, file), 1000u);
  EXPECT_NE(message_of([&] { gpu->read(0, 2, 0, back.data(), 4096); }).find("counted from 0"), std::string::npos);
  EXPECT_NE(message_of([&] { gpu->read(0, 0, 1u << 30, back.data(), 512); }).find("lba = "), std::string::npos);
  EXPECT_NE(message_of([&] { gpu->read(0, 0, 0, back.data(), 100); }).find("whole blocks"), std::string::npos);
  EXPECT_NE(message_of([&] { gpu->ssd(1); }).find("ssd = 1"), std::string::npos);
  EXPECT_NE(message_of([&] { gpu->share(back.data(), 4096); }).find("allocate() it"), std::string::npos);
  EXPECT_NE(message_of([&] { attach({.clock = "virtual"}); }).find("real time"), std::string::npos);
  EXPECT_NE(message_of([&] { attach({.queues = 4000}); }).find("queues are free"), std::string::npos);
  EXPECT_NE(message_of([&] { attach_remote(path_ + "x"); }).find("cannot connect"), std::string::npos);
  // What was refused has left nothing behind.
  EXPECT_NO_THROW(attach({.queues = 200, .queue_depth = 8}));
}

TEST_F(Remote, ConfigurationsThatCannotBeServed) {
  EXPECT_NE(message_of([&] { start(small_ssd()); }).find("engine.kind"), std::string::npos);
  DeviceConfig faulty = served_ssd();
  faulty.faults = {"error p=0.5"};
  EXPECT_NE(message_of([&] { start(faulty); }).find("faults"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_));
  start();
  EXPECT_NE(message_of([&] { serve(served_ssd(), path_, "fibres"); }).find("served by another process"),
            std::string::npos);
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(Remote, AClientThatIsKilledUnderLoadDisturbsNobody) {
  start();
  auto gpu = attach({.queues = 2, .queue_depth = 64});
  fill(*gpu);
  expect_verified(read(*gpu, 1), kThreads);
  const std::size_t files = open_files(), mapped = mappings_of("memfd:flashmob");
  for (int round = 0; round < 3; ++round) {
    const pid_t first = fork_reader(), second = fork_reader();
    EXPECT_TRUE(eventually([&] { return server_->stats().clients.size() == 3; }));
    kill(first, SIGKILL);
    expect_verified(read(*gpu, 2), 2 * kThreads);
    EXPECT_EQ(waitpid(first, nullptr, 0), first);
    EXPECT_TRUE(eventually([&] { return server_->stats().clients.size() == 2; }));
    EXPECT_NE(server_->stats().last_event.find("(process " + std::to_string(first) + ") has gone"), std::string::npos);
    int status = 0;
    EXPECT_EQ(waitpid(second, &status, WNOHANG), 0);  // still at it
    kill(second, SIGKILL);
    EXPECT_EQ(waitpid(second, nullptr, 0), second);
    EXPECT_TRUE(eventually([&] { return server_->stats().clients.size() == 1; }));
    expect_verified(read(*gpu, 1), kThreads);
  }
  EXPECT_EQ(open_files(), files);
  EXPECT_EQ(mappings_of("memfd:flashmob"), mapped);
  gpu.reset();
  EXPECT_TRUE(eventually([&] { return server_->stats().clients.empty(); }));
  EXPECT_EQ(mappings_of("memfd:flashmob"), 0u);
  EXPECT_EQ(server_->stats().clients_seen, 7u);
  EXPECT_NE(server_->stats().last_event.find("took its leave"), std::string::npos);
}

TEST_F(Remote, AServerThatGoesEndsTheClientsWaits) {
  start();
  const auto gpu = attach({.queues = 1, .queue_depth = 16});
  fill(*gpu);
  std::jthread ender([&] {
    EXPECT_TRUE(eventually([&] {
      const GpuServerStats served = server_->stats();
      return !served.clients.empty() && served.clients[0].read_commands != 0;
    }));
    server_.reset();
  });
  const evaluation::ReadAccount account = read(*gpu, 100'000'000);
  EXPECT_NE(account.failed.value, 0u);
  ender.join();
  std::byte block[512];
  EXPECT_NE(message_of([&] { gpu->read(0, 0, 0, block, 512); }).find("gone"), std::string::npos);
  EXPECT_NE(message_of([&] { gpu->allocate(512); }).find("the server is gone"), std::string::npos);
}

// What a server answered before it went is taken in after that: nobody may write where there is nothing any more.
TEST_F(Remote, MemoryThatIsFreedAfterTheServerHasGoneStaysUntilTheServiceEnds) {
  start();
  auto gpu = attach({.queues = 1, .queue_depth = 16});
  Memory buffers = gpu->allocate(kThreads * kBytes);
  server_.reset();
  EXPECT_TRUE(eventually([&] { return message_of([&] { gpu->allocate(512); }).find("gone") != std::string::npos; }));
  const std::size_t mapped = mappings_of("memfd:flashmob");
  buffers = {};
  EXPECT_EQ(mappings_of("memfd:flashmob"), mapped);
  gpu.reset();
  EXPECT_EQ(mappings_of("memfd:flashmob"), 0u);
}

TEST_F(Remote, AsManyClientsAsThereMayBe) {
  start();
  std::vector<std::unique_ptr<Gpu>> clients;
  for (std::uint32_t i = 0; i < GpuServer::kMaxClients; ++i) clients.push_back(attach({.queue_depth = 8}));
  EXPECT_NE(message_of([&] { attach({.queue_depth = 8}); }).find("as many as it can"), std::string::npos);
  clients.pop_back();
  EXPECT_NO_THROW(clients.push_back(attach({.queue_depth = 8})));
  EXPECT_EQ(server_->stats().clients_refused, 1u);
}

}  // namespace
}  // namespace flashmob::gpu
