// Reads, writes and appends of zoned namespaces (Zoned Namespace Command Set 1.1, 2.1.1, 3.3 and 3.4.1).
#include <bit>

#include "conformance/zns_fixture.h"

namespace flashmob::conformance {
namespace {

TEST_F(ZnsTest, WritesFollowTheWritePointer) {
  ASSERT_EQ(write(start(2), 3), Status::success);
  EXPECT_EQ(state(2), ZoneState::implicitly_opened);
  EXPECT_EQ(zone(2).wp, start(2) + 3);
  EXPECT_EQ(write(start(2), 1), Status::zone_invalid_write);
  EXPECT_EQ(write(start(2) + 4, 1), Status::zone_invalid_write);
  ASSERT_EQ(write(start(2) + 3, 1, kNsZoned, 7), Status::success);
  EXPECT_EQ(read_data(start(2) + 3, 1), std::pair(Status::success, noise(4096, 7)));
}

TEST_F(ZnsTest, AWriteEndsWithTheZonesCapacity) {
  ASSERT_EQ(write(start(1), kZoneCapacity - 1), Status::success);
  EXPECT_EQ(write(start(1) + kZoneCapacity - 1, 2), Status::zone_boundary_error);
  ASSERT_EQ(write(start(1) + kZoneCapacity - 1, 1), Status::success);
  EXPECT_EQ(state(1), ZoneState::full);
  EXPECT_EQ(zone(1).wp, nvme::kNoWritePointer);
  EXPECT_EQ(write(start(1) + kZoneCapacity, 1), Status::zone_is_full);
  EXPECT_EQ(write(start(kZones), 1), Status::lba_out_of_range);
}

TEST_F(ZnsTest, AppendsSayWhereTheDataWent) {
  for (std::uint32_t i = 0; i < 4; ++i) {
    const Cqe cqe = append(start(3), 2, i);
    ASSERT_EQ(status_of(cqe), Status::success);
    EXPECT_EQ(lba_of(cqe), start(3) + 2 * i);
  }
  for (std::uint32_t i = 0; i < 4; ++i)
    EXPECT_EQ(read_data(start(3) + 2 * i, 2), std::pair(Status::success, noise(8192, i)));
  EXPECT_EQ(status_of(append(start(3) + 8, 1)), Status::invalid_field) << "a zone is named by its first block";
  EXPECT_EQ(status_of(append(start(3), 5)), Status::zone_boundary_error);
  ASSERT_EQ(status_of(append(start(3), 4)), Status::success);
  EXPECT_EQ(status_of(append(start(3), 1)), Status::zone_is_full);
}

// Where all of a zone may be written, its write pointer ends at the next zone, or at the namespace's end.
TEST_F(ZnsTest, AppendsToAFullZoneGoNowhereElse) {
  Buffer data = buffer(512);
  data.store(noise(512, 9));
  for (const std::uint32_t zone : {1u, kStrictZones - 1}) {
    for (std::uint32_t at = 0; at < kStrictZoneBlocks; at += 64)
      ASSERT_EQ(write(strict_start(zone) + at, 64, kNsStrict), Status::success);
    const Sqe sqe = append_command(strict_start(zone), 1, kNsStrict);
    EXPECT_EQ(status_of(run(data.attach(sqe, 512))), Status::zone_is_full) << zone;
  }
  EXPECT_EQ(state(2, kNsStrict), ZoneState::empty);
  EXPECT_EQ(read_data(strict_start(2), 1, kNsStrict).second, std::vector<std::byte>(512));
}

TEST_F(ZnsTest, AppendsAreLimited) {
  ASSERT_EQ(status_of(append(start(0), 8)), Status::success);
  EXPECT_EQ(status_of(append(start(1), 9)), Status::invalid_field) << "ZASL is 32 KiB";
  EXPECT_EQ(state(1), ZoneState::empty);
}

// Dword 1 of the completion: blocks beyond 2^32 are of zones beyond 16 TiB.
class FarZonesTest : public ZnsTest {
 protected:
  static constexpr std::uint64_t kFarZone = (std::uint64_t{1} << 32) * 4096;
  FarZonesTest()
      : ZnsTest(zoned_device([](DeviceConfig& config) {
          config.subsystem.namespaces[1].size_bytes = 2 * kFarZone;
          config.subsystem.namespaces[1].zoned.zone_bytes = kFarZone;
          config.subsystem.namespaces[1].zoned.zone_capacity_bytes = 64 << 10;
        })) {}
};

TEST_F(FarZonesTest, ResultsHave64Bits) {
  ASSERT_EQ(status_of(append(std::uint64_t{1} << 32, 3)), Status::success);
  const Cqe cqe = append(std::uint64_t{1} << 32, 1);
  EXPECT_EQ(cqe.dw0, 3u);
  EXPECT_EQ(cqe.dw1, 1u);
}

TEST_F(ZnsTest, WritesWithBadMemoryMoveNoWritePointer) {
  Sqe sqe = make(NvmOpcode::write, kNsZoned, start(4), 1);
  sqe.prp1 = std::uint64_t{1} << 50;
  EXPECT_EQ(io(sqe), Status::data_transfer_error);
  EXPECT_EQ(state(4), ZoneState::empty);
}

TEST_F(ZnsTest, OtherCommandsThatWriteFollowTheWritePointerToo) {
  EXPECT_EQ(io(make(NvmOpcode::write_zeroes, kNsZoned, start(1) + 1, 1)), Status::zone_invalid_write);
  ASSERT_EQ(io(make(NvmOpcode::write_zeroes, kNsZoned, start(1), 2)), Status::success);
  EXPECT_EQ(zone(1).wp, start(1) + 2);
  EXPECT_EQ(io(make(NvmOpcode::write_uncorrectable, kNsZoned, start(1), 1)), Status::zone_invalid_write);
  ASSERT_EQ(io(make(NvmOpcode::write_uncorrectable, kNsZoned, start(1) + 2, 1)), Status::success);
  EXPECT_EQ(read(start(1), 2), Status::success);
  EXPECT_EQ(read(start(1) + 2, 1), Status::unrecovered_read_error);
  ASSERT_EQ(send(ZoneSendAction::reset, start(1)), Status::success);
  EXPECT_EQ(read(start(1) + 2, 1), Status::success) << "a reset leaves nothing of what the zone held";
}

TEST_F(ZnsTest, UnwrittenBlocksReadAsZeroes) {
  ASSERT_EQ(write(start(5), 2), Status::success);
  EXPECT_EQ(read_data(start(5) + 2, 14), std::pair(Status::success, std::vector<std::byte>(14 * 4096)));
  ASSERT_EQ(send(ZoneSendAction::reset, start(5)), Status::success);
  EXPECT_EQ(read_data(start(5), 16), std::pair(Status::success, std::vector<std::byte>(16 * 4096)));
}

TEST_F(ZnsTest, ReadsCrossZonesWhereTheControllerSaysSo) {
  ASSERT_EQ(write(start(1), kZoneCapacity), Status::success);
  EXPECT_EQ(read(start(1) + 8, 16), Status::success);
  EXPECT_EQ(read(strict_start(1) - 1, 2, kNsStrict), Status::zone_boundary_error);
  EXPECT_EQ(read(strict_start(1) - 1, 1, kNsStrict), Status::success);
  EXPECT_EQ(read(strict_start(kStrictZones) - 1, 2, kNsStrict), Status::lba_out_of_range);
  EXPECT_EQ(io(make(NvmOpcode::verify, kNsStrict, strict_start(1) - 1, 2)), Status::zone_boundary_error);
}

TEST_F(ZnsTest, ZonesThatHaveFailed) {
  EXPECT_EQ(state(kStrictReadOnly, kNsStrict), ZoneState::read_only);
  EXPECT_EQ(state(kStrictOffline, kNsStrict), ZoneState::offline);
  EXPECT_EQ(read(strict_start(kStrictReadOnly), 1, kNsStrict), Status::success);
  EXPECT_EQ(write(strict_start(kStrictReadOnly), 1, kNsStrict), Status::zone_is_read_only);
  EXPECT_EQ(read(strict_start(kStrictOffline), 1, kNsStrict), Status::zone_is_offline);
  EXPECT_EQ(write(strict_start(kStrictOffline), 1, kNsStrict), Status::zone_is_offline);
  ASSERT_EQ(send(ZoneSendAction::offline, strict_start(kStrictReadOnly), false, kNsStrict), Status::success);
  EXPECT_EQ(read(strict_start(kStrictReadOnly), 1, kNsStrict), Status::zone_is_offline);
}

TEST_F(ZnsTest, ManyAppendsAtOnceShareAZone) {
  Buffer data = buffer(kZoneCapacity * 4096);
  data.store(noise(data.size(), 3));
  QueuePair& pair = queue();
  for (std::uint16_t i = 0; i < kZoneCapacity + 2; ++i) {
    const std::size_t offset = std::size_t{i % kZoneCapacity} * 4096;
    Sqe sqe = data.attach(append_command(start(9), 1), 4096, offset);
    sqe.cid = i;
    pair.submit() = sqe;
  }
  pair.ring_sq();
  std::vector<bool> taken(kZoneCapacity);
  std::size_t refused = 0;
  for (const Cqe& cqe : wait(pair, kZoneCapacity + 2)) {
    if (status_of(cqe) != Status::success) {
      EXPECT_EQ(status_of(cqe), Status::zone_is_full);
      ++refused;
      continue;
    }
    ASSERT_LT(lba_of(cqe) - start(9), kZoneCapacity);
    EXPECT_FALSE(taken[lba_of(cqe) - start(9)]) << "two appends to one place";
    taken[lba_of(cqe) - start(9)] = true;
    EXPECT_EQ(read_data(lba_of(cqe), 1).second, data.copy(4096, std::size_t{cqe.cid % kZoneCapacity} * 4096));
  }
  EXPECT_EQ(refused, 2u);
}

// Writes and appends of zones, and reads of a namespace with a zone that is offline, are not taken in runs.
TEST_F(ZnsTest, InjectedFaultsCorruptWhatIsExecutedOneByOneToo) {
  const auto bits_apart = [](const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
    int count = 0;
    for (std::size_t i = 0; i < a.size(); ++i) count += std::popcount(static_cast<unsigned>(a[i] ^ b[i]));
    return count;
  };
  auto& faults = device.engine().faults();
  ASSERT_EQ(status_of(append(start(4), 1, 1)), Status::success);
  faults.set({"corrupt on=write"});
  ASSERT_EQ(write(start(4) + 1, 2, kNsZoned, 2), Status::success);
  faults.set({"corrupt on=zone-append"});
  ASSERT_EQ(status_of(append(start(4), 2, 3)), Status::success);
  faults.set({});
  EXPECT_EQ(read_data(start(4), 1).second, noise(4096, 1));
  EXPECT_EQ(bits_apart(read_data(start(4) + 1, 2).second, noise(8192, 2)), 1);
  EXPECT_EQ(bits_apart(read_data(start(4) + 3, 2).second, noise(8192, 3)), 1);
  ASSERT_EQ(write(strict_start(1), 8, kNsStrict, 4), Status::success);
  faults.set({"corrupt on=read times=1"});
  EXPECT_EQ(bits_apart(read_data(strict_start(1), 8, kNsStrict).second, noise(4096, 4)), 1);
  EXPECT_EQ(read_data(strict_start(1), 8, kNsStrict).second, noise(4096, 4)) << "what is stored was not touched";
}

TEST_F(ZnsTest, FusedPairsAreForOtherNamespaces) {
  Buffer data = buffer(4096);
  QueuePair& pair = queue();
  Sqe compare = data.attach(make(NvmOpcode::compare, kNsZoned, 0, 1), 4096);
  Sqe write = data.attach(make(NvmOpcode::write, kNsZoned, 0, 1), 4096);
  compare.flags |= nvme::kFlagFuseFirst;
  write.flags |= nvme::kFlagFuseSecond;
  compare.cid = 1;
  write.cid = 2;
  pair.submit() = compare;
  pair.submit() = write;
  pair.ring_sq();
  for (const Cqe& cqe : wait(pair, 2)) EXPECT_EQ(status_of(cqe), Status::invalid_field);
  EXPECT_EQ(state(0), ZoneState::empty);
}

TEST_F(ZnsTest, AFormatEmptiesAllZones) {
  ASSERT_EQ(write(start(0), 3), Status::success);
  ASSERT_EQ(send(ZoneSendAction::open, start(1)), Status::success);
  Sqe format = make(AdminOpcode::format_nvm, kNsZoned);
  format.cdw10 = 1;  // the same format
  ASSERT_EQ(admin(format), Status::success);
  const Report all = report({});
  EXPECT_EQ(all.count, kZones);
  for (const nvme::ZoneDescriptor& one : all.zones) EXPECT_EQ(one.zs >> 4, static_cast<int>(ZoneState::empty));
  EXPECT_EQ(read_data(0, 3).second, std::vector<std::byte>(3 * 4096));
  format.cdw10 = 0;  // 512 bytes
  ASSERT_EQ(admin(format), Status::success);
  EXPECT_EQ(report({}).zones[1].zslba, kZoneBlocks * 8);
}

}  // namespace
}  // namespace flashmob::conformance
