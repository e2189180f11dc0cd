// Identify Controller, CNS 01h (NVMe Base 2.0c, clause 5.17.2.1), and its NVM part, CNS 06h with CSI 00h
// (NVM command set 1.0c, clause 4.1.5.3). Field names are the specification's abbreviations in lower case.
// Little-endian layouts without behaviour; no thread rule. Compiles as CUDA device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nvme/identify.h"
#include "nvme/uint128.h"

namespace flashmob::nvme {

// One of the 32 power state descriptors at byte 2048.
struct PowerStateDescriptor {
  std::uint16_t mp;  // maximum power, in units that flags bit 0 chooses: 0.01 W if clear, 0.0001 W if set
  std::uint8_t reserved2;
  std::uint8_t flags;    // bit 0 MXPS, bit 1 NOPS
  std::uint32_t enlat;   // microseconds
  std::uint32_t exlat;   // microseconds
  std::uint8_t rrt;
  std::uint8_t rrl;
  std::uint8_t rwt;
  std::uint8_t rwl;
  std::uint16_t idlp;
  std::uint8_t ips;
  std::uint8_t reserved19;
  std::uint16_t actp;
  std::uint8_t apws;
  std::uint8_t reserved23[9];
};
static_assert(sizeof(PowerStateDescriptor) == 32);
static_assert(offsetof(PowerStateDescriptor, enlat) == 4);
static_assert(offsetof(PowerStateDescriptor, idlp) == 16);
static_assert(offsetof(PowerStateDescriptor, actp) == 20);

struct IdentifyController {
  // Controller capabilities and features.
  std::uint16_t vid;
  std::uint16_t ssvid;
  char sn[20];  // ASCII, padded with spaces, as mn and fr
  char mn[40];
  char fr[8];
  std::uint8_t rab;
  std::uint8_t ieee[3];
  std::uint8_t cmic;
  std::uint8_t mdts;  // 2^mdts pages of CAP.MPSMIN; 0: no limit
  std::uint16_t cntlid;
  std::uint32_t ver;
  std::uint32_t rtd3r;
  std::uint32_t rtd3e;
  std::uint32_t oaes;
  std::uint32_t ctratt;
  std::uint16_t rrls;
  std::uint8_t reserved102[9];
  std::uint8_t cntrltype;
  std::uint8_t fguid[16];
  std::uint16_t crdt1;
  std::uint16_t crdt2;
  std::uint16_t crdt3;
  std::uint8_t reserved134[119];
  std::uint8_t nvmsr;
  std::uint8_t vwci;
  std::uint8_t mec;
  // Admin command set attributes.
  std::uint16_t oacs;
  std::uint8_t acl;   // 0's based, as aerl and elpe
  std::uint8_t aerl;
  std::uint8_t frmw;
  std::uint8_t lpa;
  std::uint8_t elpe;
  std::uint8_t npss;
  std::uint8_t avscc;
  std::uint8_t apsta;
  std::uint16_t wctemp;  // kelvins, as cctemp
  std::uint16_t cctemp;
  std::uint16_t mtfa;
  std::uint32_t hmpre;
  std::uint32_t hmmin;
  Uint128 tnvmcap;  // bytes, as unvmcap
  Uint128 unvmcap;
  std::uint32_t rpmbs;
  std::uint16_t edstt;
  std::uint8_t dsto;
  std::uint8_t fwug;
  std::uint16_t kas;  // units of 100 ms
  std::uint16_t hctma;
  std::uint16_t mntmt;
  std::uint16_t mxtmt;
  std::uint32_t sanicap;
  std::uint32_t hmminds;
  std::uint16_t hmmaxd;
  std::uint16_t nsetidmax;
  std::uint16_t endgidmax;
  std::uint8_t anatt;
  std::uint8_t anacap;
  std::uint32_t anagrpmax;
  std::uint32_t nanagrpid;
  std::uint32_t pels;
  std::uint16_t domainid;
  std::uint8_t reserved358[10];
  Uint128 megcap;
  std::uint8_t reserved384[128];
  // NVM command set attributes.
  std::uint8_t sqes;
  std::uint8_t cqes;
  std::uint16_t maxcmd;
  std::uint32_t nn;
  std::uint16_t oncs;
  std::uint16_t fuses;
  std::uint8_t fna;
  std::uint8_t vwc;
  std::uint16_t awun;  // 0's based blocks, as awupf and acwu
  std::uint16_t awupf;
  std::uint8_t icsvscc;
  std::uint8_t nwpc;
  std::uint16_t acwu;
  std::uint16_t cdfs;  // copy descriptor formats supported (later revisions: OCFS)
  std::uint32_t sgls;
  std::uint32_t mnan;
  Uint128 maxdna;
  std::uint32_t maxcna;
  std::uint8_t reserved564[204];
  char subnqn[256];  // UTF-8, terminated by a zero byte
  std::uint8_t reserved1024[768];
  // Fabrics only.
  std::uint32_t ioccsz;
  std::uint32_t iorcsz;
  std::uint16_t icdoff;
  std::uint8_t fcatt;
  std::uint8_t msdbd;
  std::uint16_t ofcs;
  std::uint8_t dctype;
  std::uint8_t reserved1807[241];
  PowerStateDescriptor psd[32];
  std::uint8_t vs[1024];
};
static_assert(sizeof(IdentifyController) == kIdentifyBytes);
static_assert(offsetof(IdentifyController, sn) == 4);
static_assert(offsetof(IdentifyController, mn) == 24);
static_assert(offsetof(IdentifyController, fr) == 64);
static_assert(offsetof(IdentifyController, mdts) == 77);
static_assert(offsetof(IdentifyController, ver) == 80);
static_assert(offsetof(IdentifyController, cntrltype) == 111);
static_assert(offsetof(IdentifyController, oacs) == 256);
static_assert(offsetof(IdentifyController, tnvmcap) == 280);
static_assert(offsetof(IdentifyController, kas) == 320);
static_assert(offsetof(IdentifyController, sqes) == 512);
static_assert(offsetof(IdentifyController, nn) == 516);
static_assert(offsetof(IdentifyController, sgls) == 536);
static_assert(offsetof(IdentifyController, subnqn) == 768);
static_assert(offsetof(IdentifyController, ioccsz) == 1792);
static_assert(offsetof(IdentifyController, psd) == 2048);
static_assert(offsetof(IdentifyController, vs) == 3072);

inline constexpr std::uint8_t kCmicMultiplePorts = 1u << 0;
inline constexpr std::uint8_t kCmicMultipleControllers = 1u << 1;

inline constexpr std::uint32_t kOaesNamespaceAttribute = 1u << 8;
inline constexpr std::uint32_t kOaesFirmwareActivation = 1u << 9;

inline constexpr std::uint32_t kCtrattHostId128 = 1u << 0;
inline constexpr std::uint32_t kCtrattEnduranceGroups = 1u << 4;
inline constexpr std::uint32_t kCtrattTrafficBasedKeepAlive = 1u << 6;
inline constexpr std::uint32_t kCtrattFlexibleDataPlacement = 1u << 19;

inline constexpr std::uint8_t kCntrltypeIo = 1;
inline constexpr std::uint8_t kCntrltypeDiscovery = 2;
inline constexpr std::uint8_t kCntrltypeAdministrative = 3;

inline constexpr std::uint16_t kOacsSecurity = 1u << 0;
inline constexpr std::uint16_t kOacsFormatNvm = 1u << 1;
inline constexpr std::uint16_t kOacsFirmware = 1u << 2;
inline constexpr std::uint16_t kOacsNamespaceManagement = 1u << 3;
inline constexpr std::uint16_t kOacsDeviceSelfTest = 1u << 4;
inline constexpr std::uint16_t kOacsDirectives = 1u << 5;
inline constexpr std::uint16_t kOacsDoorbellBufferConfig = 1u << 8;

inline constexpr std::uint8_t kFrmwSlot1ReadOnly = 1u << 0;
inline constexpr unsigned kFrmwSlotsShift = 1;  // number of slots in bits 3:1

inline constexpr std::uint8_t kLpaSmartPerNamespace = 1u << 0;
inline constexpr std::uint8_t kLpaCommandEffects = 1u << 1;
inline constexpr std::uint8_t kLpaExtendedData = 1u << 2;  // offsets and 32-bit lengths in Get Log Page
inline constexpr std::uint8_t kLpaTelemetry = 1u << 3;
inline constexpr std::uint8_t kLpaPersistentEvents = 1u << 4;
inline constexpr std::uint8_t kLpaSupportedLogPages = 1u << 5;

inline constexpr std::uint16_t kOncsCompare = 1u << 0;
inline constexpr std::uint16_t kOncsWriteUncorrectable = 1u << 1;
inline constexpr std::uint16_t kOncsDatasetManagement = 1u << 2;
inline constexpr std::uint16_t kOncsWriteZeroes = 1u << 3;
inline constexpr std::uint16_t kOncsSaveFeatures = 1u << 4;
inline constexpr std::uint16_t kOncsReservations = 1u << 5;
inline constexpr std::uint16_t kOncsTimestamp = 1u << 6;
inline constexpr std::uint16_t kOncsVerify = 1u << 7;
inline constexpr std::uint16_t kOncsCopy = 1u << 8;

inline constexpr std::uint16_t kFusesCompareAndWrite = 1u << 0;

inline constexpr std::uint8_t kFnaFormatAllNamespaces = 1u << 0;
inline constexpr std::uint8_t kFnaEraseAllNamespaces = 1u << 1;
inline constexpr std::uint8_t kFnaCryptographicErase = 1u << 2;
inline constexpr std::uint8_t kFnaNoBroadcastFormat = 1u << 3;

inline constexpr std::uint8_t kVwcPresent = 1u << 0;
inline constexpr std::uint8_t kVwcFlushBroadcastUnsupported = 2u << 1;
inline constexpr std::uint8_t kVwcFlushBroadcastSupported = 3u << 1;

inline constexpr std::uint8_t kNwpcProtect = 1u << 0;
inline constexpr std::uint8_t kNwpcUntilPowerCycle = 1u << 1;
inline constexpr std::uint8_t kNwpcPermanent = 1u << 2;

inline constexpr std::uint16_t kCdfsFormat0 = 1u << 0;

inline constexpr std::uint32_t kSglsSupported = 1u << 0;  // 01b: no alignment or granularity asked
inline constexpr std::uint32_t kSglsDwordAligned = 2u << 0;
inline constexpr std::uint32_t kSglsBitBucket = 1u << 16;
inline constexpr std::uint32_t kSglsByteAlignedMetadata = 1u << 17;
inline constexpr std::uint32_t kSglsOversize = 1u << 18;
inline constexpr std::uint32_t kSglsMetadataSgl = 1u << 19;
inline constexpr std::uint32_t kSglsOffset = 1u << 20;
inline constexpr std::uint32_t kSglsTransportDataBlock = 1u << 21;

inline constexpr std::uint16_t kOfcsDisconnect = 1u << 0;

// CNS 06h, CSI 00h. Limits are powers of two of CAP.MPSMIN pages unless said otherwise; 0 means none is reported.
struct IdentifyControllerNvm {
  std::uint8_t vsl;
  std::uint8_t wzsl;
  std::uint8_t wusl;
  std::uint8_t dmrl;    // ranges
  std::uint32_t dmrsl;  // blocks in one range
  std::uint64_t dmsl;   // blocks in all ranges
  std::uint8_t reserved16[4080];
};
static_assert(sizeof(IdentifyControllerNvm) == kIdentifyBytes);
static_assert(offsetof(IdentifyControllerNvm, dmrsl) == 4);
static_assert(offsetof(IdentifyControllerNvm, dmsl) == 8);

}  // namespace flashmob::nvme
