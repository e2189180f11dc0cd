// The store against a plain map: any keys, any lengths, full and nearly full, and hostile ones.
#include "command_set/kv/store.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace flashmob::command_set::kv {
namespace {

using nvme::Status;

constexpr std::array<std::uint64_t, 2> kSecret = {0x0706050403020100, 0x0F0E0D0C0B0A0908};
constexpr std::uint32_t kGranule = 64;

Key key(const std::string& text) {
  std::array<std::uint8_t, Key::kMaxBytes> bytes{};
  std::copy(text.begin(), text.end(), bytes.begin());
  return Key::of(bytes, static_cast<std::uint8_t>(text.size()));
}

std::string text_of(const Key& key) { return {key.bytes.begin(), key.bytes.begin() + key.length}; }

Limits limits(std::uint32_t granules, std::uint32_t max_keys = 1000, std::uint32_t max_value_bytes = 4 * kGranule) {
  return {.size_bytes = std::uint64_t{granules} * kGranule,
          .granule_bytes = kGranule,
          .max_value_bytes = max_value_bytes,
          .max_keys = max_keys};
}

// Store without data: what a command does, in one step.
Status put(Store& store, const Key& key, std::uint32_t bytes, Store::If condition = Store::If::any) {
  if (const Status status = store.check(key, bytes, condition); status != Status::success) return status;
  const auto value = store.reserve(bytes);
  if (!value) return Status::capacity_exceeded;
  std::optional<Value> replaced;
  const Status status = store.put(key, *value, condition, replaced);
  if (status != Status::success) store.release(*value);
  if (replaced) store.release(*replaced);
  return status;
}

bool erase(Store& store, const Key& key) {
  const auto value = store.erase(key);
  if (value) store.release(*value);
  return value.has_value();
}

std::vector<std::string> listed(const Store& store, const std::string& from = "", std::size_t most = SIZE_MAX) {
  std::vector<std::string> all;
  store.for_each_from(key(from), [&](const Key& found) {
    all.push_back(text_of(found));
    return all.size() < most;
  });
  return all;
}

std::vector<std::uint32_t> granules_of(const Store& store, const Value& value) {
  std::vector<std::uint32_t> all;
  store.granules().for_each_run(value.last, [&](std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) all.push_back(first + i);
    return true;
  });
  return all;
}

TEST(KvKey, OrderIsThatOfBytesThenOfLengths) {
  const std::vector<std::string> sorted = {std::string("\0", 1),
                                           std::string("\0\0", 2),
                                           "a",
                                           std::string("a\0", 2),
                                           std::string("a\0b", 3),
                                           "aa",
                                           "b",
                                           "\xFF",
                                           std::string(16, '\xFF')};
  for (std::size_t i = 0; i < sorted.size(); ++i)
    for (std::size_t j = 0; j < sorted.size(); ++j) EXPECT_EQ(key(sorted[i]) < key(sorted[j]), i < j) << i << " " << j;
}

TEST(KvKey, WhatLiesBeyondTheLengthDoesNotCount) {
  std::array<std::uint8_t, Key::kMaxBytes> bytes;
  bytes.fill(7);
  EXPECT_EQ(Key::of(bytes, 1), key("\7"));
}

TEST(KvKey, DifferenceIsTheFirstBit) {
  EXPECT_EQ(key("a").difference(key("a")), Key::kBits);
  EXPECT_EQ(key("\x80").difference(key(std::string("\0", 1))), 0u);
  EXPECT_EQ(key("a").difference(key("c")), 6u);
  EXPECT_EQ(key("a").difference(key(std::string("a\0", 2))), 134u);
  EXPECT_TRUE(key("c").bit(6));
  EXPECT_FALSE(key("a").bit(6));
}

