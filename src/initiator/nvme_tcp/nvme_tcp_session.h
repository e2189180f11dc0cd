// A driver with one queue over NvmeTcpDevice over a socket to a FakeTcpTarget: for the tests of the device.
//
// One test thread; the target and the device have threads of their own.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "driver/data_buffer.h"
#include "driver/nvme_driver.h"
#include "initiator/nvme_tcp/fake_tcp_target.h"
#include "initiator/nvme_tcp/nvme_tcp_device.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"

namespace flashmob::initiator::testing_tcp {

using nvme::NvmOpcode, nvme::Status;

inline constexpr std::size_t kBufferBytes = 1 << 20;

inline std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}
inline driver::Waiter waiter() {
  return {[] { std::this_thread::yield(); }, now_ns};
}
inline bool wait_for(const std::function<bool()>& done, std::uint64_t timeout_ms = 5000) {
  const std::uint64_t until_ns = now_ns() + timeout_ms * 1'000'000;
  while (!done()) {
    if (now_ns() > until_ns) return false;
    std::this_thread::yield();
  }
  return true;
}

inline NvmeTcpOptions options_for(const FakeTcpTarget& target) {
  NvmeTcpOptions options;
  options.port = target.port();
  options.subsystem_nqn = "nqn.2014-08.org.nvmexpress:test";
  options.timeout_ms = 2000;
  options.idle_spin_ns = 20'000;
  return options;
}

// A driver with one queue and a buffer.
struct Session {
  explicit Session(NvmeTcpOptions options, std::uint32_t entries = 16)
      : device(options), driver(device, waiter()), buffer(device, kBufferBytes), lists(device, 1, kBufferBytes) {
    driver.admin_timeout_ns = 5'000'000'000;
    driver.enable();
    pair = &driver.create_queue_pair({.sq_entries = entries});
  }
  // The status field of one command's end; nothing if it does not end.
  std::optional<std::uint16_t> io(NvmOpcode opcode, std::uint64_t slba, std::uint32_t blocks, std::uint64_t at = 0,
                                  std::uint32_t nsid = 1) {
    nvme::Sqe& sqe = pair->submit();
    sqe = {};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = nsid;
    sqe.cid = 3;
    nvme::set_lba_range(sqe, slba, blocks);
    lists.describe(0, sqe, buffer.iova() + at, std::uint64_t{blocks} * 512);
    pair->ring_sq();
    std::optional<std::uint16_t> field;
    wait_for([&] {
      pair->reap(1, [&](const nvme::Cqe& entry) { field = static_cast<std::uint16_t>(entry.status_phase >> 1); });
      return field.has_value();
    });
    pair->ring_cq();
    return field;
  }
  void fill(std::size_t at, std::size_t bytes, unsigned seed) {
    for (std::size_t i = 0; i < bytes; ++i) buffer.data()[at + i] = static_cast<std::byte>(i * 31 + i / 512 + seed);
  }

  NvmeTcpDevice device;
  driver::NvmeDriver driver;
  driver::DmaMemory buffer;
  driver::PrpLists lists;
  driver::QueuePair* pair = nullptr;
};

}  // namespace flashmob::initiator::testing_tcp
