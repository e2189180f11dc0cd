// Set Features and Get Features (Base 2.0c, 5.15 and 5.27): current, default, saved, and what each feature allows.
#include "nvme/features.h"
#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

using nvme::Feature;
using nvme::FeatureSelect;

class FeaturesTest : public DeviceTest {
 protected:
  std::uint32_t get(Feature feature, FeatureSelect select = FeatureSelect::current, std::uint32_t cdw11 = 0,
                    std::uint32_t nsid = 0) {
    return driver().get_feature(static_cast<std::uint8_t>(feature), static_cast<std::uint8_t>(select), cdw11, nsid);
  }
  std::uint32_t set(Feature feature, std::uint32_t cdw11, bool save = false, std::uint32_t nsid = 0) {
    return driver().set_feature(static_cast<std::uint8_t>(feature), cdw11, save, nsid);
  }
  Status set_status(Feature feature, std::uint32_t cdw11, bool save = false, std::uint32_t nsid = 0) {
    Sqe sqe = make(AdminOpcode::set_features, nsid);
    sqe.cdw10 = static_cast<std::uint8_t>(feature) | (save ? nvme::kFeatureSave : 0);
    sqe.cdw11 = cdw11;
    return admin(sqe);
  }
  Status get_status(std::uint8_t fid, std::uint8_t select = 0) {
    Sqe sqe = make(AdminOpcode::get_features);
    sqe.cdw10 = fid | (std::uint32_t{select} << 8);
    return admin(sqe);
  }
};

TEST_F(FeaturesTest, EveryMandatoryFeatureAnswers) {
  for (const Feature feature :
       {Feature::arbitration, Feature::power_management, Feature::temperature_threshold, Feature::number_of_queues,
        Feature::interrupt_coalescing, Feature::interrupt_vector_configuration, Feature::write_atomicity,
        Feature::async_event_configuration, Feature::volatile_write_cache, Feature::keep_alive_timer}) {
    EXPECT_EQ(get_status(static_cast<std::uint8_t>(feature)), Status::success) << int(feature);
    EXPECT_EQ(get_status(static_cast<std::uint8_t>(feature), 1), Status::success) << int(feature);
    EXPECT_EQ(get_status(static_cast<std::uint8_t>(feature), 3), Status::success) << int(feature);
  }
}

TEST_F(FeaturesTest, UnknownFeaturesAndSelectionsAreInvalidFields) {
  for (const int fid : {0x00, 0x7F, 0xC0, 0xFF}) {
    EXPECT_EQ(get_status(static_cast<std::uint8_t>(fid)), Status::invalid_field) << fid;
    EXPECT_EQ(set_status(static_cast<Feature>(fid), 0), Status::invalid_field) << fid;
  }
  EXPECT_EQ(get_status(static_cast<std::uint8_t>(Feature::arbitration), 4), Status::invalid_field);
}

TEST_F(FeaturesTest, SetChangesCurrentButNotDefault) {
  const std::uint32_t standard = get(Feature::arbitration, FeatureSelect::default_value);
  const std::uint32_t wanted = nvme::encode_arbitration({.ab = 3, .lpw = 1, .mpw = 2, .hpw = 3});
  ASSERT_NE(standard, wanted);
  set(Feature::arbitration, wanted);
  EXPECT_EQ(get(Feature::arbitration), wanted);
  EXPECT_EQ(get(Feature::arbitration, FeatureSelect::default_value), standard);
}

TEST_F(FeaturesTest, SavingIsAllowedExactlyWhereCapabilitiesSaySo) {
  for (const Feature feature : {Feature::arbitration, Feature::power_management, Feature::interrupt_coalescing,
                                Feature::error_recovery, Feature::volatile_write_cache, Feature::write_atomicity}) {
    const std::uint32_t nsid = feature == Feature::error_recovery ? kNs512 : 0;
    const std::uint32_t capabilities = get(feature, FeatureSelect::supported_capabilities, 0, nsid);
    EXPECT_EQ((capabilities & nvme::kFeatureNamespaceSpecific) != 0, nsid != 0) << int(feature);
    const std::uint32_t value = get(feature, FeatureSelect::current, 0, nsid);
    const Status expected =
        (capabilities & nvme::kFeatureSaveable) != 0 ? Status::success : Status::feature_not_saveable;
    EXPECT_EQ(set_status(feature, value, true, nsid), expected) << int(feature);
  }
}

TEST_F(FeaturesTest, SavedValuesSurviveAReset) {
  for (const Feature feature : {Feature::arbitration, Feature::interrupt_coalescing, Feature::error_recovery}) {
    const std::uint32_t nsid = feature == Feature::error_recovery ? kNs512 : 0;
    if ((get(feature, FeatureSelect::supported_capabilities, 0, nsid) & nvme::kFeatureSaveable) == 0) continue;
    set(feature, 0x0102, true, nsid);
    set(feature, 0x0203, false, nsid);
    EXPECT_EQ(get(feature, FeatureSelect::current, 0, nsid), 0x0203u);
    EXPECT_EQ(get(feature, FeatureSelect::saved, 0, nsid), 0x0102u);
    driver().disable();
    driver().enable();
    EXPECT_EQ(get(feature, FeatureSelect::current, 0, nsid), 0x0102u) << int(feature);
  }
}

