// The real protocols hold where memory is as weak as the C++ and CUDA models allow.
#include <gtest/gtest.h>

#include "weak/protocols.h"

namespace flashmob::gpu::test {
namespace {

class WeakMemoryProtocols : public testing::TestWithParam<Protocol> {};

TEST_P(WeakMemoryProtocols, NoSeedBreaksThem) {
  const WithWeakMemory weak;
  const std::uint64_t only = from_environment("FLASHMOB_WEAK_SEED", 0);
  const std::uint64_t last = only != 0 ? only : from_environment("FLASHMOB_WEAK_SEEDS", GetParam().seeds / 2);
  unsigned failures = 0;
  for (std::uint64_t seed = only != 0 ? only : 1; seed <= last && failures < 3; ++seed) {
    const std::string fault = GetParam().run(seed);
    EXPECT_EQ(fault, "") << "seed " << seed;
    failures += !fault.empty();
  }
}

INSTANTIATE_TEST_SUITE_P(All, WeakMemoryProtocols, testing::ValuesIn(protocols()),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace flashmob::gpu::test
