// A disk that takes its time: only those wait for it who have asked it for something.
#include <sys/syscall.h>

#include <thread>

#include "engine/sync_thread.h"
#include "transport/vfio_user/slow_disk_test_support.h"

extern "C" int msync(void* start, std::size_t bytes, int flags) noexcept(false) {
  flashmob::transport::gate.pass();
  return static_cast<int>(::syscall(SYS_msync, start, bytes, flags));
}
extern "C" int fdatasync(int fd) {
  flashmob::transport::gate.pass();
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}
extern "C" int fsync(int fd) {
  flashmob::transport::saves.pass();
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace flashmob::transport {
namespace {

TEST_P(SlowDisk, OtherQueuesDoNotWait) {
  nvme::Sqe everywhere = TestHost::io(NvmOpcode::flush, 0, 0);
  everywhere.nsid = 0xFFFFFFFF;
  for (const nvme::Sqe& waits :
       {TestHost::io(NvmOpcode::flush, 0, 0), everywhere, with_fua(NvmOpcode::write, 1), with_fua(NvmOpcode::read, 1),
        with_fua(NvmOpcode::write_zeroes, 1), with_fua(NvmOpcode::compare, 1), with_fua(NvmOpcode::verify, 1),
        with_fua(NvmOpcode::copy, 1)}) {
    gate.shut();
    host.submit(first, waits);
    ASSERT_TRUE(gate.wait_for_one());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(host.run(second, TestHost::io(NvmOpcode::write, 0, kData)), 0u);
    EXPECT_FALSE(TestHost::wait_for_entry(first, 0, 20)) << "it is not durable yet";
    gate.let_go();
    EXPECT_EQ(host.complete(first), 0u) << int{waits.opcode};
  }
}

TEST_P(SlowDisk, AnotherHostsShutdownIsNotWaitedFor) {
  TestHost other(device.path);
  other.start();
  gate.shut();
  other.write<std::uint32_t>(vfio::kRegionBar0, nvme::kRegCc,
                             nvme::encode_cc({.en = true, .shn = nvme::kCcShnNormal, .iosqes = 6, .iocqes = 4}));
  ASSERT_TRUE(gate.wait_for_one());
  EXPECT_EQ(host.run(first, TestHost::io(NvmOpcode::write, 0, kData)), 0u);
  nvme::Sqe feature{};
  feature.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::get_features);
  feature.cdw10 = static_cast<std::uint32_t>(nvme::Feature::arbitration);
  EXPECT_EQ(host.admin(feature), 0u);
  constexpr std::uint32_t kShutdown = nvme::encode_csts({.shst = 3});
  EXPECT_EQ(other.reg(nvme::kRegCsts) & kShutdown, nvme::encode_csts({.shst = nvme::kCstsShstOccurring}));
  gate.let_go();
  EXPECT_TRUE(other.wait_for_csts(kShutdown, nvme::encode_csts({.shst = nvme::kCstsShstComplete})));
}

// However often one host asks for what a disk has to do, another's shutdown comes after one of its pieces.
TEST_P(SlowDisk, AHostThatAsksWithoutEndIsOneAmongOthers) {
  TestHost other(device.path);
  other.start();
  const auto shut_down = [](TestHost& from, bool enabled, std::uint8_t how) {
    from.write<std::uint32_t>(vfio::kRegionBar0, nvme::kRegCc,
                              nvme::encode_cc({.en = enabled, .shn = how, .iosqes = 6, .iocqes = 4}));
  };
  shut_down(host, false, nvme::kCcShnNone);
  ASSERT_TRUE(host.wait_for_csts(1, 0));
  gate.shut();
  const int before = gate.passed;
  constexpr std::uint32_t kShutdown = nvme::encode_csts({.shst = 3});
  for (int i = 0; i < 50; ++i) {
    shut_down(host, false, nvme::kCcShnNormal);
    ASSERT_TRUE(host.wait_for_csts(kShutdown, nvme::encode_csts({.shst = nvme::kCstsShstOccurring})));
    ASSERT_TRUE(gate.wait_for_one()) << "the first is at the disk, and stays there";
    shut_down(host, false, nvme::kCcShnNone);
    ASSERT_TRUE(host.enable());
    shut_down(host, false, nvme::kCcShnNone);
    ASSERT_TRUE(host.wait_for_csts(1, 0));
  }
  shut_down(other, true, nvme::kCcShnNormal);
  gate.let_go();
  EXPECT_TRUE(other.wait_for_csts(kShutdown, nvme::encode_csts({.shst = nvme::kCstsShstComplete})));
  EXPECT_LE(gate.passed - before, 4);
}

// Each of them waits for the disk, and all of them for one write.
TEST_P(SlowDisk, AShutdownWaitsForOneWriteOfAllWhoSaveFeatures) {
  std::vector<std::unique_ptr<TestHost>> others;
  for (int i = 0; i < 6; ++i) others.emplace_back(std::make_unique<TestHost>(device.path))->start();
  saves.shut();
  const int before = saves.passed;
  for (std::size_t i = 0; i < others.size(); ++i) {
    nvme::Sqe feature{};
    feature.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::set_features);
    feature.cdw10 = static_cast<std::uint32_t>(nvme::Feature::arbitration) | nvme::kFeatureSave;
    feature.cdw11 = static_cast<std::uint32_t>(i % 8);
    others[i]->submit_together({feature});
    ASSERT_TRUE(saves.wait_for_one());
    feature.cdw10 &= ~nvme::kFeatureSave;
    for (int look = 0; look < 2; ++look) ASSERT_EQ(host.admin(feature), 0u) << "it has been seen";
  }
  host.write<std::uint32_t>(vfio::kRegionBar0, nvme::kRegCc,
                            nvme::encode_cc({.en = true, .shn = nvme::kCcShnNormal, .iosqes = 6, .iocqes = 4}));
  constexpr std::uint32_t kShutdown = nvme::encode_csts({.shst = 3});
  EXPECT_TRUE(host.wait_for_csts(kShutdown, nvme::encode_csts({.shst = nvme::kCstsShstOccurring})));
  saves.let_go();
  EXPECT_TRUE(host.wait_for_csts(kShutdown, nvme::encode_csts({.shst = nvme::kCstsShstComplete})));
  EXPECT_LE(saves.passed - before, 4) << "a file and its folder, of the one that was there and of all others";
  for (const auto& other : others) EXPECT_EQ(other->complete_admin(), 0u);
}

TEST_P(SlowDisk, AHostThatGoesDoesNotWaitForItsShutdown) {
  {
    TestHost other(device.path);
    other.start();
    gate.shut();
    other.write<std::uint32_t>(vfio::kRegionBar0, nvme::kRegCc,
                               nvme::encode_cc({.en = true, .shn = nvme::kCcShnNormal, .iosqes = 6, .iocqes = 4}));
    ASSERT_TRUE(gate.wait_for_one());
  }
  EXPECT_TRUE(device.wait_for_controllers(1));
  nvme::Sqe remove{};
  remove.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::namespace_management);
  remove.nsid = 1;
  remove.cdw10 = nvme::kNamespaceDelete;
  host.submit_together({remove});
  gate.let_go();
  EXPECT_EQ(host.complete_admin(), 0u) << "its media stays for as long as the disk has it";
}

