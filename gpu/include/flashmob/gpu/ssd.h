// An SSD as GPU threads see it: its namespaces, and all the queue pairs that they may submit to.
//
// A trivially copyable handle, passed to kernels by value; what it refers to belongs to the host
// (gpu/host/attach/ssd_queues.h). Every call submits one command, to the warp's own queue or, if that is full, to the
// next one that is not, and returns. Nothing is held while it waits for a free slot, and that wait has the deadline and
// the abort flag of every wait. Errors that the SSD finds (a block address out of range, say) come back as its status.
// Thread rule: any lane. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/queue.h"
#include "flashmob/gpu/status.h"
#include "flashmob/gpu/token.h"

namespace flashmob::gpu {

struct NamespaceInfo {
  std::uint32_t nsid = 0;
  std::uint32_t lba_shift = 9;  // blocks have 2^lba_shift bytes
  std::uint64_t blocks = 0;
};

class SsdRef {
 public:
  SsdRef() = default;
  FLASHMOB_HD SsdRef(Queue* queues, std::uint32_t queue_count, const NamespaceInfo* namespaces,
                     std::uint32_t namespace_count, std::uint64_t max_transfer_bytes)
      : queues_(queues),
        namespaces_(namespaces),
        max_transfer_bytes_(max_transfer_bytes),
        queue_count_(queue_count),
        namespace_count_(namespace_count) {}

  FLASHMOB_HD std::uint32_t queue_count() const { return queue_count_; }
  FLASHMOB_HD QueueRef queue(std::uint32_t index) const { return QueueRef(queues_ + index); }
  FLASHMOB_HD std::uint32_t namespace_count() const { return namespace_count_; }
  FLASHMOB_HD const NamespaceInfo& ns(std::uint32_t index) const { return namespaces_[index]; }
  FLASHMOB_HD std::uint64_t max_transfer_bytes() const { return max_transfer_bytes_; }
  FLASHMOB_HD std::uint64_t block_bytes(std::uint32_t ns_index) const {
    return std::uint64_t{1} << namespaces_[ns_index].lba_shift;
  }

  // --- With a token, which holds its queue slot until its status is taken ---

  template <class Lane>
  FLASHMOB_HD Token read(Lane& t, std::uint32_t ns_index, std::uint64_t lba, std::uint32_t blocks, void* to) const {
    return start(t, nvme::NvmOpcode::read, ns_index, lba, blocks, to);
  }
  template <class Lane>
  FLASHMOB_HD Token write(Lane& t, std::uint32_t ns_index, std::uint64_t lba, std::uint32_t blocks,
                          const void* from) const {
    return start(t, nvme::NvmOpcode::write, ns_index, lba, blocks, from);
  }
  template <class Lane>
  FLASHMOB_HD Token flush(Lane& t, std::uint32_t ns_index) const {
    return start(t, nvme::NvmOpcode::flush, ns_index, 0, 0, nullptr);
  }
  template <class Lane>
  FLASHMOB_HD Token write_zeroes(Lane& t, std::uint32_t ns_index, std::uint64_t lba, std::uint32_t blocks) const {
    return start(t, nvme::NvmOpcode::write_zeroes, ns_index, lba, blocks, nullptr);
  }
  template <class Lane>
  FLASHMOB_HD Token deallocate(Lane& t, std::uint32_t ns_index, std::uint64_t lba, std::uint32_t blocks) const {
    return start(t, nvme::NvmOpcode::dataset_management, ns_index, lba, blocks, nullptr);
  }

  // --- Announced to a Completion, which must have been armed; nobody owns the slot ---
  // If nothing was submitted, the completion is finished with the status that is returned, which is not ok.

  template <class Lane>
  FLASHMOB_HD IoStatus read_into(Lane& t, std::uint32_t ns_index, std::uint64_t lba, std::uint32_t blocks, void* to,
                                 Completion& done) const {
    return start_announced(t, nvme::NvmOpcode::read, ns_index, lba, blocks, to, done);
  }
  template <class Lane>
  FLASHMOB_HD IoStatus write_from(Lane& t, std::uint32_t ns_index, std::uint64_t lba, std::uint32_t blocks,
                                  const void* from, Completion& done) const {
    return start_announced(t, nvme::NvmOpcode::write, ns_index, lba, blocks, from, done);
  }

  template <class Lane>
  FLASHMOB_HD IoStatus flush_into(Lane& t, std::uint32_t ns_index, Completion& done) const {
    return start_announced(t, nvme::NvmOpcode::flush, ns_index, 0, 0, nullptr, done);
  }

  // What waits that name no time use, and the flag that ends them all.
  FLASHMOB_HD std::uint64_t timeout_ns() const { return queues_->timeout_ns; }
  template <class Lane>
  FLASHMOB_HD bool aborted(Lane& t) const {
    return queue(0).aborted(t);
  }

