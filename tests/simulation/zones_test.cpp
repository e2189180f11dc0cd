// A zoned namespace under random commands, legal and illegal, beside a simple oracle: write pointers, states, limits
// and data, by seed. FLASHMOB_ZONE_SEEDS says how many seeds (default 6 for each number of workers).
#include <algorithm>
#include <cstdlib>
#include <deque>

#include "conformance/zns_fixture.h"

namespace flashmob::conformance {
namespace {

constexpr std::uint32_t kSteps = 400;

std::uint32_t seeds() {
  const char* const wanted = std::getenv("FLASHMOB_ZONE_SEEDS");
  return wanted != nullptr ? static_cast<std::uint32_t>(std::atoi(wanted)) : 6;
}

// What the device should say, written down without any of its code: a list of blocks for each zone.
class Oracle {
 public:
  struct Zone {
    ZoneState state = ZoneState::empty;
    std::vector<std::uint64_t> blocks;  // what was written, by its seed; 0: zeroes
  };

  const Zone& zone(std::uint32_t index) const { return zones_[index]; }
  std::uint64_t wp(std::uint32_t index) const { return index * kZoneBlocks + zones_[index].blocks.size(); }

  Status write(std::uint64_t lba, std::uint32_t count, std::uint64_t seed) {
    return lba + count > kZones * kZoneBlocks ? Status::lba_out_of_range : append(lba, count, seed);
  }
  // The same, where the command does not say how far it goes.
  Status append(std::uint64_t lba, std::uint32_t count, std::uint64_t seed) {
    const auto index = static_cast<std::uint32_t>(lba / kZoneBlocks);
    Zone& zone = zones_[index];
    if (zone.state == ZoneState::full) return Status::zone_is_full;
    if (lba != wp(index)) return Status::zone_invalid_write;
    if (zone.blocks.size() + count > kZoneCapacity) return Status::zone_boundary_error;
    if (!is_open(index))
      if (const Status refused = take_open(index); refused != Status::success) return refused;
    if (zone.state != ZoneState::explicitly_opened && zone.state != ZoneState::implicitly_opened)
      set(index, ZoneState::implicitly_opened);
    for (std::uint32_t i = 0; i < count; ++i) zone.blocks.push_back(seed == 0 ? 0 : seed + i);
    if (zone.blocks.size() == kZoneCapacity) set(index, ZoneState::full);
    return Status::success;
  }

  Status act(ZoneSendAction action, std::uint32_t index) {
    Zone& zone = zones_[index];
    const bool active = is_open(index) || zone.state == ZoneState::closed;
    constexpr auto kIllegal = Status::invalid_zone_state_transition;
    switch (action) {
      case ZoneSendAction::open:
        if (zone.state == ZoneState::full) return kIllegal;
        if (!is_open(index))
          if (const Status refused = take_open(index); refused != Status::success) return refused;
        set(index, ZoneState::explicitly_opened);
        return Status::success;
      case ZoneSendAction::close:
        if (!active) return kIllegal;
        set(index, ZoneState::closed);
        return Status::success;
      case ZoneSendAction::finish:
        set(index, ZoneState::full);
        return Status::success;
      case ZoneSendAction::reset:
        set(index, ZoneState::empty);
        zone.blocks.clear();
        return Status::success;
      default:
        return kIllegal;
    }
  }

  Status act_on_all(ZoneSendAction action) {
    if (action == ZoneSendAction::open && count_open() + count(ZoneState::closed) > kMaxOpen)
      return Status::too_many_open_zones;
    for (std::uint32_t index = 0; index < kZones; ++index) {
      const ZoneState state = zones_[index].state;
      const bool closed = state == ZoneState::closed, full = state == ZoneState::full;
      const bool wanted = action == ZoneSendAction::open     ? closed
                          : action == ZoneSendAction::close  ? is_open(index)
                          : action == ZoneSendAction::finish ? is_open(index) || closed
                          : action == ZoneSendAction::reset  ? is_open(index) || closed || full
                                                             : false;
      if (wanted) {
        EXPECT_EQ(act(action, index), Status::success);
      }
    }
    return Status::success;
  }

