// What limits the simple model beside its instances: the link and the directions' byte rates; and writes that a buffer
// answers before they are served (docs/decisions/0009).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "timing/model.h"
#include "timing/simple_params.h"
#include "timing/simple_test_support.h"

namespace flashmob::timing {
namespace {

Demand transfer_of(std::uint64_t offset, std::uint64_t bytes, std::uint32_t unit_bytes, DemandKind kind) {
  const std::uint64_t first = offset / unit_bytes;
  return {
      first, static_cast<std::uint32_t>((offset + bytes - 1) / unit_bytes - first + 1), kind, {}, sectors_of(bytes)};
}

std::vector<std::unique_ptr<TimingModel>> three_forms(TimingConfig config) {
  std::vector<std::unique_ptr<TimingModel>> models;
  for (const bool shared : {false, true}) models.push_back(make_model(config, shared));
  config.per_request_updates = true;
  models.push_back(make_model(config, true));
  return models;
}

// A drive of 10 M IOPS in units of 4 KiB behind 13 GB/s, which carry 3.17 M of them.
TimingConfig linked_config(std::uint32_t instances) {
  TimingConfig config;
  config.read_iops = 10e6;
  config.write_iops = 5e6;
  config.read_latency_ns = 27'000;
  config.write_latency_ns = 15'000;
  config.instances = instances;
  config.unit_bytes = 4096;
  config.link_bytes_per_s = 13'000'000'000;
  return config;
}

std::uint64_t one_target(TimingModel& model, const Demand& demand, std::uint64_t now_ns) {
  std::uint64_t target = 0;
  model.schedule({&demand, 1}, now_ns, {&target, 1});
  return target;
}

// Requests per second of a device that always has work, once its first answers have come.
double saturated_rate(TimingModel& model, std::uint64_t bytes, std::uint32_t unit_bytes, DemandKind kind,
                      std::uint64_t latency_ns) {
  constexpr std::uint64_t kRequests = 100'000;
  constexpr std::size_t kBatch = 100;
  std::vector<Demand> batch(kBatch);
  std::vector<std::uint64_t> targets(kBatch);
  std::uint64_t last = 0;
  for (std::uint64_t done = 0; done < kRequests; done += kBatch) {
    for (std::size_t i = 0; i < kBatch; ++i) {
      // Requests below a unit lie one in each, so that instances are asked evenly.
      batch[i] = transfer_of((done + i) * std::max<std::uint64_t>(bytes, unit_bytes), bytes, unit_bytes, kind);
    }
    model.schedule(batch, 0, targets);
    last = std::max(last, *std::max_element(targets.begin(), targets.end()));
  }
  return static_cast<double>(kRequests) * 1e9 / static_cast<double>(last - latency_ns);
}

TEST(SimpleLink, ThroughputIsTheSmallerOfRateAndLink) {
  for (const std::uint32_t instances : {1u, 8u}) {
    for (const std::uint64_t bytes : {512u, 1024u, 2048u, 4096u, 8192u, 131'072u, 1u << 20}) {
      const TimingConfig config = linked_config(instances);
      for (const DemandKind kind : {DemandKind::read, DemandKind::write}) {
        const bool is_read = kind == DemandKind::read;
        const double units = static_cast<double>(std::max<std::uint64_t>(bytes, 4096)) / 4096;
        const double rate = (is_read ? config.read_iops : config.write_iops) / units;
        const double expected =
            std::min(rate, static_cast<double>(config.link_bytes_per_s) / static_cast<double>(bytes));
        for (auto& model : three_forms(config)) {
          const double achieved = saturated_rate(*model, bytes, config.unit_bytes, kind,
                                                 is_read ? config.read_latency_ns : config.write_latency_ns);
          EXPECT_NEAR(achieved / expected, 1.0, 2e-4) << model->describe() << ", " << bytes << " bytes";
        }
      }
    }
  }
}

TEST(SimpleLink, EachDirectionHasTheSmallerOfItsOwnAndTheLinksLimit) {
  TimingConfig config = linked_config(1);
  config.write_bytes_per_s = 4'000'000'000;
  for (auto& model : three_forms(config)) {
    EXPECT_NEAR(saturated_rate(*model, 131'072, 4096, DemandKind::write, 15'000) * 131'072, 4e9, 1e6);
    model->reset();
    EXPECT_NEAR(saturated_rate(*model, 131'072, 4096, DemandKind::read, 27'000) * 131'072, 13e9, 3e6);
    EXPECT_NE(model->describe().find("writes up to 4000000000 bytes/s"), std::string::npos);
  }
  config.link_bytes_per_s = 0;
  for (auto& model : three_forms(config))
    EXPECT_NEAR(saturated_rate(*model, 131'072, 4096, DemandKind::read, 27'000) * 131'072, 10e6 * 4096, 1e7);
}

TEST(SimpleLink, TheDirectionsDoNotWaitForEachOther) {
  for (auto& model : three_forms(linked_config(8))) {
    const std::vector<Demand> writes(1000, transfer_of(0, 131'072, 4096, DemandKind::write));
    std::vector<std::uint64_t> targets(writes.size());
    model->schedule(writes, 0, targets);
    // The instances are free again long before the link has carried 131 MB.
    const std::uint64_t now = targets.back() - 100'000;
    EXPECT_EQ(one_target(*model, transfer_of(0, 4096, 4096, DemandKind::read), now), now + 27'000);
    EXPECT_GT(one_target(*model, transfer_of(0, 4096, 4096, DemandKind::write), now), now + 90'000);
  }
}

TEST(SimpleLink, AnIdleDeviceAnswersAUnitAfterItsLatencyAndMoreWhenItHasCrossed) {
  for (auto& model : three_forms(linked_config(8))) {
    std::uint64_t now = 1'000'000;
    for (const std::uint64_t bytes : {512u, 2048u, 4096u}) {
      EXPECT_EQ(one_target(*model, transfer_of(0, bytes, 4096, DemandKind::read), now), now + 27'000) << bytes;
      now += 1'000'000;
    }
    // 1 MiB less one unit takes 80.34 us at 13 GB/s; the instances serve it in 24.8 us.
    const std::uint64_t target = one_target(*model, transfer_of(0, 1 << 20, 4096, DemandKind::read), now);
    EXPECT_NEAR(static_cast<double>(target - now), 27'000 + (1'048'576 - 4'096) / 13.0, 10);
  }
}

TEST(SimpleLink, NothingIsAnsweredBeforeItHasCrossed) {
  TimingConfig config = linked_config(1);
  config.link_bytes_per_s = 1'000'000;  // 4 KiB take 4.1 ms, far more than the latency
  for (auto& model : three_forms(config)) {
    EXPECT_EQ(one_target(*model, transfer_of(0, 512, 4096, DemandKind::read), 0), 512'000u);
    EXPECT_EQ(one_target(*model, transfer_of(0, 4096, 4096, DemandKind::write), 0), 4'096'000u);
  }
}

TEST(SimpleLink, CommandsWithoutDataDoNotCrossAndAFlushWaitsForWhatDoes) {
  for (auto& model : three_forms(linked_config(1))) {
    const Demand copy{0, 32, DemandKind::write, 0};
    const Demand flush{0, 0, DemandKind::flush, 0};
    const Demand immediate{0, 0, DemandKind::immediate, 0};
    const Demand write = transfer_of(0, 131'072, 4096, DemandKind::write);
    const std::vector<Demand> batch{write, write, flush, immediate};
    std::vector<std::uint64_t> targets(batch.size());
    model->schedule(batch, 0, targets);
    EXPECT_NEAR(static_cast<double>(targets[2]), 2 * 131'072 / 13.0, 20) << model->describe();
    EXPECT_EQ(targets[3], 0u);
    EXPECT_EQ(one_target(*model, copy, 0), 96 * 200u + 15'000 - 200);
    EXPECT_EQ(one_target(*model, flush, 0), targets[2]) << "a flush alone";
  }
}

TEST(BufferedWrite, IsAnsweredBeforeItIsServed) {
  // 38,000 writes per second take 26.3 us each; the buffer answers after 15 us. As a QLC drive would.
  TimingConfig config;
  config.read_iops = 1e6;
  config.write_iops = 38'000;
  config.write_latency_ns = 15'000;
  config.unit_bytes = 4096;
  for (auto& model : three_forms(config)) {
    const Demand write = transfer_of(0, 4096, 4096, DemandKind::write);
    EXPECT_EQ(one_target(*model, write, 1'000'000), 1'015'000u);
    // The second waits until the first has been served, 26'316 ns after it came; then the buffer takes it.
    EXPECT_EQ(one_target(*model, write, 1'015'000), 1'000'000u + 26'316 + 15'000);
    // A flush waits for both to be served, and a read for its turn.
    EXPECT_EQ(one_target(*model, {0, 0, DemandKind::flush, 0}, 1'020'000), 1'052'632u);
    EXPECT_EQ(one_target(*model, transfer_of(0, 4096, 4096, DemandKind::read), 1'020'000), 1'052'632u + 50'000 - 0);
  }
  for (auto& model : three_forms(config)) {
    EXPECT_NEAR(saturated_rate(*model, 4096, 4096, DemandKind::write, 15'000), 38'000, 4);
    model->reset();
    const Demand none{0, 0, DemandKind::immediate, 0};
    EXPECT_EQ(one_target(*model, none, 7), 7u);
  }
}

TEST(BufferedWrite, IsNeverDoneBeforeItsLatency) {
  Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    TimingConfig config;
    config.instances = 1u << rng.below(5);
    config.write_iops = static_cast<double>(1 + rng.below(1'000'000));
    config.write_latency_ns = rng.below(100'000);
    config.read_latency_ns = 1'000'000;
    const auto models = three_forms(config);
    std::uint64_t now = rng.below(2) == 0 ? 0 : rng.below(std::uint64_t{1} << 40);
    for (int i = 0; i < 20; ++i) {
      const Demand write = transfer_of(rng.below(1 << 20) * 512, 512 * (1 + rng.below(64)), 512, DemandKind::write);
      const std::uint64_t target = one_target(*models[0], write, now);
      ASSERT_GE(target, now + config.write_latency_ns);
      for (const auto& model : {models[1].get(), models[2].get()}) ASSERT_EQ(one_target(*model, write, now), target);
      now += rng.below(50'000);
    }
  }
}

// Random batches of everything, for any model.
std::vector<Demand> random_batch(Rng& rng, std::uint32_t instances) {
  std::vector<Demand> batch(rng.below(4) == 0 ? 500 : rng.below(40));
  for (Demand& demand : batch) {
    const std::uint64_t dice = rng.below(100);
    const auto units = static_cast<std::uint32_t>(rng.below(10) < 7 ? 1 : 1 + rng.below(2ull * instances + 9));
    demand.first_unit = rng.below(2) == 0 ? rng.below(4) : rng.next();
    demand.units = units;
    demand.kind = dice < 2    ? DemandKind::flush
                  : dice < 4  ? DemandKind::immediate
                  : dice < 60 ? DemandKind::read
                              : DemandKind::write;
    const bool moves_data = (demand.kind == DemandKind::read || demand.kind == DemandKind::write) && dice % 10 != 0;
    demand.sectors = static_cast<std::uint16_t>(moves_data ? 1 + rng.below(units == 1 ? 8 : 32'768) : 0);
    if (dice < 4) demand.first_unit = demand.units = 0;
  }
  return batch;
}

TEST(SimpleLink, ThreeFormsEqualTheWalkSectorBySector) {
  for (std::uint32_t instances = 1; instances <= 64; instances *= 2) {
    Rng rng(instances);
    // Of the costs, some are 0: a direction without a limit; some latencies are below zero: buffered writes.
    SimpleParams params = make_params(instances, {1 + rng.below(999'999), rng.below(99'999'999)}, {});
    params.cost[static_cast<std::uint8_t>(DemandKind::write)] = {500'000, std::uint64_t{0} - rng.below(500'000)};
    params.link[static_cast<std::uint8_t>(DemandKind::read)] = {rng.below(3) * 4'000, rng.below(99'999'999)};
    params.link[static_cast<std::uint8_t>(DemandKind::write)] = {1 + rng.below(99'999), rng.below(3) * 1'000'000};
    params.has_link = true;
    Oracle oracle(params);
    Forms forms(params);
    std::uint64_t now_ns = rng.below(2) == 0 ? 0 : rng.below(std::uint64_t{1} << 50);
    for (int round = 0; round < 25; ++round) {
      const std::vector<Demand> batch = random_batch(rng, instances);
      ASSERT_EQ(forms.schedule(batch, now_ns), oracle.schedule(batch, now_ns)) << instances << " instances";
      forms.expect_state(oracle.free_at());
      now_ns += rng.below(3) == 0 ? rng.below(100'000'000) : rng.below(1'000);
    }
  }
}

// The parameters as they were computed before there were links and buffered writes.
SimpleParams former_params(const TimingConfig& config) {
  const auto cost = [&](double iops, std::uint64_t latency_ns) {
    const auto service = static_cast<std::uint64_t>(std::llround(1e9 * 1024 * config.instances / iops));
    return SimpleCost{service, latency_ns * 1024 > service ? latency_ns * 1024 - service : 0};
  };
  return make_params(config.instances, cost(config.read_iops, config.read_latency_ns),
                     cost(config.write_iops, config.write_latency_ns));
}

TEST(SimpleLink, WithoutOneTheTargetsAreThoseOfBefore) {
  struct Device {
    double read_iops, write_iops;
    std::uint64_t read_latency_ns, write_latency_ns;
    std::uint32_t instances;
  };
  // The profiles as they were shipped before: d7-ps1010, optane-p4800x, storagenext-10m, -40m, -100m.
  constexpr Device kDevices[] = {{2.47e6, 2.47e6, 50'000, 50'000, 1},
                                 {629'145.6, 524'288.0, 12'000, 14'000, 1},
                                 {10e6, 10e6, 50'000, 50'000, 8},
                                 {40e6, 40e6, 50'000, 50'000, 8},
                                 {100e6, 100e6, 50'000, 50'000, 8}};
  for (const Device& device : kDevices) {
    TimingConfig config;
    config.read_iops = device.read_iops;
    config.write_iops = device.write_iops;
    config.read_latency_ns = device.read_latency_ns;
    config.write_latency_ns = device.write_latency_ns;
    config.instances = device.instances;
    Oracle before(former_params(config));
    const auto models = three_forms(config);
    Rng rng(static_cast<std::uint64_t>(device.read_iops));
    std::uint64_t now_ns = 0;
    for (int round = 0; round < 200; ++round) {
      const std::vector<Demand> batch = random_batch(rng, device.instances);
      const std::vector<std::uint64_t> expected = before.schedule(batch, now_ns);
      for (const auto& model : models) {
        std::vector<std::uint64_t> targets(batch.size());
        model->schedule(batch, now_ns, targets);
        ASSERT_EQ(targets, expected) << model->describe();
      }
      now_ns += rng.below(3) == 0 ? rng.below(1'000'000) : rng.below(1'000);
    }
  }
}

}  // namespace
}  // namespace flashmob::timing
