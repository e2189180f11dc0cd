// How many bytes a command moves and which way, for those who carry its data: on fabrics, or where memory is reached by
// messages. A PCIe host's data pointer does not say it (NVMe Base 2.0c, chapter 5 and 7; NVM command set 1.0c,
// clause 3.2). Pure functions; any thread.
#pragma once

#include <cstdint>

#include "nvme/command.h"

namespace flashmob::memory {

enum class DataWay : std::uint8_t { none, to_device, from_device };

struct CommandData {
  DataWay way = DataWay::none;
  std::uint64_t bytes = 0;  // 0 with DataWay::none only
};

// Vendor-specific commands are taken to state their length in CDW10, in dwords, as the common format has it. Commands
// whose data nothing here knows are taken to have none.
CommandData admin_command_data(const nvme::Sqe& sqe);

// True if the command's length is counted in the namespace's blocks.
bool counts_blocks(const nvme::Sqe& sqe);
// `block_bytes` is used only where counts_blocks() says so.
CommandData io_command_data(const nvme::Sqe& sqe, std::uint32_t block_bytes);

}  // namespace flashmob::memory
