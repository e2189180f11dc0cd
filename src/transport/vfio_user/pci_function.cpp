#include "transport/vfio_user/pci_function.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

constexpr std::uint16_t kDeviceId = 0x0001;
constexpr std::size_t kPowerOffset = 0x40;
constexpr std::size_t kMsixOffset = 0x50;
constexpr std::size_t kExpressOffset = 0x60;
constexpr std::size_t kExpressControlOffset = kExpressOffset + offsetof(PciExpressCapability, device_control);
constexpr std::size_t kRegistersBytes = 4096;

// Writable bits of a 64-bit BAR: those above its size.
constexpr std::uint32_t bar_low(std::uint64_t bytes) { return static_cast<std::uint32_t>(~(bytes - 1)); }
constexpr std::uint32_t bar_high(std::uint64_t bytes) { return static_cast<std::uint32_t>(~(bytes - 1) >> 32); }

}  // namespace

PciFunction::PciFunction(std::size_t doorbell_bytes, std::uint32_t vectors, std::uint16_t vendor_id)
    : registers_bar_bytes_(std::bit_ceil(kRegistersBytes + doorbell_bytes)), vectors_(vectors) {
  FLASHMOB_CHECK(vectors >= 1 && vectors <= kMsixMaxVectors);
  put_header(vendor_id);
  put_capabilities();
  initial_ = config_;
  reset();
}

template <class T>
void PciFunction::put(std::size_t offset, const T& value, const T& writable) {
  std::memcpy(config_.data() + offset, &value, sizeof(T));
  std::memcpy(writable_.data() + offset, &writable, sizeof(T));
}

void PciFunction::put_header(std::uint16_t vendor_id) {
  PciHeader header{};
  header.vendor_id = vendor_id;
  header.device_id = kDeviceId;
  header.status = kStatusCapabilities;
  header.class_code = {kNvmeClassCode & 0xFF, (kNvmeClassCode >> 8) & 0xFF, kNvmeClassCode >> 16};
  header.bars[kRegistersBar] = kBarMemory64;
  header.bars[kMsixBar] = kBarMemory64;
  header.subsystem_vendor_id = vendor_id;
  header.subsystem_id = kDeviceId;
  header.capabilities = kPowerOffset;
  header.interrupt_pin = 1;
  PciHeader writable{};
  writable.command = kCommandMemory | kCommandBusMaster | kCommandParity | kCommandSerr | kCommandIntxDisable;
  writable.cache_line_dwords = 0xFF;
  writable.bars[kRegistersBar] = bar_low(registers_bar_bytes_);
  writable.bars[kRegistersBar + 1] = bar_high(registers_bar_bytes_);
  writable.bars[kMsixBar] = bar_low(msix_bar_bytes());
  writable.bars[kMsixBar + 1] = bar_high(msix_bar_bytes());
  writable.interrupt_line = 0xFF;
  put(0, header, writable);
}

void PciFunction::put_capabilities() {
  PowerManagementCapability power{};
  power.id = kCapabilityPowerManagement;
  power.next = kMsixOffset;
  power.capabilities = kPowerVersion3;
  power.control = kPowerNoSoftReset;
  PowerManagementCapability power_writable{};
  power_writable.control = kPowerStateMask;
  put(kPowerOffset, power, power_writable);

  MsixCapability msix{};
  msix.id = kCapabilityMsix;
  msix.next = kExpressOffset;
  msix.control = static_cast<std::uint16_t>(vectors_ - 1);
  msix.table = kMsixBar;
  msix.pending = kPendingOffset | kMsixBar;
  MsixCapability msix_writable{};
  msix_writable.control = kMsixFunctionMask | kMsixEnable;
  put(kMsixOffset, msix, msix_writable);

  PciExpressCapability express{};
  express.id = kCapabilityPciExpress;
  express.capabilities = kExpressVersion2;
  // Payloads of 256 bytes, no latency limits, extended tags.
  express.device_capabilities = 1u | 7u << 6 | 7u << 9 | 1u << 5 | kExpressRoleBasedErrors | kExpressFunctionReset;
  express.device_control = 0x2810;  // relaxed ordering, no snoop, read requests of 512 bytes
  express.link_capabilities = 4u | 4u << 4;  // 16 GT/s, four lanes
  express.link_status = 4u | 4u << 4;
  express.device_capabilities2 = kExpressCompletionTimeoutDisable;
  express.link_capabilities2 = 0x1E;  // 2.5 to 16 GT/s
  express.link_control2 = 4;
  PciExpressCapability express_writable{};
  // Error reporting, relaxed ordering, payload and read request sizes; not the reset bit, which reads as zero.
  express_writable.device_control = 0x7FFF;
  express_writable.link_control = 0x00C3;
  express_writable.device_control2 = 0x001F;
  express_writable.link_control2 = 0x000F;
  put(kExpressOffset, express, express_writable);
}

void PciFunction::reset() {
  config_ = initial_;
  // Copied as a whole: 2,048 entries written one by one were the longest part of a client's connecting.
  static const auto masked = [] {
    std::array<MsixEntry, kMsixMaxVectors> table;
    table.fill(MsixEntry{0, 0, kMsixEntryMasked});
    return table;
  }();
  msix_table_ = masked;
}

void PciFunction::read(std::size_t offset, std::span<std::byte> to) const {
  FLASHMOB_CHECK(offset <= config_.size() && to.size() <= config_.size() - offset);
  std::copy_n(config_.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
}

bool PciFunction::write(std::size_t offset, std::span<const std::byte> from) {
  FLASHMOB_CHECK(offset <= config_.size() && from.size() <= config_.size() - offset);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::byte mask = writable_[offset + i];
    config_[offset + i] = (config_[offset + i] & ~mask) | (from[i] & mask);
  }
  // Power states 1 and 2 do not exist here; asking for them changes nothing in the specification's words, and D0 it is.
  auto& power = at<PowerManagementCapability>(kPowerOffset);
  const unsigned state = power.control & kPowerStateMask;
  if (state == 1 || state == 2) power.control = static_cast<std::uint16_t>(power.control & ~kPowerStateMask);
  // The reset bit is the highest of the device control register's second byte.
  const std::size_t reset_byte = kExpressControlOffset + 1;
  return reset_byte >= offset && reset_byte - offset < from.size() &&
         (std::to_integer<unsigned>(from[reset_byte - offset]) << 8 & kExpressStartReset) != 0;
}

void PciFunction::read_msix_table(std::size_t offset, std::span<std::byte> to) const {
  FLASHMOB_CHECK(offset <= sizeof(msix_table_) && to.size() <= sizeof(msix_table_) - offset);
  std::memcpy(to.data(), reinterpret_cast<const std::byte*>(msix_table_.data()) + offset, to.size());
}

void PciFunction::write_msix_table(std::size_t offset, std::span<const std::byte> from) {
  FLASHMOB_CHECK(offset <= sizeof(msix_table_) && from.size() <= sizeof(msix_table_) - offset);
  std::memcpy(reinterpret_cast<std::byte*>(msix_table_.data()) + offset, from.data(), from.size());
}

bool PciFunction::intx_disabled() const {
  return (reinterpret_cast<const PciHeader*>(config_.data())->command & kCommandIntxDisable) != 0;
}

void PciFunction::show_intx(bool asserted) {
  auto& header = at<PciHeader>(0);
  header.status = static_cast<std::uint16_t>((header.status & ~kStatusInterrupt) | (asserted ? kStatusInterrupt : 0));
}

}  // namespace flashmob::transport
