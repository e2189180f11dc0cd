// What a gpu-socket's server does with clients that break the rules: each gets a reason, or is disconnected, and the
// others go on. Over real sockets, with an engine that runs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "flashmob/error.h"
#include "flashmob/gpu.h"
#include "flashmob/gpu_server.h"
#include "host/attach/virtual_ssd.h"
#include "host/socket/gpu_socket.h"
#include "memory/host_memory.h"
#include "vfio/message_socket.h"

namespace flashmob::gpu {
namespace {

using memory::HostMemory;
using wire::Command;

template <class T>
std::vector<std::byte> bytes_of(const T& value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  return {first, first + sizeof(value)};
}

class Protocol : public ::testing::Test {
 protected:
  Protocol() {
    char folder[] = "/tmp/flashmob_protocol_XXXXXX";
    path_ = std::string(mkdtemp(folder)) + "/ssd";
    server_ = serve(on_gpu_engine(small_ssd(), 1), path_, "fibres");
    connect();
  }
  ~Protocol() override {
    socket_.reset();
    server_.reset();
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path());
  }

  void connect() { socket_ = std::make_unique<vfio::MessageSocket>(vfio::connect_unix(path_), wire::kMaxMessageBytes); }
  void begin() { EXPECT_EQ(say(Command::describe, bytes_of(wire::DescribeRequest{wire::kVersion, 0})), ""); }

