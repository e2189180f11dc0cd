// Names of admin commands and status codes for messages to people. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "nvme/command.h"
#include "nvme/status.h"

namespace flashmob::driver {

// "Identify (CNS 01h)": the command and the parameter that tells it from its siblings.
std::string admin_command_name(const nvme::Sqe& sqe);

// "LBA Out of Range"; "Unknown Status" where it has no name here.
std::string status_name(nvme::Status status);

// "LBA Out of Range (SCT 0h, SC 80h, do not retry)".
std::string status_text(std::uint16_t status_field);

}  // namespace flashmob::driver
