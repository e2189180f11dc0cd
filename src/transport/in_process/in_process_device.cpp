#include "transport/in_process/in_process_device.h"

#include <utility>

#include "base/check.h"

namespace flashmob::transport {

InProcessDevice::InProcessDevice(controller::Controller& controller, WakeHandle wake,
                                 driver::InterruptTable& interrupts)
    : controller_(controller), wake_(std::move(wake)), interrupts_(interrupts) {
  FLASHMOB_CHECK(wake_.sleeping == nullptr || wake_.wake != nullptr);
}

std::uint32_t InProcessDevice::read32(std::uint32_t offset) {
  return static_cast<std::uint32_t>(controller_.read_register(offset, 4));
}

std::uint64_t InProcessDevice::read64(std::uint32_t offset) { return controller_.read_register(offset, 8); }

void InProcessDevice::write32(std::uint32_t offset, std::uint32_t value) {
  controller_.write_register(offset, 4, value);
}

void InProcessDevice::write64(std::uint32_t offset, std::uint64_t value) {
  controller_.write_register(offset, 8, value);
}

std::uint32_t* InProcessDevice::doorbells() { return controller_.doorbells(); }

const std::atomic<std::uint32_t>* InProcessDevice::sleeping() { return wake_.sleeping; }

void InProcessDevice::wake() {
  if (wake_.wake) wake_.wake();
}

void InProcessDevice::dma_map(std::uint64_t iova, void* host, std::size_t bytes) {
  controller_.address_space().map(iova, bytes, host);
}

void InProcessDevice::dma_unmap(std::uint64_t iova, std::size_t bytes) {
  // Unmapping what was never mapped is a mistake of code in this very process.
  FLASHMOB_CHECK(controller_.address_space().unmap(iova, bytes));
}

void InProcessDevice::set_interrupt(std::uint16_t vector, std::function<void()> handler) {
  interrupts_.set(vector, std::move(handler));
}

}  // namespace flashmob::transport
