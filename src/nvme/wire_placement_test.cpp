// Compares what is told of Flexible Data Placement with libnvme's independent definitions.
#include <cstddef>
#include <cstdint>

#if !__has_include(<libnvme.h>)
#error "libnvme's headers are missing: install the package libnvme-dev (Debian, Ubuntu) or libnvme-devel (Fedora)"
#endif
extern "C" {
#include <libnvme.h>
}

#include "gtest/gtest.h"
#include "nvme/identify_controller.h"
#include "nvme/log_page.h"
#include "nvme/opcode.h"
#include "nvme/placement.h"

#define SAME_PLACE(ours, theirs)                     \
  EXPECT_EQ(offsetof(T, ours), offsetof(U, theirs)); \
  EXPECT_EQ(sizeof(T::ours), sizeof(U::theirs))
#define SAME_NUMBER(ours, theirs) EXPECT_EQ(static_cast<std::uint64_t>(ours), static_cast<std::uint64_t>(theirs))

namespace flashmob::nvme {
namespace {

TEST(WirePlacement, Configurations) {
  {
    using T = FdpConfigurations;
    using U = struct nvme_fdp_config_log;
    SAME_PLACE(numfdpc, n);
    SAME_PLACE(version, version);
    SAME_PLACE(sze, size);
    EXPECT_EQ(sizeof(T), offsetof(U, configs));
  }
  using T = FdpConfiguration;
  using U = struct nvme_fdp_config_desc;
  SAME_PLACE(dsze, size);
  SAME_PLACE(fdpa, fdpa);
  SAME_PLACE(vss, vss);
  SAME_PLACE(nrg, nrg);
  SAME_PLACE(nruh, nruh);
  SAME_PLACE(maxpids, maxpids);
  SAME_PLACE(nns, nnss);
  SAME_PLACE(runs, runs);
  SAME_PLACE(erutl, erutl);
  EXPECT_EQ(sizeof(T), offsetof(U, ruhs));
  EXPECT_EQ(sizeof(FdpHandle), sizeof(struct nvme_fdp_ruh_desc));
  SAME_NUMBER(kInitiallyIsolated, NVME_FDP_RUHT_INITIALLY_ISOLATED);
  SAME_NUMBER(kPersistentlyIsolated, NVME_FDP_RUHT_PERSISTENTLY_ISOLATED);
  SAME_NUMBER(kFdpaGroupFormatMask, NVME_FDP_CONFIG_FDPA_RGIF_MASK << NVME_FDP_CONFIG_FDPA_RGIF_SHIFT);
  SAME_NUMBER(kFdpaVolatileWriteCache, NVME_FDP_CONFIG_FDPA_FDPVWC_MASK << NVME_FDP_CONFIG_FDPA_FDPVWC_SHIFT);
  SAME_NUMBER(kFdpaValid, NVME_FDP_CONFIG_FDPA_VALID_MASK << NVME_FDP_CONFIG_FDPA_VALID_SHIFT);
}

TEST(WirePlacement, UsageAndStatistics) {
  EXPECT_EQ(sizeof(FdpHandleUsage), offsetof(struct nvme_fdp_ruhu_log, ruhus));
  EXPECT_EQ(sizeof(FdpHandleUsageEntry), sizeof(struct nvme_fdp_ruhu_desc));
  using T = FdpStatistics;
  using U = struct nvme_fdp_stats_log;
  EXPECT_EQ(sizeof(T), sizeof(U));
  SAME_PLACE(hbmw, hbmw);
  SAME_PLACE(mbmw, mbmw);
  SAME_PLACE(mbe, mbe);
}

TEST(WirePlacement, Events) {
  using T = FdpEvent;
  using U = struct nvme_fdp_event;
  EXPECT_EQ(sizeof(T), sizeof(U));
  SAME_PLACE(type, type);
  SAME_PLACE(flags, flags);
  SAME_PLACE(pid, pid);
  SAME_PLACE(timestamp, ts);
  SAME_PLACE(nsid, nsid);
  SAME_PLACE(type_specific, type_specific);
  SAME_PLACE(rgid, rgid);
  SAME_PLACE(ruhid, ruhid);
  EXPECT_EQ(sizeof(FdpEvents), sizeof(struct nvme_fdp_events_log));
  EXPECT_EQ(offsetof(FdpEvents, event), offsetof(struct nvme_fdp_events_log, events));
  SAME_NUMBER(FdpEventType::not_fully_written, NVME_FDP_EVENT_RUNFW);
  SAME_NUMBER(FdpEventType::time_limit_exceeded, NVME_FDP_EVENT_RUTLE);
  SAME_NUMBER(FdpEventType::reset_modified_handles, NVME_FDP_EVENT_RESET);
  SAME_NUMBER(FdpEventType::invalid_placement_identifier, NVME_FDP_EVENT_PID);
  SAME_NUMBER(FdpEventType::media_reallocated, NVME_FDP_EVENT_REALLOC);
  SAME_NUMBER(FdpEventType::implicitly_modified, NVME_FDP_EVENT_MODIFY);
  SAME_NUMBER(kFdpEventIdentifierValid, NVME_FDP_EVENT_F_PIV);
  SAME_NUMBER(kFdpEventNamespaceValid, NVME_FDP_EVENT_F_NSIDV);
  SAME_NUMBER(kFdpEventLocationValid, NVME_FDP_EVENT_F_LV);
  EXPECT_EQ(sizeof(FdpSupportedEvent), sizeof(struct nvme_fdp_supported_event_desc));
}

TEST(WirePlacement, HandleStatus) {
  EXPECT_EQ(sizeof(HandleStatus), offsetof(struct nvme_fdp_ruh_status, ruhss));
  EXPECT_EQ(offsetof(HandleStatus, nruhsd), offsetof(struct nvme_fdp_ruh_status, nruhsd));
  using T = HandleStatusEntry;
  using U = struct nvme_fdp_ruh_status_desc;
  EXPECT_EQ(sizeof(T), sizeof(U));
  SAME_PLACE(pid, pid);
  SAME_PLACE(ruhid, ruhid);
  SAME_PLACE(earutr, earutr);
  SAME_PLACE(ruamw, ruamw);
}

TEST(WirePlacement, Numbers) {
  SAME_NUMBER(AdminOpcode::directive_send, nvme_admin_directive_send);
  SAME_NUMBER(AdminOpcode::directive_receive, nvme_admin_directive_recv);
  SAME_NUMBER(NvmOpcode::io_management_receive, nvme_cmd_io_mgmt_recv);
  SAME_NUMBER(NvmOpcode::io_management_send, nvme_cmd_io_mgmt_send);
  SAME_NUMBER(LogPage::fdp_configurations, NVME_LOG_LID_FDP_CONFIGS);
  SAME_NUMBER(LogPage::fdp_handle_usage, NVME_LOG_LID_FDP_RUH_USAGE);
  SAME_NUMBER(LogPage::fdp_statistics, NVME_LOG_LID_FDP_STATS);
  SAME_NUMBER(LogPage::fdp_events, NVME_LOG_LID_FDP_EVENTS);
  SAME_NUMBER(Feature::flexible_data_placement, NVME_FEAT_FID_FDP);
  SAME_NUMBER(Feature::fdp_events, NVME_FEAT_FID_FDP_EVENTS);
  SAME_NUMBER(kHandleStatus, NVME_IO_MGMT_RECV_RUH_STATUS);
  SAME_NUMBER(kHandleUpdate, NVME_IO_MGMT_SEND_RUH_UPDATE);
  SAME_NUMBER(kCtrattFlexibleDataPlacement, NVME_CTRL_CTRATT_FDPS);
  SAME_NUMBER(kCtrattEnduranceGroups, NVME_CTRL_CTRATT_ENDURANCE_GROUPS);
}

TEST(WirePlacement, FieldsOfCommands) {
  Sqe sqe{};
  sqe.cdw10 = 0x00020001;
  EXPECT_EQ(io_management_operation(sqe), 1);
  EXPECT_EQ(placement_identifier_count(sqe), 3u);
  sqe.cdw12 = 0x00200007;
  sqe.cdw13 = 0x80010000;
  EXPECT_EQ(write_directive(sqe), Directive::data_placement);
  EXPECT_EQ(placement_identifier(sqe), 0x8001);
  sqe.cdw11 = 0x00000001;
  sqe.cdw12 = 0x00000201;
  EXPECT_EQ(directive_type(sqe), Directive::identify);
  EXPECT_EQ(directive_operation(sqe), kEnableDirective);
  EXPECT_EQ(enabled_directive(sqe), Directive::data_placement);
  EXPECT_EQ(fdp_configuration_index(0x0301), 3);
  EXPECT_EQ(fdp_events_handle(0x00030001), 1);
  EXPECT_EQ(fdp_events_count(0x00030001), 3);
}

}  // namespace
}  // namespace flashmob::nvme
