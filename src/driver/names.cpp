#include "driver/names.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "nvme/opcode.h"
#include "nvme/status.h"

namespace flashmob::driver {
namespace {

std::string hex(std::uint32_t value, int digits) {
  char text[16];
  std::snprintf(text, sizeof text, "%0*Xh", digits, value);
  return text;
}

struct StatusName {
  std::uint16_t type_and_code;
  const char* text;
};

// Status code type and status code (Base 2.0c, 3.3.3.2). python/flashmob/errors.py has the same table, because reports
// are read without this module; tests/python/test_status_names.py holds the two together.
constexpr StatusName kStatusNames[] = {
    {0x000, "Successful Completion"},
    {0x001, "Invalid Command Opcode"},
    {0x002, "Invalid Field in Command"},
    {0x003, "Command ID Conflict"},
    {0x004, "Data Transfer Error"},
    {0x005, "Commands Aborted due to Power Loss Notification"},
    {0x006, "Internal Error"},
    {0x007, "Command Abort Requested"},
    {0x008, "Command Aborted due to SQ Deletion"},
    {0x009, "Command Aborted due to Failed Fused Command"},
    {0x00A, "Command Aborted due to Missing Fused Command"},
    {0x00B, "Invalid Namespace or Format"},
    {0x00C, "Command Sequence Error"},
    {0x00D, "Invalid SGL Segment Descriptor"},
    {0x00E, "Invalid Number of SGL Descriptors"},
    {0x00F, "Data SGL Length Invalid"},
    {0x010, "Metadata SGL Length Invalid"},
    {0x011, "SGL Descriptor Type Invalid"},
    {0x012, "Invalid Use of Controller Memory Buffer"},
    {0x013, "PRP Offset Invalid"},
    {0x014, "Atomic Write Unit Exceeded"},
    {0x015, "Operation Denied"},
    {0x016, "SGL Offset Invalid"},
    {0x018, "Host Identifier Inconsistent Format"},
    {0x019, "Keep Alive Timer Expired"},
    {0x01A, "Keep Alive Timeout Invalid"},
    {0x01B, "Command Aborted due to Preempt and Abort"},
    {0x01C, "Sanitize Failed"},
    {0x01D, "Sanitize In Progress"},
    {0x01E, "SGL Data Block Granularity Invalid"},
    {0x01F, "Command Not Supported for Queue in CMB"},
    {0x020, "Namespace is Write Protected"},
    {0x021, "Command Interrupted"},
    {0x022, "Transient Transport Error"},
    {0x023, "Command Prohibited by Command and Feature Lockdown"},
    {0x024, "Admin Command Media Not Ready"},
    {0x029, "FDP Disabled"},
    {0x02A, "Invalid Placement Handle List"},
    {0x080, "LBA Out of Range"},
    {0x081, "Capacity Exceeded"},
    {0x082, "Namespace Not Ready"},
    {0x083, "Reservation Conflict"},
    {0x084, "Format In Progress"},
    {0x085, "Invalid Value Size"},
    {0x086, "Invalid Key Size"},
    {0x087, "Key Does Not Exist"},
    {0x088, "Unrecovered Error"},
    {0x089, "Key Exists"},
    {0x100, "Completion Queue Invalid"},
    {0x101, "Invalid Queue Identifier"},
    {0x102, "Invalid Queue Size"},
    {0x103, "Abort Command Limit Exceeded"},
    {0x105, "Asynchronous Event Request Limit Exceeded"},
    {0x106, "Invalid Firmware Slot"},
    {0x107, "Invalid Firmware Image"},
    {0x108, "Invalid Interrupt Vector"},
    {0x109, "Invalid Log Page"},
    {0x10A, "Invalid Format"},
    {0x10B, "Firmware Activation Requires Conventional Reset"},
    {0x10C, "Invalid Queue Deletion"},
    {0x10D, "Feature Identifier Not Saveable"},
    {0x10E, "Feature Not Changeable"},
    {0x10F, "Feature Not Namespace Specific"},
    {0x114, "Overlapping Range"},
    {0x115, "Namespace Insufficient Capacity"},
    {0x116, "Namespace Identifier Unavailable"},
    {0x118, "Namespace Already Attached"},
    {0x119, "Namespace Is Private"},
    {0x11A, "Namespace Not Attached"},
    {0x11B, "Thin Provisioning Not Supported"},
    {0x11C, "Controller List Invalid"},
    {0x11E, "Boot Partition Write Prohibited"},
    {0x11F, "Invalid Controller Identifier"},
    {0x129, "I/O Command Set Not Supported"},
    {0x12A, "I/O Command Set Not Enabled"},
    {0x12B, "I/O Command Set Combination Rejected"},
    {0x12C, "Invalid I/O Command Set"},
    {0x180, "Conflicting Attributes"},
    {0x181, "Invalid Protection Information"},
    {0x182, "Attempted Write to Read Only Range"},
    {0x183, "Command Size Limit Exceeded"},
    {0x1B8, "Zone Boundary Error"},
    {0x1B9, "Zone Is Full"},
    {0x1BA, "Zone Is Read Only"},
    {0x1BB, "Zone Is Offline"},
    {0x1BC, "Zone Invalid Write"},
    {0x1BD, "Too Many Active Zones"},
    {0x1BE, "Too Many Open Zones"},
    {0x1BF, "Invalid Zone State Transition"},
    {0x280, "Write Fault"},
    {0x281, "Unrecovered Read Error"},
    {0x282, "End-to-end Guard Check Error"},
    {0x285, "Compare Failure"},
    {0x286, "Access Denied"},
    {0x287, "Deallocated or Unwritten Logical Block"},
};

const char* name_or(std::uint16_t status_field, const char* otherwise) {
  const std::uint16_t wanted = nvme::to_field(nvme::status_of(status_field));
  const auto* const found = std::ranges::find(kStatusNames, wanted, &StatusName::type_and_code);
  return found != std::end(kStatusNames) ? found->text : otherwise;
}

}  // namespace

std::string admin_command_name(const nvme::Sqe& sqe) {
  const std::uint32_t low_byte = sqe.cdw10 & 0xFF;
  const std::uint32_t queue = sqe.cdw10 & 0xFFFF;
  switch (static_cast<nvme::AdminOpcode>(sqe.opcode)) {
    case nvme::AdminOpcode::delete_io_sq:
      return "Delete I/O Submission Queue " + std::to_string(queue);
    case nvme::AdminOpcode::create_io_sq:
      return "Create I/O Submission Queue " + std::to_string(queue);
    case nvme::AdminOpcode::get_log_page:
      return "Get Log Page (LID " + hex(low_byte, 2) + ")";
    case nvme::AdminOpcode::delete_io_cq:
      return "Delete I/O Completion Queue " + std::to_string(queue);
    case nvme::AdminOpcode::create_io_cq:
      return "Create I/O Completion Queue " + std::to_string(queue);
    case nvme::AdminOpcode::identify:
      return "Identify (CNS " + hex(low_byte, 2) + ")";
    case nvme::AdminOpcode::abort:
      return "Abort (queue " + std::to_string(queue) + ", command " + std::to_string(sqe.cdw10 >> 16) + ")";
    case nvme::AdminOpcode::set_features:
      return "Set Features (FID " + hex(low_byte, 2) + ")";
    case nvme::AdminOpcode::get_features:
      return "Get Features (FID " + hex(low_byte, 2) + ")";
    case nvme::AdminOpcode::async_event_request:
      return "Asynchronous Event Request";
    case nvme::AdminOpcode::namespace_management:
      return "Namespace Management";
    case nvme::AdminOpcode::namespace_attachment:
      return "Namespace Attachment";
    case nvme::AdminOpcode::keep_alive:
      return "Keep Alive";
    case nvme::AdminOpcode::directive_send:
      return "Directive Send";
    case nvme::AdminOpcode::directive_receive:
      return "Directive Receive";
    case nvme::AdminOpcode::doorbell_buffer_config:
      return "Doorbell Buffer Config";
    case nvme::AdminOpcode::format_nvm:
      return "Format NVM";
    default:
      return "Admin command " + hex(sqe.opcode, 2);
  }
}

std::string status_name(nvme::Status status) { return name_or(nvme::to_field(status), "Unknown Status"); }

std::string status_text(std::uint16_t status_field) {
  const std::uint8_t type = nvme::status_code_type(status_field);
  const std::uint8_t code = nvme::status_code(status_field);
  std::string text = name_or(status_field, "Status");
  text += " (SCT " + hex(type, 1) + ", SC " + hex(code, 2);
  if ((status_field & nvme::kStatusDoNotRetry) != 0) text += ", do not retry";
  return text + ")";
}

}  // namespace flashmob::driver
