// What a server of I/O queues can do, told by the value of engine.kind alone: a configuration is held against it before
// there is an engine. Whoever brings another kind than the host's declares its limits.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string>

#include "flashmob/config.h"

namespace flashmob::command_set {

struct EngineLimits {
  std::uint64_t queue_pairs_per_sm = UINT32_MAX;
  std::uint32_t max_transfer_bytes = UINT32_MAX;
  // I/O queues take Read, Write, Flush, Compare, Write Zeroes and Dataset Management of the NVM command set, by PRPs
  // alone and one by one.
  bool basic_commands_only = false;
  // What runs is device code: no faults, no media that asks the host, timing models that are device code, too.
  bool device_code_only = false;
};

// In place of what was declared of the kind before.
void declare_engine(const std::string& kind, const EngineLimits& limits);
// Throws ConfigError where nobody has declared the kind.
EngineLimits engine_limits(const std::string& kind);
// Throws ConfigError where the engine that the configuration asks for cannot serve it.
void check_engine(const DeviceConfig& config);

}  // namespace flashmob::command_set
