// The in-process door between a real engine on threads and the user-space driver: registers, data, interrupts, sleep.
#include "transport/in_process/in_process_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "controller/subsystem.h"
#include "driver/data_buffer.h"
#include "driver/nvme_driver.h"
#include "engine/engine.h"
#include "memory/host_memory.h"
#include "nvme/opcode.h"
#include "nvme/registers.h"

namespace flashmob::transport {
namespace {

DeviceConfig small_config() {
  DeviceConfig config;
  config.subsystem.namespaces[0].size_bytes = 1 << 20;
  config.controller.max_queue_pairs = 4;
  config.controller.interrupt_vectors = 4;
  config.timing.model = "none";
  config.engine.idle_spin_ns = 100'000;
  config.engine.idle_sleep_ns = 2'000'000'000;  // so long that only a wake-up can end it in time
  return config;
}

struct InProcessDeviceTest : testing::Test {
  explicit InProcessDeviceTest(const DeviceConfig& device_config = small_config())
      : config(device_config),
        clock(Clock::real()),
        subsystem(config.subsystem, config.seed, config.timing.unit_bytes),
        engine(config, clock),
        interrupts(config.controller.interrupt_vectors),
        controller(subsystem, config.controller, engine),
        door(controller, {&engine.sleeping(), [this] { engine.wake(); }}, interrupts) {
    engine.attach(controller, [this](std::uint16_t vector) { interrupts.fire(vector); });
    engine.start();
  }
  ~InProcessDeviceTest() override {
    engine.stop();
    engine.detach(controller);
  }
  driver::Waiter waiter() {
    return {[] { std::this_thread::yield(); }, [this] { return clock.now_ns(); }};
  }
  // Writes and reads back one block; false if a command failed or took longer than a second.
  bool round_trip(driver::QueuePair& pair, driver::DmaMemory& memory, std::uint64_t lba) {
    driver::PrpLists lists(door, 1, 512);
    for (const auto opcode : {nvme::NvmOpcode::write, nvme::NvmOpcode::read}) {
      nvme::Sqe sqe{};
      sqe.opcode = static_cast<std::uint8_t>(opcode);
      sqe.nsid = 1;
      sqe.cdw10 = static_cast<std::uint32_t>(lba);
      lists.describe(0, sqe, memory.iova() + (opcode == nvme::NvmOpcode::read ? 4096 : 0), 512);
      pair.submit() = sqe;
      pair.ring_sq();
      bool good = false;
      const std::uint64_t deadline_ns = clock.now_ns() + 1'000'000'000;
      while (pair.reap(1, [&](const nvme::Cqe& cqe) { good = cqe.status_phase >> 1 == 0; }) == 0) {
        if (clock.now_ns() > deadline_ns) return false;
        std::this_thread::yield();
      }
      pair.ring_cq();
      if (!good) return false;
    }
    return std::memcmp(memory.data(), memory.data() + 4096, 512) == 0;
  }

