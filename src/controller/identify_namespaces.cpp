// Identify (NVMe Base 2.0c, 5.17; NVM command set 1.0c, 4.1.5): what it says of namespaces.
//
// An NSID that no namespace can have is Invalid Namespace or Format. One that could but is not attached (for the
// "allocated" forms: not allocated) is answered with a structure of zeroes where the specification asks for that.
#include <algorithm>
#include <cstring>

#include "command_set/lba_formats.h"
#include "command_set/nvm.h"
#include "controller/controller.h"
#include "nvme/identify_namespace.h"

namespace flashmob::controller {

using nvme::Status;

namespace {

// What all namespaces have in common; also the answer for the broadcast NSID.
nvme::IdentifyNamespace common_capabilities() {
  nvme::IdentifyNamespace n{};
  n.nlbaf = command_set::kLbaFormats - 1;
  n.dlfeat = nvme::kDlfeatReadsZeroes | nvme::kDlfeatWriteZeroesDeallocates;
  n.mssrl = command_set::kMaxSingleSourceRangeLength;
  n.mcl = command_set::kMaxCopyLength;
  n.msrc = command_set::kMaxSourceRangeCount;
  for (unsigned format = 0; format < command_set::kLbaFormats; ++format)
    n.lbaf[format].lbads = command_set::lba_format_shift(format);
  return n;
}

nvme::IdentifyNamespace describe(const NamespaceInfo& info, const command_set::IoLimits& limits) {
  nvme::IdentifyNamespace n = common_capabilities();
  const command_set::Namespace& ns = *info.current;
  n.nsze = ns.blocks;
  n.ncap = ns.blocks;
  n.nuse = ns.blocks;  // not thinly provisioned: all of it is spoken for
  n.flbas = command_set::lba_format_of_shift(ns.lba_shift);
  n.nmic = info.config.shared ? nvme::kNmicShared : 0;
  n.endgid = ns.placement != nullptr ? command_set::kEnduranceGroup : 0;
  if (!ns.media->discard_zeroes()) n.dlfeat = nvme::kDlfeatWriteZeroesDeallocates;
  n.nsattr = command_set::may_write(ns, limits) ? 0 : nvme::kNsattrWriteProtected;
  n.nvmcap = nvme::to_uint128(info.capacity_bytes);
  std::copy(info.nguid.begin(), info.nguid.end(), n.nguid);
  std::copy(info.eui64.begin(), info.eui64.end(), n.eui64);
  return n;
}

}  // namespace

// CNS 00h and 11h.
AdminResult Controller::identify_namespace(const nvme::Sqe& sqe, bool allocated) {
  nvme::IdentifyNamespace page{};
  if (sqe.nsid == nvme::kNsidBroadcast && !allocated) {
    page = common_capabilities();
  } else if (!is_valid_nsid(sqe.nsid)) {
    return fail(Status::invalid_namespace_or_format, kAtNsid);
  } else {
    const std::lock_guard lock(subsystem_.mutex());
    const NamespaceInfo& info = subsystem_.info(sqe.nsid);
    const bool exists = allocated ? info.current != nullptr && rights().sees(sqe.nsid) : attached(sqe.nsid) != nullptr;
    // Base 2.0c, Figure 273, note 8: this structure is of command sets with logical blocks.
    if (exists && !info.current->command_set->has_logical_blocks())
      return fail(Status::invalid_io_command_set, kAtNsid);
    if (exists) page = describe(info, io_limits_);
  }
  return answer(sqe, page);
}

// CNS 05h and 1Bh: what a command set says of a namespace. The structure is zero where there is none, and for NVM,
// which has nothing to say without protection information, of all namespaces of logical blocks.
AdminResult Controller::identify_namespace_of_set(const nvme::Sqe& sqe, const command_set::CommandSet& set,
                                                  bool allocated) {
  command_set::IdentifyPage page{};
  if (sqe.nsid == nvme::kNsidBroadcast && !allocated) return answer(sqe, page);
  if (!is_valid_nsid(sqe.nsid)) return fail(Status::invalid_namespace_or_format, kAtNsid);
  {
    const std::lock_guard lock(subsystem_.mutex());
    const command_set::Namespace* const ns =
        allocated ? (rights().sees(sqe.nsid) ? subsystem_.info(sqe.nsid).current : nullptr) : attached(sqe.nsid);
    if (ns != nullptr) {
      const bool is_of_set = ns->command_set == &set;
      const bool is_nvm = set.csi() == nvme::Csi::nvm && ns->command_set->has_logical_blocks();
      if (!is_of_set && !is_nvm) return fail(Status::invalid_field, kAtNsid);
      const NamespaceInfo& info = subsystem_.info(sqe.nsid);
      set.identify_namespace(*ns, {.nguid = info.nguid, .eui64 = info.eui64, .shared = info.config.shared}, io_limits_,
                             page);
    }
  }
  return answer(sqe, page);
}

// CNS 08h.
AdminResult Controller::identify_namespace_independent(const nvme::Sqe& sqe) {
  nvme::IdentifyNamespaceIndependent page{};
  if (sqe.nsid != nvme::kNsidBroadcast) {
    if (!is_valid_nsid(sqe.nsid)) return fail(Status::invalid_namespace_or_format, kAtNsid);
    const std::lock_guard lock(subsystem_.mutex());
    if (const command_set::Namespace* ns = attached(sqe.nsid); ns != nullptr) {
      page.nmic = subsystem_.info(sqe.nsid).config.shared ? nvme::kNmicShared : 0;
      page.nsattr = command_set::may_write(*ns, io_limits_) ? 0 : nvme::kNsattrWriteProtected;
      page.nstat = nvme::kNstatReady;
      page.endgid = ns->placement != nullptr ? command_set::kEnduranceGroup : 0;
    }
  }
  return answer(sqe, page);
}

// CNS 02h, 07h, 10h and 1Ah: identifiers greater than the command's NSID, of all command sets or of one.
AdminResult Controller::identify_namespace_list(const nvme::Sqe& sqe, bool allocated,
                                                const command_set::CommandSet* set) {
  if (sqe.nsid >= nvme::kNsidBroadcast - 1) return fail(Status::invalid_namespace_or_format, kAtNsid);
  nvme::NamespaceList list{};
  {
    const std::lock_guard lock(subsystem_.mutex());
    std::size_t count = 0;
    for (std::uint32_t nsid = sqe.nsid + 1; nsid <= kMaxNamespaces; ++nsid) {
      const command_set::Namespace* const ns = allocated ? subsystem_.info(nsid).current : attached(nsid);
      const bool listed = ns != nullptr && (set == nullptr || ns->command_set == set);
      if (listed && rights().sees(nsid)) list.nsid[count++] = nsid;
    }
  }
  return answer(sqe, list);
}

// CNS 03h.
AdminResult Controller::identify_descriptors(const nvme::Sqe& sqe) {
  if (!is_valid_nsid(sqe.nsid)) return fail(Status::invalid_namespace_or_format, kAtNsid);
  std::array<std::byte, nvme::kIdentifyBytes> list{};
  std::size_t at = 0;
  const auto append = [&](nvme::NamespaceIdentifierType type, std::span<const std::uint8_t> identifier) {
    nvme::NamespaceIdentificationDescriptor header{};
    header.nidt = static_cast<std::uint8_t>(type);
    header.nidl = static_cast<std::uint8_t>(identifier.size());
    std::memcpy(&list[at], &header, sizeof(header));
    std::memcpy(&list[at + sizeof(header)], identifier.data(), identifier.size());
    at += sizeof(header) + identifier.size();
  };
  {
    const std::lock_guard lock(subsystem_.mutex());
    const command_set::Namespace* const ns = attached(sqe.nsid);
    if (ns == nullptr) return fail(Status::invalid_field, kAtNsid);
    const NamespaceInfo& info = subsystem_.info(sqe.nsid);
    append(nvme::NamespaceIdentifierType::eui64, info.eui64);
    append(nvme::NamespaceIdentifierType::nguid, info.nguid);
    append(nvme::NamespaceIdentifierType::uuid, info.uuid);
    const std::uint8_t csi[] = {static_cast<std::uint8_t>(ns->command_set->csi())};
    append(nvme::NamespaceIdentifierType::csi, csi);
  }
  return answer(sqe, list);
}

}  // namespace flashmob::controller
