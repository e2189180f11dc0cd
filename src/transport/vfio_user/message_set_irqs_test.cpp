// vfio-user message VFIO_USER_DEVICE_SET_IRQS: legal, boundary and illegal forms (docs/interop/vfio-user).
#include <gtest/gtest.h>

#include <cerrno>

#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

struct SetIrqsMessage : testing::Test {
  SetIrqsMessage() {
    EXPECT_EQ(host.negotiate().header.error, 0u);
    for (const TestEvent& event : events) fds.push_back(event.fd.get());
  }
  static constexpr std::uint32_t kBind = kIrqSetEventfd | kIrqSetTrigger;
  static constexpr std::uint32_t kTriggerNow = kIrqSetNone | kIrqSetTrigger;

  TestDevice device;
  TestHost host{device.path};
  std::array<TestEvent, 9> events;
  std::vector<int> fds;
};

TEST_F(SetIrqsMessage, AllVectorsAreBoundTriggeredAndUnbound) {
  ASSERT_EQ(host.set_irqs(kIrqMsix, kBind, 0, 9, fds), 0u);
  ASSERT_EQ(host.set_irqs(kIrqMsix, kTriggerNow, 3, 2), 0u);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(events[i].take(), i == 3 || i == 4 ? 1u : 0u) << i;
  ASSERT_EQ(host.set_irqs(kIrqMsix, kBind, 4, 1), 0u) << "without descriptors: unbound";
  ASSERT_EQ(host.set_irqs(kIrqMsix, kTriggerNow, 3, 2), 0u);
  EXPECT_EQ(events[3].take(), 1u);
  EXPECT_EQ(events[4].take(), 0u);
  ASSERT_EQ(host.set_irqs(kIrqMsix, kTriggerNow, 0, 0), 0u) << "none and nothing: the index is disabled";
  ASSERT_EQ(host.set_irqs(kIrqMsix, kTriggerNow, 0, 9), 0u);
  for (TestEvent& event : events) EXPECT_EQ(event.take(), 0u);
}

TEST_F(SetIrqsMessage, BooleansSelect) {
  ASSERT_EQ(host.set_irqs(kIrqMsix, kBind, 0, 9, fds), 0u);
  const std::byte chosen[3] = {std::byte{1}, std::byte{0}, std::byte{7}};
  ASSERT_EQ(host.set_irqs(kIrqMsix, kIrqSetBool | kIrqSetTrigger, 6, 3, {}, chosen), 0u);
  EXPECT_EQ(events[6].take(), 1u);
  EXPECT_EQ(events[7].take(), 0u);
  EXPECT_EQ(events[8].take(), 1u);
  EXPECT_EQ(host.set_irqs(kIrqMsix, kIrqSetBool | kIrqSetTrigger, 0, 4, {}, chosen), std::uint32_t{EINVAL})
      << "fewer booleans than interrupts";
}

TEST_F(SetIrqsMessage, AMaskedVectorWaits) {
  ASSERT_EQ(host.set_irqs(kIrqMsix, kBind, 0, 9, fds), 0u);
  ASSERT_EQ(host.set_irqs(kIrqMsix, kIrqSetNone | kIrqSetMask, 2, 1), 0u);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(host.set_irqs(kIrqMsix, kTriggerNow, 2, 1), 0u);
  EXPECT_EQ(events[2].take(), 0u);
  ASSERT_EQ(host.set_irqs(kIrqMsix, kIrqSetNone | kIrqSetUnmask, 2, 1), 0u);
  EXPECT_EQ(events[2].take(), 1u) << "many while masked are one";
}

TEST_F(SetIrqsMessage, RangesThatDoNotExistAreRefused) {
  EXPECT_EQ(host.set_irqs(kIrqMsix, kTriggerNow, 9, 1), std::uint32_t{EINVAL});
  EXPECT_EQ(host.set_irqs(kIrqMsix, kTriggerNow, 8, 2), std::uint32_t{EINVAL});
  EXPECT_EQ(host.set_irqs(kIrqMsix, kTriggerNow, 1, UINT32_MAX), std::uint32_t{EINVAL});
  EXPECT_EQ(host.set_irqs(kIrqMsix, kTriggerNow, UINT32_MAX, 2), std::uint32_t{EINVAL});
  EXPECT_EQ(host.set_irqs(kIrqMsix, kTriggerNow, 1, 0), std::uint32_t{EINVAL});
  EXPECT_EQ(host.set_irqs(kIrqMsix, kBind, 0, 0), std::uint32_t{EINVAL});
  EXPECT_EQ(host.set_irqs(kIrqIntx, kTriggerNow, 1, 1), std::uint32_t{EINVAL});
  EXPECT_EQ(host.set_irqs(kIrqMsi, kTriggerNow, 0, 1), std::uint32_t{EINVAL}) << "there is no MSI";
  EXPECT_EQ(host.set_irqs(kIrqMsi, kTriggerNow, 0, 0), 0u) << "what is not there can be disabled";
  EXPECT_EQ(host.set_irqs(5, kTriggerNow, 0, 0), std::uint32_t{EINVAL});
}

