// NVMe over Fabrics: commands, their data and statuses, the discovery log page, the messages of in-band authentication
// (NVMe Base 2.0c, chapter 6, clauses 5.16.1.23 and 8.13). Little-endian layouts and pure functions; no thread rule.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nvme/command.h"
#include "nvme/log_page.h"
#include "nvme/status.h"

namespace flashmob::nvme {

// Every fabrics command has this opcode; its type stands where other commands have the low byte of the NSID.
inline constexpr std::uint8_t kOpcodeFabrics = 0x7F;

enum class FabricsType : std::uint8_t {
  property_set = 0x00,
  connect = 0x01,
  property_get = 0x04,
  authentication_send = 0x05,
  authentication_receive = 0x06,
  disconnect = 0x08,
};
constexpr FabricsType fabrics_type(const Sqe& sqe) { return static_cast<FabricsType>(sqe.nsid & 0xFF); }
constexpr Sqe fabrics_sqe(FabricsType type) {
  Sqe sqe{};
  sqe.opcode = kOpcodeFabrics;
  sqe.flags = kFlagPsdtSglBufferMetadata;
  sqe.nsid = static_cast<std::uint32_t>(type);
  return sqe;
}

// SGL descriptors that only fabrics have (4.1.2.1): a block at an offset in the capsule, and a block that the transport
// moves by itself (type 5h, sub type Ah).
inline constexpr std::uint8_t kSglInCapsule = 0x01;
inline constexpr std::uint8_t kSglTransportData = 0x5A;

inline constexpr std::size_t kNqnBytes = 256;  // field size; an NQN has at most 223 characters and ends with a zero
inline constexpr std::size_t kNqnMaxLength = 223;
inline constexpr char kDiscoveryNqn[] = "nqn.2014-08.org.nvmexpress.discovery";

// Statuses of fabrics commands (SCT 1). Their numbers are shared with statuses of the NVM command set.
inline constexpr Status kConnectIncompatibleFormat = Status{0x180};
inline constexpr Status kConnectControllerBusy = Status{0x181};
inline constexpr Status kConnectInvalidParameters = Status{0x182};
inline constexpr Status kConnectRestartDiscovery = Status{0x183};
inline constexpr Status kConnectInvalidHost = Status{0x184};
inline constexpr Status kInvalidQueueType = Status{0x185};
inline constexpr Status kDiscoverRestart = Status{0x190};
inline constexpr Status kAuthenticationRequired = Status{0x191};

// 6.3 Connect: what CDW10 and on hold, and the 1,024 bytes of data.
struct Connect {
  std::uint16_t recfmt = 0;
  std::uint16_t qid = 0;
  std::uint16_t sqsize = 0;  // 0's based
  std::uint8_t cattr = 0;    // kConnectAttr*
  std::uint32_t kato_ms = 0;
};
inline constexpr std::uint8_t kConnectAttrPriorityMask = 0x03;
inline constexpr std::uint8_t kConnectAttrNoFlowControl = 1u << 2;
inline constexpr std::uint8_t kConnectAttrIndividualDelete = 1u << 3;

constexpr void encode_connect(const Connect& f, Sqe& sqe) {
  sqe.cdw10 = f.recfmt | (std::uint32_t{f.qid} << 16);
  sqe.cdw11 = f.sqsize | (std::uint32_t{f.cattr} << 16);
  sqe.cdw12 = f.kato_ms;
}
constexpr Connect decode_connect(const Sqe& sqe) {
  Connect f;
  f.recfmt = static_cast<std::uint16_t>(sqe.cdw10);
  f.qid = static_cast<std::uint16_t>(sqe.cdw10 >> 16);
  f.sqsize = static_cast<std::uint16_t>(sqe.cdw11);
  f.cattr = static_cast<std::uint8_t>(sqe.cdw11 >> 16);
  f.kato_ms = sqe.cdw12;
  return f;
}
// Where fields of Connect stand in the entry, for the invalid parameter offset.
inline constexpr std::uint16_t kConnectAtRecfmt = 40;
inline constexpr std::uint16_t kConnectAtQid = 42;
inline constexpr std::uint16_t kConnectAtSqsize = 44;
inline constexpr std::uint16_t kConnectAtCattr = 46;
inline constexpr std::uint16_t kConnectAtKato = 48;

struct ConnectData {
  std::uint8_t hostid[16];
  std::uint16_t cntlid;
  std::uint8_t reserved18[238];
  char subnqn[kNqnBytes];
  char hostnqn[kNqnBytes];
  std::uint8_t reserved768[256];
};
static_assert(sizeof(ConnectData) == 1024);
static_assert(offsetof(ConnectData, cntlid) == 16);
static_assert(offsetof(ConnectData, subnqn) == 256);
static_assert(offsetof(ConnectData, hostnqn) == 512);

inline constexpr std::uint16_t kCntlidDynamic = 0xFFFF;
inline constexpr std::uint16_t kCntlidStaticAny = 0xFFFE;

// DW0 of a successful Connect: the controller and what authentication it asks for.
inline constexpr std::uint32_t kConnectAuthRequired = 1u << 17;        // AUTHREQ.ATR
inline constexpr std::uint32_t kConnectSecureChannelRequired = 1u << 18;  // AUTHREQ.ASCR
// DW0 of Connect Invalid Parameters: the offset in the data, or in the entry.
constexpr std::uint32_t connect_invalid_in_data(std::size_t offset) {
  return static_cast<std::uint32_t>(offset) | (1u << 16);
}
constexpr std::uint32_t connect_invalid_in_sqe(std::size_t offset) { return static_cast<std::uint32_t>(offset); }

// 6.5 and 6.6 Property Get and Set.
struct Property {
  bool eight_bytes = false;
  std::uint32_t offset = 0;
  std::uint64_t value = 0;  // Set only; Get answers in DW0 and DW1
};
inline constexpr std::uint8_t kPropertySizeMask = 0x07;
constexpr void encode_property(const Property& f, Sqe& sqe) {
  sqe.cdw10 = f.eight_bytes ? 1 : 0;
  sqe.cdw11 = f.offset;
  sqe.cdw12 = static_cast<std::uint32_t>(f.value);
  sqe.cdw13 = static_cast<std::uint32_t>(f.value >> 32);
}
constexpr Property decode_property(const Sqe& sqe) {
  return {(sqe.cdw10 & kPropertySizeMask) == 1, sqe.cdw11, sqe.cdw12 | (std::uint64_t{sqe.cdw13} << 32)};
}

// 6.1 and 6.2 Authentication Receive and Send.
struct AuthenticationFields {
  std::uint8_t spsp0 = 1;
  std::uint8_t spsp1 = 1;
  std::uint8_t secp = 0xE9;
  std::uint32_t length_bytes = 0;  // TL of Send, AL of Receive
};
inline constexpr std::uint8_t kSecurityProtocolNvme = 0xE9;
constexpr void encode_authentication(const AuthenticationFields& f, Sqe& sqe) {
  sqe.cdw10 = (std::uint32_t{f.spsp0} << 8) | (std::uint32_t{f.spsp1} << 16) | (std::uint32_t{f.secp} << 24);
  sqe.cdw11 = f.length_bytes;
}
constexpr AuthenticationFields decode_authentication(const Sqe& sqe) {
  return {static_cast<std::uint8_t>(sqe.cdw10 >> 8), static_cast<std::uint8_t>(sqe.cdw10 >> 16),
          static_cast<std::uint8_t>(sqe.cdw10 >> 24), sqe.cdw11};
}

// 5.16.1.23: the discovery log page.
inline constexpr std::uint8_t kLidDiscovery = 0x70;
struct DiscoveryHeader {
  std::uint64_t genctr;
  std::uint64_t numrec;
  std::uint16_t recfmt;
  std::uint8_t reserved18[1006];
};
static_assert(sizeof(DiscoveryHeader) == 1024);
static_assert(offsetof(DiscoveryHeader, recfmt) == 16);

struct DiscoveryEntry {
  std::uint8_t trtype;
  std::uint8_t adrfam;
  std::uint8_t subtype;
  std::uint8_t treq;
  std::uint16_t portid;
  std::uint16_t cntlid;
  std::uint16_t asqsz;
  std::uint16_t eflags;
  std::uint8_t reserved12[20];
  char trsvcid[32];
  std::uint8_t reserved64[192];
  char subnqn[kNqnBytes];
  char traddr[256];
  std::uint8_t tsas[256];  // TCP: byte 0 is the security type, kTsasTls13 or 0 for none
};
static_assert(sizeof(DiscoveryEntry) == 1024);
static_assert(offsetof(DiscoveryEntry, asqsz) == 8);
static_assert(offsetof(DiscoveryEntry, trsvcid) == 32);
static_assert(offsetof(DiscoveryEntry, subnqn) == 256);
static_assert(offsetof(DiscoveryEntry, traddr) == 512);
static_assert(offsetof(DiscoveryEntry, tsas) == 768);

inline constexpr std::uint8_t kTrtypeTcp = 3;
inline constexpr std::uint8_t kAdrfamIpv4 = 1;
inline constexpr std::uint8_t kAdrfamIpv6 = 2;
inline constexpr std::uint8_t kSubtypeReferral = 1;
inline constexpr std::uint8_t kSubtypeNvm = 2;
inline constexpr std::uint8_t kSubtypeCurrentDiscovery = 3;
inline constexpr std::uint8_t kTreqSecureChannelRequired = 1;
inline constexpr std::uint8_t kTreqSecureChannelNotRequired = 2;
inline constexpr std::uint8_t kTreqNoFlowControl = 1u << 2;  // hosts may switch SQ flow control off
inline constexpr std::uint8_t kTsasTls13 = 2;
inline constexpr std::uint16_t kMinAdminQueueEntries = 32;

// The event that the log page changed (5.2, notices) and the bit in OAES and feature 0Bh that it needs.
inline constexpr std::uint8_t kNoticeDiscoveryLogChanged = 0xF0;
inline constexpr std::uint32_t kOaesDiscoveryLogChanged = 1u << 31;

// 8.13.5: DH-HMAC-CHAP. All messages begin with the same six bytes; arrays of variable length follow the structures.
inline constexpr std::uint8_t kAuthTypeCommon = 0x00;
inline constexpr std::uint8_t kAuthTypeDhchap = 0x01;
enum class AuthMessage : std::uint8_t {
  negotiate = 0x00,  // common
  challenge = 0x01,
  reply = 0x02,
  success1 = 0x03,
  success2 = 0x04,
  failure2 = 0xF0,  // common, from the host
  failure1 = 0xF1,  // common, from the controller
};

struct AuthHeader {
  std::uint8_t auth_type;
  std::uint8_t auth_id;
  std::uint16_t reserved2;
  std::uint16_t t_id;
};
static_assert(sizeof(AuthHeader) == 6);

// What a host wants to follow from an authentication.
enum class AuthSecureChannel : std::uint8_t {
  none = 0,
  sc = 1,  // what the transport defines; NVMe/TCP defines nothing
  new_tls_psk = 2,
  replace_tls_psk = 3,  // on a connection whose TLS has a key that was made so
};

struct AuthNegotiate {
  AuthHeader header;
  std::uint8_t sc_c;  // secure channel concatenation: AuthSecureChannel
  std::uint8_t napd;  // number of protocol descriptors that follow
};
static_assert(sizeof(AuthNegotiate) == 8);
static_assert(offsetof(AuthNegotiate, napd) == 7);

struct AuthProtocolDescriptor {
  std::uint8_t authid;  // kAuthidDhchap
  std::uint8_t reserved1;
  std::uint8_t halen;
  std::uint8_t dhlen;
  std::uint8_t idlist[60];  // hashes first, DH groups from 30
};
static_assert(sizeof(AuthProtocolDescriptor) == 64);
inline constexpr std::uint8_t kAuthidDhchap = 0x01;
inline constexpr std::size_t kAuthDhGroupsAt = 30;

enum class AuthHash : std::uint8_t { sha256 = 1, sha384 = 2, sha512 = 3 };
enum class AuthDhGroup : std::uint8_t {
  null = 0,
  ffdhe2048 = 1,
  ffdhe3072 = 2,
  ffdhe4096 = 3,
  ffdhe6144 = 4,
  ffdhe8192 = 5,
};

struct AuthChallenge {  // followed by CVAL (hl bytes) and the DH value (dhvlen bytes)
  AuthHeader header;
  std::uint8_t hl;
  std::uint8_t reserved7;
  std::uint8_t hashid;
  std::uint8_t dhgid;
  std::uint16_t dhvlen;
  std::uint32_t seqnum;
};
static_assert(sizeof(AuthChallenge) == 16);
static_assert(offsetof(AuthChallenge, dhvlen) == 10);

struct AuthReply {  // followed by RVAL and CVAL (hl bytes each; CVAL is zero unless cvalid) and the DH value
  AuthHeader header;
  std::uint8_t hl;
  std::uint8_t reserved7;
  std::uint8_t cvalid;
  std::uint8_t reserved9;
  std::uint16_t dhvlen;
  // Of the host's own challenge; 0: the host does not authenticate the controller, and what challenge there is helps to
  // make a key of TLS.
  std::uint32_t seqnum;
};
static_assert(sizeof(AuthReply) == 16);
static_assert(offsetof(AuthReply, seqnum) == 12);

struct AuthSuccess1 {  // followed by RVAL if rvalid
  AuthHeader header;
  std::uint8_t hl;
  std::uint8_t reserved7;
  std::uint8_t rvalid;
  std::uint8_t reserved9[7];
};
static_assert(sizeof(AuthSuccess1) == 16);

struct AuthSuccess2 {
  AuthHeader header;
  std::uint8_t reserved6[10];
};
static_assert(sizeof(AuthSuccess2) == 16);

struct AuthFailure {  // Failure1 and Failure2
  AuthHeader header;
  std::uint8_t rescode;
  std::uint8_t rescode_exp;
};
static_assert(sizeof(AuthFailure) == 8);

inline constexpr std::uint8_t kAuthFailed = 1;  // the only reason code
enum class AuthFailureReason : std::uint8_t {
  authentication_failed = 1,
  protocol_not_usable = 2,
  secure_channel_mismatch = 3,
  hash_not_usable = 4,
  dh_group_not_usable = 5,
  incorrect_payload = 6,
  incorrect_message = 7,
};

}  // namespace flashmob::nvme
