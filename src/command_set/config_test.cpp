#include "flashmob/config.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "command_set/engine_limits.h"

namespace flashmob {
namespace {

using Change = std::function<void(DeviceConfig&)>;

void expect_accepted(const Change& change) {
  DeviceConfig config;
  change(config);
  EXPECT_NO_THROW(config.validate());
}

// The message must name the key and be one line.
void expect_rejected(const std::string& key, const Change& change) {
  DeviceConfig config;
  change(config);
  try {
    config.validate();
    ADD_FAILURE() << "accepted a bad " << key;
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with(key + " = ")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

// Checks that low and high are accepted and their outer neighbours are not.
template <class Section, class T>
void expect_range(const std::string& key, Section DeviceConfig::* section, T Section::* member, T low, T high) {
  for (const T value : {low, high}) expect_accepted([&](DeviceConfig& c) { c.*section.*member = value; });
  if (low > 0) {
    expect_rejected(key, [&](DeviceConfig& c) { c.*section.*member = low - 1; });
  }
  expect_rejected(key, [&](DeviceConfig& c) { c.*section.*member = high + 1; });
}

TEST(Config, DefaultsAreValid) {
  expect_accepted([](DeviceConfig&) {});
}

TEST(Config, TimingInstancesAndUnits) {
  for (const std::uint32_t n : {1u, 2u, 1024u}) {
    expect_accepted([&](DeviceConfig& c) {
      c.timing.instances = n;
      c.timing.read_latency_ns = c.timing.write_latency_ns = 10'000'000;
    });
  }
  for (const std::uint32_t n : {0u, 3u, 1023u, 2048u}) {
    expect_rejected("timing.instances", [&](DeviceConfig& c) { c.timing.instances = n; });
  }
  for (const std::uint32_t bytes : {512u, 4096u, 1u << 20}) {
    expect_accepted([&](DeviceConfig& c) { c.timing.unit_bytes = bytes; });
  }
  for (const std::uint32_t bytes : {0u, 256u, 513u, 1u << 21}) {
    expect_rejected("timing.unit_bytes", [&](DeviceConfig& c) { c.timing.unit_bytes = bytes; });
  }
}

// A drive so slow that the model would have to cut its service short is refused, reads and writes alike.
TEST(Config, TimingServiceIsAtMostWhatTheModelCounts) {
  expect_accepted([](DeviceConfig& c) { c.timing.write_iops = 1e-3; });
  expect_rejected("timing.write_iops", [](DeviceConfig& c) { c.timing.write_iops = 0.99e-3; });
  expect_rejected("timing.read_iops", [](DeviceConfig& c) {
    c.timing.read_iops = 0.5e-3;
    c.timing.read_latency_ns = 3'600'000'000'000;
  });
  expect_accepted([](DeviceConfig& c) {
    c.timing.model = "none";
    c.timing.write_iops = 1e-300;
  });
}

TEST(Config, TimingModelNames) {
  expect_accepted([](DeviceConfig& c) { c.timing.model = "none"; });
  expect_accepted([](DeviceConfig& c) {
    c.timing.model = "nand";
    c.timing.unit_bytes = 4096;
  });
  for (const char* name : {"", "Simple", "NAND", "simple "}) {
    expect_rejected("timing.model", [&](DeviceConfig& c) { c.timing.model = name; });
  }
}

TEST(Config, TimingRatesMustBeFiniteAndPositive) {
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()}) {
    expect_rejected("timing.read_iops", [&](DeviceConfig& c) { c.timing.read_iops = bad; });
    expect_rejected("timing.write_iops", [&](DeviceConfig& c) { c.timing.write_iops = bad; });
    expect_rejected("timing.read_iops", [&](DeviceConfig& c) {
      c.timing.model = "none";
      c.timing.read_iops = bad;
    });
  }
  expect_accepted([](DeviceConfig& c) { c.timing.read_iops = 1e12; });
}

TEST(Config, LatencyHoldsTheServiceTime) {
  // 32 instances at 1 M requests per second serve a unit in 32 us.
  const auto with_latency = [](std::uint64_t latency_ns) {
    return [latency_ns](DeviceConfig& c) {
      c.timing.instances = 32;
      c.timing.read_latency_ns = latency_ns;
    };
  };
  expect_accepted(with_latency(32'000));
  expect_rejected("timing.read_latency_ns", with_latency(31'999));
  expect_rejected("timing.read_latency_ns", with_latency(0));
  expect_rejected("timing.read_latency_ns", with_latency(std::numeric_limits<std::uint64_t>::max()));
  expect_rejected("timing.write_latency_ns",
                  [](DeviceConfig& c) { c.timing.write_latency_ns = std::numeric_limits<std::uint64_t>::max(); });
  // A buffer answers a write before it is served.
  expect_accepted([](DeviceConfig& c) {
    c.timing.write_iops = 38'000;
    c.timing.write_latency_ns = 15'000;
  });
  expect_accepted([](DeviceConfig& c) {
    c.timing.model = "none";
    c.timing.read_latency_ns = c.timing.write_latency_ns = 0;
  });
}

TEST(Config, TimingBytesPerSecond) {
  using T = TimingConfig;
  for (const auto& [key, member] : {std::pair{"timing.read_bytes_per_s", &T::read_bytes_per_s},
                                    std::pair{"timing.write_bytes_per_s", &T::write_bytes_per_s},
                                    std::pair{"timing.link_bytes_per_s", &T::link_bytes_per_s}}) {
    for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1'000'000}, std::uint64_t{10'000'000'000'000}})
      expect_accepted([&](DeviceConfig& c) { c.timing.*member = value; });
    for (const std::uint64_t value : {std::uint64_t{1}, std::uint64_t{999'999}, std::uint64_t{10'000'000'000'001}})
      expect_rejected(key, [&](DeviceConfig& c) { c.timing.*member = value; });
  }
  // Of a direction's own limit and the link's, the smaller holds; 0 is none.
  TimingConfig timing;
  EXPECT_EQ(timing.read_limit_bytes_per_s(), 0u);
  timing.link_bytes_per_s = 7'000'000'000;
  timing.read_bytes_per_s = 14'500'000'000;
  timing.write_bytes_per_s = 4'100'000'000;
  EXPECT_EQ(timing.read_limit_bytes_per_s(), 7'000'000'000u);
  EXPECT_EQ(timing.write_limit_bytes_per_s(), 4'100'000'000u);
  timing.link_bytes_per_s = 0;
  EXPECT_EQ(timing.read_limit_bytes_per_s(), 14'500'000'000u);
}

TEST(Config, ControllerLimits) {
  using C = ControllerConfig;
  expect_range("controller.max_queue_pairs", &DeviceConfig::controller, &C::max_queue_pairs, 1u, 4096u);
  expect_range("controller.max_queue_entries", &DeviceConfig::controller, &C::max_queue_entries, 2u, 65536u);
  expect_range("controller.interrupt_vectors", &DeviceConfig::controller, &C::interrupt_vectors, 1u, 4097u);
  expect_range("controller.abort_limit", &DeviceConfig::controller, &C::abort_limit, 1u, 256u);
  expect_range("controller.async_event_limit", &DeviceConfig::controller, &C::async_event_limit, 1u, 256u);
  for (const std::uint32_t bytes : {4096u, 131072u, 16u << 20}) {
    expect_accepted([&](DeviceConfig& c) { c.controller.max_transfer_bytes = bytes; });
  }
  for (const std::uint32_t bytes : {0u, 2048u, 12288u, 32u << 20}) {
    expect_rejected("controller.max_transfer_bytes", [&](DeviceConfig& c) { c.controller.max_transfer_bytes = bytes; });
  }
}

TEST(Config, EngineLimits) {
  using E = EngineConfig;
  expect_range("engine.units", &DeviceConfig::engine, &E::units, 1u, 64u);
  expect_range("engine.workers", &DeviceConfig::engine, &E::workers, 0u, 16u);
  expect_range("engine.fetch_limit", &DeviceConfig::engine, &E::fetch_limit, 1u, 1024u);
  expect_range("engine.wheel_shift", &DeviceConfig::engine, &E::wheel_shift, 0u, 20u);
  expect_range("engine.idle_sleep_ns", &DeviceConfig::engine, &E::idle_sleep_ns, std::uint64_t{1},
               std::uint64_t{10'000'000'000});
  for (const char* copy : {"auto", "memcpy", "avx2", "avx512", "nontemporal", "dsa"}) {
    expect_accepted([&](DeviceConfig& c) { c.engine.copy = copy; });
  }
  expect_rejected("engine.copy", [](DeviceConfig& c) { c.engine.copy = "avx"; });
  expect_accepted([](DeviceConfig& c) { c.engine.cores = {0, 1, 1023}; });
  expect_rejected("engine.cores[2]", [](DeviceConfig& c) { c.engine.cores = {0, 1, 1024}; });
}

TEST(Config, FidelityShares) {
  using F = FidelityConfig;
  for (double F::* member : {&F::max_iops_error, &F::max_error_share}) {
    for (const double good : {0.0, 0.5, 1.0}) {
      expect_accepted([&](DeviceConfig& c) { c.fidelity.*member = good; });
    }
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_rejected("fidelity.max_iops_error", [](DeviceConfig& c) { c.fidelity.max_iops_error = -0.01; });
  expect_rejected("fidelity.max_error_share", [](DeviceConfig& c) { c.fidelity.max_error_share = 1.01; });
  expect_rejected("fidelity.max_error_share", [&](DeviceConfig& c) { c.fidelity.max_error_share = nan; });
  expect_rejected("fidelity.gap_ns", [](DeviceConfig& c) { c.fidelity.gap_ns = 0; });
}

TEST(Config, IdentityStrings) {
  const auto length = [](std::string SubsystemConfig::* member, std::size_t n) {
    return [=](DeviceConfig& c) { c.subsystem.*member = std::string(n, 'A'); };
  };
  using S = SubsystemConfig;
  expect_accepted(length(&S::serial, 20));
  expect_rejected("subsystem.serial", length(&S::serial, 21));
  expect_rejected("subsystem.serial", length(&S::serial, 0));
  expect_accepted(length(&S::model, 40));
  expect_rejected("subsystem.model", length(&S::model, 41));
  expect_accepted(length(&S::firmware, 8));
  expect_rejected("subsystem.firmware", length(&S::firmware, 9));
  expect_rejected("subsystem.model", [](DeviceConfig& c) { c.subsystem.model = "caf\xC3\xA9"; });
  expect_rejected("subsystem.serial", [](DeviceConfig& c) { c.subsystem.serial = "two\nlines"; });
  expect_rejected("subsystem.nqn", [](DeviceConfig& c) { c.subsystem.nqn = "iqn.2014-08.org"; });
  expect_accepted([](DeviceConfig& c) { c.subsystem.nqn = "nqn." + std::string(219, 'x'); });
  expect_rejected("subsystem.nqn", [](DeviceConfig& c) { c.subsystem.nqn = "nqn." + std::string(220, 'x'); });
}

TEST(Config, Namespaces) {
  const auto first = [](auto change) { return [change](DeviceConfig& c) { change(c.subsystem.namespaces[0]); }; };
  const std::uint64_t max_bytes = std::uint64_t{64} << 40;
  expect_accepted(first([=](NamespaceConfig& n) { n.size_bytes = max_bytes; }));
  expect_accepted(first([](NamespaceConfig& n) { n.size_bytes = 512; }));
  expect_rejected("subsystem.namespaces[0].size_bytes",
                  first([=](NamespaceConfig& n) { n.size_bytes = max_bytes + 512; }));
  expect_rejected("subsystem.namespaces[0].size_bytes", first([](NamespaceConfig& n) { n.size_bytes = 513; }));
  expect_rejected("subsystem.namespaces[0].size_bytes", first([](NamespaceConfig& n) { n.size_bytes = 0; }));
  expect_rejected("subsystem.namespaces[0].size_bytes", first([](NamespaceConfig& n) {
                    n.lba_bytes = 4096;
                    n.size_bytes = 4096 + 512;
                  }));
  for (const std::uint32_t lba : {0u, 520u, 1024u}) {
    expect_rejected("subsystem.namespaces[0].lba_bytes", first([=](NamespaceConfig& n) { n.lba_bytes = lba; }));
  }
  for (const char* media : {"file:/tmp/x", "cow:x"}) {
    expect_accepted(first([=](NamespaceConfig& n) {
      n.media = media;
      n.size_bytes = 0;
    }));
  }
  for (const char* media : {"", "Memory", "file:", "cow:", "file", "ram:x", "generated:1"}) {
    expect_rejected("subsystem.namespaces[0].media", first([=](NamespaceConfig& n) { n.media = media; }));
  }
}

TEST(Config, NamespaceCount) {
  expect_accepted([](DeviceConfig& c) { c.subsystem.namespaces.resize(256); });
  expect_rejected("subsystem.namespaces", [](DeviceConfig& c) { c.subsystem.namespaces.resize(257); });
  expect_rejected("subsystem.namespaces", [](DeviceConfig& c) { c.subsystem.namespaces.clear(); });
  expect_accepted([](DeviceConfig& c) {
    c.subsystem.namespaces.clear();
    c.subsystem.spare_capacity_bytes = 1 << 30;
  });
  expect_rejected("subsystem.namespaces[1].lba_bytes", [](DeviceConfig& c) {
    c.subsystem.namespaces.resize(2);
    c.subsystem.namespaces[1].lba_bytes = 1;
  });
  expect_rejected("subsystem.spare_capacity_bytes",
                  [](DeviceConfig& c) { c.subsystem.spare_capacity_bytes = ~std::uint64_t{0}; });
}

TEST(Config, AnEngineServesWhatItsLimitsSay) {
  const auto on_gpu = [](const Change& change) {
    return [change](DeviceConfig& c) {
      c.engine.kind = "gpu";
      c.engine.sms = 2;
      c.controller.max_queue_pairs = 8;
      c.controller.max_transfer_bytes = 8192;
      change(c);
    };
  };
  expect_rejected("engine.kind", on_gpu([](DeviceConfig&) {}));  // nobody has declared it
  command_set::declare_engine("gpu", {.queue_pairs_per_sm = 4, .max_transfer_bytes = 8192});
  expect_accepted(on_gpu([](DeviceConfig& c) { c.timing.model = "nand"; }));
  expect_accepted(on_gpu([](DeviceConfig& c) { c.faults = {"lose"}; }));
  expect_rejected("controller.max_queue_pairs", on_gpu([](DeviceConfig& c) { c.controller.max_queue_pairs = 9; }));
  expect_rejected("controller.max_transfer_bytes",
                  on_gpu([](DeviceConfig& c) { c.controller.max_transfer_bytes = 16384; }));
  command_set::declare_engine("gpu", {.basic_commands_only = true});
  expect_accepted(on_gpu([](DeviceConfig& c) { c.subsystem.namespaces[0].media = "generated"; }));
  expect_rejected("subsystem.namespaces[0].command_set",
                  on_gpu([](DeviceConfig& c) { c.subsystem.namespaces[0].command_set = "zns"; }));
  expect_rejected("subsystem.namespaces[0].command_set",
                  on_gpu([](DeviceConfig& c) { c.subsystem.namespaces[0].command_set = "kv"; }));
  command_set::declare_engine("gpu", {.device_code_only = true});
  expect_accepted(on_gpu([](DeviceConfig& c) { c.subsystem.namespaces[0].media = "cow:/tmp/a"; }));
  expect_rejected("engine.kind", on_gpu([](DeviceConfig& c) { c.timing.model = "nand"; }));
  expect_rejected("timing.per_request_updates", on_gpu([](DeviceConfig& c) { c.timing.per_request_updates = true; }));
  expect_rejected("faults", on_gpu([](DeviceConfig& c) { c.faults = {"lose"}; }));
  expect_rejected("engine.move_data", on_gpu([](DeviceConfig& c) { c.engine.move_data = false; }));
  expect_rejected("subsystem.namespaces[0].media",
                  on_gpu([](DeviceConfig& c) { c.subsystem.namespaces[0].media = "generated"; }));
}

TEST(Config, CommandSetsAreNamed) {
  const auto first = [](const char* name) {
    return [name](DeviceConfig& c) { c.subsystem.namespaces[0].command_set = name; };
  };
  expect_accepted(first("nvm"));
  for (const char* name : {"", "NVM", "key-value"}) expect_rejected("subsystem.namespaces[0].command_set", first(name));
}

TEST(Config, ZonedNamespaces) {
  const std::string first = "subsystem.namespaces[0].";
  const auto zoned = [](const std::function<void(NamespaceConfig&)>& change) {
    return [change](DeviceConfig& c) {
      NamespaceConfig& ns = c.subsystem.namespaces[0];
      ns.command_set = "zns";
      ns.zoned.max_open_zones = 4;
      ns.zoned.max_active_zones = 8;
      change(ns);
    };
  };
  const auto rejected = [&](const char* key, const std::function<void(NamespaceConfig&)>& change) {
    expect_rejected(first + key, zoned(change));
  };
  expect_accepted(zoned([](NamespaceConfig&) {}));
  expect_accepted(zoned([](NamespaceConfig& ns) { ns.zoned.zone_capacity_bytes = 4096; }));
  expect_accepted(zoned([](NamespaceConfig& ns) { ns.zoned.reset_ns = {1, 2, 3, 4, 5, 6}; }));
  for (const char* media : {"file:/tmp/a", "direct:/tmp/a", "cow:/tmp/a", "generated"})
    rejected("media", [media](NamespaceConfig& ns) { ns.media = media; });
  rejected("zoned.zone_bytes", [](NamespaceConfig& ns) { ns.zoned.zone_bytes = 3 << 20; });
  rejected("zoned.zone_bytes", [](NamespaceConfig& ns) { ns.zoned.zone_bytes = 2048; });
  rejected("size_bytes", [](NamespaceConfig& ns) { ns.size_bytes += 4096; });
  rejected("zoned.zone_capacity_bytes", [](NamespaceConfig& ns) { ns.zoned.zone_capacity_bytes = 512; });
  rejected("zoned.zone_capacity_bytes", [](NamespaceConfig& ns) { ns.zoned.zone_capacity_bytes = 128 << 20; });
  rejected("zoned.max_open_zones", [](NamespaceConfig& ns) { ns.zoned.max_open_zones = 9; });
  rejected("zoned.max_open_zones", [](NamespaceConfig& ns) { ns.zoned.max_open_zones = 0; });
  rejected("zoned.descriptor_extension_bytes", [](NamespaceConfig& ns) { ns.zoned.descriptor_extension_bytes = 65; });
  rejected("zoned.offline_zones", [](NamespaceConfig& ns) { ns.zoned.offline_zones = {16}; });
  rejected("zoned.finish_ns", [](NamespaceConfig& ns) { ns.zoned.finish_ns = {1, 2, 3}; });
  rejected("zoned.open_ns", [](NamespaceConfig& ns) { ns.zoned.open_ns = UINT64_MAX; });
}

TEST(Config, KeyValueNamespaces) {
  const std::string first = "subsystem.namespaces[0].";
  const auto kv = [](const std::function<void(NamespaceConfig&)>& change) {
    return [change](DeviceConfig& c) {
      NamespaceConfig& ns = c.subsystem.namespaces[0];
      ns.command_set = "kv";
      change(ns);
    };
  };
  const auto rejected = [&](const char* key, const std::function<void(NamespaceConfig&)>& change) {
    expect_rejected(first + key, kv(change));
  };
  expect_accepted(kv([](NamespaceConfig&) {}));
  expect_accepted(kv([](NamespaceConfig& ns) { ns.kv.max_value_bytes = 0; }));
  expect_accepted(kv([](NamespaceConfig& ns) { ns.kv.max_keys = 0x7FFFFFFF; }));
  for (const char* media : {"file:/tmp/a", "direct:/tmp/a", "cow:/tmp/a", "generated"})
    rejected("media", [media](NamespaceConfig& ns) { ns.media = media; });
  rejected("lba_bytes", [](NamespaceConfig& ns) { ns.lba_bytes = 4096; });
  rejected("kv.max_key_bytes", [](NamespaceConfig& ns) { ns.kv.max_key_bytes = 0; });
  rejected("kv.max_key_bytes", [](NamespaceConfig& ns) { ns.kv.max_key_bytes = 17; });
  rejected("kv.max_value_bytes", [](NamespaceConfig& ns) { ns.kv.max_value_bytes = (16 << 20) + 1; });
  rejected("kv.max_keys", [](NamespaceConfig& ns) { ns.kv.max_keys = 0x80000000; });
  rejected("kv.value_granularity_bytes", [](NamespaceConfig& ns) { ns.kv.value_granularity_bytes = 96; });
  rejected("kv.value_granularity_bytes", [](NamespaceConfig& ns) { ns.kv.value_granularity_bytes = 32; });
  rejected("kv.value_granularity_bytes", [](NamespaceConfig& ns) { ns.size_bytes = std::uint64_t{4} << 40; });
  rejected("kv.lookup_ns", [](NamespaceConfig& ns) { ns.kv.lookup_ns = UINT64_MAX; });
  rejected("size_bytes", [](NamespaceConfig& ns) { ns.size_bytes = 1 << 20; });
  expect_accepted(kv([](NamespaceConfig& ns) { ns.size_bytes = (1 << 20) + 512; }));
}

TEST(Config, AppendsAreNoLargerThanTransfers) {
  expect_accepted([](DeviceConfig& c) { c.controller.max_append_bytes = 4096; });
  expect_rejected("controller.max_append_bytes", [](DeviceConfig& c) { c.controller.max_append_bytes = 6000; });
  expect_rejected("controller.max_append_bytes", [](DeviceConfig& c) { c.controller.max_append_bytes = 2 << 20; });
}

}  // namespace
}  // namespace flashmob
