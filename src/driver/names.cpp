#include "driver/names.h"

#include <cstdio>

#include "nvme/opcode.h"
#include "nvme/status.h"

namespace flashmob::driver {
namespace {

std::string hex(std::uint32_t value, int digits) {
  char text[16];
  std::snprintf(text, sizeof text, "%0*Xh", digits, value);
  return text;
}

const char* generic_name(std::uint8_t code) {
  switch (code) {
    case 0x00:
      return "Successful Completion";
    case 0x01:
      return "Invalid Command Opcode";
    case 0x02:
      return "Invalid Field in Command";
    case 0x03:
      return "Command ID Conflict";
    case 0x04:
      return "Data Transfer Error";
    case 0x05:
      return "Commands Aborted due to Power Loss Notification";
    case 0x06:
      return "Internal Error";
    case 0x07:
      return "Command Abort Requested";
    case 0x08:
      return "Command Aborted due to SQ Deletion";
    case 0x09:
      return "Command Aborted due to Failed Fused Command";
    case 0x0A:
      return "Command Aborted due to Missing Fused Command";
    case 0x0B:
      return "Invalid Namespace or Format";
    case 0x0C:
      return "Command Sequence Error";
    case 0x0D:
      return "Invalid SGL Segment Descriptor";
    case 0x0E:
      return "Invalid Number of SGL Descriptors";
    case 0x0F:
      return "Data SGL Length Invalid";
    case 0x11:
      return "SGL Descriptor Type Invalid";
    case 0x13:
      return "PRP Offset Invalid";
    case 0x20:
      return "Namespace is Write Protected";
    case 0x80:
      return "LBA Out of Range";
    case 0x81:
      return "Capacity Exceeded";
    case 0x82:
      return "Namespace Not Ready";
    case 0x84:
      return "Format In Progress";
    default:
      return nullptr;
  }
}

const char* command_specific_name(std::uint8_t code) {
  switch (code) {
    case 0x00:
      return "Completion Queue Invalid";
    case 0x01:
      return "Invalid Queue Identifier";
    case 0x02:
      return "Invalid Queue Size";
    case 0x03:
      return "Abort Command Limit Exceeded";
    case 0x05:
      return "Asynchronous Event Request Limit Exceeded";
    case 0x08:
      return "Invalid Interrupt Vector";
    case 0x09:
      return "Invalid Log Page";
    case 0x0A:
      return "Invalid Format";
    case 0x0C:
      return "Invalid Queue Deletion";
    case 0x0D:
      return "Feature Identifier Not Saveable";
    case 0x0E:
      return "Feature Not Changeable";
    case 0x0F:
      return "Feature Not Namespace Specific";
    case 0x15:
      return "Namespace Insufficient Capacity";
    case 0x16:
      return "Namespace Identifier Unavailable";
    case 0x18:
      return "Namespace Already Attached";
    case 0x19:
      return "Namespace Is Private";
    case 0x1A:
      return "Namespace Not Attached";
    case 0x1C:
      return "Controller List Invalid";
    case 0x1F:
      return "Invalid Controller Identifier";
    case 0x80:
      return "Conflicting Attributes";
    case 0x81:
      return "Invalid Protection Information";
    case 0x83:
      return "Command Size Limit Exceeded";
    default:
      return nullptr;
  }
}

const char* media_name(std::uint8_t code) {
  switch (code) {
    case 0x80:
      return "Write Fault";
    case 0x81:
      return "Unrecovered Read Error";
    case 0x85:
      return "Compare Failure";
    case 0x86:
      return "Access Denied";
    case 0x87:
      return "Deallocated or Unwritten Logical Block";
    default:
      return nullptr;
  }
}

const char* name_or(std::uint8_t type, std::uint8_t code, const char* otherwise) {
  const char* name = type == 0   ? generic_name(code)
                     : type == 1 ? command_specific_name(code)
                     : type == 2 ? media_name(code)
                                 : nullptr;
  return name != nullptr ? name : otherwise;
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
    case nvme::AdminOpcode::doorbell_buffer_config:
      return "Doorbell Buffer Config";
    case nvme::AdminOpcode::format_nvm:
      return "Format NVM";
    default:
      return "Admin command " + hex(sqe.opcode, 2);
  }
}

std::string status_name(nvme::Status status) {
  const auto field = static_cast<std::uint16_t>(status);
  return name_or(nvme::status_code_type(field), nvme::status_code(field), "Unknown Status");
}

std::string status_text(std::uint16_t status_field) {
  const std::uint8_t type = nvme::status_code_type(status_field);
  const std::uint8_t code = nvme::status_code(status_field);
  std::string text = name_or(type, code, "Status");
  text += " (SCT " + hex(type, 1) + ", SC " + hex(code, 2);
  if ((status_field & nvme::kStatusDoNotRetry) != 0) text += ", do not retry";
  return text + ")";
}

}  // namespace flashmob::driver
