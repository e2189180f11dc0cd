// The verdict at its thresholds: valid at each limit, invalid just beyond, with the cause that explains it.
#include "engine/fidelity.h"

#include <gtest/gtest.h>

namespace flashmob::engine {
namespace {

// A run that is exactly true to its model, under limits that binary fractions hit exactly.
struct Fidelity : testing::Test {
  Fidelity() {
    rule.max_iops_error = 0.0625;
    rule.max_lateness_p99_ns = 2'000;
    rule.max_lateness_share = 0.0625;
    rule.max_gap_share = 0.03;
    evidence.achieved_iops = evidence.model_iops = 1e6;
    evidence.mean_target_ns = 10'000;
  }
  void expect_valid() const {
    const Verdict verdict = judge(rule, evidence);
    EXPECT_EQ(verdict.verdict, "VALID") << verdict.cause;
    EXPECT_EQ(verdict.cause, "");
  }
  void expect_invalid(const std::string& cause) const {
    const Verdict verdict = judge(rule, evidence);
    EXPECT_EQ(verdict.verdict, "INVALID");
    EXPECT_EQ(verdict.cause.rfind(cause, 0), 0u) << verdict.cause;
  }
  FidelityConfig rule;
  FidelityEvidence evidence;
};

TEST_F(Fidelity, ATrueRunIsValid) { expect_valid(); }

TEST_F(Fidelity, WithoutAModelThereIsNoVerdict) {
  evidence.has_model = false;
  evidence.gap_share = 1;
  evidence.lateness_p99_ns = 1'000'000;
  const Verdict verdict = judge(rule, evidence);
  EXPECT_EQ(verdict.verdict, "NONE");
  EXPECT_FALSE(verdict.cause.empty());
}

TEST_F(Fidelity, Gaps) {
  evidence.gap_share = 0.03;
  expect_valid();
  evidence.gap_share = 0.0301;
  expect_invalid("preempted");
  // Whatever else went wrong, a run that lost the processor says so first.
  evidence.lateness_p99_ns = 1'000'000;
  evidence.achieved_iops = 1;
  evidence.late_by_copy_share = 1;
  expect_invalid("preempted");
}

TEST_F(Fidelity, LatenessAgainstTheFixedLimit) {
  evidence.lateness_p99_ns = 2'000;
  expect_valid();
  evidence.lateness_p99_ns = 2'001;
  expect_invalid("frontend late: p99 lateness 2001 ns, limit 2000 ns");
}

TEST_F(Fidelity, LatenessAgainstTheShareOfTheTarget) {
  evidence.mean_target_ns = 64'000;
  evidence.lateness_p99_ns = 4'000;
  expect_valid();
  evidence.lateness_p99_ns = 4'001;
  expect_invalid("frontend late");
}

TEST_F(Fidelity, LatenessByCopying) {
  evidence.lateness_p99_ns = 2'001;
  evidence.late_by_copy_share = 0.01;
  expect_invalid("frontend late");
  evidence.late_by_copy_share = 0.011;
  expect_invalid("copy-bound");
}

TEST_F(Fidelity, TooSlow) {
  evidence.achieved_iops = 0.9375e6;
  expect_valid();
  evidence.achieved_iops = 0.9374e6;
  expect_invalid("frontend late");
  evidence.idle_poll_share = 0.5;
  expect_invalid("frontend late");
  evidence.idle_poll_share = 0.51;
  expect_invalid("host-bound");
  evidence.late_by_copy_share = 0.02;
  expect_invalid("copy-bound");
}

TEST_F(Fidelity, TooFast) {
  evidence.achieved_iops = 1.0625e6;
  expect_valid();
  evidence.achieved_iops = 1.0626e6;
  evidence.idle_poll_share = 1;
  expect_invalid("faster than the model");
}

TEST_F(Fidelity, NothingAchievedIsNeverValid) {
  evidence.achieved_iops = 0;
  expect_invalid("frontend late: IOPS differ from the model's by -100.0 %");
  evidence.model_iops = 0;
  expect_invalid("frontend late");
}

}  // namespace
}  // namespace flashmob::engine
