// The in-process door: a controller of this process as a PCI function, for the user-space driver.
//
// Register and DMA calls may come from any thread, as the controller and its address space allow; doorbells are the
// controller's own words, so submitting through this door costs no more than a store. The controller, the interrupt
// table and what the wake handle refers to must outlive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "controller/controller.h"
#include "driver/interrupt_table.h"
#include "driver/pci_device.h"

namespace flashmob::transport {

// How to tell that the threads that poll a controller's doorbells sleep, and how to wake them. Given by the engine.
struct WakeHandle {
  const std::atomic<std::uint32_t>* sleeping = nullptr;  // nullptr: they never sleep
  std::function<void()> wake;
};

class InProcessDevice final : public driver::PciDevice {
 public:
  // Interrupts reach the host by `interrupts`, whose fire() the engine was given for this controller.
  InProcessDevice(controller::Controller& controller, WakeHandle wake, driver::InterruptTable& interrupts);

  std::uint32_t read32(std::uint32_t offset) override;
  std::uint64_t read64(std::uint32_t offset) override;
  void write32(std::uint32_t offset, std::uint32_t value) override;
  void write64(std::uint32_t offset, std::uint64_t value) override;
  std::uint32_t* doorbells() override;
  std::size_t doorbell_bytes() const override { return controller_.doorbell_bytes(); }
  const std::atomic<std::uint32_t>* sleeping() override;
  void wake() override;
  void dma_map(std::uint64_t iova, void* host, std::size_t bytes) override;
  void dma_unmap(std::uint64_t iova, std::size_t bytes) override;
  void set_interrupt(std::uint16_t vector, std::function<void()> handler) override;
  std::uint32_t interrupt_vectors() const override { return interrupts_.vectors(); }

 private:
  controller::Controller& controller_;
  WakeHandle wake_;
  driver::InterruptTable& interrupts_;
};

}  // namespace flashmob::transport