  std::vector<std::byte> data(std::uint64_t lba) const {
    const Zone& zone = zones_[lba / kZoneBlocks];
    const std::uint64_t at = lba % kZoneBlocks;
    const bool written = at < zone.blocks.size() && zone.blocks[at] != 0;
    return written ? noise(4096, zone.blocks[at]) : std::vector<std::byte>(4096);
  }
  std::uint32_t count(ZoneState state) const {
    return static_cast<std::uint32_t>(
        std::count_if(zones_.begin(), zones_.end(), [state](const Zone& zone) { return zone.state == state; }));
  }
  std::uint32_t count_open() const { return count(ZoneState::implicitly_opened) + count(ZoneState::explicitly_opened); }

 private:
  bool is_open(std::uint32_t index) const {
    return zones_[index].state == ZoneState::implicitly_opened || zones_[index].state == ZoneState::explicitly_opened;
  }
  Status take_open(std::uint32_t index) {
    if (zones_[index].state != ZoneState::closed && count_open() + count(ZoneState::closed) == kMaxActive)
      return Status::too_many_active_zones;
    if (count_open() < kMaxOpen) return Status::success;
    if (implicit_.empty()) return Status::too_many_open_zones;
    set(implicit_.front(), ZoneState::closed);
    return Status::success;
  }
  void set(std::uint32_t index, ZoneState state) {
    std::erase(implicit_, index);
    zones_[index].state = state;
    if (state == ZoneState::implicitly_opened) implicit_.push_back(index);
  }

  std::vector<Zone> zones_ = std::vector<Zone>(kZones);
  std::deque<std::uint32_t> implicit_;  // in the order in which they were opened
};

DeviceConfig with_workers(std::uint32_t workers) {
  return zoned_device([workers](DeviceConfig& config) { config.engine.workers = workers; });
}

class ZonesUnderLoad : public ZnsTest {
 public:
  ZonesUnderLoad(std::uint32_t workers, std::uint64_t seed) : ZnsTest(with_workers(workers)), rng_(seed) {
    device.shuffle(seed);
  }
  void TestBody() override {
    for (std::uint32_t step = 0; step < kSteps && !HasFailure(); ++step) {
      one_step();
      if (step % 50 == 49) compare_all();
    }
  }

 private:
  void one_step() {
    const auto zone = static_cast<std::uint32_t>(rng_.below(kZones));
    const auto count = static_cast<std::uint32_t>(1 + rng_.below(5));
    switch (rng_.below(12)) {
      case 0:
      case 1:
      case 2: {
        const std::uint64_t lba = rng_.below(8) != 0 ? oracle_.wp(zone) : rng_.below(kZones * kZoneBlocks + 2);
        const std::uint64_t seed = next_seed();
        const Status expected = oracle_.write(lba, count, seed);
        EXPECT_EQ(write_blocks(lba, count, seed), expected) << "Write of " << count << " blocks at " << lba;
        return;
      }
      case 3:
      case 4: {
        const std::uint64_t seed = next_seed(), wp = oracle_.wp(zone);
        const Status expected = oracle_.append(wp, count, seed);
        const Cqe cqe = append_blocks(zone, count, seed);
        EXPECT_EQ(status_of(cqe), expected) << "Append of " << count << " blocks to zone " << zone;
        if (expected == Status::success) {
          EXPECT_EQ(lba_of(cqe), wp);
        }
        return;
      }
      case 5:
        return many_appends(zone);
      case 6: {
        const std::uint64_t wp = oracle_.wp(zone);
        EXPECT_EQ(io(make(NvmOpcode::write_zeroes, kNsZoned, wp, count)), oracle_.write(wp, count, 0))
            << "Write Zeroes to zone " << zone;
        return;
      }
      case 7:
      case 8:
      case 9: {
        const ZoneSendAction action = actions()[rng_.below(actions().size())];
        EXPECT_EQ(send(action, start(zone)), oracle_.act(action, zone)) << static_cast<int>(action) << " zone " << zone;
        return;
      }
      case 10: {
        if (rng_.below(4) != 0) return;
        const ZoneSendAction action = actions()[rng_.below(actions().size())];
        EXPECT_EQ(send(action, 0, true), oracle_.act_on_all(action)) << static_cast<int>(action) << " all zones";
        return;
      }
      default: {
        const std::uint64_t lba = rng_.below(kZones * kZoneBlocks - 8);
        compare(lba, 8);
        return;
      }
    }
  }

