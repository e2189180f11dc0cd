// Large values on threads of the engine, whose commands are stopped between two steps by an Abort, a deleted queue, a
// reset, Format or the end of their namespace: nothing of them is left, and all others get what they are due.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "api/device.h"
#include "driver/data_buffer.h"
#include "driver/dma_memory.h"
#include "driver/nvme_driver.h"
#include "nvme/admin_command.h"
#include "nvme/identify_namespace.h"
#include "nvme/kv.h"
#include "nvme/opcode.h"

namespace flashmob::api {
namespace {

using nvme::KvOpcode;
using nvme::Status;

constexpr std::uint32_t kValueBytes = 2 << 20;
constexpr std::uint32_t kGranuleBytes = 64;
constexpr std::uint32_t kDepth = 8;

DeviceConfig keys_of_large_values(std::uint32_t units, std::uint32_t workers) {
  DeviceConfig config;
  config.timing.model = "none";
  NamespaceConfig& ns = config.subsystem.namespaces[0];
  ns.size_bytes = 64 << 20;
  ns.command_set = "kv";
  ns.kv.max_value_bytes = kValueBytes;
  ns.kv.value_granularity_bytes = kGranuleBytes;
  ns.kv.max_keys = 1000;
  config.controller.max_transfer_bytes = kValueBytes;
  config.controller.max_queue_pairs = 8;
  config.controller.interrupt_vectors = 9;
  config.engine.units = units;
  config.engine.workers = workers;
  return config;
}

struct Threads {
  std::uint32_t units, workers;
};

class KeysUnderLoad : public testing::TestWithParam<Threads> {
 protected:
  KeysUnderLoad()
      : device_(keys_of_large_values(GetParam().units, GetParam().workers), clock_),
        driver_((device_.start(), device_.pci()),
                {[] { std::this_thread::yield(); }, [this] { return clock_.now_ns(); }}),
        memory_(device_.pci(), std::uint64_t{kDepth} * kValueBytes),
        lists_(device_.pci(), kDepth, kValueBytes) {
    begin();
  }
  ~KeysUnderLoad() override {
    driver_.disable();
    device_.stop();
  }

  void begin() {
    driver_.enable();
    driver_.request_queues(4);
    pair_ = &driver_.create_queue_pair({.sq_entries = 2 * kDepth});
  }
  // Each command has a slot's memory: all of a value has one letter.
  nvme::Sqe command(KvOpcode opcode, std::uint16_t cid, const std::string& key, std::uint32_t bytes) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.cid = cid;
    sqe.nsid = 1;
    sqe.cdw10 = bytes;
    nvme::set_kv_key(sqe, std::as_bytes(std::span(key)));
    if (bytes != 0) lists_.describe(cid, sqe, memory_.iova() + std::uint64_t{cid} * kValueBytes, bytes);
    return sqe;
  }
  std::byte* data(std::uint16_t cid) { return memory_.data() + std::uint64_t{cid} * kValueBytes; }
  nvme::Sqe store(std::uint16_t cid, const std::string& key, int letter) {
    std::memset(data(cid), letter, kValueBytes);
    return command(KvOpcode::store, cid, key, kValueBytes);
  }
  void send(const nvme::Sqe& sqe) {
    pair_->submit() = sqe;
    pair_->ring_sq();
  }
  // Of `count` commands, by their identifiers.
  std::array<Status, kDepth> wait(std::uint32_t count) {
    std::array<Status, kDepth> statuses{};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (count != 0) {
      count -= pair_->reap(kDepth, [&](const nvme::Cqe& cqe) {
        statuses.at(cqe.cid) = nvme::status_of(static_cast<std::uint16_t>(cqe.status_phase >> 1));
      });
      pair_->ring_cq();
      if (std::chrono::steady_clock::now() > end) {
        ADD_FAILURE() << count << " commands were never answered";
        break;
      }
      std::this_thread::yield();
    }
    return statuses;
  }
  Status run(const nvme::Sqe& sqe) {
    send(sqe);
    return wait(1)[sqe.cid];
  }
  Status retrieve(std::uint16_t cid, const std::string& key) {
    return run(command(KvOpcode::retrieve, cid, key, kValueBytes));
  }
  // A value is whole, whoever wrote it.
  void expect_whole(std::uint16_t cid) {
    EXPECT_TRUE(std::all_of(data(cid), data(cid) + kValueBytes, [&](std::byte b) { return b == *data(cid); }));
  }
  nvme::IdentifyNamespaceKv identify() {
    nvme::IdentifyNamespaceKv n{};
    driver_.identify(static_cast<std::uint8_t>(nvme::Cns::csi_namespace), 1, std::as_writable_bytes(std::span(&n, 1)),
                     0, static_cast<std::uint8_t>(nvme::Csi::key_value));
    return n;
  }
  // Stores, Retrieves and Deletes at once, none of which can be done yet.
  void send_a_mixture() {
    for (std::uint16_t cid = 0; cid < kDepth; ++cid) {
      const std::string key(1, static_cast<char>('a' + cid / 2));
      send(cid % 2 == 0 ? store(cid, key, 'A' + cid) : command(KvOpcode::retrieve, cid, key, kValueBytes));
    }
  }
  // Everything is there to be used: nothing that was stopped has kept any room.
  void expect_all_room() {
    for (const char* key : {"a", "b", "c", "d"}) run(command(KvOpcode::delete_key, 0, key, 0));
    EXPECT_EQ(identify().nuse, 0u);
    const std::uint64_t values = identify().nsze / kValueBytes;
    for (std::uint64_t i = 0; i < values; ++i)
      ASSERT_EQ(run(store(0, "full" + std::to_string(i), 'f')), Status::success) << i;
    EXPECT_EQ(run(store(0, "more", 'm')), Status::capacity_exceeded);
    EXPECT_EQ(run(store(0, "full0", 'g')), Status::success);
    ASSERT_EQ(retrieve(1, "full0"), Status::success);
    expect_whole(1);
    EXPECT_EQ(*data(1), std::byte{'g'});
  }

