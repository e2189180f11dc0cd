// Injected faults as a host sees them: each kind, on I/O and admin commands, switched on and off while it works.
#include <bit>

#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

class FaultTest : public DeviceTest {
 protected:
  explicit FaultTest(const DeviceConfig& config = suite::small_device()) : DeviceTest(config) {}

  void inject(const std::string& rule) { device.engine().faults().set({rule}); }
  std::uint64_t injected() { return device.engine().faults().counts().at(0).injected; }
  Sqe read_of(Buffer& data, std::uint64_t lba = 0, std::uint32_t blocks = 1) {
    return data.attach(make(NvmOpcode::read, kNs512, lba, blocks), blocks * 512);
  }
  Sqe write_of(Buffer& data, std::uint64_t lba = 0, std::uint32_t blocks = 1) {
    return data.attach(make(NvmOpcode::write, kNs512, lba, blocks), blocks * 512);
  }
  // A reset, and a new queue after it.
  QueuePair& reset() {
    driver().disable();
    driver().enable();
    return driver().create_queue_pair({.sq_entries = 64});
  }
  // Submits and lets so much time pass; the completions that came.
  std::vector<Cqe> after(QueuePair& pair, Sqe sqe, std::uint64_t time_ns, std::uint16_t cid = 7) {
    sqe.cid = cid;
    pair.submit() = sqe;
    pair.ring_sq();
    device.pump_for(time_ns);
    std::vector<Cqe> found;
    pair.reap(64, [&](const Cqe& cqe) { found.push_back(cqe); });
    pair.ring_cq();
    return found;
  }
};

// The same with a thread for the data.
class ThreadedFaultTest : public FaultTest {
 protected:
  static DeviceConfig with_worker() {
    DeviceConfig config = suite::small_device();
    config.engine.workers = 1;
    return config;
  }
  ThreadedFaultTest() : FaultTest(with_worker()) {}
};

TEST_F(FaultTest, AnErrorIsReportedAndTheCommandNotCarriedOut) {
  Buffer data = buffer(4096);
  data.store(noise(512, 1));
  ASSERT_EQ(status_of(run(write_of(data))), Status::success);
  inject("error on=write");
  data.store(noise(512, 2));
  EXPECT_EQ(status_of(run(write_of(data))), Status::write_fault);
  inject("error on=read lba=8-15");
  EXPECT_EQ(status_of(run(read_of(data))), Status::success) << "other blocks are well";
  EXPECT_EQ(data.copy(512), noise(512, 1));
  EXPECT_EQ(status_of(run(read_of(data, 15))), Status::unrecovered_read_error);
  const auto log = log_page<nvme::ErrorInformationEntry>(nvme::LogPage::error_information);
  EXPECT_EQ(log.lba, 15u);
  EXPECT_EQ(nvme::status_of(static_cast<std::uint16_t>(log.status_field >> 1)), Status::unrecovered_read_error);
  inject("error on=flush status=0x20");
  EXPECT_EQ(status_of(run(make(NvmOpcode::flush, kNs512))), Status::namespace_is_write_protected);
  device.engine().faults().set({});
  EXPECT_EQ(status_of(run(write_of(data, 15))), Status::success);
}

