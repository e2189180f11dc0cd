#include "memory/command_data.h"

#include "nvme/admin_command.h"
#include "nvme/features.h"
#include "nvme/io_command.h"
#include "nvme/io_commands.h"
#include "nvme/opcode.h"
#include "nvme/placement.h"
#include "nvme/zns.h"

namespace flashmob::memory {
namespace {

using nvme::AdminOpcode, nvme::Feature, nvme::IoData;

constexpr std::uint8_t kFirstVendorAdminOpcode = 0xC0;
constexpr std::uint8_t kFirstVendorIoOpcode = 0x80;
constexpr std::uint64_t kPageOfData = 4096;  // Identify, controller lists, new namespaces
constexpr std::uint64_t kDatasetRangeBytes = 16;
constexpr std::uint64_t kCopyRangeBytes = 32;
constexpr std::uint64_t kPlacementIdentifierBytes = 2;

// Bits 1:0 of every opcode tell the direction (Base 2.0c, Figure 138).
CommandData with_length(const nvme::Sqe& sqe, std::uint64_t bytes) {
  const unsigned direction = sqe.opcode & 3;
  if (bytes == 0 || direction == 0 || direction == 3) return {};
  return {direction == 1 ? DataWay::to_device : DataWay::from_device, bytes};
}

std::uint64_t feature_bytes(const nvme::Sqe& sqe) {
  switch (static_cast<Feature>(nvme::feature_id(sqe.cdw10))) {
    case Feature::lba_range_type:
      return 4096;
    case Feature::autonomous_power_state_transition:
      return 256;
    case Feature::timestamp:
      return 8;
    case Feature::host_behavior_support:
      return 512;
    case Feature::fdp_events:
      return sqe.opcode == static_cast<std::uint8_t>(AdminOpcode::set_features)
                 ? nvme::fdp_events_count(sqe.cdw11)
                 : nvme::kFdpSupportedEvents * sizeof(nvme::FdpSupportedEvent);
    case Feature::host_identifier:
      return (sqe.cdw11 & 1) != 0 ? 16 : 8;  // EXHID
    default:
      return 0;
  }
}

}  // namespace

CommandData admin_command_data(const nvme::Sqe& sqe) {
  switch (static_cast<AdminOpcode>(sqe.opcode)) {
    case AdminOpcode::identify:
    case AdminOpcode::namespace_attachment:
      return with_length(sqe, kPageOfData);
    case AdminOpcode::namespace_management:
      return with_length(sqe, nvme::namespace_select(sqe) == nvme::kNamespaceCreate ? kPageOfData : 0);
    case AdminOpcode::get_log_page:
      return with_length(sqe, (std::uint64_t{nvme::decode_get_log_page(sqe).numd} + 1) * 4);
    case AdminOpcode::directive_receive:
      return with_length(sqe, (std::uint64_t{sqe.cdw10} + 1) * 4);
    case AdminOpcode::directive_send:
      return {};  // the one operation that there is has no data
    case AdminOpcode::set_features:
      return with_length(sqe, feature_bytes(sqe));
    case AdminOpcode::get_features: {
      const auto select = static_cast<nvme::FeatureSelect>(nvme::feature_select(sqe.cdw10));
      return with_length(sqe, select == nvme::FeatureSelect::supported_capabilities ? 0 : feature_bytes(sqe));
    }
    default:
      return with_length(sqe, sqe.opcode >= kFirstVendorAdminOpcode ? std::uint64_t{sqe.cdw10} * 4 : 0);
  }
}

bool depends_on_shape(const nvme::Sqe& sqe) {
  const nvme::IoCommand* const first = nvme::find_io_command(nvme::kIoCommandSets[0], sqe.opcode);
  for (const nvme::Csi csi : nvme::kIoCommandSets) {
    const nvme::IoCommand* const command = nvme::find_io_command(csi, sqe.opcode);
    // Where another set lacks it, no length is wrong.
    if (command != nullptr && (first == nullptr || command->data == IoData::blocks || command->data != first->data))
      return true;
  }
  return false;
}

CommandData io_command_data(const nvme::Sqe& sqe, const DataShape& shape) {
  const nvme::IoCommand* const command = nvme::find_io_command(shape.csi, sqe.opcode);
  if (command == nullptr)
    return with_length(sqe, sqe.opcode >= kFirstVendorIoOpcode ? std::uint64_t{sqe.cdw10} * 4 : 0);
  switch (command->data) {
    case IoData::blocks:
      return with_length(sqe, std::uint64_t{nvme::block_count(sqe)} * shape.block_bytes);
    case IoData::dataset_ranges:
      return with_length(sqe, nvme::dataset_range_count(sqe) * kDatasetRangeBytes);
    case IoData::copy_ranges:
      return with_length(sqe, nvme::copy_range_count(sqe) * kCopyRangeBytes);
    case IoData::dwords:
      return with_length(sqe, (std::uint64_t{sqe.cdw12} + 1) * 4);
    case IoData::management_dwords:
      return with_length(sqe, (std::uint64_t{sqe.cdw11} + 1) * 4);
    case IoData::placement_identifiers:
      return with_length(sqe, nvme::io_management_operation(sqe) == nvme::kHandleUpdate
                                  ? nvme::placement_identifier_count(sqe) * kPlacementIdentifierBytes
                                  : 0);
    case IoData::bytes:
      return with_length(sqe, sqe.cdw10);
    case IoData::descriptor_extension:
      return with_length(sqe, nvme::sets_zone_extension(sqe) ? shape.extension_bytes : 0);
    case IoData::none:
      break;
  }
  return {};
}

}  // namespace flashmob::memory