// The function's authors' own vectors are of SipHash-2-4; what matters here is that all of key, length and secret
// count.
TEST(KvKeyHash, DependsOnEverything) {
  std::set<std::uint64_t> seen;
  for (const std::uint64_t word : {0ull, 1ull, 2ull}) {
    const KeyHash hash({word, kSecret[1]});
    for (const std::string& text : {std::string("a"), std::string("a\0", 2), std::string("b"), std::string(16, 'a')})
      seen.insert(hash(key(text)));
  }
  EXPECT_EQ(seen.size(), 12u);
}

bool is_one_run(const Granules& granules, std::uint32_t last, std::uint32_t taken) {
  return granules.for_each_run(last, [taken](std::uint32_t, std::uint32_t count) { return count == taken; });
}

TEST(KvGranules, FreedOnesAreHandedOutAgainWhereverTheyLie) {
  Granules granules(10);
  const auto a = granules.take(3), b = granules.take(4), c = granules.take(3);
  ASSERT_TRUE(a && b && c);
  EXPECT_FALSE(granules.take(1));
  EXPECT_TRUE(is_one_run(granules, *a, 3));
  granules.give_back({*a, 3});
  granules.give_back({*c, 3});
  EXPECT_EQ(granules.free(), 6u);
  const auto d = granules.take(6);
  ASSERT_TRUE(d);
  EXPECT_FALSE(is_one_run(granules, *d, 6));
  std::set<std::uint32_t> places;
  granules.for_each_run(*d, [&](std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) EXPECT_TRUE(places.insert(first + i).second);
    return true;
  });
  EXPECT_EQ(places, (std::set<std::uint32_t>{0, 1, 2, 7, 8, 9}));
  EXPECT_FALSE(granules.take(0)) << "nothing is no ring";
}

TEST(KvGranules, AValueOfOneSizeStaysInOnePlace) {
  Granules granules(64);
  std::vector<std::uint32_t> held;
  for (int i = 0; i < 16; ++i) held.push_back(*granules.take(4));
  Rng rng(3);
  for (int i = 0; i < 1000; ++i) {
    std::uint32_t& one = held[rng.below(held.size())];
    granules.give_back({one, 4});
    one = *granules.take(4);
    EXPECT_TRUE(is_one_run(granules, one, 4));
  }
}

using Range = std::pair<std::uint32_t, std::uint32_t>;

std::vector<Range> swept(Granules& granules, std::uint32_t most) {
  std::vector<Range> empty;
  granules.sweep(most, [&](std::uint32_t first, std::uint32_t count) { empty.emplace_back(first, count); });
  return empty;
}

TEST(KvGranules, AGroupIsEmptyOnceAllOfItIsFree) {
  Granules granules(16, 2);
  std::array<std::uint32_t, 8> pairs{};
  for (std::uint32_t& pair : pairs) pair = *granules.take(2);
  granules.give_back({pairs[0], 2});
  EXPECT_EQ(swept(granules, 100), std::vector<Range>{}) << "the other half of its group is in use";
  granules.give_back({pairs[2], 2});
  granules.give_back({pairs[1], 2});
  granules.give_back({pairs[3], 2});
  EXPECT_EQ(granules.unswept(), 6u);
  EXPECT_EQ(swept(granules, 3), std::vector<Range>{}) << "no more is looked at than is asked for";
  EXPECT_EQ(swept(granules, 100), (std::vector<Range>{{0, 8}})) << "two neighbours are told together";
  EXPECT_EQ(granules.unswept(), 0u);
}

TEST(KvGranules, WhatIsTakenAgainIsNotEmpty) {
  Granules granules(8, 1);
  const std::uint32_t a = *granules.take(4), b = *granules.take(4);
  granules.give_back({a, 4});
  EXPECT_EQ(*granules.take(2), 1u) << "the first of those that were freed, not looked at yet";
  EXPECT_EQ(swept(granules, 100), (std::vector<Range>{{2, 2}}));
  granules.give_back({1, 2});
  granules.give_back({b, 4});
  EXPECT_EQ(*granules.take(3), 0u) << "two that were looked at, and one that was not";
  EXPECT_EQ(swept(granules, 100), (std::vector<Range>{{4, 4}}));
}