TEST_F(FaultTest, ADelayIsPartOfTheTarget) {
  QueuePair& pair = queue();
  Buffer data = buffer(4096);
  inject("delay delay=2ms");
  for (const Sqe& sqe : {read_of(data), make(NvmOpcode::flush, kNs512), make(NvmOpcode::verify, kNs512, 0, 1)}) {
    EXPECT_TRUE(after(pair, sqe, 1'900'000).empty()) << int{sqe.opcode};
    device.pump_for(300'000);
    EXPECT_TRUE(pair.has_completion()) << int{sqe.opcode};
    pair.reap(1, [](const Cqe& cqe) { EXPECT_EQ(field_of(cqe), 0); });
  }
  EXPECT_EQ(injected(), 3u);
}

TEST_F(FaultTest, ReorderedCompletionsOvertakeEachOther) {
  QueuePair& pair = queue();
  Buffer data = buffer(4096);
  inject("reorder delay=1ms");
  for (std::uint16_t cid = 0; cid < 16; ++cid) {
    Sqe sqe = read_of(data);
    sqe.cid = cid;
    pair.submit() = sqe;
  }
  pair.ring_sq();
  const auto all = wait(pair, 16);
  ASSERT_EQ(all.size(), 16u);
  bool in_order = true;
  for (std::size_t i = 1; i < all.size(); ++i) in_order &= all[i - 1].cid < all[i].cid;
  EXPECT_FALSE(in_order);
}

TEST_F(FaultTest, ALostCompletionWasCarriedOutAndIsNotFoundByAnAbort) {
  QueuePair& pair = queue();
  Buffer data = buffer(4096);
  data.store(noise(512, 3));
  inject("lose times=1");
  EXPECT_TRUE(after(pair, write_of(data, 4), 10'000'000).empty());
  EXPECT_EQ(device.engine().outstanding(), 0u) << "the device has done with it";
  EXPECT_FALSE(driver().abort(pair.qid(), 7));
  data.fill(std::byte{0});
  EXPECT_EQ(after(pair, read_of(data, 4), 10'000'000, 8).size(), 1u);
  EXPECT_EQ(data.copy(512), noise(512, 3));
  inject("lose on=flush");
  EXPECT_TRUE(after(pair, make(NvmOpcode::flush, kNs512), 10'000'000, 9).empty());
  device.engine().faults().set({});
  EXPECT_EQ(after(reset(), read_of(data, 4), 1'000'000).size(), 1u) << "a reset gives everything back";
}

TEST_F(FaultTest, CorruptedDataDiffersInOneBit) {
  const auto bits_apart = [](std::span<const std::byte> a, std::span<const std::byte> b) {
    int count = 0;
    for (std::size_t i = 0; i < a.size(); ++i) count += std::popcount(static_cast<unsigned>(a[i] ^ b[i]));
    return count;
  };
  Buffer data = buffer(16384);
  const auto good = noise(8192, 4);
  data.store(good);
  ASSERT_EQ(status_of(run(write_of(data, 0, 16))), Status::success);
  inject("corrupt on=read times=1");
  EXPECT_EQ(status_of(run(read_of(data, 0, 16))), Status::success);
  EXPECT_EQ(bits_apart(data.copy(8192), good), 1);
  EXPECT_EQ(status_of(run(read_of(data, 0, 16))), Status::success);
  EXPECT_EQ(data.copy(8192), good) << "what is stored was not touched";
  inject("corrupt on=write");
  EXPECT_EQ(status_of(run(write_of(data, 0, 16))), Status::success);
  EXPECT_EQ(data.copy(8192), good) << "the host's memory was not touched";
  EXPECT_EQ(status_of(run(read_of(data, 0, 16))), Status::success);
  EXPECT_EQ(bits_apart(data.copy(8192), good), 1);
}

TEST_F(FaultTest, FusedCommandsAreLeftAlone) {
  QueuePair& pair = queue();
  Buffer data = buffer(4096);
  inject("error");
  Sqe compare = data.attach(make(NvmOpcode::compare, kNs512, 0, 1), 512);
  compare.flags |= nvme::kFlagFuseFirst;
  Sqe second = write_of(data);
  second.flags |= nvme::kFlagFuseSecond;
  compare.cid = 1;
  second.cid = 2;
  pair.submit() = compare;
  pair.submit() = second;
  pair.ring_sq();
  for (const Cqe& cqe : wait(pair, 2)) EXPECT_EQ(field_of(cqe), 0);
  EXPECT_EQ(injected(), 0u);
}

TEST_F(FaultTest, AdminCommands) {
  std::vector<std::byte> data(4096);
  Sqe identify_controller = make(AdminOpcode::identify);
  identify_controller.cdw10 = 1;
  inject("error on=identify");
  EXPECT_EQ(admin_read(identify_controller, data), Status::internal_error);
  inject("delay on=admin delay=3ms");
  const std::uint64_t start_ns = device.now_ns();
  EXPECT_EQ(admin_read(identify_controller, data), Status::success);
  EXPECT_GE(device.now_ns() - start_ns, 3'000'000u);
  EXPECT_LT(device.now_ns() - start_ns, 4'000'000u);
}

TEST_F(FaultTest, WithoutAConnectionToDropTheControllerFails) {
  QueuePair* pair = &queue();
  Buffer data = buffer(4096);
  for (const char* rule : {"fatal at=2", "drop at=2"}) {
    inject(rule);
    EXPECT_EQ(after(*pair, read_of(data), 1'000'000).size(), 1u) << rule;
    EXPECT_FALSE(csts().cfs);
    EXPECT_TRUE(after(*pair, read_of(data), 1'000'000, 8).empty()) << rule;
    EXPECT_TRUE(csts().cfs) << rule;
    device.engine().faults().set({});
    pair = &reset();
    EXPECT_FALSE(csts().cfs) << "a reset heals it";
    EXPECT_EQ(after(*pair, read_of(data), 1'000'000, 9).size(), 1u) << rule;
  }
}

TEST_F(ThreadedFaultTest, AWorkerShowsThemToo) {
  QueuePair& pair = queue();
  Buffer data = buffer(4096);
  data.store(noise(512, 5));
  inject("lose on=write times=1");
  EXPECT_TRUE(after(pair, write_of(data), 10'000'000).empty());
  EXPECT_EQ(after(pair, write_of(data), 10'000'000, 8).size(), 1u);
  inject("corrupt on=read");
  EXPECT_EQ(after(pair, read_of(data), 10'000'000, 9).size(), 1u);
  EXPECT_NE(data.copy(512), noise(512, 5));
  inject("delay delay=2ms");
  EXPECT_TRUE(after(pair, read_of(data), 1'900'000, 10).empty());
  device.pump_for(300'000);
  EXPECT_TRUE(pair.has_completion());
  EXPECT_EQ(device.engine().outstanding(), 0u);
}

}  // namespace
}  // namespace flashmob::conformance
