// The verdict's words: what was wrong with a run, and why it was so. Internal to src/engine; pure.
#pragma once

#include <string>

#include "engine/fidelity.h"

namespace flashmob::engine {

// From which share of a run, or of its requests, on something counts as the cause of what went wrong.
inline constexpr double kNotable = 0.002;
// Slots that are held so much of the time by requests that are not due are what an open loop waits for.
inline constexpr double kMostlyHeld = 0.9;

// What the host saw that it should not have.
struct Complaint {
  std::string text;  // empty: nothing
  bool is_quicker = false;  // it was better than the model
  double slower_by_ns = 0;  // than the model's: the latency that it is about, or the mean if it is about the rate
  double tail_beyond_ns = 0;  // it was a p99, and by how much that was off beyond its tolerance
  const SeenDirection* of = nullptr;  // it was of reads, or of writes, alone
  double iops_share = 0;  // it was about the rate, and by how much that was off
};

// "2.0 %", "12.50 us".
std::string percent(double share);
std::string microseconds(double ns);

// Why the device was late or slow to look.
std::string device_cause(const FidelityEvidence& e);
// The same of a network's door.
std::string door_cause(const FidelityEvidence& e);
// Why the host saw something else although the device did as the model says.
std::string host_cause(const FidelityEvidence& e, const Complaint& what);

}  // namespace flashmob::engine
