// Reads and writes of host code to an attached SSD, beside those of kernels: through a queue pair of the NVMe driver's
// own, from and to any memory. For the host thread that owns the SSD; in virtual time waiting moves the clock.
#pragma once

#include <cstdint>

#include "driver/block_queue.h"
#include "flashmob/gpu/ssd.h"

namespace flashmob::gpu {

// Throws ConfigError, with the fix, unless these are whole blocks that the namespace has.
void check_transfer(const NamespaceInfo& ns, std::uint64_t lba, std::uint64_t bytes);

class HostIo {
 public:
  // Commands carry at most `max_transfer_bytes`, the device's limit (MDTS).
  HostIo(driver::NvmeDriver& driver, std::uint64_t max_transfer_bytes);

  // `bytes` is a multiple of the block size and the blocks exist; ConfigError names the fix otherwise. Throws NvmeError
  // where the SSD refuses, NvmeTimeout where it does not answer, NvmeFatal where it has died.
  void write(const NamespaceInfo& ns, std::uint64_t lba, const void* data, std::uint64_t bytes);
  void read(const NamespaceInfo& ns, std::uint64_t lba, void* data, std::uint64_t bytes);

 private:
  void run(nvme::NvmOpcode opcode, const NamespaceInfo& ns, std::uint64_t lba, void* data, std::uint64_t bytes);

  driver::BlockQueue queue_;
};

}  // namespace flashmob::gpu
