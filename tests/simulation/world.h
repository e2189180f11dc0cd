// One simulated world: a device of some random shape, its hosts, the oracle, and a seed from which everything follows.
#pragma once

#include <cstdint>
#include <string>

#include "simulation/host_simulation.h"

namespace flashmob::simulation {

// Runs the world of one seed to its end. Throws Failure.
void run_world(std::uint64_t seed, Counters& counters, const Trace& trace);

}  // namespace flashmob::simulation
