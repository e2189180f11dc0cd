// The I/O commands of each command set, as both ends of a wire have to know them: names, which of the two moves how
// much data, what the blocks are that they name, what they change (NVM command set 1.0c, clause 3.2; Zoned
// Namespaces 1.1, clause 3.4; Key Value 1.0, clause 3). One opcode may mean different things in two sets, so nobody
// looks one up without saying whose it is. Pure functions; no thread rule.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "nvme/identify.h"
#include "nvme/opcode.h"

namespace flashmob::nvme {

// What says how long a command's data is; its way is in the opcode's lowest two bits.
enum class IoData : std::uint8_t {
  none,
  blocks,                // NLB, in the namespace's blocks
  dataset_ranges,        // NR in CDW10, 16 bytes each
  copy_ranges,           // NR in CDW12, 32 bytes each
  dwords,                // NUMD, 0's based, in CDW12
  management_dwords,     // the same in CDW11
  placement_identifiers,  // as many as CDW10 31:16 says, 0's based, 2 bytes each, for one operation alone
  bytes,                 // in CDW10: a value, or the host's buffer for one or for a list of keys
  descriptor_extension,  // of Zone Management Send: what Identify says, and for one action alone
};

struct IoCommand {
  std::uint8_t opcode;
  std::string_view name;  // as rules of fault injection name it
  IoData data = IoData::none;
  bool names_blocks = false;    // SLBA in CDW10 and CDW11, NLB in CDW12
  bool changes_blocks = false;  // or values: LBCC of the Commands Supported and Effects log
  bool basic = false;           // an engine of few commands has it, too
  bool of_placement = false;    // of drives with Flexible Data Placement alone
};

namespace io_commands_detail {

constexpr IoCommand of(NvmOpcode opcode, std::string_view name, IoData data, bool names_blocks, bool changes_blocks,
                       bool basic) {
  return {static_cast<std::uint8_t>(opcode), name, data, names_blocks, changes_blocks, basic};
}

inline constexpr std::array kNvmAnywhere = {
    of(NvmOpcode::read, "read", IoData::blocks, true, false, true),
    of(NvmOpcode::write, "write", IoData::blocks, true, true, true),
    of(NvmOpcode::flush, "flush", IoData::none, false, false, true),
    of(NvmOpcode::compare, "compare", IoData::blocks, true, false, true),
    of(NvmOpcode::write_zeroes, "write-zeroes", IoData::none, true, true, true),
    of(NvmOpcode::write_uncorrectable, "write-uncorrectable", IoData::none, true, true, false),
    of(NvmOpcode::dataset_management, "dsm", IoData::dataset_ranges, false, true, true),
    of(NvmOpcode::verify, "verify", IoData::none, true, false, false),
    of(NvmOpcode::copy, "copy", IoData::copy_ranges, false, true, false),
};

constexpr IoCommand of_placement(NvmOpcode opcode, std::string_view name, IoData data) {
  return {static_cast<std::uint8_t>(opcode), name, data, false, false, false, true};
}

inline constexpr std::array kOfPlacement = {
    of_placement(NvmOpcode::io_management_receive, "io-management-receive", IoData::management_dwords),
    of_placement(NvmOpcode::io_management_send, "io-management-send", IoData::placement_identifiers),
};

template <std::size_t kFirst, std::size_t kSecond>
constexpr auto joined(const std::array<IoCommand, kFirst>& first, const std::array<IoCommand, kSecond>& second) {
  std::array<IoCommand, kFirst + kSecond> all{};
  std::copy(first.begin(), first.end(), all.begin());
  std::copy(second.begin(), second.end(), all.begin() + kFirst);
  return all;
}

inline constexpr auto kNvm = joined(kNvmAnywhere, kOfPlacement);

constexpr IoCommand of(ZonedOpcode opcode, std::string_view name, IoData data, bool names_blocks, bool changes_blocks) {
  return {static_cast<std::uint8_t>(opcode), name, data, names_blocks, changes_blocks, false};
}

inline constexpr std::array kOfZonesAlone = {
    of(ZonedOpcode::zone_append, "zone-append", IoData::blocks, false, true),
    of(ZonedOpcode::zone_management_send, "zone-send", IoData::descriptor_extension, false, true),
    of(ZonedOpcode::zone_management_receive, "zone-receive", IoData::dwords, false, false),
};

// A zoned namespace has all commands of the NVM command set, too.
inline constexpr auto kZoned = joined(kNvmAnywhere, kOfZonesAlone);

constexpr IoCommand of(KvOpcode opcode, std::string_view name, IoData data, bool changes_values) {
  return {static_cast<std::uint8_t>(opcode), name, data, false, changes_values, false};
}

inline constexpr std::array kKeyValue = {
    of(NvmOpcode::flush, "flush", IoData::none, false, false, false), of(KvOpcode::store, "store", IoData::bytes, true),
    of(KvOpcode::retrieve, "retrieve", IoData::bytes, false),         of(KvOpcode::list, "list", IoData::bytes, false),
    of(KvOpcode::delete_key, "delete", IoData::none, true),           of(KvOpcode::exist, "exist", IoData::none, false),
};

}  // namespace io_commands_detail

// The sets that are known here.
inline constexpr std::array kIoCommandSets = {Csi::nvm, Csi::key_value, Csi::zoned};

// None for a set that nothing here knows.
constexpr std::span<const IoCommand> io_commands(Csi csi) {
  switch (csi) {
    case Csi::nvm:
      return io_commands_detail::kNvm;
    case Csi::key_value:
      return io_commands_detail::kKeyValue;
    case Csi::zoned:
      return io_commands_detail::kZoned;
    default:
      return {};
  }
}

// The command set that the descriptors of a namespace (Identify CNS 03h) name; without one, NVM.
constexpr Csi command_set_in(std::span<const std::uint8_t> descriptors) {
  constexpr std::size_t kHeader = sizeof(NamespaceIdentificationDescriptor);
  for (std::size_t at = 0; at + kHeader < descriptors.size() && descriptors[at + 1] != 0;
       at += kHeader + descriptors[at + 1])
    if (descriptors[at] == static_cast<std::uint8_t>(NamespaceIdentifierType::csi))
      return static_cast<Csi>(descriptors[at + kHeader]);
  return Csi::nvm;
}

// nullptr: the set has no such command.
constexpr const IoCommand* find_io_command(Csi csi, std::uint8_t opcode) {
  for (const IoCommand& command : io_commands(csi))
    if (command.opcode == opcode) return &command;
  return nullptr;
}

}  // namespace flashmob::nvme