  static const std::vector<ZoneSendAction>& actions() {
    static const std::vector<ZoneSendAction> all = {ZoneSendAction::open,   ZoneSendAction::close,
                                                    ZoneSendAction::finish, ZoneSendAction::reset,
                                                    ZoneSendAction::reset,  ZoneSendAction::offline};
    return all;
  }
  std::uint64_t next_seed() { return seed_ += 100; }

  static void fill(Buffer& source, std::uint64_t seed) {
    for (std::size_t at = 0; at < source.size(); at += 4096) source.store(noise(4096, seed + at / 4096), at);
  }
  Status write_blocks(std::uint64_t lba, std::uint32_t count, std::uint64_t seed) {
    Buffer source = buffer(std::size_t{count} * 4096);
    fill(source, seed);
    return io(source.attach(make(NvmOpcode::write, kNsZoned, lba, count), source.size()));
  }
  Cqe append_blocks(std::uint32_t zone, std::uint32_t count, std::uint64_t seed) {
    Buffer source = buffer(std::size_t{count} * 4096);
    fill(source, seed);
    return run(source.attach(append_command(start(zone), count), source.size()));
  }

  // Appends that meet each other: which block goes where is the device's to say, and each goes to one place.
  void many_appends(std::uint32_t zone) {
    const std::uint64_t seed = next_seed();
    constexpr std::uint16_t kMany = 6;
    Buffer source = buffer(std::size_t{kMany} * 4096);
    fill(source, seed);
    QueuePair& pair = queue();
    for (std::uint16_t i = 0; i < kMany; ++i) {
      Sqe sqe = source.attach(append_command(start(zone), 1), 4096, std::size_t{i} * 4096);
      sqe.cid = static_cast<std::uint16_t>(0x4000 + i);
      pair.submit() = sqe;
    }
    pair.ring_sq();
    std::vector<std::pair<std::uint64_t, std::uint64_t>> landed;
    std::vector<Status> refused;
    for (const Cqe& cqe : wait(pair, kMany)) {
      if (status_of(cqe) == Status::success)
        landed.emplace_back(lba_of(cqe), seed + (cqe.cid - 0x4000u));
      else
        refused.push_back(status_of(cqe));
    }
    std::sort(landed.begin(), landed.end());
    for (const auto& [lba, block] : landed) {
      EXPECT_EQ(lba, oracle_.wp(zone));
      EXPECT_EQ(oracle_.write(oracle_.wp(zone), 1, block), Status::success);
    }
    EXPECT_EQ(landed.size() + refused.size(), kMany);
    for (const Status status : refused) EXPECT_EQ(oracle_.write(oracle_.wp(zone), 1, 1), status);
  }

  void compare(std::uint64_t lba, std::uint32_t count) {
    const auto [status, found] = read_data(lba, count);
    ASSERT_EQ(status, Status::success);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::vector<std::byte> expected = oracle_.data(lba + i);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), found.begin() + i * 4096)) << "block " << lba + i;
    }
  }

  void compare_all() {
    const Report all = report({});
    ASSERT_EQ(all.zones.size(), kZones);
    for (std::uint32_t i = 0; i < kZones; ++i) {
      EXPECT_EQ(static_cast<ZoneState>(all.zones[i].zs >> 4), oracle_.zone(i).state) << "zone " << i;
      const bool has_pointer = oracle_.zone(i).state != ZoneState::full;
      EXPECT_EQ(all.zones[i].wp, has_pointer ? oracle_.wp(i) : nvme::kNoWritePointer) << "zone " << i;
      compare(start(i), kZoneBlocks);
    }
    EXPECT_LE(oracle_.count_open(), kMaxOpen);
  }

  Rng rng_;
  Oracle oracle_;
  std::uint64_t seed_ = 1;
};

class ZoneSeeds : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(ZoneSeeds, TheDeviceDoesWhatTheOracleSays) {
  for (std::uint64_t seed = 1; seed <= seeds() && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ZonesUnderLoad load(GetParam(), seed);
    load.TestBody();
  }
}
INSTANTIATE_TEST_SUITE_P(Workers, ZoneSeeds, ::testing::Values(0u, 2u));

}  // namespace
}  // namespace flashmob::conformance
