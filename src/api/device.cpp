#include "api/device.h"

namespace flashmob::api {
namespace {

const DeviceConfig& validated(const DeviceConfig& config) {
  config.validate();
  return config;
}

}  // namespace

Device::Device(const DeviceConfig& config, const Clock& clock)
    : clock_(clock),
      engine_(validated(config), clock),
      subsystem_(config.subsystem, config.seed, config.timing.unit_bytes),
      controller_(subsystem_, config.controller, engine_),
      interrupts_(config.controller.interrupt_vectors,
                  clock.is_virtual() ? driver::InterruptTable::Threads::one : driver::InterruptTable::Threads::any),
      door_(controller_, {&engine_.sleeping(), [this] { engine_.wake(); }}, interrupts_) {
  engine_.attach(controller_, [this](std::uint16_t vector) { interrupts_.fire(vector); });
}

Device::~Device() {
  engine_.stop();
  engine_.detach(controller_);
}

}  // namespace flashmob::api
