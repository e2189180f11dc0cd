#include "vfio/peer_event.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdarg>
#include <thread>

#include "vfio/unique_fd.h"

namespace {

thread_local bool no_queues = false;  // the kernel has none left for this thread
thread_local int queues_made = 0;
thread_local int signals_sent = 0;

using Syscall = long (*)(long, long, long, long, long, long, long);
const auto real_syscall = reinterpret_cast<Syscall>(dlsym(RTLD_NEXT, "syscall"));

}  // namespace

extern "C" long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long of[6];
  for (long& one : of) one = va_arg(list, long);
  va_end(list);
  if (number == SYS_io_setup && no_queues) {
    errno = EAGAIN;
    return -1;
  }
  queues_made += number == SYS_io_setup;
  signals_sent += number == SYS_io_submit;
  return real_syscall(number, of[0], of[1], of[2], of[3], of[4], of[5]);
}

namespace flashmob::vfio {
namespace {

TEST(PeerEvent, SignalsAreCountedAndTaken) {
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));  // one that blocks
  std::uint64_t count = 7;
  EXPECT_FALSE(take_event(event.get(), count));
  for (int i = 0; i < 200; ++i) signal_event(event.get());
  EXPECT_TRUE(take_event(event.get(), count));
  EXPECT_EQ(count, 200u);
  EXPECT_FALSE(take_event(event.get(), count));
}

// A write() could wait, so it is none.
TEST(PeerEvent, AThreadWithoutAQueueUsesAnothersAndLaterItsOwn) {
  prepare_events();
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  std::thread([&] {
    no_queues = true;
    for (int i = 0; i < 3; ++i) signal_event(event.get());
    EXPECT_EQ(signals_sent, 3);
    EXPECT_EQ(queues_made, 0);
    no_queues = false;
    for (int i = 0; i < 3; ++i) signal_event(event.get());
    EXPECT_EQ(signals_sent, 6);
    EXPECT_EQ(queues_made, 1);
  }).join();
  std::uint64_t count = 0;
  EXPECT_TRUE(take_event(event.get(), count));
  EXPECT_EQ(count, 6u);
}

TEST(PeerEvent, NoDescriptorIsNeededLater) {
  prepare_events();
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};
  std::thread([&] {
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    signal_event(event.get());
    EXPECT_EQ(signals_sent, 1);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  }).join();
}

TEST(PeerEvent, AFullCounterIsNotWaitedFor) {
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  ASSERT_EQ(eventfd_write(event.get(), UINT64_MAX - 1), 0);
  signal_event(event.get());
  std::uint64_t count = 0;
  EXPECT_TRUE(take_event(event.get(), count));
  EXPECT_GE(count, UINT64_MAX - 1);
}

}  // namespace
}  // namespace flashmob::vfio
