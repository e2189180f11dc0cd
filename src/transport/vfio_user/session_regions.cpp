// The regions of the device as a client reads and writes them with messages: BAR 0 (registers; doorbells too, if the
// client does not map them), BAR 4 (MSI-X) and the configuration space.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "nvme/command.h"
#include "nvme/registers.h"
#include "transport/vfio_user/session.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

constexpr std::uint64_t kPageBytes = 4096;

}  // namespace

std::uint64_t Session::region_bytes(std::uint32_t region) const {
  switch (region) {
    case PciFunction::kRegistersBar:
      return pci_->registers_bar_bytes();
    case PciFunction::kMsixBar:
      return PciFunction::msix_bar_bytes();
    case kRegionConfig:
      return kConfigSpaceBytes;
    default:
      return 0;
  }
}

int Session::region_info(const Message& message) {
  RegionInfo info{};
  if (!message.read(info) || info.argsz < sizeof(info) || info.index >= kPciRegions) return EINVAL;
  const std::uint32_t room = info.argsz;
  info = {.argsz = sizeof(info), .flags = 0, .index = info.index, .capability_offset = 0, .size_bytes = 0, .offset = 0};
  info.size_bytes = region_bytes(info.index);
  if (info.size_bytes != 0) info.flags = kRegionReadable | kRegionWritable;
  // A client that shares no memory at all is served by messages, and there its rings must be noticed.
  const bool by_messages = dma_->shared_bytes() == 0 && dma_->unshared_bytes() != 0;
  if (info.index != PciFunction::kRegistersBar || !map_doorbells_ || by_messages) {
    answer(info);
    return 0;
  }
  // The file is laid out like the BAR, so the area's offset is the same in both.
  SparseMmap sparse{{kCapabilitySparseMmap, 1, 0}, 1, 0};
  const SparseMmapArea area{nvme::kRegDoorbells,
                            (controller_->doorbell_bytes() + kPageBytes - 1) / kPageBytes * kPageBytes};
  info.flags |= kRegionMappable | kRegionCapabilities;
  info.argsz = sizeof(info) + sizeof(sparse) + sizeof(area);
  info.capability_offset = sizeof(info);
  reply_fds_.push_back(controller_->doorbell_fd());
  doorbells_given_ = true;
  answer(info);
  if (room < info.argsz) return 0;  // the client asks again with more room
  answer(sparse);
  answer(area);
  return 0;
}

int Session::check_access(const RegionAccess& access) const {
  if (access.region >= kPciRegions || access.count_bytes > kMaxDataTransferBytes) return EINVAL;
  const std::uint64_t bytes = region_bytes(access.region);
  return access.offset > bytes || access.count_bytes > bytes - access.offset ? EINVAL : 0;
}

int Session::region_read(const Message& message) {
  RegionAccess access{};
  if (!message.read(access)) return EINVAL;
  if (const int error = check_access(access); error != 0) return error;
  answer(access);
  reply_.resize(sizeof(access) + access.count_bytes);
  read_region(access.region, access.offset, std::span(reply_).subspan(sizeof(access)));
  return 0;
}

int Session::region_write(const Message& message) {
  RegionAccess access{};
  if (!message.read(access) || message.payload.size() - sizeof(access) < access.count_bytes) return EINVAL;
  if (const int error = check_access(access); error != 0) return error;
  const auto data = std::span(message.payload).subspan(sizeof(access), access.count_bytes);
  answer(access);  // of no use if there is an error
  return write_region(access.region, access.offset, data);
}

int Session::region_write_multi(const Message& message) {
  std::uint64_t count = 0;
  if (!message.read(count) || count > (message.payload.size() - sizeof(count)) / sizeof(RegionWriteOne)) return EINVAL;
  answer(count);  // of no use if there is an error
  writes_ = count;
  return write_rest();
}

// Writes what is left of `message_`, up to the beginning of a reset.
int Session::write_rest() {
  write_registers(registers_left_at_, std::exchange(registers_left_, {}));
  while (writes_done_ < writes_) {
    if (is_resetting()) return kAnsweredLater;
    RegionWriteOne write{};
    const std::size_t at = sizeof(std::uint64_t) + writes_done_++ * sizeof(write);
    (void)message_.read(write, at);
    if (write.count_bytes > sizeof(write.data)) return EINVAL;
    if (const int error = check_access({write.offset, write.region, write.count_bytes}); error != 0) return error;
    const auto data = std::span(message_.payload).subspan(at + offsetof(RegionWriteOne, data), write.count_bytes);
    if (const int error = write_region(write.region, write.offset, data); error != 0) return error;
  }
  return registers_left_.empty() ? 0 : kAnsweredLater;
}

void Session::read_region(std::uint32_t region, std::uint64_t offset, std::span<std::byte> to) {
  std::fill(to.begin(), to.end(), std::byte{0});
  if (region == PciFunction::kRegistersBar) {
    read_registers(offset, to);
  } else if (region == kRegionConfig) {
    pci_->show_intx(interrupts_->intx_asserted());
    pci_->read(offset, to);
  } else if (region == PciFunction::kMsixBar) {
    const std::size_t table = offset < PciFunction::kPendingOffset
                                  ? std::min<std::size_t>(to.size(), PciFunction::kPendingOffset - offset)
                                  : 0;
    if (table != 0) pci_->read_msix_table(offset, to.first(table));
    if (table != to.size()) interrupts_->read_pending(offset + table - PciFunction::kPendingOffset, to.subspan(table));
  }
}

