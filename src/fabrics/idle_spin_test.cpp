#include "fabrics/idle_spin.h"

#include <gtest/gtest.h>

namespace flashmob::fabrics {
namespace {

unsigned usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return static_cast<unsigned>(CPU_COUNT(&set));
}

TEST(IdleSpin, SpinsOnlyWhereACoreIsLeft) {
  const unsigned cores = usable_cores();
  EXPECT_GT(idle_spin_ns(kIdleSpinAuto, cores - 1), 0u);
  EXPECT_EQ(idle_spin_ns(kIdleSpinAuto, cores), 0u);
  EXPECT_EQ(idle_spin_ns(kIdleSpinAuto, cores + 5), 0u);
}

TEST(IdleSpin, CountsTheCoresThatThisThreadMayUse) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(idle_spin_ns(kIdleSpinAuto, 1), 0u);
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(IdleSpin, WhatIsToldHolds) {
  EXPECT_EQ(idle_spin_ns(0, 0), 0u);
  EXPECT_EQ(idle_spin_ns(7, 1000), 7u);
}

}  // namespace
}  // namespace flashmob::fabrics