  // The server's answer: empty for success, its reason, or "closed".
  std::string say(Command command, const std::vector<std::byte>& payload, std::vector<int> fds = {},
                  std::uint32_t flags = vfio::kTypeCommand) {
    vfio::Header header{};
    header.message_id = ++id_;
    header.command = static_cast<std::uint16_t>(command);
    header.flags = flags;
    if (!socket_->send(header, payload, fds)) return "closed";
    for (;;) {
      switch (socket_->receive(reply_)) {
        case vfio::MessageSocket::Received::message:
          EXPECT_EQ(reply_.header.message_id, id_);
          EXPECT_EQ(reply_.header.command, header.command);
          return (reply_.header.flags & vfio::kFlagError) != 0 ? wire::read_error(reply_) : "";
        case vfio::MessageSocket::Received::nothing:
          if (!socket_->wait_readable(10'000)) return "no answer";
          break;
        default:
          return "closed";
      }
    }
  }
  std::string map(const wire::MapRequest& request, int fd) { return say(Command::map, bytes_of(request), {fd}); }
  std::string attach(const std::vector<wire::QueuePair>& pairs, std::uint32_t count) {
    std::vector<std::byte> payload = bytes_of(wire::AttachRequest{count, 0});
    for (const wire::QueuePair& pair : pairs) {
      const auto more = bytes_of(pair);
      payload.insert(payload.end(), more.begin(), more.end());
    }
    return say(Command::attach, payload);
  }
  static bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

  std::string path_;
  std::unique_ptr<GpuServer> server_;
  std::unique_ptr<vfio::MessageSocket> socket_;
  vfio::Message reply_;
  std::uint16_t id_ = 0;
};

TEST_F(Protocol, ADescriptionComesFirst) {
  const std::string first = say(Command::leave, {});
  EXPECT_TRUE(has(first, "begins with `describe`")) << first;
  EXPECT_TRUE(has(say(Command::describe, bytes_of(wire::DescribeRequest{2, 0})), "different versions"));
  EXPECT_TRUE(has(say(Command::describe, bytes_of(wire::DescribeRequest{1, 1})), "different versions"));
  EXPECT_TRUE(has(say(Command::describe, {}), "wrong size"));
  begin();
  const wire::Described ssd = wire::read_description(reply_);
  EXPECT_EQ(ssd.profile, "small");
  EXPECT_EQ(ssd.namespaces.size(), 2u);
  EXPECT_EQ(ssd.namespaces[1].lba_shift, 12u);
  EXPECT_EQ(ssd.max_transfer_bytes, 128u << 10);
  EXPECT_EQ(ssd.most_queues, 256u);
  EXPECT_FALSE(ssd.knows_cuda);
}

TEST_F(Protocol, MemoryThatCannotBe) {
  begin();
  const HostMemory memory(1 << 16, HostMemory::Kind::shared_memfd);
  const wire::MapRequest good{0x10000, 1 << 16, 0, wire::Kind::file, 0, {}};
  const auto refused = [&](auto change, const char* why) {
    wire::MapRequest request = good;
    change(request);
    const std::string said = map(request, memory.fd());
    EXPECT_TRUE(has(said, why)) << said;
  };
  refused([](auto& r) { r.address = 0x10010; }, "page of 4096");
  refused([](auto& r) { r.bytes = 100; }, "page of 4096");
  refused([](auto& r) { r.bytes = 0; }, "4096 bytes to 2^44");
  refused([](auto& r) { r.bytes = std::uint64_t{1} << 45; }, "4096 bytes to 2^44");
  refused([](auto& r) { r.address = UINT64_MAX - 4095; }, "before the address space does");
  refused([](auto& r) { r.offset = 1; }, "multiple of 4096");
  refused([](auto& r) { r.offset = UINT64_MAX - 4095; }, "multiple of 4096");
  refused([](auto& r) { r.offset = 4096; }, "as long as its piece");  // the file is shorter
  refused([](auto& r) { r.bytes = 1 << 17; }, "as long as its piece");
  refused([](auto& r) { r.kind = static_cast<wire::Kind>(7); }, "a file or a GPU's");
  refused([](auto& r) { r.kind = wire::Kind::cuda; }, "should not have");  // a descriptor
  refused([](auto& r) { r.reserved = 1; }, "reserved");
  EXPECT_TRUE(has(say(Command::map, bytes_of(good)), "must come with its descriptor"));
  EXPECT_TRUE(has(say(Command::map, bytes_of(good), {memory.fd(), memory.fd()}), "must come with its descriptor"));
  wire::MapRequest on_gpu = good;
  on_gpu.kind = wire::Kind::cuda;
  EXPECT_TRUE(has(say(Command::map, bytes_of(on_gpu)), "runs on fibres"));
  const vfio::UniqueFd device(open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_TRUE(has(map(good, device.get()), "must be one in memory"));
  const vfio::UniqueFd read_only(open(("/proc/self/fd/" + std::to_string(memory.fd())).c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(has(map(good, read_only.get()), "open for writing"));

  EXPECT_EQ(map(good, memory.fd()), "");
  refused([](auto& r) { r.address = 0x1F000; }, "mapped already");
  refused([](auto& r) { r.address = 0x8000; }, "mapped already");
  EXPECT_TRUE(has(say(Command::unmap, bytes_of(wire::UnmapRequest{0x10000, 4096})), "mapped like this"));
  EXPECT_TRUE(has(say(Command::unmap, bytes_of(wire::UnmapRequest{0x20000, 1 << 16})), "mapped like this"));
  EXPECT_EQ(say(Command::unmap, bytes_of(wire::UnmapRequest{0x10000, 1 << 16})), "");
  EXPECT_EQ(map(good, memory.fd()), "");
}

TEST_F(Protocol, QueuesThatCannotBe) {
  begin();
  const HostMemory memory(1 << 16, HostMemory::Kind::shared_memfd);
  ASSERT_EQ(map({0x10000, 1 << 16, 0, wire::Kind::file, 0, {}}, memory.fd()), "");
  const wire::QueuePair good{0x10000, 0x14000, 0x18000, 0x18004, 64, 0};
  const auto refused = [&](auto change, const char* why) {
    wire::QueuePair pair = good;
    change(pair);
    const std::string said = attach({pair}, 1);
    EXPECT_TRUE(has(said, why)) << said;
  };
  refused([](auto& p) { p.entries = 1; }, "2...65536");
  refused([](auto& p) { p.entries = 65537; }, "2...65536");
  refused([](auto& p) { p.sq += 32; }, "entry's size");
  refused([](auto& p) { p.cq += 8; }, "entry's size");
  refused([](auto& p) { p.sq_doorbell += 2; }, "aligned words");
  refused([](auto& p) { p.host_looks = 2; }, "host_looks");
  refused([](auto& p) { p.entries = 1025; }, "mapped memory");  // the submission ring ends beyond it
  refused([](auto& p) { p.cq = 0x1FF00; }, "mapped memory");
  refused([](auto& p) { p.cq_doorbell = 0x20000; }, "mapped memory");
  refused([](auto& p) { p.sq = UINT64_MAX - 63; }, "mapped memory");
  EXPECT_TRUE(has(attach({}, 0), "1...4096"));
  EXPECT_TRUE(has(attach({good}, 4097), "1...4096"));
  EXPECT_TRUE(has(attach({good}, 2), "wrong size"));
  EXPECT_TRUE(has(attach({good, good}, 1), "wrong size"));
  EXPECT_TRUE(has(say(Command::attach, {}), "wrong size"));
  EXPECT_TRUE(has(attach(std::vector(257, good), 257), "256 of the engine's 256 queues are free"));
  EXPECT_EQ(attach(std::vector(256, good), 256), "");
  EXPECT_TRUE(has(attach({good}, 1), "attached already"));
  EXPECT_TRUE(has(say(Command::unmap, bytes_of(wire::UnmapRequest{0x10000, 1 << 16})), "queues lie in this memory"));
  EXPECT_TRUE(has(say(Command::leave, bytes_of(std::uint32_t{0})), "wrong size"));
  EXPECT_EQ(say(Command::leave, {}), "");
  EXPECT_EQ(say(Command::leave, {}), "closed");
}

TEST_F(Protocol, WhatIsNoCommandEndsTheConnection) {
  begin();
  EXPECT_TRUE(has(say(static_cast<Command>(0x4700), {}), "none of a gpu-socket's"));
  EXPECT_TRUE(has(say(static_cast<Command>(1), {}), "none of a gpu-socket's"));  // vfio-user's version
  EXPECT_EQ(say(Command::describe, {}, {}, vfio::kTypeReply), "closed");
  connect();
  const vfio::Header too_long{1, 0x4701, 1u << 30, 0, 0};
  EXPECT_EQ(write(socket_->fd(), &too_long, sizeof(too_long)), 16);
  EXPECT_EQ(say(Command::describe, {}), "closed");
}

// A file may be cut short after it was mapped where nobody sealed it: the client harms its own data only, and is
// dropped.
TEST_F(Protocol, AFileThatIsCutShortHarmsItsClientOnly) {
  begin();
  const vfio::UniqueFd file(memfd_create("cut", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 1 << 16), 0);
  ASSERT_EQ(map({0x10000, 1 << 16, 0, wire::Kind::file, 0, {}}, file.get()), "");
  ASSERT_EQ(attach({{0x10000, 0x14000, 0x18000, 0x18004, 64, 0}}, 1), "");
  ASSERT_EQ(ftruncate(file.get(), 0), 0);
  const auto gpu = attach_remote(path_, {.backend = "fibres", .queue_depth = 8});
  std::vector<std::uint8_t> data(4096, 7), back(4096);
  gpu->write(0, 0, 0, data.data(), data.size());
  gpu->read(0, 0, 0, back.data(), back.size());
  EXPECT_EQ(data, back);
  EXPECT_EQ(say(Command::leave, {}), "closed") << "the engine looked there for doorbells, and the server noticed";
}

TEST_F(Protocol, SilentClientsDoNotCloseTheDoor) {
  const auto first = std::move(socket_);
  std::vector<vfio::UniqueFd> silent;
  for (std::uint32_t i = 1; i < GpuServer::kMaxClients; ++i) silent.push_back(vfio::connect_unix(path_));
  connect();
  begin();
}

// Two clients with memory at the same address of their own reach each their own bytes; what only one has mapped, the
// other cannot name.
TEST_F(Protocol, ClientsReachNobodysMemoryButTheirOwn) {
  struct Raw {
    HostMemory memory{1 << 16, HostMemory::Kind::shared_memfd};
    vfio::MessageSocket* socket = nullptr;
    nvme::Sqe* sq() { return reinterpret_cast<nvme::Sqe*>(memory.data()); }
    nvme::Cqe* cq() { return reinterpret_cast<nvme::Cqe*>(memory.data() + 0x4000); }
    std::uint32_t* doorbell() { return reinterpret_cast<std::uint32_t*>(memory.data() + 0x8000); }
    // The status of a one-block read to `address`; 0xFFFF if there is none.
    std::uint16_t read(std::uint64_t address) {
      nvme::Sqe sqe{};
      sqe.opcode = 2;
      sqe.nsid = 1;
      sqe.prp1 = address;
      sq()[used] = sqe;
      std::atomic_ref(*doorbell()).store(used + 1, std::memory_order_release);
      auto& status = cq()[used++].status_phase;
      for (int i = 0; i < 10'000 && std::atomic_ref(status).load(std::memory_order_acquire) == 0; ++i) usleep(1000);
      return status == 0 ? 0xFFFF : status >> 1;
    }
    std::uint32_t used = 0;
  };
  Raw first, second;
  const wire::QueuePair pair{0x10000, 0x14000, 0x18000, 0x18004, 64, 1};
  begin();
  ASSERT_EQ(map({0x10000, 1 << 16, 0, wire::Kind::file, 0, {}}, first.memory.fd()), "");
  ASSERT_EQ(attach({pair}, 1), "");
  const auto first_socket = std::move(socket_);
  connect();
  begin();
  const HostMemory extra(1 << 16, HostMemory::Kind::shared_memfd);
  ASSERT_EQ(map({0x10000, 1 << 16, 0, wire::Kind::file, 0, {}}, second.memory.fd()), "");
  ASSERT_EQ(map({0x40000, 1 << 16, 0, wire::Kind::file, 0, {}}, extra.fd()), "");
  ASSERT_EQ(attach({pair}, 1), "");

  std::memset(first.memory.data() + 0x9000, 0xEE, 512);
  std::memset(second.memory.data() + 0x9000, 0xEE, 512);
  EXPECT_EQ(first.read(0x19000), 0u);
  EXPECT_EQ(first.memory.data()[0x9000], std::byte{0});
  EXPECT_EQ(second.memory.data()[0x9000], std::byte{0xEE});
  EXPECT_EQ(second.read(0x19000), 0u);
  EXPECT_EQ(second.memory.data()[0x9000], std::byte{0});
  EXPECT_EQ(second.read(0x40000), 0u);
  EXPECT_NE(first.read(0x40000) & 0x7FF, 0u);  // refused, not unanswered
  EXPECT_EQ(first.read(0x19000), 0u);
}

}  // namespace
}  // namespace flashmob::gpu
