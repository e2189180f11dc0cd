// PDUs of NVMe/TCP (NVMe TCP transport 1.0c, clause 3.6). Little-endian layouts without behaviour; no thread rule.
// A structure is what HLEN counts: header digest, padding and data follow it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nvme/command.h"

namespace flashmob::nvme::tcp {

enum class PduType : std::uint8_t {
  ic_req = 0x00,
  ic_resp = 0x01,
  h2c_term_req = 0x02,
  c2h_term_req = 0x03,
  capsule_cmd = 0x04,
  capsule_resp = 0x05,
  h2c_data = 0x06,
  c2h_data = 0x07,
  r2t = 0x09,
};

inline constexpr std::uint8_t kFlagHeaderDigest = 1u << 0;
inline constexpr std::uint8_t kFlagDataDigest = 1u << 1;
inline constexpr std::uint8_t kFlagLastPdu = 1u << 2;  // H2CData, C2HData
inline constexpr std::uint8_t kFlagSuccess = 1u << 3;  // C2HData: stands for a successful response

struct CommonHeader {
  PduType type;
  std::uint8_t flags;
  std::uint8_t hlen;  // bytes of this and what is specific to the type
  std::uint8_t pdo;   // where data begins, from the PDU's first byte; 0: none
  std::uint32_t plen; // bytes of the whole PDU
};
static_assert(sizeof(CommonHeader) == 8);
static_assert(offsetof(CommonHeader, plen) == 4);

struct IcReq {
  CommonHeader ch;
  std::uint16_t pfv;     // 0
  std::uint8_t hpda;     // the host wants data at multiples of (hpda + 1) * 4 bytes
  std::uint8_t dgst;     // kDigest*
  std::uint32_t maxr2t;  // 0's based
  std::uint8_t reserved16[112];
};
static_assert(sizeof(IcReq) == 128);
static_assert(offsetof(IcReq, maxr2t) == 12);

struct IcResp {
  CommonHeader ch;
  std::uint16_t pfv;
  std::uint8_t cpda;  // as hpda, for what the host sends
  std::uint8_t dgst;
  std::uint32_t maxh2cdata;  // bytes, a multiple of 4, at least kMinMaxH2cData
  std::uint8_t reserved16[112];
};
static_assert(sizeof(IcResp) == 128);
static_assert(offsetof(IcResp, maxh2cdata) == 12);

inline constexpr std::uint8_t kDigestHeader = 1u << 0;
inline constexpr std::uint8_t kDigestData = 1u << 1;
inline constexpr std::uint8_t kMaxPda = 31;
inline constexpr std::uint32_t kMinMaxH2cData = 4096;
inline constexpr std::size_t kDigestBytes = 4;

// H2CTermReq and C2HTermReq: the header of the offending PDU follows, 8 to 128 bytes of it.
struct TermReq {
  CommonHeader ch;
  std::uint16_t fes;     // FatalError
  std::uint16_t fei[2];  // a 32-bit value that is not aligned: low half first
  std::uint8_t reserved14[10];
};
static_assert(sizeof(TermReq) == 24);
static_assert(offsetof(TermReq, fei) == 10);
constexpr std::uint32_t fei_of(const TermReq& pdu) { return pdu.fei[0] | (std::uint32_t{pdu.fei[1]} << 16); }

inline constexpr std::size_t kMaxTermReqBytes = 152;
inline constexpr std::size_t kMaxTermReqDataBytes = 128;

enum class FatalError : std::uint16_t {
  invalid_header_field = 1,    // FEI: offset of the field in the PDU
  sequence_error = 2,
  header_digest_error = 3,     // FEI: the digest that was received
  data_out_of_range = 4,
  data_limit_exceeded = 5,     // in a C2HTermReq; in an H2CTermReq it is the R2T limit
  unsupported_parameter = 6,   // FEI: offset of the field in the PDU
};
inline constexpr FatalError kR2tLimitExceeded = FatalError::data_limit_exceeded;

struct CapsuleCmd {
  CommonHeader ch;
  Sqe sqe;
};
static_assert(sizeof(CapsuleCmd) == 72);

struct CapsuleResp {
  CommonHeader ch;
  Cqe cqe;
};
static_assert(sizeof(CapsuleResp) == 24);

// H2CData and C2HData.
struct Data {
  CommonHeader ch;
  std::uint16_t cccid;
  std::uint16_t ttag;  // H2CData only
  std::uint32_t datao;
  std::uint32_t datal;
  std::uint8_t reserved20[4];
};
static_assert(sizeof(Data) == 24);
static_assert(offsetof(Data, datao) == 12);

struct R2t {
  CommonHeader ch;
  std::uint16_t cccid;
  std::uint16_t ttag;
  std::uint32_t r2to;
  std::uint32_t r2tl;
  std::uint8_t reserved20[4];
};
static_assert(sizeof(R2t) == 24);
static_assert(offsetof(R2t, r2tl) == 16);

inline constexpr std::size_t kMaxHeaderBytes = sizeof(IcReq);

}  // namespace flashmob::nvme::tcp
