// What a worker does to a request that is to show a fault, once its data has been moved.
#include "base/rng.h"
#include "engine/worker.h"

namespace flashmob::engine {

void Worker::show_fault(HotRequest& hot, const ColdRequest& cold) {
  // A zombie completes without an entry.
  if ((hot.fault & kLoseCompletion) != 0) hot.flags = static_cast<std::uint8_t>(hot.flags | kZombie);
  const bool moved = (hot.flags & (kTransfer | kFailed | kZombie)) == kTransfer;
  if ((hot.fault & kCorruptData) != 0 && moved) corrupt(hot, cold);
}

// Turns one bit: of a read, in the host's memory; of a write, on the medium. Which one follows from the command, so
// that equal runs in virtual time are equal.
void Worker::corrupt(const HotRequest& hot, const ColdRequest& cold) {
  const std::uint64_t drawn = splitmix64(hot.fetched_ns ^ (std::uint64_t{hot.cid} << 48) ^ cold.media_offset);
  std::uint64_t at = drawn % cold.bytes;
  const auto bit = static_cast<std::byte>(1u << (drawn >> 61));
  command_set::Namespace& ns = *cold.ns;
  if (cold.is_write) {
    const std::uint64_t offset = cold.media_offset + at;
    std::byte value{};
    if (ns.media->read(offset, {&value, 1})) {
      value ^= bit;
      ns.media->write(offset, {&value, 1});
    }
    return;
  }
  PortContext& port = *sqs_[hot.sq].cq->port;
  const auto& limits = port.controller.io_limits().data_pointer;
  const nvme::Status status =
      memory::resolve(port.reader, cold.sqe, cold.bytes, memory::Direction::to_host, limits, segments_);
  if (status != nvme::Status::success) return;  // the host has unmapped it meanwhile
  for (const memory::Segment& segment : segments_.segments()) {
    if (at < segment.bytes) {
      if (segment.host != nullptr) segment.host[at] ^= bit;
      return;
    }
    at -= segment.bytes;
  }
}

}  // namespace flashmob::engine
