// Status field of a completion (NVMe Base 2.0c, 3.3.3.2; NVM command set 1.0c, 4.1.5).
// A Status holds bits 15:1 of the entry shifted down by one: SC in 7:0, SCT in 10:8, CRD in 12:11, M in 13, DNR in 14.
#pragma once

#include <cstdint>

namespace flashmob::nvme {

enum class Status : std::uint16_t {
  // Generic command status (SCT 0), Figure 94.
  success = 0x000,
  invalid_opcode = 0x001,
  invalid_field = 0x002,
  command_id_conflict = 0x003,
  data_transfer_error = 0x004,
  aborted_power_loss = 0x005,
  internal_error = 0x006,
  abort_requested = 0x007,
  aborted_sq_deletion = 0x008,
  aborted_failed_fused = 0x009,
  aborted_missing_fused = 0x00A,
  invalid_namespace_or_format = 0x00B,
  command_sequence_error = 0x00C,
  invalid_sgl_segment_descriptor = 0x00D,
  invalid_number_of_sgl_descriptors = 0x00E,
  data_sgl_length_invalid = 0x00F,
  metadata_sgl_length_invalid = 0x010,
  sgl_descriptor_type_invalid = 0x011,
  invalid_use_of_cmb = 0x012,
  prp_offset_invalid = 0x013,
  atomic_write_unit_exceeded = 0x014,
  operation_denied = 0x015,
  sgl_offset_invalid = 0x016,
  host_identifier_inconsistent_format = 0x018,
  keep_alive_timer_expired = 0x019,
  keep_alive_timeout_invalid = 0x01A,
  aborted_preempt_and_abort = 0x01B,
  sanitize_failed = 0x01C,
  sanitize_in_progress = 0x01D,
  sgl_data_block_granularity_invalid = 0x01E,
  command_not_supported_in_cmb = 0x01F,
  namespace_is_write_protected = 0x020,
  command_interrupted = 0x021,
  transient_transport_error = 0x022,
  prohibited_by_lockdown = 0x023,
  admin_media_not_ready = 0x024,
  fdp_disabled = 0x029,  // Base 2.1, Figure 102, as the next
  invalid_placement_handle_list = 0x02A,
  lba_out_of_range = 0x080,
  capacity_exceeded = 0x081,
  namespace_not_ready = 0x082,
  reservation_conflict = 0x083,
  format_in_progress = 0x084,
  // The same of the Key Value command set 1.0 (Figure 4).
  invalid_value_size = 0x085,
  invalid_key_size = 0x086,
  key_does_not_exist = 0x087,
  unrecovered_error = 0x088,
  key_exists = 0x089,
  // Command specific status (SCT 1), Figure 95.
  completion_queue_invalid = 0x100,
  invalid_queue_identifier = 0x101,
  invalid_queue_size = 0x102,
  abort_limit_exceeded = 0x103,
  async_event_limit_exceeded = 0x105,
  invalid_firmware_slot = 0x106,
  invalid_firmware_image = 0x107,
  invalid_interrupt_vector = 0x108,
  invalid_log_page = 0x109,
  invalid_format = 0x10A,
  firmware_activation_needs_reset = 0x10B,
  invalid_queue_deletion = 0x10C,
  feature_not_saveable = 0x10D,
  feature_not_changeable = 0x10E,
  feature_not_namespace_specific = 0x10F,
  overlapping_range = 0x114,
  namespace_insufficient_capacity = 0x115,
  namespace_identifier_unavailable = 0x116,
  namespace_already_attached = 0x118,
  namespace_is_private = 0x119,
  namespace_not_attached = 0x11A,
  thin_provisioning_not_supported = 0x11B,
  controller_list_invalid = 0x11C,
  boot_partition_write_prohibited = 0x11E,
  invalid_controller_identifier = 0x11F,
  io_command_set_not_supported = 0x129,
  io_command_set_not_enabled = 0x12A,
  io_command_set_combination_rejected = 0x12B,
  invalid_io_command_set = 0x12C,
  conflicting_attributes = 0x180,
  invalid_protection_information = 0x181,
  attempted_write_to_read_only_range = 0x182,
  command_size_limit_exceeded = 0x183,
  // The same of the Zoned Namespace command set 1.1.
  zone_boundary_error = 0x1B8,
  zone_is_full = 0x1B9,
  zone_is_read_only = 0x1BA,
  zone_is_offline = 0x1BB,
  zone_invalid_write = 0x1BC,
  too_many_active_zones = 0x1BD,
  too_many_open_zones = 0x1BE,
  invalid_zone_state_transition = 0x1BF,
  // Media and data integrity errors (SCT 2), Figure 98.
  write_fault = 0x280,
  unrecovered_read_error = 0x281,
  guard_check_error = 0x282,
  compare_failure = 0x285,
  access_denied = 0x286,
  deallocated_or_unwritten_block = 0x287,
};

inline constexpr std::uint16_t kStatusMore = 1u << 13;
inline constexpr std::uint16_t kStatusDoNotRetry = 1u << 14;

constexpr std::uint16_t to_field(Status status) { return static_cast<std::uint16_t>(status); }
constexpr std::uint8_t status_code(std::uint16_t field) { return static_cast<std::uint8_t>(field & 0xFF); }
constexpr std::uint8_t status_code_type(std::uint16_t field) { return static_cast<std::uint8_t>((field >> 8) & 7); }
// Type and code without CRD, M and DNR.
constexpr Status status_of(std::uint16_t field) { return static_cast<Status>(field & 0x7FF); }

// The specification leaves DNR to the controller. We set it where repeating the same command cannot help: every
// error that the command's own fields caused. Aborts, internal errors and media write faults may be retried.
constexpr std::uint16_t with_do_not_retry(Status status) {
  switch (status) {
    case Status::success:
    case Status::internal_error:
    case Status::data_transfer_error:
    case Status::aborted_power_loss:
    case Status::abort_requested:
    case Status::aborted_sq_deletion:
    case Status::aborted_failed_fused:
    case Status::namespace_not_ready:
    case Status::format_in_progress:
    case Status::command_interrupted:
    case Status::write_fault:
    case Status::abort_limit_exceeded:
    case Status::async_event_limit_exceeded:
    case Status::admin_media_not_ready:
    case Status::too_many_active_zones:
    case Status::too_many_open_zones:
      return to_field(status);
    default:
      return static_cast<std::uint16_t>(to_field(status) | kStatusDoNotRetry);
  }
}

}  // namespace flashmob::nvme
