// Identify (NVMe Base 2.0c, 5.17): the dispatcher and what it says of controllers. Values are those that the code
// keeps: a capability is reported only where a command implements it.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "command_set/registry.h"
#include "controller/controller.h"
#include "controller/identity.h"
#include "nvme/identify_controller.h"

namespace flashmob::controller {

using nvme::Cns;
using nvme::Status;

namespace {

constexpr std::uint16_t kAtCntid = location(10, 16);
constexpr std::uint16_t kAtCsi = location(11, 24);
constexpr std::uint16_t kThisController = 0xFFFF;
constexpr std::uint8_t kFirstOfSubsystem = 0x10;
constexpr std::uint8_t kRecommendedBurstLog2 = 7;
constexpr std::uint16_t kMaxPowerCentiwatts = 2500;

// ASCII fields are padded with spaces, not terminated.
template <std::size_t N>
void put_ascii(char (&field)[N], std::string_view text) {
  std::memset(field, ' ', N);
  std::copy_n(text.begin(), std::min(N, text.size()), field);
}

}  // namespace

AdminResult Controller::identify(const nvme::Sqe& sqe) {
  const nvme::Identify f = nvme::decode_identify(sqe);
  const auto cns = static_cast<Cns>(f.cns);
  // A controller without Namespace Management need not answer these, and they tell of other hosts.
  if (f.cns >= kFirstOfSubsystem && cns != Cns::io_command_sets && cns != Cns::endurance_group_list &&
      !rights().may_list())
    return fail(Status::invalid_field, kAtCdw10);
  const bool names_set = cns == Cns::csi_namespace || cns == Cns::csi_allocated_namespace ||
                         cns == Cns::csi_controller || cns == Cns::csi_active_namespace_list ||
                         cns == Cns::csi_allocated_namespace_list;
  const command_set::CommandSet* const set = names_set ? command_set_asked(f) : nullptr;
  if (names_set && set == nullptr) return fail(Status::invalid_field, kAtCsi);
  switch (cns) {
    case Cns::identify_namespace:
      return identify_namespace(sqe, false);
    case Cns::allocated_namespace:
      return identify_namespace(sqe, true);
    case Cns::csi_namespace:
      return identify_namespace_of_set(sqe, *set, false);
    case Cns::csi_allocated_namespace:
      return identify_namespace_of_set(sqe, *set, true);
    case Cns::independent_namespace:
      return identify_namespace_independent(sqe);
    case Cns::identify_controller:
      return identify_controller(sqe);
    case Cns::csi_controller: {
      command_set::IdentifyPage page{};
      set->identify_controller(io_limits_, page);
      return answer(sqe, page);
    }
    case Cns::active_namespace_list:
      return identify_namespace_list(sqe, false, nullptr);
    case Cns::allocated_namespace_list:
      return identify_namespace_list(sqe, true, nullptr);
    case Cns::csi_active_namespace_list:
      return identify_namespace_list(sqe, false, set);
    case Cns::csi_allocated_namespace_list:
      return identify_namespace_list(sqe, true, set);
    case Cns::namespace_identification_descriptors:
      return identify_descriptors(sqe);
    case Cns::namespace_controller_list:
      return identify_controller_list(sqe, f, true);
    case Cns::controller_list:
      return identify_controller_list(sqe, f, false);
    case Cns::endurance_group_list:
      if (subsystem_.placement() == nullptr) return fail(Status::invalid_field, kAtCdw10);
      return identify_endurance_groups(sqe, f);
    case Cns::io_command_sets:
      return identify_io_command_sets(sqe, f);
    default:
      return fail(Status::invalid_field, kAtCdw10);
  }
}

// The set that CDW11 names; nullptr: this controller has no such set.
const command_set::CommandSet* Controller::command_set_asked(const nvme::Identify& fields) const {
  const auto csi = static_cast<nvme::Csi>(fields.csi);
  if (fields.csi >= 64) return nullptr;
  const command_set::CommandSet* const set = command_set::command_set_of(csi);
  return set != nullptr && (subsystem_.command_sets() & nvme::io_command_set_bit(csi)) != 0 ? set : nullptr;
}

AdminResult Controller::identify_controller(const nvme::Sqe& sqe) {
  const SubsystemConfig& identity = subsystem_.config();
  nvme::IdentifyController c{};
  c.vid = kPciVendorId;
  c.ssvid = kPciVendorId;
  put_ascii(c.sn, identity.serial);
  put_ascii(c.mn, identity.model);
  put_ascii(c.fr, identity.firmware);
  c.rab = kRecommendedBurstLog2;
  std::reverse_copy(kOui.begin(), kOui.end(), c.ieee);
  c.mdts = static_cast<std::uint8_t>(std::countr_zero(config_.max_transfer_bytes) - 12);
  c.cntlid = cntlid_;
  c.ver = nvme::kVersion20;
  c.oaes = nvme::kOaesNamespaceAttribute;
  c.cntrltype = nvme::kCntrltypeIo;
  if (doorbell_buffers_offered_.load(std::memory_order_relaxed)) c.oacs = nvme::kOacsDoorbellBufferConfig;
  if (rights().may_manage()) {
    c.oacs |= nvme::kOacsFormatNvm | nvme::kOacsNamespaceManagement;
    c.nwpc = nvme::kNwpcProtect | nvme::kNwpcUntilPowerCycle | nvme::kNwpcPermanent;
  }
  c.acl = static_cast<std::uint8_t>(config_.abort_limit - 1);
  c.aerl = static_cast<std::uint8_t>(config_.async_event_limit - 1);
  c.frmw = nvme::kFrmwSlot1ReadOnly | (1u << nvme::kFrmwSlotsShift);
  c.lpa = nvme::kLpaCommandEffects | nvme::kLpaExtendedData | nvme::kLpaSupportedLogPages;
  c.elpe = ErrorLog::kEntries - 1;
  c.wctemp = kWarningTemperature;
  c.cctemp = kCriticalTemperature;
  c.kas = kKeepAliveGranularityMs / 100;
  c.sqes = (nvme::kIoSqEntryBytesLog2 << 4) | nvme::kIoSqEntryBytesLog2;
  c.cqes = (nvme::kIoCqEntryBytesLog2 << 4) | nvme::kIoCqEntryBytesLog2;
  c.maxcmd = static_cast<std::uint16_t>(config_.max_queue_entries - 1);  // a ring keeps one entry empty
  c.nn = kMaxNamespaces;
  c.mnan = kMaxNamespaces;
  c.oncs = nvme::kOncsCompare | nvme::kOncsWriteUncorrectable | nvme::kOncsDatasetManagement | nvme::kOncsWriteZeroes |
           nvme::kOncsSaveFeatures | nvme::kOncsTimestamp | nvme::kOncsVerify | nvme::kOncsCopy;
  c.fuses = nvme::kFusesCompareAndWrite;
  c.vwc = nvme::kVwcFlushBroadcastSupported | (config_.volatile_write_cache ? nvme::kVwcPresent : 0);
  c.cdfs = nvme::kCdfsFormat0;
  c.sgls = nvme::kSglsDwordAligned | nvme::kSglsBitBucket;
  if (host_.basic_commands_only()) {
    c.oncs =
        static_cast<std::uint16_t>(c.oncs & ~(nvme::kOncsWriteUncorrectable | nvme::kOncsVerify | nvme::kOncsCopy));
    c.fuses = 0;
    c.sgls = 0;
  }
  std::memcpy(c.subnqn, identity.nqn.data(), std::min(sizeof(c.subnqn) - 1, identity.nqn.size()));
  c.psd[0].mp = kMaxPowerCentiwatts;
  if (role_.fabrics) describe_fabrics(c);
  if (subsystem_.placement() != nullptr) {
    c.ctratt |= nvme::kCtrattEnduranceGroups | nvme::kCtrattFlexibleDataPlacement;
    c.oacs |= nvme::kOacsDirectives;
    c.endgidmax = command_set::kEnduranceGroup;
  }
  {
    const std::lock_guard lock(subsystem_.mutex());
    c.cmic = role_.fabrics || subsystem_.controllers().size() > 1
                 ? nvme::kCmicMultiplePorts | nvme::kCmicMultipleControllers
                 : 0;
    if (rights().may_list_all()) {
      c.tnvmcap = nvme::to_uint128(subsystem_.total_capacity_bytes());
      c.unvmcap = nvme::to_uint128(subsystem_.unallocated_capacity_bytes());
    }
  }
  return answer(sqe, c);
}

// What differs for hosts that reach us over a network. Their controllers come and go (the dynamic controller model), so
// that there may always be more than one.
void Controller::describe_fabrics(nvme::IdentifyController& c) const {
  constexpr std::uint32_t kUnitBytes = 16;
  c.oacs = static_cast<std::uint16_t>(c.oacs & ~nvme::kOacsDoorbellBufferConfig);
  c.ctratt = nvme::kCtrattHostId128;
  c.sgls = nvme::kSglsSupported | nvme::kSglsOversize | nvme::kSglsOffset | nvme::kSglsTransportDataBlock;
  c.ioccsz = static_cast<std::uint32_t>(sizeof(nvme::Sqe) + role_.in_capsule_bytes) / kUnitBytes;
  c.iorcsz = sizeof(nvme::Cqe) / kUnitBytes;
  c.msdbd = 1;
  c.ofcs = nvme::kOfcsDisconnect;
}

// CNS 13h: all controllers of the subsystem; CNS 12h: those that a namespace is attached to.
AdminResult Controller::identify_controller_list(const nvme::Sqe& sqe, const nvme::Identify& fields,
                                                 bool of_namespace) {
  if (of_namespace && !is_valid_nsid(sqe.nsid)) {
    return sqe.nsid == nvme::kNsidBroadcast ? fail(Status::invalid_field, kAtNsid)
                                            : fail(Status::invalid_namespace_or_format, kAtNsid);
  }
  nvme::ControllerList list{};
  {
    const std::lock_guard lock(subsystem_.mutex());
    for (const Controller* controller : subsystem_.controllers()) {
      if (controller->cntlid() < fields.cntid || list.num == nvme::ControllerList::kMaxEntries) continue;
      if (of_namespace && (!rights().sees(sqe.nsid) || !controller->holds(sqe.nsid))) continue;
      list.identifier[list.num++] = controller->cntlid();
    }
  }
  return answer(sqe, list);
}

// CNS 1Ch: the one combination has all command sets that there are namespaces of, and NVM.
AdminResult Controller::identify_io_command_sets(const nvme::Sqe& sqe, const nvme::Identify& fields) {
  const std::uint16_t asked = fields.cntid == kThisController ? cntlid_ : fields.cntid;
  // Which others there are, the list of controllers says to whom it is shown.
  if (asked != cntlid_) {
    if (!rights().may_list()) return fail(Status::invalid_field, kAtCntid);
    const std::lock_guard lock(subsystem_.mutex());
    const auto& all = subsystem_.controllers();
    const bool exists = std::any_of(all.begin(), all.end(), [&](const Controller* c) { return c->cntlid() == asked; });
    if (!exists) return fail(Status::invalid_field, kAtCntid);
  }
  nvme::IdentifyIoCommandSet sets{};
  sets.iocsc[0] = subsystem_.command_sets();
  return answer(sqe, sets);
}

}  // namespace flashmob::controller
