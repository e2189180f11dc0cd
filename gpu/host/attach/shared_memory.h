// Memory that every attached SSD reaches, at I/O virtual addresses equal to the addresses that kernels and host code
// use: memory of our own, or memory that a caller brings. Create and destroy on the host thread that owns the SSDs;
// destruction waits for copies in flight.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "driver/pci_device.h"
#include "memory/host_memory.h"

namespace flashmob::gpu {

class SharedMemory {
 public:
  // Zeroed, page-aligned; rounded up to whole pages.
  SharedMemory(std::span<driver::PciDevice* const> devices, std::size_t bytes);
  // The caller's memory, which outlives this object. Throws ConfigError if an SSD reaches part of it already.
  SharedMemory(std::span<driver::PciDevice* const> devices, void* data, std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  void map(std::span<driver::PciDevice* const> devices);
  void unmap();

  memory::HostMemory own_;
  std::byte* data_;
  std::size_t bytes_;
  std::vector<driver::PciDevice*> mapped_;
};

}  // namespace flashmob::gpu
