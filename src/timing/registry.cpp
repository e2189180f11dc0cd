#include "timing/registry.h"

#include <string>

#include "base/config_checks.h"
#include "base/text.h"

namespace flashmob::timing {
namespace {

const ModelEntry* const kModels[] = {&kNoneModel, &kSimpleModel, &kNandModel};

}  // namespace

std::span<const ModelEntry* const> models() { return kModels; }

const ModelEntry& model_named(std::string_view name) {
  std::string names;
  for (const ModelEntry* const model : kModels) {
    if (name == model->name) return *model;
    names += (names.empty() ? "" : ", ") + std::string(model->name);
  }
  config_checks::reject("timing.model", config_checks::quoted(name), "use one of " + names);
}

std::unique_ptr<TimingModel> make_model(const TimingConfig& config, bool shared, const DeviceShape& shape) {
  config.validate();
  return model_of(config).make(config, shared, shape);
}

void check_memory(const TimingConfig& config, const DeviceShape& shape, std::uint64_t copies,
                  std::uint64_t free_bytes) {
  const ModelEntry& model = model_of(config);
  if (model.memory_bytes == nullptr || free_bytes == 0) return;
  const std::uint64_t needed = copies * model.memory_bytes(config, shape);
  if (needed <= free_bytes) return;
  throw ConfigError("a drive of " + bytes_in_words(shape.capacity_bytes) + " is not possible here: its map of " +
                    std::to_string(config.unit_bytes) + "-byte units takes " + bytes_in_words(needed) +
                    " of memory, and " + bytes_in_words(free_bytes) +
                    " are free; use a smaller size, or a larger timing.unit_bytes");
}

}  // namespace flashmob::timing
