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
    case reg::kCap:
      return low(cap_);
    case reg::kCap + 4:
      return high(cap_);
    case reg::kVs:
      return nvme::kVersion20;
    case reg::kIntms:
    case reg::kIntmc:
      return interrupt_mask_.load(std::memory_order_acquire);
    case reg::kCc:
      return cc_.load(std::memory_order_acquire);
    case reg::kCsts:
      return csts_.load(std::memory_order_acquire);
    case reg::kAqa:
      return aqa_.load(std::memory_order_acquire);
    case reg::kAsq:
    case reg::kAsq + 4:
      return asq_[(offset - reg::kAsq) / 4].load(std::memory_order_acquire);
    case reg::kAcq:
    case reg::kAcq + 4:
      return acq_[(offset - reg::kAcq) / 4].load(std::memory_order_acquire);
    case reg::kCrto:
      return nvme::decode_cap(cap_).to;  // CRWMT in 15:0: ready, media included, as soon as CAP.TO says
    default:
      return 0;  // reserved, and NSSR, which reads as zero
  }
}

std::uint64_t Controller::read_register(std::uint32_t offset, unsigned size) const {
  if (offset >= reg::kDoorbells) return 0;
  if (size == 4 && offset % 4 == 0) return read_dword(offset);
  if (size == 8 && offset % 8 == 0) {
    return read_dword(offset) | (static_cast<std::uint64_t>(read_dword(offset + 4)) << 32);
  }
  return 0;
}

void Controller::write_register(std::uint32_t offset, unsigned size, std::uint64_t value) {
  if (offset >= reg::kDoorbells) {
    if (size == 4) write_doorbell(offset - reg::kDoorbells, low(value));
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
    case reg::kIntms:
      interrupt_mask_.fetch_or(value, std::memory_order_acq_rel);
      break;
    case reg::kIntmc:
      interrupt_mask_.fetch_and(~value, std::memory_order_acq_rel);
      break;
    case reg::kCc:
      write_cc(value & kCcWritable);
      break;
    case reg::kCsts:
      if ((value & kCstsNssro) != 0) csts_.fetch_and(~kCstsNssro, std::memory_order_acq_rel);
      break;
    case reg::kNssr:
      if (value != nvme::kNssrReset) break;
      nssr_written_.store(true, std::memory_order_release);
      notify_admin_thread();
      break;
    case reg::kAqa:
      if (!enabled) aqa_.store(value & kAqaWritable, std::memory_order_release);
      break;
    case reg::kAsq:
    case reg::kAcq:
      if (!enabled) {
        (offset == reg::kAsq ? asq_ : acq_)[0].store(value & low(nvme::kAdminQueueBaseMask), std::memory_order_release);
      }
      break;
    case reg::kAsq + 4:
    case reg::kAcq + 4:
      if (!enabled) (offset == reg::kAsq + 4 ? asq_ : acq_)[1].store(value, std::memory_order_release);
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
  if ((before & kCcEnable) != 0 && (after & kCcEnable) == 0) reset_requested_.store(true, std::memory_order_release);
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
    raise_error_event(ErrorEvent::write_to_invalid_doorbell);
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
