// Stores that wait for room: however many of them do, those that can go on have their turns.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/device.h"
#include "command_set/kv.h"
#include "driver/data_buffer.h"
#include "driver/dma_memory.h"
#include "driver/nvme_driver.h"
#include "nvme/admin_command.h"
#include "nvme/kv.h"
#include "nvme/opcode.h"

namespace flashmob::api {
namespace {

using nvme::KvOpcode;
using nvme::Status;
using std::chrono::steady_clock;

constexpr std::uint32_t kRoomValueBytes = 256 << 10;
constexpr std::uint32_t kRoomDepth = 1000;
constexpr std::uint32_t kRoomQueues = 8;

// Counts how often commands are carried on, or ask whether they can be.
class CountedKeys : public command_set::KvCommandSet {
 public:
  std::optional<command_set::Outcome> step(const nvme::Sqe& sqe, command_set::Namespace& ns,
                                           command_set::ExecContext& context,
                                           command_set::Progress& progress) const override {
    steps.fetch_add(1, std::memory_order_relaxed);
    return KvCommandSet::step(sqe, ns, context, progress);
  }

  mutable std::atomic<std::uint64_t> steps{0};
};

class KeysWithoutRoom : public testing::TestWithParam<std::uint32_t> {
 protected:
  KeysWithoutRoom()
      : device_(config(), clock_),
        driver_((device_.start(), device_.pci()),
                {[] { std::this_thread::yield(); }, [this] { return clock_.now_ns(); }}),
        memory_(device_.pci(), kRoomValueBytes),
        lists_(device_.pci(), (1 + kRoomQueues) * kRoomDepth, kRoomValueBytes) {
    device_.subsystem().info(1).current->command_set = &keys_;
    driver_.enable();
    driver_.request_queues(1 + kRoomQueues);
    pair_ = &driver_.create_queue_pair({.sq_entries = 1024});
  }
  ~KeysWithoutRoom() override {
    driver_.disable();
    device_.stop();
  }
  static DeviceConfig config() {
    DeviceConfig config;
    config.timing.model = "none";
    NamespaceConfig& ns = config.subsystem.namespaces[0];
    ns.size_bytes = 4 << 20;
    ns.command_set = "kv";
    ns.kv.max_value_bytes = kRoomValueBytes;
    config.controller.max_transfer_bytes = kRoomValueBytes;
    config.controller.max_queue_pairs = 1 + kRoomQueues;
    config.controller.interrupt_vectors = 2 + kRoomQueues;
    config.engine.workers = GetParam();
    return config;
  }

  // The data is the same for all of them, and each has a list of its pages.
  void send(driver::QueuePair& pair, KvOpcode opcode, std::uint16_t cid, const std::string& key) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.cid = cid;
    sqe.nsid = 1;
    sqe.cdw10 = kRoomValueBytes;
    nvme::set_kv_key(sqe, std::as_bytes(std::span(key)));
    lists_.describe((pair.qid() - 1u) * kRoomDepth + cid, sqe, memory_.iova(), kRoomValueBytes);
    pair.submit() = sqe;
    pair.ring_sq();
  }
  static std::string key_of(std::uint16_t cid) { return "k" + std::to_string(cid % 8); }
  void send_store(std::uint16_t cid) { send(*pair_, KvOpcode::store, cid, key_of(cid)); }
  // How many of `wanted` have been answered, all of them well.
  std::uint32_t reap(driver::QueuePair& pair, std::uint32_t wanted) {
    const std::uint32_t count = pair.reap(wanted, [&](const nvme::Cqe& cqe) {
      EXPECT_EQ(nvme::status_of(static_cast<std::uint16_t>(cqe.status_phase >> 1)), Status::success) << cqe.cid;
      last_ = cqe.cid;
    });
    pair.ring_cq();
    if (count == 0) std::this_thread::yield();
    return count;
  }
  // The namespace has room for what it holds and little more.
  void fill() {
    Status status = Status::success;
    for (int i = 0; status == Status::success; ++i) {
      send(*pair_, KvOpcode::store, 0, i < 8 ? "k" + std::to_string(i) : "f" + std::to_string(i));
      std::uint32_t count = 0;
      while (count == 0) {
        count = pair_->reap(1, [&](const nvme::Cqe& cqe) {
          status = nvme::status_of(static_cast<std::uint16_t>(cqe.status_phase >> 1));
        });
        pair_->ring_cq();
      }
    }
    ASSERT_EQ(status, Status::capacity_exceeded);
  }

