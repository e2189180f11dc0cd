// Controller properties (NVMe Base 2.0c, 3.1.3) as hosts read and write them. Every write here only stores atomics and
// leaves a note for the admin thread.
#include "controller/controller.h"

namespace flashmob::controller {
namespace {

constexpr std::uint32_t kCcWritable = nvme::encode_cc(
    {.en = true, .css = 7, .mps = 0xF, .ams = 7, .shn = 3, .iosqes = 0xF, .iocqes = 0xF, .crime = false});
// These may only change while the controller is disabled.
constexpr std::uint32_t kCcFixedWhileEnabled = nvme::encode_cc({.css = 7, .mps = 0xF, .ams = 7});
constexpr std::uint32_t kCcEnable = nvme::encode_cc({.en = true});
constexpr std::uint32_t kCstsNssro = nvme::encode_csts({.nssro = true});
constexpr std::uint32_t kAqaWritable = nvme::encode_aqa({.asqs = 0xFFF, .acqs = 0xFFF});

constexpr std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

}  // namespace

std::uint32_t Controller::read_dword(std::uint32_t offset) const {
  switch (offset) {
    case nvme::kRegCap:
      return low(cap_);
    case nvme::kRegCap + 4:
      return high(cap_);
    case nvme::kRegVs:
      return nvme::kVersion20;
    case nvme::kRegIntms:
    case nvme::kRegIntmc:
      return interrupt_mask_.load(std::memory_order_acquire);
    case nvme::kRegCc:
      return cc_.load(std::memory_order_acquire);
    case nvme::kRegCsts:
      return csts_.load(std::memory_order_acquire);
    case nvme::kRegAqa:
      return aqa_.load(std::memory_order_acquire);
    case nvme::kRegAsq:
    case nvme::kRegAsq + 4:
      return asq_[(offset - nvme::kRegAsq) / 4].load(std::memory_order_acquire);
    case nvme::kRegAcq:
    case nvme::kRegAcq + 4:
      return acq_[(offset - nvme::kRegAcq) / 4].load(std::memory_order_acquire);
    case nvme::kRegCrto:
      return nvme::decode_cap(cap_).to;  // CRWMT in 15:0: ready, media included, as soon as CAP.TO says
    default:
      return 0;  // reserved, and NSSR, which reads as zero
  }
}

std::uint64_t Controller::read_register(std::uint32_t offset, unsigned size) const {
  if (offset >= nvme::kRegDoorbells) return 0;
  if (size == 4 && offset % 4 == 0) return read_dword(offset);
  if (size == 8 && offset % 8 == 0) {
    return read_dword(offset) | (static_cast<std::uint64_t>(read_dword(offset + 4)) << 32);
  }
  return 0;
}

void Controller::write_register(std::uint32_t offset, unsigned size, std::uint64_t value) {
  if (offset >= nvme::kRegDoorbells) {
    if (size == 4) write_doorbell(offset - nvme::kRegDoorbells, low(value));
    return;
  }
  if (size == 4 && offset % 4 == 0) {
    write_dword(offset, low(value));
  } else if (size == 8 && offset % 8 == 0) {
    write_dword(offset, low(value));
    write_dword(offset + 4, high(value));
  }
}

void Controller::write_dword(std::uint32_t offset, std::uint32_t value) {
  const bool enabled = (cc_.load(std::memory_order_acquire) & kCcEnable) != 0;
  switch (offset) {
    case nvme::kRegIntms:
      interrupt_mask_.fetch_or(value, std::memory_order_acq_rel);
      break;
    case nvme::kRegIntmc:
      interrupt_mask_.fetch_and(~value, std::memory_order_acq_rel);
      break;
    case nvme::kRegCc:
      write_cc(value & kCcWritable);
      break;
    case nvme::kRegCsts:
      if ((value & kCstsNssro) != 0) csts_.fetch_and(~kCstsNssro, std::memory_order_acq_rel);
      break;
    case nvme::kRegNssr:
      if (value != nvme::kNssrReset || !rights().may_manage()) break;  // CAP.NSSRS
      nssr_written_.store(true, std::memory_order_release);
      notify_admin_thread();
      break;
    case nvme::kRegAqa:
      if (!enabled) aqa_.store(value & kAqaWritable, std::memory_order_release);
      break;
    case nvme::kRegAsq:
    case nvme::kRegAcq:
      if (!enabled) {
        (offset == nvme::kRegAsq ? asq_ : acq_)[0].store(value & low(nvme::kAdminQueueBaseMask),
                                                         std::memory_order_release);
      }
      break;
    case nvme::kRegAsq + 4:
    case nvme::kRegAcq + 4:
      if (!enabled) (offset == nvme::kRegAsq + 4 ? asq_ : acq_)[1].store(value, std::memory_order_release);
      break;
    default:
      break;  // read-only or reserved
  }
}

void Controller::write_cc(std::uint32_t value) {
  std::uint32_t before = cc_.load(std::memory_order_acquire);
  std::uint32_t after;
  do {
    after = value;
    if ((before & value & kCcEnable) != 0) {
      after = (value & ~kCcFixedWhileEnabled) | (before & kCcFixedWhileEnabled);
    }
  } while (!cc_.compare_exchange_weak(before, after, std::memory_order_acq_rel));
  // After the store, so that a host that then sets EN again cannot have the note consumed before.
  if ((before & kCcEnable) != 0 && (after & kCcEnable) == 0) {
    shutdown_requested_.store(false, std::memory_order_release);  // a reset takes back the shutdown before it
    reset_requested_.store(true, std::memory_order_release);
  }
  const std::uint8_t shn = nvme::decode_cc(after).shn;
  if (shn != nvme::kCcShnNone && shn != nvme::decode_cc(before).shn) {
    shutdown_requested_.store(true, std::memory_order_release);
  }
  if (before != after) notify_admin_thread();
}

void Controller::write_doorbell(std::uint32_t offset, std::uint32_t value) {
  if (state() != ControllerState::ready) return;
  const std::uint32_t qid = offset / 8;
  const bool is_sq = offset % 8 == 0;
  const bool exists = is_sq ? queues_.sq_exists(qid) : offset % 8 == 4 && queues_.cq_exists(qid);
  if (!exists) {
    raise_error_event(nvme::AsyncErrorInfo::write_to_invalid_doorbell);
    return;
  }
  std::atomic_ref<std::uint32_t>(doorbells_[offset / 4]).store(value, std::memory_order_release);
  if (wake_) wake_();
}

void Controller::notify_admin_thread() {
  register_event_.store(true, std::memory_order_release);
  if (wake_) wake_();
}

}  // namespace flashmob::controller
