// The door as a whole: clients that come, work, crash and come again, on an engine that runs.
#include "transport/vfio_user/vfio_user_server.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <mutex>

#include "base/check.h"
#include "base/platform.h"
#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using nvme::NvmOpcode;

constexpr std::uint64_t kDataIova = 1 << 20;

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Writes a pattern to a block and reads it back to another place.
void round_trip(TestHost& host, TestQueue& queue, std::uint64_t lba, int pattern) {
  std::byte* out = host.memory() + kDataIova;
  std::byte* in = out + 4096;
  std::memset(out, pattern, 512);
  std::memset(in, 0, 512);
  ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::write, lba, kDataIova)), 0u);
  ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, lba, kDataIova + 4096)), 0u);
  ASSERT_EQ(std::memcmp(out, in, 512), 0) << lba;
}

TEST(VfioUserServer, DataPassesThroughSharedMemory) {
  TestDevice device;
  TestHost host(device.path);
  TestQueue queue = host.start();
  for (int i = 0; i < 200; ++i) round_trip(host, queue, static_cast<std::uint64_t>(i), i + 1);
}

TEST(VfioUserServer, DoorbellsWorkAsMessagesToo) {
  TestDevice device;
  TestHost host(device.path);
  TestQueue queue = host.start();
  for (int i = 0; i < 50; ++i) {
    queue.sq[queue.tail] = TestHost::io(NvmOpcode::read, 0, kDataIova);
    queue.tail = (queue.tail + 1) % queue.entries;
    EXPECT_EQ(host.write<std::uint32_t>(vfio::kRegionBar0, 0x1000 + 8, queue.tail), 0u);
    ASSERT_EQ(host.complete(queue), 0u);
  }
}

TEST(VfioUserServer, ASleepingDeviceNoticesAMappedDoorbellWithinItsBound) {
  DeviceConfig config = test_device_config();
  config.engine.idle_spin_ns = 10'000;
  config.engine.idle_sleep_ns = 20'000'000;
  TestDevice device(config);
  TestHost host(device.path);
  TestQueue queue = host.start();
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, kDataIova)), 0u);
  }
  // Nobody knows when the doorbell was rung while it slept: what was rung may have waited since before that.
  device.engine.set_phase(engine::kMeasured);
  const engine::FidelityStats& stats = device.engine.stats(engine::kWarmUp);
  EXPECT_GE(stats.wait_ns.max(), 15'000'000u);
  EXPECT_GE(stats.woken, 1u);
  EXPECT_GE(stats.asleep_sum_ns, 15'000'000u);
  EXPECT_LE(stats.asleep_sum_ns, stats.wait_sum_ns);
}

TEST(VfioUserServer, ClientsHaveTheDoorsRights) {
  VfioUserOptions options;
  options.rights = {.access = controller::Access::read_only};
  TestDevice device(test_device_config(), options);
  TestHost host(device.path);
  TestQueue queue = host.start();
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, kDataIova)), 0u);
  EXPECT_EQ(nvme::status_of(static_cast<std::uint16_t>(host.run(queue, TestHost::io(NvmOpcode::write, 0, kDataIova)))),
            nvme::Status::namespace_is_write_protected);
}

TEST(VfioUserServer, InterruptsArriveByEventfd) {
  TestDevice device;
  TestHost host(device.path);
  host.attach();
  TestEvent admin_event, io_event;
  const int fds[2] = {admin_event.fd.get(), io_event.fd.get()};
  ASSERT_EQ(host.set_irqs(vfio::kIrqMsix, vfio::kIrqSetEventfd | vfio::kIrqSetTrigger, 0, 2, fds), 0u);
  ASSERT_TRUE(host.enable());
  TestQueue queue = host.create_queue(1, 16, 1);
  EXPECT_TRUE(admin_event.wait());
  EXPECT_EQ(io_event.take(), 0u);
  ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, kDataIova)), 0u);
  EXPECT_TRUE(io_event.wait());
  // Unbound in the middle of everything: what comes meanwhile is delivered at the next binding.
  ASSERT_EQ(host.set_irqs(vfio::kIrqMsix, vfio::kIrqSetEventfd | vfio::kIrqSetTrigger, 1, 1), 0u);
  io_event.take();
  ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, kDataIova)), 0u);
  for (int i = 0; i < 5000 && (host.read<std::uint8_t>(4, 0x8000) & 2) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(host.read<std::uint8_t>(4, 0x8000), 2u) << "it shows in the pending bits";
  EXPECT_EQ(io_event.take(), 0u);
  ASSERT_EQ(host.set_irqs(vfio::kIrqMsix, vfio::kIrqSetEventfd | vfio::kIrqSetTrigger, 1, 1, {&fds[1], 1}), 0u);
  EXPECT_EQ(io_event.take(), 1u);
  EXPECT_EQ(host.read<std::uint8_t>(4, 0x8000), 0u);
}

