// The vfio-user protocol's wire format: headers, payload structures and constants (the protocol's specification is
// QEMU's docs/interop/vfio-user; the structures named after VFIO are those of the Linux VFIO user API).
//
// Everything is in the byte order of the host, which is little-endian wherever this project runs. Payload offsets
// count from the end of the 16-byte header. Plain data without behaviour; no thread rule.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashmob::vfio {

inline constexpr std::uint16_t kMajorVersion = 0;
inline constexpr std::uint16_t kMinorVersion = 1;

enum class Command : std::uint16_t {
  version = 1,
  dma_map = 2,
  dma_unmap = 3,
  device_get_info = 4,
  device_get_region_info = 5,
  device_get_region_io_fds = 6,
  device_get_irq_info = 7,
  device_set_irqs = 8,
  region_read = 9,
  region_write = 10,
  dma_read = 11,   // server to client
  dma_write = 12,  // server to client
  device_reset = 13,
  region_write_multi = 15,
  device_feature = 16,
  migration_data_read = 17,
  migration_data_write = 18,
};

struct Header {
  std::uint16_t message_id;
  std::uint16_t command;
  std::uint32_t message_bytes;  // of the whole message, this header included
  std::uint32_t flags;
  std::uint32_t error;  // an errno; replies with kFlagError only
};
static_assert(sizeof(Header) == 16 && offsetof(Header, message_bytes) == 4 && offsetof(Header, error) == 12);

inline constexpr std::uint32_t kFlagTypeMask = 0xF;
inline constexpr std::uint32_t kTypeCommand = 0;
inline constexpr std::uint32_t kTypeReply = 1;
inline constexpr std::uint32_t kFlagNoReply = 1u << 4;
inline constexpr std::uint32_t kFlagError = 1u << 5;

// Version: followed by capabilities as JSON with its terminating NUL, or by nothing.
struct Version {
  std::uint16_t major;
  std::uint16_t minor;
};
static_assert(sizeof(Version) == 4);

// What holds where a side's capabilities do not say otherwise.
inline constexpr std::uint32_t kDefaultMaxMessageFds = 1;
inline constexpr std::uint32_t kDefaultMaxDataTransferBytes = 1u << 20;
inline constexpr std::uint32_t kDefaultMaxDmaMaps = 65535;
inline constexpr std::uint64_t kDefaultPageSizes = 4096;

struct DmaMap {
  std::uint32_t argsz;
  std::uint32_t flags;   // kDma*
  std::uint64_t offset;  // in the file of the file descriptor
  std::uint64_t address;
  std::uint64_t size_bytes;
};
static_assert(sizeof(DmaMap) == 32 && offsetof(DmaMap, address) == 16);
inline constexpr std::uint32_t kDmaReadable = 1u << 0;
inline constexpr std::uint32_t kDmaWritable = 1u << 1;

struct DmaUnmap {
  std::uint32_t argsz;
  std::uint32_t flags;  // kUnmap*
  std::uint64_t address;
  std::uint64_t size_bytes;
};
static_assert(sizeof(DmaUnmap) == 24 && offsetof(DmaUnmap, address) == 8);
inline constexpr std::uint32_t kUnmapGetDirtyBitmap = 1u << 0;
inline constexpr std::uint32_t kUnmapAll = 1u << 1;  // address and size_bytes are zero

struct DeviceInfo {
  std::uint32_t argsz;
  std::uint32_t flags;  // kDevice*
  std::uint32_t regions;
  std::uint32_t irqs;
};
static_assert(sizeof(DeviceInfo) == 16);
inline constexpr std::uint32_t kDeviceReset = 1u << 0;
inline constexpr std::uint32_t kDevicePci = 1u << 1;

// Region indices of a PCI device.
inline constexpr std::uint32_t kRegionBar0 = 0;
inline constexpr std::uint32_t kRegionBar5 = 5;
inline constexpr std::uint32_t kRegionRom = 6;
inline constexpr std::uint32_t kRegionConfig = 7;
inline constexpr std::uint32_t kRegionVga = 8;
inline constexpr std::uint32_t kPciRegions = 9;