TEST_P(SlowDisk, ACacheThatIsSwitchedOffIsWaitedForAlone) {
  nvme::Sqe off{};
  off.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::set_features);
  off.cdw10 = static_cast<std::uint32_t>(nvme::Feature::volatile_write_cache) | nvme::kFeatureSave;
  gate.shut();
  host.submit_together({off});
  ASSERT_TRUE(gate.wait_for_one());
  EXPECT_EQ(host.run(first, TestHost::io(NvmOpcode::read, 0, kData)), 0u);
  gate.let_go();
  EXPECT_EQ(host.complete_admin(), 0u);
  EXPECT_EQ(device.subsystem.saved_features().size(), 1u);
}

TEST_P(SlowDisk, OneFlushServesAllThatWait) {
  gate.shut();
  const int before = gate.passed;
  host.submit(first, TestHost::io(NvmOpcode::flush, 0, 0));
  ASSERT_TRUE(gate.wait_for_one());
  for (std::uint16_t cid = 0; cid < 10; ++cid) host.submit(second, TestHost::io(NvmOpcode::flush, 0, 0, 1, cid));
  EXPECT_EQ(host.run(second, TestHost::io(NvmOpcode::read, 0, kData, 1, 7)), 0u) << "all have been seen";
  gate.let_go();
  EXPECT_EQ(host.complete(first), 0u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(host.complete(second), 0u);
  EXPECT_LE(gate.passed - before, 4);
}

// A fused pair whose Write must be durable; both halves are answered, in order.
TEST_P(SlowDisk, AFusedPairWaitsAlone) {
  nvme::Sqe compare = TestHost::io(NvmOpcode::compare, 8, kData, 8, 1);
  nvme::Sqe write = with_fua(NvmOpcode::write, 2);
  compare.flags = nvme::kFlagFuseFirst;
  write.flags = nvme::kFlagFuseSecond;
  gate.shut();
  first.sq[first.tail++] = compare;
  host.submit(first, write);
  ASSERT_TRUE(gate.wait_for_one());
  EXPECT_EQ(host.run(second, TestHost::io(NvmOpcode::write, 0, kData)), 0u);
  gate.let_go();
  EXPECT_EQ(host.complete(first), 0u);
  EXPECT_EQ(host.complete(first), 0u);
  EXPECT_EQ(first.cq[0].cid, 1);
  EXPECT_EQ(first.cq[1].cid, 2);
}

TEST_P(SlowDisk, WithoutAWriteCacheEveryWriteWaitsForTheDisk) {
  nvme::Sqe off{};
  off.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::set_features);
  off.cdw10 = static_cast<std::uint32_t>(nvme::Feature::volatile_write_cache);
  ASSERT_EQ(host.admin(off), 0u);
  for (const NvmOpcode opcode : {NvmOpcode::write, NvmOpcode::write_zeroes, NvmOpcode::copy}) {
    gate.shut();
    host.submit(first, TestHost::io(opcode, 8, kData, 8));
    EXPECT_TRUE(gate.wait_for_one()) << static_cast<int>(opcode);
    gate.let_go();
    EXPECT_EQ(host.complete(first), 0u);
  }
}

