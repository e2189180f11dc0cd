// Weak memory for tests that make their devices elsewhere: what gpu/tests/weak sets, and nobody else.
#pragma once

#include "flashmob/gpu/simt/fibre.h"

namespace flashmob::gpu::test {

inline simt::WeakMemoryOptions weak_memory;

}  // namespace flashmob::gpu::test
