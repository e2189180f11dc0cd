// Zoned namespaces whose media, or whose bound of marks, refuse what a zone has taken or is to give up: no zone is left
// with a hole behind which it is written, and what is refused before that leaves it as it was.
#include "command_set/nvm_test_support.h"
#include "command_set/zns.h"
#include "command_set/zns_state.h"
#include "nvme/dataset.h"

namespace flashmob::command_set {
namespace {

using nvme::NvmOpcode;
using nvme::ZonedOpcode;
using nvme::ZoneSendAction;
using nvme::ZoneState;

class ZnsFailures : public NvmCommandTest {
 protected:
  static constexpr std::uint32_t kZone = 64;  // blocks of 512 bytes
  static constexpr std::uint32_t kOffline = 20;

  ZnsFailures() {
    config_.size_bytes = kBlocks << 9;
    config_.command_set = "zns";
    config_.zoned.zone_bytes = kZone * 512;
    config_.zoned.offline_zones = {kOffline};
    zns_.prepare(*ns_, config_);
    ns_->command_set = &zns_;
  }

  Outcome execute(const nvme::Sqe& sqe) {
    ExecContext context{reader_, segments_, bounce_, limits_, nullptr, write_through_, &model_};
    reader_.enter();
    const Outcome outcome = zns_.execute(sqe, *ns_, context);
    reader_.leave();
    return outcome;
  }
  Status status(NvmOpcode opcode, std::uint64_t slba, std::uint32_t blocks = 1) {
    return execute(command(opcode, slba, blocks)).status;
  }
  Status append(std::uint32_t zone) {
    nvme::Sqe sqe = command(NvmOpcode::write, zone * kZone, 1);
    sqe.opcode = static_cast<std::uint8_t>(ZonedOpcode::zone_append);
    return execute(sqe).status;
  }
  Status send(ZoneSendAction action, std::uint32_t zone, bool all = false) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(ZonedOpcode::zone_management_send);
    sqe.nsid = 1;
    sqe.cdw10 = zone * kZone;
    sqe.cdw13 = static_cast<std::uint32_t>(action) | (all ? nvme::kZoneSelectAll : 0);
    return execute(sqe).status;
  }
  // Two blocks of two places, which are in one zone each.
  Outcome copy(std::uint64_t destination, std::uint64_t one, std::uint64_t other) {
    std::vector<nvme::CopySourceRange> ranges(2);
    ranges[0].slba = one;
    ranges[1].slba = other;
    put(ranges);
    nvme::Sqe sqe = command(NvmOpcode::copy, destination, 1);
    sqe.cdw12 = 1;
    point(sqe, 0, ranges.size() * sizeof(nvme::CopySourceRange));
    return execute(sqe);
  }
  const zns::Zone& zone(std::uint32_t index) { return ZonedState::of(*ns_).zones.zone(index); }

