// Framing and descriptor passing over real socket pairs: whole, split, glued, truncated and hostile messages.
#include "vfio/message_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/check.h"

namespace flashmob::vfio {
namespace {

std::span<const std::byte> bytes_of(const auto& value) { return std::as_bytes(std::span(&value, 1)); }

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

struct MessageSocketTest : testing::Test {
  MessageSocketTest() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    raw = UniqueFd(pair[0]);
    socket.emplace(UniqueFd(pair[1]), 4096);
  }
  Header header(std::size_t payload_bytes, Command command = Command::version) {
    return {7, static_cast<std::uint16_t>(command), static_cast<std::uint32_t>(sizeof(Header) + payload_bytes), 0, 0};
  }
  void write(const void* data, std::size_t bytes) {
    ASSERT_EQ(::send(raw.get(), data, bytes, 0), static_cast<ssize_t>(bytes));
  }

  UniqueFd raw;
  std::optional<MessageSocket> socket;
  Message message;
};

TEST_F(MessageSocketTest, AMessagePassesWithItsDescriptors) {
  MessageSocket sender(std::move(raw), 4096);
  const std::uint64_t payload = 0x1122334455667788;
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  const int fd = event.get();
  ASSERT_TRUE(sender.send(header(0, Command::dma_map), bytes_of(payload), {&fd, 1}));
  ASSERT_EQ(socket->receive(message), MessageSocket::Received::message);
  EXPECT_EQ(message.header.message_bytes, 24u);
  EXPECT_EQ(message.header.command, 2u);
  std::uint64_t got = 0;
  EXPECT_TRUE(message.read(got));
  EXPECT_EQ(got, payload);
  EXPECT_FALSE(message.read(got, 1)) << "seven bytes are no eight";
  EXPECT_FALSE(message.read(got, SIZE_MAX));
  ASSERT_EQ(message.fds.size(), 1u);
  EXPECT_NE(fcntl(message.fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(eventfd_write(message.fds[0].get(), 3), 0);
  eventfd_t value = 0;
  ASSERT_EQ(eventfd_read(event.get(), &value), 0);
  EXPECT_EQ(value, 3u);
}

TEST_F(MessageSocketTest, AMessageMayArriveByteByByte) {
  struct {
    Header head;
    std::uint32_t body;
  } const whole{header(4), 0xABCD};
  for (std::size_t i = 0; i < sizeof(whole); ++i) {
    EXPECT_EQ(socket->receive(message), MessageSocket::Received::nothing) << i;
    write(reinterpret_cast<const std::byte*>(&whole) + i, 1);
  }
  EXPECT_EQ(socket->receive(message), MessageSocket::Received::message);
  EXPECT_EQ(message.payload.size(), 4u);
}

TEST_F(MessageSocketTest, GluedMessagesKeepTheirOwnDescriptors) {
  MessageSocket sender(std::move(raw), 4096);
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  const int fd = event.get();
  const std::uint32_t body = 1;
  ASSERT_TRUE(sender.send(header(0), bytes_of(body)));
  ASSERT_TRUE(sender.send(header(0), bytes_of(body), {&fd, 1}));
  ASSERT_TRUE(sender.send(header(0), {}));
  for (const std::size_t expected : {0u, 1u, 0u}) {
    ASSERT_EQ(socket->receive(message), MessageSocket::Received::message);
    EXPECT_EQ(message.fds.size(), expected);
  }
  EXPECT_EQ(socket->receive(message), MessageSocket::Received::nothing);
}

TEST_F(MessageSocketTest, SizesOutOfRangeBreakTheStream) {
  for (const std::uint32_t size : {0u, 15u, 4097u, 0xFFFFFFFFu}) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const UniqueFd other(pair[0]);
    MessageSocket receiver(UniqueFd(pair[1]), 4096);
    Header bad = header(0);
    bad.message_bytes = size;
    ASSERT_EQ(::send(other.get(), &bad, sizeof(bad), 0), 16);
    EXPECT_EQ(receiver.receive(message), MessageSocket::Received::broken) << size;
    EXPECT_NE(std::strlen(receiver.error()), 0u);
  }
}

TEST_F(MessageSocketTest, UnknownTypesBreakTheStream) {
  Header bad = header(0);
  bad.flags = 2;
  write(&bad, sizeof(bad));
  EXPECT_EQ(socket->receive(message), MessageSocket::Received::broken);
}

TEST_F(MessageSocketTest, TheLargestMessagePasses) {
  MessageSocket sender(std::move(raw), 4096);
  const std::vector<std::byte> payload(4096 - sizeof(Header), std::byte{5});
  ASSERT_TRUE(sender.send(header(0), payload));
  ASSERT_EQ(socket->receive(message), MessageSocket::Received::message);
  EXPECT_EQ(message.payload, payload);
}

TEST_F(MessageSocketTest, AnEndInTheMiddleOfAMessageIsAnEnd) {
  const Header whole = header(100);
  write(&whole, sizeof(whole));
  EXPECT_EQ(socket->receive(message), MessageSocket::Received::nothing);
  raw.reset();
  EXPECT_EQ(socket->receive(message), MessageSocket::Received::closed);
}

TEST_F(MessageSocketTest, DescriptorsOfAnUnfinishedMessageAreClosed) {
  const std::size_t before = open_descriptors();
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  const int fds[3] = {event.get(), event.get(), event.get()};
  {
    Header head = header(100);
    iovec part{&head, sizeof(head)};
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(fds))]{};
    msghdr out{};
    out.msg_iov = &part;
    out.msg_iovlen = 1;
    out.msg_control = control;
    out.msg_controllen = sizeof(control);
    cmsghdr* piece = CMSG_FIRSTHDR(&out);
    piece->cmsg_level = SOL_SOCKET;
    piece->cmsg_type = SCM_RIGHTS;
    piece->cmsg_len = CMSG_LEN(sizeof(fds));
    std::memcpy(CMSG_DATA(piece), fds, sizeof(fds));
    ASSERT_EQ(sendmsg(raw.get(), &out, 0), 16);
  }
  EXPECT_EQ(socket->receive(message), MessageSocket::Received::nothing);
  EXPECT_EQ(open_descriptors(), before + 4);
  socket.reset();
  EXPECT_EQ(open_descriptors(), before) << "the event is new, the socket is gone";
}