struct RegionInfo {
  std::uint32_t argsz;
  std::uint32_t flags;  // kRegion*able, kRegionCapabilities
  std::uint32_t index;
  std::uint32_t capability_offset;  // from the start of this structure
  std::uint64_t size_bytes;
  std::uint64_t offset;  // for mmap() of the file descriptor
};
static_assert(sizeof(RegionInfo) == 32 && offsetof(RegionInfo, size_bytes) == 16);
inline constexpr std::uint32_t kRegionReadable = 1u << 0;
inline constexpr std::uint32_t kRegionWritable = 1u << 1;
inline constexpr std::uint32_t kRegionMappable = 1u << 2;  // a file descriptor comes with the reply
inline constexpr std::uint32_t kRegionCapabilities = 1u << 3;

struct CapabilityHeader {
  std::uint16_t id;  // kCapability*
  std::uint16_t version;
  std::uint32_t next;  // from the start of the RegionInfo; 0: the last one
};
static_assert(sizeof(CapabilityHeader) == 8);
inline constexpr std::uint16_t kCapabilitySparseMmap = 1;

// The areas of a region that can be mapped; followed by `areas` SparseMmapArea.
struct SparseMmap {
  CapabilityHeader header;
  std::uint32_t areas;
  std::uint32_t reserved;
};
static_assert(sizeof(SparseMmap) == 16);
struct SparseMmapArea {
  std::uint64_t offset;  // in the region; plus RegionInfo::offset: in the file
  std::uint64_t size_bytes;
};
static_assert(sizeof(SparseMmapArea) == 16);

// Interrupt indices of a PCI device.
inline constexpr std::uint32_t kIrqIntx = 0;
inline constexpr std::uint32_t kIrqMsi = 1;
inline constexpr std::uint32_t kIrqMsix = 2;
inline constexpr std::uint32_t kIrqError = 3;
inline constexpr std::uint32_t kIrqRequest = 4;
inline constexpr std::uint32_t kPciIrqs = 5;

struct IrqInfo {
  std::uint32_t argsz;
  std::uint32_t flags;  // kIrqEventfd ... kIrqNoResize
  std::uint32_t index;
  std::uint32_t count;
};
static_assert(sizeof(IrqInfo) == 16);
inline constexpr std::uint32_t kIrqEventfd = 1u << 0;
inline constexpr std::uint32_t kIrqMaskable = 1u << 1;
inline constexpr std::uint32_t kIrqAutomasked = 1u << 2;
inline constexpr std::uint32_t kIrqNoResize = 1u << 3;

// Followed by `count` bytes with kIrqSetBool.
struct IrqSet {
  std::uint32_t argsz;
  std::uint32_t flags;  // one data flag and one action flag
  std::uint32_t index;
  std::uint32_t start;
  std::uint32_t count;
};
static_assert(sizeof(IrqSet) == 20);
inline constexpr std::uint32_t kIrqSetNone = 1u << 0;
inline constexpr std::uint32_t kIrqSetBool = 1u << 1;
inline constexpr std::uint32_t kIrqSetEventfd = 1u << 2;
inline constexpr std::uint32_t kIrqSetDataMask = 7u << 0;
inline constexpr std::uint32_t kIrqSetMask = 1u << 3;
inline constexpr std::uint32_t kIrqSetUnmask = 1u << 4;
inline constexpr std::uint32_t kIrqSetTrigger = 1u << 5;
inline constexpr std::uint32_t kIrqSetActionMask = 7u << 3;

// Region read and write, request and reply; followed by the data in a write's request and a read's reply.
struct RegionAccess {
  std::uint64_t offset;
  std::uint32_t region;
  std::uint32_t count_bytes;
};
static_assert(sizeof(RegionAccess) == 16);

// Region write multi: a count of 64 bits, then that many of these; the reply is the count of writes done.
struct RegionWriteOne {
  std::uint64_t offset;
  std::uint32_t region;
  std::uint32_t count_bytes;  // up to 8
  std::uint64_t data;
};
static_assert(sizeof(RegionWriteOne) == 24);

// DMA read and write, request and reply; followed by the data in a write's request and a read's reply.
struct DmaAccess {
  std::uint64_t address;
  std::uint64_t count_bytes;
};
static_assert(sizeof(DmaAccess) == 16);

}  // namespace flashmob::vfio
