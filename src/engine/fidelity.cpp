#include "engine/fidelity.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace flashmob::engine {
namespace {

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%", share * 100);
  return text;
}

// Who held the run back when it fell short.
std::string bottleneck(const FidelityEvidence& evidence) {
  if (evidence.late_by_copy_share > 0.01) return "copy-bound";
  if (evidence.idle_poll_share > 0.5) return "host-bound";
  return "frontend late";
}

}  // namespace

Verdict judge(const FidelityConfig& rule, const FidelityEvidence& evidence) {
  if (!evidence.has_model) return {"NONE", "no timing model: as fast as this machine can"};
  if (evidence.gap_share > rule.max_gap_share)
    return {"INVALID", "preempted: host gaps took " + percent(evidence.gap_share) + " of the run"};
  const double limit_ns =
      std::max(static_cast<double>(rule.max_lateness_p99_ns), rule.max_lateness_share * evidence.mean_target_ns);
  if (static_cast<double>(evidence.lateness_p99_ns) > limit_ns) {
    const std::string who = evidence.late_by_copy_share > 0.01 ? "copy-bound" : "frontend late";
    return {"INVALID", who + ": p99 lateness " + std::to_string(evidence.lateness_p99_ns) + " ns, limit " +
                           std::to_string(static_cast<std::uint64_t>(limit_ns)) + " ns"};
  }
  const double error = evidence.model_iops > 0 ? evidence.achieved_iops / evidence.model_iops - 1 : -1;
  if (std::fabs(error) > rule.max_iops_error) {
    const std::string who = error > 0 ? "faster than the model" : bottleneck(evidence);
    return {"INVALID", who + ": IOPS differ from the model's by " + percent(error)};
  }
  return {"VALID", ""};
}

}  // namespace flashmob::engine