TEST_F(FeaturesTest, NumberOfQueuesGrantsWhatThereIs) {
  EXPECT_EQ(driver().request_queues(4), 4u);
  EXPECT_EQ(driver().request_queues(100), 16u) << "the small device has 16 pairs";
  const std::uint32_t granted = set(Feature::number_of_queues, nvme::encode_number_of_queues({.sqs = 7, .cqs = 200}));
  EXPECT_GE(nvme::decode_number_of_queues(granted).sqs, 7);
  EXPECT_EQ(nvme::decode_number_of_queues(granted).cqs, 15);
  EXPECT_EQ(set_status(Feature::number_of_queues, 0xFFFF), Status::invalid_field) << "FFFFh is not allowed";
  EXPECT_EQ(set_status(Feature::number_of_queues, 0xFFFF0000), Status::invalid_field);
}

TEST_F(FeaturesTest, NumberOfQueuesIsFixedOnceQueuesExist) {
  queue();
  EXPECT_EQ(set_status(Feature::number_of_queues, 0x00030003), Status::command_sequence_error);
  EXPECT_EQ(get_status(static_cast<std::uint8_t>(Feature::number_of_queues)), Status::success);
}

TEST_F(FeaturesTest, InterruptVectorConfiguration) {
  EXPECT_EQ(get(Feature::interrupt_vector_configuration, FeatureSelect::current, 3), 3u);
  set(Feature::interrupt_vector_configuration, 3 | nvme::kCoalescingDisable);
  EXPECT_EQ(get(Feature::interrupt_vector_configuration, FeatureSelect::current, 3), 3 | nvme::kCoalescingDisable);
  EXPECT_EQ(get(Feature::interrupt_vector_configuration, FeatureSelect::current, 4), 4u);
  EXPECT_EQ(set_status(Feature::interrupt_vector_configuration, 8), Status::invalid_field) << "there are 8 vectors";
}

TEST_F(FeaturesTest, PowerStatesBeyondTheLastAreInvalid) {
  set(Feature::power_management, 0);
  EXPECT_EQ(set_status(Feature::power_management, 31), Status::invalid_field);
}

TEST_F(FeaturesTest, VolatileWriteCacheCanBeSwitchedOff) {
  EXPECT_EQ(get(Feature::volatile_write_cache), 1u);
  set(Feature::volatile_write_cache, 0);
  EXPECT_EQ(get(Feature::volatile_write_cache), 0u);
  EXPECT_EQ(write(kNs512, 0, noise(512, 1)), Status::success);
}

TEST_F(FeaturesTest, TemperatureThresholdsAreKeptBySensor) {
  const auto over = [](std::uint16_t kelvins) {
    return nvme::encode_temperature_threshold({.tmpth = kelvins, .tmpsel = 0, .thsel = nvme::kThresholdOver});
  };
  const auto under = [](std::uint16_t kelvins) {
    return nvme::encode_temperature_threshold({.tmpth = kelvins, .tmpsel = 0, .thsel = nvme::kThresholdUnder});
  };
  set(Feature::temperature_threshold, over(350));
  set(Feature::temperature_threshold, under(200));
  EXPECT_EQ(get(Feature::temperature_threshold, FeatureSelect::current, over(0)) & 0xFFFF, 350u);
  EXPECT_EQ(get(Feature::temperature_threshold, FeatureSelect::current, under(0)) & 0xFFFF, 200u);
  EXPECT_EQ(set_status(Feature::temperature_threshold, nvme::encode_temperature_threshold({300, 0, 2})),
            Status::invalid_field)
      << "a reserved threshold type";
}

TEST_F(FeaturesTest, TimestampAdvances) {
  Sqe sqe = make(AdminOpcode::set_features);
  sqe.cdw10 = static_cast<std::uint8_t>(Feature::timestamp);
  nvme::Timestamp wanted = nvme::encode_timestamp(1'700'000'000'000, 0);
  ASSERT_EQ(admin_write(sqe, std::as_bytes(std::span(&wanted, 1))), Status::success);
  device.pump_for(3'000'000'000);
  sqe.opcode = static_cast<std::uint8_t>(AdminOpcode::get_features);
  nvme::Timestamp found;
  ASSERT_EQ(admin_read(sqe, std::as_writable_bytes(std::span(&found, 1))), Status::success);
  EXPECT_NEAR(static_cast<double>(nvme::timestamp_milliseconds(found) - 1'700'000'000'000), 3000, 20);
  EXPECT_EQ(found.attributes & nvme::kTimestampOriginMask, nvme::kTimestampOriginSetFeatures);
}

// Hosts in the field name no namespace where they mean the device.
TEST_F(FeaturesTest, ErrorRecoveryIsAnsweredWithoutANamespace) {
  constexpr std::uint32_t kLimitedRetryTime = 40;
  for (std::uint8_t select = 0; select <= 3; ++select)
    EXPECT_EQ(get_status(static_cast<std::uint8_t>(Feature::error_recovery), select), Status::success) << int(select);
  EXPECT_EQ(set_status(Feature::error_recovery, kLimitedRetryTime), Status::success);
  for (const std::uint32_t nsid : {0u, kNs512, kNs4096})
    EXPECT_EQ(get(Feature::error_recovery, FeatureSelect::current, 0, nsid), kLimitedRetryTime) << nsid;
  set(Feature::error_recovery, 0, false, kNs512);
  EXPECT_EQ(get(Feature::error_recovery), kLimitedRetryTime) << "what was last set for all";
}

TEST_F(FeaturesTest, NamespaceIdentifiersDoNotBelongToControllerFeatures) {
  EXPECT_EQ(set_status(Feature::arbitration, 0, false, kNs512), Status::feature_not_namespace_specific);
  EXPECT_EQ(set_status(Feature::error_recovery, 0, false, 999), Status::invalid_namespace_or_format);
}

}  // namespace
}  // namespace flashmob::conformance
