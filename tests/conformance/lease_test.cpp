// A part of a namespace that is lent as a drive of its own: its host reaches no byte beside it by any command, and asks
// for no more than its rate.
#include "conformance/device_fixture.h"
#include "nvme/dataset.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"

namespace flashmob::conformance {
namespace {

constexpr std::uint64_t kLeaseFirst = 1 << 20, kLeaseBytes = 1 << 20;
constexpr std::uint64_t kLeaseBlocks = kLeaseBytes / 512;
constexpr auto kLeaseCanary = std::byte{0xC5};

// A GPU's engine lends nothing.
DeviceConfig lending_device() {
  DeviceConfig config = suite::small_device();
  config.engine.kind = "host";
  return config;
}

class LeaseTest : public DeviceTest {
 protected:
  LeaseTest() : DeviceTest(lending_device()) {
    media::Media& all = *device.subsystem().info(kNs512).media;
    std::fill_n(all.base(), all.size_bytes(), kLeaseCanary);
  }
  void lend(const controller::HostRights& rights = {.access = controller::Access::io}) {
    device.lend(kNs512, kLeaseFirst, kLeaseBytes, rights).driver.enable();
  }
  // Of the lease's host.
  Status lessee(const Sqe& sqe) { return status_of(run(sqe, 1)); }
  Status admin_of_lessee(const Sqe& sqe) { return status_of(driver(1).admin(sqe, {}, false)); }
  Buffer lessee_buffer(std::size_t bytes) { return {host(1).door, bytes}; }
  std::byte* whole() { return device.subsystem().info(kNs512).media->base(); }
  // Bytes beside the lease that are no canaries any more.
  std::ptrdiff_t hurt() {
    const auto bad = [](std::byte byte) { return byte != kLeaseCanary; };
    return std::count_if(whole(), whole() + kLeaseFirst, bad) +
           std::count_if(whole() + kLeaseFirst + kLeaseBytes, whole() + kNsBytes, bad);
  }
};

TEST_F(LeaseTest, TheHostSeesOneNamespaceOfTheLeasesSize) {
  lend();
  nvme::IdentifyNamespace ns;
  driver(1).identify(0, 1, std::as_writable_bytes(std::span(&ns, 1)));
  EXPECT_EQ(ns.nsze, kLeaseBlocks);
  nvme::NamespaceList list;
  driver(1).identify(2, 0, std::as_writable_bytes(std::span(&list, 1)));
  EXPECT_EQ(list.nsid[0], 1u);
  EXPECT_EQ(list.nsid[1], 0u);
  nvme::IdentifyController lent, all;
  driver(1).identify(1, 0, std::as_writable_bytes(std::span(&lent, 1)));
  driver(0).identify(1, 0, std::as_writable_bytes(std::span(&all, 1)));
  EXPECT_NE(std::memcmp(lent.subnqn, all.subnqn, sizeof(all.subnqn)), 0);
  EXPECT_NE(std::memcmp(lent.sn, all.sn, sizeof(all.sn)), 0);
  EXPECT_EQ(lent.oacs & (nvme::kOacsFormatNvm | nvme::kOacsNamespaceManagement), 0);
}

TEST_F(LeaseTest, WritesLandInTheLeaseAndAreRead) {
  lend();
  Buffer data = lessee_buffer(4096);
  data.store(noise(4096, 1));
  for (const std::uint64_t lba : {std::uint64_t{0}, kLeaseBlocks - 8}) {
    EXPECT_EQ(lessee(data.attach(make(NvmOpcode::write, 1, lba, 8), 4096)), Status::success);
    EXPECT_EQ(std::memcmp(whole() + kLeaseFirst + lba * 512, data.data(), 4096), 0);
    Buffer back = lessee_buffer(4096);
    EXPECT_EQ(lessee(back.attach(make(NvmOpcode::read, 1, lba, 8), 4096)), Status::success);
    EXPECT_EQ(back.copy(4096), data.copy(4096));
    EXPECT_EQ(lessee(data.attach(make(NvmOpcode::compare, 1, lba, 8), 4096)), Status::success);
  }
  EXPECT_EQ(hurt(), 0);
}

TEST_F(LeaseTest, NoCommandCrossesTheBorder) {
  lend();
  constexpr std::uint64_t kAway = std::uint64_t{1} << 55;  // times 512 it is 2^64
  const std::uint64_t to_the_end = kNsBytes / 512;
  Buffer data = lessee_buffer(4096);
  data.fill(std::byte{0});
  for (const std::uint64_t lba : {kLeaseBlocks - 7, kLeaseBlocks, kLeaseBlocks + 1, to_the_end - 8, kAway,
                                  kAway - kLeaseFirst / 512, ~std::uint64_t{0} - 6}) {
    for (const NvmOpcode opcode : {NvmOpcode::read, NvmOpcode::write, NvmOpcode::compare})
      EXPECT_EQ(lessee(data.attach(make(opcode, 1, lba, 8), 4096)), Status::lba_out_of_range) << lba;
    for (const NvmOpcode opcode : {NvmOpcode::verify, NvmOpcode::write_zeroes, NvmOpcode::write_uncorrectable})
      EXPECT_EQ(lessee(make(opcode, 1, lba, 8)), Status::lba_out_of_range) << lba;

    Buffer ranges = lessee_buffer(4096);
    const nvme::DatasetRange trimmed{.context_attributes = 0, .nlb = 8, .slba = lba};
    ranges.store(std::as_bytes(std::span(&trimmed, 1)));
    Sqe trim = ranges.attach(make(NvmOpcode::dataset_management, 1), sizeof(trimmed));
    trim.cdw11 = 4;  // AD
    EXPECT_EQ(lessee(trim), Status::lba_out_of_range) << lba;

    nvme::CopySourceRange source{};
    source.slba = lba;
    source.nlb = 7;
    ranges.store(std::as_bytes(std::span(&source, 1)));
    EXPECT_EQ(lessee(ranges.attach(make(NvmOpcode::copy, 1), sizeof(source))), Status::lba_out_of_range) << lba;
    source.slba = 0;
    ranges.store(std::as_bytes(std::span(&source, 1)));
    Sqe to = ranges.attach(make(NvmOpcode::copy, 1), sizeof(source));
    to.cdw10 = static_cast<std::uint32_t>(lba);
    to.cdw11 = static_cast<std::uint32_t>(lba >> 32);
    EXPECT_EQ(lessee(to), Status::lba_out_of_range) << lba;
  }
  EXPECT_EQ(hurt(), 0);
  EXPECT_TRUE(std::all_of(whole() + kLeaseFirst, whole() + kLeaseFirst + kLeaseBytes,
                          [](std::byte b) { return b == kLeaseCanary; }));
}

TEST_F(LeaseTest, WhatFillsOrEmptiesAllOfItLeavesTheRestAlone) {
  lend();
  EXPECT_EQ(lessee(make(NvmOpcode::write_zeroes, 1, 0, kLeaseBlocks)), Status::success);
  EXPECT_EQ(hurt(), 0);
  Buffer ranges = lessee_buffer(4096);
  const nvme::DatasetRange all{.context_attributes = 0, .nlb = kLeaseBlocks, .slba = 0};
  ranges.store(std::as_bytes(std::span(&all, 1)));
  Sqe trim = ranges.attach(make(NvmOpcode::dataset_management, 1), sizeof(all));
  trim.cdw11 = 4;
  EXPECT_EQ(lessee(trim), Status::success);
  EXPECT_EQ(lessee(make(NvmOpcode::flush, nvme::kNsidBroadcast)), Status::success);
  EXPECT_EQ(hurt(), 0);
}

TEST_F(LeaseTest, TwoLesseesSeeNothingOfEachOther) {
  lend();
  device.lend(kNs512, kLeaseFirst + kLeaseBytes, kLeaseBytes).driver.enable();
  for (const unsigned who : {1u, 2u}) {
    Buffer data{host(who).door, 64 << 10};
    data.fill(static_cast<std::byte>(who));
    for (std::uint64_t lba = 0; lba < kLeaseBlocks; lba += 128)
      ASSERT_EQ(status_of(run(data.attach(make(NvmOpcode::write, 1, lba, 128), 64 << 10), who)), Status::success);
  }
  for (const unsigned who : {1u, 2u}) {
    Buffer back{host(who).door, 64 << 10};
    for (std::uint64_t lba = 0; lba < kLeaseBlocks; lba += 128) {
      ASSERT_EQ(status_of(run(back.attach(make(NvmOpcode::read, 1, lba, 128), 64 << 10), who)), Status::success);
      const auto bytes = back.copy(64 << 10);
      EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == std::byte(who); }));
    }
  }
  EXPECT_TRUE(std::all_of(whole(), whole() + kLeaseFirst, [](std::byte b) { return b == kLeaseCanary; }));
  nvme::ControllerList list;
  EXPECT_THROW(driver(1).identify(0x13, 0, std::as_writable_bytes(std::span(&list, 1))), std::exception)
      << "it tells of other hosts";
}

