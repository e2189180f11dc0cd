// The settings of a device as text, one key a line: what a program in C++ is given that has no profiles, such as fio
// with our engine. `flashmob profiles show NAME --settings` prints it.
//
//   timing.read_iops = 2700000
//   subsystem.namespaces.0.media = memory
//   timing.nand.read_ns = 41000,57000,72000
//   faults = error on=read p=0.001          (a line for each rule)
#pragma once

#include <string>

#include "flashmob/config.h"

namespace flashmob {

// Every key, those at their defaults included.
std::string config_text(const DeviceConfig& config);

// What is not named keeps its default; empty lines, and those that begin with #, say nothing. `name` is what errors
// call the text. Not validated as a whole. Throws ConfigError, which names the line.
DeviceConfig parse_config_text(const std::string& text, const std::string& name);

}  // namespace flashmob
