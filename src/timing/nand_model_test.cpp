// The model `nand` at the seam: its parameters, its times, and what of its state outlives load.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "timing/model.h"
#include "timing/nand/config.h"
#include "timing/registry.h"

namespace flashmob::timing {
namespace {

constexpr std::uint64_t kUnit = 4096;

// One die of one plane: superblocks of 256 units, 500 of them, as in the simulation that nand_test compares with.
TimingConfig one_die(double over_provisioning = 0.15) {
  TimingConfig config;
  config.model = "nand";
  config.unit_bytes = kUnit;
  config.nand.channels = config.nand.dies_per_channel = config.nand.planes = config.nand.bits_per_cell = 1;
  config.nand.word_lines = 64;
  config.nand.read_ns = {50'000};
  config.nand.program_ns = 500'000;
  config.nand.over_provisioning = over_provisioning;
  config.nand.buffer_bytes = 1 << 20;
  return config;
}

std::uint64_t capacity_of(double over_provisioning) {
  return static_cast<std::uint64_t>(496 * 256 / (1 + over_provisioning)) * kUnit;
}

std::uint64_t ask(TimingModel& model, DemandKind kind, std::uint64_t unit, std::uint64_t now_ns) {
  const Demand demand{unit,
                      kind == DemandKind::flush ? 0u : 1u,
                      kind,
                      {},
                      kind == DemandKind::flush ? std::uint16_t{0} : sectors_of(kUnit)};
  std::uint64_t target_ns = 0;
  model.schedule({&demand, 1}, now_ns, {&target_ns, 1});
  return target_ns;
}

std::string complaint(const std::function<void(TimingConfig&)>& change) {
  TimingConfig config = one_die();
  change(config);
  try {
    config.validate();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(NandModel, NamesTheKeyThatIsWrong) {
  EXPECT_EQ(complaint([](TimingConfig&) {}), "");
  const auto expect_key = [](const std::string& key, const std::function<void(NandConfig&)>& change) {
    const std::string text = complaint([&](TimingConfig& config) { change(config.nand); });
    EXPECT_TRUE(text.starts_with("timing.nand." + key + " = ")) << text;
  };
  expect_key("channels", [](NandConfig& nand) { nand.channels = 0; });
  expect_key("dies_per_channel", [](NandConfig& nand) { nand.dies_per_channel = 65; });
  expect_key("page_bytes", [](NandConfig& nand) { nand.page_bytes = 5000; });
  expect_key("bits_per_cell", [](NandConfig& nand) { nand.bits_per_cell = 5; });
  expect_key("over_provisioning", [](NandConfig& nand) { nand.over_provisioning = 0; });
  expect_key("read_ns", [](NandConfig& nand) { nand.read_ns = {1, 2}; });
  expect_key("read_ns", [](NandConfig& nand) { nand.read_ns = {0}; });
  expect_key("program_ns", [](NandConfig& nand) { nand.program_ns = 0; });
  expect_key("program_share", [](NandConfig& nand) { nand.program_share = 2; });
  expect_key("buffer_bytes", [](NandConfig& nand) { nand.buffer_bytes = 3 * 16384; });
  expect_key("victim", [](NandConfig& nand) { nand.victim = "worst"; });
  expect_key("free_superblocks", [](NandConfig& nand) { nand.free_superblocks = 1; });
  EXPECT_TRUE(complaint([](TimingConfig& config) { config.unit_bytes = 32768; }).starts_with("timing.unit_bytes = "));
}

TEST(NandModel, RefusesMoreUnitsThanItMaps) {
  EXPECT_THROW(make_model(one_die(), false, {.capacity_bytes = std::uint64_t{16} << 40}), ConfigError);
}

// Whatever the capacity: the dies that make its speed, enough superblocks to choose from, the same share of erases.
TEST(NandModel, IsScaledToItsCapacity) {
  TimingConfig config;
  config.model = "nand";
  config.unit_bytes = kUnit;
  for (const std::uint64_t capacity : {std::uint64_t{1} << 20, std::uint64_t{1} << 30, std::uint64_t{1} << 40}) {
    const nand::Params params = nand::params_of(config, capacity, 1);
    const nand::Geometry& g = params.geometry;
    EXPECT_EQ(nand::what_is_wrong(params), "");
    EXPECT_EQ(g.dies(), 32u);
    EXPECT_GE(params.capacity_units, capacity / kUnit);
    EXPECT_NEAR(static_cast<double>(params.cells.erase_ns) / g.word_lines,
                static_cast<double>(config.nand.erase_ns) / config.nand.word_lines, 1);
    const double spare = static_cast<double>((g.superblocks - 4) * g.units_per_superblock()) /
                             static_cast<double>(params.capacity_units) -
                         1;
    EXPECT_GE(spare, 0.07 - 1e-9) << capacity;
    if (g.word_lines > 1) {
      EXPECT_GE(g.superblocks, 256u);
      EXPECT_LT(spare, 0.08);
    }
  }
}

TEST(NandModel, AReadIsDoneWhenEveryPartOfItsWayIs) {
  TimingConfig config = one_die();
  config.nand.firmware_ns = 3'000;
  config.nand.correction_ns = 2'000;
  config.nand.channel_bytes_per_s = 1'024'000'000;  // 4 us a unit
  config.link_bytes_per_s = 2'048'000'000;          // 2 us
  const auto model = make_model(config, false, {.capacity_bytes = capacity_of(0.15)});
  model->assume_written(0, 1024, nullptr);
  constexpr std::uint64_t kNow = 1'000'000;
  EXPECT_EQ(ask(*model, DemandKind::read, 5, kNow), kNow + 3'000 + 50'000 + 4'000 + 2'000 + 2'000);
  // The die is one: the next begins when it has sensed.
  EXPECT_EQ(ask(*model, DemandKind::read, 700, kNow), kNow + 3'750 + 50'000 + 49'250 + 4'000 + 2'000 + 2'000);
  // What nobody wrote is known to the map.
  EXPECT_LT(ask(*model, DemandKind::read, 2000, kNow + 1'000'000), kNow + 1'000'000 + 10'000);
  model->set_path_ns(700);
  EXPECT_EQ(ask(*model, DemandKind::read, 5, 5'000'000), 5'000'000u + 61'000 - 700);
}

double steady_write_amplification(TimingModel& model, std::uint64_t units, std::uint64_t hot_units) {
  Rng rng(3);
  std::uint64_t now_ns = 1;
  for (std::uint64_t i = 0; i < 3 * units; ++i)
    now_ns = std::max(now_ns, ask(model, DemandKind::write, rng.below(hot_units), now_ns));
  const FlashCounters before = *model.flash_counters();
  for (std::uint64_t i = 0; i < units; ++i)
    now_ns = std::max(now_ns, ask(model, DemandKind::write, rng.below(hot_units), now_ns));
  return model.flash_counters()->since(before).write_amplification();
}

TEST(NandModel, AmplifiesWritesAsItsSpareSpaceSays) {
  for (const auto& [spare, expected] : {std::pair{0.15, 3.962}, {0.5, 1.706}}) {
    const auto model = make_model(one_die(spare), false, {.capacity_bytes = capacity_of(spare)});
    const std::uint64_t units = capacity_of(spare) / kUnit;
    model->assume_written(0, units, nullptr);
    EXPECT_EQ(model->flash_counters()->host_written_bytes, 0u);
    EXPECT_NEAR(steady_write_amplification(*model, units, units), expected, 0.04 * expected) << spare;
  }
}

TEST(NandModel, TrimmedBlocksAreSpareSpace) {
  const auto model = make_model(one_die(), false, {.capacity_bytes = capacity_of(0.15)});
  const std::uint64_t units = capacity_of(0.15) / kUnit;
  model->assume_written(0, units, nullptr);
  const auto trimmed = model->clone();
  trimmed->deallocate(units / 2, units - units / 2, kAllWrites);
  EXPECT_GT(steady_write_amplification(*model, units, units / 2), 1.4);
  EXPECT_LT(steady_write_amplification(*trimmed, units, units / 2), 1.25);
}

// A trim is carried out after the writes that were fetched behind it.
TEST(NandModel, ATrimLeavesLaterWritesAlone) {
  const auto model = make_model(one_die(), false, {.capacity_bytes = capacity_of(0.15)});
  model->assume_written(0, 40, nullptr);
  const std::uint64_t before = model->writes_scheduled();
  std::uint64_t now_ns = 1;
  for (const std::uint64_t unit : {12, 15, 13, 30})
    now_ns = std::max(now_ns, ask(*model, DemandKind::write, unit, now_ns));
  EXPECT_EQ(model->writes_scheduled(), before + 4);
  const auto unwritten = [&] {
    const std::uint64_t known = model->flash_counters()->unwritten_reads;
    for (std::uint64_t unit = 10; unit < 20; ++unit) now_ns = ask(*model, DemandKind::read, unit, now_ns);
    return model->flash_counters()->unwritten_reads - known;
  };
  model->deallocate(10, 10, before);
  EXPECT_EQ(unwritten(), 7u) << "but for 12, 13 and 15";
  model->deallocate(10, 10, kAllWrites);
  EXPECT_EQ(unwritten(), 10u);
  // One that waits for so long that nobody knows all that came since leaves what is known of it.
  model->assume_written(10, 10, nullptr);
  for (int i = 0; i < 70'000; ++i) now_ns = std::max(now_ns, ask(*model, DemandKind::write, i == 0 ? 11 : 10, now_ns));
  model->deallocate(10, 10, before);
  EXPECT_EQ(unwritten(), 9u) << "but for 10";
}

// Whoever shares the drive is served in the middle of a long Deallocate: it finds the first unit gone and the last one
// there.
TEST(NandModel, ALongDeallocateLetsOthersIn) {
  constexpr std::uint64_t kUnits = 1 << 23;
  constexpr std::uint64_t kSoonNs = 10'000;  // a unit that nobody has written, and none that is sensed
  TimingConfig config;
  config.model = "nand";
  config.unit_bytes = kUnit;
  const auto model = make_model(config, true, {.capacity_bytes = kUnits * kUnit});
  std::uint64_t now_ns = 0;
  bool was_served = false;
  const auto look = [&] {
    now_ns += 1'000'000;
    const std::array<Demand, 2> reads{Demand{0, 1, DemandKind::read, {}, sectors_of(kUnit)},
                                      Demand{kUnits - 1, 1, DemandKind::read, {}, sectors_of(kUnit)}};
    std::array<std::uint64_t, 2> targets_ns{};
    model->schedule(reads, now_ns, targets_ns);
    was_served = targets_ns[0] < now_ns + kSoonNs && targets_ns[1] >= now_ns + kSoonNs;
  };
  for (int round = 0; round < 500 && !was_served; ++round) {
    model->assume_written(0, 1, nullptr);
    model->assume_written(kUnits - 1, 1, nullptr);
    std::atomic<bool> has_begun{false}, is_over{false};
    std::thread other([&] {
      while (!is_over.load() && !was_served) {
        look();
        has_begun.store(true);
        std::this_thread::yield();
      }
    });
    while (!has_begun.load()) std::this_thread::yield();
    model->deallocate(0, kUnits, kAllWrites);
    is_over.store(true);
    other.join();
  }
  EXPECT_TRUE(was_served);
}

TEST(NandModel, ACloneGoesOnFromTheSameState) {
  const auto model = make_model(one_die(), true, {.capacity_bytes = capacity_of(0.15)});
  const std::uint64_t units = capacity_of(0.15) / kUnit;
  model->assume_written(0, units, nullptr);
  Rng rng(7);
  std::uint64_t now_ns = 1;
  for (std::uint64_t i = 0; i < units; ++i)
    now_ns = std::max(now_ns, ask(*model, DemandKind::write, rng.below(units), now_ns));
  const auto clone = model->clone();
  model->reset();
  now_ns = 1;
  for (int i = 0; i < 20'000; ++i) {
    const DemandKind kind = rng.below(2) == 0 ? DemandKind::read : DemandKind::write;
    const std::uint64_t unit = rng.below(units);
    const std::uint64_t target_ns = ask(*model, kind, unit, now_ns);
    ASSERT_EQ(ask(*clone, kind, unit, now_ns), target_ns) << i;
    now_ns += 20'000;
  }
  EXPECT_EQ(clone->flash_counters()->moved_bytes, model->flash_counters()->moved_bytes);
}

TEST(NandModel, TimesOfSeveralThreadsDoNotRunBackwards) {
  const auto model = make_model(one_die(), true, {.capacity_bytes = capacity_of(0.15)});
  EXPECT_GE(ask(*model, DemandKind::write, 1, 2'000'000), 2'000'000u);
  EXPECT_GE(ask(*model, DemandKind::read, 1, 1'999'000), 2'000'000u);
  EXPECT_GE(ask(*model, DemandKind::flush, 0, 1'999'500), 1'999'500u);
}

// A queue as deep as hosts like: all of these come at one time.
TEST(NandModel, TakesAnyNumberOfWritesAtOnce) {
  const auto model = make_model(one_die(), false, {.capacity_bytes = capacity_of(0.15)});
  const std::uint64_t units = capacity_of(0.15) / kUnit;
  std::uint64_t last_ns = 0;
  for (std::uint64_t i = 0; i < 2 * units; ++i) {
    const std::uint64_t target_ns = ask(*model, DemandKind::write, i % units, 1'000);
    ASSERT_GE(target_ns, last_ns);
    last_ns = target_ns;
  }
  // What the die programs in its time, less what the buffer holds.
  const double rows = static_cast<double>(2 * units) / 4 - 64;
  EXPECT_GE(static_cast<double>(last_ns), rows * 500'000);
}

// Four bytes a unit, both ways and 15 % more for one of them: what does not fit into memory is refused before it is
// tried.
TEST(NandModel, SaysWhatItTakesOfMemory) {
  const DeviceShape shape{.capacity_bytes = std::uint64_t{1} << 40};
  const double units = std::ldexp(1.0, 40 - 12);
  const auto least = static_cast<std::uint64_t>(units * 4 * (2 + 0.15));
  TimingConfig config = one_die();
  config.nand.word_lines = 1024;
  check_memory(config, shape, 2, 5 * least / 2);
  check_memory(config, shape, 1, 0);  // nobody knows how much there is
  EXPECT_THROW(check_memory(config, shape, 1, least), ConfigError);
  EXPECT_THROW(check_memory(config, shape, 3, 5 * least / 2), ConfigError);
  check_memory(TimingConfig{}, shape, 1, 1);
}

std::uint64_t write_part(TimingModel& model, std::uint64_t unit, std::uint64_t offset, bool fua, std::uint64_t now_ns) {
  const Demand demand{unit, 1, DemandKind::write, within_unit(offset, 12, fua), 1};
  std::uint64_t target_ns = 0;
  model.schedule({&demand, 1}, now_ns, {&target_ns, 1});
  return target_ns;
}

// Where a Write begins in its unit, and whether it has FUA, reaches the drive.
TEST(NandModel, PartsOfUnitsJoinAndForcedOnesAreProgrammed) {
  TimingConfig config = one_die();
  config.nand.protected_buffer = false;
  const auto model = make_model(config, false, {.capacity_bytes = capacity_of(0.15)});
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_LT(write_part(*model, 3, 512 * i, false, 1'000), 100'000u);
  EXPECT_EQ(model->flash_counters()->write_amplification(), 1);
  EXPECT_LT(write_part(*model, 3, 8 * 512, false, 1'000), 100'000u);
  EXPECT_EQ(model->flash_counters()->joined_bytes, 512u);
  EXPECT_EQ(model->flash_counters()->padded_bytes, 0u);
  EXPECT_GE(write_part(*model, 9, 3 * 512, true, 1'000), 500'000u);
  const FlashCounters counters = *model->flash_counters();
  EXPECT_EQ(counters.padded_bytes, 2 * kUnit);
  EXPECT_EQ(counters.filled_bytes, 7 * 512u);
  EXPECT_EQ(counters.host_written_bytes, 10 * 512u);
  EXPECT_EQ(counters.write_amplification(), 4.0 * kUnit / (10 * 512));
}

TEST(NandModel, UnitsBeyondItsMapAreOthersUnits) {
  const auto model = make_model(one_die(), false, {.capacity_bytes = capacity_of(0.15)});
  const std::uint64_t all = capacity_of(0.15) / kUnit + 256;
  const Demand across{all - 2, 8, DemandKind::write, {}, sectors_of(8 * kUnit)};
  std::uint64_t target_ns = 0;
  model->schedule({&across, 1}, 1'000, {&target_ns, 1});
  EXPECT_EQ(model->flash_counters()->host_written_bytes, 8 * kUnit);
  model->deallocate(3 * all - 2, 4 * all, kAllWrites);
  ask(*model, DemandKind::read, 1, 10'000'000);
  EXPECT_EQ(model->flash_counters()->unwritten_reads, 1u);
}

}  // namespace
}  // namespace flashmob::timing
