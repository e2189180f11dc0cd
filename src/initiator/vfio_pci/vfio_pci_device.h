// A PCI NVMe function of this machine, lent by the kernel (vfio-pci): registers by the function's file, doorbells
// mapped, memory behind the IOMMU at addresses of our choice, so that the way of an I/O request knows no kernel.
//
// Register, DMA and interrupt calls may come from any thread. A drive that is pulled reads as all ones, and so does one
// that the kernel asks back; writes to it are lost, and the driver above throws NvmeFatal. Handlers run on one thread
// of the device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "driver/interrupt_table.h"
#include "driver/pci_device.h"
#include "initiator/vfio_pci/iommu.h"
#include "initiator/vfio_pci/iova_space.h"
#include "vfio/bus_error_guard.h"
#include "vfio/unique_fd.h"

namespace flashmob::initiator {

class VfioPciDevice final : public driver::PciDevice {
 public:
  // `address` as sysfs has it, 0000:00:04.0. Throws ConfigError where the kernel does not lend it to us or it is no
  // NVMe controller.
  explicit VfioPciDevice(const std::string& address);
  ~VfioPciDevice() override;

  std::uint32_t read32(std::uint32_t offset) override;
  std::uint64_t read64(std::uint32_t offset) override;
  void write32(std::uint32_t offset, std::uint32_t value) override;
  void write64(std::uint32_t offset, std::uint64_t value) override;
  std::uint32_t* doorbells() override { return doorbells_; }
  std::size_t doorbell_bytes() const override { return doorbell_bytes_; }
  std::uint64_t choose_iova(const void* host, std::size_t bytes) override;
  void dma_map(std::uint64_t iova, void* host, std::size_t bytes) override;
  void dma_unmap(std::uint64_t iova, std::size_t bytes) override;
  void set_interrupt(std::uint16_t vector, std::function<void()> handler) override;
  std::uint32_t interrupt_vectors() const override { return vectors_; }
  bool reset() override;

  // False once the drive was pulled or the kernel asked for it back.
  bool present() const { return !lost_.load(std::memory_order_acquire); }

 private:
  struct Region {
    std::uint64_t offset = 0;  // in the function's file
    std::uint64_t bytes = 0;
    std::uint32_t flags = 0;
  };

  [[noreturn]] void fail(const std::string& why) const;
  Region region(std::uint32_t index) const;
  bool read_at(const Region& from, std::uint64_t offset, std::span<std::byte> out) const;
  bool write_at(const Region& to, std::uint64_t offset, std::span<const std::byte> data) const;
  void examine_function();
  bool enable_function();
  void map_doorbells();
  void start_events();
  std::uint32_t count_vectors() const;
  // Gives the kernel an event for `count` vectors from `first` on; -1: none. Its answer, above 0 where it has fewer.
  int set_events(std::uint32_t index, std::uint32_t first, std::span<const int> events) const;
  void event_loop();

  const std::string address_;
  LentFunction lent_;
  Region bar0_;
  Region config_;
  bool can_reset_ = false;
  std::atomic<bool> lost_{false};
  std::mutex space_mutex_;
  std::optional<IovaSpace> space_;
  std::uint32_t* doorbells_ = nullptr;
  std::size_t doorbell_bytes_ = 0;
  std::optional<vfio::BusErrorGuard> doorbells_guard_;

  std::uint32_t vectors_ = 0;
  std::optional<driver::InterruptTable> handlers_;
  std::mutex events_mutex_;
  std::map<std::uint16_t, vfio::UniqueFd> events_;  // of vectors that ever had a handler
  vfio::UniqueFd poller_;  // epoll
  vfio::UniqueFd stop_;  // eventfd
  vfio::UniqueFd removal_;  // eventfd: the kernel asks for the function back
  std::thread thread_;
};

}  // namespace flashmob::initiator
