// Compares our wire format with libnvme's independent definitions: every structure, offset and constant that both
// have. Both were written from the specification by different people, so an error here is a slip in one of them.
#include <cstddef>
#include <cstdint>

#if !__has_include(<libnvme.h>)
#error "libnvme's headers are missing: install the package libnvme-dev (Debian, Ubuntu) or libnvme-devel (Fedora)"
#endif
extern "C" {
#include <libnvme.h>
}

#include "gtest/gtest.h"
#include "nvme/command.h"
#include "nvme/identify.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"
#include "nvme/opcode.h"
#include "nvme/status.h"

// Same place and same length. T and U name the structures of the test at hand.
#define SAME_FIELD(ours, theirs)                     \
  EXPECT_EQ(offsetof(T, ours), offsetof(U, theirs)); \
  EXPECT_EQ(sizeof(T::ours), sizeof(U::theirs))
#define SAME_NAME(field) SAME_FIELD(field, field)
#define SAME(ours, theirs) EXPECT_EQ(static_cast<std::uint64_t>(ours), static_cast<std::uint64_t>(theirs))

namespace flashmob::nvme {
namespace {

TEST(Wire, Opcodes) {
  SAME(AdminOpcode::delete_io_sq, nvme_admin_delete_sq);
  SAME(AdminOpcode::create_io_sq, nvme_admin_create_sq);
  SAME(AdminOpcode::get_log_page, nvme_admin_get_log_page);
  SAME(AdminOpcode::delete_io_cq, nvme_admin_delete_cq);
  SAME(AdminOpcode::create_io_cq, nvme_admin_create_cq);
  SAME(AdminOpcode::identify, nvme_admin_identify);
  SAME(AdminOpcode::abort, nvme_admin_abort_cmd);
  SAME(AdminOpcode::set_features, nvme_admin_set_features);
  SAME(AdminOpcode::get_features, nvme_admin_get_features);
  SAME(AdminOpcode::async_event_request, nvme_admin_async_event);
  SAME(AdminOpcode::namespace_management, nvme_admin_ns_mgmt);
  SAME(AdminOpcode::namespace_attachment, nvme_admin_ns_attach);
  SAME(AdminOpcode::keep_alive, nvme_admin_keep_alive);
  SAME(AdminOpcode::doorbell_buffer_config, nvme_admin_dbbuf);
  SAME(AdminOpcode::format_nvm, nvme_admin_format_nvm);
  SAME(NvmOpcode::flush, nvme_cmd_flush);
  SAME(NvmOpcode::write, nvme_cmd_write);
  SAME(NvmOpcode::read, nvme_cmd_read);
  SAME(NvmOpcode::write_uncorrectable, nvme_cmd_write_uncor);
  SAME(NvmOpcode::compare, nvme_cmd_compare);
  SAME(NvmOpcode::write_zeroes, nvme_cmd_write_zeroes);
  SAME(NvmOpcode::dataset_management, nvme_cmd_dsm);
  SAME(NvmOpcode::verify, nvme_cmd_verify);
  SAME(NvmOpcode::copy, nvme_cmd_copy);
}

constexpr unsigned generic(unsigned code) { return NVME_SCT_GENERIC << NVME_SCT_SHIFT | code; }
constexpr unsigned specific(unsigned code) { return NVME_SCT_CMD_SPECIFIC << NVME_SCT_SHIFT | code; }
constexpr unsigned media(unsigned code) { return NVME_SCT_MEDIA << NVME_SCT_SHIFT | code; }

TEST(Wire, GenericStatusCodes) {
  SAME(Status::success, generic(NVME_SC_SUCCESS));
  SAME(Status::invalid_opcode, generic(NVME_SC_INVALID_OPCODE));
  SAME(Status::invalid_field, generic(NVME_SC_INVALID_FIELD));
  SAME(Status::command_id_conflict, generic(NVME_SC_CMDID_CONFLICT));
  SAME(Status::data_transfer_error, generic(NVME_SC_DATA_XFER_ERROR));
  SAME(Status::aborted_power_loss, generic(NVME_SC_POWER_LOSS));
  SAME(Status::internal_error, generic(NVME_SC_INTERNAL));
  SAME(Status::abort_requested, generic(NVME_SC_ABORT_REQ));
  SAME(Status::aborted_sq_deletion, generic(NVME_SC_ABORT_QUEUE));
  SAME(Status::aborted_failed_fused, generic(NVME_SC_FUSED_FAIL));
  SAME(Status::aborted_missing_fused, generic(NVME_SC_FUSED_MISSING));
  SAME(Status::invalid_namespace_or_format, generic(NVME_SC_INVALID_NS));
  SAME(Status::command_sequence_error, generic(NVME_SC_CMD_SEQ_ERROR));
  SAME(Status::invalid_sgl_segment_descriptor, generic(NVME_SC_SGL_INVALID_LAST));
  SAME(Status::invalid_number_of_sgl_descriptors, generic(NVME_SC_SGL_INVALID_COUNT));
  SAME(Status::data_sgl_length_invalid, generic(NVME_SC_SGL_INVALID_DATA));
  SAME(Status::metadata_sgl_length_invalid, generic(NVME_SC_SGL_INVALID_METADATA));
  SAME(Status::sgl_descriptor_type_invalid, generic(NVME_SC_SGL_INVALID_TYPE));
  SAME(Status::invalid_use_of_cmb, generic(NVME_SC_CMB_INVALID_USE));
  SAME(Status::prp_offset_invalid, generic(NVME_SC_PRP_INVALID_OFFSET));
  SAME(Status::atomic_write_unit_exceeded, generic(NVME_SC_AWU_EXCEEDED));
  SAME(Status::operation_denied, generic(NVME_SC_OP_DENIED));
  SAME(Status::sgl_offset_invalid, generic(NVME_SC_SGL_INVALID_OFFSET));
  SAME(Status::host_identifier_inconsistent_format, generic(NVME_SC_HOSTID_FORMAT));
  SAME(Status::keep_alive_timer_expired, generic(NVME_SC_KAT_EXPIRED));
  SAME(Status::keep_alive_timeout_invalid, generic(NVME_SC_KAT_INVALID));
  SAME(Status::aborted_preempt_and_abort, generic(NVME_SC_CMD_ABORTED_PREMEPT));
  SAME(Status::sanitize_failed, generic(NVME_SC_SANITIZE_FAILED));
  SAME(Status::sanitize_in_progress, generic(NVME_SC_SANITIZE_IN_PROGRESS));
  SAME(Status::sgl_data_block_granularity_invalid, generic(NVME_SC_SGL_INVALID_GRANULARITY));
  SAME(Status::command_not_supported_in_cmb, generic(NVME_SC_CMD_IN_CMBQ_NOT_SUPP));
  SAME(Status::namespace_is_write_protected, generic(NVME_SC_NS_WRITE_PROTECTED));
  SAME(Status::command_interrupted, generic(NVME_SC_CMD_INTERRUPTED));
  SAME(Status::transient_transport_error, generic(NVME_SC_TRAN_TPORT_ERROR));
  SAME(Status::prohibited_by_lockdown, generic(NVME_SC_PROHIBITED_BY_CMD_AND_FEAT));
  SAME(Status::admin_media_not_ready, generic(NVME_SC_ADMIN_CMD_MEDIA_NOT_READY));
  SAME(Status::lba_out_of_range, generic(NVME_SC_LBA_RANGE));
  SAME(Status::capacity_exceeded, generic(NVME_SC_CAP_EXCEEDED));
  SAME(Status::namespace_not_ready, generic(NVME_SC_NS_NOT_READY));
  SAME(Status::reservation_conflict, generic(NVME_SC_RESERVATION_CONFLICT));
  SAME(Status::format_in_progress, generic(NVME_SC_FORMAT_IN_PROGRESS));
}

TEST(Wire, CommandSpecificAndMediaStatusCodes) {
  SAME(Status::completion_queue_invalid, specific(NVME_SC_CQ_INVALID));
  SAME(Status::invalid_queue_identifier, specific(NVME_SC_QID_INVALID));
  SAME(Status::invalid_queue_size, specific(NVME_SC_QUEUE_SIZE));
  SAME(Status::abort_limit_exceeded, specific(NVME_SC_ABORT_LIMIT));
  SAME(Status::async_event_limit_exceeded, specific(NVME_SC_ASYNC_LIMIT));
  SAME(Status::invalid_firmware_slot, specific(NVME_SC_FIRMWARE_SLOT));
  SAME(Status::invalid_firmware_image, specific(NVME_SC_FIRMWARE_IMAGE));
  SAME(Status::invalid_interrupt_vector, specific(NVME_SC_INVALID_VECTOR));
  SAME(Status::invalid_log_page, specific(NVME_SC_INVALID_LOG_PAGE));
  SAME(Status::invalid_format, specific(NVME_SC_INVALID_FORMAT));
  SAME(Status::firmware_activation_needs_reset, specific(NVME_SC_FW_NEEDS_CONV_RESET));
  SAME(Status::invalid_queue_deletion, specific(NVME_SC_INVALID_QUEUE));
  SAME(Status::feature_not_saveable, specific(NVME_SC_FEATURE_NOT_SAVEABLE));
  SAME(Status::feature_not_changeable, specific(NVME_SC_FEATURE_NOT_CHANGEABLE));
  SAME(Status::feature_not_namespace_specific, specific(NVME_SC_FEATURE_NOT_PER_NS));
  SAME(Status::overlapping_range, specific(NVME_SC_OVERLAPPING_RANGE));
  SAME(Status::namespace_insufficient_capacity, specific(NVME_SC_NS_INSUFFICIENT_CAP));
  SAME(Status::namespace_identifier_unavailable, specific(NVME_SC_NS_ID_UNAVAILABLE));
  SAME(Status::namespace_already_attached, specific(NVME_SC_NS_ALREADY_ATTACHED));
  SAME(Status::namespace_is_private, specific(NVME_SC_NS_IS_PRIVATE));
  SAME(Status::namespace_not_attached, specific(NVME_SC_NS_NOT_ATTACHED));
  SAME(Status::thin_provisioning_not_supported, specific(NVME_SC_THIN_PROV_NOT_SUPP));
  SAME(Status::controller_list_invalid, specific(NVME_SC_CTRL_LIST_INVALID));
  SAME(Status::boot_partition_write_prohibited, specific(NVME_SC_BP_WRITE_PROHIBITED));
  SAME(Status::invalid_controller_identifier, specific(NVME_SC_INVALID_CTRL_ID));
  SAME(Status::io_command_set_not_supported, specific(NVME_SC_IOCS_NOT_SUPPORTED));
  SAME(Status::io_command_set_not_enabled, specific(NVME_SC_IOCS_NOT_ENABLED));
  SAME(Status::io_command_set_combination_rejected, specific(NVME_SC_IOCS_COMBINATION_REJECTED));
  SAME(Status::invalid_io_command_set, specific(NVME_SC_INVALID_IOCS));
  SAME(Status::conflicting_attributes, specific(NVME_SC_BAD_ATTRIBUTES));
  SAME(Status::invalid_protection_information, specific(NVME_SC_INVALID_PI));
  SAME(Status::attempted_write_to_read_only_range, specific(NVME_SC_READ_ONLY));
  SAME(Status::command_size_limit_exceeded, specific(NVME_SC_CMD_SIZE_LIMIT_EXCEEDED));
  SAME(Status::write_fault, media(NVME_SC_WRITE_FAULT));
  SAME(Status::unrecovered_read_error, media(NVME_SC_READ_ERROR));
  SAME(Status::guard_check_error, media(NVME_SC_GUARD_CHECK));
  SAME(Status::compare_failure, media(NVME_SC_COMPARE_FAILED));
  SAME(Status::access_denied, media(NVME_SC_ACCESS_DENIED));
  SAME(Status::deallocated_or_unwritten_block, media(NVME_SC_UNWRITTEN_BLOCK));
  SAME(kStatusMore, NVME_SC_MORE);
  SAME(kStatusDoNotRetry, NVME_SC_DNR);
}

TEST(Wire, StatusFieldParts) {
  const std::uint16_t field = with_do_not_retry(Status::compare_failure);
  EXPECT_EQ(nvme_status_code_type(field), status_code_type(field));
  EXPECT_EQ(nvme_status_code(field), status_code(field));
  EXPECT_EQ(status_of(field), Status::compare_failure);
  EXPECT_EQ(field & kStatusDoNotRetry, kStatusDoNotRetry);
  EXPECT_EQ(with_do_not_retry(Status::abort_requested), to_field(Status::abort_requested));
}

// Linux's pass-through command begins like a submission entry; it differs where the driver fills the data pointer.
TEST(Wire, SubmissionQueueEntry) {
  using T = Sqe;
  using U = struct nvme_passthru_cmd;
  SAME_NAME(opcode);
  SAME_NAME(flags);
  SAME_NAME(nsid);
  SAME_NAME(cdw2);
  SAME_NAME(cdw3);
  SAME_FIELD(mptr, metadata);
  SAME_FIELD(prp1, addr);
  SAME_NAME(cdw10);
  SAME_NAME(cdw15);
}

TEST(Wire, IdentifyControllerFirstHalf) {
  using T = IdentifyController;
  using U = struct nvme_id_ctrl;
  EXPECT_EQ(sizeof(T), sizeof(U));
  SAME_NAME(vid);
  SAME_NAME(ssvid);
  SAME_NAME(sn);
  SAME_NAME(mn);
  SAME_NAME(fr);
  SAME_NAME(rab);
  SAME_NAME(ieee);
  SAME_NAME(cmic);
  SAME_NAME(mdts);
  SAME_NAME(cntlid);
  SAME_NAME(ver);
  SAME_NAME(rtd3r);
  SAME_NAME(rtd3e);
  SAME_NAME(oaes);
  SAME_NAME(ctratt);
  SAME_NAME(rrls);
  SAME_NAME(cntrltype);
  SAME_NAME(fguid);
  SAME_NAME(crdt1);
  SAME_NAME(crdt2);
  SAME_NAME(crdt3);
  SAME_NAME(nvmsr);
  SAME_NAME(vwci);
  SAME_NAME(mec);
  SAME_NAME(oacs);
  SAME_NAME(acl);
  SAME_NAME(aerl);
  SAME_NAME(frmw);
  SAME_NAME(lpa);
  SAME_NAME(elpe);
  SAME_NAME(npss);
  SAME_NAME(avscc);
  SAME_NAME(apsta);
  SAME_NAME(wctemp);
  SAME_NAME(cctemp);
  SAME_NAME(mtfa);
  SAME_NAME(hmpre);
  SAME_NAME(hmmin);
  SAME_NAME(tnvmcap);
  SAME_NAME(unvmcap);
  SAME_NAME(rpmbs);
  SAME_NAME(edstt);
  SAME_NAME(dsto);
  SAME_NAME(fwug);
  SAME_NAME(kas);
  SAME_NAME(hctma);
  SAME_NAME(mntmt);
  SAME_NAME(mxtmt);
}

TEST(Wire, IdentifyControllerSecondHalf) {
  using T = IdentifyController;
  using U = struct nvme_id_ctrl;
  SAME_NAME(sanicap);
  SAME_NAME(hmminds);
  SAME_NAME(hmmaxd);
  SAME_NAME(nsetidmax);
  SAME_NAME(endgidmax);
  SAME_NAME(anatt);
  SAME_NAME(anacap);
  SAME_NAME(anagrpmax);
  SAME_NAME(nanagrpid);
  SAME_NAME(pels);
  SAME_NAME(domainid);
  SAME_NAME(megcap);
  SAME_NAME(sqes);
  SAME_NAME(cqes);
  SAME_NAME(maxcmd);
  SAME_NAME(nn);
  SAME_NAME(oncs);
  SAME_NAME(fuses);
  SAME_NAME(fna);
  SAME_NAME(vwc);
  SAME_NAME(awun);
  SAME_NAME(awupf);
  SAME_NAME(icsvscc);
  SAME_NAME(nwpc);
  SAME_NAME(acwu);
  SAME_FIELD(cdfs, ocfs);
  SAME_NAME(sgls);
  SAME_NAME(mnan);
  SAME_NAME(maxdna);
  SAME_NAME(maxcna);
  SAME_NAME(subnqn);
  SAME_NAME(ioccsz);
  SAME_NAME(iorcsz);
  SAME_NAME(icdoff);
  SAME_NAME(fcatt);
  SAME_NAME(msdbd);
  SAME_NAME(ofcs);
  SAME_NAME(dctype);
  SAME_NAME(psd);
  SAME_NAME(vs);
}

TEST(Wire, PowerStateDescriptor) {
  using T = PowerStateDescriptor;
  using U = struct nvme_id_psd;
  EXPECT_EQ(sizeof(T), sizeof(U));
  SAME_NAME(mp);
  SAME_NAME(flags);
  SAME_NAME(enlat);
  SAME_NAME(exlat);
  SAME_NAME(rrt);
  SAME_NAME(rrl);
  SAME_NAME(rwt);
  SAME_NAME(rwl);
  SAME_NAME(idlp);
  SAME_NAME(ips);
  SAME_NAME(actp);
  SAME_NAME(apws);
}

TEST(Wire, IdentifyControllerBits) {
  SAME(kCmicMultiplePorts, NVME_CTRL_CMIC_MULTI_PORT);
  SAME(kCmicMultipleControllers, NVME_CTRL_CMIC_MULTI_CTRL);
  SAME(kOaesNamespaceAttribute, NVME_CTRL_OAES_NA);
  SAME(kOaesFirmwareActivation, NVME_CTRL_OAES_FA);
  SAME(kCtrattHostId128, NVME_CTRL_CTRATT_128_ID);
  SAME(kCtrattTrafficBasedKeepAlive, NVME_CTRL_CTRATT_TBKAS);
  SAME(kCntrltypeIo, NVME_CTRL_CNTRLTYPE_IO);
  SAME(kCntrltypeDiscovery, NVME_CTRL_CNTRLTYPE_DISCOVERY);
  SAME(kCntrltypeAdministrative, NVME_CTRL_CNTRLTYPE_ADMIN);
  SAME(kOacsSecurity, NVME_CTRL_OACS_SECURITY);
  SAME(kOacsFormatNvm, NVME_CTRL_OACS_FORMAT);
  SAME(kOacsFirmware, NVME_CTRL_OACS_FW);
  SAME(kOacsNamespaceManagement, NVME_CTRL_OACS_NS_MGMT);
  SAME(kOacsDeviceSelfTest, NVME_CTRL_OACS_SELF_TEST);
  SAME(kOacsDirectives, NVME_CTRL_OACS_DIRECTIVES);
  SAME(kOacsDoorbellBufferConfig, NVME_CTRL_OACS_DBBUF_CFG);
  SAME(kFrmwSlot1ReadOnly, NVME_CTRL_FRMW_1ST_RO);
  SAME(3u << kFrmwSlotsShift, NVME_CTRL_FRMW_NR_SLOTS);
  SAME(kLpaSmartPerNamespace, NVME_CTRL_LPA_SMART_PER_NS);
  SAME(kLpaCommandEffects, NVME_CTRL_LPA_CMD_EFFECTS);
  SAME(kLpaExtendedData, NVME_CTRL_LPA_EXTENDED);
  SAME(kLpaTelemetry, NVME_CTRL_LPA_TELEMETRY);
  SAME(kLpaPersistentEvents, NVME_CTRL_LPA_PERSETENT_EVENT);
  SAME(kLpaSupportedLogPages, NVME_CTRL_LPA_LI0_LI5_LI12_LI13);
  SAME(kOncsCompare, NVME_CTRL_ONCS_COMPARE);
  SAME(kOncsWriteUncorrectable, NVME_CTRL_ONCS_WRITE_UNCORRECTABLE);
  SAME(kOncsDatasetManagement, NVME_CTRL_ONCS_DSM);
  SAME(kOncsWriteZeroes, NVME_CTRL_ONCS_WRITE_ZEROES);
  SAME(kOncsSaveFeatures, NVME_CTRL_ONCS_SAVE_FEATURES);
  SAME(kOncsReservations, NVME_CTRL_ONCS_RESERVATIONS);
  SAME(kOncsTimestamp, NVME_CTRL_ONCS_TIMESTAMP);
  SAME(kOncsVerify, NVME_CTRL_ONCS_VERIFY);
  SAME(kOncsCopy, NVME_CTRL_ONCS_COPY);
  SAME(kFusesCompareAndWrite, NVME_CTRL_FUSES_COMPARE_AND_WRITE);
  SAME(kFnaFormatAllNamespaces, NVME_CTRL_FNA_FMT_ALL_NAMESPACES);
  SAME(kFnaEraseAllNamespaces, NVME_CTRL_FNA_SEC_ALL_NAMESPACES);
  SAME(kFnaCryptographicErase, NVME_CTRL_FNA_CRYPTO_ERASE);
  SAME(kFnaNoBroadcastFormat, NVME_CTRL_FNA_NSID_FFFFFFFF);
  SAME(kVwcPresent, NVME_CTRL_VWC_PRESENT);
  SAME(kVwcFlushBroadcastSupported, NVME_CTRL_VWC_FLUSH);
  SAME(kSglsSupported | kSglsDwordAligned, NVME_CTRL_SGLS_SUPPORTED);
  SAME(kSglsBitBucket, NVME_CTRL_SGLS_BIT_BUCKET);
  SAME(kSglsByteAlignedMetadata, NVME_CTRL_SGLS_MPTR_BYTE_ALIGNED);
  SAME(kSglsOversize, NVME_CTRL_SGLS_OVERSIZE);
  SAME(kSglsMetadataSgl, NVME_CTRL_SGLS_MPTR_SGL);
  SAME(kSglsOffset, NVME_CTRL_SGLS_OFFSET);
}

TEST(Wire, IdentifyControllerNvm) {
  using T = IdentifyControllerNvm;
  using U = struct nvme_id_ctrl_nvm;
  EXPECT_EQ(sizeof(T), sizeof(U));
  SAME_NAME(vsl);
  SAME_NAME(wzsl);
  SAME_NAME(wusl);
  SAME_NAME(dmrl);
  SAME_NAME(dmrsl);
  SAME_NAME(dmsl);
}

TEST(Wire, IdentifyNamespace) {
  using T = IdentifyNamespace;
  using U = struct nvme_id_ns;
  EXPECT_EQ(sizeof(T), sizeof(U));
  SAME_NAME(nsze);
  SAME_NAME(ncap);
  SAME_NAME(nuse);
  SAME_NAME(nsfeat);
  SAME_NAME(nlbaf);
  SAME_NAME(flbas);
  SAME_NAME(mc);
  SAME_NAME(dpc);
  SAME_NAME(dps);
  SAME_NAME(nmic);
  SAME_NAME(rescap);
  SAME_NAME(fpi);
  SAME_NAME(dlfeat);
  SAME_NAME(nawun);
  SAME_NAME(nawupf);
  SAME_NAME(nacwu);
  SAME_NAME(nabsn);
  SAME_NAME(nabo);
  SAME_NAME(nabspf);
  SAME_NAME(noiob);
  SAME_NAME(nvmcap);
  SAME_NAME(npwg);
  SAME_NAME(npwa);
  SAME_NAME(npdg);
  SAME_NAME(npda);
  SAME_NAME(nows);
  SAME_NAME(mssrl);
  SAME_NAME(mcl);
  SAME_NAME(msrc);
  SAME_NAME(nulbaf);
  SAME_NAME(anagrpid);
  SAME_NAME(nsattr);
  SAME_NAME(nvmsetid);
  SAME_NAME(endgid);
  SAME_NAME(nguid);
  SAME_NAME(eui64);
  SAME_NAME(lbaf);
  // libnvme cuts eight bytes (a mask that revision 1.0 moved elsewhere) off the vendor specific part's start.
  EXPECT_EQ(offsetof(T, vs), offsetof(U, lbstm));
}

TEST(Wire, IdentifyNamespaceParts) {
  {
    using T = LbaFormat;
    using U = struct nvme_lbaf;
    EXPECT_EQ(sizeof(T), sizeof(U));
    SAME_NAME(ms);
    SAME_FIELD(lbads, ds);
    SAME_NAME(rp);
  }
  {
    using T = IdentifyNamespaceNvm;
    using U = struct nvme_nvm_id_ns;
    EXPECT_EQ(sizeof(T), sizeof(U));
    SAME_NAME(lbstm);
    SAME_NAME(pic);
    SAME_NAME(elbaf);
  }
  {
    using T = IdentifyNamespaceIndependent;
    using U = struct nvme_id_independent_id_ns;
    EXPECT_EQ(sizeof(T), sizeof(U));
    SAME_NAME(nsfeat);
    SAME_NAME(nmic);
    SAME_NAME(rescap);
    SAME_NAME(fpi);
    SAME_NAME(anagrpid);
    SAME_NAME(nsattr);
    SAME_NAME(nvmsetid);
    SAME_NAME(endgid);
    SAME_NAME(nstat);
  }
  SAME(kNsfeatThinProvisioning, NVME_NS_FEAT_THIN);
  SAME(kNsfeatAtomicFields, NVME_NS_FEAT_NATOMIC);
  SAME(kNsfeatDeallocatedError, NVME_NS_FEAT_DULBE);
  SAME(kNsfeatUidNeverReused, NVME_NS_FEAT_ID_REUSE);
  SAME(kNsfeatOptimalFields, NVME_NS_FEAT_IO_OPT);
  SAME(kFlbasIndexMask, NVME_NS_FLBAS_LOWER_MASK);
  SAME(kFlbasExtendedMetadata, NVME_NS_FLBAS_META_EXT);
  SAME(kFlbasHighIndexMask, NVME_NS_FLBAS_HIGHER_MASK);
  SAME(kNmicShared, NVME_NS_NMIC_SHARED);
  SAME(kDlfeatReadsZeroes, NVME_NS_DLFEAT_RB_ALL_0S);
  SAME(kDlfeatWriteZeroesDeallocates, NVME_NS_DLFEAT_WRITE_ZEROES);
  SAME(kNsattrWriteProtected, NVME_NS_NSATTR_WRITE_PROTECTED);
  EXPECT_EQ(lba_format_index(0x61 | kFlbasExtendedMetadata), 0x31);
}

TEST(Wire, IdentifyListsAndCns) {
  SAME(kIdentifyBytes, NVME_IDENTIFY_DATA_SIZE);
  SAME(kNsidBroadcast, NVME_NSID_ALL);
  SAME(kNsidNone, NVME_NSID_NONE);
  SAME(kVersion20 >> 16, NVME_MAJOR(kVersion20));
  EXPECT_EQ(NVME_MAJOR(kVersion20), 2u);
  SAME(NamespaceList::kMaxEntries, NVME_ID_NS_LIST_MAX);
  EXPECT_EQ(sizeof(NamespaceList), sizeof(struct nvme_ns_list));
  SAME(ControllerList::kMaxEntries, NVME_ID_CTRL_LIST_MAX);
  EXPECT_EQ(sizeof(ControllerList), sizeof(struct nvme_ctrl_list));
  EXPECT_EQ(offsetof(ControllerList, identifier), offsetof(struct nvme_ctrl_list, identifier));
  EXPECT_EQ(sizeof(IdentifyIoCommandSet), sizeof(struct nvme_id_iocs));
  EXPECT_EQ(sizeof(NamespaceIdentificationDescriptor), offsetof(struct nvme_ns_id_desc, nid));
  EXPECT_EQ(offsetof(NamespaceIdentificationDescriptor, nidl), offsetof(struct nvme_ns_id_desc, nidl));
  SAME(Csi::nvm, NVME_CSI_NVM);
  SAME(Csi::key_value, NVME_CSI_KV);
  SAME(Csi::zoned, NVME_CSI_ZNS);
  SAME(NamespaceIdentifierType::eui64, NVME_NIDT_EUI64);
  SAME(NamespaceIdentifierType::nguid, NVME_NIDT_NGUID);
  SAME(NamespaceIdentifierType::uuid, NVME_NIDT_UUID);
  SAME(NamespaceIdentifierType::csi, NVME_NIDT_CSI);
  SAME(kEui64Bytes, NVME_NIDT_EUI64_LEN);
  SAME(kNguidBytes, NVME_NIDT_NGUID_LEN);
  SAME(kUuidBytes, NVME_NIDT_UUID_LEN);
  SAME(kCsiBytes, NVME_NIDT_CSI_LEN);
  SAME(Cns::identify_namespace, NVME_IDENTIFY_CNS_NS);
  SAME(Cns::identify_controller, NVME_IDENTIFY_CNS_CTRL);
  SAME(Cns::active_namespace_list, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST);
  SAME(Cns::namespace_identification_descriptors, NVME_IDENTIFY_CNS_NS_DESC_LIST);
  SAME(Cns::nvm_set_list, NVME_IDENTIFY_CNS_NVMSET_LIST);
  SAME(Cns::csi_namespace, NVME_IDENTIFY_CNS_CSI_NS);
  SAME(Cns::csi_controller, NVME_IDENTIFY_CNS_CSI_CTRL);
  SAME(Cns::csi_active_namespace_list, NVME_IDENTIFY_CNS_CSI_NS_ACTIVE_LIST);
  SAME(Cns::independent_namespace, NVME_IDENTIFY_CNS_CSI_INDEPENDENT_ID_NS);
  SAME(Cns::namespace_user_data_format, NVME_IDENTIFY_CNS_NS_USER_DATA_FORMAT);
  SAME(Cns::csi_namespace_user_data_format, NVME_IDENTIFY_CNS_CSI_NS_USER_DATA_FORMAT);
  SAME(Cns::allocated_namespace_list, NVME_IDENTIFY_CNS_ALLOCATED_NS_LIST);
  SAME(Cns::allocated_namespace, NVME_IDENTIFY_CNS_ALLOCATED_NS);
  SAME(Cns::namespace_controller_list, NVME_IDENTIFY_CNS_NS_CTRL_LIST);
  SAME(Cns::controller_list, NVME_IDENTIFY_CNS_CTRL_LIST);
  SAME(Cns::primary_controller_capabilities, NVME_IDENTIFY_CNS_PRIMARY_CTRL_CAP);
  SAME(Cns::secondary_controller_list, NVME_IDENTIFY_CNS_SECONDARY_CTRL_LIST);
  SAME(Cns::namespace_granularity_list, NVME_IDENTIFY_CNS_NS_GRANULARITY);
  SAME(Cns::uuid_list, NVME_IDENTIFY_CNS_UUID_LIST);
  SAME(Cns::domain_list, NVME_IDENTIFY_CNS_DOMAIN_LIST);
  SAME(Cns::endurance_group_list, NVME_IDENTIFY_CNS_ENDURANCE_GROUP_ID);
  SAME(Cns::csi_allocated_namespace_list, NVME_IDENTIFY_CNS_CSI_ALLOCATED_NS_LIST);
  SAME(Cns::csi_allocated_namespace, NVME_IDENTIFY_CNS_CSI_ID_NS_DATA_STRUCTURE);
  SAME(Cns::io_command_sets, NVME_IDENTIFY_CNS_COMMAND_SET_STRUCTURE);
}

}  // namespace
}  // namespace flashmob::nvme
