#include "engine/stats.h"

#include <algorithm>

namespace flashmob::engine {

void FidelityStats::merge(const FidelityStats& other) {
  target_ns.merge(other.target_ns);
  processing_ns.merge(other.processing_ns);
  lateness_ns.merge(other.lateness_ns);
  lateness_gap_ns.merge(other.lateness_gap_ns);
  completions += other.completions;
  target_sum_ns += other.target_sum_ns;
  lateness_sum_ns += other.lateness_sum_ns;
  lateness_max_ns = std::max(lateness_max_ns, other.lateness_max_ns);
  late_by_copy += other.late_by_copy;
  max_poll_gap_ns = std::max(max_poll_gap_ns, other.max_poll_gap_ns);
  busy_polls += other.busy_polls;
  idle_polls += other.idle_polls;
  gap_count += other.gap_count;
  // Threads lose time at the same moments and at different ones; the larger share is what the verdict needs.
  gap_total_ns = std::max(gap_total_ns, other.gap_total_ns);
  gap_longest_ns = std::max(gap_longest_ns, other.gap_longest_ns);
}

}  // namespace flashmob::engine