TEST_F(LeaseTest, WhatIsTheDrivesCannotBeSent) {
  lend();
  for (const AdminOpcode opcode :
       {AdminOpcode::format_nvm, AdminOpcode::namespace_management, AdminOpcode::namespace_attachment})
    EXPECT_EQ(admin_of_lessee(make(opcode, 1)), Status::invalid_opcode);
  Sqe save = make(AdminOpcode::set_features);
  save.cdw10 = 0x80000006;  // SV, volatile write cache
  EXPECT_EQ(admin_of_lessee(save), Status::feature_not_saveable);
  Sqe protect = make(AdminOpcode::set_features, 1);
  protect.cdw10 = 0x84;
  protect.cdw11 = 1;
  EXPECT_EQ(admin_of_lessee(protect), Status::invalid_field);
}

TEST_F(LeaseTest, OneToReadTakesNoWrites) {
  lend({.access = controller::Access::read_only});
  Buffer data = lessee_buffer(4096);
  EXPECT_EQ(lessee(data.attach(make(NvmOpcode::read, 1, 0, 8), 4096)), Status::success);
  EXPECT_EQ(data.copy(1)[0], kLeaseCanary);
  EXPECT_EQ(lessee(data.attach(make(NvmOpcode::write, 1, 0, 8), 4096)), Status::namespace_is_write_protected);
  EXPECT_EQ(lessee(make(NvmOpcode::write_zeroes, 1, 0, 8)), Status::namespace_is_write_protected);
}

