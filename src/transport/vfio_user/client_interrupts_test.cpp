// Interrupts beside engine threads: none lost, none after unbinding.
#include "transport/vfio_user/client_interrupts.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

vfio::UniqueFd copy_of(const TestEvent& event) { return vfio::UniqueFd(dup(event.fd.get())); }

TEST(ClientInterrupts, VectorsThatDoNotExistAreIgnored) {
  vfio::ClientShare share{-1};
  ClientInterrupts interrupts(2, share, [] { return false; });
  interrupts.fire(2);
  interrupts.fire(0xFFFF);
  std::byte pending[2] = {std::byte{9}, std::byte{9}};
  interrupts.read_pending(0, pending);
  EXPECT_EQ(pending[0], std::byte{0});
  EXPECT_EQ(pending[1], std::byte{0});
}

TEST(ClientInterrupts, PendingBitsHaveTheirPlaces) {
  vfio::ClientShare share{-1};
  ClientInterrupts interrupts(20, share, [] { return false; });
  for (const unsigned vector : {0u, 7u, 8u, 19u}) interrupts.fire(static_cast<std::uint16_t>(vector));
  std::byte pending[8];
  interrupts.read_pending(0, pending);
  EXPECT_EQ(pending[0], std::byte{0x81});
  EXPECT_EQ(pending[1], std::byte{0x01});
  EXPECT_EQ(pending[2], std::byte{0x08});
  interrupts.read_pending(1, std::span(pending).first(1));
  EXPECT_EQ(pending[0], std::byte{0x01});
  interrupts.disable(vfio::kIrqMsix);
  interrupts.read_pending(0, pending);
  for (const std::byte bits : pending) EXPECT_EQ(bits, std::byte{0});
}

TEST(ClientInterrupts, TheLineFollowsTheQueues) {
  bool unread = false;
  vfio::ClientShare share{-1};
  ClientInterrupts interrupts(2, share, [&] { return unread; });
  TestEvent line;
  interrupts.bind(vfio::kIrqIntx, 0, copy_of(line));
  EXPECT_TRUE(interrupts.uses_intx());
  interrupts.fire(0);
  eventfd_t calls = 0;
  EXPECT_EQ(eventfd_read(interrupts.intx_event(), &calls), 0) << "the server's thread is called";
  interrupts.update_intx();
  EXPECT_EQ(line.take(), 0u) << "everything has been read already";
  unread = true;
  interrupts.fire(0);
  interrupts.fire(1);
  interrupts.update_intx();
  interrupts.update_intx();
  EXPECT_EQ(line.take(), 1u);
  EXPECT_TRUE(interrupts.intx_asserted());
  interrupts.set_masked(vfio::kIrqIntx, 0, false);
  EXPECT_EQ(line.take(), 1u) << "still unread: asserted again at once";
  unread = false;
  interrupts.set_masked(vfio::kIrqIntx, 0, false);
  EXPECT_EQ(line.take(), 0u);
  EXPECT_FALSE(interrupts.intx_asserted());
}

TEST(ClientInterrupts, MessagesComeBeforeTheLine) {
  vfio::ClientShare share{-1};
  ClientInterrupts interrupts(2, share, [] { return true; });
  TestEvent line, message;
  interrupts.bind(vfio::kIrqMsix, 1, copy_of(message));
  interrupts.bind(vfio::kIrqIntx, 0, copy_of(line));
  EXPECT_FALSE(interrupts.uses_intx());
  line.take();
  interrupts.fire(1);
  EXPECT_EQ(message.take(), 1u);
  EXPECT_EQ(line.take(), 0u);
}

TEST(ClientInterrupts, OnlyEventfdsAreTaken) {
  const TestEvent event;
  EXPECT_TRUE(prepare_eventfd(event.fd.get()));
  const vfio::UniqueFd blocking(eventfd(0, EFD_CLOEXEC));
  EXPECT_TRUE(prepare_eventfd(blocking.get()));
  EXPECT_NE(fcntl(blocking.get(), F_GETFL) & O_NONBLOCK, 0);
  const vfio::UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_FALSE(prepare_eventfd(null.get()));
  EXPECT_FALSE(prepare_eventfd(-1));
}

TEST(ClientInterrupts, NothingIsWrittenAfterUnbinding) {
  vfio::ClientShare share{-1};
  ClientInterrupts interrupts(2, share, [] { return true; });
  std::atomic<bool> stop{false};
  std::vector<std::thread> engines;
  for (int i = 0; i < 2; ++i) {
    engines.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        interrupts.fire(0);
        interrupts.fire(1);
        std::this_thread::yield();
      }
    });
  }
  for (int round = 0; round < 300; ++round) {
    TestEvent message, line;
    interrupts.bind(vfio::kIrqMsix, 0, copy_of(message));
    interrupts.bind(vfio::kIrqIntx, 0, copy_of(line));
    EXPECT_TRUE(message.wait());
    interrupts.update_intx();
    interrupts.disable(vfio::kIrqMsix);
    interrupts.disable(vfio::kIrqIntx);
    message.take();
    line.take();
    std::this_thread::yield();
    EXPECT_EQ(message.take(), 0u);
    EXPECT_EQ(line.take(), 0u);
  }
  stop = true;
  for (std::thread& thread : engines) thread.join();
}

}  // namespace
}  // namespace flashmob::transport
