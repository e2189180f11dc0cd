// The device as a whole, checked in the room that knows both the timing models and the command sets by name.
#include "flashmob/config.h"

#include "command_set/engine_limits.h"
#include "command_set/placement.h"
#include "command_set/registry.h"

namespace flashmob {

void DeviceConfig::validate() const {
  subsystem.validate();
  command_set::check_command_sets(subsystem);
  controller.validate();
  timing.validate();
  engine.validate();
  fidelity.validate();
  command_set::check_engine(*this);
  command_set::check_placement(*this);
}

}  // namespace flashmob
