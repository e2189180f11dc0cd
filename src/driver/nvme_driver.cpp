#include "driver/nvme_driver.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "driver/driver_state.h"
#include "driver/names.h"
#include "nvme/opcode.h"
#include "nvme/registers.h"

namespace flashmob::driver {
namespace {

using nvme::kRegCap, nvme::kRegCc, nvme::kRegCsts;

constexpr std::uint32_t kMaxAdminEntries = 4096;  // AQA's fields are 12 bits, 0's based
// What a read answers when the function is gone from the bus.
constexpr std::uint32_t kAllOnes32 = 0xFFFFFFFF;
constexpr std::uint64_t kAllOnes64 = ~std::uint64_t{0};
// CSTS as masks, for waiting.
constexpr std::uint32_t kReady = nvme::encode_csts({.rdy = true});
constexpr std::uint32_t kFatal = nvme::encode_csts({.cfs = true});
constexpr std::uint32_t kShutdownMask = nvme::encode_csts({.shst = 3});
constexpr std::uint32_t kShutdownComplete = nvme::encode_csts({.shst = nvme::kCstsShstComplete});

std::uint32_t max_entries(std::uint64_t cap) { return std::uint32_t{nvme::decode_cap(cap).mqes} + 1; }

// CAP.TO counts in 500 ms; zero is treated as the smallest.
std::uint64_t enable_timeout_ns(std::uint64_t cap) {
  return std::uint64_t{std::max<std::uint8_t>(nvme::decode_cap(cap).to, 1)} * 500'000'000;
}

// "CC 00460001h, CSTS 00000001h"
std::string registers_text(PciDevice& device) {
  char text[48];
  std::snprintf(text, sizeof text, "CC %08Xh, CSTS %08Xh", device.read32(kRegCc), device.read32(kRegCsts));
  return text;
}

}  // namespace

NvmeError::NvmeError(const std::string& what, std::uint16_t status_field)
    : std::runtime_error(what + ": " + status_text(status_field)), status_field_(status_field) {}

NvmeDriver::NvmeDriver(PciDevice& device, Waiter waiter, std::uint32_t admin_entries)
    : device_(device), waiter_(std::move(waiter)), admin_entries_(admin_entries) {
  if (admin_entries < 2 || admin_entries > kMaxAdminEntries)
    throw ConfigError("admin_entries is " + std::to_string(admin_entries) + ": an admin queue has 2 to 4096 entries");
}

NvmeDriver::~NvmeDriver() {
  try {
    if (admin_ != nullptr) disable();
  } catch (const std::exception&) {
    // The device does not answer. Destroying the DMA memory takes its mappings away, which is all that is left to do.
  }
}

void NvmeDriver::check_capabilities() const {
  if (capabilities_ == kAllOnes64) throw NvmeFatal("enable: the controller does not answer (CAP is all ones)");
  const nvme::Cap cap = nvme::decode_cap(capabilities_);
  if ((cap.css & (nvme::kCapCssNvm | nvme::kCapCssIoCommandSets)) == 0)
    throw ConfigError("the controller offers no I/O command set (CAP.CSS): the driver needs the NVM command set");
  if (cap.mpsmin > 0)
    throw ConfigError("the controller's smallest memory page (CAP.MPSMIN) exceeds 4096 bytes: the driver uses 4096");
  if (admin_entries_ > max_entries(capabilities_))
    throw ConfigError("admin_entries is " + std::to_string(admin_entries_) + ": the controller's queues have at most " +
                      std::to_string(max_entries(capabilities_)) + " entries (CAP.MQES)");
}

void NvmeDriver::throw_if_dead(const char* step) const {
  const std::uint32_t csts = device_.read32(kRegCsts);
  if (csts == kAllOnes32) throw NvmeFatal(std::string(step) + ": the controller is gone (CSTS is all ones)");
  if ((csts & kFatal) != 0)
    throw NvmeFatal(std::string(step) + ": the controller reports a fatal status (" + registers_text(device_) + ")");
}

bool NvmeDriver::fatal() const {
  const std::uint32_t csts = device_.read32(kRegCsts);
  return csts == kAllOnes32 || (csts & kFatal) != 0;
}

// Waits for (CSTS & mask) == value. Whether a fatal status ends the wait is the caller's to say, by the mask: on the
// way to disabled it must not, because a reset is the way out of it.
void NvmeDriver::wait_status(const char* step, std::uint32_t mask, std::uint32_t value, std::uint64_t timeout_ns) {
  if (is_given_up_) timeout_ns = 0;
  const bool ready = wait_until(waiter_, timeout_ns, [&] {
    const std::uint32_t csts = device_.read32(kRegCsts);
    if (csts == kAllOnes32) throw NvmeFatal(std::string(step) + ": the controller is gone (CSTS is all ones)");
    if (value != 0 && (csts & kFatal) != 0) return true;
    return (csts & mask) == value;
  });
  if (!ready)
    throw NvmeTimeout(std::string(step) + ": not done within " + std::to_string(timeout_ns / 1'000'000) + " ms (" +
                      registers_text(device_) + ")");
}

void NvmeDriver::enable(bool weighted) {
  capabilities_ = device_.read64(kRegCap);
  check_capabilities();
  try {
    disable();
  } catch (const NvmeTimeout&) {
    if (!device_.reset()) throw;
    release_queues();
  }

  const nvme::Cap cap = nvme::decode_cap(capabilities_);
  admin_ = std::make_unique<PairState>(device_, std::uint16_t{0}, admin_entries_, admin_entries_, cap.dstrd);
  admin_slots_.clear();
  for (std::uint32_t i = 0; i + 1 < admin_entries_; ++i) admin_slots_.push_back(std::make_unique<AdminSlot>());
  const auto size = static_cast<std::uint16_t>(admin_entries_ - 1);
  device_.write32(nvme::kRegAqa, nvme::encode_aqa({.asqs = size, .acqs = size}));
  device_.write64(nvme::kRegAsq, admin_->rings.sq_iova);
  device_.write64(nvme::kRegAcq, admin_->rings.cq_iova);

  nvme::Cc cc{.iosqes = nvme::kIoSqEntryBytesLog2, .iocqes = nvme::kIoCqEntryBytesLog2};
  if ((cap.css & nvme::kCapCssIoCommandSets) != 0) cc.css = nvme::kCcCssAllSupported;
  if (weighted && (cap.ams & nvme::kCapAmsWeightedRoundRobin) != 0) cc.ams = nvme::kCcAmsWeightedRoundRobin;
  device_.write32(kRegCc, nvme::encode_cc(cc));
  cc.en = true;
  device_.write32(kRegCc, nvme::encode_cc(cc));
  wait_status("enable", kReady, kReady, std::max(least_ready_timeout_ns, enable_timeout_ns(capabilities_)));
  throw_if_dead("enable");
}

void NvmeDriver::disable() {
  FLASHMOB_CHECK(admin_depth_ == 0);
  // Whatever comes of it, pairs made before are no good any more.
  generation_.fetch_add(1, std::memory_order_release);
  if (capabilities_ == 0) capabilities_ = device_.read64(kRegCap);
  const std::uint64_t timeout_ns = std::max(least_ready_timeout_ns, enable_timeout_ns(capabilities_));
  nvme::Cc cc = nvme::decode_cc(device_.read32(kRegCc));
  if (cc.en) {
    // Clearing CC.EN before CSTS.RDY has followed it is undefined (3.1.3.5), so let a reset half done end first.
    wait_status("disable: waiting for the enable before", kReady, kReady, timeout_ns);
    cc.en = false;
    cc.shn = nvme::kCcShnNone;
    device_.write32(kRegCc, nvme::encode_cc(cc));
  }
  // A controller that died before it was ready shows only by its fatal status that the reset is over.
  wait_status("disable", kReady | kFatal, 0, timeout_ns);
  release_queues();
}

void NvmeDriver::release_queues() {
  admin_slots_.clear();
  pairs_.clear();
  ids_.clear();
  admin_.reset();
}

void NvmeDriver::shutdown(bool abrupt) {
  throw_if_dead("shutdown");
  if (!abrupt) {
    generation_.fetch_add(1, std::memory_order_release);
    while (!pairs_.empty()) delete_queue_pair(pairs_.back()->pair);
  }
  nvme::Cc cc = nvme::decode_cc(device_.read32(kRegCc));
  cc.shn = abrupt ? nvme::kCcShnAbrupt : nvme::kCcShnNormal;
  device_.write32(kRegCc, nvme::encode_cc(cc));
  wait_status("shutdown", kShutdownMask, kShutdownComplete, shutdown_timeout_ns);
  throw_if_dead("shutdown");
}

void NvmeDriver::create_ring(const PairState& state, bool submission, const QueueOptions& options) {
  nvme::Sqe sqe{};
  const std::uint32_t qid = state.pair.qid();
  const std::uint32_t entries = submission ? state.pair.sq_entries() : state.pair.cq_entries();
  const auto opcode = submission ? nvme::AdminOpcode::create_io_sq : nvme::AdminOpcode::create_io_cq;
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.prp1 = submission ? state.rings.sq_iova : state.rings.cq_iova;
  sqe.cdw10 = qid | ((entries - 1) << 16);
  constexpr std::uint32_t kContiguous = 1;
  if (submission) {
    sqe.cdw11 = kContiguous | (std::uint32_t{options.priority} << 1) | (qid << 16);
  } else {
    sqe.cdw11 = kContiguous | (options.interrupts ? 2u : 0u) | (std::uint32_t{options.vector} << 16);
  }
  admin_or_throw(sqe, {}, false);
}

void NvmeDriver::delete_ring(std::uint16_t qid, bool submission) {
  nvme::Sqe sqe{};
  const auto opcode = submission ? nvme::AdminOpcode::delete_io_sq : nvme::AdminOpcode::delete_io_cq;
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.cdw10 = qid;
  admin_or_throw(sqe, {}, false);
}

void NvmeDriver::check_queue(const QueueOptions& options, std::uint32_t cq_entries) const {
  const std::uint32_t most = max_entries(capabilities_);
  for (const std::uint32_t entries : {options.sq_entries, cq_entries}) {
    if (entries < 2 || entries > most)
      throw ConfigError("a queue of " + std::to_string(entries) + " entries: the controller's have 2 to " +
                        std::to_string(most));
  }
  if (options.interrupts && options.vector >= device_.interrupt_vectors())
    throw ConfigError("a queue with interrupt vector " + std::to_string(options.vector) + ": the device has " +
                      std::to_string(device_.interrupt_vectors()) + " vectors, counted from 0");
}

std::uint16_t NvmeDriver::take_queue_id() {
  const std::optional<std::uint16_t> qid = ids_.take();
  if (!qid) throw ConfigError("no queue identifier is left: the controller has as many queue pairs as there can be");
  return *qid;
}

QueuePair& NvmeDriver::create_queue_pair(const QueueOptions& options) {
  const std::uint32_t cq_entries = options.cq_entries != 0 ? options.cq_entries : options.sq_entries;
  check_queue(options, cq_entries);
  const std::uint16_t qid = take_queue_id();
  std::unique_ptr<PairState> state;
  try {
    state = std::make_unique<PairState>(device_, qid, options.sq_entries, cq_entries,
                                        nvme::decode_cap(capabilities_).dstrd, options.rings);
  } catch (...) {
    ids_.give_back(qid);
    throw;
  }
  PairState& created = *state;
  // Kept from here on, even if a step fails half-way: a device that answers late may still write to the rings.
  pairs_.push_back(std::move(state));
  bool cq_exists = false;
  try {
    create_ring(created, false, options);
    cq_exists = true;
    create_ring(created, true, options);
  } catch (const NvmeError&) {
    if (cq_exists) delete_ring(qid, false);
    forget(qid);
    throw;
  }
  // After the device's own answer, which says more.
  const std::size_t pair_bytes = std::size_t{8} << nvme::decode_cap(capabilities_).dstrd;
  if ((qid + std::size_t{1}) * pair_bytes <= device_.doorbell_bytes()) return created.pair;
  delete_queue_pair(created.pair);
  throw ConfigError("queue pair " + std::to_string(qid) + ": the device's doorbells end at " +
                    std::to_string(device_.doorbell_bytes()) + " bytes, before those of this pair; use fewer queues");
}

void NvmeDriver::forget(std::uint16_t qid) {
  std::erase_if(pairs_, [qid](const auto& state) { return state->pair.qid() == qid; });
  ids_.give_back(qid);
}

void NvmeDriver::delete_queue_pair(QueuePair& pair) {
  const auto at = std::ranges::find_if(pairs_, [&](const auto& state) { return &state->pair == &pair; });
  FLASHMOB_CHECK(at != pairs_.end());
  const std::uint16_t qid = pair.qid();
  delete_ring(qid, true);
  delete_ring(qid, false);
  // Found again: callbacks of asynchronous commands may have made or deleted other pairs meanwhile.
  forget(qid);
}

}  // namespace flashmob::driver
