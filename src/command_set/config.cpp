// The device as a whole, checked in the room that knows both the timing models and the command sets by name.
#include "flashmob/config.h"

#include <algorithm>

#include "base/config_checks.h"
#include "command_set/registry.h"
#include "timing/registry.h"

namespace flashmob {
namespace {

using namespace config_checks;

constexpr const char* kGpuEngine = "gpu";
// What one multiprocessor of a GPU engine serves, and what its warps move at once (gpu/engine/layout.h).
constexpr std::uint32_t kGpuQueuesPerSm = 256;
constexpr std::uint32_t kGpuMaxTransferBytes = 128 << 10;
constexpr const char* kGpuCommandSet = "nvm";

void check_gpu_engine(const DeviceConfig& config) {
  const ControllerConfig& controller = config.controller;
  const std::string why = " (engine.kind = \"gpu\")";
  const std::uint32_t pairs = kGpuQueuesPerSm * config.engine.sms;
  if (controller.max_queue_pairs > pairs)
    reject("controller.max_queue_pairs", std::to_string(controller.max_queue_pairs),
           "use at most " + std::to_string(pairs) + ", or raise engine.sms" + why);
  if (controller.max_transfer_bytes > kGpuMaxTransferBytes)
    reject("controller.max_transfer_bytes", std::to_string(controller.max_transfer_bytes),
           "use at most " + std::to_string(kGpuMaxTransferBytes) + why);
  if (!timing::model_named(config.timing.model).on_gpu)
    reject("engine.kind", quoted(kGpuEngine),
           "the timing model " + quoted(config.timing.model) + " runs on the host; use \"host\"");
  if (config.timing.per_request_updates)
    reject("timing.per_request_updates", "true", "the model is updated once per batch" + why);
  if (!config.faults.empty())
    reject("faults", "a list of " + std::to_string(config.faults.size()), "only the host's engine shows faults" + why);
  if (!config.engine.move_data) reject("engine.move_data", "false", "data are always moved" + why);
  for (std::size_t i = 0; i < config.subsystem.namespaces.size(); ++i) {
    const std::string& media = config.subsystem.namespaces[i].media;
    if (media != "memory" && !media.starts_with("cow:"))
      reject("subsystem.namespaces[" + std::to_string(i) + "].media", quoted(media),
             "use memory or cow:PATH, which need nothing of the host for a command" + why);
    const std::string& set = config.subsystem.namespaces[i].command_set;
    if (set != kGpuCommandSet)
      reject("subsystem.namespaces[" + std::to_string(i) + "].command_set", quoted(set),
             "use " + quoted(kGpuCommandSet) + ", the one that a GPU serves" + why);
  }
}

}  // namespace

void DeviceConfig::validate() const {
  subsystem.validate();
  command_set::check_command_sets(subsystem);
  controller.validate();
  timing.validate();
  engine.validate();
  fidelity.validate();
  if (engine.kind == kGpuEngine) check_gpu_engine(*this);
}

DeviceConfig on_gpu_engine(DeviceConfig config, std::uint32_t sms) {
  config.engine.kind = kGpuEngine;
  config.engine.sms = sms;
  ControllerConfig& controller = config.controller;
  controller.max_queue_pairs = std::min(controller.max_queue_pairs, kGpuQueuesPerSm * sms);
  controller.max_transfer_bytes = std::min(controller.max_transfer_bytes, kGpuMaxTransferBytes);
  return config;
}

}  // namespace flashmob
