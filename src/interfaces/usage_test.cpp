// What threads are read to have used, while they come and go.
#include "interfaces/usage.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace flashmob::interfaces {
namespace {

TEST(Usage, ThreadsMayEndWhileTheyAreLookedAt) {
  std::atomic<bool> over{false};
  std::vector<std::thread> spawners;
  for (int i = 0; i < 4; ++i)
    spawners.emplace_back([&] {
      while (!over) std::thread([] { std::this_thread::yield(); }).join();
    });
  Helpers before;
  for (int i = 0; i < 3'000; ++i) {
    const Helpers now = helpers_beside({});
    EXPECT_FALSE(now.empty());
    EXPECT_LT(difference(before, now).voluntary_switches, 1ull << 40);
    before = now;
  }
  over = true;
  for (std::thread& one : spawners) one.join();
}

}  // namespace
}  // namespace flashmob::interfaces
