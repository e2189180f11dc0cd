// CRC32C (polynomial of RFC 3720, appendix B.4): the digest of NVMe/TCP PDUs and of what is saved beside an image.
//
// Uses the processor's instruction where it has one (SSE4.2), looked up at run time, and tables elsewhere. Pure
// functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashmob {

// Continues a digest over `length` more bytes. The digest of nothing is 0, so a digest over pieces is
// crc32c(crc32c(0, a, n), b, m). What it returns is what a PDU carries, little-endian.
std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t length);

// The same from tables alone, for processors without the instruction and for tests of the one against the other.
std::uint32_t crc32c_tables(std::uint32_t crc, const void* data, std::size_t length);

}  // namespace flashmob
