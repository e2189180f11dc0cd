// Reads and writes of host code to an attached SSD, beside those of kernels: through a queue pair of the NVMe driver's
// own, from and to any memory. For the host thread that owns the SSD; in virtual time waiting moves the clock.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/data_buffer.h"
#include "driver/dma_memory.h"
#include "driver/nvme_driver.h"
#include "flashmob/gpu/ssd.h"

namespace flashmob::gpu {

// Throws ConfigError, with the fix, unless these are whole blocks that the namespace has.
void check_transfer(const NamespaceInfo& ns, std::uint64_t lba, std::uint64_t bytes);

class HostIo {
 public:
  // Commands carry at most `max_transfer_bytes`, the device's limit (MDTS).
  HostIo(driver::NvmeDriver& driver, std::uint64_t max_transfer_bytes);

  // `bytes` is a multiple of the block size and the blocks exist; ConfigError names the fix otherwise. Throws NvmeError
  // where the SSD refuses, NvmeTimeout where it does not answer.
  void write(const NamespaceInfo& ns, std::uint64_t lba, const void* data, std::uint64_t bytes);
  void read(const NamespaceInfo& ns, std::uint64_t lba, void* data, std::uint64_t bytes);

 private:
  struct Part {
    std::byte* to = nullptr;  // where a read's bytes go
    std::uint64_t bytes = 0;
  };
  void transfer(const NamespaceInfo& ns, std::uint64_t lba, std::byte* data, std::uint64_t bytes, bool is_write);
  void submit(const NamespaceInfo& ns, std::uint64_t lba, std::byte* data, std::uint64_t bytes, bool is_write);
  // Takes in completions until at most `outstanding` commands are in flight.
  void reap_until(std::uint32_t outstanding);

  driver::NvmeDriver& driver_;
  driver::QueuePair& pair_;
  const std::uint64_t slot_bytes_;
  driver::DmaMemory memory_;
  driver::PrpLists lists_;
  std::vector<Part> parts_;  // by command identifier
  std::vector<std::uint16_t> free_;
  std::uint16_t failure_ = 0;  // the first failing status of the transfer under way
};

}  // namespace flashmob::gpu
