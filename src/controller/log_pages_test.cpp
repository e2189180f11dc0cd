// Get Log Page: every page's content, partial reads, and what is refused.
#include <gtest/gtest.h>

#include "controller/controller_test_support.h"
#include "controller/effects.h"

namespace flashmob::controller::testing {
namespace {

using nvme::AdminOpcode;
using nvme::LogPage;
using nvme::Status;

class LogPages : public ::testing::Test {
 protected:
  LogPages() { d.enable(); }
  nvme::SmartHealth smart() {
    EXPECT_EQ(d.log_page(LogPage::smart_health, 512).status_field, 0);
    return d.data<nvme::SmartHealth>();
  }
  TestDevice d;
};

TEST_F(LogPages, SupportedPagesAreExactlyThoseThatSucceed) {
  ASSERT_EQ(d.log_page(LogPage::supported_log_pages, 1024).status_field, 0);
  const auto page = d.data<nvme::SupportedLogPages>();
  for (unsigned lid = 0; lid < 256; ++lid) {
    const Status status = d.log_page(static_cast<LogPage>(lid), 512).status();
    if (page.lid[lid] & nvme::kLidSupported) {
      EXPECT_EQ(status, Status::success) << lid;
    } else {
      EXPECT_EQ(status, Status::invalid_log_page) << lid;
    }
  }
}

TEST_F(LogPages, ErrorInformationNewestFirst) {
  EXPECT_EQ(d.log_page(LogPage::error_information, 64).status_field, 0);
  EXPECT_EQ(d.data<nvme::ErrorInformationEntry>().error_count, 0u) << "empty";
  const std::uint16_t field = d.controller().record_error(3, 17, Status::lba_out_of_range, 1, 0x1234567890);
  EXPECT_EQ(nvme::status_of(field), Status::lba_out_of_range);
  EXPECT_EQ(field, nvme::to_field(Status::lba_out_of_range) | nvme::kStatusMore | nvme::kStatusDoNotRetry);
  EXPECT_EQ(d.controller().record_error(4, 18, Status::write_fault, 2, 5) & nvme::kStatusDoNotRetry, 0);
  ASSERT_EQ(d.log_page(LogPage::error_information, 128).status_field, 0);
  const auto newest = d.data<nvme::ErrorInformationEntry>(0);
  const auto older = d.data<nvme::ErrorInformationEntry>(64);
  EXPECT_EQ(newest.error_count, 2u);
  EXPECT_EQ(newest.sqid, 4);
  EXPECT_EQ(older.error_count, 1u);
  EXPECT_EQ(older.sqid, 3);
  EXPECT_EQ(older.cid, 17);
  EXPECT_EQ(older.status_field, field << 1);
  EXPECT_EQ(older.lba, 0x1234567890u);
  EXPECT_EQ(older.nsid, 1u);
  EXPECT_EQ(older.parameter_error_location, nvme::kNoParameterErrorLocation);
}

TEST_F(LogPages, ErrorInformationKeepsTheLatest64AcrossResets) {
  for (std::uint16_t cid = 0; cid < 100; ++cid) d.controller().record_error(1, cid, Status::invalid_field, 1, 0);
  d.disable();
  d.enable();
  ASSERT_EQ(d.log_page(LogPage::error_information, 64 * 64).status_field, 0);
  for (std::uint64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(d.data<nvme::ErrorInformationEntry>(i * 64).error_count, 100 - i);
    EXPECT_EQ(d.data<nvme::ErrorInformationEntry>(i * 64).cid, 99 - i);
  }
  EXPECT_EQ(smart().error_log_entries.low, 100u);
}

TEST_F(LogPages, FailedAdminCommandsAreLogged) {
  nvme::Sqe sqe = TestDevice::command(AdminOpcode::format_nvm, 1);
  nvme::encode_format_nvm({.ses = 2}, sqe);
  d.run(sqe);
  d.log_page(LogPage::error_information, 64);
  const auto entry = d.data<nvme::ErrorInformationEntry>();
  EXPECT_EQ(entry.sqid, 0);
  EXPECT_EQ(entry.nsid, 1u);
  EXPECT_EQ(entry.parameter_error_location, (41 | (1 << 8))) << "SES begins at bit 9 of CDW10";
}

TEST_F(LogPages, SmartCountsWhatHostsDid) {
  d.host.io = {.read_commands = 10,
               .write_commands = 20,
               .read_bytes = 512'000,
               .written_bytes = 512'001,
               .busy_ns = 125'000'000'000};
  d.controller().record_error(1, 1, Status::unrecovered_read_error, 1, 0);
  d.controller().record_error(1, 2, Status::compare_failure, 1, 0);
  d.now_ns += 2 * 3'600'000'000'000;
  d.poll();
  const nvme::SmartHealth s = smart();
  EXPECT_EQ(s.critical_warning, 0);
  EXPECT_EQ(s.composite_temperature[0] | (s.composite_temperature[1] << 8), 310);
  EXPECT_EQ(s.available_spare, 100);
  EXPECT_EQ(s.host_read_commands.low, 10u);
  EXPECT_EQ(s.host_write_commands.low, 20u);
  EXPECT_EQ(s.data_units_read.low, 1u);
  EXPECT_EQ(s.data_units_written.low, 2u) << "rounded up";
  EXPECT_EQ(s.controller_busy_time.low, 2u) << "minutes";
  EXPECT_EQ(s.power_cycles.low, 1u);
  EXPECT_EQ(s.power_on_hours.low, 2u);
  EXPECT_EQ(s.unsafe_shutdowns.low, 0u);
  EXPECT_EQ(s.media_errors.low, 1u) << "a failed comparison lost no data";
  EXPECT_EQ(s.error_log_entries.low, 2u);
}

TEST(SmartOfSeveralControllers, IsSummedAndKeptWhenAControllerGoes) {
  DeviceOptions options;
  options.controllers = 3;
  TestDevice d(options);
  d.enable();
  d.host.io.read_commands = 7;
  d.log_page(LogPage::smart_health, 512);
  EXPECT_EQ(d.data<nvme::SmartHealth>().host_read_commands.low, 21u);
  d.all.pop_back();
  d.log_page(LogPage::smart_health, 512);
  EXPECT_EQ(d.data<nvme::SmartHealth>().host_read_commands.low, 21u);
}

TEST_F(LogPages, CriticalWarningFollowsTheThresholds) {
  d.set_feature(nvme::Feature::temperature_threshold, 310);
  EXPECT_EQ(smart().critical_warning, nvme::kCriticalWarningTemperature);
  d.set_feature(nvme::Feature::temperature_threshold, 311);
  EXPECT_EQ(smart().critical_warning, 0);
  d.set_feature(nvme::Feature::temperature_threshold,
                nvme::encode_temperature_threshold({.tmpth = 310, .tmpsel = 0, .thsel = 1}));
  EXPECT_EQ(smart().critical_warning, nvme::kCriticalWarningTemperature);
}

TEST_F(LogPages, FirmwareSlot) {
  ASSERT_EQ(d.log_page(LogPage::firmware_slot, 512).status_field, 0);
  const auto page = d.data<nvme::FirmwareSlot>();
  EXPECT_EQ(page.afi, 1);
  EXPECT_EQ(std::string(page.frs[0], 8), "0.1.0   ");
  EXPECT_EQ(page.frs[1][0], 0);
}

TEST_F(LogPages, ChangedNamespacesAreForgottenWhenReadWithoutRae) {
  d.controller().notify_namespace_changed(5);
  d.controller().notify_namespace_changed(2);
  d.controller().notify_namespace_changed(5);
  for (const bool rae : {true, false}) {
    ASSERT_EQ(d.log_page(LogPage::changed_namespace_list, 4096, {.rae = rae}).status_field, 0);
    const auto page = d.data<nvme::ChangedNamespaceList>();
    EXPECT_EQ(page.nsid[0], 2u);
    EXPECT_EQ(page.nsid[1], 5u);
    EXPECT_EQ(page.nsid[2], 0u);
  }
  d.log_page(LogPage::changed_namespace_list, 4096);
  EXPECT_EQ(d.data<nvme::ChangedNamespaceList>().nsid[0], 0u);
}

TEST_F(LogPages, CommandEffectsAgreeWithTheDispatcher) {
  ASSERT_EQ(d.log_page(LogPage::commands_supported_and_effects, 4096).status_field, 0);
  const auto page = d.data<nvme::CommandsSupportedAndEffects>();
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.cdw10 = 0xFF;  // nothing that would do harm
    const Status status = d.run(sqe).status();
    EXPECT_EQ((page.acs[opcode] & nvme::kEffectSupported) != 0, status != Status::invalid_opcode) << opcode;
  }
  unsigned io_commands = 0;
  for (const std::uint32_t entry : page.iocs) io_commands += entry & nvme::kEffectSupported;
  EXPECT_EQ(io_commands, 9u);
  EXPECT_NE(page.iocs[1] & nvme::kEffectLogicalBlockContent, 0u);
  EXPECT_EQ(page.iocs[2] & nvme::kEffectLogicalBlockContent, 0u);
  EXPECT_NE(page.acs[0x80] & nvme::kEffectLogicalBlockContent, 0u);
  EXPECT_EQ(d.log_page(LogPage::commands_supported_and_effects, 4096, {.csi = 2}).status(), Status::invalid_field);
}

TEST_F(LogPages, FeatureEffectsAgreeWithGetFeatures) {
  ASSERT_EQ(d.log_page(LogPage::feature_identifiers_supported_and_effects, 1024).status_field, 0);
  const auto page = d.data<FeatureIdentifiersEffects>();
  for (unsigned fid = 0; fid < 256; ++fid) {
    const Status status = d.get_feature(static_cast<nvme::Feature>(fid), 3).status();
    EXPECT_EQ((page.fid[fid] & nvme::kEffectSupported) != 0, status == Status::success) << fid;
  }
}

TEST_F(LogPages, OffsetsAndLengths) {
  for (std::uint16_t cid = 0; cid < 3; ++cid) d.controller().record_error(1, cid, Status::invalid_field, 1, 0);
  ASSERT_EQ(d.log_page(LogPage::error_information, 64, {.lpo = 128}).status_field, 0);
  EXPECT_EQ(d.data<nvme::ErrorInformationEntry>().error_count, 1u) << "the third entry";
  std::memset(d.at(kData), 0xEE, 128);
  ASSERT_EQ(d.log_page(LogPage::error_information, 4).status_field, 0);
  EXPECT_EQ(d.data<std::uint32_t>(4), 0xEEEEEEEEu) << "not more than was asked for";
  std::memset(d.at(kData), 0xEE, 1024);
  ASSERT_EQ(d.log_page(LogPage::smart_health, 1024).status_field, 0);
  EXPECT_EQ(d.data<std::uint32_t>(512), 0u) << "zero beyond the page";
  EXPECT_EQ(d.log_page(LogPage::smart_health, 4, {.lpo = 512}).status_field, 0);
  EXPECT_EQ(d.data<std::uint32_t>(), 0u);
  EXPECT_EQ(d.log_page(LogPage::smart_health, 4, {.lpo = 516}).status(), Status::invalid_field);
  EXPECT_EQ(d.log_page(LogPage::smart_health, 4, {.lpo = 0xFFFF'FFFF'FFFF'FFFC}).status(), Status::invalid_field);
  EXPECT_EQ(d.log_page(LogPage::smart_health, 4, {.lpo = 2}).status(), Status::invalid_field) << "not a dword offset";
}

TEST_F(LogPages, LengthsUpToTheTransferLimit) {
  EXPECT_EQ(d.log_page(LogPage::smart_health, 1 << 20).status_field, 0) << "MDTS";
  nvme::Sqe sqe = TestDevice::command(AdminOpcode::get_log_page);
  for (const std::uint32_t numd : {(1u << 18), 0xFFFFFFFFu}) {
    nvme::encode_get_log_page({.lid = 2, .numd = numd}, sqe);
    sqe.prp1 = kData;
    EXPECT_EQ(d.run(sqe).status(), Status::invalid_field) << numd;
  }
}

TEST_F(LogPages, RefusedFields) {
  EXPECT_EQ(d.log_page(LogPage::smart_health, 512, {}, 0).status_field, 0);
  EXPECT_EQ(d.log_page(LogPage::smart_health, 512, {}, 1).status(), Status::invalid_field) << "not per namespace";
  EXPECT_EQ(d.log_page(LogPage::smart_health, 512, {.uuid_index = 1}).status(), Status::invalid_field);
  EXPECT_EQ(d.log_page(LogPage::smart_health, 512, {.ot = true}).status(), Status::invalid_field);
  EXPECT_EQ(d.log_page(static_cast<LogPage>(0xC0), 512).status(), Status::invalid_log_page);
}

}  // namespace
}  // namespace flashmob::controller::testing
