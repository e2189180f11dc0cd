// What a host must know of a controller's namespaces before it reads or writes them: Identify (NVMe Base 2.0c, 5.17;
// NVM command set 1.0c, 4.1.5), parsed once for everybody.
//
// namespace_of() is pure; the others run admin commands, on the driver's thread, and throw what NvmeDriver::identify()
// throws. What a device says is taken as it is, but for shifts that no integer has.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/nvme_driver.h"
#include "nvme/identify_namespace.h"

namespace flashmob::driver {

struct BlockNamespace {
  std::uint32_t nsid = 0;
  std::uint8_t lba_shift = 9;         // LBADS, 63 at most
  std::uint16_t metadata_bytes = 0;   // of each block
  bool extended_metadata = false;     // it follows each block's data in the same buffer
  std::uint64_t blocks = 0;           // 0: not active

  std::uint64_t lba_bytes() const { return std::uint64_t{1} << lba_shift; }
  std::uint64_t bytes() const { return blocks << lba_shift; }
};

BlockNamespace namespace_of(std::uint32_t nsid, const nvme::IdentifyNamespace& identify);

// Without blocks where no such namespace is active.
BlockNamespace identify_namespace(NvmeDriver& driver, std::uint32_t nsid);
// All of them, by rising identifier.
std::vector<std::uint32_t> active_namespaces(NvmeDriver& driver);
// What one command may transfer (MDTS); UINT64_MAX where the controller names no limit.
std::uint64_t max_transfer_bytes(NvmeDriver& driver);

}  // namespace flashmob::driver
