// What both ends of an NVMe/TCP connection need to write PDUs (NVMe TCP transport 1.0c, clauses 3.3 and 3.6): digests,
// padding, lengths. Pure functions; no thread rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fabrics/crc32c.h"
#include "nvme/tcp.h"

namespace flashmob::fabrics {

// What the connection's ends agreed upon.
struct Digests {
  bool header = false;
  bool data = false;
};

// Why a connection cannot go on: what an H2CTermReq or C2HTermReq tells the other end.
struct PduFault {
  nvme::tcp::FatalError fes = nvme::tcp::FatalError::invalid_header_field;
  std::uint32_t fei = 0;
};

// Most bytes that write_header() writes: the longest header, its digest, and padding for the largest alignment.
inline constexpr std::size_t kMaxWireHeaderBytes =
    nvme::tcp::kMaxHeaderBytes + nvme::tcp::kDigestBytes + (nvme::tcp::kMaxPda + 1) * 4;

// The two PDUs that set a connection up and the two that end it never carry digests.
constexpr bool has_digests(nvme::tcp::PduType type) {
  using nvme::tcp::PduType;
  return type != PduType::ic_req && type != PduType::ic_resp && type != PduType::h2c_term_req &&
         type != PduType::c2h_term_req;
}

// Writes a PDU's header, its digest, and the padding before its `data_bytes` bytes of data, which the caller sends
// behind it (and behind them data_digest(), where digests.data is set). Type, and flags other than the digests', are
// the caller's; lengths are filled in here. `pda` is the receiver's alignment (HPDA, CPDA). Returns the bytes written.
template <class Pdu>
std::size_t write_header(std::byte* out, Pdu pdu, std::size_t data_bytes, Digests digests, std::uint8_t pda = 0) {
  const bool digested = has_digests(pdu.ch.type);
  const bool header_digest = digested && digests.header;
  const bool data_digest = digested && digests.data && data_bytes != 0;
  std::size_t bytes = sizeof(Pdu) + (header_digest ? nvme::tcp::kDigestBytes : 0);
  std::size_t begin = bytes;
  if (data_bytes != 0 && digested) {
    const std::size_t alignment = (pda + 1u) * 4u;
    begin = (bytes + alignment - 1) / alignment * alignment;
  }
  pdu.ch.flags = static_cast<std::uint8_t>(pdu.ch.flags | (header_digest ? nvme::tcp::kFlagHeaderDigest : 0) |
                                           (data_digest ? nvme::tcp::kFlagDataDigest : 0));
  pdu.ch.hlen = sizeof(Pdu);
  pdu.ch.pdo = data_bytes != 0 && digested ? static_cast<std::uint8_t>(begin) : 0;
  pdu.ch.plen = static_cast<std::uint32_t>(begin + data_bytes + (data_digest ? nvme::tcp::kDigestBytes : 0));
  std::memcpy(out, &pdu, sizeof(Pdu));
  if (header_digest) {
    const std::uint32_t digest = crc32c(0, out, sizeof(Pdu));
    std::memcpy(out + sizeof(Pdu), &digest, sizeof(digest));
  }
  std::memset(out + bytes, 0, begin - bytes);
  return begin;
}

// A PDU of type `type` with everything else zero.
template <class Pdu>
Pdu make_pdu(nvme::tcp::PduType type) {
  Pdu pdu{};
  pdu.ch.type = type;
  return pdu;
}

}  // namespace flashmob::fabrics