TEST(VfioUserServer, IntxIsAssertedWhileACompletionIsUnread) {
  TestDevice device;
  TestHost host(device.path);
  host.attach();
  TestEvent line, unmask;
  const int line_fd = line.fd.get();
  const int unmask_fd = unmask.fd.get();
  ASSERT_EQ(host.set_irqs(vfio::kIrqIntx, vfio::kIrqSetEventfd | vfio::kIrqSetTrigger, 0, 1, {&line_fd, 1}), 0u);
  ASSERT_EQ(host.set_irqs(vfio::kIrqIntx, vfio::kIrqSetEventfd | vfio::kIrqSetUnmask, 0, 1, {&unmask_fd, 1}), 0u);
  ASSERT_TRUE(host.enable());
  TestQueue queue = host.create_queue(1, 4, 0);
  // A ring of four goes round many times, so that the phase tag is seen both ways.
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(eventfd_write(unmask.fd.get(), 1), 0);
    line.take();
    host.submit(queue, TestHost::io(NvmOpcode::read, 0, kDataIova));
    ASSERT_TRUE(line.wait()) << round;
    EXPECT_NE(host.read<std::uint16_t>(vfio::kRegionConfig, 6) & 8, 0) << "the interrupt bit of the status register";
    host.submit(queue, TestHost::io(NvmOpcode::read, 0, kDataIova));
    ASSERT_TRUE(host.wait_for_entry(queue, 1));
    EXPECT_EQ(line.take(), 0u) << "it is masked";
    ASSERT_EQ(host.complete(queue), 0u);
    ASSERT_EQ(host.set_irqs(vfio::kIrqIntx, vfio::kIrqSetNone | vfio::kIrqSetUnmask, 0, 1), 0u);
    EXPECT_EQ(line.take(), 1u) << "the second completion has not been read";
    ASSERT_EQ(host.complete(queue), 0u);
    ASSERT_EQ(host.set_irqs(vfio::kIrqIntx, vfio::kIrqSetNone | vfio::kIrqSetUnmask, 0, 1), 0u);
    EXPECT_EQ(line.take(), 0u) << "nothing is left to read: " << round;
    EXPECT_EQ(host.read<std::uint16_t>(vfio::kRegionConfig, 6) & 8, 0);
  }
}

