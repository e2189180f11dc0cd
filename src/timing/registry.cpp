#include "timing/registry.h"

#include <string>

#include "base/config_checks.h"

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

}  // namespace flashmob::timing