  // Waits for a completion; polls the queues meanwhile if the callers are to. A wait that ends by deadline or abort
  // flag leaves the command in flight: buffer and completion must stay until it is finished.
  template <class Lane>
  FLASHMOB_HD IoStatus wait(Lane& t, const Completion& done, WaitLimit limit = {}) const {
    const std::uint64_t limit_ns = limit.timeout_ns != 0 ? limit.timeout_ns : timeout_ns();
    const std::uint64_t start_ns = t.now_ns();
    for (Backoff backoff;;) {
      if (done.finished(t)) return done.status(t);
      if (aborted(t)) return {0, IoKind::aborted};
      if (t.now_ns() - start_ns >= limit_ns) return {0, IoKind::deadline};
      if (!help(t)) backoff.pause(t);
    }
  }

  // A turn for all queues if the callers are to poll them; for spin loops that wait for what I/O will bring. True if
  // anything was done.
  template <class Lane>
  FLASHMOB_HD bool help(Lane& t) const {
    if (!queue(0).polled_by_callers(t)) return false;
    bool any = false;
    for (std::uint32_t i = 0; i < queue_count_; ++i) any |= queue((t.warp() + i) % queue_count_).help(t);
    return any;
  }

 private:
  template <class Lane>
  FLASHMOB_HD Token start(Lane& t, nvme::NvmOpcode opcode, std::uint32_t ns_index, std::uint64_t lba,
                          std::uint32_t blocks, const void* data) const {
    Command command;
    if (!describe_command(opcode, ns_index, lba, blocks, data, command)) return Token({0, IoKind::bad_request});
    Place place;
    const IoStatus got = claim(t, place);
    if (!got.ok()) return Token(got);
    const QueueRef queue(place.queue);
    const Token token(queue, place.slot, queue.slot(place.slot).ticket.load(t, simt::Order::relaxed));
    send(t, place, command, nullptr);
    return token;
  }

  template <class Lane>
  FLASHMOB_HD IoStatus start_announced(Lane& t, nvme::NvmOpcode opcode, std::uint32_t ns_index, std::uint64_t lba,
                                       std::uint32_t blocks, const void* data, Completion& done) const {
    Command command;
    IoStatus got{0, IoKind::bad_request};
    Place place;
    if (describe_command(opcode, ns_index, lba, blocks, data, command)) got = claim(t, place);
    if (got.ok())
      send(t, place, command, &done);
    else
      done.finish(t, got);
    return got;
  }

  struct Place {
    Queue* queue = nullptr;
    std::uint32_t slot = 0;
  };

  // False if one command cannot say this.
  FLASHMOB_HD bool describe_command(nvme::NvmOpcode opcode, std::uint32_t ns_index, std::uint64_t lba,
                                    std::uint32_t blocks, const void* data, Command& out) const {
    if (ns_index >= namespace_count_) return false;
    const NamespaceInfo& ns = namespaces_[ns_index];
    out = {opcode, ns.nsid, lba, blocks, reinterpret_cast<std::uint64_t>(data), 0};
    if (opcode == nvme::NvmOpcode::flush) return true;
    if (blocks == 0) return false;
    if (opcode == nvme::NvmOpcode::dataset_management) return true;
    if (data != nullptr) out.bytes = std::uint64_t{blocks} << ns.lba_shift;
    return blocks <= kMaxCommandBlocks && out.bytes <= max_transfer_bytes_ &&
           (data != nullptr || opcode == nvme::NvmOpcode::write_zeroes);
  }

  // A slot of the first queue that has one, waiting for one if none has. It holds nothing while it waits.
  template <class Lane>
  FLASHMOB_HD IoStatus claim(Lane& t, Place& place) const {
    const std::uint64_t start_ns = t.now_ns();
    for (Backoff backoff;;) {
      if (aborted(t)) return {0, IoKind::refused};
      for (std::uint32_t i = 0; i < queue_count_; ++i) {
        place.queue = queues_ + (t.warp() + i) % queue_count_;
        if (QueueRef(place.queue).claim(t, place.slot)) return {};
      }
      if (t.now_ns() - start_ns >= timeout_ns()) return {0, IoKind::queues_full};
      if (!help(t)) backoff.pause(t);
    }
  }

  template <class Lane>
  FLASHMOB_HD void send(Lane& t, const Place& place, const Command& command, Completion* done) const {
    const QueueRef queue(place.queue);
    queue.fill(place.slot, command, done);
    queue.publish(t, place.slot);
    queue.combine(t);
  }

  Queue* queues_ = nullptr;
  const NamespaceInfo* namespaces_ = nullptr;
  std::uint64_t max_transfer_bytes_ = 0;
  std::uint32_t queue_count_ = 0;
  std::uint32_t namespace_count_ = 0;
};

}  // namespace flashmob::gpu
