// Clients that break the rules on purpose: the door, the process and the other clients go on.
#include <fcntl.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>

#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;
using nvme::NvmOpcode;

constexpr std::uint16_t kDataTransferError = 0x0004;
constexpr std::uint16_t kStatusMask = 0x07FF;

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

UniqueFd memory_file(std::uint64_t bytes) {
  UniqueFd file(memfd_create("hostile", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  return file;
}

void block_on(const TestEvent& event) {
  const int flags = fcntl(event.fd.get(), F_GETFL);
  ASSERT_EQ(fcntl(event.fd.get(), F_SETFL, flags & ~O_NONBLOCK), 0);
}

// Whether another client gets its work done, and soon.
void expect_served(TestDevice& device) {
  TestHost other(device.path);
  ASSERT_EQ(other.negotiate().header.error, 0u);
  ASSERT_EQ(other.map_dma(0, TestHost::kMemoryBytes, other.memory_fd()), 0u);
  other.map_doorbells();
  ASSERT_TRUE(other.enable());
  TestQueue queue = other.create_queue(1);
  EXPECT_EQ(other.run(queue, TestHost::io(NvmOpcode::read, 0, 0x100000)), 0u);
}

TEST(HostileClient, OurOwnRingsAreOutOfReachOfMessages) {
  constexpr std::uint64_t kOurAdminCq = 0xFFFF'0000'0200'0000;
  TestDevice device;
  TestHost host(device.path);
  host.attach_unshared();
  ASSERT_TRUE(host.enable());
  TestQueue queue = host.create_queue(1);
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, kOurAdminCq)) & kStatusMask, kDataTransferError);
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::write, 0, kOurAdminCq)) & kStatusMask, kDataTransferError);
  // A page list there, and one that names it.
  nvme::Sqe list = TestHost::io(NvmOpcode::read, 0, 0x200000, 24);
  list.prp2 = kOurAdminCq;
  EXPECT_EQ(host.run(queue, list) & kStatusMask, kDataTransferError);
  list.prp2 = 0x210000;
  std::memcpy(host.memory() + list.prp2, &kOurAdminCq, sizeof(kOurAdminCq));
  EXPECT_EQ(host.run(queue, list) & kStatusMask, kDataTransferError);
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, 0x200000)), 0u) << "it still works";
}

TEST(HostileClient, AQueueIsNotMadeOfOurOwnRings) {
  TestDevice device;
  TestHost host(device.path);
  host.attach_unshared();
  ASSERT_TRUE(host.enable());
  host.create_queue(1);
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::delete_io_sq);
  sqe.cdw10 = 1;
  ASSERT_EQ(host.admin(sqe), 0u);
  // Deleted and made anew in one go: the ring that stands in for the old one is still there.
  nvme::Sqe create{};
  create.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::create_io_cq);
  create.prp1 = 0xFFFF'0000'0200'0000;
  create.cid = 2;
  nvme::encode_create_io_cq({1, 15, true, false, 0}, create);
  sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::delete_io_cq);
  host.submit_together({sqe, create});
  EXPECT_EQ(host.complete_admin(), 0u);
  EXPECT_NE(host.complete_admin(), 0u) << "there is no such memory";
}

TEST(HostileClient, MemoryCutShortCostsOneMappingAndTheConnection) {
  constexpr std::uint64_t kPages = 512;
  constexpr std::uint64_t kIova = 0x10000000;
  TestDevice device;
  TestHost host(device.path);
  TestQueue queue = host.start();
  const UniqueFd file = memory_file(kPages * 4096);
  ASSERT_EQ(host.map_dma(kIova, kPages * 4096, file.get()), 0u);
  ASSERT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, kIova)), 0u);
  const std::size_t before = mappings();
  ASSERT_EQ(ftruncate(file.get(), 4096), 0);
  for (std::uint64_t page = 2; page < kPages; page += 2)
    if (host.run(queue, TestHost::io(NvmOpcode::read, 0, kIova + page * 4096)) == 0xFFFF) break;
  EXPECT_LT(mappings(), before + 16);
  EXPECT_TRUE(host.is_disconnected());
  expect_served(device);
}

