// The Key Value command set on the wire (NVM Express Key Value Command Set 1.0): where a command has its key, options
// of Store, what List returns, Identify. Little-endian layouts and pure functions; no thread rule.
//
// A key's first byte is the lowest of dword 2; bytes 0 to 7 lie in dwords 2 and 3, bytes 8 to 15 in dwords 14 and 15
// (clause 3.1), its length in bits 7:0 of dword 11. Bytes beyond the length are ignored.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "nvme/command.h"
#include "nvme/identify.h"

namespace flashmob::nvme {

inline constexpr std::size_t kMaxKeyBytes = 16;

constexpr std::uint8_t kv_key_bytes(const Sqe& sqe) { return static_cast<std::uint8_t>(sqe.cdw11 & 0xFF); }
// Store: Value Size; Retrieve and List: Host Buffer Size. Bytes, and not 0's based.
constexpr std::uint32_t kv_data_bytes(const Sqe& sqe) { return sqe.cdw10; }
// All 16 bytes, whatever the length.
inline std::array<std::uint8_t, kMaxKeyBytes> kv_key(const Sqe& sqe) {
  const std::array<std::uint32_t, 4> words = {sqe.cdw2, sqe.cdw3, sqe.cdw14, sqe.cdw15};
  std::array<std::uint8_t, kMaxKeyBytes> key;
  std::memcpy(key.data(), words.data(), key.size());
  return key;
}
// Up to 16 bytes have a place; the length is said as it is.
inline void set_kv_key(Sqe& sqe, std::span<const std::byte> key) {
  std::array<std::uint32_t, 4> words{};
  if (!key.empty()) std::memcpy(words.data(), key.data(), std::min(key.size(), kMaxKeyBytes));
  sqe.cdw2 = words[0];
  sqe.cdw3 = words[1];
  sqe.cdw14 = words[2];
  sqe.cdw15 = words[3];
  sqe.cdw11 = (sqe.cdw11 & ~0xFFu) | static_cast<std::uint8_t>(key.size());
}

// Store Options, bits 15:8 of dword 11 of Store (clause 3.4).
constexpr std::uint8_t kv_store_options(const Sqe& sqe) { return static_cast<std::uint8_t>(sqe.cdw11 >> 8); }
inline constexpr std::uint8_t kStoreMustExist = 1u << 0;     // else Key Does Not Exist
inline constexpr std::uint8_t kStoreMustNotExist = 1u << 1;  // else Key Exists
inline constexpr std::uint8_t kStoreCompressionHint = 1u << 2;
inline constexpr std::uint8_t kStoreReserved = 0xF8;

// What List returns: the number of keys, and for each its length and its bytes, padded to a multiple of 4 (clause 3.3).
struct KeyListHeader {
  std::uint32_t nrk;
};
static_assert(sizeof(KeyListHeader) == 4);
constexpr std::size_t key_list_entry_bytes(std::size_t key_bytes) { return (2 + key_bytes + 3) / 4 * 4; }

struct KvFormat {
  std::uint16_t kml;  // bytes
  std::uint8_t reserved2;
  std::uint8_t fopt;
  std::uint32_t vml;  // bytes
  std::uint32_t mnk;  // 0: not said
  std::uint8_t reserved12[4];
};
static_assert(sizeof(KvFormat) == 16);
static_assert(offsetof(KvFormat, vml) == 4);
static_assert(offsetof(KvFormat, mnk) == 8);

// CNS 05h and 1Bh with CSI 1h (Figure 39).
struct IdentifyNamespaceKv {
  std::uint64_t nsze;  // bytes
  std::uint8_t reserved8[8];
  std::uint64_t nuse;  // bytes
  std::uint8_t nsfeat;
  std::uint8_t nkvf;  // 0's based
  std::uint8_t nmic;
  std::uint8_t rescap;
  std::uint8_t fpi;
  std::uint8_t reserved29[3];
  std::uint32_t novg;  // bytes
  std::uint32_t anagrpid;
  std::uint8_t reserved40[3];
  std::uint8_t nsattr;
  std::uint16_t nvmsetid;
  std::uint16_t endgid;
  std::uint8_t nguid[16];  // big-endian, as eui64
  std::uint8_t eui64[8];
  KvFormat kvf[16];
  std::uint8_t reserved328[3512];
  std::uint8_t vs[256];
};
static_assert(sizeof(IdentifyNamespaceKv) == kIdentifyBytes);
static_assert(offsetof(IdentifyNamespaceKv, nuse) == 16);
static_assert(offsetof(IdentifyNamespaceKv, nkvf) == 25);
static_assert(offsetof(IdentifyNamespaceKv, novg) == 32);
static_assert(offsetof(IdentifyNamespaceKv, nsattr) == 43);
static_assert(offsetof(IdentifyNamespaceKv, nguid) == 48);
static_assert(offsetof(IdentifyNamespaceKv, eui64) == 64);
static_assert(offsetof(IdentifyNamespaceKv, kvf) == 72);
static_assert(offsetof(IdentifyNamespaceKv, vs) == 3840);

}  // namespace flashmob::nvme
