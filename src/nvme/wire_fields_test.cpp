// Compares log pages, features, registers, events and command dwords with libnvme's independent definitions, and
// checks that every encoder and decoder pair agrees. The structures of Identify are in wire_test.cpp.
#include <cstddef>
#include <cstdint>

#if !__has_include(<libnvme.h>)
#error "libnvme's headers are missing: install the package libnvme-dev (Debian, Ubuntu) or libnvme-devel (Fedora)"
#endif
extern "C" {
#include <libnvme.h>
}

#include "base/rng.h"
#include "gtest/gtest.h"
#include "nvme/admin_command.h"
#include "nvme/async_event.h"
#include "nvme/dataset.h"
#include "nvme/features.h"
#include "nvme/io_command.h"
#include "nvme/log_page.h"
#include "nvme/registers.h"
#include "nvme/uint128.h"

#define SAME_FIELD(ours, theirs)                     \
  EXPECT_EQ(offsetof(T, ours), offsetof(U, theirs)); \
  EXPECT_EQ(sizeof(T::ours), sizeof(U::theirs))
#define SAME_NAME(field) SAME_FIELD(field, field)
#define SAME(ours, theirs) EXPECT_EQ(static_cast<std::uint64_t>(ours), static_cast<std::uint64_t>(theirs))

