#include "memory/command_data.h"

#include <gtest/gtest.h>

#include "nvme/admin_command.h"
#include "nvme/features.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"
#include "nvme/zns.h"

namespace flashmob::memory {
namespace {

using nvme::AdminOpcode, nvme::NvmOpcode;

nvme::Sqe admin(AdminOpcode opcode) {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  return sqe;
}
nvme::Sqe io(NvmOpcode opcode) {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  return sqe;
}
void expect(const CommandData& data, DataWay way, std::uint64_t bytes) {
  EXPECT_EQ(data.way, way);
  EXPECT_EQ(data.bytes, bytes);
}

TEST(CommandData, OfAdminCommands) {
  expect(admin_command_data(admin(AdminOpcode::identify)), DataWay::from_device, 4096);
  nvme::Sqe sqe = admin(AdminOpcode::get_log_page);
  nvme::encode_get_log_page({.lid = 2, .numd = 127}, sqe);
  expect(admin_command_data(sqe), DataWay::from_device, 512);
  nvme::encode_get_log_page({.lid = 2, .numd = 0x12345}, sqe);
  expect(admin_command_data(sqe), DataWay::from_device, 0x12346 * 4);
  expect(admin_command_data(admin(AdminOpcode::namespace_attachment)), DataWay::to_device, 4096);
  sqe = admin(AdminOpcode::namespace_management);
  expect(admin_command_data(sqe), DataWay::to_device, 4096);
  sqe.cdw10 = nvme::kNamespaceDelete;
  expect(admin_command_data(sqe), DataWay::none, 0);
  for (const auto opcode : {AdminOpcode::abort, AdminOpcode::keep_alive, AdminOpcode::async_event_request,
                            AdminOpcode::format_nvm, AdminOpcode::delete_io_sq})
    expect(admin_command_data(admin(opcode)), DataWay::none, 0);
}

TEST(CommandData, OfFeatures) {
  nvme::Sqe set = admin(AdminOpcode::set_features);
  nvme::Sqe get = admin(AdminOpcode::get_features);
  set.cdw10 = get.cdw10 = static_cast<std::uint32_t>(nvme::Feature::timestamp);
  expect(admin_command_data(set), DataWay::to_device, 8);
  expect(admin_command_data(get), DataWay::from_device, 8);
  get.cdw10 |= 3u << 8;  // supported capabilities come in the completion alone
  expect(admin_command_data(get), DataWay::none, 0);
  get.cdw10 = static_cast<std::uint32_t>(nvme::Feature::host_identifier);
  expect(admin_command_data(get), DataWay::from_device, 8);
  get.cdw11 = 1;
  expect(admin_command_data(get), DataWay::from_device, 16);
  set.cdw10 = static_cast<std::uint32_t>(nvme::Feature::number_of_queues);
  expect(admin_command_data(set), DataWay::none, 0);
}

TEST(CommandData, OfIoCommands) {
  nvme::Sqe sqe = io(NvmOpcode::read);
  nvme::set_lba_range(sqe, 7, 65536);
  EXPECT_TRUE(depends_on_shape(sqe));
  expect(io_command_data(sqe, {.block_bytes = 4096}), DataWay::from_device, std::uint64_t{65536} * 4096);
  sqe.opcode = static_cast<std::uint8_t>(NvmOpcode::compare);
  expect(io_command_data(sqe, {.block_bytes = 512}), DataWay::to_device, 65536 * 512);
  sqe = io(NvmOpcode::dataset_management);
  sqe.cdw10 = 255;
  EXPECT_FALSE(depends_on_shape(sqe));
  expect(io_command_data(sqe, {.block_bytes = 0}), DataWay::to_device, 4096);
  sqe = io(NvmOpcode::copy);
  sqe.cdw12 = 1;
  expect(io_command_data(sqe, {.block_bytes = 0}), DataWay::to_device, 64);
  for (const auto opcode :
       {NvmOpcode::flush, NvmOpcode::write_zeroes, NvmOpcode::write_uncorrectable, NvmOpcode::verify})
    expect(io_command_data(io(opcode), {.block_bytes = 512}), DataWay::none, 0);
}

TEST(CommandData, OfPlacement) {
  nvme::Sqe sqe = io(NvmOpcode::io_management_receive);
  sqe.cdw11 = 7;
  EXPECT_FALSE(depends_on_shape(sqe));
  expect(io_command_data(sqe, {.block_bytes = 512}), DataWay::from_device, 32);
  sqe = io(NvmOpcode::io_management_send);
  sqe.cdw10 = 0x0004'0001;
  expect(io_command_data(sqe, {.block_bytes = 512}), DataWay::to_device, 10);
  sqe.cdw10 = 0x0004'0000;
  expect(io_command_data(sqe, {.block_bytes = 512}), DataWay::none, 0);
  nvme::Sqe admin{};
  admin.opcode = static_cast<std::uint8_t>(AdminOpcode::directive_receive);
  admin.cdw10 = 1023;
  expect(admin_command_data(admin), DataWay::from_device, 4096);
  admin.opcode = static_cast<std::uint8_t>(AdminOpcode::directive_send);
  expect(admin_command_data(admin), DataWay::none, 0);
  admin.opcode = static_cast<std::uint8_t>(AdminOpcode::set_features);
  admin.cdw10 = static_cast<std::uint32_t>(nvme::Feature::fdp_events);
  admin.cdw11 = 0x0002'0001;
  expect(admin_command_data(admin), DataWay::to_device, 2);
  admin.opcode = static_cast<std::uint8_t>(AdminOpcode::get_features);
  expect(admin_command_data(admin), DataWay::from_device, 4);
}

TEST(CommandData, OfZonedNamespaces) {
  const DataShape zoned{.block_bytes = 4096, .extension_bytes = 192, .csi = nvme::Csi::zoned};
  const DataShape nvm{.block_bytes = 4096};
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(nvme::ZonedOpcode::zone_append);
  sqe.cdw12 = 3;
  EXPECT_TRUE(depends_on_shape(sqe));
  expect(io_command_data(sqe, zoned), DataWay::to_device, 4 * 4096);
  expect(io_command_data(sqe, nvm), DataWay::none, 0);
  sqe.opcode = static_cast<std::uint8_t>(nvme::ZonedOpcode::zone_management_receive);
  EXPECT_TRUE(depends_on_shape(sqe)) << "another set may have another command there";
  expect(io_command_data(sqe, zoned), DataWay::from_device, 16);
  sqe.opcode = static_cast<std::uint8_t>(nvme::ZonedOpcode::zone_management_send);
  sqe.cdw13 = static_cast<std::uint32_t>(nvme::ZoneSendAction::reset);
  expect(io_command_data(sqe, zoned), DataWay::none, 0);
  sqe.cdw13 = static_cast<std::uint32_t>(nvme::ZoneSendAction::set_descriptor_extension);
  expect(io_command_data(sqe, zoned), DataWay::to_device, 192);
  sqe = io(NvmOpcode::write);
  expect(io_command_data(sqe, zoned), DataWay::to_device, 4096);
}

TEST(CommandData, OfKeyValueNamespaces) {
  using nvme::KvOpcode;
  const DataShape kv{.block_bytes = 512, .csi = nvme::Csi::key_value};
  nvme::Sqe sqe{};
  sqe.cdw10 = 1001;  // bytes
  sqe.cdw12 = 7;
  const auto length = [&](KvOpcode opcode) {
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    EXPECT_TRUE(depends_on_shape(sqe));
    return io_command_data(sqe, kv);
  };
  expect(length(KvOpcode::store), DataWay::to_device, 1001);
  expect(length(KvOpcode::retrieve), DataWay::from_device, 1001);
  expect(length(KvOpcode::list), DataWay::from_device, 1001);
  expect(length(KvOpcode::delete_key), DataWay::none, 0);
  expect(length(KvOpcode::exist), DataWay::none, 0);
  sqe.cdw10 = 0;
  expect(length(KvOpcode::store), DataWay::none, 0);
  sqe.opcode = static_cast<std::uint8_t>(KvOpcode::store);
  expect(io_command_data(sqe, {.block_bytes = 512}), DataWay::to_device, 8 * 512);
}

TEST(CommandData, VendorCommandsStateTheirLength) {
  nvme::Sqe sqe{};
  sqe.opcode = 0xC2;
  sqe.cdw10 = 16;
  expect(admin_command_data(sqe), DataWay::from_device, 64);
  sqe.opcode = 0x91;
  expect(io_command_data(sqe, {.block_bytes = 512}), DataWay::to_device, 64);
  sqe.opcode = 0x90;  // no direction
  expect(io_command_data(sqe, {.block_bytes = 512}), DataWay::none, 0);
}

}  // namespace
}  // namespace flashmob::memory
