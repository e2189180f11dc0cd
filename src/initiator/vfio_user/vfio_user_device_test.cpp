// The vfio-user client against a scripted server: what it asks for, and what it makes of servers that lie, fall silent
// or go.
#include "initiator/vfio_user/vfio_user_device.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "driver/dma_memory.h"
#include "driver/nvme_driver.h"
#include "nvme/registers.h"
#include "vfio/pci_config.h"
#include "vfio/unix_listener.h"

namespace flashmob::initiator {
namespace {

using vfio::Command;

constexpr std::uint64_t kBarBytes = 0x4000;
constexpr std::uint64_t kBarFileOffset = 0x2000;  // of BAR0's beginning in the file that it is mapped from

// One answer: payload and descriptors, or an error, or a connection that ends.
struct Answer {
  std::vector<std::byte> payload;
  std::vector<int> fds;
  std::uint32_t error = 0;
  bool hang_up = false;
  bool silent = false;

  template <class T>
  void add(const T& structure) {
    const auto bytes = std::as_bytes(std::span(&structure, 1));
    payload.insert(payload.end(), bytes.begin(), bytes.end());
  }
};

// Serves one client; answers as a small NVMe function would, unless `twist` changes the answer.
class ScriptedServer {
 public:
  using Twist = std::function<void(Command, const vfio::Message&, Answer&)>;

