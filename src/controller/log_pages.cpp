// Get Log Page (NVMe Base 2.0c, 5.16). A page is built whole, then the part that the host asked for is copied; bytes
// asked for beyond its end are zero.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "command_set/registry.h"
#include "controller/controller.h"
#include "controller/effects.h"
#include "nvme/identify.h"
#include "nvme/log_page.h"

namespace flashmob::controller {

using nvme::LogPage;
using nvme::Status;

namespace {

using Page = std::vector<std::byte>;

constexpr std::size_t kWholeLogBytes = 4096;  // of NVMe-MI commands, and of a command set's pages

template <class T>
Page page_of(const T& structure) {
  Page page(sizeof(T));
  std::memcpy(page.data(), &structure, sizeof(T));
  return page;
}

nvme::SupportedLogPages supported_log_pages(std::uint64_t command_sets, bool has_placement) {
  nvme::SupportedLogPages page{};
  for (const LogPage lid :
       {LogPage::supported_log_pages, LogPage::error_information, LogPage::smart_health, LogPage::firmware_slot,
        LogPage::changed_namespace_list, LogPage::commands_supported_and_effects,
        LogPage::feature_identifiers_supported_and_effects, kNvmeMiCommandsPage}) {
    page.lid[static_cast<std::size_t>(lid)] = nvme::kLidSupported;
  }
  if (has_placement) {
    for (const LogPage lid : {LogPage::endurance_group, LogPage::fdp_configurations, LogPage::fdp_handle_usage,
                              LogPage::fdp_statistics, LogPage::fdp_events})
      page.lid[static_cast<std::size_t>(lid)] = nvme::kLidSupported;
  }
  for (const command_set::CommandSet* const set : command_set::command_sets()) {
    if ((command_sets & nvme::io_command_set_bit(set->csi())) == 0) continue;
    for (const LogPage lid : set->log_pages()) page.lid[static_cast<std::size_t>(lid)] = nvme::kLidSupported;
  }
  return page;
}

nvme::FirmwareSlot firmware_slot(const std::string& revision) {
  nvme::FirmwareSlot page{};
  page.afi = 1;
  std::memset(page.frs[0], ' ', sizeof(page.frs[0]));
  std::memcpy(page.frs[0], revision.data(), std::min(sizeof(page.frs[0]), revision.size()));
  return page;
}

nvme::Uint128 data_units(std::uint64_t bytes) {
  return nvme::to_uint128(bytes / nvme::kSmartDataUnitBytes + (bytes % nvme::kSmartDataUnitBytes != 0));
}

nvme::SmartHealth smart_health(const IoCounters& counters, std::uint64_t powered_ns) {
  constexpr std::uint64_t kMinuteNs = 60'000'000'000;
  nvme::SmartHealth page{};
  page.composite_temperature[0] = static_cast<std::uint8_t>(kCompositeTemperature & 0xFF);
  page.composite_temperature[1] = static_cast<std::uint8_t>(kCompositeTemperature >> 8);
  page.available_spare = 100;
  page.available_spare_threshold = 10;
  page.data_units_read = data_units(counters.read_bytes);
  page.data_units_written = data_units(counters.written_bytes);
  page.host_read_commands = nvme::to_uint128(counters.read_commands);
  page.host_write_commands = nvme::to_uint128(counters.write_commands);
  page.controller_busy_time = nvme::to_uint128(counters.busy_ns / kMinuteNs);
  page.power_cycles = nvme::to_uint128(1);  // a process is powered once, and never loses power while it can be asked
  page.power_on_hours = nvme::to_uint128(powered_ns / (60 * kMinuteNs));
  return page;
}

}  // namespace

std::uint8_t Controller::critical_warning() const {
  const bool hot = kCompositeTemperature >= features_.over_temperature();
  const bool cold = kCompositeTemperature <= features_.under_temperature();
  return hot || cold ? nvme::kCriticalWarningTemperature : 0;
}

// The command set that has such a page for each of its namespaces; nullptr: none.
const command_set::CommandSet* Controller::set_with_log(LogPage lid) const {
  for (const command_set::CommandSet* const set : command_set::command_sets()) {
    const auto pages = set->log_pages();
    if ((subsystem_.command_sets() & nvme::io_command_set_bit(set->csi())) != 0 &&
        std::find(pages.begin(), pages.end(), lid) != pages.end())
      return set;
  }
  return nullptr;
}

AdminResult Controller::get_log_page(const nvme::Sqe& sqe) {
  const nvme::GetLogPage f = nvme::decode_get_log_page(sqe);
  const auto lid = static_cast<LogPage>(f.lid);
  Page page;
  const command_set::CommandSet* of_set = nullptr;
  switch (lid) {
    case LogPage::supported_log_pages:
      page = page_of(supported_log_pages(subsystem_.command_sets(), subsystem_.placement() != nullptr));
      break;
    case LogPage::error_information:
      page = page_of(error_log_.read());
      break;
    case LogPage::smart_health: {
      std::unique_lock lock(subsystem_.mutex());
      const IoCounters counters = subsystem_.counters();
      lock.unlock();
      nvme::SmartHealth health = smart_health(counters, subsystem_.powered_ns(now_ns_));
      health.critical_warning = critical_warning();
      health.media_errors = nvme::to_uint128(error_log_.media_errors());
      health.error_log_entries = nvme::to_uint128(error_log_.total());
      page = page_of(health);
      break;
    }
    case LogPage::firmware_slot:
      page = page_of(firmware_slot(subsystem_.config().firmware));
      break;
    case LogPage::changed_namespace_list:
      page.resize(sizeof(nvme::ChangedNamespaceList));  // read below, once the request is known to be right
      break;
    case LogPage::commands_supported_and_effects: {
      const auto csi = static_cast<nvme::Csi>(f.csi);
      if (f.csi >= 64 || (subsystem_.command_sets() & nvme::io_command_set_bit(csi)) == 0)
        return fail(Status::invalid_field, location(14, 24));
      page = page_of(command_effects(csi, role_.fabrics, host_.basic_commands_only(), rights(),
                                     subsystem_.placement() != nullptr));
      break;
    }
    case LogPage::feature_identifiers_supported_and_effects:
      page = page_of(feature_effects(features_));
      break;
    default:
      if (is_placement_page(lid)) {
        if (const Status status = placement_page(f, page); status != Status::success)
          return fail(status, status == Status::invalid_field ? location(11, 16) : kAtCdw10);
        break;
      }
      of_set = set_with_log(lid);
      if (of_set == nullptr && lid != kNvmeMiCommandsPage) return fail(Status::invalid_log_page, kAtCdw10);
      page.resize(kWholeLogBytes);  // of a command set: read below; no command of a management interface is supported
      break;
  }
  if (of_set != nullptr) {
    if (!is_valid_nsid(sqe.nsid)) return fail(Status::invalid_namespace_or_format, kAtNsid);
    const command_set::Namespace* const ns = attached(sqe.nsid);
    if (ns == nullptr || ns->command_set != of_set) return fail(Status::invalid_field, kAtNsid);
  } else if (!is_placement_page(lid) && sqe.nsid != nvme::kNsidNone && sqe.nsid != nvme::kNsidBroadcast) {
    return fail(Status::invalid_field, kAtNsid);  // none of these pages is kept per namespace
  }
  if (f.uuid_index != 0) return fail(Status::invalid_field, location(14));
  if (f.ot) return fail(Status::invalid_field, location(14, 23));
  if (f.lpo % 4 != 0 || f.lpo > page.size()) return fail(Status::invalid_field, location(12));
  const std::uint64_t bytes = (std::uint64_t{f.numd} + 1) * 4;
  if (bytes > io_limits_.max_transfer_bytes) return fail(Status::invalid_field, location(10, 16));

  if (lid == LogPage::changed_namespace_list) page = page_of(changed_namespaces_.read(f.rae));
  if (of_set != nullptr) {
    const std::lock_guard lock(subsystem_.mutex());
    page = of_set->log_page(lid, *attached(sqe.nsid), f.rae);
  }
  page.erase(page.begin(), page.begin() + static_cast<std::ptrdiff_t>(f.lpo));
  page.resize(bytes);
  if (const Status status = to_guest(sqe, page); status != Status::success) return fail(status, kAtPrp1);
  if (!f.rae) events_.on_log_read(lid);
  return succeed();
}

}  // namespace flashmob::controller
