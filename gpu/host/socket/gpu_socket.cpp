#include "host/socket/gpu_socket.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "flashmob/error.h"

namespace flashmob::gpu::wire {
namespace {

constexpr std::size_t kMaxErrorBytes = 1024;

void require(bool good, const char* sentence) {
  if (!good) throw ConfigError(sentence);
}

// The fixed part of a payload; `whole`: nothing follows it.
template <class T>
T read_payload(const vfio::Message& message, bool whole) {
  T value;
  require(message.read(value) && (!whole || message.payload.size() == sizeof(T)),
          "a message's payload has a wrong size");
  return value;
}

void expect_fds(const vfio::Message& message, std::size_t count) {
  require(!message.fds_lost, "the server has too many open files: raise its limit (ulimit -n)");
  require(message.fds.size() == count, count == 0 ? "a message came with a file descriptor that it should not have"
                                                  : "memory that is a file must come with its descriptor");
}

void check_piece(std::uint64_t address, std::uint64_t bytes) {
  require(bytes != 0 && bytes <= kMaxPieceBytes, "memory must have 4096 bytes to 2^44");
  require(address % kPageBytes == 0 && bytes % kPageBytes == 0, "memory must begin and end at a page of 4096 bytes");
  require(address <= UINT64_MAX - bytes, "memory must end before the address space does");
}

void check_pair(const QueuePair& pair) {
  require(pair.entries >= 2 && pair.entries <= kMaxEntries, "queues must have 2...65536 entries");
  require(pair.sq % 64 == 0 && pair.cq % 16 == 0, "rings must begin at a multiple of their entry's size");
  require(pair.sq_doorbell % 4 == 0 && pair.cq_doorbell % 4 == 0, "doorbells must be aligned words");
  require(pair.host_looks <= 1, "a queue's host_looks must be 0 or 1");
}

// Text of a peer's: up to the first NUL, without what would steer a terminal.
std::string text_of(const char* data, std::size_t bytes) {
  std::string text(data, std::find(data, data + bytes, '\0'));
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace

void check_describe(const vfio::Message& message) {
  const auto request = read_payload<DescribeRequest>(message, true);
  expect_fds(message, 0);
  require(request.version == kVersion && request.reserved == 0,
          "client and server are of different versions of flashmob: use the same one for both");
}

MapRequest read_map(const vfio::Message& message) {
  const auto request = read_payload<MapRequest>(message, true);
  require(request.kind == Kind::file || request.kind == Kind::cuda, "memory must be a file or a GPU's");
  expect_fds(message, request.kind == Kind::file ? 1 : 0);
  check_piece(request.address, request.bytes);
  require(request.offset % kPageBytes == 0 && request.offset <= kMaxPieceBytes,
          "memory's offset must be a multiple of 4096 and at most 2^44");
  require(request.reserved == 0, "a field that is reserved is not zero");
  return request;
}

UnmapRequest read_unmap(const vfio::Message& message) {
  const auto request = read_payload<UnmapRequest>(message, true);
  expect_fds(message, 0);
  check_piece(request.address, request.bytes);
  return request;
}

std::vector<QueuePair> read_attach(const vfio::Message& message) {
  const auto request = read_payload<AttachRequest>(message, false);
  expect_fds(message, 0);
  require(request.count >= 1 && request.count <= kMaxQueues, "queues must be 1...4096");
  require(request.reserved == 0, "a field that is reserved is not zero");
  const std::size_t bytes = request.count * sizeof(QueuePair);
  require(message.payload.size() == sizeof(request) + bytes, "a message's payload has a wrong size");
  std::vector<QueuePair> pairs(request.count);
  message.copy_out(pairs.data(), bytes, sizeof(request));
  for (const QueuePair& pair : pairs) check_pair(pair);
  return pairs;
}

void check_leave(const vfio::Message& message) {
  require(message.payload.empty(), "a message's payload has a wrong size");
  expect_fds(message, 0);
}

Described read_description(const vfio::Message& message) {
  const auto head = read_payload<Description>(message, false);
  expect_fds(message, 0);
  require(head.version == kVersion,
          "client and server are of different versions of flashmob: use the same one for both");
  require(head.namespaces <= kMaxNamespaces && head.most_queues <= 1024 * 256,
          "the server describes what cannot be: is it one of flashmob?");
  require(head.max_transfer_bytes >= kPageBytes && head.max_transfer_bytes % kPageBytes == 0 &&
              head.max_transfer_bytes <= (16 << 20),
          "the server's limit of a transfer cannot be");
  Described described;
  described.knows_cuda = (head.flags & kKnowsCuda) != 0;
  described.most_queues = head.most_queues;
  described.max_transfer_bytes = head.max_transfer_bytes;
  described.profile = text_of(head.profile, sizeof(head.profile));
  described.engine = text_of(head.engine, sizeof(head.engine));
  described.namespaces.resize(head.namespaces);
  const std::size_t bytes = head.namespaces * sizeof(Namespace);
  require(message.payload.size() == sizeof(head) + bytes, "a message's payload has a wrong size");
  message.copy_out(described.namespaces.data(), bytes, sizeof(head));
  for (const Namespace& ns : described.namespaces)
    require(ns.nsid != 0 && ns.lba_shift >= 9 && ns.lba_shift <= 16 && ns.blocks != 0 && ns.blocks <= UINT64_MAX >> 16,
            "the server describes a namespace that cannot be");
  return described;
}

std::string read_error(const vfio::Message& message) {
  const std::size_t bytes = std::min(message.payload.size(), kMaxErrorBytes);
  const std::string text = text_of(reinterpret_cast<const char*>(message.payload.data()), bytes);
  return text.empty() ? "the server refused it without a reason" : text;
}

}  // namespace flashmob::gpu::wire