TEST(VfioUserServer, IntxIsHeldBackByItsMasks) {
  TestDevice device;
  TestHost host(device.path);
  host.attach();
  TestEvent line;
  const int fd = line.fd.get();
  ASSERT_TRUE(host.enable());
  TestQueue queue = host.create_queue(1, 16, 0);
  const auto expect_silence = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(line.take(), 0u);
  };
  const auto end_interrupt = [&] {
    ASSERT_EQ(host.complete(queue), 0u);
    ASSERT_EQ(host.set_irqs(vfio::kIrqIntx, vfio::kIrqSetNone | vfio::kIrqSetUnmask, 0, 1), 0u);
    expect_silence();
  };
  host.submit(queue, TestHost::io(NvmOpcode::read, 0, kDataIova));
  expect_silence();
  ASSERT_EQ(host.set_irqs(vfio::kIrqIntx, vfio::kIrqSetEventfd | vfio::kIrqSetTrigger, 0, 1, {&fd, 1}), 0u);
  EXPECT_TRUE(line.wait()) << "it was asserted before anybody listened";
  end_interrupt();
  ASSERT_EQ(host.write<std::uint32_t>(vfio::kRegionBar0, nvme::kRegIntms, 1), 0u);
  host.submit(queue, TestHost::io(NvmOpcode::read, 0, kDataIova));
  expect_silence();
  ASSERT_EQ(host.write<std::uint32_t>(vfio::kRegionBar0, nvme::kRegIntmc, 1), 0u);
  EXPECT_TRUE(line.wait());
  end_interrupt();
  ASSERT_EQ(host.write<std::uint16_t>(vfio::kRegionConfig, 4, 0x0406), 0u) << "interrupt disable";
  host.submit(queue, TestHost::io(NvmOpcode::read, 0, kDataIova));
  expect_silence();
  ASSERT_EQ(host.write<std::uint16_t>(vfio::kRegionConfig, 4, 0x0006), 0u);
  EXPECT_TRUE(line.wait());
  end_interrupt();
  ASSERT_EQ(host.set_irqs(vfio::kIrqIntx, vfio::kIrqSetNone | vfio::kIrqSetTrigger, 0, 1), 0u);
  EXPECT_TRUE(line.wait()) << "the client may ask for one";
  ASSERT_EQ(host.set_irqs(vfio::kIrqIntx, vfio::kIrqSetNone | vfio::kIrqSetTrigger, 0, 0), 0u);
  host.submit(queue, TestHost::io(NvmOpcode::read, 0, kDataIova));
  expect_silence();
}

TEST(VfioUserServer, DoorbellBuffersAreNotOfferedToClientsOfIntx) {
  TestDevice device;
  TestHost host(device.path);
  host.attach();
  TestEvent event;
  const int fd = event.fd.get();
  ASSERT_TRUE(host.enable());
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::doorbell_buffer_config);
  sqe.prp1 = kDataIova;
  sqe.prp2 = kDataIova + 4096;
  constexpr std::uint32_t kBind = vfio::kIrqSetEventfd | vfio::kIrqSetTrigger;
  ASSERT_EQ(host.set_irqs(vfio::kIrqIntx, kBind, 0, 1, {&fd, 1}), 0u);
  EXPECT_NE(host.admin(sqe), 0u);
  ASSERT_EQ(host.set_irqs(vfio::kIrqMsix, kBind, 0, 1, {&fd, 1}), 0u);
  EXPECT_EQ(host.admin(sqe), 0u) << "messages do not need the line";
}