  DeviceConfig config;
  Clock clock;
  controller::Subsystem subsystem;
  engine::Engine engine;
  driver::InterruptTable interrupts;
  controller::Controller controller;
  InProcessDevice door;
};

TEST_F(InProcessDeviceTest, RegistersReachTheController) {
  EXPECT_EQ(door.read64(nvme::kRegCap), controller.read_register(nvme::kRegCap, 8));
  EXPECT_EQ(door.read32(nvme::kRegVs), 0x00020000u);
  door.write64(nvme::kRegAsq, 0x1000);
  EXPECT_EQ(controller.read_register(nvme::kRegAsq, 8), 0x1000u);
  EXPECT_EQ(door.doorbells(), controller.doorbells());
}

TEST_F(InProcessDeviceTest, DmaMappingsReachTheAddressSpace) {
  std::array<std::byte, 8192> memory;
  const std::size_t before = controller.address_space().region_count();
  door.dma_map(0x10000, memory.data(), memory.size());
  EXPECT_EQ(controller.address_space().region_count(), before + 1);
  EXPECT_THROW(door.dma_map(0x11000, memory.data(), 4096), ConfigError) << "it overlaps";
  door.dma_unmap(0x10000, memory.size());
  EXPECT_EQ(controller.address_space().region_count(), before);
}

TEST_F(InProcessDeviceTest, VectorsBeyondTheTableAreRefused) {
  EXPECT_THROW(door.set_interrupt(4, [] {}), ConfigError);
  door.set_interrupt(3, [] {});
}

TEST_F(InProcessDeviceTest, DataPassesBetweenThreads) {
  driver::NvmeDriver driver(door, waiter());
  driver.enable();
  driver::QueuePair& pair = driver.create_queue_pair({.sq_entries = 8});
  driver::DmaMemory memory(door, 8192);
  for (std::uint64_t i = 0; i < 500; ++i) {
    std::memset(memory.data(), static_cast<int>(i + 1), 512);
    ASSERT_TRUE(round_trip(pair, memory, i % 100)) << i;
  }
}

TEST_F(InProcessDeviceTest, ADoorbellWakesASleepingDevice) {
  driver::NvmeDriver driver(door, waiter());
  driver.enable();
  driver::QueuePair& pair = driver.create_queue_pair({.sq_entries = 8});
  driver::DmaMemory memory(door, 8192);
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t deadline_ns = clock.now_ns() + 1'000'000'000;
    while (engine.sleeping().load() == 0 && clock.now_ns() < deadline_ns)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    ASSERT_NE(engine.sleeping().load(), 0u) << "an idle device goes to sleep";
    EXPECT_TRUE(round_trip(pair, memory, 0)) << "its own sleep would have lasted two seconds";
  }
}

TEST_F(InProcessDeviceTest, InterruptsAreCalledAndMasked) {
  driver::NvmeDriver driver(door, waiter());
  driver.enable();
  driver::QueuePair& pair = driver.create_queue_pair({.sq_entries = 8, .interrupts = true, .vector = 2});
  driver::DmaMemory memory(door, 8192);
  std::atomic<int> calls{0};
  door.set_interrupt(2, [&] { calls.fetch_add(1); });
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(round_trip(pair, memory, 0));
  const std::uint64_t deadline_ns = clock.now_ns() + 1'000'000'000;
  while (calls.load() == 0 && clock.now_ns() < deadline_ns) std::this_thread::yield();
  EXPECT_GT(calls.load(), 0);
  door.set_interrupt(2, nullptr);
  const int before = calls.load();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(round_trip(pair, memory, 0));
  EXPECT_EQ(calls.load(), before) << "a masked handler is never called again";
}

TEST_F(InProcessDeviceTest, DriversComeAndGo) {
  for (int i = 0; i < 10; ++i) {
    driver::NvmeDriver driver(door, waiter());
    driver.enable();
    driver::DmaMemory memory(door, 8192);
    driver::QueuePair& pair = driver.create_queue_pair({.sq_entries = 4});
    ASSERT_TRUE(round_trip(pair, memory, 7));
    if (i % 2 == 0) driver.shutdown(i % 4 == 0);
  }
  EXPECT_EQ(controller.address_space().region_count(), 0u) << "every mapping was taken back";
}

// A controller whose host fills its admin queue and rings once.
struct BusyAdmin {
  static constexpr std::uint32_t kEntries = 64, kPage = 4096;
  BusyAdmin(controller::Subsystem& subsystem, const DeviceConfig& config, engine::Engine& on)
      : engine(on), controller(subsystem, config.controller, on), memory(4 * kPage) {
    controller.address_space().map(0, memory.size(), memory.data());
    engine.attach(controller, [](std::uint16_t) {});
    controller.write_register(nvme::kRegAqa, 4, nvme::encode_aqa({.asqs = kEntries - 1, .acqs = kEntries - 1}));
    controller.write_register(nvme::kRegAsq, 8, 0);
    controller.write_register(nvme::kRegAcq, 8, kPage);
    controller.write_register(nvme::kRegCc, 4, nvme::encode_cc({.en = true, .iosqes = 6, .iocqes = 4}));
  }
  ~BusyAdmin() { engine.detach(controller); }
  BusyAdmin(const BusyAdmin&) = delete;
  BusyAdmin& operator=(const BusyAdmin&) = delete;

  void ring() {
    for (std::uint32_t i = 0; i + 1 < kEntries; ++i) {
      nvme::Sqe sqe{};
      sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::identify);
      sqe.cid = static_cast<std::uint16_t>(i);
      sqe.cdw10 = 1;
      sqe.prp1 = 2 * kPage;
      std::memcpy(memory.data() + i * sizeof(sqe), &sqe, sizeof(sqe));
    }
    *controller.doorbells() = kEntries - 1;
  }
  std::uint32_t answered() const {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i + 1 < kEntries; ++i) {
      nvme::Cqe cqe;
      std::memcpy(&cqe, memory.data() + kPage + i * sizeof(cqe), sizeof(cqe));
      count += cqe.status_phase & 1u;
    }
    return count;
  }

  engine::Engine& engine;
  controller::Controller controller;
  memory::HostMemory memory;
};

// What a thousand commands of sixteen hosts take together, no other host's I/O waits for: four megabytes of Identify
// data alone take more than a round is long.
TEST(InProcessAdmin, CommandsOfManyHostsAreTakenInTurns) {
  const DeviceConfig config = small_config();
  const Clock clock = Clock::real();
  controller::Subsystem subsystem(config.subsystem, config.seed, config.timing.unit_bytes);
  engine::Engine engine(config, clock);
  std::vector<std::unique_ptr<BusyAdmin>> hosts;
  for (int i = 0; i < 16; ++i) hosts.push_back(std::make_unique<BusyAdmin>(subsystem, config, engine));
  const auto all = [&](auto done) { return std::all_of(hosts.begin(), hosts.end(), done); };
  const auto ready = [](const auto& host) { return host->controller.state() == controller::ControllerState::ready; };
  for (int i = 0; i < 1000 && !all(ready); ++i) engine.poll_actor(0);
  ASSERT_TRUE(all(ready));
  for (const auto& host : hosts) host->ring();
  const auto answered = [&] {
    std::uint32_t count = 0;
    for (const auto& host : hosts) count += host->answered();
    return count;
  };
  const std::uint32_t asked = 16 * (BusyAdmin::kEntries - 1);
  std::uint32_t first = 0;
  for (int i = 0; i < 1000 && first == 0; ++i) {
    engine.poll_actor(0);
    first = answered();
  }
  EXPECT_GT(first, 0u);
  EXPECT_LT(first, asked / 2);
  for (int i = 0; i < 10'000 && answered() != asked; ++i) engine.poll_actor(0);
  EXPECT_EQ(answered(), asked);
}

}  // namespace
}  // namespace flashmob::transport
