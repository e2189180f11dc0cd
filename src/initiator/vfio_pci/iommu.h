// How the kernel lends a PCI function to a process: VFIO with a container (type 1), or the function's own file with
// iommufd, whichever the machine has. Both end in a file of the function and an address space behind the IOMMU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "initiator/vfio_pci/iova_space.h"
#include "vfio/unique_fd.h"

namespace flashmob::initiator {

class Iommu {
 public:
  virtual ~Iommu() = default;
  // The addresses that it translates.
  virtual std::vector<IovaRange> usable() const = 0;
  // Whole pages of host memory, pinned until unmap(). False with errno where the kernel refuses.
  virtual bool map(std::uint64_t iova, void* host, std::size_t bytes) = 0;
  virtual void unmap(std::uint64_t iova, std::size_t bytes) = 0;
};

struct LentFunction {
  std::unique_ptr<Iommu> iommu;  // ends after `device`
  vfio::UniqueFd group;          // of a container's; keeps `device` ours
  vfio::UniqueFd device;
};

// `address` is that of a function as sysfs has it, 0000:00:04.0. Throws ConfigError with the fix where there is none,
// where another driver has it, or where the kernel does not lend it. `sysfs` and `dev` stand for /sys and /dev.
LentFunction borrow_function(const std::string& address, const std::string& sysfs = "/sys",
                             const std::string& dev = "/dev");

// Whether it is written as one: domain:bus:device.function, in hexadecimal digits of lower case.
bool is_pci_address(const std::string& text);

}  // namespace flashmob::initiator
