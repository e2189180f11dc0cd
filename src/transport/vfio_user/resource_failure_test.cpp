// What the process runs out of while it serves: it costs the client that asked for it its connection, or its device,
// and nobody else anything. The failures are made here: this runner's own operator new and pthread_create().
#include <dlfcn.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

#include "base/platform.h"
#include "transport/vfio_user/dma_regions.h"
#include "transport/vfio_user/vfio_user_test_support.h"
#include "vfio/client_share.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define FLASHMOB_OWN_FAILURES 0  // the sanitizers' own stand there
#endif
#endif
#ifndef FLASHMOB_OWN_FAILURES
#define FLASHMOB_OWN_FAILURES 1
#endif

namespace {

std::atomic<std::size_t> refused_bytes{
    SIZE_MAX};  // allocations of so many bytes fail, on other threads than the test's
std::atomic<bool> no_threads{false};
thread_local bool is_test_thread = false;
thread_local int allocations_left = -1;  // of this thread, until one fails; negative: no end

}  // namespace

#if FLASHMOB_OWN_FAILURES
void* operator new(std::size_t bytes) {
  if (bytes >= refused_bytes.load() && !is_test_thread) throw std::bad_alloc();
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* of) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return no_threads.load() ? EAGAIN : create(thread, attributes, run, of);
}
#endif

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

