// What tests of the verdict's rules share.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "engine/fidelity.h"

namespace flashmob::engine::test {

// A run that is exactly true to its model, under limits that binary fractions hit exactly.
struct FidelityTest : testing::Test {
  FidelityTest() {
    rule.max_iops_error = 0.0625;
    rule.max_error_ns = 1'000;
    rule.max_error_share = 0.0625;
    evidence.has_host = true;
    evidence.ios = 100'000;
    evidence.host = evidence.served = evidence.model = {1e6, 10'000, 12'000, 13'000};
    evidence.target.mean_ns = 10'000;
    evidence.target.p99_ns = 12'000;
    evidence.target.p99_least_ns = evidence.target.p99_most_ns = 12'000;
    evidence.target.max_ns = 13'000;
    evidence.busy_share = 0.9;
  }
  void expect(const std::string& verdict, const std::string& cause = "") const {
    const Verdict found = judge(rule, evidence);
    EXPECT_EQ(found.verdict, verdict) << found.cause;
    EXPECT_EQ(found.cause.rfind(cause, 0), 0u) << found.cause;
    EXPECT_EQ(found.cause.empty(), verdict == "VALID");
  }
  FidelityConfig rule;
  FidelityEvidence evidence;
};

}  // namespace flashmob::engine::test