int Session::write_region(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> from) {
  if (region == PciFunction::kRegistersBar) {
    write_registers(offset, from);
    if (!registers_left_.empty()) return kAnsweredLater;
  } else if (region == kRegionConfig) {
    const bool reset = pci_->write(offset, from);
    if (reset) return device_reset();
    update_intx_gate();
  } else if (region == PciFunction::kMsixBar && offset < PciFunction::kPendingOffset) {
    pci_->write_msix_table(offset,
                           from.first(std::min<std::size_t>(from.size(), PciFunction::kPendingOffset - offset)));
  }
  return 0;
}

// Registers are read in the widths they have, and the bytes that were asked for are cut out.
void Session::read_registers(std::uint64_t offset, std::span<std::byte> to) const {
  std::size_t done = 0;
  while (done < to.size()) {
    const std::uint64_t at = offset + done;
    const bool wide = at % 8 == 0 && to.size() - done >= 8;
    const std::uint64_t begin = at / 4 * 4;
    std::uint64_t value = controller_->read_register(static_cast<std::uint32_t>(begin), wide ? 8 : 4);
    if (by_messages_ != nullptr && begin >= nvme::kRegAsq && begin < nvme::kRegAcq + 8)
      value = (begin < nvme::kRegAcq ? client_asq_ : client_acq_) >> (begin % 8 * 8);
    const std::size_t bytes = std::min<std::size_t>((wide ? 8 : 4) - (at - begin), to.size() - done);
    std::memcpy(to.data() + done, reinterpret_cast<const std::byte*>(&value) + (at - begin), bytes);
    done += bytes;
  }
}

// Registers are written in 32 or 64 bits (NVMe Base 2.0c, 3.1.2); what is neither is not written.
void Session::write_registers(std::uint64_t offset, std::span<const std::byte> from) {
  if (offset % 4 != 0 || from.size() % 4 != 0) return;
  std::size_t done = 0;
  while (done < from.size()) {
    const std::uint64_t at = offset + done;
    if (is_resetting()) {
      registers_left_ = from.subspan(done);
      registers_left_at_ = at;
      break;
    }
    // CC is the upper half of no register.
    const bool wide = at < nvme::kRegDoorbells && at % 8 == 0 && at + 4 != nvme::kRegCc;
    const unsigned bytes = wide && from.size() - done >= 8 ? 8 : 4;
    std::uint64_t value = 0;
    std::memcpy(&value, from.data() + done, bytes);
    write_register(static_cast<std::uint32_t>(at), bytes, value);
    done += bytes;
  }
  update_intx_gate();
}

void Session::write_register(std::uint32_t offset, unsigned bytes, std::uint64_t value) {
  if (offset == nvme::kRegCc) return write_configuration(static_cast<std::uint32_t>(value));
  MessageQueues* const queues = by_messages_.load(std::memory_order_relaxed);
  if (queues != nullptr && offset >= nvme::kRegDoorbells && offset % 8 == 0) {
    const auto qid = static_cast<std::uint16_t>((offset - nvme::kRegDoorbells) / 8);
    if (queues->ring(qid, static_cast<std::uint32_t>(value))) return;
  }
  controller_->write_register(offset, bytes, value);
}

// Whether the queues are served by messages is decided where the controller is enabled, and ends where it is disabled.
void Session::write_configuration(std::uint32_t value) {
  const auto before = static_cast<std::uint32_t>(controller_->read_register(nvme::kRegCc, 4));
  const bool was_enabled = nvme::decode_cc(before).en;
  const bool enabled = nvme::decode_cc(value).en;
  if (was_enabled && !enabled && by_messages_ != nullptr) {
    begin_reset(Reset::controller);
  } else if (!was_enabled && enabled && !start_messages()) {
    controller_->refuse_enable();
  }
  controller_->write_register(nvme::kRegCc, 4, value);
}

// An entry at a queue's head has been posted if its phase tag is that of the entry before it, which the client has
// read; at the start of the ring, if it is the other one (NVMe Base 2.0c, 4.2.4).
bool Session::completions_unread() {
  if (controller_->uses_shadow_doorbells()) return true;  // its heads are not known here
  const auto phase = [](nvme::Cqe* ring, std::uint32_t index) {
    return std::atomic_ref<std::uint16_t>(ring[index].status_phase).load(std::memory_order_acquire) & 1;
  };
  bool unread = false;
  reader_->enter();
  for (const controller::CqSpec& cq : controller_->interrupting_queues()) {
    const std::uint32_t head =
        std::atomic_ref<std::uint32_t>(controller_->doorbells()[2 * cq.cqid + 1]).load(std::memory_order_acquire);
    std::byte* memory = reader_->translate(cq.iova, std::uint64_t{cq.entries} * sizeof(nvme::Cqe), true);
    if (head >= cq.entries || memory == nullptr) continue;
    auto* ring = reinterpret_cast<nvme::Cqe*>(memory);
    const bool same = phase(ring, head) == phase(ring, head == 0 ? cq.entries - 1 : head - 1);
    unread |= same == (head != 0);
  }
  reader_->leave();
  return unread;
}

void Session::update_intx_gate() {
  // All queues share one line, whose mask is bit 0 of INTMS.
  interrupts_->gate_intx((controller_->interrupt_mask() & 1) != 0 || pci_->intx_disabled());
}

}  // namespace flashmob::transport
