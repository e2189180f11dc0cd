// What is said over a gpu-socket: how another process gives a GPU engine its memory and its queues (docs/reference/
// gpu-socket.md). The protocol is flashmob's own; messages have vfio-user's frame (vfio/message_socket.h).
//
// The client asks, the server answers each command with one reply, or with an error reply whose payload is the reason
// as a sentence. `describe` comes first. Addresses are the client's own, page-aligned pieces of memory are mapped at
// them, and queues lie in those. The end of the connection ends everything that came over it.
// Plain data of one machine, and the checks of what a peer has sent: they throw ConfigError. No thread rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "flashmob/gpu/simt/cuda_abi.h"
#include "vfio/message_socket.h"

namespace flashmob::gpu::wire {

inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kMaxMessageBytes = 256 << 10;
inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr std::uint32_t kMaxQueues = 4096;
inline constexpr std::uint32_t kMaxEntries = 65536;
inline constexpr std::uint32_t kMaxNamespaces = 256;
inline constexpr std::uint64_t kMaxPieceBytes = std::uint64_t{1} << 44;

enum class Command : std::uint16_t {
  describe = 0x4701,  // DescribeRequest -> Description, then its namespaces
  map = 0x4702,       // MapRequest, with one descriptor for a file
  unmap = 0x4703,     // UnmapRequest: exactly what was mapped, and no queue in it
  attach = 0x4704,    // AttachRequest, then its queue pairs; once
  leave = 0x4705,     // nothing; the reply comes when the engine uses none of the memory any more
};

struct DescribeRequest {
  std::uint32_t version;
  std::uint32_t reserved;
};

enum class Kind : std::uint32_t { file = 0, cuda = 1 };  // of memory
inline constexpr std::uint32_t kKnowsCuda = 1;  // Description::flags: both kinds, not files only

struct Description {
  std::uint32_t version;
  std::uint32_t flags;
  std::uint32_t namespaces;
  std::uint32_t most_queues;  // of all clients together
  std::uint64_t max_transfer_bytes;
  char profile[64];
  char engine[160];  // what runs it, as a sentence
};
static_assert(sizeof(Description) == 248);

struct Namespace {
  std::uint64_t blocks;
  std::uint32_t nsid;
  std::uint32_t lba_shift;
};
static_assert(sizeof(Namespace) == 16);

struct MapRequest {
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint64_t offset;  // in the file, or in the memory that the handle names
  Kind kind;
  std::uint32_t reserved;
  simt::CudaMemoryHandle handle;  // Kind::cuda; else zeroes
};
static_assert(sizeof(MapRequest) == 96);

struct UnmapRequest {
  std::uint64_t address;
  std::uint64_t bytes;
};

struct AttachRequest {
  std::uint32_t count;
  std::uint32_t reserved;
};

struct QueuePair {
  std::uint64_t sq;
  std::uint64_t cq;
  std::uint64_t sq_doorbell;
  std::uint64_t cq_doorbell;
  std::uint32_t entries;     // of both rings, 2...65536
  std::uint32_t host_looks;  // 1: a CPU looks for completions, too, not kernels alone
};
static_assert(sizeof(QueuePair) == 40);

// What the server does with a client's message.
void check_describe(const vfio::Message& message);
MapRequest read_map(const vfio::Message& message);
UnmapRequest read_unmap(const vfio::Message& message);
std::vector<QueuePair> read_attach(const vfio::Message& message);
void check_leave(const vfio::Message& message);

// And the client with the server's reply.
struct Described {
  bool knows_cuda = false;
  std::uint32_t most_queues = 0;
  std::uint64_t max_transfer_bytes = 0;
  std::string profile;
  std::string engine;
  std::vector<Namespace> namespaces;
};
Described read_description(const vfio::Message& message);
std::string read_error(const vfio::Message& message);

}  // namespace flashmob::gpu::wire
