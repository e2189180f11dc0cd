// What is queued arrives in order and whole, however little the socket takes at a time; tokens come back in order and
// not before what they stand behind.
#include "fabrics/send_queue.h"

#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "gtest/gtest.h"

namespace flashmob::fabrics {
namespace {

struct SendQueueTest : ::testing::Test {
  void SetUp() override {
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    stream = Stream(ends[0]);
    const int small = 4096;
    ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
  }
  void TearDown() override {
    for (const int end : ends) ::close(end);
  }
  std::vector<std::byte> drain(std::size_t most) {
    std::vector<std::byte> out(most);
    const ssize_t got = ::recv(ends[1], out.data(), out.size(), MSG_DONTWAIT);
    out.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return out;
  }
  int ends[2] = {-1, -1};
  Stream stream{-1};
};

TEST_F(SendQueueTest, EverythingInOrderThroughASmallSocket) {
  SendQueue queue;
  std::vector<std::byte> expected;
  std::vector<std::vector<std::byte>> held;
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < 400; ++i) {
    const std::vector<std::byte> head(20 + i % 50, static_cast<std::byte>(i));
    queue.copied(head);
    expected.insert(expected.end(), head.begin(), head.end());
    if (i % 3 == 0) {
      held.emplace_back(i * 11 % 3000, static_cast<std::byte>(i + 1));
      queue.in_place(held.back().data(), held.back().size());
      expected.insert(expected.end(), held.back().begin(), held.back().end());
    }
    queue.token(i);
  }
  EXPECT_EQ(queue.bytes(), expected.size());
  std::vector<std::byte> got;
  for (int round = 0; round < 100'000; ++round) {
    const auto result = queue.send(stream, [&](std::uint32_t token) { tokens.push_back(token); });
    const auto some = drain(777);
    got.insert(got.end(), some.begin(), some.end());
    if (result == SendQueue::Result::sent && some.empty()) break;
    ASSERT_NE(result, SendQueue::Result::closed);
  }
  EXPECT_EQ(got, expected);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.bytes(), 0u);
  ASSERT_EQ(tokens.size(), 400u);
  for (std::uint32_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], i);
}

TEST_F(SendQueueTest, TokensWaitForWhatStandsBeforeThem) {
  SendQueue queue;
  const std::vector<std::byte> large(1 << 20);
  std::vector<std::uint32_t> tokens;
  queue.in_place(large.data(), large.size());
  queue.token(7);
  EXPECT_EQ(queue.send(stream, [&](std::uint32_t t) { tokens.push_back(t); }), SendQueue::Result::blocked);
  EXPECT_TRUE(tokens.empty());
  queue.drop([&](std::uint32_t t) { tokens.push_back(t); });
  EXPECT_EQ(tokens, std::vector<std::uint32_t>{7});
  EXPECT_TRUE(queue.empty());
}

TEST_F(SendQueueTest, AClosedPeer) {
  SendQueue queue;
  ::close(ends[1]);
  ends[1] = -1;
  const std::vector<std::byte> some(10);
  queue.copied(some);
  EXPECT_EQ(queue.send(stream, [](std::uint32_t) {}), SendQueue::Result::closed);
}

}  // namespace
}  // namespace flashmob::fabrics
