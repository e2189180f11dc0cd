#include "engine/fidelity_cause.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace flashmob::engine {
namespace {

// As kNotable: to a tail that the device made, of copies, of an engine that is away so much that copies are late for
// it, and of what an error bound comes to.
constexpr double kNotableToFew = 0.0002;
constexpr double kNotableCopies = 0.01;
constexpr double kCrowded = 0.05;
constexpr double kMostOfIt = 0.5;

}  // namespace

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%", share * 100);
  return text;
}

std::string microseconds(double ns) {
  char text[32];
  std::snprintf(text, sizeof(text), std::fabs(ns) < 100'000 ? "%.2f us" : "%.0f us", ns / 1000);
  return text;
}

std::string device_cause(const FidelityEvidence& e) {
  // Of this it is known what part of the waits it was, whatever else there was.
  if (e.woken_share > 0 && e.asleep_mean_ns >= kMostOfIt * (e.bound_mean_ns - e.door_mean_ns))
    return "asleep: units slept when " + percent(e.woken_share) + " of the requests came (engine.idle_spin_ns)";
  const bool is_crowded = e.engine_gap_share > kCrowded;  // then copies are late for want of a processor
  if (!is_crowded && e.late_by_copy_share > kNotableCopies && e.late_by_copy_share >= e.engine_gap_share)
    return "copy-bound";
  if (e.engine_gap_share > kNotable && e.engine_gap_share >= e.long_work_share)
    return "preempted: the machine took " + percent(e.engine_gap_share) + " of the engine's time";
  if (e.long_work_share > kNotable)
    return "long work of the engine's own took " + percent(e.long_work_share) + " of its time";
  if (e.late_by_copy_share > kNotableCopies) return "copy-bound";
  return "frontend late";
}

std::string door_cause(const FidelityEvidence& e) {
  return "NVMe/TCP door late (its thread had work " + percent(e.door_busy_share) + " of the time)";
}

namespace {

// What the device may have added comes to at most: to whoever waits for a slot, what it added to all who had it before.
double added_ns(const FidelityEvidence& e, bool is_tail) {
  const bool grows = e.rounds <= 1 && e.cycle_ns == 0 && e.slots_held_share > kMostlyHeld;
  const double before = (grows ? std::max(1.0, e.slot_turns) : e.rounds) - 1;
  return (is_tail ? e.bound_max_ns : e.bound_mean_ns) + before * e.bound_mean_ns;
}

// Injected faults, if they can have done most of what is off, and more than the device itself; else empty.
std::string fault_cause(const FidelityEvidence& e, const Complaint& what, double by_device_ns) {
  const FaultEffects& can = e.faults_can;
  const double by_faults_ns = what.tail_beyond_ns > 0 ? can.p99_ns : can.mean_ns + can.waits_ns;
  const bool is_time = by_faults_ns > 0 && by_faults_ns >= kMostOfIt * what.slower_by_ns && by_faults_ns > by_device_ns;
  const bool is_rate = can.iops_share > 0 && can.iops_share >= kMostOfIt * what.iops_share;
  if (what.iops_share > 0 ? !is_rate : !is_time) return "";
  return e.rounds > 1 || can.waits_ns > can.mean_ns ? "injected faults held slots that others waited for"
                                                    : "injected faults made requests late";
}

}  // namespace

std::string host_cause(const FidelityEvidence& e, const Complaint& what) {
  if (e.failed_share > kNotable) return percent(e.failed_share) + " of the commands failed";
  if (what.is_quicker) return "the load was another one than the model's";
  // What the device may have added is little of what the host saw, also where it adds up over those who wait for a
  // slot. To a tail it matters what it added to a few.
  const bool is_tail = what.tail_beyond_ns > 0;
  const double by_device_ns = added_ns(e, is_tail);
  const bool is_little = by_device_ns < what.slower_by_ns * kMostOfIt;
  const bool is_devices = is_tail && !is_little;
  const double notable = is_devices ? kNotableToFew : kNotable;
  const double gaps = std::max(e.host_gap_share, e.engine_gap_share);
  const double work = std::max(e.host_long_work_share, e.long_work_share);
  if (gaps > notable && gaps >= work)
    return "preempted: the machine took " + percent(gaps) + " of the " +
           (e.host_gap_share >= e.engine_gap_share ? "driver's" : "engine's") + " time";
  if (work > notable) return "long work of the program's own took " + percent(work) + " of the time";
  // Arrivals go on while the machine is away, and those who came then may be answered long after.
  if (e.cycle_ns == 0 && !is_tail && e.earlier_gap_ns > std::max(0.0, what.slower_by_ns / 2))
    return "preempted: the machine took the engine's time for " + microseconds(e.earlier_gap_ns) +
           " before the measured time";
  if (const std::string why = fault_cause(e, what, by_device_ns); !why.empty()) return why;
  if (is_little || (e.busy_share < 0.5 && !is_devices)) return "host-bound";
  return e.late_by_copy_share > (is_devices ? 0 : kNotableCopies) ? "copy-bound" : "frontend late";
}

}  // namespace flashmob::engine
