// Set and Get Features: values, selectors, saving, scope, and what each feature does.
#include <gtest/gtest.h>

#include "controller/controller_test_support.h"
#include "controller/features.h"

namespace flashmob::controller::testing {
namespace {

using nvme::Feature;
using nvme::Status;

constexpr unsigned kCurrent = 0, kDefault = 1, kSaved = 2, kCapabilities = 3;

class FeatureCommands : public ::testing::Test {
 protected:
  explicit FeatureCommands(const DeviceOptions& options = {}) : d(options) { d.enable(); }
  std::uint32_t get(Feature feature, unsigned select = kCurrent, std::uint32_t cdw11 = 0, std::uint32_t nsid = 0) {
    const auto done = d.get_feature(feature, select, cdw11, nsid);
    EXPECT_EQ(done.status_field, 0) << static_cast<int>(feature);
    return done.dw0;
  }
  void reset() {
    d.disable();
    d.enable();
  }
  TestDevice d;
};

TEST_F(FeatureCommands, CapabilitiesOfEveryFeature) {
  constexpr std::uint32_t kSaveable = 1, kNamespace = 2, kChangeable = 4;
  const std::vector<std::pair<Feature, std::uint32_t>> expected = {
      {Feature::arbitration, kChangeable | kSaveable},
      {Feature::power_management, kChangeable | kSaveable},
      {Feature::temperature_threshold, kChangeable | kSaveable},
      {Feature::error_recovery, kChangeable | kSaveable | kNamespace},
      {Feature::volatile_write_cache, kChangeable | kSaveable},
      {Feature::number_of_queues, kChangeable},
      {Feature::interrupt_coalescing, kChangeable | kSaveable},
      {Feature::interrupt_vector_configuration, kChangeable},
      {Feature::write_atomicity, kChangeable | kSaveable},
      {Feature::async_event_configuration, kChangeable | kSaveable},
      {Feature::timestamp, kChangeable},
      {Feature::keep_alive_timer, kChangeable},
      {Feature::host_behavior_support, kChangeable},
      {Feature::io_command_set_profile, kChangeable},
      {Feature::software_progress_marker, kChangeable | kSaveable},
      {Feature::namespace_write_protection, kChangeable | kNamespace},
  };
  unsigned supported = 0;
  for (unsigned fid = 0; fid < 256; ++fid) {
    supported += d.get_feature(static_cast<Feature>(fid), kCapabilities).status() == Status::success;
  }
  EXPECT_EQ(supported, expected.size());
  for (const auto& [feature, capabilities] : expected) {
    EXPECT_EQ(get(feature, kCapabilities), capabilities) << static_cast<int>(feature);
  }
}

TEST_F(FeatureCommands, UnsupportedIdentifiersAndSelectors) {
  for (const unsigned fid : {0x00u, 0x03u, 0x0Cu, 0x0Du, 0x10u, 0x11u, 0x81u, 0x85u, 0xC0u, 0xFFu}) {
    EXPECT_EQ(d.set_feature(static_cast<Feature>(fid), 0).status(), Status::invalid_field) << fid;
    EXPECT_EQ(d.get_feature(static_cast<Feature>(fid)).status(), Status::invalid_field) << fid;
  }
  for (unsigned select = 4; select < 8; ++select) {
    EXPECT_EQ(d.get_feature(Feature::arbitration, select).status(), Status::invalid_field);
  }
}

TEST_F(FeatureCommands, CurrentSavedAndDefaultAcrossResets) {
  const std::uint32_t initial = get(Feature::interrupt_coalescing, kDefault);
  EXPECT_EQ(d.set_feature(Feature::interrupt_coalescing, 0x0203, true).status_field, 0);
  EXPECT_EQ(d.set_feature(Feature::interrupt_coalescing, 0x0405).status_field, 0);
  EXPECT_EQ(get(Feature::interrupt_coalescing), 0x0405u);
  EXPECT_EQ(get(Feature::interrupt_coalescing, kSaved), 0x0203u);
  EXPECT_EQ(get(Feature::interrupt_coalescing, kDefault), initial);
  reset();
  EXPECT_EQ(get(Feature::interrupt_coalescing), 0x0203u) << "back to the saved value";
  EXPECT_EQ(d.host.coalescing.threshold, 3);
  EXPECT_EQ(d.host.coalescing.time_100us, 2);
}

TEST_F(FeatureCommands, WhatCannotBeSavedSaysSoAndFallsBackToItsDefault) {
  for (const Feature feature :
       {Feature::number_of_queues, Feature::interrupt_vector_configuration, Feature::timestamp,
        Feature::keep_alive_timer, Feature::host_behavior_support, Feature::io_command_set_profile}) {
    EXPECT_EQ(d.set_feature(feature, 0, true).status(), Status::feature_not_saveable) << static_cast<int>(feature);
  }
  EXPECT_EQ(d.set_feature(Feature::keep_alive_timer, 100'000).status_field, 0);
  EXPECT_EQ(get(Feature::keep_alive_timer, kSaved), 0u);
  reset();
  EXPECT_EQ(get(Feature::keep_alive_timer), 0u);
}

TEST_F(FeatureCommands, NamespaceScope) {
  EXPECT_EQ(d.set_feature(Feature::arbitration, 1, false, 1).status(), Status::feature_not_namespace_specific);
  EXPECT_EQ(d.set_feature(Feature::arbitration, 1, false, 257).status(), Status::invalid_namespace_or_format);
  EXPECT_EQ(d.set_feature(Feature::arbitration, 1, false, 0xFFFFFFFF).status_field, 0);
  EXPECT_EQ(d.set_feature(Feature::error_recovery, 5, false, 257).status(), Status::invalid_namespace_or_format);
  EXPECT_EQ(d.set_feature(Feature::error_recovery, 5, false, 2).status(), Status::invalid_field) << "not attached";
  EXPECT_EQ(d.set_feature(Feature::error_recovery, 5, false, 1).status_field, 0);
  EXPECT_EQ(get(Feature::error_recovery, kCurrent, 0, 1), 5u);
  EXPECT_EQ(d.get_feature(Feature::error_recovery, kCurrent, 0, 0xFFFFFFFF).status(),
            Status::invalid_namespace_or_format);
  EXPECT_EQ(get(Feature::error_recovery, kCurrent, 0, 0), 0u) << "nothing was set for all";
  EXPECT_EQ(d.get_feature(Feature::error_recovery, kCurrent, 0, 2).status(), Status::invalid_field);
  EXPECT_EQ(d.set_feature(Feature::error_recovery, 9, true, 0xFFFFFFFF).status_field, 0) << "all namespaces";
  reset();
  EXPECT_EQ(get(Feature::error_recovery, kCurrent, 0, 1), 9u);
  EXPECT_EQ(get(Feature::error_recovery, kCurrent, 0, 0), 9u);
  EXPECT_EQ(d.set_feature(Feature::error_recovery, 7, false, 0).status_field, 0) << "as hosts that name none";
  EXPECT_EQ(get(Feature::error_recovery, kCurrent, 0, 1), 7u);
  EXPECT_EQ(d.set_feature(Feature::error_recovery, nvme::kErrorRecoveryDeallocatedError, false, 1).status(),
            Status::invalid_field);
}

TEST_F(FeatureCommands, ArbitrationReachesTheEngine) {
  EXPECT_EQ(get(Feature::arbitration), 7u) << "no limit";
  const int before = d.host.feature_changes;
  EXPECT_EQ(d.set_feature(Feature::arbitration, 0x04030205).status_field, 0);
  EXPECT_EQ(d.host.feature_changes, before + 1);
  EXPECT_EQ(d.host.arbitration.burst_log2, 5);
  EXPECT_EQ(d.host.arbitration.low_weight, 2);
  EXPECT_EQ(d.host.arbitration.medium_weight, 3);
  EXPECT_EQ(d.host.arbitration.high_weight, 4);
  EXPECT_EQ(get(Feature::arbitration), 0x04030205u);
}

// Each time interrupts every thread of the engine, and takes as long as the longest of their rounds.
TEST_F(FeatureCommands, AResetTellsTheEngineOnceAndSoDoesTheNextEnable) {
  const int before = d.host.feature_changes;
  d.disable();
  EXPECT_EQ(d.host.feature_changes, before + 1);
  d.enable();
  EXPECT_EQ(d.host.feature_changes, before + 2);
}

TEST_F(FeatureCommands, PowerManagementHasOneState) {
  EXPECT_EQ(d.set_feature(Feature::power_management, 1).status(), Status::invalid_field);
  EXPECT_EQ(d.set_feature(Feature::power_management, 2 << 5).status_field, 0);
  EXPECT_EQ(get(Feature::power_management), 2u << 5) << "the workload hint";
}

TEST_F(FeatureCommands, TemperatureThresholds) {
  const auto under = nvme::encode_temperature_threshold({.tmpth = 0, .tmpsel = 0, .thsel = 1});
  EXPECT_EQ(get(Feature::temperature_threshold), 343u);
  EXPECT_EQ(get(Feature::temperature_threshold, kCurrent, under), 0u);
  EXPECT_EQ(d.set_feature(Feature::temperature_threshold, under | 280).status_field, 0);
  EXPECT_EQ(d.set_feature(Feature::temperature_threshold, (15u << 16) | 340).status_field, 0) << "all sensors";
  EXPECT_EQ(get(Feature::temperature_threshold), 340u);
  EXPECT_EQ(get(Feature::temperature_threshold, kCurrent, under), 280u);
  for (const std::uint32_t wrong : {1u << 16, 8u << 16, 2u << 20, 3u << 20}) {
    EXPECT_EQ(d.set_feature(Feature::temperature_threshold, wrong).status(), Status::invalid_field);
    EXPECT_EQ(d.get_feature(Feature::temperature_threshold, kCurrent, wrong).status(), Status::invalid_field);
  }
  EXPECT_EQ(d.get_feature(Feature::temperature_threshold, kCurrent, 15u << 16).status(), Status::invalid_field);
}

TEST_F(FeatureCommands, VolatileWriteCache) {
  EXPECT_EQ(get(Feature::volatile_write_cache), 1u);
  EXPECT_TRUE(d.controller().write_cache_enabled());
  EXPECT_EQ(d.set_feature(Feature::volatile_write_cache, 0).status_field, 0);
  EXPECT_FALSE(d.controller().write_cache_enabled());
  reset();
  EXPECT_TRUE(d.controller().write_cache_enabled());
}

TEST_F(FeatureCommands, NumberOfQueues) {
  EXPECT_EQ(get(Feature::number_of_queues), 0x00070007u);
  EXPECT_EQ(d.set_feature(Feature::number_of_queues, 0x0000FFFF).status(), Status::invalid_field);
  EXPECT_EQ(d.set_feature(Feature::number_of_queues, 0xFFFF0000).status(), Status::invalid_field);
  const auto done = d.set_feature(Feature::number_of_queues, 0x0003FFFE);
  EXPECT_EQ(done.status_field, 0);
  EXPECT_EQ(done.dw0, 0x00030007u) << "what was granted";
  EXPECT_EQ(get(Feature::number_of_queues), 0x00030007u);
  d.create_cq(1);
  EXPECT_EQ(d.set_feature(Feature::number_of_queues, 0).status(), Status::command_sequence_error);
  d.delete_queue(nvme::AdminOpcode::delete_io_cq, 1);
  EXPECT_EQ(d.set_feature(Feature::number_of_queues, 0).status_field, 0);
  EXPECT_EQ(d.create_cq(2).status(), Status::invalid_queue_identifier);
  reset();
  EXPECT_EQ(d.create_cq(8).status(), Status::success) << "the grant ends with the reset";
}

TEST_F(FeatureCommands, InterruptVectors) {
  EXPECT_EQ(d.set_feature(Feature::interrupt_vector_configuration, 3 | nvme::kCoalescingDisable).status_field, 0);
  EXPECT_TRUE(d.controller().coalescing_disabled(3));
  EXPECT_FALSE(d.controller().coalescing_disabled(2));
  EXPECT_EQ(get(Feature::interrupt_vector_configuration, kCurrent, 3), 3 | nvme::kCoalescingDisable);
  EXPECT_EQ(get(Feature::interrupt_vector_configuration, kDefault, 3), 3u);
  EXPECT_EQ(get(Feature::interrupt_vector_configuration, kCurrent, 2), 2u);
  EXPECT_EQ(d.set_feature(Feature::interrupt_vector_configuration, 9).status(), Status::invalid_field);
  EXPECT_EQ(d.get_feature(Feature::interrupt_vector_configuration, kCurrent, 9).status(), Status::invalid_field);
  EXPECT_FALSE(d.controller().coalescing_disabled(0xFFFF));
  reset();
  EXPECT_FALSE(d.controller().coalescing_disabled(3));
}

TEST_F(FeatureCommands, AsyncEventConfigurationKeepsSupportedBits) {
  EXPECT_EQ(d.set_feature(Feature::async_event_configuration, 0xFFFFFFFF, true).status_field, 0);
  EXPECT_EQ(get(Feature::async_event_configuration), 0x1FFu);
  reset();
  EXPECT_EQ(get(Feature::async_event_configuration), 0x1FFu);
}

TEST_F(FeatureCommands, TimestampCountsOn) {
  d.put(nvme::encode_timestamp(1'700'000'000'000, 0));
  EXPECT_EQ(d.set_feature(Feature::timestamp, 0).status_field, 0);
  d.now_ns += 2'500'000'000;
  get(Feature::timestamp);
  auto timestamp = d.data<nvme::Timestamp>();
  EXPECT_EQ(nvme::timestamp_milliseconds(timestamp), 1'700'000'002'500u);
  EXPECT_EQ(timestamp.attributes, nvme::kTimestampOriginSetFeatures);
  get(Feature::timestamp, kDefault);
  EXPECT_EQ(nvme::timestamp_milliseconds(d.data<nvme::Timestamp>()), 0u);
  reset();
  d.now_ns += 7'000'000;
  get(Feature::timestamp);
  timestamp = d.data<nvme::Timestamp>();
  EXPECT_EQ(nvme::timestamp_milliseconds(timestamp), 7u) << "since the reset";
  EXPECT_EQ(timestamp.attributes, nvme::kTimestampOriginReset);
}

TEST_F(FeatureCommands, TimestampWrapsAt48Bits) {
  d.put(nvme::encode_timestamp(0xFFFF'FFFF'FFFF, 0));
  d.set_feature(Feature::timestamp, 0);
  d.now_ns += 1'000'000;
  get(Feature::timestamp);
  EXPECT_EQ(nvme::timestamp_milliseconds(d.data<nvme::Timestamp>()), 0u);
}

TEST_F(FeatureCommands, KeepAliveTimeoutIsRoundedUp) {
  EXPECT_EQ(d.set_feature(Feature::keep_alive_timer, 1).status_field, 0);
  EXPECT_EQ(get(Feature::keep_alive_timer), 100u);
  EXPECT_EQ(d.set_feature(Feature::keep_alive_timer, 0xFFFFFFFF).status_field, 0);
  EXPECT_EQ(get(Feature::keep_alive_timer), 0xFFFFFFFFu);
}

TEST_F(FeatureCommands, HostBehaviorSupport) {
  nvme::HostBehaviorSupport behavior{};
  behavior.acre = 1;
  d.put(behavior);
  EXPECT_EQ(d.set_feature(Feature::host_behavior_support, 0).status_field, 0);
  d.put(nvme::HostBehaviorSupport{});
  get(Feature::host_behavior_support);
  EXPECT_EQ(d.data<nvme::HostBehaviorSupport>().acre, 1);
  get(Feature::host_behavior_support, kDefault);
  EXPECT_EQ(d.data<nvme::HostBehaviorSupport>().acre, 0);
  for (const auto& [offset, value] : {std::pair<int, int>{0, 2}, {1, 1}, {2, 1}}) {
    d.put(nvme::HostBehaviorSupport{});
    *(d.at(kData) + offset) = static_cast<std::byte>(value);
    EXPECT_EQ(d.set_feature(Feature::host_behavior_support, 0).status(), Status::invalid_field) << offset;
  }
}

TEST_F(FeatureCommands, CommandSetProfileHasOneCombination) {
  EXPECT_EQ(d.set_feature(Feature::io_command_set_profile, 0).status_field, 0);
  EXPECT_EQ(get(Feature::io_command_set_profile), 0u);
  EXPECT_EQ(d.set_feature(Feature::io_command_set_profile, 1).status(), Status::io_command_set_combination_rejected);
}

TEST_F(FeatureCommands, SmallValues) {
  EXPECT_EQ(d.set_feature(Feature::software_progress_marker, 0x1FF, true).status_field, 0);
  EXPECT_EQ(d.set_feature(Feature::write_atomicity, 0xFF).status_field, 0);
  EXPECT_EQ(get(Feature::software_progress_marker), 0xFFu);
  EXPECT_EQ(get(Feature::write_atomicity), 1u);
  reset();
  EXPECT_EQ(get(Feature::software_progress_marker), 0xFFu);
  EXPECT_EQ(get(Feature::write_atomicity), 0u);
}

TEST_F(FeatureCommands, DataStructuresNeedABuffer) {
  for (const Feature feature : {Feature::timestamp, Feature::host_behavior_support}) {
    for (const auto opcode : {nvme::AdminOpcode::set_features, nvme::AdminOpcode::get_features}) {
      nvme::Sqe sqe = TestDevice::command(opcode);
      sqe.cdw10 = static_cast<std::uint32_t>(feature);
      sqe.prp1 = kUnmapped;
      EXPECT_EQ(d.run(sqe).status(), Status::data_transfer_error);
    }
  }
}

TEST(FeaturesWithoutCache, TheWriteCacheFeatureDoesNotExist) {
  DeviceOptions options;
  options.controller.volatile_write_cache = false;
  TestDevice d(options);
  d.enable();
  EXPECT_EQ(d.set_feature(Feature::volatile_write_cache, 1).status(), Status::invalid_field);
  EXPECT_EQ(d.get_feature(Feature::volatile_write_cache).status(), Status::invalid_field);
  EXPECT_FALSE(d.controller().write_cache_enabled());
}

}  // namespace
}  // namespace flashmob::controller::testing