TEST_F(LeaseTest, MarksOfWriteUncorrectableAreTheWholes) {
  EXPECT_EQ(io(make(NvmOpcode::write_uncorrectable, kNs512, kLeaseFirst / 512 - 1, 3)), Status::success);
  lend();
  {
    Buffer data = lessee_buffer(4096);
    EXPECT_EQ(lessee(data.attach(make(NvmOpcode::read, 1, 1, 1), 512)), Status::unrecovered_read_error);
    EXPECT_EQ(lessee(data.attach(make(NvmOpcode::read, 1, 2, 1), 512)), Status::success);
    EXPECT_EQ(lessee(data.attach(make(NvmOpcode::write, 1, 1, 1), 512)), Status::success);
    EXPECT_EQ(lessee(make(NvmOpcode::write_uncorrectable, 1, 10, 1)), Status::success);
  }
  device.end_leases();
  const auto& marks = device.subsystem().info(kNs512).current->uncorrectable;
  EXPECT_TRUE(marks.intersects(kLeaseFirst / 512 - 1, 1)) << "outside";
  EXPECT_TRUE(marks.intersects(kLeaseFirst / 512, 1)) << "not written since";
  EXPECT_FALSE(marks.intersects(kLeaseFirst / 512 + 1, 1)) << "written by the lessee";
  EXPECT_TRUE(marks.intersects(kLeaseFirst / 512 + 10, 1)) << "marked by the lessee";
}

TEST_F(LeaseTest, WindowsThatCannotBe) {
  for (const auto& [nsid, first, bytes] :
       std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>>{{0, 0, kLeaseBytes},
                                                                            {3, 0, kLeaseBytes},
                                                                            {257, 0, kLeaseBytes},
                                                                            {~0u, 0, kLeaseBytes},
                                                                            {1, 0, 0},
                                                                            {1, 100, kLeaseBytes},
                                                                            {1, 0, kLeaseBytes + 100},
                                                                            {1, kNsBytes, kLeaseBytes},
                                                                            {1, kNsBytes - 4096, 8192},
                                                                            {1, ~std::uint64_t{0} - 4095, 8192},
                                                                            {2, 512, 4096}})
    EXPECT_THROW(device.lend(nsid, first, bytes), ConfigError) << nsid << " " << first << " " << bytes;
}