TEST(KvGranules, APromiseIsKept) {
  Granules granules(4);
  ASSERT_TRUE(granules.promise(3));
  EXPECT_EQ(granules.free(), 1u);
  EXPECT_FALSE(granules.take(2));
  Granules::Ring ring;
  granules.take(1, ring);
  granules.take(1, ring);
  EXPECT_TRUE(is_one_run(granules, ring.last, 2));
  granules.take_back_promise(1);
  EXPECT_EQ(granules.free(), 2u);
  granules.give_back(ring);
  EXPECT_EQ(granules.free(), 4u);
}

// The groups that are told of are those that a plain count finds.
TEST(KvGranules, SweepingEqualsAPlainCount) {
  constexpr std::uint32_t kCount = 60, kShift = 3;
  Granules granules(kCount, kShift);
  std::vector<Granules::Ring> held;
  std::vector<int> in_use(kCount, 0);
  std::vector<bool> told(kCount >> kShift, true);  // nothing was written there
  Rng rng(11);
  for (int i = 0; i < 100'000; ++i) {
    const auto wanted = static_cast<std::uint32_t>(1 + rng.below(6));
    if (rng.below(2) == 0 && granules.promise(wanted)) {
      Granules::Ring ring;
      for (std::uint32_t done = 0; done < wanted; ++done) granules.take(1, ring);
      granules.for_each_run(ring.last, [&](std::uint32_t first, std::uint32_t count) {
        for (std::uint32_t g = first; g < first + count; ++g) {
          EXPECT_EQ(in_use[g]++, 0);
          if (g >> kShift < told.size()) told[g >> kShift] = false;
        }
        return true;
      });
      held.push_back(ring);
    } else if (!held.empty()) {
      std::swap(held[rng.below(held.size())], held.back());
      granules.for_each_run(held.back().last, [&](std::uint32_t first, std::uint32_t count) {
        for (std::uint32_t g = first; g < first + count; ++g) in_use[g] = 0;
        return true;
      });
      granules.give_back(held.back());
      held.pop_back();
    }
    granules.sweep(static_cast<std::uint32_t>(rng.below(4)), [&](std::uint32_t first, std::uint32_t count) {
      for (std::uint32_t g = first; g < first + count; ++g) {
        EXPECT_EQ(in_use[g], 0) << g;
        if (g >> kShift < told.size()) told[g >> kShift] = true;
      }
    });
    if (i % 100 != 0) continue;
    granules.sweep(kCount, [&](std::uint32_t first, std::uint32_t count) {
      for (std::uint32_t g = first; g < first + count; ++g)
        if (g >> kShift < told.size()) told[g >> kShift] = true;
    });
    for (std::uint32_t group = 0; group < told.size(); ++group) {
      int used = 0;
      for (std::uint32_t g = group << kShift; g < (group + 1) << kShift; ++g) used += in_use[g];
      ASSERT_EQ(told[group], used == 0) << group;
    }
  }
}

TEST(KvStore, FindsWhatWasPut) {
  Store store(limits(100), kSecret);
  EXPECT_EQ(put(store, key("a"), 10), Status::success);
  EXPECT_EQ(put(store, key("b"), 0), Status::success);
  ASSERT_NE(store.find(key("a")), nullptr);
  EXPECT_EQ(store.find(key("a"))->bytes, 10u);
  EXPECT_EQ(store.find(key("b"))->bytes, 0u);
  EXPECT_EQ(store.find(key("c")), nullptr);
  EXPECT_EQ(store.find(key(std::string("a\0", 2))), nullptr) << "another key";
  EXPECT_EQ(store.used_bytes(), 2 * kGranule) << "an empty value has a granule, for its key";
  EXPECT_TRUE(erase(store, key("a")));
  EXPECT_FALSE(erase(store, key("a")));
  EXPECT_EQ(store.find(key("a")), nullptr);
  EXPECT_EQ(store.used_bytes(), kGranule);
}

