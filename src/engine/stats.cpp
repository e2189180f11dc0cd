#include "engine/stats.h"

#include <algorithm>

namespace flashmob::engine {

void FidelityStats::add(const FidelityStats& other) {
  target_ns.merge(other.target_ns);
  write_target_ns.merge(other.write_target_ns);
  processing_ns.merge(other.processing_ns);
  lateness_ns.merge(other.lateness_ns);
  lateness_gap_ns.merge(other.lateness_gap_ns);
  wait_ns.merge(other.wait_ns);
  door_ns.merge(other.door_ns);
  completions += other.completions;
  target_sum_ns += other.target_sum_ns;
  lateness_sum_ns += other.lateness_sum_ns;
  lateness_max_ns = std::max(lateness_max_ns, other.lateness_max_ns);
  late_by_copy += other.late_by_copy;
  wait_sum_ns += other.wait_sum_ns;
  woken += other.woken;
  asleep_sum_ns += other.asleep_sum_ns;
  fetches += other.fetches;
  left_behind += other.left_behind;
  max_poll_gap_ns = std::max(max_poll_gap_ns, other.max_poll_gap_ns);
  busy_polls += other.busy_polls;
  idle_polls += other.idle_polls;
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    units[unit].polled_ns += other.units[unit].polled_ns;
    units[unit].worked_ns += other.units[unit].worked_ns;
  }
}

double FidelityStats::busy_share() const {
  double most = 0;
  for (const UnitTime& unit : units)
    if (unit.polled_ns != 0)
      most = std::max(most, static_cast<double>(unit.worked_ns) / static_cast<double>(unit.polled_ns));
  return most;
}

void FidelityStats::join(const FidelityStats& beside) {
  add(beside);
  span_ns = std::max(span_ns, beside.span_ns);
  gaps.join(beside.gaps);
  long_work.join(beside.long_work);
}

void FidelityStats::append(const FidelityStats& later) {
  add(later);
  span_ns += later.span_ns;
  gaps.append(later.gaps);
  long_work.append(later.long_work);
}

}  // namespace flashmob::engine
