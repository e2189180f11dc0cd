// Every transition of the zone state machine (Zoned Namespace Command Set 1.1, Figure 6), every one that is illegal
// with its status, and the limits on open and active zones.
#include "command_set/zns/zones.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>

#include "base/rng.h"
#include "command_set/zns/zone_times.h"

namespace flashmob::zns {
namespace {

using nvme::Status;
using nvme::ZoneState;

constexpr std::uint64_t kZone = 16, kCapacity = 12;
constexpr std::array kStates = {ZoneState::empty,  ZoneState::implicitly_opened, ZoneState::explicitly_opened,
                                ZoneState::closed, ZoneState::read_only,         ZoneState::full,
                                ZoneState::offline};

Geometry geometry(std::uint32_t max_open = 0, std::uint32_t max_active = 0, std::uint32_t extension_bytes = 64) {
  return {.zone_blocks = kZone,
          .capacity_blocks = kCapacity,
          .zones = 8,
          .max_open = max_open,
          .max_active = max_active,
          .extension_bytes = extension_bytes};
}

// Brings zone 1 to a state, with two blocks written where that state can have any.
void bring(Zones& zones, ZoneState state) {
  const std::uint64_t first = zones.start_of(1);
  switch (state) {
    case ZoneState::empty:
      return;
    case ZoneState::implicitly_opened:
      ASSERT_EQ(zones.write(first, 2), Status::success);
      return;
    case ZoneState::explicitly_opened:
      ASSERT_EQ(zones.write(first, 2), Status::success);
      ASSERT_EQ(zones.open(1), Status::success);
      return;
    case ZoneState::closed:
      ASSERT_EQ(zones.write(first, 2), Status::success);
      ASSERT_EQ(zones.close(1), Status::success);
      return;
    case ZoneState::full:
      ASSERT_EQ(zones.write(first, kCapacity), Status::success);
      return;
    case ZoneState::read_only:
      zones.fail_read_only(1);
      return;
    case ZoneState::offline:
      zones.fail_offline(1);
      return;
  }
}

struct Step {
  Status status;
  ZoneState state;  // after it
};
using Table = std::map<ZoneState, Step>;

void expect_table(const char* what, const std::function<Status(Zones&)>& act, const Table& table) {
  ASSERT_EQ(table.size(), kStates.size());
  for (const auto& [from, step] : table) {
    Zones zones(geometry());
    bring(zones, from);
    EXPECT_EQ(act(zones), step.status) << what << " from state " << static_cast<int>(from);
    EXPECT_EQ(zones.zone(1).state, step.state) << what << " from state " << static_cast<int>(from);
  }
}

constexpr auto kIllegal = Status::invalid_zone_state_transition;

TEST(Zones, Open) {
  expect_table("open", [](Zones& z) { return z.open(1); },
               {{ZoneState::empty, {Status::success, ZoneState::explicitly_opened}},
                {ZoneState::implicitly_opened, {Status::success, ZoneState::explicitly_opened}},
                {ZoneState::explicitly_opened, {Status::success, ZoneState::explicitly_opened}},
                {ZoneState::closed, {Status::success, ZoneState::explicitly_opened}},
                {ZoneState::full, {kIllegal, ZoneState::full}},
                {ZoneState::read_only, {kIllegal, ZoneState::read_only}},
                {ZoneState::offline, {kIllegal, ZoneState::offline}}});
}

TEST(Zones, Close) {
  expect_table("close", [](Zones& z) { return z.close(1); },
               {{ZoneState::empty, {kIllegal, ZoneState::empty}},
                {ZoneState::implicitly_opened, {Status::success, ZoneState::closed}},
                {ZoneState::explicitly_opened, {Status::success, ZoneState::closed}},
                {ZoneState::closed, {Status::success, ZoneState::closed}},
                {ZoneState::full, {kIllegal, ZoneState::full}},
                {ZoneState::read_only, {kIllegal, ZoneState::read_only}},
                {ZoneState::offline, {kIllegal, ZoneState::offline}}});
}

TEST(Zones, Finish) {
  expect_table("finish", [](Zones& z) { return z.finish(1); },
               {{ZoneState::empty, {Status::success, ZoneState::full}},
                {ZoneState::implicitly_opened, {Status::success, ZoneState::full}},
                {ZoneState::explicitly_opened, {Status::success, ZoneState::full}},
                {ZoneState::closed, {Status::success, ZoneState::full}},
                {ZoneState::full, {Status::success, ZoneState::full}},
                {ZoneState::read_only, {kIllegal, ZoneState::read_only}},
                {ZoneState::offline, {kIllegal, ZoneState::offline}}});
}

TEST(Zones, Reset) {
  expect_table("reset", [](Zones& z) { return z.reset(1); },
               {{ZoneState::empty, {Status::success, ZoneState::empty}},
                {ZoneState::implicitly_opened, {Status::success, ZoneState::empty}},
                {ZoneState::explicitly_opened, {Status::success, ZoneState::empty}},
                {ZoneState::closed, {Status::success, ZoneState::empty}},
                {ZoneState::full, {Status::success, ZoneState::empty}},
                {ZoneState::read_only, {kIllegal, ZoneState::read_only}},
                {ZoneState::offline, {kIllegal, ZoneState::offline}}});
}

TEST(Zones, Offline) {
  expect_table("offline", [](Zones& z) { return z.set_offline(1); },
               {{ZoneState::empty, {kIllegal, ZoneState::empty}},
                {ZoneState::implicitly_opened, {kIllegal, ZoneState::implicitly_opened}},
                {ZoneState::explicitly_opened, {kIllegal, ZoneState::explicitly_opened}},
                {ZoneState::closed, {kIllegal, ZoneState::closed}},
                {ZoneState::full, {kIllegal, ZoneState::full}},
                {ZoneState::read_only, {Status::success, ZoneState::offline}},
                {ZoneState::offline, {Status::success, ZoneState::offline}}});
}

TEST(Zones, SetDescriptorExtension) {
  const std::array<std::byte, 64> extension{std::byte{7}};
  expect_table("set extension", [&](Zones& z) { return z.set_extension(1, extension); },
               {{ZoneState::empty, {Status::success, ZoneState::closed}},
                {ZoneState::implicitly_opened, {kIllegal, ZoneState::implicitly_opened}},
                {ZoneState::explicitly_opened, {kIllegal, ZoneState::explicitly_opened}},
                {ZoneState::closed, {kIllegal, ZoneState::closed}},
                {ZoneState::full, {kIllegal, ZoneState::full}},
                {ZoneState::read_only, {kIllegal, ZoneState::read_only}},
                {ZoneState::offline, {kIllegal, ZoneState::offline}}});
}

TEST(Zones, WriteAndAppendAtTheWritePointer) {
  const Table table = {{ZoneState::empty, {Status::success, ZoneState::implicitly_opened}},
                       {ZoneState::implicitly_opened, {Status::success, ZoneState::implicitly_opened}},
                       {ZoneState::explicitly_opened, {Status::success, ZoneState::explicitly_opened}},
                       {ZoneState::closed, {Status::success, ZoneState::implicitly_opened}},
                       {ZoneState::full, {Status::zone_is_full, ZoneState::full}},
                       {ZoneState::read_only, {Status::zone_is_read_only, ZoneState::read_only}},
                       {ZoneState::offline, {Status::zone_is_offline, ZoneState::offline}}};
  expect_table("write", [](Zones& z) { return z.write(z.start_of(1) + z.zone(1).written, 1); }, table);
  expect_table(
      "append",
      [](Zones& z) {
        const std::uint64_t wp = z.start_of(1) + z.zone(1).written;
        std::uint64_t first = 0;
        const Status status = z.append(z.start_of(1), 1, first);
        if (status == Status::success) {
          EXPECT_EQ(first, wp);
        }
        return status;
      },
      table);
}

TEST(Zones, TheLastBlockOfTheCapacityFillsAZone) {
  for (const ZoneState from :
       {ZoneState::empty, ZoneState::implicitly_opened, ZoneState::explicitly_opened, ZoneState::closed}) {
    Zones zones(geometry());
    bring(zones, from);
    const std::uint64_t written = zones.zone(1).written;
    EXPECT_EQ(zones.write(zones.start_of(1) + written, kCapacity - written), Status::success);
    EXPECT_EQ(zones.zone(1).state, ZoneState::full);
    EXPECT_EQ(zones.active_zones(), 0u);
  }
}

TEST(Zones, WritesElsewhereThanAtTheWritePointerChangeNothing) {
  Zones zones(geometry());
  ASSERT_EQ(zones.write(kZone, 4), Status::success);
  EXPECT_EQ(zones.write(kZone, 1), Status::zone_invalid_write);
  EXPECT_EQ(zones.write(kZone + 5, 1), Status::zone_invalid_write);
  EXPECT_EQ(zones.write(2 * kZone + 1, 1), Status::zone_invalid_write) << "an empty zone begins at its start";
  EXPECT_EQ(zones.write(kZone + 4, kCapacity - 3), Status::zone_boundary_error);
  EXPECT_EQ(zones.write(2 * kZone, kZone), Status::zone_boundary_error) << "the capacity ends before the zone";
  std::uint64_t first = 0;
  EXPECT_EQ(zones.append(kZone, kCapacity - 3, first), Status::zone_boundary_error);
  EXPECT_EQ(zones.append(kZone + 1, 1, first), Status::invalid_field) << "an append names the zone by its first block";
  EXPECT_EQ(zones.zone(1).written, 4u);
  EXPECT_EQ(zones.zone(2).state, ZoneState::empty);
}

// The write pointer of a zone that is full, with all of it to be written, is the next zone's first block.
TEST(Zones, AnAppendToAFullZoneDoesNotGoToTheNextOne) {
  Geometry whole = geometry();
  whole.capacity_blocks = kZone;
  whole.zones = 2;
  for (const std::uint32_t last : {0u, 1u}) {
    Zones zones(whole);
    const std::uint64_t zslba = zones.start_of(last);
    ASSERT_EQ(zones.write(zslba, kZone), Status::success);
    std::uint64_t first = zslba;
    EXPECT_EQ(zones.append(zslba, 1, first), Status::zone_is_full);
    EXPECT_EQ(first, zslba);
    EXPECT_EQ(zones.zone(1 - last).state, ZoneState::empty);
    EXPECT_EQ(zones.zone(1 - last).written, 0u);
    ASSERT_EQ(zones.reset(last), Status::success);
    ASSERT_EQ(zones.append(zslba, kZone, first), Status::success) << "an append may fill a zone";
    EXPECT_EQ(zones.append(zslba, 1, first), Status::zone_is_full);
  }
}

TEST(Zones, ReadsMeetBoundariesAndOfflineZones) {
  Zones zones(geometry());
  EXPECT_EQ(zones.check_read(0, 2 * kZone, true), Status::success) << "blocks that were never written are read, too";
  EXPECT_EQ(zones.check_read(kZone - 1, 2, false), Status::zone_boundary_error);
  EXPECT_EQ(zones.check_read(0, kZone, false), Status::success);
  zones.fail_read_only(2);
  EXPECT_EQ(zones.check_read(kZone, 2 * kZone, true), Status::success);
  zones.fail_offline(2);
  EXPECT_EQ(zones.check_read(kZone, 2 * kZone, true), Status::zone_is_offline);
  EXPECT_EQ(zones.check_read(kZone, kZone, true), Status::success);
}

TEST(Zones, AnImplicitlyOpenedZoneIsClosedForAnother) {
  Zones zones(geometry(2, 5));
  ASSERT_EQ(zones.write(0, 1), Status::success);
  ASSERT_EQ(zones.write(kZone, 1), Status::success);
  ASSERT_EQ(zones.write(1, 1), Status::success) << "that it is written again makes it no younger";
  ASSERT_EQ(zones.write(2 * kZone, 1), Status::success);
  EXPECT_EQ(zones.zone(0).state, ZoneState::closed) << "the one that was opened first";
  EXPECT_EQ(zones.zone(1).state, ZoneState::implicitly_opened);
  EXPECT_EQ(zones.open_zones(), 2u);
  EXPECT_EQ(zones.active_zones(), 3u);
  ASSERT_EQ(zones.open(3), Status::success);
  EXPECT_EQ(zones.zone(1).state, ZoneState::closed);
  ASSERT_EQ(zones.open(4), Status::success);
  EXPECT_EQ(zones.zone(2).state, ZoneState::closed);
  EXPECT_EQ(zones.write(5 * kZone, 1), Status::too_many_active_zones);
  EXPECT_EQ(zones.write(2, 1), Status::too_many_open_zones) << "nobody closes what hosts have opened";
  EXPECT_EQ(zones.zone(0).written, 2u);
}

TEST(Zones, ActiveZonesAreLimited) {
  Zones zones(geometry(2, 2));
  const std::array<std::byte, 64> extension{};
  ASSERT_EQ(zones.write(0, 1), Status::success);
  ASSERT_EQ(zones.set_extension(1, extension), Status::success);
  EXPECT_EQ(zones.open(2), Status::too_many_active_zones);
  EXPECT_EQ(zones.set_extension(2, extension), Status::too_many_active_zones);
  EXPECT_EQ(zones.write(2 * kZone, kCapacity), Status::too_many_active_zones) << "though it would be full at once";
  ASSERT_EQ(zones.finish(1), Status::success);
  EXPECT_EQ(zones.open(2), Status::success);
  EXPECT_EQ(zones.finish(3), Status::success) << "a zone that becomes full without being open takes no resources";
}

TEST(Zones, OpenAllOpensAllOrNone) {
  Zones zones(geometry(3, 6));
  for (std::uint32_t zone = 0; zone < 4; ++zone) ASSERT_EQ(zones.write(zone * kZone, 1), Status::success);
  ASSERT_EQ(zones.close(1), Status::success);
  ASSERT_EQ(zones.zone(0).state, ZoneState::closed);
  EXPECT_EQ(zones.open_all(), Status::too_many_open_zones);
  EXPECT_EQ(zones.zone(0).state, ZoneState::closed);
  ASSERT_EQ(zones.finish(3), Status::success);
  EXPECT_EQ(zones.open_all(), Status::success);
  EXPECT_EQ(zones.zone(0).state, ZoneState::explicitly_opened);
  EXPECT_EQ(zones.zone(1).state, ZoneState::explicitly_opened);
  EXPECT_EQ(zones.zone(2).state, ZoneState::implicitly_opened) << "Open of all is for those that are closed";
}

TEST(Zones, SelectAllIsForTheStatesThatTheActionNames) {
  using nvme::ZoneSendAction;
  const std::map<ZoneSendAction, std::vector<ZoneState>> selected = {
      {ZoneSendAction::close, {ZoneState::implicitly_opened, ZoneState::explicitly_opened}},
      {ZoneSendAction::finish, {ZoneState::implicitly_opened, ZoneState::explicitly_opened, ZoneState::closed}},
      {ZoneSendAction::open, {ZoneState::closed}},
      {ZoneSendAction::reset,
       {ZoneState::implicitly_opened, ZoneState::explicitly_opened, ZoneState::closed, ZoneState::full}},
      {ZoneSendAction::offline, {ZoneState::read_only}},
  };
  for (const auto& [action, states] : selected) {
    for (const ZoneState state : kStates) {
      Zones zones(geometry());
      bring(zones, state);
      const bool expected = std::find(states.begin(), states.end(), state) != states.end();
      EXPECT_EQ(zones.next(Zones::selected(action), 1) == 1, expected)
          << static_cast<int>(action) << " " << static_cast<int>(state);
    }
  }
}

// The zones of given states are found and counted as one finds them by looking at all.
TEST(Zones, ZonesOfAStateAreFoundWithoutTheOthers) {
  for (const std::uint32_t count : {1u, 63u, 64u, 1024u, 2500u}) {
    Geometry many = geometry();
    many.zones = count;
    Zones zones(many);
    Rng rng(count);
    const auto expect_alike = [&] {
      for (int i = 0; i < 50; ++i) {
        const auto states = static_cast<StateMask>(rng.below(kAllStates + 1u));
        const auto from = static_cast<std::uint32_t>(rng.below(count + 1));
        std::uint32_t found = Zones::kNone, all = 0;
        for (std::uint32_t index = count; index-- > from;) {
          if ((mask_of(zones.zone(index).state) & states) == 0) continue;
          found = index;
          ++all;
        }
        ASSERT_EQ(zones.next(states, from), found) << unsigned{states} << " from " << from << " of " << count;
        ASSERT_EQ(zones.count_from(states, from), all) << unsigned{states} << " from " << from << " of " << count;
      }
    };
    expect_alike();
    for (int step = 0; step < 40; ++step) {
      const auto index = static_cast<std::uint32_t>(rng.below(count));
      const std::uint64_t pointer = zones.start_of(index) + zones.zone(index).written;
      (void)(rng.below(2) != 0 ? zones.write(pointer, 1 + rng.below(kCapacity)) : zones.open(index));
      const auto other = static_cast<std::uint32_t>(rng.below(count));
      (void)(rng.below(2) != 0 ? zones.finish(other) : zones.close(other));
      if (rng.below(4) == 0) zones.fail_read_only(static_cast<std::uint32_t>(rng.below(count)));
      if (rng.below(8) == 0) zones.fail_offline(static_cast<std::uint32_t>(rng.below(count)));
      if (rng.below(2) == 0) (void)zones.reset(index);
    }
    expect_alike();
    zones.restart();
    EXPECT_EQ(zones.count_from(mask_of(ZoneState::empty), 0), count);
    expect_alike();
  }
}

TEST(Zones, ChangesOfTheControllersOwnAccordAreListed) {
  Zones zones(geometry());
  zones.fail_offline(5);
  zones.fail_read_only(2);
  zones.fail_read_only(2);
  EXPECT_EQ(zones.changed(true), (std::vector<std::uint32_t>{2, 5}));
  EXPECT_EQ(zones.changed(false), (std::vector<std::uint32_t>{2, 5}));
  EXPECT_TRUE(zones.changed(false).empty());
  ASSERT_EQ(zones.set_offline(2), Status::success);
  EXPECT_TRUE(zones.changed(false).empty()) << "a host knows what it has asked for";
  zones.fail_read_only(5);
  EXPECT_EQ(zones.zone(5).state, ZoneState::offline) << "there is no way back";
}

TEST(Zones, DescriptorsSayWhatIsValid) {
  Zones zones(geometry());
  const std::array<std::byte, 64> extension{std::byte{9}};
  ASSERT_EQ(zones.set_extension(2, extension), Status::success);
  ASSERT_EQ(zones.write(2 * kZone, 3), Status::success);
  nvme::ZoneDescriptor d = zones.descriptor(2);
  EXPECT_EQ(d.zt, 2);
  EXPECT_EQ(d.zs, 0x20);
  EXPECT_EQ(d.za, 0x80);
  EXPECT_EQ(d.zcap, kCapacity);
  EXPECT_EQ(d.zslba, 2 * kZone);
  EXPECT_EQ(d.wp, 2 * kZone + 3);
  EXPECT_EQ(zones.extension(2)[0], std::byte{9});
  ASSERT_EQ(zones.finish(2), Status::success);
  EXPECT_EQ(zones.descriptor(2).wp, UINT64_MAX);
  ASSERT_EQ(zones.reset(2), Status::success);
  d = zones.descriptor(2);
  EXPECT_EQ(d.zs, 0x10);
  EXPECT_EQ(d.za, 0);
  EXPECT_EQ(d.wp, 2 * kZone);
}

TEST(Zones, AFormatRestartsThem) {
  Zones zones(geometry(2, 2));
  ASSERT_EQ(zones.write(0, 1), Status::success);
  ASSERT_EQ(zones.open(1), Status::success);
  zones.fail_offline(3);
  zones.restart();
  EXPECT_EQ(zones.active_zones(), 0u);
  EXPECT_EQ(zones.offline_zones(), 0u);
  for (std::uint32_t zone = 0; zone < 8; ++zone) EXPECT_EQ(zones.zone(zone).state, ZoneState::empty);
  EXPECT_EQ(zones.write(0, 1), Status::success);
  EXPECT_EQ(zones.write(kZone, 1), Status::success);
}

TEST(ZoneTimes, FollowTheShareThatWasWritten) {
  EXPECT_EQ(ShareTime({5}).at(0.3), 5u);
  const ShareTime line({1000, 3000});
  EXPECT_EQ(line.at(0), 1000u);
  EXPECT_EQ(line.at(0.25), 1500u);
  EXPECT_EQ(line.at(1), 3000u);
  const ShareTime measured({100, 200, 300, 500, 900, 1700});
  EXPECT_EQ(measured.at(0), 100u);
  EXPECT_EQ(measured.at(1.0 / 16), 200u);
  EXPECT_EQ(measured.at(3.0 / 32), 250u);
  EXPECT_EQ(measured.at(1.0 / 4), 500u);
  EXPECT_EQ(measured.at(3.0 / 4), 1300u);
  EXPECT_EQ(measured.at(1), 1700u);
  const ZoneTimes times{.finish_empty_ns = 13,
                        .finish = ShareTime({100, 900}),
                        .reset = ShareTime({10, 20}),
                        .reset_finished = ShareTime({30, 50}),
                        .capacity_blocks = kCapacity};
  Zones zones(geometry());
  EXPECT_EQ(times.of_finish(zones.zone(0)), 13u);
  ASSERT_EQ(zones.write(0, kCapacity / 2), Status::success);
  EXPECT_EQ(times.of_finish(zones.zone(0)), 500u);
  EXPECT_EQ(times.of_reset(zones.zone(0)), 15u);
  ASSERT_EQ(zones.finish(0), Status::success);
  EXPECT_EQ(times.of_finish(zones.zone(0)), 0u) << "it is full already";
  EXPECT_EQ(times.of_reset(zones.zone(0)), 40u);
}

}  // namespace
}  // namespace flashmob::zns