  NamespaceConfig config_;
  ZnsCommandSet zns_;
};

TEST_F(ZnsFailures, WhatCannotBeMarkedLeavesNoZoneToBeWrittenBehindIt) {
  ns_->uncorrectable.limit(1);
  ASSERT_EQ(status(NvmOpcode::write_uncorrectable, 0), Status::success);
  EXPECT_EQ(status(NvmOpcode::write_uncorrectable, 2 * kZone), Status::internal_error);
  EXPECT_EQ(zone(2).state, ZoneState::read_only);
  EXPECT_EQ(append(2), Status::zone_is_read_only);
  EXPECT_EQ(append(3), Status::success);
}

TEST_F(ZnsFailures, WhatTheMediumRefusesLeavesNoZoneToBeWrittenBehindIt) {
  media_->fail_writes = media_->fail_deallocates = true;
  EXPECT_EQ(status(NvmOpcode::write, 0), Status::write_fault);
  EXPECT_EQ(append(1), Status::write_fault);
  EXPECT_EQ(status(NvmOpcode::write_zeroes, 2 * kZone), Status::write_fault);
  EXPECT_EQ(copy(3 * kZone, 0, 1).status, Status::write_fault);
  media_->fail_writes = media_->fail_deallocates = false;
  for (std::uint32_t index = 0; index < 4; ++index) {
    EXPECT_EQ(zone(index).state, ZoneState::read_only) << index;
    EXPECT_EQ(append(index), Status::zone_is_read_only) << index;
  }
}

TEST_F(ZnsFailures, ASourceThatCannotBeReadLeavesTheDestinationAsItWas) {
  media_->fail_reads = true;
  EXPECT_EQ(copy(0, 5, 6).status, Status::unrecovered_read_error);
  media_->fail_reads = false;
  EXPECT_EQ(zone(0).state, ZoneState::empty);
  EXPECT_EQ(copy(0, 5, 6).status, Status::success);
  EXPECT_EQ(zone(0).written, 2u);
}

TEST_F(ZnsFailures, SourcesInOfflineZonesAreNotCopied) {
  const Outcome outcome = copy(0, kZone, kOffline * kZone + 3);
  EXPECT_EQ(outcome.status, Status::zone_is_offline);
  EXPECT_EQ(outcome.result, 1u) << "the range that was not copied";
  EXPECT_EQ(zone(0).state, ZoneState::empty);
}

TEST_F(ZnsFailures, SourcesMeetBoundariesWhereReadsDo) {
  config_.zoned.reads_cross_zones = false;
  zns_.prepare(*ns_, config_);
  std::vector<nvme::CopySourceRange> ranges(1);
  ranges[0].slba = kZone - 1;
  ranges[0].nlb = 1;
  put(ranges);
  nvme::Sqe sqe = command(NvmOpcode::copy, 2 * kZone, 1);
  point(sqe, 0, sizeof(nvme::CopySourceRange));
  EXPECT_EQ(execute(sqe).status, Status::zone_boundary_error);
  EXPECT_EQ(zone(2).state, ZoneState::empty);
}

// Marks of three zones are one range; with room for one, a reset of the zone in the middle would leave two.
TEST_F(ZnsFailures, AResetThatCannotTakeItsMarksAwayChangesNothing) {
  ns_->uncorrectable.limit(1);
  ASSERT_EQ(status(NvmOpcode::write_zeroes, kZone, kZone - 1), Status::success);
  ASSERT_EQ(status(NvmOpcode::write_uncorrectable, 2 * kZone - 1), Status::success);
  ASSERT_EQ(status(NvmOpcode::write_uncorrectable, 2 * kZone, kZone), Status::success);
  ASSERT_EQ(status(NvmOpcode::write_uncorrectable, 3 * kZone), Status::success);
  EXPECT_EQ(send(ZoneSendAction::reset, 2), Status::internal_error);
  EXPECT_EQ(zone(2).state, ZoneState::full);
  EXPECT_EQ(status(NvmOpcode::read, 2 * kZone), Status::unrecovered_read_error);
  ASSERT_EQ(send(ZoneSendAction::reset, 1), Status::success);
  ASSERT_EQ(send(ZoneSendAction::reset, 2), Status::success);
  EXPECT_EQ(status(NvmOpcode::read, 2 * kZone, kZone), Status::success);
}

TEST_F(ZnsFailures, AResetThatTheMediumRefusesLeavesAZoneThatCannotBeWritten) {
  ASSERT_EQ(append(1), Status::success);
  media_->fail_deallocates = true;
  EXPECT_EQ(send(ZoneSendAction::reset, 1), Status::write_fault);
  media_->fail_deallocates = false;
  EXPECT_EQ(zone(1).state, ZoneState::read_only);
  EXPECT_EQ(append(1), Status::zone_is_read_only);
}

TEST_F(ZnsFailures, AllZonesAreOpenedWhereNothingLimitsThem) {
  for (const std::uint32_t index : {3u, 9u}) {
    ASSERT_EQ(append(index), Status::success);
    ASSERT_EQ(send(ZoneSendAction::close, index), Status::success);
  }
  EXPECT_EQ(send(ZoneSendAction::open, 0, true), Status::success);
  EXPECT_EQ(zone(3).state, ZoneState::explicitly_opened);
  EXPECT_EQ(zone(9).state, ZoneState::explicitly_opened);
  EXPECT_EQ(zone(0).state, ZoneState::empty);
}

}  // namespace
}  // namespace flashmob::command_set