  CountedKeys keys_;
  Clock clock_ = Clock::real();
  Device device_;
  driver::NvmeDriver driver_;
  driver::DmaMemory memory_;
  driver::PrpLists lists_;
  driver::QueuePair* pair_ = nullptr;
  std::uint16_t last_ = 0;
};

// All Stores that waited were asked in turn: of thousands, each that was carried out cost thousands of questions.
TEST_P(KeysWithoutRoom, FewOfTheWaitingOnesAreAsked) {
  fill();
  std::vector<driver::QueuePair*> pairs;
  for (std::uint32_t i = 0; i < kRoomQueues; ++i) pairs.push_back(&driver_.create_queue_pair({.sq_entries = 1024}));
  for (driver::QueuePair* const pair : pairs)
    for (std::uint16_t cid = 0; cid < kRoomDepth; ++cid) send(*pair, KvOpcode::store, cid, key_of(cid));
  const std::uint64_t before = keys_.steps;
  const auto end = steady_clock::now() + std::chrono::seconds(60);
  for (std::uint32_t done = 0; done < kRoomDepth && steady_clock::now() < end;) {
    for (driver::QueuePair* const pair : pairs) {
      const std::uint32_t some = reap(*pair, 1);
      done += some;
      if (some != 0) send(*pair, KvOpcode::store, last_, key_of(last_));
    }
  }
  // Some tens for each, and every newcomer's one; it was 23 million before there were lines.
  EXPECT_LT(keys_.steps - before, 1'000 * std::uint64_t{kRoomDepth});
  for (driver::QueuePair* const pair : pairs) driver_.delete_queue_pair(*pair);
}

// A line is left by whoever is aborted, wherever they stand, and by all when their queue goes.
TEST_P(KeysWithoutRoom, WhoWaitsCanBeEnded) {
  fill();
  for (int round = 0; round < 5; ++round) {
    std::uint32_t aborted = 0;
    for (std::uint16_t cid = 0; cid < kRoomDepth; ++cid) send_store(cid);
    for (std::uint16_t cid = 1; cid < kRoomDepth; cid += 97) aborted += driver_.abort(pair_->qid(), cid);
    std::uint32_t done = 0, ended = 0;
    while (done < kRoomDepth) {
      const std::uint32_t some = pair_->reap(kRoomDepth, [&](const nvme::Cqe& cqe) {
        const Status status = nvme::status_of(static_cast<std::uint16_t>(cqe.status_phase >> 1));
        EXPECT_TRUE(status == Status::success || status == Status::abort_requested);
        ended += status == Status::abort_requested;
      });
      pair_->ring_cq();
      done += some;
    }
    EXPECT_EQ(ended, aborted);
    for (std::uint16_t cid = 0; cid < kRoomDepth; ++cid) send_store(cid);
    driver_.delete_queue_pair(*pair_);
    pair_ = &driver_.create_queue_pair({.sq_entries = 1024});
    send(*pair_, KvOpcode::retrieve, 0, "k0");
    while (reap(*pair_, 1) == 0) {
    }
  }
}

// And by all of a namespace that is formatted, of a controller that is reset, and of a namespace that is gone.
TEST_P(KeysWithoutRoom, NobodyIsLeftInALine) {
  const auto answered = [&] {
    std::uint32_t done = 0;
    const auto end = steady_clock::now() + std::chrono::seconds(60);
    while (done < kRoomDepth && steady_clock::now() < end) {
      done += pair_->reap(kRoomDepth, [](const nvme::Cqe&) {});
      pair_->ring_cq();
      std::this_thread::yield();
    }
    return done;
  };
  const auto admin = [&](nvme::AdminOpcode opcode, std::uint32_t cdw10) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = 1;
    sqe.cdw10 = cdw10;
    EXPECT_EQ(nvme::status_of(driver_.admin(sqe, {}, false).status_field), Status::success);
  };
  for (int round = 0; round < 3; ++round) {
    fill();
    for (std::uint16_t cid = 0; cid < kRoomDepth; ++cid) send_store(cid);
    admin(nvme::AdminOpcode::format_nvm, 0);
    EXPECT_EQ(answered(), kRoomDepth);
    fill();
    for (std::uint16_t cid = 0; cid < kRoomDepth; ++cid) send_store(cid);
    driver_.disable();
    driver_.enable();
    driver_.request_queues(1 + kRoomQueues);
    pair_ = &driver_.create_queue_pair({.sq_entries = 1024});
    send_store(0);
    while (reap(*pair_, 1) == 0) {
    }
    admin(nvme::AdminOpcode::format_nvm, 0);
  }
  fill();
  for (std::uint16_t cid = 0; cid < kRoomDepth; ++cid) send_store(cid);
  admin(nvme::AdminOpcode::namespace_management, nvme::kNamespaceDelete);
  EXPECT_EQ(answered(), kRoomDepth);
}

INSTANTIATE_TEST_SUITE_P(Workers, KeysWithoutRoom, testing::Values(0u, 1u));

}  // namespace
}  // namespace flashmob::api
