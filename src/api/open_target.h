// Attaching to the door of another process for a benchmark.
#pragma once

#include <memory>
#include <string>

#include "driver/pci_device.h"
#include "flashmob/bench.h"

namespace flashmob::api {

// Checks what BenchOptions::target names without attaching. Throws ConfigError.
void check_target(const BenchOptions& options);

// Attaches to BenchOptions::target. Throws ConfigError where it is no target or nobody serves it.
std::unique_ptr<driver::PciDevice> open_target(const BenchOptions& options);

}  // namespace flashmob::api