TEST(HostileClient, AFullEventfdThatBlocksStopsNoEngineThread) {
  TestDevice device;
  TestHost host(device.path);
  TestQueue queue = host.start(1);
  const TestEvent event;
  const int fd = event.fd.get();
  ASSERT_EQ(host.set_irqs(kIrqMsix, kIrqSetEventfd | kIrqSetTrigger, 1, 1, {&fd, 1}), 0u);
  ASSERT_EQ(eventfd_write(fd, UINT64_MAX - 1), 0);
  block_on(event);
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, 0x100000)), 0u);
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, 0x100000)), 0u);
  eventfd_t value = 0;
  EXPECT_EQ(eventfd_read(fd, &value), 0) << "whoever waited goes on";
  expect_served(device);
}

TEST(HostileClient, AnEmptyUnmaskEventfdThatBlocksStopsNotTheDoor) {
  TestDevice device;
  TestHost host(device.path);
  TestQueue queue = host.start(0);
  const TestEvent line, unmask;
  const int line_fd = line.fd.get(), unmask_fd = unmask.fd.get();
  ASSERT_EQ(host.set_irqs(kIrqIntx, kIrqSetEventfd | kIrqSetTrigger, 0, 1, {&line_fd, 1}), 0u);
  ASSERT_EQ(host.set_irqs(kIrqIntx, kIrqSetEventfd | kIrqSetUnmask, 0, 1, {&unmask_fd, 1}), 0u);
  block_on(unmask);
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, 0x100000)), 0u);
  std::thread rescue([&] {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    (void)eventfd_write(unmask_fd, 1);
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(host.reg(nvme::kRegCsts) & 1, 1u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2)) << "it was asked to wait for ever";
  rescue.join();
}

// The count of an eventfd, which stays.
std::uint64_t count_of(int eventfd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(eventfd));
  for (std::string word; info >> word;)
    if (std::uint64_t count = 0; word == "eventfd-count:" && info >> std::hex >> count) return count;
  return 0;
}

