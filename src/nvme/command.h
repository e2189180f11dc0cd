// Submission and completion queue entries and the data pointers they carry (NVMe Base 2.0c, 3.3.3 and 4.1.1;
// SGL 4.1.2). Little-endian layout, standard layout types, no behaviour. Compiles as CUDA device code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashmob::nvme {

// 4.1.2.1: one 16-byte SGL descriptor. The last byte holds type (7:4) and sub type (3:0).
struct SglDescriptor {
  std::uint64_t address;
  std::uint32_t length_bytes;
  std::uint8_t reserved[3];
  std::uint8_t identifier;
};
static_assert(sizeof(SglDescriptor) == 16);
static_assert(offsetof(SglDescriptor, length_bytes) == 8);
static_assert(offsetof(SglDescriptor, identifier) == 15);

enum class SglType : std::uint8_t {
  data_block = 0x0,
  bit_bucket = 0x1,
  segment = 0x2,
  last_segment = 0x3,
};

// Figure 86 (PSDT, bits 7:6 of the flags byte) and FUSE (bits 1:0).
inline constexpr std::uint8_t kFlagFuseMask = 0x03;
inline constexpr std::uint8_t kFlagFuseFirst = 0x01;
inline constexpr std::uint8_t kFlagFuseSecond = 0x02;
inline constexpr std::uint8_t kFlagPsdtMask = 0xC0;
inline constexpr std::uint8_t kFlagPsdtSglBufferMetadata = 0x40;
inline constexpr std::uint8_t kFlagPsdtSglSegmentMetadata = 0x80;

// Figure 87: the 64-byte common command format.
struct Sqe {
  std::uint8_t opcode;
  std::uint8_t flags;
  std::uint16_t cid;
  std::uint32_t nsid;
  std::uint32_t cdw2;
  std::uint32_t cdw3;
  std::uint64_t mptr;
  union {
    struct {
      std::uint64_t prp1;
      std::uint64_t prp2;
    };
    SglDescriptor sgl1;
  };
  std::uint32_t cdw10;
  std::uint32_t cdw11;
  std::uint32_t cdw12;
  std::uint32_t cdw13;
  std::uint32_t cdw14;
  std::uint32_t cdw15;
};
static_assert(sizeof(Sqe) == 64);
static_assert(offsetof(Sqe, cid) == 2);
static_assert(offsetof(Sqe, nsid) == 4);
static_assert(offsetof(Sqe, mptr) == 16);
static_assert(offsetof(Sqe, prp1) == 24);
static_assert(offsetof(Sqe, prp2) == 32);
static_assert(offsetof(Sqe, sgl1) == 24);
static_assert(offsetof(Sqe, cdw10) == 40);
static_assert(offsetof(Sqe, cdw15) == 60);

// Figure 90: completion queue entry. `status_phase` is the phase tag in bit 0 and the 15-bit Status above it.
struct Cqe {
  std::uint32_t dw0;
  std::uint32_t dw1;
  std::uint16_t sqhd;
  std::uint16_t sqid;
  std::uint16_t cid;
  std::uint16_t status_phase;
};
static_assert(sizeof(Cqe) == 16);
static_assert(offsetof(Cqe, sqhd) == 8);
static_assert(offsetof(Cqe, cid) == 12);
static_assert(offsetof(Cqe, status_phase) == 14);

}  // namespace flashmob::nvme
