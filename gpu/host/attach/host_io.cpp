#include "host/attach/host_io.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "flashmob/error.h"
#include "nvme/opcode.h"

namespace flashmob::gpu {
namespace {

constexpr std::uint32_t kSlots = 16;
constexpr std::uint64_t kMostSlotBytes = 128 << 10;
constexpr std::uint64_t kTimeoutNs = 30'000'000'000;

driver::QueueOptions ring() {
  driver::QueueOptions options;
  options.sq_entries = kSlots + 1;
  return options;
}

}  // namespace

HostIo::HostIo(driver::NvmeDriver& driver, std::uint64_t max_transfer_bytes)
    : driver_(driver),
      pair_(driver.create_queue_pair(ring())),
      slot_bytes_(std::min(kMostSlotBytes, max_transfer_bytes)),
      memory_(driver.device(), kSlots * slot_bytes_),
      lists_(driver.device(), kSlots, slot_bytes_),
      parts_(kSlots) {
  for (std::uint32_t cid = kSlots; cid-- > 0;) free_.push_back(static_cast<std::uint16_t>(cid));
}

void check_transfer(const NamespaceInfo& ns, std::uint64_t lba, std::uint64_t bytes) {
  const std::uint64_t lba_bytes = std::uint64_t{1} << ns.lba_shift;
  if (bytes % lba_bytes != 0)
    throw ConfigError("bytes = " + std::to_string(bytes) + " is not possible: use whole blocks of " +
                      std::to_string(lba_bytes));
  if (lba > ns.blocks || (bytes >> ns.lba_shift) > ns.blocks - lba)
    throw ConfigError("lba = " + std::to_string(lba) + " with " + std::to_string(bytes) +
                      " bytes is not possible: the namespace has " + std::to_string(ns.blocks) + " blocks of " +
                      std::to_string(lba_bytes));
}

void HostIo::write(const NamespaceInfo& ns, std::uint64_t lba, const void* data, std::uint64_t bytes) {
  transfer(ns, lba, static_cast<std::byte*>(const_cast<void*>(data)), bytes, true);
}

void HostIo::read(const NamespaceInfo& ns, std::uint64_t lba, void* data, std::uint64_t bytes) {
  transfer(ns, lba, static_cast<std::byte*>(data), bytes, false);
}

void HostIo::transfer(const NamespaceInfo& ns, std::uint64_t lba, std::byte* data, std::uint64_t bytes, bool is_write) {
  check_transfer(ns, lba, bytes);
  failure_ = 0;
  for (std::uint64_t at = 0; at < bytes && failure_ == 0; at += slot_bytes_)
    submit(ns, lba + (at >> ns.lba_shift), data + at, std::min(slot_bytes_, bytes - at), is_write);
  reap_until(0);
  if (failure_ != 0) throw driver::NvmeError(is_write ? "write" : "read", failure_);
}

void HostIo::submit(const NamespaceInfo& ns, std::uint64_t lba, std::byte* data, std::uint64_t bytes, bool is_write) {
  reap_until(kSlots - 1);
  const std::uint16_t cid = free_.back();
  free_.pop_back();
  std::byte* const bounce = memory_.data() + slot_bytes_ * cid;
  if (is_write) std::memcpy(bounce, data, bytes);
  parts_[cid] = {is_write ? nullptr : data, bytes};
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(is_write ? nvme::NvmOpcode::write : nvme::NvmOpcode::read);
  sqe.cid = cid;
  sqe.nsid = ns.nsid;
  sqe.cdw10 = static_cast<std::uint32_t>(lba);
  sqe.cdw11 = static_cast<std::uint32_t>(lba >> 32);
  sqe.cdw12 = static_cast<std::uint32_t>((bytes >> ns.lba_shift) - 1);
  lists_.describe(cid, sqe, reinterpret_cast<std::uint64_t>(bounce), bytes);
  pair_.submit() = sqe;
  pair_.ring_sq();
}

void HostIo::reap_until(std::uint32_t outstanding) {
  const driver::Waiter& waiter = driver_.waiter();
  const std::uint64_t deadline_ns = waiter.now_ns() + kTimeoutNs;
  while (pair_.outstanding() > outstanding) {
    const std::uint32_t reaped = pair_.reap(kSlots, [this](const nvme::Cqe& entry) {
      const Part part = std::exchange(parts_[entry.cid], {});
      const auto status = static_cast<std::uint16_t>(entry.status_phase >> 1);
      if (status != 0)
        failure_ = failure_ == 0 ? status : failure_;
      else if (part.to != nullptr)
        std::memcpy(part.to, memory_.data() + slot_bytes_ * entry.cid, part.bytes);
      free_.push_back(entry.cid);
    });
    pair_.ring_cq();
    if (reaped != 0) continue;
    if (waiter.now_ns() >= deadline_ns) throw driver::NvmeTimeout("the SSD has not answered a read or write in 30 s");
    waiter.pump();
  }
}

}  // namespace flashmob::gpu
