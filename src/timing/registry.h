// Which timing models there are. A model's file defines its entry; this list and the model's own code are all that name
// it: everybody else asks the entry what they need to know.
//
// Thread rule: entries are constant; any thread.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "flashmob/config.h"
#include "timing/model.h"

namespace flashmob::timing {

struct ModelEntry {
  const char* name;  // as `timing.model` gives it
  // Throws ConfigError where the model's own parameters cannot be.
  void (*check)(const TimingConfig& config);
  // Of a checked configuration.
  std::unique_ptr<TimingModel> (*make)(const TimingConfig& config, bool shared, const DeviceShape& shape);
  bool is_timed;  // false: everything is done at once, and there is nothing to be true to
  bool on_gpu;  // a GPU's engine can run it
  bool takes_rates = false;  // rates and latencies by themselves are its parameters
  bool takes_nand = false;  // [timing.nand] is its table
  // What one model of a checked configuration takes of this machine's memory, where that is much; else nullptr.
  std::uint64_t (*memory_bytes)(const TimingConfig& config, const DeviceShape& shape) = nullptr;
};

std::span<const ModelEntry* const> models();

// Throws ConfigError that names those that there are.
const ModelEntry& model_named(std::string_view name);
inline const ModelEntry& model_of(const TimingConfig& config) { return model_named(config.model); }

// Throws ConfigError where so many models of this shape would take more than `free_bytes` of memory.
void check_memory(const TimingConfig& config, const DeviceShape& shape, std::uint64_t copies, std::uint64_t free_bytes);

// One for each model, defined in its own file.
extern const ModelEntry kNoneModel;
extern const ModelEntry kSimpleModel;
extern const ModelEntry kNandModel;

}  // namespace flashmob::timing
