#include "host/engine/queue_attachment.h"

#include <string>

#include "flashmob/error.h"

namespace flashmob::gpu {

std::vector<EngineQueue> queues_of(const QueueArena& arena) {
  std::vector<EngineQueue> queues;
  for (std::uint32_t q = 0; q < arena.shape().queues; ++q)
    queues.push_back({arena.sq(q), arena.cq(q), arena.sq_doorbell(q), arena.cq_doorbell(q), arena.shape().entries});
  return queues;
}

engine::Region region_of(const QueueArena& arena, std::uint64_t iova) {
  return {iova, arena.bytes(), arena.base(), true};
}

QueueAttachment::QueueAttachment(DeviceEngine& engine, std::span<const EngineQueue> queues, std::uint32_t controller)
    : engine_(engine) {
  for (std::size_t q = 0; q < queues.size(); ++q) {
    const EngineQueue& queue = queues[q];
    Pair pair;
    const bool has_cq =
        engine.add_cq(queue.cq, queue.entries, queue.cq_doorbell, queue.host_looks, pair.cq, controller);
    if (has_cq && engine.add_sq(queue.sq, queue.entries, queue.sq_doorbell, static_cast<std::uint16_t>(q + 1), pair.cq,
                                pair.sq, controller)) {
      pairs_.push_back(pair);
      continue;
    }
    if (has_cq) engine.remove_cq(pair.cq);
    drop();
    remove();
    throw ConfigError("queues = " + std::to_string(queues.size()) +
                      " is not possible: a unit of the gpu engine serves up to 256; use more units, or fewer queues");
  }
}

void QueueAttachment::drop() {
  for (const Pair& pair : pairs_) engine_.close_sq(pair.sq, engine::QueueState::dropping);
}

bool QueueAttachment::closed() const {
  for (const Pair& pair : pairs_)
    if (!engine_.closed(pair.sq)) return false;
  return true;
}

void QueueAttachment::remove() {
  for (const Pair& pair : pairs_) {
    engine_.remove_sq(pair.sq);
    engine_.remove_cq(pair.cq);
  }
  pairs_.clear();
}

}  // namespace flashmob::gpu
