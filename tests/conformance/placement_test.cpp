// Flexible Data Placement (Base 2.1, 8.1.10): writes that say where they go, reclaim units, and what is told of them.
#include "conformance/placement_fixture.h"

namespace flashmob::conformance {
namespace {

constexpr std::uint64_t kUnitBlocks = kReclaimUnitBytes / 512;
// Reclaim group 1 is the uppermost bit of an identifier.
constexpr std::uint16_t in_second_group(std::uint16_t handle) { return static_cast<std::uint16_t>(0x8000 | handle); }

TEST_F(PlacementTest, IdentifySaysSo) {
  const auto c = identify<nvme::IdentifyController>(nvme::Cns::identify_controller);
  EXPECT_NE(c.ctratt & nvme::kCtrattFlexibleDataPlacement, 0u);
  EXPECT_NE(c.ctratt & nvme::kCtrattEnduranceGroups, 0u);
  EXPECT_NE(c.oacs & nvme::kOacsDirectives, 0);
  EXPECT_EQ(c.endgidmax, 1);
  EXPECT_EQ(identify<nvme::IdentifyNamespace>(nvme::Cns::identify_namespace, kNs512).endgid, 1);
  EXPECT_EQ(identify<nvme::IdentifyNamespaceIndependent>(nvme::Cns::independent_namespace, kNs512).endgid, 1);
  const auto groups = identify<nvme::EnduranceGroupList>(nvme::Cns::endurance_group_list);
  EXPECT_EQ(groups.num, 1);
  EXPECT_EQ(groups.identifier[0], 1);
  const auto effects = log_page<nvme::CommandsSupportedAndEffects>(nvme::LogPage::commands_supported_and_effects);
  for (const auto opcode : {NvmOpcode::io_management_receive, NvmOpcode::io_management_send})
    EXPECT_NE(effects.iocs[static_cast<std::size_t>(opcode)] & nvme::kEffectSupported, 0u);
  for (const auto opcode : {AdminOpcode::directive_receive, AdminOpcode::directive_send})
    EXPECT_NE(effects.acs[static_cast<std::size_t>(opcode)] & nvme::kEffectSupported, 0u);
}

TEST_F(PlacementTest, TheConfigurationIsTold) {
  std::array<std::byte, 16 + 64 + kHandles * 4> page;
  ASSERT_EQ(group_log(nvme::LogPage::fdp_configurations, page), Status::success);
  nvme::FdpConfigurations header;
  nvme::FdpConfiguration one;
  std::memcpy(&header, page.data(), sizeof(header));
  std::memcpy(&one, page.data() + sizeof(header), sizeof(one));
  EXPECT_EQ(header.numfdpc, 0) << "one of them";
  EXPECT_EQ(header.sze, page.size());
  EXPECT_EQ(one.dsze, 64 + kHandles * 4);
  EXPECT_EQ(one.fdpa, nvme::kFdpaValid | nvme::kFdpaVolatileWriteCache | 1);
  EXPECT_EQ(one.nrg, kGroups);
  EXPECT_EQ(one.nruh, kHandles);
  EXPECT_EQ(one.maxpids, kGroups * kHandles - 1);
  EXPECT_EQ(one.runs, kReclaimUnitBytes);
  for (std::uint32_t i = 0; i < kHandles; ++i) EXPECT_EQ(page[16 + 64 + i * 4], std::byte{nvme::kInitiallyIsolated});
  EXPECT_EQ(group_log(nvme::LogPage::fdp_configurations, page, 2), Status::invalid_field);
  EXPECT_EQ(group_log(nvme::LogPage::fdp_configurations, page, 0), Status::invalid_field);
}

TEST_F(PlacementTest, AWriteGoesWhereItSays) {
  const auto handles = handles_of(kNs512);
  ASSERT_EQ(handles.size(), 3u * kGroups);
  // By placement handle, then by group.
  EXPECT_EQ(handles[1].pid, in_second_group(0));
  EXPECT_EQ(handles[1].ruhid, 4);
  EXPECT_EQ(handles[2].pid, 1);
  EXPECT_EQ(handles[2].ruhid, 0);
  for (const auto& entry : handles) EXPECT_EQ(entry.ruamw, kUnitBlocks);

  EXPECT_EQ(place(kNs512, 0, 8, 1), Status::success);
  EXPECT_EQ(place(kNs512, 8, 16, in_second_group(2)), Status::success);
  EXPECT_EQ(write(kNs512, 24, noise(4 * 512, 1)), Status::success);  // without a directive: handle 0
  EXPECT_EQ(left(kNs512, 0), kUnitBlocks - 4);
  EXPECT_EQ(left(kNs512, 1), kUnitBlocks - 8);
  EXPECT_EQ(left(kNs512, 2), kUnitBlocks);
  EXPECT_EQ(left(kNs512, in_second_group(2)), kUnitBlocks - 16);
  EXPECT_TRUE(read(kNs512, 8, 16) == noise(16 * 512, 8));
  EXPECT_EQ(statistics().hbmw.low, 28u * 512);
  EXPECT_EQ(statistics().mbmw.low, 28u * 512);
  // Namespace 2 has a handle of its own, in blocks of its own.
  EXPECT_EQ(place(kNs4096, 0, 2, 0), Status::success);
  EXPECT_EQ(left(kNs4096, 0), kReclaimUnitBytes / 4096 - 2);
}

TEST_F(PlacementTest, AUnitThatIsFullIsFollowedByAnEmptyOne) {
  for (std::uint64_t lba = 0; lba < kUnitBlocks; lba += 256) ASSERT_EQ(place(kNs512, lba, 256, 1), Status::success);
  EXPECT_EQ(left(kNs512, 1), kUnitBlocks);
  EXPECT_EQ(place(kNs512, 0, 1, 1), Status::success);
  EXPECT_EQ(left(kNs512, 1), kUnitBlocks - 1);
}

TEST_F(PlacementTest, AnUpdateTakesAnEmptyUnit) {
  ASSERT_EQ(report(kNs512, 1, {0x00, 0x03}), Status::success);
  ASSERT_EQ(place(kNs512, 0, 8, 1), Status::success);
  EXPECT_EQ(update(kNs512, {1, 2}), Status::success);
  EXPECT_EQ(left(kNs512, 1), kUnitBlocks);
  const nvme::FdpEvents log = events();
  ASSERT_EQ(log.num, 1u) << "the other one was empty, and is not reported anyway";
  EXPECT_EQ(log.event[0].type, static_cast<std::uint8_t>(nvme::FdpEventType::not_fully_written));
  EXPECT_EQ(log.event[0].flags, 7);
  EXPECT_EQ(log.event[0].pid, 1);
  EXPECT_EQ(log.event[0].nsid, kNs512);
  EXPECT_EQ(log.event[0].ruhid, 0);
  EXPECT_EQ(group_log<nvme::FdpEvents>(nvme::LogPage::fdp_events).num, 0u) << "the controller has caused none";
  EXPECT_EQ(update(kNs512, {1}), Status::success);
  EXPECT_EQ(events().num, 1u) << "nothing was written to it";
}

class ReadOnlyPlacementTest : public PlacementTest {
 protected:
  ReadOnlyPlacementTest() : PlacementTest(placing_device()) {
    Sqe sqe = make(AdminOpcode::set_features, kNs512);
    sqe.cdw10 = static_cast<std::uint32_t>(nvme::Feature::namespace_write_protection);
    sqe.cdw11 = 1;
    EXPECT_EQ(admin(sqe), Status::success);
  }
};

TEST_F(ReadOnlyPlacementTest, WhoMayNotWriteEndsNoUnit) {
  EXPECT_EQ(update(kNs512, {0}), Status::namespace_is_write_protected);
  EXPECT_EQ(update(kNs512, {0}, nvme::kIoManagementNothing), Status::success);
  EXPECT_EQ(handles_of(kNs512).size(), 6u);
}

TEST_F(PlacementTest, UpdatesThatAreWrong) {
  ASSERT_EQ(place(kNs512, 0, 8, 1), Status::success);
  EXPECT_EQ(update(kNs512, {1, 3}), Status::invalid_field) << "no such placement handle";
  EXPECT_EQ(left(kNs512, 1), kUnitBlocks - 8) << "nothing of it was done";
  EXPECT_EQ(update(kNs512, std::vector<std::uint16_t>(kGroups * kHandles + 1, 1)), Status::invalid_field);
  EXPECT_EQ(update(kNs512, std::vector<std::uint16_t>(kGroups * kHandles, 1)), Status::success);
  EXPECT_EQ(update(kNs512, {1}, 2), Status::invalid_field);
  EXPECT_EQ(update(kNs512, {1}, nvme::kIoManagementNothing), Status::success);
  EXPECT_EQ(update(77, {1}), Status::invalid_field) << "no such namespace";
  EXPECT_EQ(update(nvme::kNsidBroadcast, {1}), Status::invalid_namespace_or_format);
  std::array<std::byte, 16> few;
  EXPECT_EQ(handle_status(kNs512, few), Status::success) << "the beginning of it";
  EXPECT_EQ(few[14], std::byte{3 * kGroups});
  EXPECT_EQ(handle_status(kNs512, few, 2), Status::invalid_field);
  EXPECT_EQ(handle_status(kNs512, few, nvme::kIoManagementNothing), Status::success);
}

TEST_F(PlacementTest, AnIdentifierThatNamesNothingIsReportedAndTheDataWritten) {
  EXPECT_EQ(place(kNs512, 0, 8, 3), Status::success);
  EXPECT_EQ(events().num, 0u) << "nobody has asked for it";
  ASSERT_EQ(report(kNs512, 0, {0x03}), Status::success);
  EXPECT_EQ(place(kNs512, 0, 8, in_second_group(3)), Status::success);
  EXPECT_TRUE(read(kNs512, 0, 8) == noise(8 * 512, 0));
  EXPECT_EQ(left(kNs512, 0), kUnitBlocks - 16) << "both went there";
  const nvme::FdpEvents log = events();
  ASSERT_EQ(log.num, 1u);
  EXPECT_EQ(log.event[0].type, static_cast<std::uint8_t>(nvme::FdpEventType::invalid_placement_identifier));
  EXPECT_EQ(log.event[0].pid, in_second_group(3));
  EXPECT_EQ(log.event[0].ruhid, 4) << "where it went instead";
  // The oldest are forgotten.
  for (std::uint16_t i = 0; i < 70; ++i) ASSERT_EQ(place(kNs512, 0, 1, 100 + i), Status::success);
  EXPECT_EQ(events().num, nvme::FdpEvents::kMaxEntries);
  EXPECT_EQ(events().event[0].pid, 107);
  EXPECT_EQ(events().event[62].pid, 169);
}

TEST_F(PlacementTest, OtherDirectivesAreInvalid) {
  EXPECT_EQ(place(kNs512, 0, 1, 1, nvme::Directive::streams), Status::invalid_field);
  EXPECT_EQ(place(kNs512, 0, 1, 1, static_cast<nvme::Directive>(3)), Status::invalid_field);
  EXPECT_EQ(place(kNs512, 0, 1, 1, nvme::Directive::identify), Status::success) << "no directive at all";
  EXPECT_EQ(left(kNs512, 1), kUnitBlocks);
  EXPECT_EQ(place(kNs512, 0, 1, 1, nvme::Directive::data_placement, NvmOpcode::read), Status::success)
      << "a Read has none, whatever stands there";
}

TEST_F(PlacementTest, EveryCommandThatWritesHasOne) {
  EXPECT_EQ(place(kNs512, 0, 8, 1, nvme::Directive::data_placement, NvmOpcode::write_zeroes), Status::success);
  EXPECT_EQ(left(kNs512, 1), kUnitBlocks - 8);
  const std::vector<nvme::CopySourceRange> sources(1);
  Buffer source = buffer(4096);
  source.store(std::as_bytes(std::span(sources)));
  Sqe copy = make(NvmOpcode::copy, kNs512, 64, 1);
  copy.cdw12 |= static_cast<std::uint32_t>(nvme::Directive::data_placement) << nvme::kIoDirectiveTypeShift;
  copy.cdw13 = 2u << 16;
  EXPECT_EQ(io(source.attach(copy, 32)), Status::success);
  EXPECT_EQ(left(kNs512, 2), kUnitBlocks - 1);
  copy.cdw12 = static_cast<std::uint32_t>(nvme::Directive::streams) << nvme::kIoDirectiveTypeShift;
  EXPECT_EQ(io(source.attach(copy, 32)), Status::invalid_field);
}

TEST_F(PlacementTest, TheDirectiveCanBeSwitchedOff) {
  nvme::DirectiveParameters parameters = directives(kNs512);
  EXPECT_EQ(parameters.supported[0], 5);
  EXPECT_EQ(parameters.enabled[0], 5);
  EXPECT_EQ(parameters.persistent[0], 5);
  EXPECT_EQ(direct(kNs512, false), Status::success);
  EXPECT_EQ(directives(kNs512).enabled[0], 1);
  EXPECT_EQ(directives(kNs4096).enabled[0], 5) << "another namespace's stays on";
  EXPECT_EQ(place(kNs512, 0, 1, 1), Status::success);
  EXPECT_EQ(place(kNs512, 0, 1, 1, nvme::Directive::streams), Status::success) << "then all are ignored";
  EXPECT_EQ(left(kNs512, 1), kUnitBlocks);
  EXPECT_EQ(left(kNs512, 0), kUnitBlocks - 2);
  EXPECT_EQ(direct(kNs512, true), Status::success);
  EXPECT_EQ(place(kNs512, 0, 1, 1), Status::success);
  EXPECT_EQ(left(kNs512, 1), kUnitBlocks - 1);

  EXPECT_EQ(direct(kNs512, true, nvme::Directive::streams), Status::invalid_field);
  EXPECT_EQ(direct(nvme::kNsidBroadcast, true), Status::invalid_namespace_or_format);
  EXPECT_EQ(direct(77, true), Status::invalid_field);
  Sqe sqe = make(AdminOpcode::directive_send, kNs512);
  sqe.cdw11 = nvme::kEnableDirective | (static_cast<std::uint32_t>(nvme::Directive::data_placement) << 8);
  EXPECT_EQ(admin(sqe), Status::invalid_field) << "data placement has no operations of its own";
}

TEST_F(PlacementTest, EventsAreSwitchedByHandle) {
  std::array<nvme::FdpSupportedEvent, 2> events{};
  ASSERT_EQ(reported(kNs512, 1, events), Status::success);
  EXPECT_EQ(events[0].type, 0x00);
  EXPECT_EQ(events[1].type, 0x03);
  EXPECT_EQ(events[0].attributes + events[1].attributes, 0);
  EXPECT_EQ(report(kNs512, 1, {0x03}), Status::success);
  ASSERT_EQ(reported(kNs512, 1, events), Status::success);
  EXPECT_EQ(events[0].attributes, 0);
  EXPECT_EQ(events[1].attributes, nvme::kFdpEventEnabled);
  ASSERT_EQ(reported(kNs512, 0, events), Status::success);
  EXPECT_EQ(events[1].attributes, 0) << "of another handle";
  EXPECT_EQ(report(kNs512, 1, {0x03}, false), Status::success);
  ASSERT_EQ(reported(kNs512, 1, events), Status::success);
  EXPECT_EQ(events[1].attributes, 0);
  EXPECT_EQ(report(kNs512, 1, {0x00, 0x80}), Status::invalid_field) << "no such event";
  EXPECT_EQ(report(kNs512, 3, {0x03}), Status::invalid_field) << "no such handle";
  EXPECT_EQ(report(0, 0, {0x03}), Status::invalid_namespace_or_format);
}

TEST_F(PlacementTest, NamespacesThatHostsMakeHaveHandles) {
  using Usage = std::vector<std::uint8_t>;
  EXPECT_EQ(usage(), (Usage{1, 1, 1, 0, 1, 0}));
  std::uint32_t listed = 0, chosen = 0, again = 0, none = 0;
  ASSERT_EQ(create(64, 0, {3, 0}, listed), Status::success) << "handle 0 is shared with namespace 1";
  ASSERT_EQ(create(64, 0, {}, chosen), Status::success);
  EXPECT_EQ(usage(), (Usage{1, 1, 1, 1, 1, 2}));
  ASSERT_EQ(create(64, 0, {}, again), Status::success) << "the one that was chosen is shared";
  EXPECT_EQ(usage(), (Usage{1, 1, 1, 1, 1, 2}));
  EXPECT_EQ(create(64, 0, {5}, none), Status::invalid_placement_handle_list) << "that the controller chose";
  EXPECT_EQ(create(64, 0, {3, 3}, none), Status::invalid_placement_handle_list);
  EXPECT_EQ(create(64, 0, {6}, none), Status::invalid_placement_handle_list);
  EXPECT_EQ(create(64, 0, {0, 1, 2, 3, 4, 5, 6}, none), Status::invalid_field) << "more than there are";
  EXPECT_EQ(create(64, 1, {0}, none), Status::invalid_format) << "its other user has another format";

  ASSERT_EQ(attach(listed), Status::success);
  EXPECT_EQ(place(listed, 0, 8, 0), Status::success);
  EXPECT_EQ(left(listed, 0), kUnitBlocks - 8);
  EXPECT_EQ(place(listed, 0, 8, 1), Status::success);
  EXPECT_EQ(left(kNs512, 1), kUnitBlocks - 8) << "the same reclaim unit";
  Sqe format = make(AdminOpcode::format_nvm, listed);
  format.cdw10 = 1;
  EXPECT_EQ(admin(format), Status::invalid_format) << "its handle is shared";
  format.nsid = kNs4096;
  format.cdw10 = 0;
  EXPECT_EQ(admin(format), Status::success);
  EXPECT_EQ(remove(listed), Status::success);
  EXPECT_EQ(usage(), (Usage{1, 1, 1, 0, 1, 2}));
}

TEST_F(PlacementTest, ItIsSwitchedWhereThereIsNoNamespace) {
  EXPECT_EQ(enabled().dw0, 1u);
  EXPECT_EQ(status_of(enabled(2)), Status::invalid_field);
  EXPECT_EQ(status_of(enable(true)), Status::success) << "it is";
  EXPECT_EQ(status_of(enable(false)), Status::command_sequence_error) << "there are namespaces";
  ASSERT_EQ(place(kNs512, 0, 8, 1), Status::success);
  ASSERT_EQ(remove(nvme::kNsidBroadcast), Status::success);
  EXPECT_EQ(status_of(enable(false, false)), Status::invalid_field) << "not saved";
  EXPECT_EQ(status_of(enable(false, true, 2)), Status::invalid_field);
  EXPECT_EQ(status_of(enable(true, true, 1, 1)), Status::invalid_field) << "no such configuration";
  EXPECT_EQ(statistics().hbmw.low, 8u * 512) << "of namespaces that are gone, too";
  ASSERT_EQ(status_of(enable(false)), Status::success);
  EXPECT_EQ(enabled().dw0, 0u);

  std::array<std::byte, 64> page;
  for (const auto lid : {nvme::LogPage::fdp_handle_usage, nvme::LogPage::fdp_statistics, nvme::LogPage::fdp_events})
    EXPECT_EQ(group_log(lid, page), Status::fdp_disabled);
  EXPECT_EQ(group_log(nvme::LogPage::fdp_configurations, page), Status::success);
  std::uint32_t nsid = 0;
  ASSERT_EQ(create(64, 0, {3}, nsid), Status::success);
  ASSERT_EQ(attach(nsid), Status::success);
  EXPECT_EQ(update(nsid, {0}), Status::fdp_disabled);
  EXPECT_EQ(handle_status(nsid, page), Status::fdp_disabled);
  EXPECT_EQ(direct(nsid, true), Status::fdp_disabled);
  EXPECT_EQ(report(nsid, 0, {0x03}), Status::fdp_disabled);
  EXPECT_EQ(place(nsid, 0, 1, 0), Status::invalid_field) << "no directive is enabled";
  EXPECT_EQ(write(nsid, 0, noise(512, 1)), Status::success);
  ASSERT_EQ(remove(nsid), Status::success);
  ASSERT_EQ(status_of(enable(true)), Status::success);
  EXPECT_EQ(statistics().hbmw.low, 0u) << "it begins anew";
}

// A drive without placement knows nothing of it.
class NoPlacementTest : public PlacementTest {
 protected:
  NoPlacementTest() : PlacementTest(suite::small_device()) {}
};

TEST_F(NoPlacementTest, ADriveWithoutItAnswersAsBefore) {
  std::array<std::byte, 64> page;
  EXPECT_EQ(update(kNs512, {0}), Status::invalid_opcode);
  EXPECT_EQ(handle_status(kNs512, page), Status::invalid_opcode);
  EXPECT_EQ(direct(kNs512, true), Status::invalid_opcode);
  EXPECT_EQ(place(kNs512, 0, 1, 0), Status::invalid_field);
  EXPECT_EQ(status_of(enabled()), Status::invalid_field);
  EXPECT_EQ(status_of(enable(true)), Status::invalid_field);
  for (const auto lid : {nvme::LogPage::endurance_group, nvme::LogPage::fdp_configurations,
                         nvme::LogPage::fdp_handle_usage, nvme::LogPage::fdp_statistics, nvme::LogPage::fdp_events})
    EXPECT_EQ(group_log(lid, page), Status::invalid_log_page);
  const auto c = identify<nvme::IdentifyController>(nvme::Cns::identify_controller);
  EXPECT_EQ(c.ctratt, 0u);
  EXPECT_EQ(c.oacs & nvme::kOacsDirectives, 0);
  const auto effects = log_page<nvme::CommandsSupportedAndEffects>(nvme::LogPage::commands_supported_and_effects);
  EXPECT_EQ(effects.iocs[static_cast<std::size_t>(NvmOpcode::io_management_send)], 0u);
  EXPECT_EQ(effects.acs[static_cast<std::size_t>(AdminOpcode::directive_send)], 0u);
}

class PlacingNandTest : public PlacementTest {
 protected:
  PlacingNandTest() : PlacementTest(placing_nand()) {}
};

// Reclaim units are the model's superblocks, and the statistics what it has programmed and erased.
TEST_F(PlacingNandTest, ReclaimUnitsAreSuperblocks) {
  std::array<std::byte, 80> page;
  ASSERT_EQ(group_log(nvme::LogPage::fdp_configurations, page), Status::success);
  nvme::FdpConfiguration one;
  std::memcpy(&one, page.data() + 16, sizeof(one));
  const std::uint64_t unit_blocks = one.runs / 512;
  EXPECT_EQ(left(kNs512, 3), unit_blocks);
  ASSERT_EQ(place(kNs512, 0, 8, 3), Status::success);
  ASSERT_EQ(place(kNs512, 8, 1, 3), Status::success) << "a part of a unit takes the whole";
  EXPECT_EQ(left(kNs512, 3), unit_blocks - 16);
  EXPECT_EQ(left(kNs512, 2), unit_blocks);
  EXPECT_EQ(statistics().hbmw.low, 9u * 512);
  ASSERT_EQ(update(kNs512, {3}), Status::success);
  EXPECT_EQ(left(kNs512, 3), unit_blocks);
  // The row that was open is padded: 4 units of 4 KiB, of which two were written.
  EXPECT_EQ(statistics().mbmw.low, 4u * 4096);
  EXPECT_EQ(statistics().mbe.low, 0u);
  EXPECT_TRUE(read(kNs512, 0, 8) == noise(8 * 512, 0));
}

TEST_F(PlacingNandTest, WhatIsWrittenOftenIsErasedApart) {
  // A log that goes round in the first quarter, and data that stay behind it: 9 to 1.
  const std::uint64_t blocks = (16 << 20) / 512, log_blocks = blocks / 4;
  std::uint64_t kept = log_blocks;
  for (std::uint64_t i = 0; i < 40 * log_blocks / 256; ++i) {
    ASSERT_EQ(place(kNs512, i * 256 % log_blocks, 256, 1), Status::success);
    if (kept + 256 > blocks) continue;
    ASSERT_EQ(place(kNs512, kept, 256, 2), Status::success);
    kept += 256;
  }
  const nvme::FdpStatistics now = statistics();
  EXPECT_EQ(now.hbmw.low, 10u * (16 << 20) + 12u * (1 << 20));
  EXPECT_LT(static_cast<double>(now.mbmw.low), 1.02 * static_cast<double>(now.hbmw.low));
  EXPECT_GT(now.mbe.low, 6u * (16 << 20));
}

}  // namespace
}  // namespace flashmob::conformance
