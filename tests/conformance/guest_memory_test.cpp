// Host memory that changes while commands which name it are in flight: between the fetch of a command and the moving of
// its data, buffers are unmapped, mapped elsewhere, and queues are deleted.
#include <algorithm>
#include <map>
#include <set>

#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

constexpr std::uint64_t kIova = std::uint64_t{7} << 40;
constexpr std::size_t kBytes = 64 << 10;
constexpr std::uint32_t kCommands = kBytes / 512;

// Everything that a queue holds is fetched at once, which is more than a round moves.
DeviceConfig greedy_device(unsigned workers) {
  DeviceConfig config = suite::small_device();
  config.engine.fetch_limit = 1024;
  config.engine.workers = workers;
  return config;
}

class GuestMemoryTest : public DeviceTest, public ::testing::WithParamInterface<unsigned> {
 protected:
  GuestMemoryTest() : DeviceTest(greedy_device(GetParam())), old_(noise(kBytes, 1)), first_(kBytes), second_(kBytes) {
    EXPECT_EQ(write(kNs512, 0, old_), Status::success);
  }
  // What is fetched in one round is moved in the next: by the dispatcher's thread, or by a worker that has not even
  // heard of it.
  void SetUp() override {
    if (suite::on_other_engine != nullptr) GTEST_SKIP() << "the host engine's rounds";
    space().map(kIova, kBytes, first_.data());
  }
  void TearDown() override { space().unmap(kIova, kBytes); }

  memory::AddressSpace& space() { return host().controller.address_space(); }
  // One command a block, as many as the buffer has; all are fetched, and no data is moved yet.
  QueuePair& fetch_all(NvmOpcode opcode) {
    QueuePair& pair = driver().create_queue_pair({.sq_entries = 256});
    for (std::uint32_t i = 0; i < kCommands; ++i) {
      Sqe sqe = make(opcode, kNs512, i, 1);
      sqe.cid = static_cast<std::uint16_t>(i);
      sqe.prp1 = kIova + 512 * i;
      pair.submit() = sqe;
    }
    pair.ring_sq();
    device.engine().poll_actor(0);
    return pair;
  }

  std::vector<std::byte> old_;
  std::vector<std::byte> first_, second_;
};

TEST_P(GuestMemoryTest, ReadsFollowMemoryThatIsMappedElsewhere) {
  QueuePair& pair = fetch_all(NvmOpcode::read);
  space().unmap(kIova, kBytes);
  space().map(kIova, kBytes, second_.data());
  const auto ends = wait(pair, kCommands);
  ASSERT_EQ(ends.size(), kCommands);
  for (const Cqe& cqe : ends) EXPECT_EQ(status_of(cqe), Status::success);
  EXPECT_TRUE(second_ == old_);
  EXPECT_EQ(std::count(first_.begin(), first_.end(), std::byte{0}), static_cast<std::ptrdiff_t>(kBytes))
      << "memory that the host took back was written to";
}

TEST_P(GuestMemoryTest, WritesFollowMemoryThatIsMappedElsewhere) {
  std::ranges::copy(noise(kBytes, 2), second_.begin());
  QueuePair& pair = fetch_all(NvmOpcode::write);
  space().unmap(kIova, kBytes);
  space().map(kIova, kBytes, second_.data());
  const auto ends = wait(pair, kCommands);
  ASSERT_EQ(ends.size(), kCommands);
  EXPECT_TRUE(read(kNs512, 0, kCommands) == second_);
}

TEST_P(GuestMemoryTest, ReadsFailWhereMemoryIsGone) {
  QueuePair& pair = fetch_all(NvmOpcode::read);
  space().unmap(kIova, kBytes);
  space().map(kIova, kBytes / 2, second_.data());
  std::map<std::uint16_t, Status> ends;
  for (const Cqe& cqe : wait(pair, kCommands)) EXPECT_TRUE(ends.emplace(cqe.cid, status_of(cqe)).second) << cqe.cid;
  ASSERT_EQ(ends.size(), kCommands);
  for (const auto& [cid, status] : ends)
    EXPECT_EQ(status, cid < kCommands / 2 ? Status::success : Status::data_transfer_error) << cid;
  EXPECT_TRUE(std::equal(second_.begin(), second_.begin() + kBytes / 2, old_.begin()));
  EXPECT_EQ(std::count(first_.begin(), first_.end(), std::byte{0}), static_cast<std::ptrdiff_t>(kBytes));
  device.pump_for(1'000'000);  // slots come back from a worker's thread with the next round
  EXPECT_EQ(device.engine().outstanding(), 0u);
  space().unmap(kIova, kBytes / 2);
}

