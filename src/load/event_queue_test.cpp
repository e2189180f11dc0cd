// Events come out by time, and in their order where it is the same, whatever is asked in between.
#include "load/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace flashmob::load {
namespace {

struct Event {
  std::uint64_t at_ns;
  std::uint64_t serial;
  bool operator==(const Event&) const = default;
};

TEST(EventQueue, ByTimeAndThenByTurn) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Rng rng(seed);
    // From next to nothing, where many are at one time, to hours.
    const std::uint64_t reach_ns = std::uint64_t{1} << (1 + rng.below(44));
    EventQueue<Event> events;
    std::vector<Event> expected;  // in order
    std::uint64_t now_ns = 0;
    for (std::uint64_t serial = 0; serial < 4'000; ++serial) {
      if (rng.below(5) < 3 || expected.empty()) {
        const Event event{now_ns + rng.below(reach_ns), serial};
        events.push(event);
        const auto later = [](std::uint64_t at_ns, const Event& other) { return at_ns < other.at_ns; };
        expected.insert(std::upper_bound(expected.begin(), expected.end(), event.at_ns, later), event);
        continue;
      }
      // A look at what comes next reaches no time: something earlier may still be wanted.
      if (rng.below(2) == 0) {
        ASSERT_EQ(events.next_ns(), expected.front().at_ns);
        if (expected.front().at_ns > now_ns) {
          const Event sooner{expected.front().at_ns - 1, serial};
          events.push(sooner);
          expected.insert(expected.begin(), sooner);
          ASSERT_EQ(events.next_ns(), sooner.at_ns);
        }
      }
      if (rng.below(64) == 0) {
        std::vector<std::uint64_t> held, wanted;
        events.for_each([&held](const Event& event) { held.push_back(event.serial); });
        for (const Event& event : expected) wanted.push_back(event.serial);
        std::ranges::sort(held);
        std::ranges::sort(wanted);
        ASSERT_EQ(held, wanted);
      }
      const Event next = events.pop();
      ASSERT_EQ(next, expected.front()) << seed;
      expected.erase(expected.begin());
      now_ns = next.at_ns;
      ASSERT_EQ(events.empty(), expected.empty());
    }
    events.clear();
    EXPECT_TRUE(events.empty());
    events.push({0, 0});
    EXPECT_EQ(events.pop().at_ns, 0u);
  }
}

}  // namespace
}  // namespace flashmob::load
