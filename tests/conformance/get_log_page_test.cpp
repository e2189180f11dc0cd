// Get Log Page (Base 2.0c, 5.16): the pages, their counters, offsets and lengths.
#include <algorithm>

#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

using nvme::LogPage;

class LogPageTest : public DeviceTest {
 protected:
  Status status_of_page(std::uint8_t lid, std::uint32_t dwords, std::uint64_t offset = 0,
                        std::uint32_t nsid = nvme::kNsidBroadcast) {
    Sqe sqe = make(AdminOpcode::get_log_page, nsid);
    sqe.cdw10 = lid | ((dwords - 1) << 16);
    sqe.cdw12 = static_cast<std::uint32_t>(offset);
    sqe.cdw13 = static_cast<std::uint32_t>(offset >> 32);
    std::vector<std::byte> data(dwords * std::size_t{4});
    return admin_read(sqe, data);
  }
  nvme::SmartHealth smart() { return log_page<nvme::SmartHealth>(LogPage::smart_health); }
};

TEST_F(LogPageTest, SmartCountersAreTrue) {
  const nvme::SmartHealth before = smart();
  const auto data = noise(64 << 10, 1);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(write(kNs512, 0, data), Status::success);
  for (int i = 0; i < 30; ++i) read(kNs512, 0, 128);
  const nvme::SmartHealth after = smart();
  EXPECT_EQ(after.host_write_commands.low - before.host_write_commands.low, 10u);
  EXPECT_EQ(after.host_read_commands.low - before.host_read_commands.low, 30u);
  // Units of 1000 * 512 bytes, rounded up: 640 KiB and 1920 KiB.
  EXPECT_EQ(after.data_units_written.low - before.data_units_written.low, 2u);
  EXPECT_EQ(after.data_units_read.low - before.data_units_read.low, 4u);
}

TEST_F(LogPageTest, FailedCommandsAreNotCountedAsData) {
  const nvme::SmartHealth before = smart();
  Buffer target = buffer(512);
  EXPECT_EQ(io(target.attach(make(NvmOpcode::read, kNs512, 1 << 20, 1), 512)), Status::lba_out_of_range);
  const nvme::SmartHealth after = smart();
  EXPECT_EQ(after.data_units_read.low, before.data_units_read.low);
  EXPECT_EQ(after.error_log_entries.low, before.error_log_entries.low + 1);
}

TEST_F(LogPageTest, SmartOfAHealthyDrive) {
  const nvme::SmartHealth data = smart();
  EXPECT_EQ(data.critical_warning, 0);
  EXPECT_EQ(data.available_spare, 100);
  const unsigned kelvins = data.composite_temperature[0] | (unsigned{data.composite_temperature[1]} << 8);
  EXPECT_GT(kelvins, 273u);
  EXPECT_LT(kelvins, 373u);
  EXPECT_EQ(data.media_errors.low, 0u);
}

TEST_F(LogPageTest, FirmwareSlotNamesTheRunningFirmware) {
  const auto data = log_page<nvme::FirmwareSlot>(LogPage::firmware_slot);
  EXPECT_EQ(data.afi & 7, 1);
  EXPECT_EQ(std::string(data.frs[0], 8).substr(0, 5), "0.1.0");
}

TEST_F(LogPageTest, EffectsNameEveryCommand) {
  const auto data = log_page<nvme::CommandsSupportedAndEffects>(LogPage::commands_supported_and_effects);
  for (const AdminOpcode opcode :
       {AdminOpcode::delete_io_sq, AdminOpcode::create_io_sq, AdminOpcode::get_log_page, AdminOpcode::delete_io_cq,
        AdminOpcode::create_io_cq, AdminOpcode::identify, AdminOpcode::abort, AdminOpcode::set_features,
        AdminOpcode::get_features, AdminOpcode::async_event_request, AdminOpcode::namespace_management,
        AdminOpcode::namespace_attachment, AdminOpcode::keep_alive, AdminOpcode::doorbell_buffer_config,
        AdminOpcode::format_nvm})
    EXPECT_NE(data.acs[static_cast<std::uint8_t>(opcode)] & nvme::kEffectSupported, 0u) << int(opcode);
  for (const NvmOpcode opcode :
       {NvmOpcode::flush, NvmOpcode::write, NvmOpcode::read, NvmOpcode::write_uncorrectable, NvmOpcode::compare,
        NvmOpcode::write_zeroes, NvmOpcode::dataset_management, NvmOpcode::verify, NvmOpcode::copy})
    EXPECT_NE(data.iocs[static_cast<std::uint8_t>(opcode)] & nvme::kEffectSupported, 0u) << int(opcode);
  EXPECT_NE(data.iocs[static_cast<std::uint8_t>(NvmOpcode::write)] & nvme::kEffectLogicalBlockContent, 0u);
  EXPECT_EQ(data.iocs[static_cast<std::uint8_t>(NvmOpcode::read)] & nvme::kEffectLogicalBlockContent, 0u);
  EXPECT_EQ(data.acs[0xC5], 0u);
  EXPECT_EQ(data.iocs[0x99], 0u);
}

