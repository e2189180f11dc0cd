// What Intel's Data Streaming Accelerator reads and writes in memory: descriptors and completion records.
//
// Source: Intel Data Streaming Accelerator Architecture Specification, order number 341204: the chapter on descriptor
// formats (common descriptor fields, completion record, batch, memory move) and its table of operation status codes.
// Only what the copy engine uses is here. Plain data, for any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashmob::engine::dsa {

enum class Opcode : std::uint8_t {
  batch = 0x01,
  memory_move = 0x03,
};

// Flags, the lower 24 bits of the second dword (341204, "Flags" of the common descriptor fields).
inline constexpr std::uint32_t kFlagBlockOnFault = 1u << 1;
inline constexpr std::uint32_t kFlagRecordAddressValid = 1u << 2;
// Without it, a record is written only where the operation did not succeed.
inline constexpr std::uint32_t kFlagRequestRecord = 1u << 3;
// Destination writes go to the cache instead of memory.
inline constexpr std::uint32_t kFlagCacheControl = 1u << 8;
inline constexpr std::uint32_t kFlagMask = (1u << 24) - 1;

// Work descriptor. 64 bytes, aligned to 64 (so that the instructions that submit it may read it).
struct alignas(64) Descriptor {
  std::uint32_t pasid = 0;   // bits 19:0, and the privilege in bit 31: filled in by the queue or by ENQCMD
  std::uint32_t flags_opcode = 0;  // flags in bits 23:0, opcode in bits 31:24
  std::uint64_t record = 0;        // address of the completion record, aligned to 32
  std::uint64_t source = 0;        // batch: address of the list of descriptors, aligned to 64
  std::uint64_t destination = 0;
  std::uint32_t size = 0;          // bytes; batch: number of descriptors, at least 2
  std::uint16_t interrupt_handle = 0;
  std::uint16_t reserved = 0;
  std::uint64_t operation_specific[3] = {};

  Opcode opcode() const { return static_cast<Opcode>(flags_opcode >> 24); }
  std::uint32_t flags() const { return flags_opcode & kFlagMask; }
  void set(Opcode opcode, std::uint32_t flags) {
    flags_opcode = (static_cast<std::uint32_t>(opcode) << 24) | (flags & kFlagMask);
  }
};
static_assert(sizeof(Descriptor) == 64 && alignof(Descriptor) == 64);
static_assert(offsetof(Descriptor, flags_opcode) == 4);
static_assert(offsetof(Descriptor, record) == 8);
static_assert(offsetof(Descriptor, source) == 16);
static_assert(offsetof(Descriptor, destination) == 24);
static_assert(offsetof(Descriptor, size) == 32);
static_assert(offsetof(Descriptor, interrupt_handle) == 36);
static_assert(offsetof(Descriptor, operation_specific) == 40);

inline constexpr std::uint32_t kMinBatch = 2;

// Operation status, bits 5:0 of a completion record's first byte; other values are errors of other kinds.
enum class Status : std::uint8_t {
  none = 0x00,  // software clears the byte before it submits; the device writes something else
  success = 0x01,
  page_fault = 0x03,        // partial completion, Block On Fault being 0
  batch_failed = 0x05,      // at least one descriptor of the batch was not successful: look at their records
  batch_page_fault = 0x06,  // the list of descriptors could not be read
  unsupported_opcode = 0x10,
  invalid_flags = 0x11,
  invalid_size = 0x13,
};
inline constexpr std::uint8_t kStatusMask = 0x3F;
inline constexpr std::uint8_t kFaultWasWrite = 0x80;

// Completion record. 32 bytes, aligned to 32; the device writes it at once and last.
struct alignas(32) Completion {
  std::uint8_t status = 0;     // Status, and kFaultWasWrite
  std::uint8_t result = 0;     // memory move with a page fault: 1 if it began at the end (buffers overlap)
  std::uint16_t fault_information = 0;
  std::uint32_t completed = 0;  // bytes before the fault; batch: descriptors
  std::uint64_t fault_address = 0;
  std::uint64_t operation_specific[2] = {};
};
static_assert(sizeof(Completion) == 32 && alignof(Completion) == 32);
static_assert(offsetof(Completion, result) == 1);
static_assert(offsetof(Completion, completed) == 4);
static_assert(offsetof(Completion, fault_address) == 8);
static_assert(offsetof(Completion, operation_specific) == 16);

}  // namespace flashmob::engine::dsa
