// What Identify is asked for and the lists that it answers (NVMe Base 2.0c, clause 5.17; NVM command set 1.0c, 4.1.5).
// The large data structures have headers of their own: identify_controller.h and identify_namespace.h.
// Little-endian layouts without behaviour; no thread rule. Compiles as CUDA device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"

namespace flashmob::nvme {

// Every Identify data structure is this long (5.17.2).
inline constexpr std::uint32_t kIdentifyBytes = 4096;

// Namespace identifiers with a meaning of their own (3.2.1).
inline constexpr std::uint32_t kNsidNone = 0;
inline constexpr std::uint32_t kNsidBroadcast = 0xFFFFFFFF;

// Version register and field VER (3.1.3.2): major in 31:16, minor in 15:8, tertiary in 7:0.
inline constexpr std::uint32_t kVersion20 = 0x00020000;

// Command set identifiers (5.17.2.20).
enum class Csi : std::uint8_t {
  nvm = 0x0,
  key_value = 0x1,
  zoned = 0x2,
};

// Controller or Namespace Structure, CDW10 bits 7:0 (5.17.1).
enum class Cns : std::uint8_t {
  identify_namespace = 0x00,
  identify_controller = 0x01,
  active_namespace_list = 0x02,
  namespace_identification_descriptors = 0x03,
  nvm_set_list = 0x04,
  csi_namespace = 0x05,
  csi_controller = 0x06,
  csi_active_namespace_list = 0x07,
  independent_namespace = 0x08,
  namespace_user_data_format = 0x09,
  csi_namespace_user_data_format = 0x0A,
  allocated_namespace_list = 0x10,
  allocated_namespace = 0x11,
  namespace_controller_list = 0x12,
  controller_list = 0x13,
  primary_controller_capabilities = 0x14,
  secondary_controller_list = 0x15,
  namespace_granularity_list = 0x16,
  uuid_list = 0x17,
  domain_list = 0x18,
  endurance_group_list = 0x19,
  csi_allocated_namespace_list = 0x1A,
  csi_allocated_namespace = 0x1B,
  io_command_sets = 0x1C,
};

// CNS 02h, 07h, 10h and 1Ah: identifiers in increasing order, zero from the first unused entry on. The Changed
// Namespace List log page has the same form.
struct NamespaceList {
  static constexpr std::uint32_t kMaxEntries = 1024;
  std::uint32_t nsid[kMaxEntries];
};
static_assert(sizeof(NamespaceList) == kIdentifyBytes);
using IdentifyActiveNamespaceList = NamespaceList;

// CNS 12h and 13h, and the data of Namespace Attachment (4.5.1, controller list).
struct ControllerList {
  static constexpr std::uint32_t kMaxEntries = 2047;
  std::uint16_t num;
  std::uint16_t identifier[kMaxEntries];
};
static_assert(sizeof(ControllerList) == kIdentifyBytes);
static_assert(offsetof(ControllerList, identifier) == 2);

// CNS 03h: header of one descriptor; `nidl` bytes of identifier follow it. A zero length ends the list.
struct NamespaceIdentificationDescriptor {
  std::uint8_t nidt;
  std::uint8_t nidl;
  std::uint8_t reserved2[2];
};
static_assert(sizeof(NamespaceIdentificationDescriptor) == 4);

enum class NamespaceIdentifierType : std::uint8_t {
  eui64 = 0x1,
  nguid = 0x2,
  uuid = 0x3,
  csi = 0x4,
};
inline constexpr std::uint8_t kEui64Bytes = 8;
inline constexpr std::uint8_t kNguidBytes = 16;
inline constexpr std::uint8_t kUuidBytes = 16;
inline constexpr std::uint8_t kCsiBytes = 1;

// CNS 1Ch: one bit vector per I/O command set combination; bit n stands for the command set with CSI n.
struct IdentifyIoCommandSet {
  static constexpr std::uint32_t kMaxEntries = 512;
  std::uint64_t iocsc[kMaxEntries];
};
static_assert(sizeof(IdentifyIoCommandSet) == kIdentifyBytes);

FLASHMOB_HD constexpr std::uint64_t io_command_set_bit(Csi csi) {
  return std::uint64_t{1} << static_cast<std::uint8_t>(csi);
}

}  // namespace flashmob::nvme
