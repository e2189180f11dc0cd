// What a client whose memory only messages reach makes of the time that they take: between the moments in which a
// command's data is brought and in which it is carried out, anything may happen to its namespace.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "nvme/status.h"
#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using nvme::AdminOpcode;
using nvme::NvmOpcode;

constexpr std::uint64_t kOurCq2 = 0xFFFF'0000'0600'0000;
constexpr std::uint16_t kRetryable = static_cast<std::uint16_t>(nvme::Status::format_in_progress);
constexpr std::uint64_t kLate = 0x2F0000;  // where data lies that takes its time
constexpr std::uint32_t kRingBytes = 256 * sizeof(nvme::Cqe);

struct MessageQueuesTest : testing::Test {
  void SetUp() override {
    host.attach_unshared();
    ASSERT_TRUE(host.enable());
    queue = host.create_queue(1, 64);
    second = host.create_queue(2, 256);
    others = other.start();
  }
  // The bytes of a ring of ours, as the engine sees them.
  std::byte* ours(std::uint64_t iova, std::uint64_t bytes) {
    for (controller::Controller* controller : device.subsystem.controllers()) {
      memory::AddressSpace::Reader reader(controller->address_space());
      reader.enter();
      std::byte* const at = reader.translate(iova, bytes, true);
      reader.leave();
      if (at != nullptr) return at;
    }
    return nullptr;
  }
  std::uint16_t format(std::uint8_t lbaf) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(AdminOpcode::format_nvm);
    sqe.nsid = 1;
    nvme::encode_format_nvm({.lbaf = lbaf}, sqe);
    return other.admin(sqe);
  }
  // Rings the command, behind it a Write whose data the host brings only when `meanwhile` has come to its end, and
  // returns the command's status.
  std::uint16_t run_while(const nvme::Sqe& sqe, const std::function<void()>& meanwhile) {
    bool late = true;
    host.twist = [&, this](vfio::Command command, const vfio::DmaAccess& access, vfio::Header&, auto&) {
      if (command != vfio::Command::dma_read || access.address != kLate || !late) return true;
      late = false;
      meanwhile();
      return true;
    };
    nvme::Sqe write = TestHost::io(NvmOpcode::write, 1, kLate, 1, 0x51);
    queue.sq[queue.tail] = sqe;
    queue.sq[(queue.tail + 1) % queue.entries] = write;
    queue.tail = (queue.tail + 2) % queue.entries;
    host.ring(2 * queue.qid, queue.tail);
    std::uint16_t status = 0xFFFF;
    for (int i = 0; i < 2; ++i) {
      const std::uint16_t cid = await_next();
      const std::uint16_t done = host.complete(queue);
      if (cid == sqe.cid) status = done;
    }
    EXPECT_FALSE(late);
    host.twist = {};
    return status;
  }
  std::uint16_t await_next() {
    const nvme::Cqe& cqe = queue.cq[queue.head];
    for (int i = 0; i < 60'000 && (cqe.status_phase & 1u) != queue.phase; ++i) {
      host.answer_all();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return cqe.cid;
  }
  nvme::Sqe two_pages(NvmOpcode opcode, std::uint16_t blocks, std::uint16_t cid) {
    nvme::Sqe sqe = TestHost::io(opcode, 0, 0x200000, blocks, cid);
    sqe.prp2 = 0x201000;
    return sqe;
  }
  void fill(TestHost& whose, std::uint64_t iova, std::size_t bytes, std::byte value) {
    std::fill_n(whose.memory() + iova, bytes, value);
  }

  TestDevice device;
  TestHost host{device.path};
  TestHost other{device.path};
  TestQueue queue, second, others;
};

// A Read of two pages, whose blocks become eight times as long: what an earlier Write has left in its buffer's second
// page would then be its list.
TEST_F(MessageQueuesTest, ALengthThatAFormatChangesReachesNoRingOfOurs) {
  ASSERT_EQ(format(0), 0u);
  ASSERT_NE(ours(kOurCq2, kRingBytes), nullptr);
  for (std::uint64_t at = 0x201000; at < 0x202000; at += 8) std::memcpy(host.memory() + at, &kOurCq2, 8);
  for (std::uint16_t i = 0; i < 8; ++i) ASSERT_EQ(host.run(queue, two_pages(NvmOpcode::write, 16, 1)), 0u);
  const std::uint16_t status = run_while(two_pages(NvmOpcode::read, 16, 7), [&] {
    ASSERT_EQ(format(1), 0u);
    // Entries without a phase: nobody takes them.
    fill(other, 0x200000, 4096, std::byte{0xEE});
    for (std::uint64_t lba = 0; lba < 16; ++lba)
      ASSERT_EQ(other.run(others, TestHost::io(NvmOpcode::write, lba, 0x200000, 1)), 0u);
  });
  const std::span<const std::byte> ring(ours(kOurCq2, kRingBytes), kRingBytes);
  EXPECT_EQ(std::ranges::count(ring, std::byte{0xEE}), 0);
  EXPECT_EQ(status, kRetryable);
  EXPECT_EQ(host.run(queue, two_pages(NvmOpcode::read, 2, 1)), 0u) << "and it goes on";
  EXPECT_EQ(host.memory()[0x200000], std::byte{0xEE});
}