TEST(VfioUserServer, DoorbellsMayBeKeptFromBeingMapped) {
  DeviceConfig config = test_device_config();
  config.engine.idle_sleep_ns = 3'000'000'000;
  VfioUserOptions options;
  options.map_doorbells = false;
  TestDevice device(config, options);
  TestHost host(device.path);
  ASSERT_EQ(host.negotiate().header.error, 0u);
  vfio::RegionInfo info{256, 0, vfio::kRegionBar0, 0, 0, 0};
  const vfio::Message reply = host.ask(vfio::Command::device_get_region_info, to_bytes(info));
  ASSERT_TRUE(reply.read(info));
  EXPECT_EQ(info.flags, vfio::kRegionReadable | vfio::kRegionWritable);
  EXPECT_TRUE(reply.fds.empty());
  ASSERT_EQ(host.map_dma(0, TestHost::kMemoryBytes, host.memory_fd()), 0u);
  ASSERT_TRUE(host.enable());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  // Identify, with the doorbell as a message: its wake-up is what ends a sleep of three seconds.
  auto* sqe = reinterpret_cast<nvme::Sqe*>(host.memory());
  *sqe = {};
  sqe->opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::identify);
  sqe->prp1 = kDataIova;
  sqe->cdw10 = 1;
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(host.write<std::uint32_t>(vfio::kRegionBar0, 0x1000, 1), 0u);
  auto& cqe = *reinterpret_cast<nvme::Cqe*>(host.memory() + 4096);
  while ((std::atomic_ref<std::uint16_t>(cqe.status_phase).load(std::memory_order_acquire) & 1) == 0 &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(5))
    std::this_thread::yield();
  EXPECT_EQ(cqe.status_phase, 1u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(VfioUserServer, AResetTearsEverythingDownAndTheDeviceWorksAgain) {
  TestDevice device;
  TestHost host(device.path);
  TestQueue queue = host.start();
  for (int round = 0; round < 5; ++round) {
    round_trip(host, queue, 5, round + 1);
    for (int i = 0; i < 10; ++i) host.submit(queue, TestHost::io(NvmOpcode::read, 0, kDataIova));
    if (round % 2 == 0) {
      ASSERT_EQ(host.ask(vfio::Command::device_reset).header.error, 0u);
    } else {  // function level reset: the device control register of the PCI Express capability
      ASSERT_EQ(host.write<std::uint16_t>(vfio::kRegionConfig, 0x60 + 8, 0x8000), 0u);
    }
    EXPECT_EQ(host.reg(nvme::kRegCsts), 0u);
    EXPECT_EQ(host.reg(nvme::kRegCc), 0u);
    EXPECT_EQ(host.reg(nvme::kRegAqa), 0u);
    EXPECT_EQ(host.doorbells()[2], 0u);
    ASSERT_TRUE(host.enable());
    queue = host.create_queue(1);
  }
  round_trip(host, queue, 5, 77);
}

TEST(VfioUserServer, SeveralClientsShareTheNamespaceAndNothingElse) {
  TestDevice device;
  TestHost first(device.path), second(device.path);
  TestQueue first_queue = first.start();
  TestQueue second_queue = second.start();
  EXPECT_EQ(device.controllers(), 2u);
  round_trip(first, first_queue, 1, 0x11);
  ASSERT_EQ(second.run(second_queue, TestHost::io(NvmOpcode::read, 1, kDataIova)), 0u);
  EXPECT_EQ(second.memory()[kDataIova], std::byte{0x11});
  ASSERT_EQ(first.ask(vfio::Command::device_reset).header.error, 0u);
  round_trip(second, second_queue, 2, 0x22);
  auto clients = device.server->clients();
  for (int i = 0; i < 1000 && clients.size() != 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    clients = device.server->clients();
  }
  ASSERT_EQ(clients.size(), 2u);
  EXPECT_NE(clients[0].cntlid, clients[1].cntlid);
  EXPECT_EQ(clients[0].shared_bytes, TestHost::kMemoryBytes);
}

TEST(VfioUserServer, ClientsThatVanishLeaveNothingBehind) {
  TestDevice device;
  TestHost witness(device.path);
  TestQueue witness_queue = witness.start();
  {
    TestHost(device.path).start();
  }
  ASSERT_TRUE(device.wait_for_controllers(1));
  // Its socket is closed a moment after its controller is gone; the next answer comes after that.
  EXPECT_EQ(witness.reg(nvme::kRegCsts) & 1, 1u);
  const std::size_t before = open_descriptors();
  for (int round = 0; round < 30; ++round) {
    {
      TestHost host(device.path);
      TestQueue queue = host.start();
      TestEvent event;
      const int fd = event.fd.get();
      ASSERT_EQ(host.set_irqs(vfio::kIrqMsix, vfio::kIrqSetEventfd | vfio::kIrqSetTrigger, 1, 1, {&fd, 1}), 0u);
      for (int i = 0; i < 15; ++i)
        host.submit(queue, TestHost::io(i % 2 == 0 ? NvmOpcode::write : NvmOpcode::read, 100, kDataIova, 8));
      // And a message that never ends.
      const vfio::Header half{1, 2, 1000, 0, 0};
      if (round % 3 == 0) ::send(host.socket().fd(), &half, 7 + static_cast<std::size_t>(round) % 10, 0);
    }
    round_trip(witness, witness_queue, 1, round + 1);
  }
  EXPECT_TRUE(device.wait_for_controllers(1));
  EXPECT_EQ(witness.reg(nvme::kRegCsts) & 1, 1u);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(VfioUserServer, AClientKilledUnderLoadDisturbsNobody) {
  TestDevice device;
  TestHost witness(device.path);
  TestQueue witness_queue = witness.start();
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      TestHost host(device.path);
      TestQueue queue = host.start();
      for (;;) host.run(queue, TestHost::io(NvmOpcode::write, 64, kDataIova, 8));
    }
    ASSERT_TRUE(device.wait_for_controllers(2));
    for (int i = 0; i < 20; ++i) round_trip(witness, witness_queue, 1, i + 1);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ASSERT_TRUE(device.wait_for_controllers(1)) << round;
    round_trip(witness, witness_queue, 2, round + 1);
  }
}

