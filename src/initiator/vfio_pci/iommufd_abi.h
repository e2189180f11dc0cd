// What the kernel's interface of iommufd needs of us (Linux 6.2; Documentation/userspace-api/iommufd.rst), declared
// here because the headers of the oldest systems that we build on lack it.
#pragma once

#include <linux/vfio.h>
#include <sys/ioctl.h>

#include <cstdint>

namespace flashmob::initiator::iommufd {

struct AllocateSpace {
  std::uint32_t size;
  std::uint32_t flags;
  std::uint32_t space_id;  // answered
};
static_assert(sizeof(AllocateSpace) == 12);

struct Ranges {
  std::uint32_t size;
  std::uint32_t space_id;
  std::uint32_t count;  // of the room at `ranges`; answered: how many there are
  std::uint32_t reserved;
  std::uint64_t ranges;  // IovaRange[]
  std::uint64_t alignment_bytes;
};
static_assert(sizeof(Ranges) == 32);

struct Map {
  std::uint32_t size;
  std::uint32_t flags;
  std::uint32_t space_id;
  std::uint32_t reserved;
  std::uint64_t host;
  std::uint64_t bytes;
  std::uint64_t iova;
};
static_assert(sizeof(Map) == 40);
inline constexpr std::uint32_t kMapFixed = 1u << 0;
inline constexpr std::uint32_t kMapWritable = 1u << 1;
inline constexpr std::uint32_t kMapReadable = 1u << 2;

struct Unmap {
  std::uint32_t size;
  std::uint32_t space_id;
  std::uint64_t iova;
  std::uint64_t bytes;
};
static_assert(sizeof(Unmap) == 24);

struct BindDevice {
  std::uint32_t size;
  std::uint32_t flags;
  std::int32_t iommufd;
  std::uint32_t device_id;  // answered
};
static_assert(sizeof(BindDevice) == 16);

struct AttachDevice {
  std::uint32_t size;
  std::uint32_t flags;
  std::uint32_t space_id;
};
static_assert(sizeof(AttachDevice) == 12);

inline constexpr unsigned long kAllocateSpace = _IO(';', 0x81);
inline constexpr unsigned long kRanges = _IO(';', 0x84);
inline constexpr unsigned long kMap = _IO(';', 0x85);
inline constexpr unsigned long kUnmap = _IO(';', 0x86);
inline constexpr unsigned long kBindDevice = _IO(VFIO_TYPE, VFIO_BASE + 18);
inline constexpr unsigned long kAttachDevice = _IO(VFIO_TYPE, VFIO_BASE + 19);

}  // namespace flashmob::initiator::iommufd
