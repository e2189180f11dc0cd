// The models as the engine uses them: made from a configuration, alone and shared by threads.
#include "timing/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace flashmob::timing {
namespace {

Demand read_of(std::uint64_t first, std::uint32_t units = 1) { return {first, units, DemandKind::read, {}}; }

TimingConfig simple_config(double iops, std::uint64_t latency_ns, std::uint32_t instances) {
  TimingConfig config;
  config.model = "simple";
  config.read_iops = config.write_iops = iops;
  config.read_latency_ns = config.write_latency_ns = latency_ns;
  config.instances = instances;
  return config;
}

struct Form {
  const char* name;
  bool shared;
  bool per_request;
};
constexpr Form kForms[] = {{"exclusive", false, false}, {"per batch", true, false}, {"per request", true, true}};

std::unique_ptr<TimingModel> make(TimingConfig config, const Form& form) {
  config.per_request_updates = form.per_request;
  return make_model(config, form.shared);
}

TEST(NoneModel, EverythingIsDoneAtOnce) {
  TimingConfig config;
  config.model = "none";
  const auto model = make_model(config, true);
  const std::vector<Demand> batch{read_of(0, 1000), {0, 0, DemandKind::flush, {}}, {9, 1, DemandKind::write, {}}};
  std::vector<std::uint64_t> targets(3);
  model->schedule(batch, 42, targets);
  EXPECT_EQ(targets, (std::vector<std::uint64_t>{42, 42, 42}));
  EXPECT_EQ(model->describe(), "none");
}

TEST(SimpleModel, LowLoadLatencyIsTheConfiguredLatency) {
  for (const Form& form : kForms) {
    for (const std::uint32_t instances : {1u, 8u, 64u}) {
      const auto model = make(simple_config(2.47e6, 50'000, instances), form);
      Rng rng(1);
      for (std::uint64_t now = 0; now < 100'000'000; now += 100'000) {
        const Demand demand = read_of(rng.next());
        std::uint64_t target = 0;
        model->schedule({&demand, 1}, now, {&target, 1});
        ASSERT_EQ(target, now + 50'000) << form.name;
      }
    }
  }
}

TEST(SimpleModel, SaturatedThroughputIsTheConfiguredRate) {
  constexpr std::uint64_t kRequests = 1'000'000;
  constexpr std::size_t kBatch = 1000;
  for (const Form& form : kForms) {
    for (const double rate : {2.47e6, 10e6, 99.7e6}) {
      for (const std::uint32_t instances : {1u, 8u, 32u}) {
        const auto model = make(simple_config(rate, 50'000, instances), form);
        std::vector<Demand> batch(kBatch);
        std::vector<std::uint64_t> targets(kBatch);
        std::uint64_t last = 0;
        for (std::uint64_t done = 0; done < kRequests; done += kBatch) {
          for (std::size_t i = 0; i < kBatch; ++i) batch[i] = read_of(done + i);
          model->schedule(batch, 0, targets);
          last = std::max(last, targets.back());
        }
        const double achieved = kRequests / (static_cast<double>(last - 50'000) * 1e-9);
        ASSERT_NEAR(achieved / rate, 1.0, 1e-4) << form.name << ", " << rate << " IOPS, " << instances;
      }
    }
  }
}

TEST(SimpleModel, ResetForgetsAllLoad) {
  for (const Form& form : kForms) {
    const auto model = make(simple_config(1e6, 50'000, 4), form);
    const std::vector<Demand> batch{read_of(0, 100'000), {0, 0, DemandKind::flush, {}}};
    std::vector<std::uint64_t> first(2), again(2);
    model->schedule(batch, 1'000, first);
    EXPECT_GT(first[1], 1'000'000u);
    model->reset();
    model->schedule(batch, 1'000, again);
    EXPECT_EQ(first, again) << form.name;
  }
}

TEST(SimpleModel, AnEmptyBatchChangesNothing) {
  for (const Form& form : kForms) {
    const auto model = make(simple_config(1e6, 50'000, 4), form);
    model->schedule({}, 5, {});
    const Demand demand = read_of(0);
    std::uint64_t target = 0;
    model->schedule({&demand, 1}, 0, {&target, 1});
    EXPECT_EQ(target, 50'000u) << form.name;
  }
}

TEST(SimpleModel, DescribesItselfAndItsForm) {
  EXPECT_NE(make(simple_config(2.47e6, 50'000, 8), kForms[0])->describe().find("exclusive"), std::string::npos);
  EXPECT_NE(make(simple_config(2.47e6, 50'000, 8), kForms[1])->describe().find("per batch"), std::string::npos);
  EXPECT_NE(make(simple_config(2.47e6, 50'000, 8), kForms[2])->describe().find("per request"), std::string::npos);
  EXPECT_NE(make(simple_config(2.47e6, 50'000, 8), kForms[0])->describe().find("8 instances"), std::string::npos);
}

TEST(SimpleModel, AWrongConfigurationIsRefused) {
  EXPECT_THROW(make_model(simple_config(1e6, 50'000, 3), false), ConfigError);
  EXPECT_THROW(make_model(simple_config(0, 50'000, 1), false), ConfigError);
  TimingConfig config;
  config.model = "tape";
  EXPECT_THROW(make_model(config, false), ConfigError);
}

// Two dispatchers push saturating load; every tick of service that was asked must be in the end state, which the
// flush reveals, and no two requests of one instance may be done at the same time.
TEST(SimpleModel, SharingLosesNoServiceTime) {
  constexpr std::uint64_t kServiceNs = 1'000;
  constexpr int kRounds = 1'000;
  constexpr std::size_t kBatch = 32;
  for (const Form& form : {kForms[1], kForms[2]}) {
    for (const std::uint32_t instances : {1u, 4u}) {
      // The service time is a whole number of ns: targets identify the slot that a request was given.
      const auto model = make(simple_config(1e6 * instances, kServiceNs, instances), form);
      std::vector<std::vector<std::uint64_t>> slots[2];
      std::atomic<int> ready{0};
      auto dispatcher = [&](int self) {
        slots[self].resize(instances);
        Rng rng(static_cast<std::uint64_t>(self) + 1);
        std::vector<Demand> batch(kBatch);
        std::vector<std::uint64_t> targets(kBatch);
        ready.fetch_add(1);
        while (ready.load() < 2) std::this_thread::yield();  // so that they overlap
        for (int round = 0; round < kRounds; ++round) {
          for (Demand& demand : batch) demand = read_of(rng.next());
          model->schedule(batch, 7, targets);
          for (std::size_t i = 0; i < kBatch; ++i) slots[self][batch[i].first_unit % instances].push_back(targets[i]);
        }
      };
      std::thread other(dispatcher, 1);
      dispatcher(0);
      other.join();
      std::uint64_t last = 0;
      for (std::uint32_t u = 0; u < instances; ++u) {
        std::vector<std::uint64_t> all = slots[0][u];
        all.insert(all.end(), slots[1][u].begin(), slots[1][u].end());
        std::sort(all.begin(), all.end());
        for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], 7 + (i + 1) * kServiceNs) << form.name;
        last = std::max(last, all.back());
      }
      const Demand flush{0, 0, DemandKind::flush, {}};
      std::uint64_t target = 0;
      model->schedule({&flush, 1}, 7, {&target, 1});
      EXPECT_EQ(target, last) << form.name;
    }
  }
}

// Within one dispatcher, requests of one instance are done in queue order even while another dispatcher interferes.
TEST(SimpleModel, QueueOrderHoldsUnderSharing) {
  const auto model = make(simple_config(1e6, 1'000, 1), kForms[1]);
  auto dispatcher = [&] {
    std::uint64_t previous = 0;
    std::vector<Demand> batch(16, read_of(0));
    batch[7].kind = DemandKind::flush;
    std::vector<std::uint64_t> targets(16);
    for (std::uint64_t round = 0; round < 500; ++round) {
      model->schedule(batch, round, targets);
      for (const std::uint64_t target : targets) {
        ASSERT_GE(target, previous);
        previous = target;
      }
    }
  };
  std::thread other(dispatcher);
  dispatcher();
  other.join();
}

}  // namespace
}  // namespace flashmob::timing
