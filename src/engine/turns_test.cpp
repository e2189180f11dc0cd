#include "engine/turns.h"

#include <gtest/gtest.h>

#include <string>

namespace flashmob::engine {
namespace {

TEST(Turns, EachHasOneAfterTheOther) {
  char names[] = "abc";
  Turns<char> turns;
  EXPECT_TRUE(turns.empty());
  for (char* name = names; *name != 0; ++name) turns.join(*name);
  std::string order;
  for (int i = 0; i < 6; ++i) {
    order += turns.current();
    turns.pass(false);
  }
  EXPECT_EQ(order, "abcabc");
  for (int i = 0; i < 3; ++i) turns.pass(true);
  EXPECT_TRUE(turns.empty());
  turns.join(names[1]);
  EXPECT_EQ(turns.current(), 'b');
}

// A controller whose one command cannot go on is out of commands for a moment, and back with the same one. Two of them
// had all turns for themselves.
TEST(Turns, WhoLeavesAndJoinsAgainAtOnceComesLast) {
  char names[] = "abcd";
  Turns<char> turns;
  for (char* name = names; *name != 0; ++name) turns.join(*name);
  std::string order;
  for (int i = 0; i < 12; ++i) {
    char& who = turns.current();
    order += who;
    const bool is_stopped = who == 'b' || who == 'c';
    turns.pass(is_stopped);
    if (is_stopped) turns.join(who);
  }
  EXPECT_EQ(order, "abcdabcdabcd");
}

TEST(Turns, WhoIsRemovedIsLeftOut) {
  char names[] = "abcd";
  for (int gone = 0; gone < 4; ++gone) {
    Turns<char> turns;
    for (char* name = names; *name != 0; ++name) turns.join(*name);
    turns.pass(false);
    turns.pass(false);  // it is c's
    turns.remove(names[gone]);
    turns.remove(names[gone]);
    std::string order;
    for (int i = 0; i < 3; ++i) {
      order += turns.current();
      turns.pass(false);
    }
    std::string expected = "cdab";
    expected.erase(expected.find(names[gone]), 1);
    EXPECT_EQ(order, expected);
  }
}

}  // namespace
}  // namespace flashmob::engine
