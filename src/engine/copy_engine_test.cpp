// Every kind of copy that this CPU has: right bytes, no byte more, every token once.
#include "engine/copy_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace flashmob::engine {
namespace {

constexpr std::size_t kMost = 8192;
constexpr std::size_t kMargin = 192;

std::vector<std::string> kinds() {
  std::vector<std::string> usable;
  for (const char* kind : {"auto", "memcpy", "avx2", "avx512", "nontemporal"}) {
    try {
      copy_function(kind, false);
      usable.emplace_back(kind);
    } catch (const ConfigError&) {
      // Not on this CPU.
    }
  }
  return usable;
}

class CopyEngineTest : public testing::TestWithParam<std::string> {
 protected:
  CopyEngineTest() : from_(kMost + 2 * kMargin), to_(kMost + 2 * kMargin), engine_(make_cpu_copy_engine(GetParam())) {
    Rng rng(5);
    for (std::byte& byte : from_) byte = static_cast<std::byte>(rng.next());
  }

  // Copies `bytes` with the ends displaced and looks at every byte around it.
  void copy_and_check(std::size_t to_offset, std::size_t from_offset, std::size_t bytes, bool streaming) {
    std::fill(to_.begin(), to_.end(), std::byte{0xEE});
    const Copy copy{to_.data() + kMargin / 2 + to_offset, from_.data() + from_offset, static_cast<std::uint32_t>(bytes),
                    static_cast<std::uint32_t>(bytes)};
    engine_->submit({&copy, 1}, 1, streaming);
    std::uint32_t token = 0;
    ASSERT_EQ(engine_->poll({&token, 1}), 1u);
    ASSERT_EQ(token, bytes);
    ASSERT_EQ(std::memcmp(copy.to, copy.from, bytes), 0) << bytes << " to +" << to_offset << " from +" << from_offset;
    const auto untouched = [](std::byte byte) { return byte == std::byte{0xEE}; };
    ASSERT_TRUE(std::all_of(to_.data(), copy.to, untouched)) << bytes;
    ASSERT_TRUE(std::all_of(copy.to + bytes, to_.data() + to_.size(), untouched)) << bytes;
  }

  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
  std::unique_ptr<CopyEngine> engine_;
};

TEST_P(CopyEngineTest, EverySizeAtEveryKindOfAlignment) {
  for (const bool streaming : {false, true}) {
    for (std::size_t bytes = 1; bytes <= kMost; bytes += bytes < 700 ? 1 : 61) {
      copy_and_check(bytes % 67, bytes * 7 % 65, bytes, streaming);
      if (HasFatalFailure()) return;
    }
    for (const std::size_t bytes : {std::size_t{512}, std::size_t{4096}, kMost - 1, kMost}) {
      for (std::size_t offset = 0; offset < 65; ++offset) {
        copy_and_check(offset, 64 - offset, bytes, streaming);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CopyEngineTest, OnlyTheFirstCountAreCopied) {
  std::vector<Copy> pending;
  for (std::uint32_t i = 0; i < 15; ++i)
    pending.push_back({to_.data() + 512 * i, from_.data() + 512 * i, 512, 100 + i});
  engine_->submit(pending, 3, false);
  std::uint32_t tokens[15] = {};
  EXPECT_EQ(engine_->poll(tokens), 3u);
  EXPECT_EQ(tokens[2], 102u);
  EXPECT_EQ(std::memcmp(to_.data(), from_.data(), 3 * 512), 0);
  EXPECT_EQ(to_[3 * 512], std::byte{0});
  EXPECT_EQ(engine_->poll(tokens), 0u);
}

TEST_P(CopyEngineTest, TokensComeOnceInOrderHoweverTheyAreAskedFor) {
  Rng rng(9);
  std::uint32_t next = 0;
  std::uint32_t expected = 0;
  for (int round = 0; round < 500; ++round) {
    Copy copies[64];
    const std::size_t count = 1 + rng.below(64);
    for (std::size_t i = 0; i < count; ++i) copies[i] = {to_.data(), from_.data(), 8, next++};
    engine_->submit({copies, count}, count, round % 2 != 0);
    while (expected != next) {
      std::uint32_t tokens[10];
      const std::size_t asked = 1 + rng.below(10);
      const std::size_t taken = engine_->poll({tokens, asked});
      ASSERT_GE(taken, 1u);
      ASSERT_LE(taken, asked);
      for (std::size_t i = 0; i < taken; ++i) ASSERT_EQ(tokens[i], expected++);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CopyEngineTest, testing::ValuesIn(kinds()),
                         [](const auto& tested) { return tested.param; });

TEST(CopyEngine, NamesWhatItIs) {
  EXPECT_NE(make_cpu_copy_engine("memcpy")->describe().find("memcpy"), std::string::npos);
}

TEST(CopyEngine, UnknownKindsAreConfigurationErrors) {
  for (const char* kind : {"", "sse", "AVX2", "gpu"}) {
    try {
      make_cpu_copy_engine(kind);
      ADD_FAILURE() << kind;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("engine.copy"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("memcpy"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace flashmob::engine
