#include "vfio/client_share.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

namespace flashmob::vfio {
namespace {

unsigned take_all(ClientShare& client) {
  unsigned count = 0;
  while (client.take_mapping()) ++count;
  return count;
}

struct Clients {
  explicit Clients(pid_t pid, uid_t uid) : pid_(pid), uid_(uid) {}
  ~Clients() {
    for (std::size_t i = 0; i < clients_.size(); ++i)
      for (unsigned left = held_[i]; left != 0; --left) clients_[i]->give_mapping();
  }
  unsigned take_all(ClientBudgets& budgets, unsigned clients) {
    unsigned count = 0;
    for (; clients != 0; --clients) {
      clients_.push_back(std::make_unique<ClientShare>(budgets, pid_, uid_));
      held_.push_back(vfio::take_all(*clients_.back()));
      count += held_.back();
    }
    return count;
  }
  pid_t pid_;
  uid_t uid_;
  std::vector<std::unique_ptr<ClientShare>> clients_;
  std::vector<unsigned> held_;
};

constexpr unsigned kMappings = 65530 / 3;

TEST(ClientShare, ManyClientsOfOneProcessLeaveOthersTheirPart) {
  ClientBudgets budgets(kMappings, 512);
  Clients greedy(100, geteuid());
  EXPECT_LE(greedy.take_all(budgets, 32), kMappings * 4 / 5);
  for (pid_t pid = 101; pid < 101 + 7; ++pid) {
    ClientShare client(budgets, pid, geteuid());
    for (unsigned i = 0; i < 80; ++i) ASSERT_TRUE(client.take_mapping()) << pid << " " << i;
    for (unsigned i = 0; i < 80; ++i) client.give_mapping();
  }
}

// Files without content are as long as anybody likes.
TEST(ClientShare, OneWhoMapsAllThatHeCanLeavesOthersAddresses) {
  ClientBudgets budgets(kMappings, 512);
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 44, kGuest = std::uint64_t{64} << 30;
  std::vector<std::unique_ptr<ClientShare>> greedy;
  std::vector<std::uint64_t> taken;
  for (int client = 0; client < 16; ++client) {
    greedy.push_back(std::make_unique<ClientShare>(budgets, 100, geteuid()));
    taken.push_back(0);
    for (std::uint64_t piece = kLargest; piece >= 4096; piece /= 2)
      while (greedy.back()->take_addresses(piece)) taken.back() += piece;
  }
  const std::uint64_t all = std::accumulate(taken.begin(), taken.end(), std::uint64_t{0});
  EXPECT_LT(all, ClientBudgets::kAddressBytes);
  EXPECT_GE(taken[0], kLargest);
  for (pid_t pid = 200; pid < 207; ++pid) {
    ClientShare other(budgets, pid, geteuid());
    EXPECT_TRUE(other.take_addresses(kGuest)) << pid;
    other.give_addresses(kGuest);
  }
  for (std::size_t i = 0; i < greedy.size(); ++i) greedy[i]->give_addresses(taken[i]);
  ClientShare whole(budgets, 100, geteuid());
  EXPECT_TRUE(whole.take_addresses(kLargest)) << "all was given back";
  whole.give_addresses(kLargest);
}

TEST(ClientShare, EvenWhenManyProcessesTakeAllTheyCan) {
  ClientBudgets budgets(kMappings, 512);
  std::vector<std::unique_ptr<Clients>> greedy;
  for (pid_t pid = 100; pid < 107; ++pid) {
    greedy.push_back(std::make_unique<Clients>(pid, geteuid()));
    greedy.back()->take_all(budgets, 8);
  }
  EXPECT_GE(Clients(200, geteuid()).take_all(budgets, 8), 600u);
}

TEST(ClientShare, ProcessesOfAForeignUserAreOne) {
  ClientBudgets budgets(kMappings, 512);
  Clients first(100, geteuid() + 1);
  Clients second(101, geteuid() + 1);
  Clients third(102, geteuid() + 2);
  first.take_all(budgets, 8);
  EXPECT_LT(second.take_all(budgets, 8), 100u);
  EXPECT_GE(third.take_all(budgets, 8), 1000u);
}

TEST(ClientShare, WhatIsGivenBackIsThereAgain) {
  ClientBudgets budgets(kMappings, 64);
  const unsigned first = Clients(100, geteuid()).take_all(budgets, 4);
  EXPECT_EQ(Clients(101, geteuid()).take_all(budgets, 4), first);
}

}  // namespace
}  // namespace flashmob::vfio
