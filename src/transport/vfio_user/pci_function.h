// The PCI face of one controller: its configuration space (type 0 header, power management, MSI-X and PCI Express
// capabilities) and the BARs behind it (PCI Express Base 4.0, chapter 7; NVMe PCIe Transport 1.0c, 2.1).
//
// BAR 0 holds the controller's registers and doorbells, BAR 4 the MSI-X table and its pending bits. Only bits that
// hosts may write can be written. One thread at a time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "vfio/pci_config.h"

namespace flashmob::transport {

class PciFunction {
 public:
  static constexpr std::uint32_t kRegistersBar = 0;
  static constexpr std::uint32_t kMsixBar = 4;
  static constexpr std::uint32_t kPendingOffset = vfio::kMsixMaxVectors * sizeof(vfio::MsixEntry);

  // `doorbell_bytes` follow the registers' 4 KiB in BAR 0; `vectors` 1 to 2048.
  PciFunction(std::size_t doorbell_bytes, std::uint32_t vectors, std::uint16_t vendor_id);

  // Sizes of the BARs, powers of two.
  std::uint64_t registers_bar_bytes() const { return registers_bar_bytes_; }
  static constexpr std::uint64_t msix_bar_bytes() { return 2 * kPendingOffset; }
  std::uint32_t vectors() const { return vectors_; }

  // Configuration space; the range lies within kConfigSpaceBytes.
  void read(std::size_t offset, std::span<std::byte> to) const;
  // True if the write asks for a function level reset, which is then the caller's to carry out.
  bool write(std::size_t offset, std::span<const std::byte> from);
  // The function as it is after power-on or reset.
  void reset();

  // The MSI-X table as plain memory. Hosts behind a virtual machine monitor keep their table there, not here, so its
  // mask bits decide nothing.
  void read_msix_table(std::size_t offset, std::span<std::byte> to) const;
  void write_msix_table(std::size_t offset, std::span<const std::byte> from);

  bool intx_disabled() const;
  // The interrupt bit of the status register.
  void show_intx(bool asserted);

 private:
  template <class T>
  T& at(std::size_t offset) {
    return *reinterpret_cast<T*>(config_.data() + offset);
  }
  template <class T>
  void put(std::size_t offset, const T& value, const T& writable);
  void put_header(std::uint16_t vendor_id);
  void put_capabilities();

  std::uint64_t registers_bar_bytes_;
  std::uint32_t vectors_;
  alignas(8) std::array<std::byte, vfio::kConfigSpaceBytes> config_{};
  std::array<std::byte, vfio::kConfigSpaceBytes> writable_{};  // a one for each bit that a write may change
  std::array<std::byte, vfio::kConfigSpaceBytes> initial_{};
  std::array<vfio::MsixEntry, vfio::kMsixMaxVectors> msix_table_;
};

}  // namespace flashmob::transport
