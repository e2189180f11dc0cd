// The I/O command sets by name and identifier: what a profile may say of a namespace. One entry registers a set; what
// it is lies in its own folder, its commands in nvme/io_commands.h, and everything else asks here or the namespace.
//
// Sets have no state of their own; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "command_set/command_set.h"

namespace flashmob::command_set {

std::span<const CommandSet* const> command_sets();
// nullptr: there is none.
const CommandSet* command_set_of(nvme::Csi csi);
const CommandSet* command_set_named(std::string_view name);
// Throws ConfigError where a namespace names no set, or is not what its set needs it to be.
void check_command_sets(const SubsystemConfig& config);
// One bit for each set, as Identify CNS 1Ch has them (nvme::io_command_set_bit()): those of the namespaces, and NVM,
// which hosts may make namespaces of.
std::uint64_t command_sets_of(const SubsystemConfig& config);

}  // namespace flashmob::command_set
