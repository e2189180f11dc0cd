// The verdict: was this run true to its model? A pure function of what was measured (architecture, idea 2).
#pragma once

#include <cstdint>
#include <string>

#include "flashmob/config.h"

namespace flashmob::engine {

struct FidelityEvidence {
  bool has_model = true;            // false for timing.model = "none"
  double achieved_iops = 0;
  double model_iops = 0;            // what the model gives for this load
  double mean_target_ns = 0;
  std::uint64_t lateness_p99_ns = 0;  // of requests that no gap hit
  double gap_share = 0;             // host gaps' share of the run, device or driver, whichever is larger
  double late_by_copy_share = 0;    // requests that were due before their data had been moved
  double idle_poll_share = 0;       // dispatcher passes that found nothing to fetch
};

struct Verdict {
  std::string verdict;  // VALID, INVALID, NONE (no model)
  std::string cause;    // empty when VALID
};

Verdict judge(const FidelityConfig& rule, const FidelityEvidence& evidence);

}  // namespace flashmob::engine