TEST_F(SetIrqsMessage, FlagsThatContradictEachOtherAreRefused) {
  for (const std::uint32_t flags :
       {0u, kIrqSetNone, kIrqSetTrigger, kTriggerNow | kIrqSetMask, kTriggerNow | kIrqSetBool, kTriggerNow | 1u << 6,
        kIrqSetNone | kIrqSetTrigger | 1u << 31, 0xFFFFFFFFu})
    EXPECT_EQ(host.set_irqs(kIrqMsix, flags, 0, 1), std::uint32_t{EINVAL}) << flags;
  EXPECT_EQ(host.set_irqs(kIrqMsix, kIrqSetEventfd | kIrqSetMask, 0, 1, {fds.data(), 1}), std::uint32_t{EINVAL});
  EXPECT_EQ(host.set_irqs(kIrqError, kIrqSetNone | kIrqSetMask, 0, 1), std::uint32_t{EINVAL});
}

TEST_F(SetIrqsMessage, DescriptorsMustBeEventfdsAndAsManyAsInterrupts) {
  EXPECT_EQ(host.set_irqs(kIrqMsix, kBind, 0, 3, {fds.data(), 2}), std::uint32_t{EINVAL});
  EXPECT_EQ(host.set_irqs(kIrqMsix, kBind, 0, 1, {fds.data(), 2}), std::uint32_t{EINVAL});
  const int memory = host.memory_fd();
  EXPECT_EQ(host.set_irqs(kIrqMsix, kBind, 0, 1, {&memory, 1}), std::uint32_t{EINVAL});
  const int socket = host.socket().fd();
  EXPECT_EQ(host.set_irqs(kIrqMsix, kBind, 0, 1, {&socket, 1}), std::uint32_t{EINVAL});
}

// The line would unmask itself, and be asserted again, for as long as a completion is unread.
TEST_F(SetIrqsMessage, OneEventfdDoesNotAssertAndUnmask) {
  constexpr std::uint32_t kUnmaskBy = kIrqSetEventfd | kIrqSetUnmask;
  const UniqueFd copy(dup(fds[0]));
  const int same = copy.get();
  ASSERT_EQ(host.set_irqs(kIrqIntx, kBind, 0, 1, {&fds[0], 1}), 0u);
  for (const int fd : {fds[0], same})
    EXPECT_EQ(host.set_irqs(kIrqIntx, kUnmaskBy, 0, 1, {&fd, 1}), std::uint32_t{EINVAL});
  ASSERT_EQ(host.set_irqs(kIrqIntx, kUnmaskBy, 0, 1, {&fds[1], 1}), 0u);
  EXPECT_EQ(host.set_irqs(kIrqIntx, kBind, 0, 1, {&fds[1], 1}), std::uint32_t{EINVAL}) << "nor the other way round";
  ASSERT_EQ(host.set_irqs(kIrqIntx, kTriggerNow, 0, 1), 0u);
  EXPECT_EQ(events[0].take(), 1u) << "what was bound stays so";
}

TEST_F(SetIrqsMessage, AFullEventfdStopsNobody) {
  const UniqueFd blocking(eventfd(0, EFD_CLOEXEC));
  const int fd = blocking.get();
  ASSERT_EQ(eventfd_write(fd, UINT64_MAX - 1), 0);
  ASSERT_EQ(host.set_irqs(kIrqMsix, kBind, 0, 1, {&fd, 1}), 0u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(host.set_irqs(kIrqMsix, kTriggerNow, 0, 1), 0u);
}

TEST_F(SetIrqsMessage, TooShortIsRefused) {
  EXPECT_EQ(host.error_of(Command::device_set_irqs, std::uint64_t{20}), std::uint32_t{EINVAL});
  EXPECT_EQ(host.error_of(Command::device_set_irqs, IrqSet{19, kTriggerNow, kIrqMsix, 0, 1}), std::uint32_t{EINVAL});
}

}  // namespace
}  // namespace flashmob::transport
