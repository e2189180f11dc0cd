#include "api/device.h"

#include "flashmob/machine.h"
#include "timing/registry.h"

namespace flashmob::api {
namespace {

const DeviceConfig& validated(const DeviceConfig& config) {
  config.validate();
  return config;
}

}  // namespace

void prepare_media(engine::Engine& engine, controller::Subsystem& subsystem) {
  const std::lock_guard lock(subsystem.mutex());
  for (std::uint32_t nsid = 1; nsid <= controller::kMaxNamespaces; ++nsid) {
    const controller::NamespaceInfo& info = subsystem.info(nsid);
    if (info.current == nullptr) continue;
    if (engine.basic_commands_only()) info.current->media->take_in();
    if (info.config.media != "memory") engine.model().assume_written(info.unit_base, info.units, nullptr);
  }
}

timing::DeviceShape shape_that_fits(const DeviceConfig& config, const controller::Subsystem& subsystem,
                                    std::uint64_t models) {
  const timing::DeviceShape shape = subsystem.shape();
  timing::check_memory(config.timing, shape, models, free_memory_bytes());
  return shape;
}

Device::Device(const DeviceConfig& config, const Clock& clock, std::uint64_t models)
    : clock_(clock),
      subsystem_(validated(config).subsystem, config.seed, config.timing.unit_bytes),
      engine_(config, clock, nullptr, {}, shape_that_fits(config, subsystem_, models)),
      controller_(subsystem_, config.controller, engine_),
      interrupts_(config.controller.interrupt_vectors,
                  clock.is_virtual() ? driver::InterruptTable::Threads::one : driver::InterruptTable::Threads::any),
      door_(controller_, {&engine_.sleeping(), [this] { engine_.wake(); }}, interrupts_) {
  prepare_media(engine_, subsystem_);
  engine_.attach(controller_, [this](std::uint16_t vector) { interrupts_.fire(vector); });
}

Device::~Device() {
  engine_.stop();
  engine_.detach(controller_);
}

}  // namespace flashmob::api
