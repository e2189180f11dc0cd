// Zoned namespaces: a reset between two steps, and who comes meanwhile.
#include <array>

#include "command_set/nvm_test_support.h"
#include "command_set/zns.h"
#include "command_set/zns_state.h"

namespace flashmob::command_set {
namespace {

using nvme::NvmOpcode;
using nvme::ZonedOpcode;
using nvme::ZoneSendAction;
using nvme::ZoneState;

class ZnsSteps : public NvmCommandTest {
 protected:
  static constexpr std::uint32_t kZone = 64;  // blocks of 512 bytes

  ZnsSteps() {
    config_.size_bytes = kBlocks << 9;
    config_.command_set = "zns";
    config_.zoned.zone_bytes = kZone * 512;
    zns_.prepare(*ns_, config_);
    ns_->command_set = &zns_;
  }
  std::optional<Outcome> step(const nvme::Sqe& sqe, Progress& progress) {
    ExecContext context{reader_, segments_, bounce_, limits_, nullptr, write_through_, &model_};
    reader_.enter();
    const auto outcome = zns_.step(sqe, *ns_, context, progress);
    reader_.leave();
    return outcome;
  }
  // Of a command that has but one; none: it is not its turn.
  std::optional<Status> once(const nvme::Sqe& sqe) {
    Progress progress;
    const auto outcome = step(sqe, progress);
    EXPECT_EQ(progress.has_begun(), false);
    return outcome ? std::optional(outcome->status) : std::nullopt;
  }
  nvme::Sqe append(std::uint32_t zone) {
    nvme::Sqe sqe = command(NvmOpcode::write, zone * kZone, 1);
    sqe.opcode = static_cast<std::uint8_t>(ZonedOpcode::zone_append);
    return sqe;
  }
  nvme::Sqe send(ZoneSendAction action, std::uint32_t zone, bool all = false) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(ZonedOpcode::zone_management_send);
    sqe.nsid = 1;
    sqe.cdw10 = zone * kZone;
    sqe.cdw13 = static_cast<std::uint32_t>(action) | (all ? nvme::kZoneSelectAll : 0);
    return sqe;
  }
  const zns::Zone& zone(std::uint32_t index) { return ZonedState::of(*ns_).zones.zone(index); }

  NamespaceConfig config_;
  ZnsCommandSet zns_;
};

TEST_F(ZnsSteps, AResetWaitsForThoseInItsZoneAndKeepsOthersOut) {
  ASSERT_EQ(once(append(1)), Status::success);
  const nvme::Sqe reset = send(ZoneSendAction::reset, 1);
  for (const bool is_abandoned : {true, false}) {
    const std::uint64_t written = zone(1).written;
    Progress progress;
    {
      const ZoneGate inside(ZonedState::of(*ns_), append(1));
      ASSERT_FALSE(inside.is_busy());
      EXPECT_FALSE(step(reset, progress));
      for (const NvmOpcode opcode : {NvmOpcode::write, NvmOpcode::write_zeroes, NvmOpcode::write_uncorrectable})
        EXPECT_EQ(once(command(opcode, kZone, 1)), std::nullopt);
      EXPECT_EQ(once(append(1)), std::nullopt);
      EXPECT_EQ(once(reset), std::nullopt);
      EXPECT_EQ(once(append(2)), Status::success);
      EXPECT_FALSE(step(reset, progress));
      EXPECT_EQ(zone(1).written, written);
    }
    if (is_abandoned)
      zns_.abandon(*ns_, progress);
    else
      EXPECT_EQ(step(reset, progress)->status, Status::success);
    EXPECT_EQ(zone(1).written, is_abandoned ? written : 0u);
    EXPECT_EQ(once(append(1)), Status::success) << "nobody is in its way any more";
  }
}

TEST_F(ZnsSteps, OneOfAllZonesStopsWhereSomebodyIs) {
  for (std::uint32_t index = 0; index < 4; ++index) ASSERT_EQ(once(append(index)), Status::success);
  const nvme::Sqe reset = send(ZoneSendAction::reset, 0, true);
  Progress progress;
  {
    const ZoneGate inside(ZonedState::of(*ns_), append(2));
    EXPECT_FALSE(step(reset, progress));
    EXPECT_EQ(zone(1).state, ZoneState::empty);
    EXPECT_EQ(zone(2).written, 1u);
    EXPECT_EQ(zone(3).written, 1u);
    EXPECT_EQ(once(append(0)), Status::success);
    EXPECT_EQ(once(append(3)), Status::success);
  }
  EXPECT_EQ(step(reset, progress)->status, Status::success);
  EXPECT_EQ(zone(0).written, 1u) << "it was passed when this was written";
  EXPECT_EQ(zone(2).state, ZoneState::empty);
  EXPECT_EQ(zone(3).state, ZoneState::empty);
}

// What was marked is not readable before it is gone.
TEST_F(ZnsSteps, MarksGoWhenTheDataIsGone) {
  ASSERT_EQ(once(append(1)), Status::success);
  ASSERT_EQ(once(command(NvmOpcode::write_uncorrectable, kZone + 1, 1)), Status::success);
  media_->fail_deallocates = true;
  Progress progress;
  EXPECT_EQ(step(send(ZoneSendAction::reset, 1), progress)->status, Status::write_fault);
  EXPECT_EQ(once(command(NvmOpcode::read, kZone + 1, 1)), Status::unrecovered_read_error);
}

TEST_F(ZnsSteps, WhatIsInNoZoneIsInNobodysWay) {
  EXPECT_EQ(once(command(NvmOpcode::write, kBlocks, 1)), Status::lba_out_of_range);
  EXPECT_EQ(once(command(NvmOpcode::write, std::uint64_t{1} << 60, 1)), Status::lba_out_of_range);
}

}  // namespace
}  // namespace flashmob::command_set
