// How many who come a gpu-socket's server takes in before it turns to those who are in.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "host/attach/virtual_ssd.h"
#include "host/socket/gpu_socket.h"
#include "host/socket/gpu_socket_server.h"
#include "vfio/message_socket.h"

namespace flashmob::gpu {
namespace {

constexpr std::size_t kVisitors = 40;
constexpr std::size_t kMostPerLook = 4;

// What the server's thread and the test share.
struct Watch {
  std::mutex gate;  // while the test holds it, the server stands still between two looks at its sockets
  std::vector<vfio::UniqueFd> visitors;
  std::size_t answered = 0;
  std::size_t most_at_once = 0;

  // Between two looks.
  void look() {
    const std::lock_guard lock(gate);
    std::vector<pollfd> fds;
    for (const vfio::UniqueFd& visitor : visitors) fds.push_back({visitor.get(), POLLIN, 0});
    if (poll(fds.data(), fds.size(), 0) < 0) return;
    const auto now = static_cast<std::size_t>(
        std::count_if(fds.begin(), fds.end(), [](const pollfd& fd) { return fd.revents != 0; }));
    most_at_once = std::max(most_at_once, now - answered);
    answered = now;
  }
};

// Fibres that look as if they ran by themselves: the server then asks once between two looks whether they still do.
class WatchedMachine final : public EngineMachine {
 public:
  WatchedMachine(std::unique_ptr<EngineMachine> inner, Watch& watch) : inner_(std::move(inner)), watch_(watch) {}

  EngineMemory& memory() override { return inner_->memory(); }
  DeviceEngineOptions options(const EngineConfig& config) const override { return inner_->options(config); }
  void launch(const DeviceEngine& engine) override { inner_->launch(engine); }
  void join() override { inner_->join(); }
  bool step(std::uint64_t ns) override {
    watch_.look();
    return inner_->step(std::max<std::uint64_t>(ns, 500));
  }
  bool runs_by_itself() const override { return true; }
  void share(void* data, std::size_t bytes) override { inner_->share(data, bytes); }
  void unshare(void* data, std::size_t bytes) override { inner_->unshare(data, bytes); }
  void* import(const simt::CudaMemoryHandle& handle) override { return inner_->import(handle); }
  void close_import(void* memory) override { inner_->close_import(memory); }

 private:
  std::unique_ptr<EngineMachine> inner_;
  Watch& watch_;
};

void describe(vfio::MessageSocket& client) {
  const wire::DescribeRequest request{wire::kVersion, 0};
  vfio::Header header{};
  header.command = static_cast<std::uint16_t>(wire::Command::describe);
  ASSERT_TRUE(client.send(header, std::as_bytes(std::span(&request, 1))));
  vfio::Message reply;
  while (client.receive(reply) == vfio::MessageSocket::Received::nothing) ASSERT_TRUE(client.wait_readable(10'000));
  ASSERT_EQ(reply.header.flags & vfio::kFlagError, 0u);
}

TEST(GpuSocketAccept, WhoComesInWaitsForThoseWhoAreIn) {
  char folder[] = "/tmp/flashmob_accept_XXXXXX";
  const std::string path = std::string(mkdtemp(folder)) + "/ssd";
  Watch watch;
  auto server = std::make_unique<GpuSocketServer>(
      on_gpu_engine(small_ssd(), 1), path, "fibres", [&](const DeviceConfig& config, const Clock& clock) {
        return std::make_unique<WatchedMachine>(make_fibre_machine(config, clock), watch);
      });
  // All places are taken by clients that stay, so each visitor is answered when it is let in, and turned away.
  std::vector<std::unique_ptr<vfio::MessageSocket>> clients;
  for (std::uint32_t i = 0; i < GpuServer::kMaxClients; ++i) {
    clients.push_back(std::make_unique<vfio::MessageSocket>(vfio::connect_unix(path), wire::kMaxMessageBytes));
    describe(*clients.back());
  }
  {
    const std::lock_guard lock(watch.gate);
    for (std::size_t i = 0; i < kVisitors; ++i) watch.visitors.push_back(vfio::connect_unix(path));
  }
  const auto all_answered = [&] {
    const std::lock_guard lock(watch.gate);
    return watch.answered == kVisitors;
  };
  for (int i = 0; i < 20'000 && !all_answered(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(all_answered());
  server.reset();
  EXPECT_LE(watch.most_at_once, kMostPerLook);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace flashmob::gpu