TEST(KvStore, Conditions) {
  using If = Store::If;
  Store store(limits(100), kSecret);
  EXPECT_EQ(put(store, key("a"), 1, If::exists), Status::key_does_not_exist);
  EXPECT_EQ(put(store, key("a"), 1, If::never), Status::key_does_not_exist);
  EXPECT_EQ(put(store, key("a"), 1, If::is_new), Status::success);
  EXPECT_EQ(put(store, key("a"), 2, If::is_new), Status::key_exists);
  EXPECT_EQ(put(store, key("a"), 2, If::never), Status::key_exists);
  EXPECT_EQ(put(store, key("a"), 3, If::exists), Status::success);
  EXPECT_EQ(store.find(key("a"))->bytes, 3u);
}

TEST(KvStore, AFullOneTakesWhatReplacesAndNothingMore) {
  Store store(limits(12, 1000, 4 * kGranule), kSecret);  // 8 granules, and 4 for what replaces
  EXPECT_EQ(store.limits().capacity(), 8u);
  EXPECT_EQ(put(store, key("a"), 4 * kGranule), Status::success);
  EXPECT_EQ(put(store, key("b"), 3 * kGranule + 1), Status::success);
  EXPECT_EQ(put(store, key("c"), 0), Status::capacity_exceeded);
  EXPECT_EQ(put(store, key("b"), 4 * kGranule), Status::success);
  EXPECT_EQ(put(store, key("a"), 1), Status::success);
  EXPECT_EQ(put(store, key("c"), 4 * kGranule), Status::capacity_exceeded);
  EXPECT_EQ(put(store, key("c"), 3 * kGranule), Status::success);
  EXPECT_EQ(store.used_bytes(), 8 * kGranule);
}

TEST(KvStore, NumberOfKeysIsLimited) {
  Store store(limits(100, 2), kSecret);
  EXPECT_EQ(put(store, key("a"), 1), Status::success);
  EXPECT_EQ(put(store, key("b"), 1), Status::success);
  EXPECT_EQ(put(store, key("c"), 1), Status::capacity_exceeded);
  EXPECT_EQ(put(store, key("b"), 2), Status::success);
  EXPECT_TRUE(erase(store, key("a")));
  EXPECT_EQ(put(store, key("c"), 1), Status::success);
}

TEST(KvStore, ListsFromAnyKeyOn) {
  Store store(limits(100), kSecret);
  for (const char* text : {"user:2", "zebra", "user:10", "a", "user:1"}) put(store, key(text), 1);
  EXPECT_EQ(listed(store), (std::vector<std::string>{"a", "user:1", "user:10", "user:2", "zebra"}));
  EXPECT_EQ(listed(store, "user:"), (std::vector<std::string>{"user:1", "user:10", "user:2", "zebra"}));
  EXPECT_EQ(listed(store, "user:10"), (std::vector<std::string>{"user:10", "user:2", "zebra"}));
  EXPECT_EQ(listed(store, "user:3", 1), (std::vector<std::string>{"zebra"}));
  EXPECT_TRUE(listed(store, "zebras").empty());
  store.clear();
  EXPECT_TRUE(listed(store).empty());
}

// Few letters, so that keys begin alike, are found again, and collide in their first bits.
std::string any_key(Rng& rng) {
  std::string text(1 + rng.below(16), '\0');
  for (char& c : text) c = static_cast<char>(rng.below(3) * 127);
  return text;
}

struct Model {
  std::map<std::string, std::uint32_t> values;
  std::uint32_t used = 0;
};

