// Zone Management Send and Receive (Zoned Namespace Command Set 1.1, 3.4.2 and 3.4.3), limits on open and active zones,
// and what the commands take.
#include "conformance/zns_fixture.h"

namespace flashmob::conformance {
namespace {

constexpr auto kIllegal = Status::invalid_zone_state_transition;

TEST_F(ZnsTest, OpenCloseFinishReset) {
  EXPECT_EQ(send(ZoneSendAction::close, start(1)), kIllegal);
  ASSERT_EQ(send(ZoneSendAction::open, start(1)), Status::success);
  EXPECT_EQ(state(1), ZoneState::explicitly_opened);
  ASSERT_EQ(write(start(1), 2), Status::success);
  EXPECT_EQ(state(1), ZoneState::explicitly_opened);
  ASSERT_EQ(send(ZoneSendAction::close, start(1)), Status::success);
  EXPECT_EQ(state(1), ZoneState::closed);
  EXPECT_EQ(zone(1).wp, start(1) + 2);
  ASSERT_EQ(send(ZoneSendAction::finish, start(1)), Status::success);
  EXPECT_EQ(state(1), ZoneState::full);
  EXPECT_EQ(send(ZoneSendAction::open, start(1)), kIllegal);
  EXPECT_EQ(send(ZoneSendAction::offline, start(1)), kIllegal);
  ASSERT_EQ(send(ZoneSendAction::reset, start(1)), Status::success);
  EXPECT_EQ(state(1), ZoneState::empty);
}

TEST_F(ZnsTest, FieldsOfSend) {
  EXPECT_EQ(send(ZoneSendAction::open, start(1) + 1), Status::invalid_field) << "not the first block of a zone";
  EXPECT_EQ(send(ZoneSendAction::open, start(kZones)), Status::lba_out_of_range);
  for (const std::uint32_t action : {0x00u, 0x06u, 0x0Fu, 0x11u, 0xFFu})
    EXPECT_EQ(send(static_cast<ZoneSendAction>(action), 0), Status::invalid_field) << action;
  EXPECT_EQ(send(ZoneSendAction::reset, start(kZones), true), Status::success) << "which zone does not matter then";
}

TEST_F(ZnsTest, LimitsOfOpenAndActiveZones) {
  for (std::uint32_t i = 0; i < kMaxOpen; ++i) ASSERT_EQ(send(ZoneSendAction::open, start(i)), Status::success);
  EXPECT_EQ(send(ZoneSendAction::open, start(kMaxOpen)), Status::too_many_open_zones);
  EXPECT_EQ(write(start(kMaxOpen), 1), Status::too_many_open_zones);
  EXPECT_EQ(status_of(append(start(kMaxOpen), 1)), Status::too_many_open_zones);
  EXPECT_EQ(state(kMaxOpen), ZoneState::empty);
  for (std::uint32_t i = 0; i < kMaxOpen; ++i) ASSERT_EQ(send(ZoneSendAction::close, start(i)), Status::success);
  for (std::uint32_t i = kMaxOpen; i < kMaxActive; ++i) ASSERT_EQ(write(start(i), 1), Status::success);
  EXPECT_EQ(write(start(kMaxActive), 1), Status::too_many_active_zones);
  EXPECT_EQ(send(ZoneSendAction::open, start(kMaxActive)), Status::too_many_active_zones);
  ASSERT_EQ(send(ZoneSendAction::finish, start(0)), Status::success);
  EXPECT_EQ(write(start(kMaxActive), 1), Status::success);
}

TEST_F(ZnsTest, ImplicitlyOpenedZonesAreClosedForOthers) {
  for (std::uint32_t i = 0; i <= kMaxOpen; ++i) ASSERT_EQ(write(start(i), 1), Status::success);
  EXPECT_EQ(state(0), ZoneState::closed);
  EXPECT_EQ(state(1), ZoneState::implicitly_opened);
  ASSERT_EQ(write(start(0) + 1, 1), Status::success);
  EXPECT_EQ(state(0), ZoneState::implicitly_opened);
  EXPECT_EQ(state(1), ZoneState::closed);
}

TEST_F(ZnsTest, ActionsOnAllZones) {
  ASSERT_EQ(write(start(0), 1), Status::success);
  ASSERT_EQ(send(ZoneSendAction::open, start(1)), Status::success);
  ASSERT_EQ(write(start(2), kZoneCapacity), Status::success);
  ASSERT_EQ(send(ZoneSendAction::close, 0, true), Status::success);
  EXPECT_EQ(state(0), ZoneState::closed);
  EXPECT_EQ(state(1), ZoneState::closed);
  EXPECT_EQ(state(2), ZoneState::full);
  ASSERT_EQ(send(ZoneSendAction::open, 0, true), Status::success);
  EXPECT_EQ(state(0), ZoneState::explicitly_opened);
  EXPECT_EQ(state(1), ZoneState::explicitly_opened);
  ASSERT_EQ(send(ZoneSendAction::finish, 0, true), Status::success);
  EXPECT_EQ(report({.filter = ZoneReportFilter::full}).count, 3u);
  EXPECT_EQ(report({.filter = ZoneReportFilter::empty}).count, kZones - 3) << "those that are empty stay so";
  ASSERT_EQ(send(ZoneSendAction::reset, 0, true), Status::success);
  EXPECT_EQ(report({.filter = ZoneReportFilter::empty}).count, kZones);
  EXPECT_EQ(read_data(start(2), kZoneCapacity).second, std::vector<std::byte>(kZoneCapacity * 4096));
}

TEST_F(ZnsTest, AllReadOnlyZonesGoOffline) {
  ASSERT_EQ(send(ZoneSendAction::offline, 0, true, kNsStrict), Status::success);
  EXPECT_EQ(report({.filter = ZoneReportFilter::offline, .nsid = kNsStrict}).count, 2u);
  EXPECT_EQ(report({.filter = ZoneReportFilter::read_only, .nsid = kNsStrict}).count, 0u);
  ASSERT_EQ(send(ZoneSendAction::reset, 0, true, kNsStrict), Status::success);
  EXPECT_EQ(send(ZoneSendAction::reset, strict_start(kStrictOffline), false, kNsStrict), kIllegal);
}

TEST_F(ZnsTest, DescriptorExtensions) {
  const auto extension = noise(128, 5);
  ASSERT_EQ(set_extension(start(4), extension), Status::success);
  EXPECT_EQ(state(4), ZoneState::closed);
  EXPECT_EQ(zone(4).za, nvme::kZoneExtensionValid);
  EXPECT_EQ(set_extension(start(4), extension), kIllegal);
  ASSERT_EQ(write(start(4), 1), Status::success);
  const Report all = report({.slba = start(3), .extended = true});
  ASSERT_GE(all.zones.size(), 3u);
  EXPECT_EQ(all.extensions[0], std::vector<std::byte>(128));
  EXPECT_EQ(all.extensions[1], extension);
  ASSERT_EQ(send(ZoneSendAction::reset, start(4)), Status::success);
  EXPECT_EQ(zone(4).za, 0);
  EXPECT_EQ(set_extension(strict_start(0), extension, kNsStrict), Status::invalid_field) << "it has none";
  EXPECT_EQ(report({.extended = true, .nsid = kNsStrict}).status, Status::invalid_field);
  Sqe all_zones = send_command(ZoneSendAction::set_descriptor_extension, 0, true);
  EXPECT_EQ(io(all_zones), Status::invalid_field);
}

TEST_F(ZnsTest, Reports) {
  const Report all = report({});
  EXPECT_EQ(all.count, kZones);
  ASSERT_EQ(all.zones.size(), kZones);
  for (std::uint32_t i = 0; i < kZones; ++i) {
    EXPECT_EQ(all.zones[i].zslba, start(i));
    EXPECT_EQ(all.zones[i].wp, start(i));
    EXPECT_EQ(all.zones[i].zcap, kZoneCapacity);
    EXPECT_EQ(all.zones[i].zt, nvme::kZoneTypeSequentialWrite);
  }
  const Report some = report({.slba = start(10) + 5});
  EXPECT_EQ(some.count, 6u) << "from the zone on that the block is in";
  EXPECT_EQ(some.zones[0].zslba, start(10));
}

TEST_F(ZnsTest, ShortReportsCountWhatTheyAreAskedToCount) {
  const std::uint32_t room = 64 + 3 * 64 + 60;
  const Report whole = report({.slba = start(2), .bytes = room});
  EXPECT_EQ(whole.count, kZones - 2) << "all that there are";
  const Report partial = report({.slba = start(2), .partial = true, .bytes = room});
  EXPECT_EQ(partial.count, 3u) << "those that are in the report";
  EXPECT_EQ(report({.bytes = 64}).count, kZones);
  EXPECT_EQ(report({.partial = true, .bytes = 64}).count, 0u);
  EXPECT_EQ(report({.partial = true, .extended = true, .bytes = 64 + 2 * 192}).count, 2u);
  Buffer tiny = buffer(4096);
  tiny.fill(std::byte{0xEE});
  ASSERT_EQ(io(tiny.attach(report_command({.bytes = 4}), 4)), Status::success);
  EXPECT_EQ(tiny.data()[0], std::byte{kZones});
  EXPECT_EQ(tiny.data()[4], std::byte{0xEE}) << "no more than it was asked for";
}

TEST_F(ZnsTest, ReportsOfOneState) {
  ASSERT_EQ(write(start(1), 1), Status::success);
  ASSERT_EQ(send(ZoneSendAction::open, start(3)), Status::success);
  ASSERT_EQ(send(ZoneSendAction::open, start(5)), Status::success);
  ASSERT_EQ(send(ZoneSendAction::close, start(5)), Status::success);
  ASSERT_EQ(send(ZoneSendAction::finish, start(7)), Status::success);
  const std::pair<ZoneReportFilter, std::uint64_t> wanted[] = {{ZoneReportFilter::implicitly_opened, start(1)},
                                                               {ZoneReportFilter::explicitly_opened, start(3)},
                                                               {ZoneReportFilter::closed, start(5)},
                                                               {ZoneReportFilter::full, start(7)}};
  for (const auto& [filter, zslba] : wanted) {
    const Report found = report({.filter = filter});
    ASSERT_EQ(found.zones.size(), 1u) << static_cast<int>(filter);
    EXPECT_EQ(found.zones[0].zslba, zslba);
  }
  EXPECT_EQ(report({.filter = ZoneReportFilter::empty}).count, kZones - 4);
}

// More zones than are looked at together, and more than fit into a report.
class ManyZonesTest : public ZnsTest {
 protected:
  static constexpr std::uint32_t kMany = 3000;
  ManyZonesTest()
      : ZnsTest(zoned_device([](DeviceConfig& config) {
          NamespaceConfig& zoned = config.subsystem.namespaces[1];
          zoned.zoned = ZonedConfig{};
          zoned.zoned.zone_bytes = 4096;
          zoned.size_bytes = kMany * 4096;
        })) {}
};

TEST_F(ManyZonesTest, ReportsAndActionsFindThemWhereverTheyAre) {
  const std::vector<std::uint64_t> full = {0, 5, 1023, 1024, 2047, 2500, 2999};
  for (const std::uint64_t zone : full) ASSERT_EQ(write(zone, 1), Status::success);
  ASSERT_EQ(send(ZoneSendAction::open, 700), Status::success);
  const Report some = report({.slba = 6, .filter = ZoneReportFilter::full, .bytes = 64 + 2 * 64});
  EXPECT_EQ(some.count, 5u);
  ASSERT_EQ(some.zones.size(), 2u);
  EXPECT_EQ(some.zones[0].zslba, 1023u);
  EXPECT_EQ(some.zones[1].zslba, 1024u);
  EXPECT_EQ(report({.slba = 2048, .filter = ZoneReportFilter::full, .partial = true}).count, 2u);
  EXPECT_EQ(report({.slba = 701, .filter = ZoneReportFilter::explicitly_opened}).count, 0u);
  EXPECT_EQ(report({.slba = 1, .filter = ZoneReportFilter::empty, .bytes = 64}).count, kMany - full.size() - 1);
  EXPECT_EQ(report({.slba = 2998}).count, 2u);
  ASSERT_EQ(send(ZoneSendAction::close, 0, true), Status::success);
  EXPECT_EQ(report({.filter = ZoneReportFilter::closed}).zones.at(0).zslba, 700u);
  ASSERT_EQ(send(ZoneSendAction::reset, 0, true), Status::success);
  EXPECT_EQ(report({.filter = ZoneReportFilter::empty, .bytes = 64}).count, kMany);
}

TEST_F(ZnsTest, FieldsOfReceive) {
  EXPECT_EQ(report({.slba = start(kZones)}).status, Status::lba_out_of_range);
  EXPECT_EQ(report({.filter = static_cast<ZoneReportFilter>(8)}).status, Status::invalid_field);
  Sqe sqe = report_command({});
  sqe.cdw13 = 2;
  Buffer target = buffer(8192);
  EXPECT_EQ(io(target.attach(sqe, 8192)), Status::invalid_field);
  sqe = report_command({});
  sqe.cdw12 = (256 << 10) / 4 - 1;
  EXPECT_EQ(io(sqe), Status::invalid_field) << "more than MDTS";
}

// Times beside the model's: a device that takes 10 us for a write of one unit.
class ZoneTimesTest : public ZnsTest {
 protected:
  ZoneTimesTest()
      : ZnsTest(zoned_device([](DeviceConfig& config) {
          ZonedConfig& zoned = config.subsystem.namespaces[1].zoned;
          zoned.open_ns = 100'000;
          zoned.close_ns = 200'000;
          zoned.append_ns = 300'000;
          zoned.finish_empty_ns = 400'000;
          zoned.finish_ns = {1'000'000, 9'000'000};
          zoned.reset_ns = {1'000'000, 5'000'000};
          zoned.reset_finished_ns = {2'000'000, 10'000'000};
        })) {}
  // How long a command takes, to the next 20 us.
  std::uint64_t time(const Sqe& sqe) {
    QueuePair& pair = queue();
    const std::uint64_t before_ns = device.now_ns();
    pair.submit() = sqe;
    pair.ring_sq();
    const auto done = wait(pair, 1);
    EXPECT_EQ(done.size(), 1u);
    if (!done.empty()) {
      EXPECT_EQ(status_of(done[0]), Status::success);
    }
    return (device.now_ns() - before_ns) / 20'000 * 20'000;
  }
  std::uint64_t time(ZoneSendAction action, std::uint32_t zone) { return time(send_command(action, start(zone))); }
};

TEST_F(ZoneTimesTest, ActionsTakeWhatTheProfileSays) {
  Buffer data = buffer(4096);
  EXPECT_EQ(time(ZoneSendAction::open, 1), 100'000u);
  EXPECT_EQ(time(ZoneSendAction::close, 1), 200'000u);
  EXPECT_EQ(time(data.attach(append_command(start(2), 1), 4096)), 300'000u);
  EXPECT_EQ(time(ZoneSendAction::finish, 3), 400'000u) << "nothing was written";
  EXPECT_EQ(time(ZoneSendAction::reset, 3), 2'000'000u);
  ASSERT_EQ(write(start(4), kZoneCapacity / 2), Status::success);
  EXPECT_EQ(time(ZoneSendAction::finish, 4), 5'000'000u);
  EXPECT_EQ(time(ZoneSendAction::reset, 4), 6'000'000u) << "half of it was written before it was finished";
  ASSERT_EQ(write(start(5), kZoneCapacity), Status::success);
  EXPECT_EQ(time(ZoneSendAction::reset, 5), 5'000'000u);
  EXPECT_EQ(time(ZoneSendAction::reset, 5), 1'000'000u) << "an empty one";
}

}  // namespace
}  // namespace flashmob::conformance
