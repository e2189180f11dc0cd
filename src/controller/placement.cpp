// Flexible Data Placement as an administrator sees it: directives, the features that enable it and its events, its log
// pages, and the one endurance group (NVMe Base 2.1, 5.1.12.1.28 to 5.1.12.1.31, 5.1.25.1.20, 5.1.25.1.21 and 8.1.8).
#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>

#include "command_set/placement.h"
#include "controller/controller.h"
#include "nvme/identify.h"
#include "nvme/placement.h"

namespace flashmob::controller {

using command_set::Placement;
using nvme::LogPage;
using nvme::Status;

namespace {

constexpr std::uint16_t kAtPlacedGroup = location(11);
constexpr std::uint16_t kAtPlacementValue = location(12);
constexpr std::uint16_t kAtDirectiveType = location(11, 8);
constexpr std::uint8_t kTheConfiguration = 0;

using Page = std::vector<std::byte>;

template <class T>
void append(Page& page, const T& structure) {
  const auto bytes = std::as_bytes(std::span(&structure, 1));
  page.insert(page.end(), bytes.begin(), bytes.end());
}

Page configurations(const Placement& placement, bool has_write_cache) {
  nvme::FdpConfiguration one{};
  const std::size_t length = sizeof(one) + placement.handles() * sizeof(nvme::FdpHandle);
  one.dsze = static_cast<std::uint16_t>((length + 7) / 8 * 8);
  one.fdpa = static_cast<std::uint8_t>(placement.group_bits() | nvme::kFdpaValid |
                                       (has_write_cache ? nvme::kFdpaVolatileWriteCache : 0));
  one.nrg = placement.groups();
  one.nruh = static_cast<std::uint16_t>(placement.handles());
  one.maxpids = static_cast<std::uint16_t>(placement.max_identifiers() - 1);
  one.nns = kMaxNamespaces;
  one.runs = placement.unit_bytes();
  nvme::FdpConfigurations header{};
  header.sze = static_cast<std::uint32_t>(sizeof(header) + one.dsze);
  Page page;
  append(page, header);
  append(page, one);
  const std::uint8_t type =
      placement.is_persistently_isolated() ? nvme::kPersistentlyIsolated : nvme::kInitiallyIsolated;
  for (std::uint32_t handle = 0; handle < placement.handles(); ++handle)
    append(page, nvme::FdpHandle{.ruht = type, .reserved1 = {}});
  page.resize(header.sze);
  return page;
}

Page statistics_page(const Placement& placement) {
  const Placement::Statistics now = placement.statistics();
  nvme::FdpStatistics s{};
  s.hbmw = nvme::to_uint128(now.host_bytes);
  s.mbmw = nvme::to_uint128(now.media_bytes);
  s.mbe = nvme::to_uint128(now.erased_bytes);
  Page page;
  append(page, s);
  return page;
}

// All of those that there are, hosts have caused. `is_shown`: whether this host is told of a namespace.
template <class IsShown>
Page events_page(const Placement& placement, bool of_hosts, const Subsystem& subsystem, const IsShown& is_shown) {
  nvme::FdpEvents log{};
  if (of_hosts) {
    for (const Placement::Event& event : placement.events()) {
      if (!is_shown(event.nsid)) continue;
      nvme::FdpEvent& entry = log.event[log.num++];
      entry.type = static_cast<std::uint8_t>(event.type);
      entry.flags = nvme::kFdpEventIdentifierValid | nvme::kFdpEventNamespaceValid | nvme::kFdpEventLocationValid;
      entry.pid = event.identifier;
      entry.timestamp =
          nvme::encode_timestamp(subsystem.powered_ns(event.at_ns) / 1'000'000, nvme::kTimestampOriginReset);
      entry.nsid = event.nsid;
      entry.rgid = event.target.group;
      entry.ruhid = static_cast<std::uint8_t>(event.target.handle);
    }
  }
  Page page;
  append(page, log);
  return page;
}

}  // namespace

bool Controller::is_placement_page(LogPage lid) const {
  return subsystem_.placement() != nullptr &&
         (lid == LogPage::endurance_group || lid == LogPage::fdp_configurations || lid == LogPage::fdp_handle_usage ||
          lid == LogPage::fdp_statistics || lid == LogPage::fdp_events);
}

// A page of the endurance group that the log specific identifier names.
Status Controller::placement_page(const nvme::GetLogPage& fields, Page& page) {
  if (fields.lsi != command_set::kEnduranceGroup) return Status::invalid_field;
  const Placement& placement = *subsystem_.placement();
  const auto lid = static_cast<LogPage>(fields.lid);
  const std::lock_guard lock(subsystem_.mutex());
  if (lid == LogPage::endurance_group) {
    append(page, endurance_group());
    return Status::success;
  }
  if (lid == LogPage::fdp_configurations) {
    page = configurations(placement, config_.volatile_write_cache);
    return Status::success;
  }
  if (!placement.is_enabled()) return Status::fdp_disabled;
  if (lid == LogPage::fdp_statistics) {
    page = statistics_page(placement);
  } else if (lid == LogPage::fdp_events) {
    page = events_page(placement, (fields.lsp & nvme::kFdpHostEvents) != 0, subsystem_,
                       [this](std::uint32_t nsid) { return rights().sees(nsid) || rights().may_manage(); });
  } else {
    append(page, nvme::FdpHandleUsage{.nruh = static_cast<std::uint16_t>(placement.handles()), .reserved2 = {}});
    for (const nvme::FdpHandleAttribute attribute : subsystem_.handle_attributes())
      append(page, nvme::FdpHandleUsageEntry{.ruha = static_cast<std::uint8_t>(attribute), .reserved1 = {}});
  }
  return Status::success;
}

// The subsystem's mutex is held.
nvme::EnduranceGroupInformation Controller::endurance_group() const {
  const auto units = [](std::uint64_t bytes) {
    return nvme::to_uint128(bytes / nvme::kEnduranceUnitBytes + (bytes % nvme::kEnduranceUnitBytes != 0));
  };
  const IoCounters counters = subsystem_.counters();
  const Placement::Statistics written = subsystem_.placement()->statistics();
  nvme::EnduranceGroupInformation e{};
  e.available_spare = 100;
  e.available_spare_threshold = 10;
  e.data_units_read = units(counters.read_bytes);
  e.data_units_written = units(counters.written_bytes);
  e.media_units_written = units(written.media_bytes);
  e.host_read_commands = nvme::to_uint128(counters.read_commands);
  e.host_write_commands = nvme::to_uint128(counters.write_commands);
  e.media_errors = nvme::to_uint128(error_log_.media_errors());
  e.error_log_entries = nvme::to_uint128(error_log_.total());
  if (rights().may_list()) {
    e.total_capacity = nvme::to_uint128(subsystem_.total_capacity_bytes());
    e.unallocated_capacity = nvme::to_uint128(subsystem_.unallocated_capacity_bytes());
  }
  return e;
}

AdminResult Controller::identify_endurance_groups(const nvme::Sqe& sqe, const nvme::Identify& fields) {
  nvme::EnduranceGroupList list{};
  if (fields.cns_specific <= command_set::kEnduranceGroup) list.identifier[list.num++] = command_set::kEnduranceGroup;
  return answer(sqe, list);
}

AdminResult Controller::directive_receive(const nvme::Sqe& sqe) {
  if (subsystem_.placement() == nullptr) return fail(Status::invalid_opcode, location(0));
  if (nvme::directive_type(sqe) != nvme::Directive::identify) return fail(Status::invalid_field, kAtDirectiveType);
  if (nvme::directive_operation(sqe) != nvme::kReturnParameters) return fail(Status::invalid_field, kAtPlacedGroup);
  const std::uint64_t bytes = (std::uint64_t{sqe.cdw10} + 1) * 4;
  if (bytes > io_limits_.max_transfer_bytes) return fail(Status::invalid_field, kAtCdw10);
  const command_set::Namespace* ns = nullptr;
  if (sqe.nsid != nvme::kNsidBroadcast) {
    if (!is_valid_nsid(sqe.nsid)) return fail(Status::invalid_namespace_or_format, kAtNsid);
    ns = attached(sqe.nsid);
    if (ns == nullptr) return fail(Status::invalid_field, kAtNsid);
  }
  constexpr auto kIdentify = static_cast<std::uint8_t>(1u << static_cast<unsigned>(nvme::Directive::identify));
  constexpr auto kPlacing = static_cast<std::uint8_t>(1u << static_cast<unsigned>(nvme::Directive::data_placement));
  nvme::DirectiveParameters parameters{};
  parameters.supported[0] = kIdentify | kPlacing;
  parameters.enabled[0] = kIdentify;
  if (ns != nullptr && ns->placement != nullptr && ns->placement->is_directed()) parameters.enabled[0] |= kPlacing;
  parameters.persistent[0] = kIdentify | kPlacing;
  Page page;
  append(page, parameters);
  page.resize(bytes);
  const Status status = to_guest(sqe, page);
  return status == Status::success ? succeed() : fail(status, kAtPrp1);
}

// Enable Directive of the Identify directive, which is all that can be sent.
AdminResult Controller::directive_send(const nvme::Sqe& sqe) {
  if (subsystem_.placement() == nullptr) return fail(Status::invalid_opcode, location(0));
  if (nvme::directive_type(sqe) != nvme::Directive::identify) return fail(Status::invalid_field, kAtDirectiveType);
  if (nvme::directive_operation(sqe) != nvme::kEnableDirective) return fail(Status::invalid_field, kAtPlacedGroup);
  if (nvme::enabled_directive(sqe) != nvme::Directive::data_placement)
    return fail(Status::invalid_field, kAtPlacementValue);
  if (!is_valid_nsid(sqe.nsid)) return fail(Status::invalid_namespace_or_format, kAtNsid);
  const std::lock_guard lock(subsystem_.mutex());
  const command_set::Namespace* const ns = attached(sqe.nsid);
  if (ns == nullptr) return fail(Status::invalid_field, kAtNsid);
  if (ns->placement == nullptr) return fail(Status::fdp_disabled);
  ns->placement->set_directed((sqe.cdw12 & nvme::kDirectiveOn) != 0);
  return succeed();
}

AdminResult Controller::set_placement(const nvme::Sqe& sqe, bool save) {
  if (!rights().may_manage()) return fail(Status::feature_not_changeable);
  if ((sqe.cdw11 & nvme::kFdpGroupMask) != command_set::kEnduranceGroup)
    return fail(Status::invalid_field, kAtPlacedGroup);
  if (nvme::fdp_configuration_index(sqe.cdw12) != kTheConfiguration)
    return fail(Status::invalid_field, kAtPlacementValue);
  // What it changes outlives the controller whether or not that is asked for, so it has to be.
  if (!save) return fail(Status::invalid_field, location(10, 31));
  const bool enabled = (sqe.cdw12 & nvme::kFdpEnable) != 0;
  const std::lock_guard lock(subsystem_.mutex());
  if (enabled == subsystem_.placement()->is_enabled()) return succeed();
  if (subsystem_.has_namespaces()) return fail(Status::command_sequence_error);
  subsystem_.placement()->set_enabled(enabled);
  return succeed();
}

AdminResult Controller::get_placement(const nvme::Sqe& sqe, nvme::FeatureSelect select) {
  if ((sqe.cdw11 & nvme::kFdpGroupMask) != command_set::kEnduranceGroup)
    return fail(Status::invalid_field, kAtPlacedGroup);
  const bool enabled = select == nvme::FeatureSelect::default_value ? subsystem_.config().placement.enabled
                                                                    : subsystem_.placement()->is_enabled();
  return succeed((enabled ? nvme::kFdpEnable : 0) | (std::uint32_t{kTheConfiguration} << 8));
}

// Of the handle that CDW11 names as a namespace's; nothing: there is none, and why.
std::optional<std::uint16_t> Controller::handle_of_events(const nvme::Sqe& sqe, AdminResult& why) {
  const command_set::Namespace* const ns = sqe.nsid == 0 ? nullptr : attached(sqe.nsid);
  if (ns == nullptr) {
    why = fail(Status::invalid_namespace_or_format, kAtNsid);
    return std::nullopt;
  }
  if (ns->placement == nullptr) {
    why = fail(Status::fdp_disabled);
    return std::nullopt;
  }
  const std::uint16_t placement_handle = nvme::fdp_events_handle(sqe.cdw11);
  const auto& handles = ns->placement->handles();
  if (placement_handle < handles.size()) return handles[placement_handle];
  why = fail(Status::invalid_field, kAtPlacedGroup);
  return std::nullopt;
}

AdminResult Controller::set_placement_events(const nvme::Sqe& sqe) {
  // It is the drive's, for all who use the handle, and outlives the controller.
  if (!rights().may_save()) return fail(Status::feature_not_changeable);
  AdminResult why = succeed();
  const std::optional<std::uint16_t> handle = handle_of_events(sqe, why);
  if (!handle) return why;
  std::array<std::uint8_t, UINT8_MAX> storage;
  const auto types = std::span(storage).first(nvme::fdp_events_count(sqe.cdw11));
  if (types.empty()) return succeed();
  if (const Status status = from_guest(sqe, std::as_writable_bytes(types)); status != Status::success)
    return fail(status, kAtPrp1);
  const auto is_known = [](std::uint8_t type) {
    return std::ranges::find(Placement::kEventTypes, static_cast<nvme::FdpEventType>(type)) !=
           Placement::kEventTypes.end();
  };
  if (!std::ranges::all_of(types, is_known)) return fail(Status::invalid_field);
  const bool enabled = (sqe.cdw12 & nvme::kFdpEventEnable) != 0;
  for (const std::uint8_t type : types)
    subsystem_.placement()->set_reports(*handle, static_cast<nvme::FdpEventType>(type), enabled);
  return succeed();
}

AdminResult Controller::get_placement_events(const nvme::Sqe& sqe, nvme::FeatureSelect select) {
  AdminResult why = succeed();
  const std::optional<std::uint16_t> handle = handle_of_events(sqe, why);
  if (!handle) return why;
  std::array<nvme::FdpSupportedEvent, Placement::kEventTypes.size()> events{};
  for (std::size_t i = 0; i < events.size(); ++i) {
    const nvme::FdpEventType type = Placement::kEventTypes[i];
    const bool enabled = select == nvme::FeatureSelect::current && subsystem_.placement()->reports(*handle, type);
    events[i] = {static_cast<std::uint8_t>(type), enabled ? nvme::kFdpEventEnabled : std::uint8_t{0}};
  }
  if (const Status status = to_guest(sqe, std::as_bytes(std::span(events))); status != Status::success)
    return fail(status, kAtPrp1);
  return succeed(static_cast<std::uint32_t>(events.size()));
}

// NPHNDLS and PHNDL of a namespace that is to be made, whose fields lie in the page that Identify has, too.
Status Controller::wanted_handles(std::span<const std::byte> page, std::uint32_t lba_bytes,
                                  std::vector<std::uint16_t>& handles, bool& is_chosen) {
  std::uint16_t count = 0;
  std::memcpy(&count, page.data() + nvme::kPlacementHandleCountAt, sizeof(count));
  const Placement& placement = *subsystem_.placement();
  if (count > std::min(placement.handles(), nvme::kMaxPlacementHandles)) return Status::invalid_field;
  const std::vector<nvme::FdpHandleAttribute> attributes = subsystem_.handle_attributes();
  using nvme::FdpHandleAttribute;
  is_chosen = count == 0;
  if (is_chosen) {
    // The one that was chosen before, or one that no host has named.
    auto found = std::ranges::find(attributes, FdpHandleAttribute::controller_specified);
    if (found == attributes.end()) found = std::ranges::find(attributes, FdpHandleAttribute::unused);
    if (found == attributes.end()) return Status::invalid_placement_handle_list;
    handles = {static_cast<std::uint16_t>(found - attributes.begin())};
  }
  for (std::uint16_t i = 0; i < count; ++i) {
    std::uint16_t handle = 0;
    std::memcpy(&handle, page.data() + nvme::kPlacementHandlesAt + i * sizeof(handle), sizeof(handle));
    if (handle >= placement.handles() || attributes[handle] == FdpHandleAttribute::controller_specified ||
        std::ranges::find(handles, handle) != handles.end())
      return Status::invalid_placement_handle_list;
    handles.push_back(handle);
  }
  return subsystem_.share_format(handles, lba_bytes) ? Status::success : Status::invalid_format;
}

}  // namespace flashmob::controller
