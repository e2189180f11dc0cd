// What the process runs out of while it serves: it costs the client that asked for it its connection, or its device,
// and nobody else anything. The failures are made here: this runner's own operator new and pthread_create().
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

#include "base/platform.h"
#include "transport/vfio_user/vfio_user_test_support.h"

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

}  // namespace

#if FLASHMOB_OWN_FAILURES
void* operator new(std::size_t bytes) {
  if (bytes >= refused_bytes.load() && !is_test_thread) throw std::bad_alloc();
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
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(events.count("limit of open files"), 1u);
  expect_served(device);
}

TEST(ResourceFailure, AHalfMessageIsNotWaitedForForEver) {
  Events events;
  VfioUserOptions options = events.options();
  options.patience = std::chrono::milliseconds(300);
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

}  // namespace
}  // namespace flashmob::transport
