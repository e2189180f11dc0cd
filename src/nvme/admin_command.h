// Fields in the command dwords of admin commands (NVMe Base 2.0c, chapter 5; Format NVM: also NVM command set 1.0c).
// One struct of fields per command with encode_*(fields, sqe) for hosts and decode_*(sqe) for controllers.
// Pure functions; no thread rule. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "nvme/command.h"

namespace flashmob::nvme {

// 5.5 Create I/O Submission Queue and 5.4 Create I/O Completion Queue share CDW10 and the PC bit.
struct CreateIoSq {
  std::uint16_t qid = 0;
  std::uint16_t qsize = 0;  // 0's based
  bool pc = true;           // physically contiguous
  std::uint8_t qprio = 0;   // 0 urgent, 1 high, 2 medium, 3 low
  std::uint16_t cqid = 0;
  std::uint16_t nvmsetid = 0;
};
FLASHMOB_HD constexpr void encode_create_io_sq(const CreateIoSq& f, Sqe& sqe) {
  sqe.cdw10 = f.qid | (std::uint32_t{f.qsize} << 16);
  sqe.cdw11 = std::uint32_t{f.pc} | ((f.qprio & 3u) << 1) | (std::uint32_t{f.cqid} << 16);
  sqe.cdw12 = f.nvmsetid;
}
FLASHMOB_HD constexpr CreateIoSq decode_create_io_sq(const Sqe& sqe) {
  CreateIoSq f;
  f.qid = static_cast<std::uint16_t>(sqe.cdw10);
  f.qsize = static_cast<std::uint16_t>(sqe.cdw10 >> 16);
  f.pc = sqe.cdw11 & 1;
  f.qprio = static_cast<std::uint8_t>((sqe.cdw11 >> 1) & 3);
  f.cqid = static_cast<std::uint16_t>(sqe.cdw11 >> 16);
  f.nvmsetid = static_cast<std::uint16_t>(sqe.cdw12);
  return f;
}

struct CreateIoCq {
  std::uint16_t qid = 0;
  std::uint16_t qsize = 0;  // 0's based
  bool pc = true;
  bool ien = false;  // interrupts enabled
  std::uint16_t iv = 0;
};
FLASHMOB_HD constexpr void encode_create_io_cq(const CreateIoCq& f, Sqe& sqe) {
  sqe.cdw10 = f.qid | (std::uint32_t{f.qsize} << 16);
  sqe.cdw11 = std::uint32_t{f.pc} | (std::uint32_t{f.ien} << 1) | (std::uint32_t{f.iv} << 16);
}
FLASHMOB_HD constexpr CreateIoCq decode_create_io_cq(const Sqe& sqe) {
  CreateIoCq f;
  f.qid = static_cast<std::uint16_t>(sqe.cdw10);
  f.qsize = static_cast<std::uint16_t>(sqe.cdw10 >> 16);
  f.pc = sqe.cdw11 & 1;
  f.ien = (sqe.cdw11 >> 1) & 1;
  f.iv = static_cast<std::uint16_t>(sqe.cdw11 >> 16);
  return f;
}

// 5.16 Get Log Page.
struct GetLogPage {
  std::uint8_t lid = 0;
  std::uint8_t lsp = 0;     // 7 bits
  bool rae = false;         // keep the asynchronous event that this page belongs to
  std::uint32_t numd = 0;   // dwords, 0's based
  std::uint16_t lsi = 0;
  std::uint64_t lpo = 0;    // bytes, or an index when ot is set
  std::uint8_t uuid_index = 0;
  bool ot = false;
  std::uint8_t csi = 0;
};
FLASHMOB_HD constexpr void encode_get_log_page(const GetLogPage& f, Sqe& sqe) {
  sqe.cdw10 = f.lid | ((f.lsp & 0x7Fu) << 8) | (std::uint32_t{f.rae} << 15) | (f.numd << 16);
  sqe.cdw11 = (f.numd >> 16) | (std::uint32_t{f.lsi} << 16);
  sqe.cdw12 = static_cast<std::uint32_t>(f.lpo);
  sqe.cdw13 = static_cast<std::uint32_t>(f.lpo >> 32);
  sqe.cdw14 = (f.uuid_index & 0x7Fu) | (std::uint32_t{f.ot} << 23) | (std::uint32_t{f.csi} << 24);
}
FLASHMOB_HD constexpr GetLogPage decode_get_log_page(const Sqe& sqe) {
  GetLogPage f;
  f.lid = static_cast<std::uint8_t>(sqe.cdw10);
  f.lsp = static_cast<std::uint8_t>((sqe.cdw10 >> 8) & 0x7F);
  f.rae = (sqe.cdw10 >> 15) & 1;
  f.numd = (sqe.cdw10 >> 16) | (sqe.cdw11 << 16);
  f.lsi = static_cast<std::uint16_t>(sqe.cdw11 >> 16);
  f.lpo = sqe.cdw12 | (std::uint64_t{sqe.cdw13} << 32);
  f.uuid_index = static_cast<std::uint8_t>(sqe.cdw14 & 0x7F);
  f.ot = (sqe.cdw14 >> 23) & 1;
  f.csi = static_cast<std::uint8_t>(sqe.cdw14 >> 24);
  return f;
}

// 5.17 Identify.
struct Identify {
  std::uint8_t cns = 0;
  std::uint16_t cntid = 0;
  std::uint16_t cns_specific = 0;  // NVM set, domain or endurance group identifier
  std::uint8_t csi = 0;
  std::uint8_t uuid_index = 0;
};
FLASHMOB_HD constexpr void encode_identify(const Identify& f, Sqe& sqe) {
  sqe.cdw10 = f.cns | (std::uint32_t{f.cntid} << 16);
  sqe.cdw11 = f.cns_specific | (std::uint32_t{f.csi} << 24);
  sqe.cdw14 = f.uuid_index & 0x7Fu;
}
FLASHMOB_HD constexpr Identify decode_identify(const Sqe& sqe) {
  Identify f;
  f.cns = static_cast<std::uint8_t>(sqe.cdw10);
  f.cntid = static_cast<std::uint16_t>(sqe.cdw10 >> 16);
  f.cns_specific = static_cast<std::uint16_t>(sqe.cdw11);
  f.csi = static_cast<std::uint8_t>(sqe.cdw11 >> 24);
  f.uuid_index = static_cast<std::uint8_t>(sqe.cdw14 & 0x7F);
  return f;
}

// 5.1 Abort: completion DW0 bit 0 is set when the command was NOT aborted.
struct Abort {
  std::uint16_t sqid = 0;
  std::uint16_t cid = 0;
};
inline constexpr std::uint32_t kAbortNotDone = 1u << 0;
FLASHMOB_HD constexpr void encode_abort(const Abort& f, Sqe& sqe) { sqe.cdw10 = f.sqid | (std::uint32_t{f.cid} << 16); }
FLASHMOB_HD constexpr Abort decode_abort(const Sqe& sqe) {
  return {static_cast<std::uint16_t>(sqe.cdw10), static_cast<std::uint16_t>(sqe.cdw10 >> 16)};
}

// 5.14 Format NVM.
struct FormatNvm {
  std::uint8_t lbaf = 0;  // 6 bits: low four in CDW10 3:0, high two in 13:12
  bool mset = false;      // metadata as extended LBA
  std::uint8_t pi = 0;
  bool pil = false;
  std::uint8_t ses = 0;  // kFormatErase*
};
inline constexpr std::uint8_t kFormatEraseNone = 0;
inline constexpr std::uint8_t kFormatEraseUserData = 1;
inline constexpr std::uint8_t kFormatEraseCryptographic = 2;
FLASHMOB_HD constexpr void encode_format_nvm(const FormatNvm& f, Sqe& sqe) {
  sqe.cdw10 = (f.lbaf & 0xFu) | (std::uint32_t{f.mset} << 4) | ((f.pi & 7u) << 5) | (std::uint32_t{f.pil} << 8) |
              ((f.ses & 7u) << 9) | (((f.lbaf >> 4) & 3u) << 12);
}
FLASHMOB_HD constexpr FormatNvm decode_format_nvm(const Sqe& sqe) {
  FormatNvm f;
  f.lbaf = static_cast<std::uint8_t>((sqe.cdw10 & 0xF) | ((sqe.cdw10 >> 8) & 0x30));
  f.mset = (sqe.cdw10 >> 4) & 1;
  f.pi = static_cast<std::uint8_t>((sqe.cdw10 >> 5) & 7);
  f.pil = (sqe.cdw10 >> 8) & 1;
  f.ses = static_cast<std::uint8_t>((sqe.cdw10 >> 9) & 7);
  return f;
}

// 5.23 Namespace Management and 5.22 Namespace Attachment: CDW10 bits 3:0 select, CDW11 bits 31:24 are the CSI.
inline constexpr std::uint8_t kNamespaceCreate = 0;
inline constexpr std::uint8_t kNamespaceDelete = 1;
inline constexpr std::uint8_t kNamespaceAttach = 0;
inline constexpr std::uint8_t kNamespaceDetach = 1;
FLASHMOB_HD constexpr std::uint8_t namespace_select(const Sqe& sqe) {
  return static_cast<std::uint8_t>(sqe.cdw10 & 0xF);
}
FLASHMOB_HD constexpr std::uint8_t namespace_csi(const Sqe& sqe) { return static_cast<std::uint8_t>(sqe.cdw11 >> 24); }

}  // namespace flashmob::nvme