// The whole's monitor counts what lessees do.
TEST_F(LeaseTest, TheDriveKnowsItsLessees) {
  lend();
  {
    Buffer data = lessee_buffer(4096);
    EXPECT_EQ(lessee(data.attach(make(NvmOpcode::write, 1, 0, 8), 4096)), Status::success);
  }
  {
    const std::lock_guard lock(device.subsystem().mutex());
    EXPECT_EQ(device.subsystem().served().size(), 2u);
    EXPECT_EQ(device.subsystem().controllers().size(), 1u);
    EXPECT_EQ(device.subsystem().controllers_added(), 2u);
  }
  device.end_leases();
  const std::lock_guard lock(device.subsystem().mutex());
  EXPECT_EQ(device.subsystem().served().size(), 1u);
  EXPECT_EQ(device.subsystem().removed_counters().written_bytes, 4096u);
}

// Reads of one queue that is always full, in a tenth of a virtual second. Another host's go on meanwhile.
class LeaseRateTest : public LeaseTest {
 protected:
  static constexpr std::uint64_t kSpanNs = 100'000'000;

  // With `lonely`, each fourth of them says that it is the first half of a fused pair.
  std::uint64_t reads_of(unsigned who, std::uint32_t blocks, bool lonely = false) {
    Buffer data{host(who).door, std::size_t{blocks} * 512};
    QueuePair& pair = queue(who);
    std::uint64_t done = 0, under_way = 0, sent = 0;
    const std::uint64_t until_ns = device.now_ns() + kSpanNs;
    while (device.now_ns() < until_ns) {
      for (; under_way < 32; ++under_way) {
        Sqe& sqe = pair.submit();
        sqe = data.attach(make(NvmOpcode::read, who == 0 ? kNs512 : 1, 0, blocks), std::size_t{blocks} * 512);
        if (lonely && ++sent % 4 == 0) sqe.flags |= nvme::kFlagFuseFirst;
      }
      pair.ring_sq();
      device.pump();
      pair.reap(32, [&](const Cqe& entry) {
        EXPECT_TRUE(lonely || status_of(entry) == Status::success);
        --under_way;
        ++done;
      });
      pair.ring_cq();
    }
    device.pump_until([&] {
      pair.reap(32, [&](const Cqe&) { --under_way; });
      pair.ring_cq();
      return under_way == 0;
    });
    EXPECT_EQ(under_way, 0u) << "the last ones come, too";
    return done;
  }
};

TEST_F(LeaseRateTest, CommandsKeepToTheirRate) {
  lend({.access = controller::Access::io, .max_commands_per_s = 20'000});
  const std::uint64_t done = reads_of(1, 1);
  EXPECT_LE(done, 20'000u * (kSpanNs + RateGate::kBurstNs) / 1'000'000'000 + 1);
  EXPECT_GE(done, 1'900u);
  EXPECT_GE(reads_of(0, 1), 100'000u) << "whoever has none is held by the model alone";
}

// The engine waits for nothing where it has fetched the first of two.
TEST_F(LeaseRateTest, HalvesOfFusedPairsDoNotOpenTheGate) {
  lend({.access = controller::Access::io, .max_commands_per_s = 20'000});
  EXPECT_LE(reads_of(1, 1, true), 20'000u * (kSpanNs + RateGate::kBurstNs) / 1'000'000'000 + 64);
}

TEST_F(LeaseRateTest, BytesKeepToTheirRate) {
  lend({.access = controller::Access::io, .max_bytes_per_s = 100 << 20});
  const std::uint64_t done = reads_of(1, 128);
  const std::uint64_t most = (100 << 20) / 10 + (100 << 20) / 500 + RateGate::kWhilePaying * 65536;
  EXPECT_LE(done * 65536, most);
  EXPECT_GE(done * 65536, (100u << 20) / 10 * 95 / 100);
}

// Commands that move bytes without a host's buffer count as well.
TEST_F(LeaseRateTest, NoCommandGoesPastTheRateOfBytes) {
  lend({.access = controller::Access::io, .max_bytes_per_s = 10 << 20});
  const std::uint64_t from_ns = device.now_ns();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(lessee(make(NvmOpcode::write_zeroes, 1, 0, kLeaseBlocks)), Status::success);
  const std::uint64_t zeroed_ns = device.now_ns();
  EXPECT_GE(zeroed_ns - from_ns, 850'000'000u) << "10 MiB at 10 MiB/s, but for the last one";
  for (int i = 0; i < 10; ++i) EXPECT_EQ(lessee(make(NvmOpcode::verify, 1, 0, kLeaseBlocks)), Status::success);
  EXPECT_GE(device.now_ns() - zeroed_ns, 850'000'000u);
}

}  // namespace
}  // namespace flashmob::conformance
