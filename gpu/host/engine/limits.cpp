#include "host/engine/limits.h"

#include <algorithm>

#include "command_set/engine_limits.h"
#include "flashmob/config.h"
#include "flashmob/gpu/engine/layout.h"

namespace flashmob {
namespace {

constexpr command_set::EngineLimits kLimits{.queue_pairs_per_sm = gpu::engine::kMaxQueuesPerUnit,
                                            .max_transfer_bytes = gpu::engine::kMaxTransferBytes,
                                            .basic_commands_only = true,
                                            .device_code_only = true};

}  // namespace

void gpu::declare_limits() { command_set::declare_engine("gpu", kLimits); }

DeviceConfig on_gpu_engine(DeviceConfig config, std::uint32_t sms) {
  gpu::declare_limits();
  config.engine.kind = "gpu";
  config.engine.sms = sms;
  ControllerConfig& controller = config.controller;
  controller.max_queue_pairs =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(controller.max_queue_pairs, kLimits.queue_pairs_per_sm * sms));
  controller.max_transfer_bytes = std::min(controller.max_transfer_bytes, kLimits.max_transfer_bytes);
  return config;
}

}  // namespace flashmob
