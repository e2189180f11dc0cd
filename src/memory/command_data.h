// How many bytes a command moves and which way, for those who carry its data: on fabrics, or where memory is reached by
// messages. A PCIe host's data pointer does not say it (NVMe Base 2.0c, chapter 5 and 7; NVM command set 1.0c,
// clause 3.2). Pure functions; any thread.
#pragma once

#include <cstdint>

#include "nvme/command.h"
#include "nvme/identify.h"

namespace flashmob::memory {

enum class DataWay : std::uint8_t { none, to_device, from_device };

struct CommandData {
  DataWay way = DataWay::none;
  std::uint64_t bytes = 0;  // 0 with DataWay::none only
};

// Vendor-specific commands are taken to state their length in CDW10, in dwords, as the common format has it. Commands
// whose data nothing here knows are taken to have none.
CommandData admin_command_data(const nvme::Sqe& sqe);

// What the lengths of a namespace's commands follow from.
struct alignas(8) DataShape {  // one atomic word
  std::uint32_t block_bytes = 0;
  std::uint16_t extension_bytes = 0;  // of a zone descriptor
  nvme::Csi csi = nvme::Csi::nvm;
};

// True if the command's length cannot be told without the namespace's shape: it is counted in blocks, or the opcode is
// another command in another set. The shape is used only where this says so.
bool depends_on_shape(const nvme::Sqe& sqe);
// A snapshot: the engine computes the length anew from the shape that the namespace has when the command is carried
// out, which a Format may have changed since. So whoever carries data by this length must hand on a data pointer that
// stays within what was carried at every length that the engine may find (an SGL with its own length, or page lists
// that no data lies in), and must not take a result for good if Controller::attachment_changes() has moved in between.
CommandData io_command_data(const nvme::Sqe& sqe, const DataShape& shape);

}  // namespace flashmob::memory