// However many one host has waiting, another's Flush comes after one of the disk's.
TEST_P(SlowDisk, ManyThatWaitAreServedTogether) {
  TestQueue many = host.create_queue(3, 64);
  gate.shut();
  const int before = gate.passed;
  host.submit(first, with_fua(NvmOpcode::write, 1));
  ASSERT_TRUE(gate.wait_for_one());
  for (std::uint16_t cid = 0; cid < 60; ++cid) host.submit(many, with_fua(NvmOpcode::write, cid));
  host.submit(second, TestHost::io(NvmOpcode::flush, 0, 0));
  EXPECT_EQ(host.run(many, TestHost::io(NvmOpcode::read, 0, kData, 1, 77)), 0u) << "all of the queue have been seen";
  EXPECT_EQ(host.run(second, TestHost::io(NvmOpcode::read, 0, kData, 1, 7)), 0u) << "all have been seen";
  gate.let_go();
  EXPECT_EQ(host.complete(first), 0u);
  for (int i = 0; i < 60; ++i) EXPECT_EQ(host.complete(many), 0u);
  EXPECT_EQ(host.complete(second), 0u);
  EXPECT_LE(gate.passed - before, 2 + static_cast<int>(engine::SyncThread::kFewSyncs));
}

TEST_P(SlowDisk, StoppingWaitsForFewOfThem) {
  TestQueue many = host.create_queue(3, 64);
  gate.shut();
  const int before = gate.passed;
  host.submit(first, with_fua(NvmOpcode::write, 1));
  ASSERT_TRUE(gate.wait_for_one());
  for (std::uint16_t cid = 0; cid < 60; ++cid) host.submit(many, with_fua(NvmOpcode::write, cid));
  EXPECT_EQ(host.run(many, TestHost::io(NvmOpcode::read, 0, kData, 1, 7)), 0u) << "all have been seen";
  std::thread stops([this] {
    device.server.reset();
    device.engine.stop();
  });
  gate.let_go();
  stops.join();
  EXPECT_LE(gate.passed - before, 2 + static_cast<int>(engine::SyncThread::kFewSyncs));
}

