// A PCI NVMe function as a user-space driver sees it: registers, doorbells, DMA mappings, interrupts, reset. The
// in-process door and initiators implement it, so the driver above is the same for all of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace flashmob::driver {

class PciDevice {
 public:
  // Of all 65,536 queue pairs that may exist, where doorbells are four bytes apart.
  static constexpr std::size_t kAllDoorbellBytes = std::size_t{65536} * 2 * sizeof(std::uint32_t);

  virtual ~PciDevice() = default;

  // BAR0 registers; offsets as in NVMe Base 2.0c, Figure 35. May trap: not for the hot path.
  virtual std::uint32_t read32(std::uint32_t offset) = 0;
  virtual std::uint64_t read64(std::uint32_t offset) = 0;
  virtual void write32(std::uint32_t offset, std::uint32_t value) = 0;
  virtual void write64(std::uint32_t offset, std::uint64_t value) = 0;

  // BAR0 + 0x1000 as plain memory, and how much of it there is. CAP.DSTRD says how far apart doorbells lie.
  virtual std::uint32_t* doorbells() = 0;
  virtual std::size_t doorbell_bytes() const { return kAllDoorbellBytes; }
  // Non-zero while the device may be asleep. After storing doorbells, the driver loads it and calls wake() if it is
  // set. nullptr: the device never needs waking, or notices by itself within its documented bound.
  virtual const std::atomic<std::uint32_t>* sleeping() { return nullptr; }
  virtual void wake() {}

  // The I/O virtual address for [host, host + bytes), whole pages, where the driver may choose it: the memory's own
  // address, unless the device cannot use that. Told once for each mapping. Throws ConfigError if there is none.
  virtual std::uint64_t choose_iova(const void* host, std::size_t bytes) {
    static_cast<void>(bytes);
    return reinterpret_cast<std::uint64_t>(host);
  }
  // Makes [host, host + bytes) reachable by the device at `iova`. Throws ConfigError if it cannot.
  virtual void dma_map(std::uint64_t iova, void* host, std::size_t bytes) = 0;
  virtual void dma_unmap(std::uint64_t iova, std::size_t bytes) = 0;
  // True if the device is in another process: memory that it reaches must come from a memory file (DmaMemory does
  // that).
  virtual bool needs_shared_memory() const { return false; }
  // dma_map() of a memory file's first `bytes` bytes, which are mapped here at `host`; `fd` is -1 without a file.
  virtual void dma_map_file(std::uint64_t iova, void* host, std::size_t bytes, int fd) {
    static_cast<void>(fd);
    dma_map(iova, host, bytes);
  }

  // Calls `handler` on a device thread for each interrupt of a vector; an empty function masks it.
  virtual void set_interrupt(std::uint16_t vector, std::function<void()> handler) = 0;
  // How many vectors there are; queues take vectors below.
  virtual std::uint32_t interrupt_vectors() const = 0;

  // Function level reset: registers are as after power-on, and nothing of the host's memory is used any more. False
  // where the device offers none, refuses or is gone.
  virtual bool reset() { return false; }
};

}  // namespace flashmob::driver