  explicit ScriptedServer(Twist change = {}) : twist(std::move(change)) {
    path = (std::filesystem::temp_directory_path() / ("fm-vfio-client-" + std::to_string(getpid()))).string();
    std::filesystem::create_directories(path);
    file = vfio::UniqueFd(memfd_create("bar", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(file.get(), kBarFileOffset + kBarBytes), 0);
    header.class_code = {0x02, 0x08, 0x01};
    header.command = vfio::kCommandIntxDisable;
    listener.emplace(path + "/cntrl");
    thread = std::thread([this] { serve(); });
  }
  ~ScriptedServer() {
    stop = true;
    thread.join();
    std::filesystem::remove_all(path);
  }

  std::string path;
  Twist twist;
  vfio::UniqueFd file;
  vfio::PciHeader header{};
  std::vector<vfio::DmaMap> maps;
  std::vector<vfio::DmaUnmap> unmaps;
  std::vector<vfio::UniqueFd> events;
  std::uint64_t registers = 0x1122334455667788;
  std::atomic<int> refusals{0};  // error replies of the client's

 private:
  void serve() {
    vfio::UniqueFd client;
    while (!stop && !client) {
      client = vfio::UniqueFd(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (!client) return;
    vfio::MessageSocket socket(std::move(client), 1 << 20);
    vfio::Message message;
    while (!stop) {
      if (!socket.wait_readable(5)) continue;
      const auto received = socket.receive(message);
      if (received == vfio::MessageSocket::Received::nothing) continue;
      if (received != vfio::MessageSocket::Received::message) return;
      if ((message.header.flags & vfio::kFlagTypeMask) == vfio::kTypeReply) {
        refusals += (message.header.flags & vfio::kFlagError) != 0 ? 1 : 0;
        continue;
      }
      const auto command = static_cast<Command>(message.header.command);
      Answer answer;
      usual(command, message, answer);
      if (twist) twist(command, message, answer);
      if (answer.hang_up) return;
      if (answer.silent) continue;
      vfio::Header reply{message.header.message_id, message.header.command, 0, vfio::kTypeReply, answer.error};
      if (answer.error != 0) reply.flags |= vfio::kFlagError;
      if (ask_back) {
        // A command of the server's in between, as for memory without a descriptor.
        ask_back = false;
        const vfio::DmaAccess access{0x1000, 64};
        const vfio::Header own{77, static_cast<std::uint16_t>(Command::dma_read), 0, vfio::kTypeCommand, 0};
        socket.send(own, std::as_bytes(std::span(&access, 1)));
      }
      socket.send(reply, answer.payload, answer.fds);
    }
  }

  void usual(Command command, vfio::Message& message, Answer& answer) {
    switch (command) {
      case Command::version:
        answer.add(vfio::Version{0, 1});
        break;
      case Command::device_get_info:
        answer.add(vfio::DeviceInfo{sizeof(vfio::DeviceInfo), vfio::kDevicePci, vfio::kPciRegions, vfio::kPciIrqs});
        break;
      case Command::device_get_irq_info:
        answer.add(vfio::IrqInfo{sizeof(vfio::IrqInfo), vfio::kIrqEventfd, vfio::kIrqMsix, 4});
        break;
      case Command::device_get_region_info:
        region_info(answer);
        break;
      case Command::region_read:
      case Command::region_write:
        access(command == Command::region_write, message, answer);
        break;
      case Command::dma_map:
        maps.emplace_back();
        EXPECT_TRUE(message.read(maps.back()));
        EXPECT_EQ(message.fds.size(), 1u);
        break;
      case Command::dma_unmap:
        unmaps.emplace_back();
        EXPECT_TRUE(message.read(unmaps.back()));
        answer.add(unmaps.back());
        break;
      case Command::device_set_irqs:
        for (auto& fd : message.fds) events.push_back(std::move(fd));
        break;
      default:
        break;
    }
  }

  void region_info(Answer& answer) {
    vfio::RegionInfo info{};
    info.argsz = sizeof(info) + sizeof(vfio::SparseMmap) + sizeof(vfio::SparseMmapArea);
    info.flags = vfio::kRegionReadable | vfio::kRegionWritable | vfio::kRegionMappable | vfio::kRegionCapabilities;
    info.capability_offset = sizeof(info);
    info.size_bytes = kBarBytes;
    info.offset = kBarFileOffset;
    answer.add(info);
    answer.add(vfio::SparseMmap{{vfio::kCapabilitySparseMmap, 1, 0}, 1, 0});
    answer.add(vfio::SparseMmapArea{0x1000, kBarBytes - 0x1000});
    answer.fds = {file.get()};
  }

  void access(bool write, const vfio::Message& message, Answer& answer) {
    vfio::RegionAccess access{};
    EXPECT_TRUE(message.read(access));
    answer.add(access);
    auto* const config = reinterpret_cast<std::byte*>(&header);
    auto* const target =
        access.region == vfio::kRegionConfig ? config + access.offset : reinterpret_cast<std::byte*>(&registers);
    if (write) {
      EXPECT_TRUE(message.copy_out(target, access.count_bytes, sizeof(access)));
    } else {
      answer.payload.insert(answer.payload.end(), target, target + access.count_bytes);
    }
  }

 public:
  std::atomic<bool> ask_back{false};

 private:
  std::optional<vfio::UnixListener> listener;
  std::atomic<bool> stop{false};
  std::thread thread;
};

ScriptedServer::Twist on(Command which, std::function<void(Answer&)> change) {
  return [which, change = std::move(change)](Command command, const vfio::Message&, Answer& answer) {
    if (command == which) change(answer);
  };
}

TEST(VfioUserDevice, RegistersDoorbellsAndMemory) {
  ScriptedServer server;
  {
    VfioUserDevice device(server.path);  // the folder will do
    EXPECT_TRUE(device.connected());
    EXPECT_EQ(device.interrupt_vectors(), 4u);
    EXPECT_GT(device.doorbell_bytes(), 0u);
    EXPECT_LT(device.doorbell_bytes(), driver::PciDevice::kAllDoorbellBytes) << "what the server maps, no more";
    EXPECT_EQ(server.header.command, vfio::kCommandIntxDisable | vfio::kCommandMemory | vfio::kCommandBusMaster);
    EXPECT_EQ(device.read64(0), 0x1122334455667788u);
    EXPECT_EQ(device.read32(0), 0x55667788u);
    device.write32(0, 0xAABBCCDD);
    EXPECT_EQ(device.read64(0), 0x11223344AABBCCDDu);
    device.write64(0, 1);
    EXPECT_EQ(device.read64(0), 1u);

    device.doorbells()[3] = 0xC0FFEE;
    std::uint32_t seen = 0;
    ASSERT_EQ(pread(server.file.get(), &seen, sizeof(seen), kBarFileOffset + 0x1000 + 12), 4);
    EXPECT_EQ(seen, 0xC0FFEEu) << "a doorbell is a store into the server's memory";
    device.doorbells()[2 * 65535 + 1] = 1;  // beyond what the server has: nobody's, and no fault

    driver::DmaMemory memory(device, 10'000);
    ASSERT_EQ(server.maps.size(), 1u);
    EXPECT_EQ(server.maps[0].address, memory.iova());
    EXPECT_EQ(server.maps[0].size_bytes, memory.size());
    EXPECT_EQ(server.maps[0].flags, vfio::kDmaReadable | vfio::kDmaWritable);
    EXPECT_THROW(device.dma_map(0x1000, nullptr, 4096), ConfigError);
    driver::PciDevice& function = device;
    EXPECT_TRUE(function.reset());
    server.ask_back = true;
    EXPECT_EQ(device.read32(0), 1u) << "a question of the server's in between is refused, and the answer still found";
  }
  ASSERT_EQ(server.unmaps.size(), 1u);
  EXPECT_EQ(server.unmaps[0].address, server.maps[0].address);
}

TEST(VfioUserDevice, RefusesAQuestionOfTheServer) {
  ScriptedServer server;
  VfioUserDevice device(server.path);
  server.ask_back = true;
  device.read32(0);
  device.read32(0);
  EXPECT_EQ(server.refusals.load(), 1);
}

TEST(VfioUserDevice, InterruptsReachTheirHandlers) {
  ScriptedServer server;
  VfioUserDevice device(server.path);
  std::atomic<int> calls{0};
  EXPECT_THROW(device.set_interrupt(4, [] {}), ConfigError) << "there are four";
  device.set_interrupt(2, [&] { ++calls; });
  ASSERT_EQ(server.events.size(), 1u);
  const auto signal_and_wait = [&](int wanted) {
    const std::uint64_t one = 1;
    EXPECT_EQ(write(server.events[0].get(), &one, sizeof(one)), 8);
    for (int i = 0; i < 1000 && calls < wanted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(calls.load(), wanted);
  };
  signal_and_wait(1);
  signal_and_wait(2);
  device.set_interrupt(2, [&] { device.set_interrupt(2, [&] { calls += 10; }), ++calls; });
  signal_and_wait(3);
  signal_and_wait(13);
  device.set_interrupt(2, {});
  const std::uint64_t one = 1;
  EXPECT_EQ(write(server.events[0].get(), &one, sizeof(one)), 8);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(calls.load(), 13) << "masked";
  EXPECT_EQ(server.events.size(), 1u) << "one eventfd serves a vector for good";
}

TEST(VfioUserDevice, NobodyServes) {
  EXPECT_THROW(VfioUserDevice("/nonexistent/socket"), ConfigError);
  EXPECT_THROW(VfioUserDevice(""), ConfigError);
}

TEST(VfioUserDevice, ServersThatAreNoNvmeDevice) {
  const auto cut = [](std::size_t bytes) { return [bytes](Answer& a) { a.payload.resize(bytes); }; };
  const auto error = [](Answer& a) { a = {.payload = {}, .fds = {}, .error = EINVAL}; };
  const std::vector<std::pair<const char*, ScriptedServer::Twist>> cases = {
      {"version refused", on(Command::version, error)},
      {"version cut", on(Command::version, cut(3))},
      {"another version", on(Command::version, [](Answer& a) { a.payload[0] = std::byte{1}; })},
      {"hangs up", on(Command::version, [](Answer& a) { a.hang_up = true; })},
      {"silent", on(Command::version, [](Answer& a) { a.silent = true; })},
      {"no device", on(Command::device_get_info, error)},
      {"device cut", on(Command::device_get_info, cut(8))},
      {"no PCI device", on(Command::device_get_info, [](Answer& a) { a.payload[4] = std::byte{0}; })},
      {"no configuration space", on(Command::region_read, error)},
      {"configuration space cut", on(Command::region_read, cut(20))},
      {"another class", on(Command::region_read, [](Answer& a) { a.payload[16 + 9] = std::byte{3}; })},
      {"command register fixed", on(Command::region_write, error)},
      {"no BAR0", on(Command::device_get_region_info, error)},
      {"BAR0 cut", on(Command::device_get_region_info, cut(31))},
      {"not mappable", on(Command::device_get_region_info, [](Answer& a) { a.payload[4] = std::byte{3}; })},
      {"no descriptor", on(Command::device_get_region_info, [](Answer& a) { a.fds.clear(); })},
      {"capability cut", on(Command::device_get_region_info, cut(36))},
      {"areas cut", on(Command::device_get_region_info, cut(50))},
      {"capability out of range", on(Command::device_get_region_info, [](Answer& a) { a.payload[15] = std::byte{1}; })},
      {"doorbells not in an area",
       on(Command::device_get_region_info, [](Answer& a) { a.payload[49] = std::byte{0x20}; })},
      {"file too short", on(Command::device_get_region_info, [](Answer& a) { a.payload[26] = std::byte{0x70}; })},
      {"offset not of a page", on(Command::device_get_region_info, [](Answer& a) { a.payload[24] = std::byte{8}; })},
  };
  for (const auto& [name, twist] : cases) {
    ScriptedServer server(twist);
    EXPECT_THROW(VfioUserDevice(server.path, 200), ConfigError) << name;
  }
}

TEST(VfioUserDevice, ACapabilityThatPointsToItselfEnds) {
  ScriptedServer server(on(Command::device_get_region_info, [](Answer& a) {
    // Another capability, whose next one is itself.
    a.payload[32] = std::byte{9};
    a.payload[36] = std::byte{32};
  }));
  VfioUserDevice device(server.path);
  EXPECT_TRUE(device.connected()) << "without a list of areas everything can be mapped";
}

TEST(VfioUserDevice, AServerThatGoesLooksLikeAFunctionGoneFromTheBus) {
  std::atomic<bool> gone{false};
  ScriptedServer server([&](Command, const vfio::Message&, Answer& answer) { answer.hang_up = gone; });
  VfioUserDevice device(server.path);
  auto memory = std::make_unique<driver::DmaMemory>(device, 4096);
  const Clock clock = Clock::real();
  driver::NvmeDriver driver(device, {[] { std::this_thread::yield(); }, [&] { return clock.now_ns(); }});
  gone = true;
  EXPECT_EQ(device.read32(nvme::kRegCsts), 0xFFFFFFFFu);
  EXPECT_EQ(device.read64(0), ~std::uint64_t{0});
  EXPECT_FALSE(device.connected());
  device.write32(0, 1);
  device.doorbells()[0] = 1;
  memory.reset();
  EXPECT_FALSE(device.reset());
  EXPECT_THROW(driver::DmaMemory(device, 4096), ConfigError);
  EXPECT_TRUE(driver.fatal());
  EXPECT_THROW(driver.enable(), driver::NvmeFatal);
}

TEST(VfioUserDevice, AServerThatFallsSilentCountsAsGone) {
  std::atomic<bool> silent{false};
  ScriptedServer server([&](Command, const vfio::Message&, Answer& answer) { answer.silent = silent; });
  VfioUserDevice device(server.path, 100);
  silent = true;
  EXPECT_EQ(device.read32(0), 0xFFFFFFFFu);
  silent = false;
  EXPECT_EQ(device.read32(0), 0xFFFFFFFFu) << "its late answers are not waited for";
  EXPECT_FALSE(device.connected());
}

// A host that wants to go does not wait for a server that stands still, whatever it was doing there: while it attaches,
// or in the middle of a question.
TEST(VfioUserDevice, AHurriedHostDoesNotWait) {
  constexpr int kLongMs = 600'000;
  std::atomic<bool> silent{false}, is_hurried{false};
  ScriptedServer server([&](Command, const vfio::Message&, Answer& answer) { answer.silent = silent; });
  VfioUserDevice device(server.path, kLongMs, &is_hurried);
  is_hurried = true;
  EXPECT_NE(device.read32(nvme::kRegCsts), 0xFFFFFFFFu) << "who answers is heard";
  is_hurried = false;
  silent = true;
  const auto begun = std::chrono::steady_clock::now();
  std::thread leaving([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    is_hurried = true;
  });
  EXPECT_EQ(device.read32(0), 0xFFFFFFFFu);
  EXPECT_EQ(device.read32(0), 0xFFFFFFFFu);
  leaving.join();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const vfio::UniqueFd other(ends[1]);
  EXPECT_THROW(VfioUserDevice(vfio::UniqueFd(ends[0]), "deaf", kLongMs, &is_hurried), ConfigError);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(kLongMs / 2));
}

TEST(VfioUserDevice, AServerThatOnlyAsksCountsAsGone) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  vfio::UniqueFd client(ends[0]);
  vfio::MessageSocket server(vfio::UniqueFd(ends[1]), 1 << 20);
  std::atomic<bool> stop{false};
  std::thread asking([&] {
    const vfio::DmaAccess access{0, 64};
    const vfio::Header header{7, static_cast<std::uint16_t>(Command::dma_read), 0,
                              vfio::kTypeCommand | vfio::kFlagNoReply, 0};
    while (!stop && server.send(header, std::as_bytes(std::span(&access, 1)), {}, 100)) {
    }
  });
  EXPECT_THROW(VfioUserDevice(std::move(client), "asking", 200), ConfigError) << "its questions are no answer";
  stop = true;
  asking.join();
}

TEST(VfioUserDevice, DoorbellsOutliveTheirFile) {
  ScriptedServer server;
  VfioUserDevice device(server.path);
  device.doorbells()[0] = 1;
  ASSERT_EQ(ftruncate(server.file.get(), 0), 0);
  device.doorbells()[0] = 2;
  device.doorbells()[1] = 3;
  EXPECT_EQ(device.doorbells()[0], 2u) << "nobody's memory, and no SIGBUS";
}

TEST(VfioUserDevice, ErrorsOfSingleRequests) {
  ScriptedServer server([](Command command, const vfio::Message&, Answer& answer) {
    if (command == Command::dma_map || command == Command::device_reset || command == Command::device_set_irqs)
      answer = {.payload = {}, .fds = {}, .error = ENOMEM};
  });
  VfioUserDevice device(server.path);
  EXPECT_THROW(driver::DmaMemory(device, 4096), ConfigError);
  EXPECT_FALSE(device.reset());
  EXPECT_THROW(device.set_interrupt(0, [] {}), ConfigError);
  EXPECT_TRUE(device.connected()) << "the connection outlives a refused request";
  EXPECT_EQ(device.read32(0), 0x55667788u);
}

TEST(VfioUserDevice, ShortAndForeignRepliesEndInAllOnes) {
  std::atomic<bool> twisted{false};
  ScriptedServer server([&](Command command, const vfio::Message&, Answer& answer) {
    if (twisted && command == Command::region_read) answer.payload.resize(sizeof(vfio::RegionAccess) + 3);
  });
  VfioUserDevice device(server.path);
  twisted = true;
  EXPECT_EQ(device.read32(0), 0xFFFFFFFFu);
  EXPECT_EQ(device.read64(0), ~std::uint64_t{0});
}

}  // namespace
}  // namespace flashmob::initiator
