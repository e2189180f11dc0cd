#include "driver/block_queue.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/check.h"
#include "nvme/dataset.h"
#include "nvme/io_command.h"

namespace flashmob::driver {
namespace {

// How often a wait without completions looks whether the controller has died; a register read may trap.
constexpr std::uint64_t kFatalCheckNs = 50'000'000;

}  // namespace

BlockQueue::BlockQueue(NvmeDriver& driver, Options options)
    : driver_(driver),
      options_(std::move(options)),
      generation_(driver.generation()),
      memory_(driver.device(), options_.slot_bytes * options_.slots),
      lists_(driver.device(), options_.slots, options_.slot_bytes),
      pair_(driver.create_queue_pair({.sq_entries = options_.slots + 1})),
      slots_(options_.slots) {
  for (std::uint32_t slot = options_.slots; slot-- > 0;) free_.push_back(static_cast<std::uint16_t>(slot));
}

BlockQueue::~BlockQueue() {
  try {
    if (!is_gone()) driver_.delete_queue_pair(pair_);
  } catch (const std::exception&) {
    // The controller is dead or keeps silent; a reset will take the pair away, and whoever uses the driver next is
    // told.
  }
}

void BlockQueue::require_pair() const {
  if (is_gone()) throw std::runtime_error("the queue is gone: the controller was reset");
}

void BlockQueue::read(const BlockNamespace& ns, std::uint64_t lba, std::byte* to, std::uint64_t bytes, Done done) {
  transfer(nvme::NvmOpcode::read, ns, lba, to, bytes, std::move(done));
}

void BlockQueue::write(const BlockNamespace& ns, std::uint64_t lba, const std::byte* from, std::uint64_t bytes,
                       Done done) {
  transfer(nvme::NvmOpcode::write, ns, lba, const_cast<std::byte*>(from), bytes, std::move(done));
}

std::uint16_t BlockQueue::run(nvme::NvmOpcode opcode, const BlockNamespace& ns, std::uint64_t lba, std::byte* data,
                              std::uint64_t bytes) {
  const auto request = transfer(opcode, ns, lba, data, bytes, {});
  wait_for(*request, [&] { wait_until([&] { return request->parts == 0; }); });
  return request->status;
}

// A request whose wait ends in an exception is its owner's no more: what comes of it is dropped.
template <class F>
void BlockQueue::wait_for(Request& request, F&& wait) {
  try {
    wait();
  } catch (...) {
    forget(request);
    throw;
  }
}

void BlockQueue::forget(Request& request) {
  if (request.forgotten) return;
  request.forgotten = true;
  --requests_;
}

void BlockQueue::abandon() {
  for (const Slot& slot : slots_) {
    if (slot.request != nullptr) forget(*slot.request);
  }
}

std::shared_ptr<BlockQueue::Request> BlockQueue::transfer(nvme::NvmOpcode opcode, const BlockNamespace& ns,
                                                          std::uint64_t lba, std::byte* data, std::uint64_t bytes,
                                                          Done done) {
  require_pair();
  FLASHMOB_CHECK(bytes != 0 && bytes % ns.lba_bytes() == 0);
  const auto parts = static_cast<std::uint32_t>((bytes + options_.slot_bytes - 1) / options_.slot_bytes);
  const auto request = std::make_shared<Request>(Request{.done = std::move(done), .parts = parts});
  const bool is_write = opcode == nvme::NvmOpcode::write;
  ++requests_;
  for (std::uint64_t at = 0; at < bytes; at += options_.slot_bytes) {
    const std::uint64_t part = std::min(options_.slot_bytes, bytes - at);
    std::uint16_t slot = 0;
    wait_for(*request, [&] { slot = take_slot(); });
    if (is_write) std::memcpy(buffer(slot, part).data(), data + at, part);
    start(slot, opcode, ns, lba + (at >> ns.lba_shift), {request, is_write ? nullptr : data + at, part});
    pair_.ring_sq();
  }
  return request;
}

void BlockQueue::flush(std::uint32_t nsid, Done done) {
  require_pair();
  const std::uint16_t slot = take_slot();
  submit(slot, nvme::NvmOpcode::flush, {.nsid = nsid}, 0, 0, std::move(done));
  pair_.ring_sq();
}

std::uint16_t BlockQueue::take_slot() {
  wait_until([this] { return has_slot(); });
  const std::uint16_t slot = free_.back();
  free_.pop_back();
  return slot;
}

std::span<std::byte> BlockQueue::buffer(std::uint16_t slot, std::uint64_t bytes) const {
  return {memory_.data() + options_.slot_bytes * slot, bytes};
}

void BlockQueue::submit(std::uint16_t slot, nvme::NvmOpcode opcode, const BlockNamespace& ns, std::uint64_t lba,
                        std::uint64_t bytes, Done done) {
  require_pair();
  FLASHMOB_CHECK(bytes <= options_.slot_bytes);
  ++requests_;
  const auto request = std::make_shared<Request>(Request{.done = std::move(done), .parts = 1});
  start(slot, opcode, ns, lba, {request, nullptr, bytes});
}

void BlockQueue::start(std::uint16_t slot, nvme::NvmOpcode opcode, const BlockNamespace& ns, std::uint64_t lba,
                       Slot state) {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.cid = slot;
  sqe.nsid = ns.nsid;
  if (state.bytes != 0) {
    nvme::set_lba_range(sqe, lba, static_cast<std::uint32_t>(state.bytes >> ns.lba_shift));
    lists_.describe(slot, sqe, memory_.iova() + options_.slot_bytes * slot, state.bytes);
  }
  send(sqe, std::move(state));
}

void BlockQueue::send(const nvme::Sqe& sqe, Slot state) {
  slots_[sqe.cid] = std::move(state);
  ++outstanding_;
  pair_.submit() = sqe;
}

void BlockQueue::deallocate(const BlockNamespace& ns, std::uint64_t lba, std::uint64_t blocks, Done done) {
  require_pair();
  FLASHMOB_CHECK(blocks != 0);
  constexpr std::uint64_t kMostOfRange = UINT32_MAX;
  const std::uint64_t ranges =
      std::min<std::uint64_t>((blocks + kMostOfRange - 1) / kMostOfRange, nvme::kMaxDatasetManagementRanges);
  const std::uint16_t slot = take_slot();
  const std::uint64_t bytes = ranges * sizeof(nvme::DatasetRange);
  std::byte* const list = buffer(slot, bytes).data();
  for (std::uint64_t i = 0; i < ranges; ++i) {
    const nvme::DatasetRange range{
        .context_attributes = 0, .nlb = static_cast<std::uint32_t>(std::min(blocks, kMostOfRange)), .slba = lba};
    std::memcpy(list + i * sizeof(range), &range, sizeof(range));
    lba += range.nlb;
    blocks -= range.nlb;
  }
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(nvme::NvmOpcode::dataset_management);
  sqe.cid = slot;
  sqe.nsid = ns.nsid;
  sqe.cdw10 = static_cast<std::uint32_t>(ranges - 1);
  sqe.cdw11 = nvme::kDatasetDeallocate;
  lists_.describe(slot, sqe, memory_.iova() + options_.slot_bytes * slot, bytes);
  ++requests_;
  send(sqe, {std::make_shared<Request>(Request{.done = std::move(done), .parts = 1}), nullptr, 0});
  pair_.ring_sq();
}

unsigned BlockQueue::poll() {
  require_pair();
  pair_.ring_sq();
  unsigned ended = 0;
  pair_.reap(options_.slots, [&](const nvme::Cqe& entry) { ended += finish(entry) ? 1 : 0; });
  pair_.ring_cq();
  return ended;
}

// True if the request has ended, and its owner is told.
bool BlockQueue::finish(const nvme::Cqe& entry) {
  if (entry.cid >= slots_.size() || slots_[entry.cid].request == nullptr)
    throw std::runtime_error("the device completed a command that nobody sent");
  ++completions_;
  --outstanding_;
  Slot& slot = slots_[entry.cid];
  const std::shared_ptr<Request> request = std::move(slot.request);
  const auto status = static_cast<std::uint16_t>(entry.status_phase >> 1);
  if (status != 0 && request->status == 0) request->status = status;
  if (status == 0 && slot.to != nullptr && !request->forgotten)
    std::memcpy(slot.to, buffer(entry.cid, slot.bytes).data(), slot.bytes);
  free_.push_back(entry.cid);
  if (--request->parts != 0 || request->forgotten) return false;
  --requests_;
  if (request->done) request->done(request->status);
  return true;
}

void BlockQueue::idle(std::uint64_t silent_ns) {
  if (options_.idle) return options_.idle(silent_ns);
  default_idle(silent_ns);
}

void BlockQueue::default_idle(std::uint64_t silent_ns) {
  if (silent_ns > timeout_ns)
    throw NvmeTimeout(std::to_string(outstanding_) + " commands were not completed within " +
                      std::to_string(timeout_ns / 1'000'000) + " ms");
  if (silent_ns < checked_ns_) checked_ns_ = 0;
  if (silent_ns - checked_ns_ > kFatalCheckNs) {
    checked_ns_ = silent_ns;
    if (driver_.fatal())
      throw NvmeFatal("the device is gone: its controller reports a fatal status, or does not answer at all");
  }
  driver_.waiter().pump();
}

}  // namespace flashmob::driver
