// From a configuration to the simple model's parameters in ticks (simple.h). Host code only; pure.
#pragma once

#include "flashmob/config.h"
#include "timing/simple.h"

namespace flashmob::timing {

// `config` is valid (TimingConfig::validate()).
SimpleParams simple_params(const TimingConfig& config);

}  // namespace flashmob::timing