TEST_F(MessageSocketTest, TooManyDescriptorsBreakTheStream) {
  MessageSocket sender(std::move(raw), 1 << 20);
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  const std::vector<int> many(kMaxMessageFds, event.get());
  // A header that promises more than it brings, and then another with more descriptors for the same message.
  Header head = header(0);
  ASSERT_TRUE(sender.send(head, {}, many));
  ASSERT_EQ(socket->receive(message), MessageSocket::Received::message);
  EXPECT_EQ(message.fds.size(), kMaxMessageFds);
  const int fd = sender.fd();
  for (int i = 0; i < 2; ++i) {
    std::byte half[8]{};
    std::memcpy(half, reinterpret_cast<const std::byte*>(&head) + 8 * i, 8);
    iovec part{half, sizeof(half)};
    std::vector<std::byte> control(CMSG_SPACE(kMaxMessageFds * sizeof(int)));
    msghdr out{};
    out.msg_iov = &part;
    out.msg_iovlen = 1;
    out.msg_control = control.data();
    out.msg_controllen = control.size();
    cmsghdr* piece = CMSG_FIRSTHDR(&out);
    piece->cmsg_level = SOL_SOCKET;
    piece->cmsg_type = SCM_RIGHTS;
    piece->cmsg_len = CMSG_LEN(kMaxMessageFds * sizeof(int));
    std::memcpy(CMSG_DATA(piece), many.data(), kMaxMessageFds * sizeof(int));
    ASSERT_EQ(sendmsg(fd, &out, 0), 8);
  }
  EXPECT_EQ(socket->receive(message), MessageSocket::Received::broken);
}

TEST_F(MessageSocketTest, SendingToNobodyFailsAndDoesNotKill) {
  raw.reset();
  EXPECT_FALSE(socket->send(header(0), {}));
  EXPECT_EQ(socket->receive(message), MessageSocket::Received::closed);
}

TEST_F(MessageSocketTest, APeerThatDoesNotReadIsGivenUp) {
  const std::vector<std::byte> payload(4000);
  int sent = 0;
  while (sent < 10000 && socket->send(header(0), payload, {}, 10)) ++sent;
  EXPECT_LT(sent, 10000);
}

TEST_F(MessageSocketTest, WhatDoesNotFitGoesOutLater) {
  MessageSocket sender(std::move(raw), 1 << 20);
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  const int fd = event.get();
  const std::vector<std::byte> payload(3000, std::byte{9});
  unsigned sent = 0;
  while (!sender.sending()) {
    ASSERT_NE(sender.start_send(header(0), payload, {&fd, 1}), MessageSocket::Sent::failed);
    ++sent;
  }
  EXPECT_EQ(sender.flush(), MessageSocket::Sent::waits) << "nobody has read anything";
  unsigned received = 0;
  while (received < sent) {
    const auto got = socket->receive(message);
    ASSERT_TRUE(got == MessageSocket::Received::message || sender.sending());
    if (got == MessageSocket::Received::message) {
      ++received;
      EXPECT_EQ(message.fds.size(), 1u);
      EXPECT_EQ(message.payload, payload);
    }
    if (!sender.sending()) continue;
    ASSERT_NE(sender.flush(), MessageSocket::Sent::failed);
  }
  EXPECT_EQ(socket->receive(message), MessageSocket::Received::nothing);
}

TEST_F(MessageSocketTest, LargeMessagesPassThroughSmallBuffers) {
  const std::size_t bytes = 4 << 20;
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  MessageSocket sender(UniqueFd(pair[0]), 16);
  MessageSocket receiver(UniqueFd(pair[1]), bytes + sizeof(Header));
  std::vector<std::byte> payload(bytes);
  for (std::size_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>(i * 7);
  std::thread thread([&] { EXPECT_TRUE(sender.send(header(0), payload)); });
  MessageSocket::Received got;
  while ((got = receiver.receive(message)) == MessageSocket::Received::nothing)
    EXPECT_TRUE(receiver.wait_readable(5000));
  thread.join();
  ASSERT_EQ(got, MessageSocket::Received::message);
  EXPECT_EQ(message.payload, payload);
}

}  // namespace
}  // namespace flashmob::vfio