  Clock clock_ = Clock::real();
  Device device_;
  driver::NvmeDriver driver_;
  driver::DmaMemory memory_;
  driver::PrpLists lists_;
  driver::QueuePair* pair_ = nullptr;
};

TEST_P(KeysUnderLoad, LargeOnesTakeTurns) {
  for (int round = 0; round < 3; ++round) {
    send_a_mixture();
    const auto statuses = wait(kDepth);
    for (std::uint16_t cid = 0; cid < kDepth; ++cid) {
      if (cid % 2 == 0) {
        EXPECT_EQ(statuses[cid], Status::success);
      } else if (statuses[cid] == Status::success) {
        expect_whole(cid);
      } else {
        EXPECT_EQ(statuses[cid], Status::key_does_not_exist);
      }
    }
  }
  expect_all_room();
}

TEST_P(KeysUnderLoad, AreAborted) {
  for (std::uint16_t round = 0; round < 4 * kDepth; ++round) {
    const auto aborted = static_cast<std::uint16_t>(round % kDepth);
    send_a_mixture();
    const bool is_aborted = driver_.abort(pair_->qid(), aborted);
    const auto statuses = wait(kDepth);
    if (is_aborted) {
      EXPECT_EQ(statuses[aborted], Status::abort_requested);
    }
    for (std::uint16_t cid = 0; cid < kDepth; cid += 2)
      if (cid != aborted) {
        EXPECT_EQ(statuses[cid], Status::success);
      }
  }
  expect_all_room();
}

TEST_P(KeysUnderLoad, GoWithTheirQueue) {
  for (int round = 0; round < 8; ++round) {
    send_a_mixture();
    driver_.delete_queue_pair(*pair_);
    pair_ = &driver_.create_queue_pair({.sq_entries = 2 * kDepth});
  }
  expect_all_room();
}

TEST_P(KeysUnderLoad, AreReset) {
  ASSERT_EQ(run(store(0, "z", 'z')), Status::success);
  for (int round = 0; round < 8; ++round) {
    send_a_mixture();
    driver_.disable();
    begin();
  }
  ASSERT_EQ(retrieve(1, "z"), Status::success);
  expect_whole(1);
  ASSERT_EQ(run(command(KvOpcode::delete_key, 0, "z", 0)), Status::success);
  expect_all_room();
}

TEST_P(KeysUnderLoad, AreFormatted) {
  for (int round = 0; round < 8; ++round) {
    send_a_mixture();
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::format_nvm);
    sqe.nsid = 1;
    EXPECT_EQ(nvme::status_of(driver_.admin(sqe, {}, false).status_field), Status::success);
    const auto statuses = wait(kDepth);
    for (std::uint16_t cid = 0; cid < kDepth; ++cid)
      if (statuses[cid] == Status::success && cid % 2 != 0) expect_whole(cid);
    EXPECT_EQ(identify().nuse, 0u);
  }
  expect_all_room();
}

TEST_P(KeysUnderLoad, EndWithTheirNamespace) {
  send_a_mixture();
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::namespace_management);
  sqe.nsid = 1;
  sqe.cdw10 = nvme::kNamespaceDelete;
  EXPECT_EQ(nvme::status_of(driver_.admin(sqe, {}, false).status_field), Status::success);
  for (const Status status : wait(kDepth))
    EXPECT_TRUE(status == Status::success || status == Status::key_does_not_exist || status == Status::invalid_field ||
                status == Status::invalid_namespace_or_format)
        << static_cast<unsigned>(status);
  EXPECT_NE(run(command(KvOpcode::exist, 0, "a", 0)), Status::success);
}

INSTANTIATE_TEST_SUITE_P(Threads, KeysUnderLoad, testing::Values(Threads{1, 0}, Threads{2, 0}, Threads{1, 1}),
                         [](const auto& threads) {
                           return "units" + std::to_string(threads.param.units) + "workers" +
                                  std::to_string(threads.param.workers);
                         });

}  // namespace
}  // namespace flashmob::api
