// What an engine on a GPU can do, for configurations that ask for one: engine.kind = "gpu".
//
// Thread rule: any thread.
#pragma once

namespace flashmob::gpu {

// Before such a configuration is checked (command_set/engine_limits.h); on_gpu_engine() does it, too.
void declare_limits();

}  // namespace flashmob::gpu
