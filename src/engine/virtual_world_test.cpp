#include "engine/virtual_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace flashmob::engine {
namespace {

// Has something to do at its times, and writes down when it did it.
struct Alarm {
  std::vector<std::uint64_t> times_ns;
  std::vector<std::uint64_t> rung_ns{};

  bool poll(std::uint64_t now_ns) {
    if (times_ns.empty() || now_ns < times_ns.front()) return false;
    rung_ns.push_back(now_ns);
    times_ns.erase(times_ns.begin());
    return true;
  }
  std::uint64_t deadline_ns() const { return times_ns.empty() ? UINT64_MAX : times_ns.front(); }
};

struct Rig {
  Clock clock = Clock::virtual_from(1'000);
  VirtualWorld world{clock};

  std::size_t add(Alarm& alarm) {
    return world.add_actor([this, &alarm] { return alarm.poll(clock.now_ns()); },
                           [&alarm] { return alarm.deadline_ns(); });
  }
};

TEST(VirtualWorld, AStepMovesByThePollPeriodOrToTheDeadline) {
  Rig rig;
  Alarm alarm{{1'000, 7'777}};
  rig.add(alarm);
  EXPECT_TRUE(rig.world.step(50));
  EXPECT_EQ(rig.clock.now_ns(), 1'050u);
  EXPECT_TRUE(rig.world.step(50));
  EXPECT_EQ(rig.clock.now_ns(), 7'777u) << "not rounded up to a poll period";
  EXPECT_TRUE(rig.world.step(50));
  EXPECT_FALSE(rig.world.step(50)) << "all wait for ever";
  EXPECT_EQ(rig.clock.now_ns(), 7'877u);
  EXPECT_EQ(alarm.rung_ns, (std::vector<std::uint64_t>{1'000, 7'777}));
}

TEST(VirtualWorld, APumpGrowsItsStepsAndPassesNoDeadline) {
  Rig rig;
  Alarm alarm{{100'000}};
  rig.add(alarm);
  unsigned pumps = 0;
  while (alarm.rung_ns.empty()) {
    rig.world.pump();
    ASSERT_LT(++pumps, 30u);
  }
  EXPECT_EQ(alarm.rung_ns, std::vector<std::uint64_t>{100'000});
  rig.world.pump(50, rig.clock.now_ns() + 10);
  EXPECT_EQ(rig.clock.now_ns(), 100'060u) << "no further than it may";
}

TEST(VirtualWorld, RunToStopsAtEveryDeadlineOnTheWay) {
  Rig rig;
  Alarm first{{2'000, 4'000}};
  Alarm second{{3'000}};
  rig.add(first);
  rig.add(second);
  EXPECT_TRUE(rig.world.run_to(3'500));
  EXPECT_EQ(rig.clock.now_ns(), 3'500u);
  EXPECT_EQ(first.rung_ns, std::vector<std::uint64_t>{2'000});
  EXPECT_EQ(second.rung_ns, std::vector<std::uint64_t>{3'000});
  EXPECT_FALSE(rig.world.run_to(3'600));
}

TEST(VirtualWorld, WhoIsRemovedHasNoTurns) {
  Rig rig;
  Alarm first{{2'000}};
  Alarm second{{2'000}};
  const std::size_t number = rig.add(first);
  rig.add(second);
  rig.world.remove_actor(number);
  rig.world.run_to(5'000);
  EXPECT_TRUE(first.rung_ns.empty());
  EXPECT_EQ(second.rung_ns, std::vector<std::uint64_t>{2'000});
}

TEST(VirtualWorld, WhoIsHeldBackGoesOnWhenHeMay) {
  Rig rig;
  Alarm alarm{{1'000}};
  rig.add(alarm);
  rig.world.set_hold_back([](VirtualWorld::ActorKind kind, std::uint64_t now_ns) {
    EXPECT_EQ(kind, VirtualWorld::ActorKind::host);
    return now_ns < 9'000 ? std::uint64_t{9'000} : now_ns;
  });
  EXPECT_TRUE(rig.world.step(50)) << "somebody may go on later";
  EXPECT_EQ(rig.clock.now_ns(), 9'000u);
  EXPECT_TRUE(rig.world.step(50));
  EXPECT_EQ(alarm.rung_ns, std::vector<std::uint64_t>{9'000});
}

TEST(VirtualWorld, WhoIsHeldBackIsToldOnceOfATimeThatIsAGap) {
  Rig rig;
  std::vector<std::uint64_t> taken;
  rig.world.add_actor([] { return true; }, {},
                      [&](std::uint64_t from_ns, std::uint64_t to_ns) {
                        taken.push_back(from_ns);
                        taken.push_back(to_ns);
                      });
  rig.world.add_actor([] { return true; });
  const auto until = [](std::uint64_t to_ns) {
    return [to_ns](VirtualWorld::ActorKind, std::uint64_t now_ns) { return std::max(to_ns, now_ns); };
  };
  rig.world.set_hold_back(until(9'000), 5'000);
  rig.world.poll();
  rig.world.poll();
  EXPECT_EQ(taken, (std::vector<std::uint64_t>{1'000, 9'000}));
  rig.world.set_hold_back(until(5'999), 5'000);
  rig.world.poll();
  EXPECT_EQ(taken.size(), 2u) << "too short for a gap";
}

TEST(VirtualWorld, CallsComeWhenTheyAreDue) {
  Rig rig;
  std::vector<std::uint64_t> called_ns;
  for (const std::uint64_t at_ns : {3'000u, 2'000u})
    rig.world.call_at(at_ns, [&] { called_ns.push_back(rig.clock.now_ns()); });
  EXPECT_TRUE(rig.world.step(50)) << "somebody is to be called";
  EXPECT_EQ(rig.clock.now_ns(), 2'000u);
  rig.world.run_to(2'500);
  EXPECT_EQ(called_ns, std::vector<std::uint64_t>{2'000});
  rig.world.forget_calls();
  rig.world.run_to(4'000);
  EXPECT_EQ(called_ns.size(), 1u);
}

// The order of turns in so many rounds.
std::string turns(std::uint64_t seed, unsigned actors) {
  Clock clock = Clock::virtual_from(1);
  VirtualWorld world(clock);
  std::string order;
  for (unsigned actor = 0; actor < actors; ++actor) {
    world.add_actor([&order, actor] {
      order += static_cast<char>('a' + actor);
      return true;
    });
  }
  if (seed != 0) world.shuffle(seed);
  for (int round = 0; round < 20; ++round) world.poll();
  return order;
}

TEST(VirtualWorld, TheSeedDrawsTheOrder) {
  for (const unsigned actors : {2u, 5u}) {
    EXPECT_EQ(turns(0, actors).substr(0, actors), turns(0, actors).substr(actors, actors)) << "in which they came";
    EXPECT_EQ(turns(7, actors), turns(7, actors));
    EXPECT_NE(turns(7, actors), turns(8, actors));
    EXPECT_NE(turns(7, actors), turns(0, actors));
  }
}

}  // namespace
}  // namespace flashmob::engine