namespace flashmob::nvme {
namespace {

TEST(WireFields, ErrorInformation) {
  using T = ErrorInformationEntry;
  using U = struct nvme_error_log_page;
  EXPECT_EQ(sizeof(T), sizeof(U));
  SAME_NAME(error_count);
  SAME_NAME(sqid);
  SAME_FIELD(cid, cmdid);
  SAME_NAME(status_field);
  SAME_FIELD(parameter_error_location, parm_error_location);
  SAME_NAME(lba);
  SAME_NAME(nsid);
  SAME_FIELD(vendor_log_page, vs);
  SAME_NAME(trtype);
  SAME_FIELD(command_specific, cs);
  SAME_FIELD(transport_specific, trtype_spec_info);
}

TEST(WireFields, SmartHealth) {
  using T = SmartHealth;
  using U = struct nvme_smart_log;
  EXPECT_EQ(sizeof(T), sizeof(U));
  SAME_NAME(critical_warning);
  SAME_FIELD(composite_temperature, temperature);
  SAME_FIELD(available_spare, avail_spare);
  SAME_FIELD(available_spare_threshold, spare_thresh);
  SAME_FIELD(percentage_used, percent_used);
  SAME_FIELD(endurance_group_critical_warning, endu_grp_crit_warn_sumry);
  SAME_NAME(data_units_read);
  SAME_NAME(data_units_written);
  SAME_FIELD(host_read_commands, host_reads);
  SAME_FIELD(host_write_commands, host_writes);
  SAME_FIELD(controller_busy_time, ctrl_busy_time);
  SAME_NAME(power_cycles);
  SAME_NAME(power_on_hours);
  SAME_NAME(unsafe_shutdowns);
  SAME_NAME(media_errors);
  SAME_FIELD(error_log_entries, num_err_log_entries);
  SAME_FIELD(warning_temperature_time, warning_temp_time);
  SAME_FIELD(critical_temperature_time, critical_comp_time);
  SAME_FIELD(temperature_sensor, temp_sensor);
  EXPECT_EQ(offsetof(T, thermal_transition_count), offsetof(U, thm_temp1_trans_count));
  EXPECT_EQ(offsetof(T, thermal_total_time), offsetof(U, thm_temp1_total_time));
  SAME(kCriticalWarningSpare, NVME_SMART_CRIT_SPARE);
  SAME(kCriticalWarningTemperature, NVME_SMART_CRIT_TEMPERATURE);
  SAME(kCriticalWarningReliability, NVME_SMART_CRIT_DEGRADED);
  SAME(kCriticalWarningReadOnly, NVME_SMART_CRIT_MEDIA);
  SAME(kCriticalWarningVolatileBackup, NVME_SMART_CRIT_VOLATILE_MEMORY);
  SAME(kCriticalWarningPersistentMemory, NVME_SMART_CRIT_PMR_RO);
}

TEST(WireFields, OtherLogPages) {
  EXPECT_EQ(sizeof(SupportedLogPages), sizeof(struct nvme_supported_log_pages));
  EXPECT_EQ(sizeof(FirmwareSlot), sizeof(struct nvme_firmware_slot));
  EXPECT_EQ(offsetof(FirmwareSlot, frs), offsetof(struct nvme_firmware_slot, frs));
  EXPECT_EQ(sizeof(FirmwareSlot::frs), sizeof(nvme_firmware_slot::frs));
  EXPECT_EQ(sizeof(ChangedNamespaceList), sizeof(struct nvme_ns_list));
  using T = CommandsSupportedAndEffects;
  using U = struct nvme_cmd_effects_log;
  EXPECT_EQ(sizeof(T), sizeof(U));
  SAME_NAME(acs);
  SAME_NAME(iocs);
  SAME(kEffectSupported, NVME_CMD_EFFECTS_CSUPP);
  SAME(kEffectLogicalBlockContent, NVME_CMD_EFFECTS_LBCC);
  SAME(kEffectNamespaceCapability, NVME_CMD_EFFECTS_NCC);
  SAME(kEffectNamespaceInventory, NVME_CMD_EFFECTS_NIC);
  SAME(kEffectControllerCapability, NVME_CMD_EFFECTS_CCC);
  SAME(kEffectSubmissionPerNamespace | kEffectSubmissionExclusive, NVME_CMD_EFFECTS_CSE_MASK);
  EXPECT_EQ(kEffectSubmissionMask & NVME_CMD_EFFECTS_CSE_MASK, NVME_CMD_EFFECTS_CSE_MASK);
}

TEST(WireFields, LogPageIdentifiers) {
  SAME(LogPage::supported_log_pages, NVME_LOG_LID_SUPPORTED_LOG_PAGES);
  SAME(LogPage::error_information, NVME_LOG_LID_ERROR);
  SAME(LogPage::smart_health, NVME_LOG_LID_SMART);
  SAME(LogPage::firmware_slot, NVME_LOG_LID_FW_SLOT);
  SAME(LogPage::changed_namespace_list, NVME_LOG_LID_CHANGED_NS);
  SAME(LogPage::commands_supported_and_effects, NVME_LOG_LID_CMD_EFFECTS);
  SAME(LogPage::device_self_test, NVME_LOG_LID_DEVICE_SELF_TEST);
  SAME(LogPage::telemetry_host, NVME_LOG_LID_TELEMETRY_HOST);
  SAME(LogPage::telemetry_controller, NVME_LOG_LID_TELEMETRY_CTRL);
  SAME(LogPage::endurance_group, NVME_LOG_LID_ENDURANCE_GROUP);
  SAME(LogPage::predictable_latency_nvm_set, NVME_LOG_LID_PREDICTABLE_LAT_NVMSET);
  SAME(LogPage::predictable_latency_aggregate, NVME_LOG_LID_PREDICTABLE_LAT_AGG);
  SAME(LogPage::asymmetric_namespace_access, NVME_LOG_LID_ANA);
  SAME(LogPage::persistent_event, NVME_LOG_LID_PERSISTENT_EVENT);
  SAME(LogPage::lba_status, NVME_LOG_LID_LBA_STATUS);
  SAME(LogPage::endurance_group_event_aggregate, NVME_LOG_LID_ENDURANCE_GRP_EVT);
  SAME(LogPage::feature_identifiers_supported_and_effects, NVME_LOG_LID_FID_SUPPORTED_EFFECTS);
  SAME(LogPage::reservation_notification, NVME_LOG_LID_RESERVATION);
  SAME(LogPage::sanitize_status, NVME_LOG_LID_SANITIZE);
}

TEST(WireFields, FeatureIdentifiers) {
  SAME(Feature::arbitration, NVME_FEAT_FID_ARBITRATION);
  SAME(Feature::power_management, NVME_FEAT_FID_POWER_MGMT);
  SAME(Feature::lba_range_type, NVME_FEAT_FID_LBA_RANGE);
  SAME(Feature::temperature_threshold, NVME_FEAT_FID_TEMP_THRESH);
  SAME(Feature::error_recovery, NVME_FEAT_FID_ERR_RECOVERY);
  SAME(Feature::volatile_write_cache, NVME_FEAT_FID_VOLATILE_WC);
  SAME(Feature::number_of_queues, NVME_FEAT_FID_NUM_QUEUES);
  SAME(Feature::interrupt_coalescing, NVME_FEAT_FID_IRQ_COALESCE);
  SAME(Feature::interrupt_vector_configuration, NVME_FEAT_FID_IRQ_CONFIG);
  SAME(Feature::write_atomicity, NVME_FEAT_FID_WRITE_ATOMIC);
  SAME(Feature::async_event_configuration, NVME_FEAT_FID_ASYNC_EVENT);
  SAME(Feature::autonomous_power_state_transition, NVME_FEAT_FID_AUTO_PST);
  SAME(Feature::host_memory_buffer, NVME_FEAT_FID_HOST_MEM_BUF);
  SAME(Feature::timestamp, NVME_FEAT_FID_TIMESTAMP);
  SAME(Feature::keep_alive_timer, NVME_FEAT_FID_KATO);
  SAME(Feature::host_controlled_thermal_management, NVME_FEAT_FID_HCTM);
  SAME(Feature::non_operational_power_state, NVME_FEAT_FID_NOPSC);
  SAME(Feature::read_recovery_level, NVME_FEAT_FID_RRL);
  SAME(Feature::host_behavior_support, NVME_FEAT_FID_HOST_BEHAVIOR);
  SAME(Feature::sanitize_config, NVME_FEAT_FID_SANITIZE);
  SAME(Feature::io_command_set_profile, NVME_FEAT_FID_IOCS_PROFILE);
  SAME(Feature::software_progress_marker, NVME_FEAT_FID_SW_PROGRESS);
  SAME(Feature::host_identifier, NVME_FEAT_FID_HOST_ID);
  SAME(Feature::reservation_notification_mask, NVME_FEAT_FID_RESV_MASK);
  SAME(Feature::reservation_persistence, NVME_FEAT_FID_RESV_PERSIST);
  SAME(Feature::namespace_write_protection, NVME_FEAT_FID_WRITE_PROTECT);
  SAME(FeatureSelect::current, NVME_GET_FEATURES_SEL_CURRENT);
  SAME(FeatureSelect::default_value, NVME_GET_FEATURES_SEL_DEFAULT);
  SAME(FeatureSelect::saved, NVME_GET_FEATURES_SEL_SAVED);
  SAME(FeatureSelect::supported_capabilities, NVME_GET_FEATURES_SEL_SUPPORTED);
  SAME(WriteProtection::none, NVME_FEAT_NS_NO_WRITE_PROTECT);
  SAME(WriteProtection::protect, NVME_FEAT_NS_WRITE_PROTECT);
  SAME(WriteProtection::until_power_cycle, NVME_FEAT_NS_WRITE_PROTECT_PWR_CYCLE);
  SAME(WriteProtection::permanent, NVME_FEAT_NS_WRITE_PROTECT_PERMANENT);
}

TEST(WireFields, FeatureFields) {
  Rng rng(20240601);
  for (int i = 0; i < 1000; ++i) {
    const auto value = static_cast<std::uint32_t>(rng.next());
    const ArbitrationFields arbitration = decode_arbitration(value);
    SAME(arbitration.ab, NVME_GET(value, FEAT_ARBITRATION_BURST));
    SAME(arbitration.lpw, NVME_GET(value, FEAT_ARBITRATION_LPW));
    SAME(arbitration.mpw, NVME_GET(value, FEAT_ARBITRATION_MPW));
    SAME(arbitration.hpw, NVME_GET(value, FEAT_ARBITRATION_HPW));
    EXPECT_EQ(encode_arbitration(arbitration), value & 0xFFFFFF07);
    const TemperatureThresholdFields threshold = decode_temperature_threshold(value);
    SAME(threshold.tmpth, NVME_GET(value, FEAT_TT_TMPTH));
    SAME(threshold.tmpsel, NVME_GET(value, FEAT_TT_TMPSEL));
    SAME(threshold.thsel, NVME_GET(value, FEAT_TT_THSEL));
    EXPECT_EQ(encode_temperature_threshold(threshold), value & 0x003FFFFF);
    const NumberOfQueuesFields queues = decode_number_of_queues(value);
    SAME(queues.sqs, NVME_GET(value, FEAT_NRQS_NSQR));
    SAME(queues.cqs, NVME_GET(value, FEAT_NRQS_NCQR));
    EXPECT_EQ(encode_number_of_queues(queues), value);
    const InterruptCoalescingFields coalescing = decode_interrupt_coalescing(value);
    SAME(coalescing.thr, NVME_GET(value, FEAT_IRQC_THR));
    SAME(coalescing.time, NVME_GET(value, FEAT_IRQC_TIME));
    EXPECT_EQ(encode_interrupt_coalescing(coalescing), value & 0xFFFF);
    SAME(value & kPowerStateMask, NVME_GET(value, FEAT_PWRMGMT_PS));
    SAME((value >> kWorkloadHintShift) & kWorkloadHintMask, NVME_GET(value, FEAT_PWRMGMT_WH));
    SAME(value & kErrorRecoveryTimeMask, NVME_GET(value, FEAT_ERROR_RECOVERY_TLER));
  }
  SAME(kErrorRecoveryDeallocatedError, NVME_SET(1u, FEAT_ERROR_RECOVERY_DULBE));
  SAME(kVolatileWriteCacheEnable, NVME_SET(1u, FEAT_VWC_WCE));
  SAME(kInterruptVectorMask, NVME_FEAT_ICFG_IV_MASK);
  SAME(kCoalescingDisable, NVME_SET(1u, FEAT_ICFG_CD));
  SAME(kWriteAtomicityDisableNormal, NVME_SET(1u, FEAT_WA_DN));
  SAME(kThresholdOver, NVME_FEATURE_TEMPTHRESH_THSEL_OVER);
  SAME(kThresholdUnder, NVME_FEATURE_TEMPTHRESH_THSEL_UNDER);
  SAME(kAsyncEventSmartMask, NVME_FEAT_AE_SMART_MASK);
  SAME(kAsyncEventNamespaceAttribute, NVME_FEATURE_AENCFG_NOTICE_NAMESPACE_ATTRIBUTES);
  SAME(kAsyncEventFirmwareActivation, NVME_FEATURE_AENCFG_NOTICE_FIRMWARE_ACTIVATION);
  SAME(kAsyncEventTelemetry, NVME_FEATURE_AENCFG_NOTICE_TELEMETRY_LOG);
  SAME(kAsyncEventAnaChange, NVME_FEATURE_AENCFG_NOTICE_ANA_CHANGE);
  SAME(kHostIdentifierExtended, NVME_SET(1u, FEAT_HOSTID_EXHID));
  EXPECT_EQ(feature_id(0x80000102), 0x02);
  EXPECT_EQ(feature_select(0x00000302), 3);
}

TEST(WireFields, FeatureData) {
  {
    using T = Timestamp;
    using U = struct nvme_timestamp;
    EXPECT_EQ(sizeof(T), sizeof(U));
    SAME_FIELD(milliseconds, timestamp);
    SAME_FIELD(attributes, attr);
  }
  {
    using T = HostBehaviorSupport;
    using U = struct nvme_feat_host_behavior;
    EXPECT_EQ(sizeof(T), sizeof(U));
    SAME_NAME(acre);
  }
  {
    using T = LbaRangeType;
    using U = struct nvme_lba_range_type_entry;
    EXPECT_EQ(sizeof(T), sizeof(U));
    SAME_NAME(type);
    SAME_NAME(attributes);
    SAME_NAME(slba);
    SAME_NAME(nlb);
    SAME_NAME(guid);
  }
  const Timestamp t = encode_timestamp(0x1122334455667788, kTimestampOriginSetFeatures);
  EXPECT_EQ(timestamp_milliseconds(t), 0x334455667788u);
  EXPECT_EQ(t.milliseconds[0], 0x88);
  EXPECT_EQ(t.attributes, 2);
}

TEST(WireFields, Registers) {
  SAME(kRegCap, NVME_REG_CAP);
  SAME(kRegVs, NVME_REG_VS);
  SAME(kRegIntms, NVME_REG_INTMS);
  SAME(kRegIntmc, NVME_REG_INTMC);
  SAME(kRegCc, NVME_REG_CC);
  SAME(kRegCsts, NVME_REG_CSTS);
  SAME(kRegNssr, NVME_REG_NSSR);
  SAME(kRegAqa, NVME_REG_AQA);
  SAME(kRegAsq, NVME_REG_ASQ);
  SAME(kRegAcq, NVME_REG_ACQ);
  SAME(kRegCrto, NVME_REG_CRTO);
  SAME(kCapAmsWeightedRoundRobin, NVME_CAP_AMS_WRR);
  SAME(kCapCssNvm, NVME_CAP_CSS_NVM);
  SAME(kCapCssIoCommandSets, NVME_CAP_CSS_CSI);
  SAME(kCapCssAdminOnly, NVME_CAP_CSS_ADMIN);
  SAME(kCapCrmsWithMedia, NVME_CAP_CRWMS);
  SAME(kCapCrmsIndependentOfMedia, NVME_CAP_CRIMS);
  SAME(kCcCssNvm, NVME_CC_CSS_NVM);
  SAME(kCcCssAllSupported, NVME_CC_CSS_CSI);
  SAME(kCcCssAdminOnly, NVME_CC_CSS_ADMIN);
  SAME(kCcAmsRoundRobin, NVME_CC_AMS_RR);
  SAME(kCcAmsWeightedRoundRobin, NVME_CC_AMS_WRRU);
  SAME(kCcShnNone, NVME_CC_SHN_NONE);
  SAME(kCcShnNormal, NVME_CC_SHN_NORMAL);
  SAME(kCcShnAbrupt, NVME_CC_SHN_ABRUPT);
  SAME(kCstsShstNormal, NVME_CSTS_SHST_NORMAL);
  SAME(kCstsShstOccurring, NVME_CSTS_SHST_OCCUR);
  SAME(kCstsShstComplete, NVME_CSTS_SHST_CMPLT);
}

TEST(WireFields, RegisterFieldsAgreeOnRandomValues) {
  Rng rng(7);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value = rng.next();
    const Cap cap = decode_cap(value);
    SAME(cap.mqes, NVME_CAP_MQES(value));
    SAME(cap.cqr, NVME_CAP_CQR(value));
    SAME(cap.ams, NVME_CAP_AMS(value));
    SAME(cap.to, NVME_CAP_TO(value));
    SAME(cap.dstrd, NVME_CAP_DSTRD(value));
    SAME(cap.nssrs, NVME_CAP_NSSRC(value));
    SAME(cap.css, NVME_CAP_CSS(value));
    SAME(cap.bps, NVME_CAP_BPS(value));
    SAME(cap.mpsmin, NVME_CAP_MPSMIN(value));
    SAME(cap.mpsmax, NVME_CAP_MPSMAX(value));
    SAME(cap.pmrs, NVME_CAP_PMRS(value));
    SAME(cap.cmbs, NVME_CAP_CMBS(value));
    SAME(cap.crms, NVME_CAP_CRMS(value));
    // Bits 23:19, 47:46, 58 and 63:61 are not ours.
    EXPECT_EQ(encode_cap(cap), value & ~0xE400C00000F80000u);
    const auto word = static_cast<std::uint32_t>(value);
    const Cc cc = decode_cc(word);
    SAME(cc.en, NVME_CC_EN(word));
    SAME(cc.css, NVME_CC_CSS(word));
    SAME(cc.mps, NVME_CC_MPS(word));
    SAME(cc.ams, NVME_CC_AMS(word));
    SAME(cc.shn, NVME_CC_SHN(word));
    SAME(cc.iosqes, NVME_CC_IOSQES(word));
    SAME(cc.iocqes, NVME_CC_IOCQES(word));
    SAME(cc.crime, NVME_GET(word, CC_CRIME));
    EXPECT_EQ(encode_cc(cc), word & 0x01FFFFF1u);
    const Csts csts = decode_csts(word);
    SAME(csts.rdy, NVME_CSTS_RDY(word));
    SAME(csts.cfs, NVME_CSTS_CFS(word));
    SAME(csts.shst, NVME_CSTS_SHST(word));
    SAME(csts.nssro, NVME_CSTS_NSSRO(word));
    SAME(csts.pp, NVME_CSTS_PP(word));
    EXPECT_EQ(encode_csts(csts), word & 0x3Fu);
    const Aqa aqa = decode_aqa(word);
    SAME(aqa.asqs, NVME_AQA_ASQS(word));
    SAME(aqa.acqs, NVME_AQA_ACQS(word));
    EXPECT_EQ(encode_aqa(aqa), word & 0x0FFF0FFFu);
  }
}

TEST(WireFields, AsyncEvents) {
  SAME(AsyncEventType::error, NVME_AER_ERROR);
  SAME(AsyncEventType::smart_health, NVME_AER_SMART);
  SAME(AsyncEventType::notice, NVME_AER_NOTICE);
  SAME(AsyncEventType::io_command_specific, NVME_AER_CSS);
  SAME(AsyncEventType::vendor_specific, NVME_AER_VS);
  SAME(AsyncErrorInfo::write_to_invalid_doorbell, NVME_AER_ERROR_INVALID_DB_REG);
  SAME(AsyncErrorInfo::invalid_doorbell_value, NVME_AER_ERROR_INVALID_DB_VAL);
  SAME(AsyncErrorInfo::diagnostic_failure, NVME_AER_ERROR_DIAG_FAILURE);
  SAME(AsyncErrorInfo::persistent_internal_error, NVME_AER_ERROR_PERSISTENT_INTERNAL_ERROR);
  SAME(AsyncErrorInfo::transient_internal_error, NVME_AER_ERROR_TRANSIENT_INTERNAL_ERROR);
  SAME(AsyncErrorInfo::firmware_image_load_error, NVME_AER_ERROR_FW_IMAGE_LOAD_ERROR);
  SAME(AsyncSmartInfo::reliability, NVME_AER_SMART_SUBSYSTEM_RELIABILITY);
  SAME(AsyncSmartInfo::temperature_threshold, NVME_AER_SMART_TEMPERATURE_THRESHOLD);
  SAME(AsyncSmartInfo::spare_below_threshold, NVME_AER_SMART_SPARE_THRESHOLD);
  SAME(AsyncNoticeInfo::namespace_attribute_changed, NVME_AER_NOTICE_NS_CHANGED);
  SAME(AsyncNoticeInfo::firmware_activation_starting, NVME_AER_NOTICE_FW_ACT_STARTING);
  SAME(AsyncNoticeInfo::telemetry_log_changed, NVME_AER_NOTICE_TELEMETRY);
  SAME(AsyncNoticeInfo::asymmetric_namespace_access_change, NVME_AER_NOTICE_ANA);
  const std::uint32_t dw0 = encode_async_event({AsyncEventType::notice, 0x00, LogPage::changed_namespace_list});
  EXPECT_EQ(dw0, 0x00040002u);
  EXPECT_EQ(decode_async_event(dw0).type, AsyncEventType::notice);
  SAME(decode_async_event(0x00AB12F1).type, 1);
  SAME(decode_async_event(0x00AB12F1).info, 0x12);
  SAME(decode_async_event(0x00AB12F1).log_page, 0xAB);
}

TEST(WireFields, DatasetRanges) {
  {
    using T = DatasetRange;
    using U = struct nvme_dsm_range;
    EXPECT_EQ(sizeof(T), sizeof(U));
    SAME_FIELD(context_attributes, cattr);
    SAME_NAME(nlb);
    SAME_NAME(slba);
  }
  {
    // The two application tag fields are left out: libnvme 1.3 has them in the other order than the specification.
    using T = CopySourceRange;
    using U = struct nvme_copy_range;
    EXPECT_EQ(sizeof(T), sizeof(U));
    SAME_NAME(slba);
    SAME_NAME(nlb);
    SAME_NAME(eilbrt);
  }
  SAME(kDatasetIntegralRead, NVME_DSMGMT_IDR);
  SAME(kDatasetIntegralWrite, NVME_DSMGMT_IDW);
  SAME(kDatasetDeallocate, NVME_DSMGMT_AD);
}

TEST(WireFields, NamespaceSelectors) {
  SAME(kNamespaceCreate, NVME_NS_MGMT_SEL_CREATE);
  SAME(kNamespaceDelete, NVME_NS_MGMT_SEL_DELETE);
  SAME(kNamespaceAttach, NVME_NS_ATTACH_SEL_CTRL_ATTACH);
  SAME(kNamespaceDetach, NVME_NS_ATTACH_SEL_CTRL_DEATTACH);
}

TEST(WireFields, IoCommandBits) {
  // libnvme counts these bits from the upper half of CDW12.
  SAME(kIoDeallocate, std::uint64_t{NVME_IO_DEAC} << 16);
  SAME(kIoForceUnitAccess, std::uint64_t{NVME_IO_FUA} << 16);
  SAME(kIoLimitedRetry, std::uint64_t{NVME_IO_LR} << 16);
  SAME(1u << kIoDirectiveTypeShift, std::uint64_t{NVME_IO_DTYPE_STREAMS} << 16);
  SAME(kIoProtectionMask, std::uint64_t{NVME_IO_PRINFO_PRCHK_REF | NVME_IO_PRINFO_PRCHK_APP |
                                        NVME_IO_PRINFO_PRCHK_GUARD | NVME_IO_PRINFO_PRACT}
                              << 16);
  Sqe sqe{};
  sqe.cdw12 = kIoForceUnitAccess;
  set_lba_range(sqe, 0x123456789ABCDEF0, 65536);
  EXPECT_EQ(starting_lba(sqe), 0x123456789ABCDEF0u);
  EXPECT_EQ(block_count(sqe), 65536u);
  EXPECT_EQ(sqe.cdw10, 0x9ABCDEF0u);
  EXPECT_EQ(sqe.cdw12, kIoForceUnitAccess | 0xFFFF);
  sqe.cdw12 = 0x0001227F;
  EXPECT_EQ(copy_range_count(sqe), 128u);
  EXPECT_EQ(copy_descriptor_format(sqe), 2);
  sqe.cdw10 = 0xFFFFFFFF;
  EXPECT_EQ(dataset_range_count(sqe), kMaxDatasetManagementRanges);
}

TEST(WireFields, AdminCommandDwords) {
  Sqe sqe{};
  encode_create_io_sq({.qid = 3, .qsize = 0x3FF, .pc = true, .qprio = 2, .cqid = 7, .nvmsetid = 9}, sqe);
  EXPECT_EQ(sqe.cdw10, 0x03FF0003u);
  EXPECT_EQ(sqe.cdw11, 0x00070005u);
  EXPECT_EQ(sqe.cdw12, 9u);
  EXPECT_EQ(decode_create_io_sq(sqe).qprio, 2);
  EXPECT_EQ(decode_create_io_sq(sqe).cqid, 7);
  encode_create_io_cq({.qid = 5, .qsize = 0xFFFF, .pc = true, .ien = true, .iv = 0x11}, sqe);
  EXPECT_EQ(sqe.cdw10, 0xFFFF0005u);
  EXPECT_EQ(sqe.cdw11, 0x00110003u);
  EXPECT_EQ(decode_create_io_cq(sqe).iv, 0x11);
  encode_identify({.cns = 0x13, .cntid = 0x2211, .cns_specific = 0x4433, .csi = 0x02, .uuid_index = 5}, sqe);
  EXPECT_EQ(sqe.cdw10, 0x22110013u);
  EXPECT_EQ(sqe.cdw11, 0x02004433u);
  EXPECT_EQ(sqe.cdw14, 5u);
  EXPECT_EQ(decode_identify(sqe).cntid, 0x2211);
  encode_abort({.sqid = 1, .cid = 0xFFFE}, sqe);
  EXPECT_EQ(sqe.cdw10, 0xFFFE0001u);
  EXPECT_EQ(decode_abort(sqe).cid, 0xFFFE);
  encode_format_nvm({.lbaf = 0x25, .mset = true, .pi = 1, .pil = true, .ses = NVME_FORMAT_SES_CRYPTO_ERASE}, sqe);
  EXPECT_EQ(sqe.cdw10, 0x2000u | 0x400u | 0x100u | 0x20u | 0x10u | 0x5u);
  EXPECT_EQ(decode_format_nvm(sqe).lbaf, 0x25);
  SAME(kFormatEraseNone, NVME_FORMAT_SES_NONE);
  SAME(kFormatEraseUserData, NVME_FORMAT_SES_USER_DATA_ERASE);
  SAME(kFormatEraseCryptographic, NVME_FORMAT_SES_CRYPTO_ERASE);
  sqe.cdw10 = 0xFFFFFFF1;
  sqe.cdw11 = 0x02000000;
  EXPECT_EQ(namespace_select(sqe), kNamespaceDetach);
  EXPECT_EQ(namespace_csi(sqe), 2);
}

TEST(WireFields, GetLogPageDwords) {
  Sqe sqe{};
  encode_get_log_page({.lid = 0x02,
                       .lsp = 0x11,
                       .rae = true,
                       .numd = 0x00012345,
                       .lsi = 0x77,
                       .lpo = 0x1122334455667788,
                       .uuid_index = 3,
                       .ot = true,
                       .csi = 2},
                      sqe);
  EXPECT_EQ(sqe.cdw10, 0x23459102u);
  EXPECT_EQ(sqe.cdw11, 0x00770001u);
  EXPECT_EQ(sqe.cdw12, 0x55667788u);
  EXPECT_EQ(sqe.cdw13, 0x11223344u);
  EXPECT_EQ(sqe.cdw14, 0x02800003u);
  const GetLogPage f = decode_get_log_page(sqe);
  EXPECT_EQ(f.lid, 0x02);
  EXPECT_EQ(f.lsp, 0x11);
  EXPECT_TRUE(f.rae);
  EXPECT_EQ(f.numd, 0x00012345u);
  EXPECT_EQ(f.lsi, 0x77);
  EXPECT_EQ(f.lpo, 0x1122334455667788u);
  EXPECT_EQ(f.uuid_index, 3);
  EXPECT_TRUE(f.ot);
  EXPECT_EQ(f.csi, 2);
}

TEST(WireFields, Uint128Carries) {
  const Uint128 sum = add(to_uint128(~std::uint64_t{0}), 2);
  EXPECT_EQ(sum.low, 1u);
  EXPECT_EQ(sum.high, 1u);
}

}  // namespace
}  // namespace flashmob::nvme