TEST(VfioUserServer, MemoryTakenAwayUnderLoadIsNotTouchedAgain) {
  TestDevice device;
  TestHost host(device.path);
  TestQueue queue = host.start();
  // A second piece of memory that comes and goes while commands point at it.
  constexpr std::uint64_t kIova = std::uint64_t{1} << 32;
  constexpr std::size_t kBytes = 64 << 10;
  for (int round = 0; round < 50; ++round) {
    memory::HostMemory extra(kBytes, memory::HostMemory::Kind::shared_memfd);
    ASSERT_EQ(host.map_dma(kIova, kBytes, extra.fd()), 0u);
    for (int i = 0; i < 12; ++i) host.submit(queue, TestHost::io(NvmOpcode::read, 0, kIova + 4096u * i, 8));
    ASSERT_EQ(host.unmap_dma(kIova, kBytes), 0u);
    // From here on the device may not write there.
    std::memset(extra.data(), 0xEE, kBytes);
    for (int i = 0; i < 12; ++i) {
      const std::uint16_t status = host.complete(queue);
      ASSERT_NE(status, 0xFFFF);
    }
    for (std::size_t i = 0; i < kBytes; i += 64) ASSERT_EQ(extra.data()[i], std::byte{0xEE}) << round;
  }
  EXPECT_NE(host.run(queue, TestHost::io(NvmOpcode::read, 0, kIova)), 0u) << "nothing is mapped there";
}

TEST(VfioUserServer, QueuesWhoseMemoryGoesAreHarmless) {
  TestDevice device;
  TestHost host(device.path);
  TestQueue queue = host.start();
  for (int i = 0; i < 10; ++i) host.submit(queue, TestHost::io(NvmOpcode::read, 0, kDataIova));
  ASSERT_EQ(host.unmap_dma(0, TestHost::kMemoryBytes), 0u);
  host.doorbells()[2] = 3;
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_EQ(host.map_dma(0, TestHost::kMemoryBytes, host.memory_fd()), 0u);
  ASSERT_EQ(host.ask(vfio::Command::device_reset).header.error, 0u);
  ASSERT_TRUE(host.enable());
  queue = host.create_queue(1);
  round_trip(host, queue, 0, 3);
}

TEST(VfioUserServer, AFileCutShortUnderTheDeviceHarmsItsOwnerOnly) {
  TestDevice device;
  TestHost witness(device.path);
  TestQueue witness_queue = witness.start();
  TestHost host(device.path);
  TestQueue queue = host.start();
  const vfio::UniqueFd file(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 1 << 20), 0);
  constexpr std::uint64_t kIova = std::uint64_t{1} << 32;
  ASSERT_EQ(host.map_dma(kIova, 1 << 20, file.get()), 0u);
  ASSERT_EQ(ftruncate(file.get(), 0), 0);
  // Whoever cuts its memory short is let go of; how many of its commands are answered before that is seen is chance.
  for (int i = 0; i < 4; ++i) {
    host.submit(queue, TestHost::io(NvmOpcode::read, 0, kIova + 65536u * i, 8));
    host.submit(queue, TestHost::io(NvmOpcode::write, 0, kIova + 65536u * i + 8192, 8));
  }
  EXPECT_TRUE(device.wait_for_controllers(1));
  round_trip(witness, witness_queue, 1000, 9);
}