// One that gives only 1 of its count at a time: it is looked at when its client signals it, not for as long as it has
// something to give.
TEST(HostileClient, AnUnmaskEventfdThatStaysReadableIsReadOncePerSignal) {
  constexpr std::uint64_t kSignals = std::uint64_t{1} << 40;
  TestDevice device;
  TestHost host(device.path);
  host.start(0);
  const UniqueFd unmask(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
  ASSERT_EQ(eventfd_write(unmask.get(), kSignals), 0);
  const int fd = unmask.get();
  ASSERT_EQ(host.set_irqs(kIrqIntx, kIrqSetEventfd | kIrqSetUnmask, 0, 1, {&fd, 1}), 0u);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_GE(count_of(fd), kSignals - 4);
  ASSERT_EQ(eventfd_write(fd, 1), 0);
  EXPECT_EQ(host.reg(nvme::kRegCsts) & 1, 1u);
  EXPECT_GE(count_of(fd), kSignals - 4);
}

TEST(HostileClient, AResetThatTakesLongKeepsNobodyElseWaiting) {
  TestDevice device;
  TestHost host(device.path);
  host.start();
  TestHost other(device.path);
  ASSERT_EQ(other.negotiate().header.error, 0u);
  device.engine.stop();  // as threads that are kept off their cores
  host.post(Command::device_reset, {});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(other.reg(nvme::kRegVs), 0u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  device.engine.start();
  EXPECT_EQ(host.reply().header.error, 0u) << "and it comes to its end";
  EXPECT_TRUE(host.enable());
}

TEST(HostileClient, WhoReadsNoCompletionsKeepsTheEngineAwakeNoLonger) {
  TestDevice device;
  TestHost host(device.path);
  TestQueue queue = host.start();
  for (int i = 0; i < 15; ++i) host.submit(queue, TestHost::io(NvmOpcode::read, 0, 0x100000));
  ASSERT_TRUE(TestHost::wait_for_entry(queue, 14)) << "then it is full";
  host.submit(queue, TestHost::io(NvmOpcode::read, 0, 0x100000));
  // It may be stopped between the fetch of the command and its end.
  const auto rests = [&] { return device.engine.actor_deadline_ns(0) > device.clock.now_ns(); };
  for (int i = 0; i < 5000; ++i) {
    device.engine.stop();
    if (device.engine.outstanding() != 0 && rests()) break;
    device.engine.start();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(device.engine.outstanding(), 1u) << "what has no room";
  EXPECT_TRUE(rests()) << "nothing to do before the host reads";
  device.engine.start();
  for (int i = 0; i < 16; ++i) EXPECT_EQ(host.complete(queue) & kStatusMask, 0);
}

TEST(HostileClient, SilentClientsDoNotCloseTheDoor) {
  VfioUserOptions options;
  options.max_clients = 4;
  TestDevice device(test_device_config(), options);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(connect_unix(device.path));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  expect_served(device);
}

TEST(HostileClient, DescriptorsBeyondWhatWasAgreedAreNotTaken) {
  TestDevice device;
  const UniqueFd socket = connect_unix(device.path);
  const std::size_t before = descriptors();
  std::array<int, kMaxMessageFds> fds;
  fds.fill(socket.get());
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(fds))> control{};
  std::byte half{1};
  iovec part{&half, 1};
  msghdr out{};
  out.msg_iov = &part;
  out.msg_iovlen = 1;
  out.msg_control = control.data();
  out.msg_controllen = control.size();
  cmsghdr* const piece = CMSG_FIRSTHDR(&out);
  piece->cmsg_level = SOL_SOCKET;
  piece->cmsg_type = SCM_RIGHTS;
  piece->cmsg_len = CMSG_LEN(sizeof(fds));
  std::memcpy(CMSG_DATA(piece), fds.data(), sizeof(fds));
  ASSERT_EQ(sendmsg(socket.get(), &out, 0), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LT(descriptors(), before + 20);
}

// It goes when the last command that knows it has gone.
TEST(HostileClient, ANamespaceDeletedUnderReadsStaysUntilTheyAreDone) {
  DeviceConfig config = test_device_config();
  config.subsystem.namespaces.push_back({.size_bytes = 64 << 20});
  TestDevice device(config);
  TestHost host(device.path);
  TestQueue queue = host.start();
  nvme::Sqe read = TestHost::io(NvmOpcode::read, 0, 0x200000, 2048);
  read.nsid = 2;
  read.prp2 = 0x1F0000;
  for (std::uint64_t page = 1; page < 256; ++page) {
    const std::uint64_t at = 0x200000 + page * 4096;
    std::memcpy(host.memory() + read.prp2 + 8 * (page - 1), &at, sizeof(at));
  }
  for (std::uint32_t i = 0; i < 15; ++i) queue.sq[i] = read;
  nvme::Sqe remove{};
  remove.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::namespace_management);
  remove.nsid = 2;
  remove.cdw10 = nvme::kNamespaceDelete;
  host.ring(2 * queue.qid, 15);
  EXPECT_EQ(host.admin(remove), 0u);
  for (int i = 0; i < 15; ++i) {
    const std::uint16_t status = host.complete(queue) & kStatusMask;
    EXPECT_TRUE(status == 0 || status == 0x0002) << status;  // fetched before, or after
  }
  expect_served(device);
}

TEST(HostileClient, MappingsOfTheProcessAreShared) {
  std::size_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  if (limit == 0 || limit > 100'000) GTEST_SKIP() << "more mappings than this test can ask for";
  TestDevice device;
  const UniqueFd file = memory_file(4096);
  const std::size_t before = mappings();
  std::vector<std::unique_ptr<TestHost>> hosts;
  for (int i = 0; i < 4; ++i) {
    hosts.push_back(std::make_unique<TestHost>(device.path));
    ASSERT_EQ(hosts.back()->negotiate().header.error, 0u);
    std::uint64_t iova = 0x10000000;
    while (hosts.back()->map_dma(iova, 4096, file.get()) == 0) iova += 0x2000;
    EXPECT_GT(iova, 0x10000000 + limit / 3 / 256 * 0x2000u) << "each has its own part of its process's";
  }
  EXPECT_LT(mappings(), before + limit / 2 + 100);
  expect_served(device);
}

}  // namespace
}  // namespace flashmob::transport
