#include "host/arena_attachment.h"

#include <string>

#include "flashmob/error.h"

namespace flashmob::gpu {
namespace {

constexpr std::uint32_t kMaxQueues = 4096;
constexpr std::uint64_t kMaxDataBytes = std::uint64_t{1} << 44;

void require(bool good, const std::string& sentence) {
  if (!good) throw ConfigError(sentence);
}

}  // namespace

engine::Region region_of(const QueueArena& arena, std::uint64_t iova) {
  return {iova, arena.bytes(), arena.base(), true};
}

ArenaAttachment::ArenaAttachment(DeviceEngine& engine, const QueueArena& arena) : engine_(engine) {
  const std::uint32_t entries = arena.shape().entries;
  for (std::uint32_t q = 0; q < arena.shape().queues; ++q) {
    Pair pair;
    const bool has_cq = engine.add_cq(arena.cq(q), entries, arena.cq_doorbell(q), false, pair.cq);
    if (has_cq && engine.add_sq(arena.sq(q), entries, arena.sq_doorbell(q), static_cast<std::uint16_t>(q + 1), pair.cq,
                                pair.sq)) {
      pairs_.push_back(pair);
      continue;
    }
    if (has_cq) engine.remove_cq(pair.cq);
    drop();
    remove();
    throw ConfigError("queues = " + std::to_string(arena.shape().queues) +
                      " is not possible: a unit of the gpu engine serves up to 256; use more units");
  }
}

void ArenaAttachment::drop() {
  for (const Pair& pair : pairs_) engine_.close_sq(pair.sq, engine::QueueState::dropping);
}

bool ArenaAttachment::closed() const {
  for (const Pair& pair : pairs_)
    if (!engine_.closed(pair.sq)) return false;
  return true;
}

void ArenaAttachment::remove() {
  for (const Pair& pair : pairs_) engine_.remove_cq(pair.cq);
  pairs_.clear();
}

ArenaTicket make_ticket(simt::CudaBackend& cuda, void* memory, const QueueArena& arena) {
  ArenaTicket ticket;
  ticket.shape = arena.shape();
  ticket.address = reinterpret_cast<std::uint64_t>(arena.base());
  ticket.offset = static_cast<std::uint64_t>(arena.base() - static_cast<std::byte*>(memory));
  ticket.handle = cuda.export_memory(memory);
  return ticket;
}

void check_ticket(const ArenaTicket& ticket) {
  const ArenaShape& shape = ticket.shape;
  require(ticket.version == ArenaTicket::kVersion, "the arena's ticket is of another version of flashmob");
  require(shape.queues >= 1 && shape.queues <= kMaxQueues, "the arena's ticket: queues must be 1...4096");
  require(shape.entries >= 2 && shape.entries <= 65536, "the arena's ticket: entries must be 2...65536");
  require(shape.max_transfer_bytes >= kPageBytes && shape.max_transfer_bytes <= engine::kMaxTransferBytes,
          "the arena's ticket: max_transfer_bytes must be 4096...131072");
  require(shape.data_bytes <= kMaxDataBytes, "the arena's ticket: data_bytes must be at most 2^44");
  const std::uint64_t bytes = QueueArena(nullptr, shape).bytes();
  require(ticket.address % kPageBytes == 0 && ticket.address + bytes > ticket.address,
          "the arena's ticket: address must be a page's, and the arena end before the address space does");
  require(ticket.offset < kMaxDataBytes, "the arena's ticket: offset must be below 2^44");
}

ImportedArena::ImportedArena(simt::CudaBackend& cuda, const ArenaTicket& ticket)
    : cuda_(cuda),
      memory_((check_ticket(ticket), cuda.import_memory(ticket.handle))),
      iova_(ticket.address),
      arena_(static_cast<std::byte*>(memory_) + ticket.offset, ticket.shape) {}

ImportedArena::~ImportedArena() { cuda_.close_import(memory_); }

}  // namespace flashmob::gpu
