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
    CopyRun run{{&copy, 1}};
    ASSERT_TRUE(engine_->submit(run, 1, streaming));
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
  CopyRun run{pending};
  EXPECT_TRUE(engine_->submit(run, 3, false));
  EXPECT_EQ(std::memcmp(to_.data(), from_.data(), 3 * 512), 0);
  EXPECT_EQ(to_[3 * 512], std::byte{0});
  std::uint32_t token = 0;
  EXPECT_EQ(engine_->poll({&token, 1}), 0u) << "they were made at once";
}

// As a worker's queue does: copies come in bursts and are made in slices, some of them asked for before.
TEST_P(CopyEngineTest, ARunIsAskedForAheadAndMadeInOrder) {
  Rng rng(9);
  for (const std::uint32_t bytes : {8u, 512u, 4096u}) {
    std::vector<Copy> waiting;
    std::size_t asked = 0;
    std::uint32_t next = 0, made = 0;
    while (made < 3'000) {
      for (std::uint64_t burst = rng.below(200); burst > 0; --burst, ++next)
        waiting.push_back({to_.data() + next % 7, from_.data() + next % (kMost - bytes), bytes, next});
      if (waiting.empty()) continue;
      CopyRun run{waiting, asked};
      if (rng.below(2) == 0) engine_->ask(run);
      ASSERT_GE(run.asked, asked);
      const std::size_t count = 1 + rng.below(std::min<std::size_t>(waiting.size(), 128));
      ASSERT_TRUE(engine_->submit(run, count, made % 2 != 0));
      ASSERT_GE(run.asked, std::min(waiting.size(), count)) << "what is made was asked for";
      ASSERT_LE(run.asked, waiting.size());
      const Copy& last = waiting[count - 1];
      ASSERT_EQ(std::memcmp(last.to, last.from, bytes), 0) << "copies to one place end with the last one";
      waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(count));
      asked = run.asked - count;
      made += static_cast<std::uint32_t>(count);
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
