// Host buffers of the simulation, and every shape in which a command can describe them: PRPs with offsets, lists and
// chains; SGL data blocks, bit buckets, segments and chains of them. Or something that is wrong in one known way.
//
// For one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "driver/dma_memory.h"
#include "nvme/command.h"
#include "nvme/status.h"

namespace flashmob::simulation {

// A part of a transfer, in order; host is nullptr in a bit bucket.
struct Piece {
  std::byte* host;
  std::uint64_t bytes;
};

// One command's memory: data pages, and pages for its PRP lists or SGL segments.
class Slot {
 public:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kListPages = 3;

  Slot(std::byte* memory, std::uint64_t data_pages) : memory_(memory), data_pages_(data_pages) {}

  // Describes `bytes` bytes of the slot in some random shape: fills in the command's data pointer and the pieces.
  // With `damage` one thing is wrong; returns the status that names it (success if the shape drawn cannot be damaged).
  nvme::Status describe(Rng& rng, nvme::Sqe& sqe, std::uint64_t bytes, bool to_host, bool damage);

  std::span<const Piece> pieces() const { return pieces_; }
  // Pours data into the pieces (a write's source); bit buckets of writes do not exist.
  void scatter(std::span<const std::byte> data);
  // Takes data out of the pieces; `known` tells which bytes were transferred and not dropped.
  void gather(std::span<std::byte> data, std::span<bool> known) const;
  // Fills everything with a pattern, and tells whether bytes outside (or, if `all`, also inside) the pieces changed.
  void paint();
  bool intact(bool all) const;

 private:
  std::byte* data(std::uint64_t at) const { return memory_ + at; }
  std::byte* list(std::uint64_t at) const { return memory_ + data_pages_ * kPage + at; }
  static std::uint64_t iova(const std::byte* host) { return reinterpret_cast<std::uint64_t>(host); }

  nvme::Status describe_prp(Rng& rng, nvme::Sqe& sqe, std::uint64_t bytes, bool damage);
  nvme::Status describe_sgl(Rng& rng, nvme::Sqe& sqe, std::uint64_t bytes, bool to_host, bool damage);
  std::vector<std::uint64_t> shuffled_pages(Rng& rng, std::uint64_t count) const;

  std::byte* memory_;
  std::uint64_t data_pages_;
  std::vector<Piece> pieces_;
};

class SlotPool {
 public:
  SlotPool(driver::PciDevice& device, std::uint32_t slots, std::uint64_t max_transfer_bytes);
  // nullptr: all are in use.
  Slot* take();
  void give(Slot* slot) { free_.push_back(slot); }

 private:
  std::uint64_t data_pages_;
  driver::DmaMemory memory_;
  std::vector<Slot> slots_;
  std::vector<Slot*> free_;
};

}  // namespace flashmob::simulation
