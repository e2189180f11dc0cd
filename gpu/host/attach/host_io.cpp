#include "host/attach/host_io.h"

#include <algorithm>
#include <string>

#include "flashmob/error.h"

namespace flashmob::gpu {
namespace {

constexpr std::uint32_t kSlots = 16;
constexpr std::uint64_t kMostSlotBytes = 128 << 10;
constexpr std::uint64_t kTimeoutNs = 30'000'000'000;

}  // namespace

HostIo::HostIo(driver::NvmeDriver& driver, std::uint64_t max_transfer_bytes)
    : queue_(driver, {.slots = kSlots, .slot_bytes = std::min(kMostSlotBytes, max_transfer_bytes)}) {
  queue_.timeout_ns = kTimeoutNs;
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
  run(nvme::NvmOpcode::write, ns, lba, const_cast<void*>(data), bytes);
}

void HostIo::read(const NamespaceInfo& ns, std::uint64_t lba, void* data, std::uint64_t bytes) {
  run(nvme::NvmOpcode::read, ns, lba, data, bytes);
}

void HostIo::run(nvme::NvmOpcode opcode, const NamespaceInfo& ns, std::uint64_t lba, void* data, std::uint64_t bytes) {
  check_transfer(ns, lba, bytes);
  if (bytes == 0) return;
  const driver::BlockNamespace where{
      .nsid = ns.nsid, .lba_shift = static_cast<std::uint8_t>(ns.lba_shift), .blocks = ns.blocks};
  const std::uint16_t status = queue_.run(opcode, where, lba, static_cast<std::byte*>(data), bytes);
  if (status != 0) throw driver::NvmeError(opcode == nvme::NvmOpcode::write ? "write" : "read", status);
}

}  // namespace flashmob::gpu