TEST_P(SlowDisk, ADeletedQueueTakesNothingWithIt) {
  gate.shut();
  host.submit(first, with_fua(NvmOpcode::write, 1));
  ASSERT_TRUE(gate.wait_for_one());
  host.submit(second, with_fua(NvmOpcode::read, 1));
  host.submit(second, TestHost::io(NvmOpcode::flush, 0, 0, 1, 2));
  nvme::Sqe remove{};
  for (const auto opcode : {nvme::AdminOpcode::delete_io_sq, nvme::AdminOpcode::delete_io_cq}) {
    for (const TestQueue* const queue : {&first, &second}) {
      remove.opcode = static_cast<std::uint8_t>(opcode);
      remove.cdw10 = queue->qid;
      EXPECT_EQ(host.admin(remove), 0u);
    }
  }
  TestQueue again = host.create_queue(1);
  EXPECT_EQ(host.run(again, TestHost::io(NvmOpcode::read, 0, kData)), 0u);
  gate.let_go();
  EXPECT_EQ(host.run(again, TestHost::io(NvmOpcode::flush, 0, 0)), 0u);
  expect_no_slots();
}

// A Format waits for the disk beside the queues; what waited before it has ended by then, and none of it reads or
// writes what the namespace becomes.
TEST_P(SlowDisk, AFormatEndsWhatWaits) {
  TestQueue third = host.create_queue(3);
  gate.shut();
  host.submit(first, with_fua(NvmOpcode::write, 1));
  ASSERT_TRUE(gate.wait_for_one());
  host.submit(second, with_fua(NvmOpcode::read, 1));
  host.submit(second, with_fua(NvmOpcode::write_zeroes, 2));
  host.submit(second, TestHost::io(NvmOpcode::flush, 0, 0, 1, 3));
  EXPECT_EQ(host.run(second, TestHost::io(NvmOpcode::read, 0, kData, 1, 7)), 0u) << "all have been seen";
  nvme::Sqe format{};
  format.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::format_nvm);
  format.nsid = 1;
  format.cdw10 = 1;
  host.submit_together({format});
  wait_for_format(third);
  gate.let_go();
  EXPECT_EQ(host.complete_admin(), 0u);
  EXPECT_EQ(host.complete(first) & 0x7FF, kFormatInProgress);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(host.complete(second) & 0x7FF, kFormatInProgress);
  EXPECT_EQ(host.run(first, TestHost::io(NvmOpcode::read, 0, kData)), 0u);
  expect_no_slots();
}

// Of what a host changes about one namespace, others notice nothing at another.
TEST_P(SlowDisk, ChangesOfNamespacesAreWaitedForAlone) {
  DeviceConfig config = on_file(path + ".1", GetParam());
  config.subsystem.namespaces.push_back(config.subsystem.namespaces[0]);
  config.subsystem.namespaces[1].media = "file:" + path + ".2";
  TestDevice two(config);
  TestHost other(two.path), victim(two.path);
  other.start();
  TestQueue queue = victim.start();
  const auto command = [](nvme::AdminOpcode opcode, std::uint32_t cdw10, std::uint32_t cdw11 = 0) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = 2;
    sqe.cdw10 = cdw10;
    sqe.cdw11 = cdw11;
    return sqe;
  };
  using nvme::AdminOpcode;
  constexpr auto kProtection = static_cast<std::uint32_t>(nvme::Feature::namespace_write_protection);
  for (const nvme::Sqe& change :
       {command(AdminOpcode::format_nvm, 1), command(AdminOpcode::set_features, kProtection, 1),
        command(AdminOpcode::set_features, kProtection, 0),
        command(AdminOpcode::namespace_management, nvme::kNamespaceDelete)}) {
    SCOPED_TRACE(int{change.opcode});
    saves.shut();
    other.submit_together({change});
    ASSERT_TRUE(saves.wait_for_one());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(victim.run(queue, TestHost::io(NvmOpcode::write, 0, kData)), 0u);
    nvme::Sqe feature{};
    feature.opcode = static_cast<std::uint8_t>(AdminOpcode::get_features);
    feature.cdw10 = static_cast<std::uint32_t>(nvme::Feature::arbitration);
    EXPECT_EQ(victim.admin(feature), 0u);
    saves.let_go();
    EXPECT_EQ(other.complete_admin(), 0u);
  }
  for (const char* const end : {".1", ".2"})
    for (const char* const of : {"", ".flashmob", ".flashmob-redo"}) std::filesystem::remove(path + end + of);
}

