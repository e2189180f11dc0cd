// Several controllers on one GPU engine: each names its own memory alone, answers go where the commands came from, and
// one that leaves takes nothing of the others'.
#include "conformance/namespaces_fixture.h"

namespace flashmob::conformance {
namespace {

class GpuControllersTest : public NamespacesTest {
 protected:
  static constexpr std::uint64_t kIova = 0x5'0000'0000;  // where both hosts put something else
  struct alignas(4096) Page {
    std::byte bytes[4096];
  };

  Sqe at(NvmOpcode opcode, std::uint64_t lba, std::uint64_t prp1) {
    Sqe sqe = make(opcode, kNs512, lba, 8);
    sqe.prp1 = prp1;
    return sqe;
  }
  memory::AddressSpace& space(unsigned index) { return host(index).controller.address_space(); }
};

TEST_F(GpuControllersTest, EqualAddressesAreEachHostsOwn) {
  Page pages[2];
  for (unsigned i = 0; i < 2; ++i) {
    std::memset(pages[i].bytes, 0x11 * static_cast<int>(i + 1), sizeof(Page));
    space(i).map(kIova, sizeof(Page), &pages[i]);
  }
  for (unsigned i = 0; i < 2; ++i) EXPECT_EQ(status_of(run(at(NvmOpcode::write, 16 * i, kIova), i)), Status::success);
  for (unsigned i = 0; i < 2; ++i) std::memset(pages[i].bytes, 0, sizeof(Page));
  // Each reads what the other wrote, and finds it in its own memory.
  for (unsigned i = 0; i < 2; ++i) {
    EXPECT_EQ(status_of(run(at(NvmOpcode::read, 16 * (1 - i), kIova), i)), Status::success);
    EXPECT_EQ(pages[i].bytes[0], static_cast<std::byte>(0x11 * (2 - i)));
    EXPECT_EQ(pages[i].bytes[4095], static_cast<std::byte>(0x11 * (2 - i)));
  }
  for (unsigned i = 0; i < 2; ++i) EXPECT_TRUE(space(i).unmap(kIova, sizeof(Page)));
}

TEST_F(GpuControllersTest, AnotherHostsMemoryIsOutOfReach) {
  Page page;
  std::memset(page.bytes, 0x77, sizeof(Page));
  space(1).map(kIova, sizeof(Page), &page);
  for (const NvmOpcode opcode : {NvmOpcode::read, NvmOpcode::write, NvmOpcode::compare})
    EXPECT_EQ(status_of(run(at(opcode, 0, kIova), 0)), Status::data_transfer_error);
  // As a list of pages, and as a page that a list of its own names.
  Buffer list(host(0).door, 4096);
  std::memcpy(list.data(), &kIova, sizeof(kIova));
  Sqe sqe = at(NvmOpcode::read, 0, list.iova());
  sqe.cdw12 = 31;
  sqe.prp2 = kIova;
  EXPECT_EQ(status_of(run(sqe, 0)), Status::data_transfer_error);
  sqe.prp2 = list.iova();
  EXPECT_EQ(status_of(run(sqe, 0)), Status::data_transfer_error);
  // What its owner may do goes on working, and the other has changed nothing.
  EXPECT_EQ(page.bytes[7], std::byte{0x77});
  EXPECT_EQ(status_of(run(at(NvmOpcode::write, 0, kIova), 1)), Status::success);
  EXPECT_TRUE(space(1).unmap(kIova, sizeof(Page)));
  EXPECT_EQ(status_of(run(at(NvmOpcode::write, 0, kIova), 1)), Status::data_transfer_error);
}

TEST_F(GpuControllersTest, ErrorsAreEnteredWhereTheyHappened) {
  EXPECT_EQ(status_of(run(at(NvmOpcode::read, 1 << 20, 0x1000), 1)), Status::lba_out_of_range);
  device.pump_for(10'000);
  const auto newest = [&](unsigned index) {
    nvme::ErrorInformationEntry entry{};
    driver(index).log_page(static_cast<std::uint8_t>(nvme::LogPage::error_information), nvme::kNsidBroadcast, 0,
                           std::as_writable_bytes(std::span(&entry, 1)));
    return entry;
  };
  EXPECT_EQ(newest(0).error_count, 0u);
  EXPECT_EQ(newest(1).error_count, 1u);
  EXPECT_EQ(newest(1).lba, 1u << 20);
}

TEST_F(GpuControllersTest, CommandsAreCountedForTheirController) {
  Buffer data(host(1).door, 4096);
  for (unsigned i = 0; i < 5; ++i) run(data.attach(make(NvmOpcode::write, kNs512, i, 1), 512), 1);
  touch(kNs512, 0);
  device.pump_for(100'000);
  const auto first = device.engine().counters(host(0).controller);
  const auto second = device.engine().counters(host(1).controller);
  EXPECT_EQ(first.read_commands, 1u);
  EXPECT_EQ(first.read_bytes, 512u);
  EXPECT_EQ(first.write_commands, 0u);
  EXPECT_EQ(second.read_commands, 0u);
  EXPECT_EQ(second.write_commands, 5u);
  EXPECT_EQ(second.written_bytes, 5 * 512u);
}

TEST_F(GpuControllersTest, InterruptsReachTheirHost) {
  touch(kNs512, 0);
  touch(kNs512, 1);
  const auto before = host(0).interrupt_counts;
  const auto sum = [](const std::vector<std::uint64_t>& counts) {
    std::uint64_t all = 0;
    for (std::size_t vector = 1; vector < counts.size(); ++vector) all += counts[vector];
    return all;
  };
  RawCq cq(host(1), 5, 8);
  Sqe make_cq = make(AdminOpcode::create_io_cq);
  make_cq.prp1 = cq.iova();
  make_cq.cdw10 = 5u | (7u << 16);
  make_cq.cdw11 = 3u | (4u << 16);  // interrupts by vector 4
  ASSERT_EQ(status_of(driver(1).admin(make_cq, {}, false)), Status::success);
  RawSq sq(host(1), 5, 8);
  Sqe make_sq = make(AdminOpcode::create_io_sq);
  make_sq.prp1 = sq.iova();
  make_sq.cdw10 = 5u | (7u << 16);
  make_sq.cdw11 = 1u | (5u << 16);
  ASSERT_EQ(status_of(driver(1).admin(make_sq, {}, false)), Status::success);
  sq.push(make(NvmOpcode::flush, kNs512), 1);
  sq.ring();
  EXPECT_EQ(wait(cq, 1).size(), 1u);
  device.pump_for(10'000);
  EXPECT_EQ(host(1).interrupt_counts[4], 1u);
  EXPECT_EQ(sum(host(0).interrupt_counts), sum(before));
  driver(1).disable();
}

// A device so slow that everything is still in flight when something happens to its controller.
DeviceConfig slow_device() {
  DeviceConfig config = suite::small_device();
  config.timing.read_latency_ns = config.timing.write_latency_ns = 50'000'000;
  return config;
}

class GpuLeavingTest : public DeviceTest {
 protected:
  GpuLeavingTest() : DeviceTest(slow_device(), 1) {}

  // Reads in flight on a queue.
  void submit(QueuePair& pair, Buffer& data, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      Sqe sqe = data.attach(make(NvmOpcode::read, kNs512, i, 1), 512);
      sqe.cid = static_cast<std::uint16_t>(i);
      pair.submit() = sqe;
    }
    pair.ring_sq();
  }
};

TEST_F(GpuLeavingTest, AnAbortEndsNoNamesakeOfAnotherController) {
  Host second(device);
  second.driver.enable();
  QueuePair& theirs = second.driver.create_queue_pair({.sq_entries = 64});
  Buffer data = buffer(4096), their_data(second.door, 4096);
  ASSERT_EQ(queue().qid(), theirs.qid());
  submit(queue(), data, 4);
  submit(theirs, their_data, 4);
  device.pump_for(50'000);
  EXPECT_TRUE(second.driver.abort(theirs.qid(), 2));
  const auto ended = wait(theirs, 1);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(status_of(ended[0]), Status::abort_requested);
  for (const Cqe& cqe : wait(queue(), 4)) EXPECT_EQ(status_of(cqe), Status::success);
  EXPECT_EQ(wait(theirs, 3).size(), 3u);
}

TEST_F(GpuLeavingTest, WhoLeavesDisturbsNobody) {
  Buffer data = buffer(4096);
  for (unsigned round = 0; round < 3; ++round) {
    auto second = std::make_unique<Host>(device);
    second->driver.enable();
    QueuePair& theirs = second->driver.create_queue_pair({.sq_entries = 64});
    auto their_data = std::make_unique<Buffer>(second->door, 4096);
    submit(queue(), data, 8);
    submit(theirs, *their_data, 8);
    device.pump_for(50'000);
    their_data.reset();  // unmapped in flight
    second.reset();
    const auto done = wait(queue(), 8);
    ASSERT_EQ(done.size(), 8u);
    for (const Cqe& cqe : done) EXPECT_EQ(status_of(cqe), Status::success);
  }
  device.pump_for(100'000);  // warps count for themselves until they have nothing else to do
  EXPECT_EQ(device.engine().counters(host().controller).read_commands, 24u);
}

// Its successor has its number in the engine, and nothing else of it.
TEST_F(GpuLeavingTest, ASuccessorBeginsAfresh) {
  {
    auto second = std::make_unique<Host>(device);
    second->driver.enable();
    QueuePair& theirs = second->driver.create_queue_pair({.sq_entries = 64});
    Buffer their_data(second->door, 4096);
    submit(theirs, their_data, 8);
    wait(theirs, 8);
  }
  Host third(device);
  third.driver.enable();
  third.driver.create_queue_pair({.sq_entries = 64});
  device.pump_for(100'000);
  EXPECT_EQ(device.engine().counters(third.controller).read_commands, 0u);
}

TEST_F(GpuLeavingTest, StatisticsOutliveTheLastController) {
  VirtualDevice other(suite::small_device(), 0);
  for (unsigned round = 1; round <= 2; ++round) {
    Host only(other);
    only.driver.enable();
    QueuePair& pair = only.driver.create_queue_pair({.sq_entries = 64});
    Buffer data(only.door, 4096);
    submit(pair, data, 8);
    unsigned found = 0;
    EXPECT_TRUE(other.pump_until([&] {
      pair.reap(100, [&](const Cqe&) { ++found; });
      pair.ring_cq();
      return found == 8;
    }));
  }
  // Admin commands are completed by the host's unit, which counts them too.
  EXPECT_GE(other.engine().live().completions, 16u);
  EXPECT_GE(other.engine().stats(engine::kWarmUp).target_sum_ns, 16 * 10'000u);
}

}  // namespace
}  // namespace flashmob::conformance