TEST_F(LogPageTest, EffectsTellTheTruthAboutUnknownOpcodes) {
  const auto data = log_page<nvme::CommandsSupportedAndEffects>(LogPage::commands_supported_and_effects);
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    if ((data.iocs[opcode] & nvme::kEffectSupported) != 0) continue;
    ASSERT_EQ(io(make(static_cast<NvmOpcode>(opcode), kNs512)), Status::invalid_opcode) << opcode;
    if ((data.acs[opcode] & nvme::kEffectSupported) != 0) continue;
    ASSERT_EQ(admin(make(static_cast<AdminOpcode>(opcode))), Status::invalid_opcode) << opcode;
  }
}

TEST_F(LogPageTest, SupportedPagesAnswerAndOthersDoNot) {
  const auto data = log_page<nvme::SupportedLogPages>(LogPage::supported_log_pages);
  for (unsigned lid = 0; lid < 256; ++lid) {
    const bool supported = (data.lid[lid] & nvme::kLidSupported) != 0;
    EXPECT_EQ(status_of_page(static_cast<std::uint8_t>(lid), 16),
              supported ? Status::success : Status::invalid_log_page)
        << "log page " << lid;
  }
  for (const LogPage page : {LogPage::error_information, LogPage::smart_health, LogPage::firmware_slot,
                             LogPage::changed_namespace_list, LogPage::commands_supported_and_effects})
    EXPECT_NE(data.lid[static_cast<std::uint8_t>(page)] & nvme::kLidSupported, 0u);
}

TEST_F(LogPageTest, OffsetsReadFromTheMiddle) {
  std::array<std::byte, 4096> whole;
  const auto lid = static_cast<std::uint8_t>(LogPage::commands_supported_and_effects);
  driver().log_page(lid, nvme::kNsidBroadcast, 0, whole);
  for (const std::size_t offset : {4u, 1024u, 2044u}) {
    std::array<std::byte, 512> part;
    driver().log_page(lid, nvme::kNsidBroadcast, offset, part);
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + offset, part.size()), 0) << offset;
  }
}

TEST_F(LogPageTest, BadOffsetsAreInvalidFields) {
  const auto lid = static_cast<std::uint8_t>(LogPage::smart_health);
  EXPECT_EQ(status_of_page(lid, 1, 508), Status::success);
  EXPECT_EQ(status_of_page(lid, 1, 513), Status::invalid_field) << "not a multiple of a dword";
  EXPECT_EQ(status_of_page(lid, 1, 516), Status::invalid_field) << "beyond the page";
  EXPECT_EQ(status_of_page(lid, 1, ~std::uint64_t{3}), Status::invalid_field);
}

TEST_F(LogPageTest, LengthsBeyondMdtsAreRefused) {
  const auto lid = static_cast<std::uint8_t>(LogPage::smart_health);
  EXPECT_EQ(status_of_page(lid, (128 << 10) / 4), Status::success);
  EXPECT_EQ(status_of_page(lid, (128 << 10) / 4 + 1), Status::invalid_field);
}

TEST_F(LogPageTest, ReadingPastTheEndAnswersZeroes) {
  std::array<std::byte, 1024> data;
  data.fill(std::byte{0x77});
  Sqe sqe = make(AdminOpcode::get_log_page, nvme::kNsidBroadcast);
  sqe.cdw10 = static_cast<std::uint8_t>(LogPage::smart_health) | (255u << 16);
  ASSERT_EQ(admin_read(sqe, data), Status::success);
  EXPECT_TRUE(std::all_of(data.begin() + 512, data.end(), [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_F(LogPageTest, NewControllersHaveNoErrors) {
  const auto entry = log_page<nvme::ErrorInformationEntry>(LogPage::error_information);
  EXPECT_EQ(entry.error_count, 0u);
}

}  // namespace
}  // namespace flashmob::conformance