TEST_P(SlowDisk, ADeletedNamespaceStaysUntilTheDiskIsDoneWithIt) {
  gate.shut();
  host.submit(first, with_fua(NvmOpcode::write, 1));
  ASSERT_TRUE(gate.wait_for_one());
  host.submit(second, TestHost::io(NvmOpcode::flush, 0, 0, 1, 3));
  EXPECT_EQ(host.run(second, TestHost::io(NvmOpcode::read, 0, kData, 1, 7)), 0u) << "all have been seen";
  nvme::Sqe remove{};
  remove.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::namespace_management);
  remove.nsid = 1;
  remove.cdw10 = nvme::kNamespaceDelete;
  host.submit_together({remove});
  gate.let_go();
  EXPECT_EQ(host.complete_admin(), 0u);
  // Done before, or ended by Invalid Field: there is no such namespace.
  for (TestQueue* const queue : {&first, &second}) EXPECT_EQ(host.complete(*queue) & 0x7FD, 0u);
  EXPECT_EQ(host.run(first, TestHost::io(NvmOpcode::read, 0, kData)) & 0x7FF, 0x002);
  expect_no_slots();
}

TEST_P(SlowDisk, WhatWaitsCanBeAborted) {
  for (const nvme::Sqe& waits : {TestHost::io(NvmOpcode::flush, 0, 0, 1, 5), with_fua(NvmOpcode::write, 5)}) {
    gate.shut();
    host.submit(first, waits);
    ASSERT_TRUE(gate.wait_for_one());
    nvme::Sqe abort{};
    abort.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::abort);
    abort.cdw10 = 5u << 16 | first.qid;
    EXPECT_EQ(host.admin(abort), 0u);
    EXPECT_EQ(host.complete(first) & 0x07FF, 0x0007) << "Command Abort Requested";
    gate.let_go();
    EXPECT_EQ(host.run(first, TestHost::io(NvmOpcode::flush, 0, 0)), 0u);
  }
}

TEST_P(SlowDisk, AResetDoesNotWaitAndLosesNothing) {
  gate.shut();
  host.submit(first, TestHost::io(NvmOpcode::flush, 0, 0, 1, 5));
  ASSERT_TRUE(gate.wait_for_one());
  host.submit(second, with_fua(NvmOpcode::write, 6));
  EXPECT_EQ(host.write<std::uint32_t>(vfio::kRegionBar0, nvme::kRegCc, 0), 0u);
  EXPECT_TRUE(host.wait_for_csts(1, 0));
  ASSERT_TRUE(host.enable());
  TestQueue queue = host.create_queue(1);
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::read, 0, kData)), 0u);
  gate.let_go();
  EXPECT_EQ(host.run(queue, TestHost::io(NvmOpcode::flush, 0, 0)), 0u);
  expect_no_slots();
}

INSTANTIATE_TEST_SUITE_P(Threads, SlowDisk, testing::Values(0u, 1u),
                         [](const auto& with) { return with.param == 0 ? "OfTheDispatcher" : "OfAWorker"; });

}  // namespace
}  // namespace flashmob::transport