struct Events {
  VfioUserOptions options() {
    VfioUserOptions made;
    made.on_event = [this](const VfioUserEvent& event) {
      const std::lock_guard lock(mutex);
      reasons.push_back(event.reason);
    };
    return made;
  }
  std::size_t count(const std::string& part) {
    const std::lock_guard lock(mutex);
    return static_cast<std::size_t>(std::count_if(reasons.begin(), reasons.end(), [&](const std::string& reason) {
      return reason.find(part) != std::string::npos;
    }));
  }
  // A client sees the end of its connection before it has been reported.
  bool wait_for(const std::string& part, std::size_t wanted) {
    for (int i = 0; i < 5000 && count(part) < wanted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return count(part) == wanted;
  }
  std::mutex mutex;
  std::vector<std::string> reasons;
};

void expect_served(TestDevice& device) {
  TestHost other(device.path);
  TestQueue queue = other.start();
  EXPECT_EQ(other.run(queue, TestHost::io(nvme::NvmOpcode::read, 0, 0x100000)), 0u);
}

TEST(ResourceFailure, NoMemoryForAMessageEndsItsConnection) {
  if (!FLASHMOB_OWN_FAILURES) GTEST_SKIP() << "the sanitizer has its own allocator";
  is_test_thread = true;
  Events events;
  TestDevice device(test_device_config(), events.options());
  TestHost host(device.path);
  ASSERT_EQ(host.negotiate().header.error, 0u);
  const std::vector<std::byte> large(512 << 10);
  refused_bytes = 256 << 10;
  (void)host.socket().send({1, static_cast<std::uint16_t>(Command::region_write), 0, 0, 0}, large);
  EXPECT_TRUE(host.is_disconnected());
  refused_bytes = SIZE_MAX;
  expect_served(device);
  EXPECT_TRUE(events.wait_for("could not go on", 1));
}

TEST(ResourceFailure, NoThreadForQueuesByMessagesIsAFatalStatus) {
  if (!FLASHMOB_OWN_FAILURES) GTEST_SKIP() << "the sanitizer has its own threads";
  TestDevice device;
  TestHost host(device.path);
  host.attach_unshared();
  no_threads = true;
  EXPECT_TRUE(host.enable(2));
  no_threads = false;
  TestHost later(device.path);
  later.attach_unshared();
  EXPECT_TRUE(later.enable()) << "when there are threads again";
}

// A socket that connects when there are no descriptors left for it to be accepted with.
void connect_with(const UniqueFd& socket, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  ASSERT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
}

TEST(ResourceFailure, NoDescriptorsAreSaidOnceAndWaitedFor) {
  Events events;
  TestDevice device(test_device_config(), events.options());
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 5; ++i) sockets.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (const UniqueFd& one : sockets) connect_with(one, device.path);
  EXPECT_TRUE(events.wait_for("limit of open files", 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(events.count("limit of open files"), 1u);
  expect_served(device);
}

TEST(ResourceFailure, AHalfMessageIsNotWaitedForForEver) {
  Events events;
  VfioUserOptions options = events.options();
  options.patience = std::chrono::seconds(3);
  TestDevice device(test_device_config(), options);
  TestHost quiet(device.path);
  quiet.attach();
  const UniqueFd silent = connect_unix(device.path);
  TestHost half(device.path);
  ASSERT_EQ(half.negotiate().header.error, 0u);
  ASSERT_EQ(send(half.socket().fd(), "half", 4, 0), 4);
  EXPECT_TRUE(half.is_disconnected());
  char byte = 0;
  EXPECT_EQ(recv(silent.get(), &byte, 1, 0), 0);
  EXPECT_TRUE(events.wait_for("did not end it in time", 2));
  EXPECT_NE(quiet.reg(nvme::kRegVs), 0u) << "one that has nothing to say stays";
}

// The rest of the message came in time, but nobody was there to read it.
TEST(ResourceFailure, WhoStoodStillHasPatienceLeft) {
  std::atomic<bool> stood_still{false};
  VfioUserOptions options;
  options.max_clients_per_process = 1;
  options.patience = std::chrono::seconds(2);
  options.on_event = [&](const VfioUserEvent& event) {
    if (event.kind != VfioUserEvent::Kind::refused || stood_still) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(3000));
    stood_still = true;
  };
  TestDevice device(test_device_config(), options);
  TestHost half(device.path);
  ASSERT_EQ(half.negotiate().header.error, 0u);
  const auto message =
      to_bytes(vfio::Header{7, static_cast<std::uint16_t>(Command::device_reset), sizeof(vfio::Header), 0, 0});
  ASSERT_EQ(send(half.socket().fd(), message.data(), 4, 0), 4);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const UniqueFd visitor = connect_unix(device.path);
  while (!stood_still) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ASSERT_EQ(send(half.socket().fd(), message.data() + 4, message.size() - 4, 0),
            static_cast<ssize_t>(message.size() - 4));
  const vfio::Message answer = half.reply();
  EXPECT_NE(answer.header.error, UINT32_MAX) << "it was dropped";
  EXPECT_EQ(answer.header.message_id, 7u);
}

// The server is held at the first of many that come and are turned away. A client that is in and has asked meanwhile is
// answered before all of them have been looked at.
TEST(ResourceFailure, WhoComesInWaitsForThoseWhoAreIn) {
  std::atomic<int> client_fd{-1};
  std::atomic<bool> ready{false};
  std::atomic<unsigned> before{0}, after{0};
  VfioUserOptions options;
  options.max_clients_per_process = 1;
  options.on_event = [&](const VfioUserEvent& event) {
    if (event.kind != VfioUserEvent::Kind::refused) return;
    for (int i = 0; i < 20'000 && !ready; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pollfd answer{client_fd, POLLIN, 0};
    ++(poll(&answer, 1, 0) == 1 ? after : before);
  };
  TestDevice device(test_device_config(), options);
  TestHost client(device.path);
  ASSERT_EQ(client.negotiate().header.error, 0u);
  client_fd = client.socket().fd();
  std::vector<UniqueFd> visitors;
  for (int i = 0; i < 40; ++i) visitors.push_back(connect_unix(device.path));
  client.post(Command::device_get_info, to_bytes(DeviceInfo{sizeof(DeviceInfo), 0, 0, 0}));
  ready = true;
  for (int i = 0; i < 20'000 && before + after < 40; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(before + after, 40u);
  EXPECT_LE(before, 8u);
}

TEST(ResourceFailure, OneProcessDoesNotGetTheWholeDoor) {
  Events events;
  VfioUserOptions options = events.options();
  options.max_clients_per_process = 2;
  TestDevice device(test_device_config(), options);
  TestHost first(device.path), second(device.path), third(device.path);
  EXPECT_EQ(first.negotiate().header.error, 0u);
  EXPECT_EQ(second.negotiate().header.error, 0u);
  EXPECT_TRUE(third.is_disconnected());
  EXPECT_TRUE(events.wait_for("its process has as many clients as allowed", 1));
}

TEST(ResourceFailure, AListenerThatThrowsEndsNothing) {
  VfioUserOptions options;
  options.on_event = [](const VfioUserEvent&) { throw std::runtime_error("no room for another line"); };
  TestDevice device(test_device_config(), options);
  expect_served(device);
  EXPECT_TRUE(device.wait_for_controllers(0));
  expect_served(device);
}

TEST(ResourceFailure, AMappingThatFailsCostsNothing) {
  if (!FLASHMOB_OWN_FAILURES) GTEST_SKIP() << "the sanitizer has its own allocator";
  const UniqueFd file(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 4096), 0);
  vfio::ClientBudgets budgets(64, 64);
  vfio::ClientShare share(budgets, getpid(), getuid());
  const auto take_all = [&share] {
    std::size_t taken = 0;
    while (share.take_mapping()) ++taken;
    for (std::size_t i = 0; i < taken; ++i) share.give_mapping();
    return taken;
  };
  const std::size_t before = take_all();
  memory::AddressSpace space;
  DmaRegions regions(space, share);
  int failures = 0;
  for (bool failed = true; failed && failures < 100; failures += failed) {
    failed = false;
    allocations_left = failures;
    try {
      EXPECT_EQ(regions.map(0x10000, 4096, file, 0, true), 0);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    allocations_left = -1;
    if (!failed) {
      EXPECT_EQ(regions.unmap(0x10000, 4096), 0);
    }
    ASSERT_EQ(take_all(), before) << failures;
    ASSERT_EQ(space.region_count(), 0u) << failures;
    ASSERT_EQ(regions.shared_bytes(), 0u) << failures;
  }
  EXPECT_GE(failures, 2);
}

// The first unit's threads have their view of the controller's memory, the second one's do not get theirs.
TEST(ResourceFailure, AControllerThatCannotBeAttachedLeavesNothingBehind) {
  DeviceConfig config = test_device_config();
  config.engine.units = 2;
  const Clock clock = Clock::real();
  controller::Subsystem subsystem(config.subsystem, config.seed, config.timing.unit_bytes);
  engine::Engine engine(config, clock);
  controller::Controller controller(subsystem, config.controller, engine);
  std::vector<std::unique_ptr<memory::AddressSpace::Reader>> readers;
  const auto take_readers = [&] {
    try {
      for (;;) readers.push_back(std::make_unique<memory::AddressSpace::Reader>(controller.address_space()));
    } catch (const ConfigError&) {
    }
    return readers.size();
  };
  const std::size_t all = take_readers();
  readers.pop_back();
  EXPECT_THROW(engine.attach(controller, [](std::uint16_t) {}), ConfigError);
  EXPECT_EQ(take_readers(), all) << "the engine holds some";
  readers.clear();
  engine.attach(controller, [](std::uint16_t) {});
  engine.detach(controller);
}

}  // namespace
}  // namespace flashmob::transport