TEST_P(GuestMemoryTest, ReadsFailWhereMemoryMayOnlyBeRead) {
  // The device may fetch from it what a Write stores, but not store there what a Read fetches.
  QueuePair& reads = fetch_all(NvmOpcode::read);
  space().unmap(kIova, kBytes);
  space().map(kIova, kBytes, second_.data(), false);
  for (const Cqe& cqe : wait(reads, kCommands)) EXPECT_EQ(status_of(cqe), Status::data_transfer_error);
  EXPECT_EQ(std::count(second_.begin(), second_.end(), std::byte{0}), static_cast<std::ptrdiff_t>(kBytes));
  QueuePair& writes = fetch_all(NvmOpcode::write);
  for (const Cqe& cqe : wait(writes, kCommands)) EXPECT_EQ(status_of(cqe), Status::success);
  EXPECT_TRUE(read(kNs512, 0, kCommands) == second_);
}

TEST_P(GuestMemoryTest, TheErrorLogNamesTheBlockWhoseMemoryIsGone) {
  QueuePair& pair = fetch_all(NvmOpcode::write);
  space().unmap(kIova, kBytes);
  ASSERT_EQ(wait(pair, kCommands).size(), kCommands);
  const auto entry = log_page<nvme::ErrorInformationEntry>(nvme::LogPage::error_information);
  EXPECT_EQ(entry.error_count, kCommands);
  EXPECT_EQ(entry.sqid, pair.qid());
  EXPECT_EQ(entry.lba, entry.cid) << "command and block have one number here";
  EXPECT_EQ(entry.nsid, kNs512);
  EXPECT_TRUE(read(kNs512, 0, kCommands) == old_);
}

// More commands than one round moves: some are done, the others have never been begun.
TEST_P(GuestMemoryTest, WritesOfADeletedQueueAreDoneOrNotBegun) {
  constexpr std::uint32_t kMany = 1000;
  constexpr std::uint32_t kBlocks = kNsBytes / 512;
  QueuePair& pair = driver().create_queue_pair({.sq_entries = 1024});
  std::ranges::copy(noise(kBytes, 3), first_.begin());  // in place: it is mapped
  for (std::uint32_t i = 0; i < kMany; ++i) {
    Sqe sqe = make(NvmOpcode::write, kNs512, kBlocks - kMany + i, 1);
    sqe.cid = static_cast<std::uint16_t>(i);
    sqe.prp1 = kIova + 512 * (i % kCommands);
    pair.submit() = sqe;
  }
  pair.ring_sq();
  device.engine().poll_actor(0);
  EXPECT_EQ(delete_sq(pair.qid()), Status::success);
  std::map<std::uint16_t, Status> ends;
  for (const Cqe& cqe : wait(pair, kMany)) EXPECT_TRUE(ends.emplace(cqe.cid, status_of(cqe)).second) << cqe.cid;
  ASSERT_EQ(ends.size(), kMany);
  std::set<Status> kinds;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    const Status status = ends[static_cast<std::uint16_t>(i)];
    kinds.insert(status);
    const std::vector<std::byte> block = read(kNs512, kBlocks - kMany + i, 1);
    const bool is_new = std::equal(block.begin(), block.end(), first_.begin() + 512 * (i % kCommands));
    const bool is_old = block == std::vector<std::byte>(512);
    EXPECT_TRUE(is_new || is_old) << i;
    if (status == Status::success) {
      EXPECT_TRUE(is_new) << i;
    } else {
      EXPECT_EQ(status, Status::aborted_sq_deletion) << i;
    }
  }
  EXPECT_TRUE(kinds.contains(Status::aborted_sq_deletion));
  EXPECT_TRUE(read(kNs512, kBlocks - 1, 1) == std::vector<std::byte>(512)) << "the last one was never begun";
  device.pump_for(1'000'000);
  EXPECT_EQ(device.engine().outstanding(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Workers, GuestMemoryTest, ::testing::Values(0u, 1u));

}  // namespace
}  // namespace flashmob::conformance