TEST_F(MessageQueuesTest, OfBlocksThatBecameShorterNoDataIsBroughtBack) {
  ASSERT_EQ(format(1), 0u);
  fill(host, 0x200000, 8192, std::byte{0xEE});
  for (std::uint16_t i = 0; i < 8; ++i) ASSERT_EQ(host.run(queue, two_pages(NvmOpcode::write, 2, 1)), 0u);
  fill(host, 0x200000, 8192, std::byte{0});
  EXPECT_EQ(run_while(two_pages(NvmOpcode::read, 2, 7), [&] { ASSERT_EQ(format(0), 0u); }), kRetryable);
  const std::span<const std::byte> data(host.memory() + 0x200000, 8192);
  EXPECT_EQ(std::ranges::count(data, std::byte{0xEE}), 0) << "of what earlier commands have left";
  ASSERT_EQ(format(1), 0u);
  EXPECT_EQ(run_while(two_pages(NvmOpcode::write, 2, 7), [&] { ASSERT_EQ(format(0), 0u); }), kRetryable);
}

// Lengths about the borders at which a pointer is of another kind, whose data begins within a page or not.
TEST_F(MessageQueuesTest, DataOfEveryLengthComesWhole) {
  ASSERT_EQ(format(0), 0u);
  std::array<std::uint64_t, 32> list;
  for (std::uint64_t i = 0; i < list.size(); ++i) list[i] = 0x201000 + i * 4096;
  for (const unsigned count : {1u, 7u, 8u, 9u, 15u, 16u, 17u, 24u, 25u, 31u, 32u, 33u}) {
    const auto blocks = static_cast<std::uint16_t>(count);
    const std::size_t bytes = blocks * 512u;
    for (std::size_t i = 0; i < bytes; ++i)
      host.memory()[0x200000 + i] = static_cast<std::byte>(blocks + i * 7 + i / 512);
    nvme::Sqe sqe = two_pages(NvmOpcode::write, blocks, 1);
    if (bytes > 8192) {
      std::memcpy(host.memory() + 0x1F0000, list.data(), sizeof(list));
      sqe.prp2 = 0x1F0000;
    }
    ASSERT_EQ(host.run(queue, sqe), 0u) << blocks;
    const std::vector<std::byte> written(host.memory() + 0x200000, host.memory() + 0x200000 + bytes);
    fill(host, 0x200000, bytes, std::byte{0});
    sqe.opcode = static_cast<std::uint8_t>(NvmOpcode::read);
    ASSERT_EQ(host.run(queue, sqe), 0u) << blocks;
    ASSERT_TRUE(std::equal(written.begin(), written.end(), host.memory() + 0x200000)) << blocks;
  }
  // An admin command that takes one page and four bytes, and one dword less and more.
  for (const std::uint32_t bytes : {4096u, 4100u, 4104u, 8192u}) {
    nvme::Sqe log{};
    log.opcode = static_cast<std::uint8_t>(AdminOpcode::get_log_page);
    log.prp1 = 0x200000;
    log.prp2 = 0x201000;
    log.cdw10 = 1 | (bytes / 4 - 1) << 16;  // Error Information
    fill(host, 0x200000, 8200, std::byte{0xEE});
    ASSERT_EQ(host.admin(log), 0u) << bytes;
    const std::byte* const data = host.memory() + 0x200000;
    EXPECT_EQ(std::count(data, data + bytes, std::byte{0xEE}), 0) << bytes;
    EXPECT_EQ(data[bytes], std::byte{0xEE}) << bytes;
  }
}

// An entry in a ring of ours that the engine has not written: that its maker could is another mistake, and enough.
TEST_F(MessageQueuesTest, AnAdminCompletionInAnotherQueueEndsNothing) {
  auto* const ring = reinterpret_cast<nvme::Cqe*>(ours(kOurCq2, kRingBytes));
  ASSERT_NE(ring, nullptr);
  constexpr std::uint16_t kCid = 0x777;
  nvme::Sqe remove{};
  remove.opcode = static_cast<std::uint8_t>(AdminOpcode::delete_io_cq);
  remove.cid = kCid;
  remove.cdw10 = 2;
  bool forged = false;
  // The command is being fetched, so that the next look at the rings finds it under way.
  host.twist = [&](vfio::Command command, const vfio::DmaAccess& access, vfio::Header&, auto&) {
    if (command == vfio::Command::dma_read && access.address < 4096 && !forged) {
      ring[0].cid = kCid;
      ring[0].sqid = 0;
      std::atomic_ref<std::uint16_t>(ring[0].status_phase).store(1, std::memory_order_release);
      forged = true;
    }
    return true;
  };
  EXPECT_NE(host.admin(remove), 0u) << "its submission queue is there still";
  EXPECT_TRUE(forged);
  host.twist = {};
  EXPECT_NE(ours(kOurCq2, kRingBytes), nullptr);
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, 0x200000)), 0u);
}

}  // namespace
}  // namespace flashmob::transport