TEST(VfioUserServer, RingsMayCrossTheBorderOfTwoMappings) {
  if (FLASHMOB_TSAN) GTEST_SKIP() << "ThreadSanitizer chooses every address itself";
  TestDevice device;
  TestHost host(device.path);
  ASSERT_EQ(host.negotiate().header.error, 0u);
  // The memory arrives page by page, in an order of its own, as some hosts share huge pages.
  for (std::size_t page = 0; page < TestHost::kMemoryBytes / 4096; ++page) {
    const std::size_t at = (page * 7 % (TestHost::kMemoryBytes / 4096)) * 4096;
    ASSERT_EQ(host.map_dma(at, 4096, host.memory_fd(), at), 0u);
  }
  host.map_doorbells();
  ASSERT_TRUE(host.enable());
  // 256 submission entries are four pages.
  TestQueue queue = host.queue_at(1, 64, 256);
  queue.cq_iova = queue.sq_iova + 32768;
  queue.cq = reinterpret_cast<nvme::Cqe*>(host.memory() + queue.cq_iova);
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::create_io_cq);
  sqe.prp1 = queue.cq_iova;
  nvme::encode_create_io_cq({1, 255, true, false, 0}, sqe);
  ASSERT_EQ(host.admin(sqe), 0u);
  sqe = {};
  sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::create_io_sq);
  sqe.prp1 = queue.sq_iova;
  nvme::encode_create_io_sq({.qid = 1, .qsize = 255, .cqid = 1}, sqe);
  ASSERT_EQ(host.admin(sqe), 0u);
  for (int i = 0; i < 600; ++i) round_trip(host, queue, static_cast<std::uint64_t>(i), i + 1);
}

TEST(VfioUserServer, AClientThatReadsNoRepliesStopsItselfOnly) {
  TestDevice device;
  TestHost witness(device.path);
  TestQueue witness_queue = witness.start();
  TestHost mute(device.path);
  ASSERT_EQ(mute.negotiate().header.error, 0u);
  const auto payload = to_bytes(vfio::RegionAccess{0, vfio::kRegionConfig, 4096});
  unsigned sent = 0;
  while (sent < 5000 && mute.socket().start_send({1, 9, 0, 0, 0}, payload) == vfio::MessageSocket::Sent::whole) ++sent;
  EXPECT_GT(sent, 10u);
  for (int i = 0; i < 20; ++i) round_trip(witness, witness_queue, 1, i + 1);
  ASSERT_EQ(witness.ask(vfio::Command::device_reset).header.error, 0u);
  // Nothing was lost for it.
  for (unsigned i = 0; i < sent; ++i) ASSERT_EQ(mute.reply().payload.size(), 4096u + 16u) << i;
}

TEST(VfioUserServer, ClientsAreCountedAndReported) {
  std::mutex mutex;
  std::vector<VfioUserEvent> events;
  VfioUserOptions options;
  options.max_clients = 2;
  options.on_event = [&](const VfioUserEvent& event) {
    const std::lock_guard lock(mutex);
    events.push_back(event);
  };
  TestDevice device(test_device_config(), options);
  {
    TestHost first(device.path), second(device.path);
    ASSERT_EQ(first.negotiate().header.error, 0u);
    ASSERT_EQ(second.negotiate().header.error, 0u);
    TestHost third(device.path);
    EXPECT_TRUE(third.is_disconnected());
  }
  ASSERT_TRUE(device.wait_for_controllers(0));
  TestHost later(device.path);
  EXPECT_EQ(later.negotiate().header.error, 0u) << "there is room again";
  device.server->stop();
  EXPECT_TRUE(later.is_disconnected());
  EXPECT_EQ(device.controllers(), 0u);
  const std::lock_guard lock(mutex);
  using Kind = VfioUserEvent::Kind;
  const auto count = [&](Kind kind) {
    return std::count_if(events.begin(), events.end(), [&](const auto& event) { return event.kind == kind; });
  };
  EXPECT_EQ(count(Kind::connected), 3);
  EXPECT_EQ(count(Kind::disconnected), 3);
  EXPECT_EQ(count(Kind::refused), 1);
  EXPECT_FALSE(std::filesystem::exists(device.path));
}

TEST(VfioUserServer, BadPathsAreConfigurationMistakes) {
  TestDevice device;
  EXPECT_THROW(VfioUserServer(device.subsystem, device.engine, device.config.controller, device.path), ConfigError)
      << "it is being served";
  EXPECT_THROW(VfioUserServer(device.subsystem, device.engine, device.config.controller, "/nowhere/at/all"),
               ConfigError);
}

}  // namespace
}  // namespace flashmob::transport
