#include "command_set/engine_limits.h"

#include <map>
#include <mutex>

#include "base/config_checks.h"
#include "timing/registry.h"

namespace flashmob::command_set {
namespace {

using namespace config_checks;

struct Declared {
  std::mutex mutex;
  std::map<std::string, EngineLimits> limits{{"host", {}}};
};

Declared& declared() {
  static Declared all;
  return all;
}

void check_device_code(const DeviceConfig& config, const std::string& why) {
  if (!timing::model_named(config.timing.model).on_gpu)
    reject("engine.kind", quoted(config.engine.kind),
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
  }
}

}  // namespace

void declare_engine(const std::string& kind, const EngineLimits& limits) {
  Declared& all = declared();
  const std::lock_guard lock(all.mutex);
  all.limits[kind] = limits;
}

EngineLimits engine_limits(const std::string& kind) {
  Declared& all = declared();
  const std::lock_guard lock(all.mutex);
  const auto found = all.limits.find(kind);
  if (found == all.limits.end())
    reject("engine.kind", quoted(kind),
           "this program has no such engine; use \"host\", or call flashmob::gpu::enable_engine() first");
  return found->second;
}

void check_engine(const DeviceConfig& config) {
  const EngineLimits limits = engine_limits(config.engine.kind);
  const std::string why = " (engine.kind = " + quoted(config.engine.kind) + ")";
  const ControllerConfig& controller = config.controller;
  const std::uint64_t pairs = limits.queue_pairs_per_sm * config.engine.sms;
  if (controller.max_queue_pairs > pairs)
    reject("controller.max_queue_pairs", std::to_string(controller.max_queue_pairs),
           "use at most " + std::to_string(pairs) + ", or raise engine.sms" + why);
  if (controller.max_transfer_bytes > limits.max_transfer_bytes)
    reject("controller.max_transfer_bytes", std::to_string(controller.max_transfer_bytes),
           "use at most " + std::to_string(limits.max_transfer_bytes) + why);
  if (limits.device_code_only) check_device_code(config, why);
  if (!limits.basic_commands_only) return;
  for (std::size_t i = 0; i < config.subsystem.namespaces.size(); ++i) {
    const std::string& set = config.subsystem.namespaces[i].command_set;
    if (set != "nvm")
      reject("subsystem.namespaces[" + std::to_string(i) + "].command_set", quoted(set),
             "use \"nvm\", the one that this engine serves" + why);
  }
}

}  // namespace flashmob::command_set