void expect_equal(const Store& store, const Model& model) {
  ASSERT_EQ(store.keys(), model.values.size());
  ASSERT_EQ(store.used_bytes(), std::uint64_t{model.used} * kGranule);
  std::set<std::uint32_t> places;
  for (const auto& [text, bytes] : model.values) {
    const Value* const value = store.find(key(text));
    ASSERT_NE(value, nullptr);
    ASSERT_EQ(value->bytes, bytes);
    const auto granules = granules_of(store, *value);
    ASSERT_EQ(granules.size(), store.limits().granules_of(bytes));
    for (const std::uint32_t granule : granules) ASSERT_TRUE(places.insert(granule).second) << "two values in one";
  }
  const auto all = listed(store);
  ASSERT_EQ(all.size(), model.values.size());
  ASSERT_TRUE(std::equal(all.begin(), all.end(), model.values.begin(),
                         [](const std::string& text, const auto& entry) { return text == entry.first; }));
}

void step(Store& store, Model& model, Rng& rng, unsigned store_percent) {
  const std::string text = any_key(rng);
  const auto at = model.values.find(text);
  const bool is_there = at != model.values.end();
  if (rng.below(100) >= store_percent) {
    ASSERT_EQ(erase(store, key(text)), is_there);
    if (is_there) {
      model.used -= store.limits().granules_of(at->second);
      model.values.erase(at);
    }
    return;
  }
  const auto bytes = static_cast<std::uint32_t>(rng.below(4 * kGranule + 1));
  const auto condition = static_cast<Store::If>(rng.below(4));
  const std::uint32_t after =
      model.used - (is_there ? store.limits().granules_of(at->second) : 0) + store.limits().granules_of(bytes);
  Status wanted = Status::success;
  if (condition != Store::If::any && condition != (is_there ? Store::If::exists : Store::If::is_new)) {
    wanted = is_there ? Status::key_exists : Status::key_does_not_exist;
  } else if (after > store.limits().capacity() || (!is_there && model.values.size() == store.limits().max_keys)) {
    wanted = Status::capacity_exceeded;
  }
  ASSERT_EQ(put(store, key(text), bytes, condition), wanted);
  if (wanted != Status::success) return;
  model.used = after;
  model.values[text] = bytes;
}

// Small and full, small with room, limited by its keys, and large enough for all.
TEST(KvStore, EqualsAMap) {
  Rng rng(11);
  const std::array<Limits, 4> shapes = {limits(24), limits(400), limits(400, 50), limits(20'000, 10'000)};
  for (int round = 0; round < 40; ++round) {
    Store store(shapes[static_cast<std::size_t>(round) % shapes.size()], kSecret);
    Model model;
    for (int i = 0; i < 10'000; ++i) {
      ASSERT_NO_FATAL_FAILURE(step(store, model, rng, i < 6000 ? 80 : 40)) << round << " " << i;
      if (i % 500 != 0) continue;
      ASSERT_NO_FATAL_FAILURE(expect_equal(store, model)) << round << " " << i;
    }
    ASSERT_NO_FATAL_FAILURE(expect_equal(store, model)) << round;
    const std::string from = any_key(rng);
    const auto all = listed(store, from);
    EXPECT_EQ(all.size(), static_cast<std::size_t>(std::distance(model.values.lower_bound(from), model.values.end())));
  }
}

// Keys that differ in one bit each, as deep as the tree can be: every way stays within the bits of a key.
TEST(KvStore, KeysThatDifferByOneBitEach) {
  Store store(limits(1000), kSecret);
  std::array<std::uint8_t, Key::kMaxBytes> bytes{};
  for (unsigned bit = 0; bit < 8 * Key::kMaxBytes; ++bit) {
    bytes.fill(0);
    bytes[bit / 8] = static_cast<std::uint8_t>(0x80 >> (bit % 8));
    ASSERT_EQ(put(store, Key::of(bytes, 16), 1), Status::success);
  }
  bytes.fill(0);
  for (std::uint8_t length = 1; length <= 16; ++length)
    ASSERT_EQ(put(store, Key::of(bytes, length), 1), Status::success);
  EXPECT_EQ(listed(store).size(), 8 * Key::kMaxBytes + 16);
  EXPECT_EQ(listed(store).front().size(), 1u);
}

}  // namespace
}  // namespace flashmob::command_set::kv
