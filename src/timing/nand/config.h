// From [timing.nand] to the parameters of a drive of a given capacity. Pure; for any thread.
#pragma once

#include <cstdint>

#include "flashmob/config.h"
#include "timing/nand/params.h"

namespace flashmob::timing::nand {

// Throws ConfigError with key and fix.
void check(const TimingConfig& config);

// `config` is checked. Channels, dies and planes, which make a drive's speed, are as configured whatever the capacity;
// the number of blocks follows from it. So that garbage collection has some hundred superblocks to choose from, blocks
// of a drive that is smaller than those of its model are shorter; an erase then takes as much less, and has the same
// share of a die's time. Throws ConfigError where the capacity is more than the map holds.
Params params_of(const TimingConfig& config, std::uint64_t capacity_bytes, std::uint64_t seed, Streams streams = {});

}  // namespace flashmob::timing::nand
