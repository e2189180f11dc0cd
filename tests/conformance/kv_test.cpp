// A namespace of the Key Value command set beside others (NVM Express Key Value Command Set 1.0), through the driver
// and the in-process door: what a host finds, its commands, formats, faults, and that a Store is no Write.
#include <algorithm>
#include <functional>
#include <string>

#include "conformance/device_fixture.h"
#include "nvme/admin_command.h"
#include "nvme/identify_namespace.h"
#include "nvme/io_commands.h"
#include "nvme/kv.h"

namespace flashmob::conformance {
namespace {

using nvme::Cns;
using nvme::Csi;
using nvme::KvOpcode;

constexpr std::uint32_t kNsKv = 2;
constexpr std::uint32_t kMaxValue = 64 << 10;

DeviceConfig kv_device() {
  DeviceConfig config = suite::small_device();
  config.engine.kind = "host";
  NamespaceConfig& ns = config.subsystem.namespaces[1];
  ns.lba_bytes = 512;
  ns.command_set = "kv";
  ns.kv.max_value_bytes = kMaxValue;
  ns.kv.max_keys = 1000;
  ns.kv.lookup_ns = 3'000;
  return config;
}

class KvTest : public DeviceTest {
 protected:
  KvTest() : DeviceTest(kv_device()) {}

  static Sqe command(KvOpcode opcode, const std::string& key, std::uint32_t bytes = 0, std::uint8_t options = 0,
                     std::uint32_t nsid = kNsKv) {
    Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = nsid;
    sqe.cdw10 = bytes;
    sqe.cdw11 = std::uint32_t{options} << 8;
    nvme::set_kv_key(sqe, std::as_bytes(std::span(key)));
    return sqe;
  }
  Status store(const std::string& key, std::span<const std::byte> value, std::uint8_t options = 0) {
    Buffer source = buffer(std::max<std::size_t>(value.size(), 4));
    source.store(value);
    const auto bytes = static_cast<std::uint32_t>(value.size());
    return io(source.attach(command(KvOpcode::store, key, bytes, options), bytes));
  }
  struct Retrieved {
    Status status;
    std::uint32_t value_bytes;
    std::vector<std::byte> data;
  };
  Retrieved retrieve(const std::string& key, std::uint32_t room = kMaxValue) {
    Buffer target = buffer(std::max(room, 4u));
    target.fill(std::byte{0xEE});
    const Cqe cqe = run(target.attach(command(KvOpcode::retrieve, key, room), room));
    const std::uint32_t bytes = status_of(cqe) == Status::success ? std::min(cqe.dw0, room) : 0;
    for (std::size_t at = bytes; at < target.size(); ++at)
      if (target.data()[at] != std::byte{0xEE}) ADD_FAILURE() << "byte " << at << " behind the value";
    return {status_of(cqe), cqe.dw0, target.copy(bytes)};
  }
  Status without_data(KvOpcode opcode, const std::string& key) { return io(command(opcode, key)); }

  template <class T>
  std::pair<Status, T> identify_set(Cns cns, std::uint32_t nsid, Csi csi) {
    T data{};
    Sqe sqe = make(AdminOpcode::identify, nsid);
    nvme::encode_identify({.cns = static_cast<std::uint8_t>(cns), .csi = static_cast<std::uint8_t>(csi)}, sqe);
    const Status status = admin_read(sqe, std::as_writable_bytes(std::span(&data, 1)));
    return {status, data};
  }
  nvme::IdentifyNamespaceKv identify_kv() {
    const auto [status, n] = identify_set<nvme::IdentifyNamespaceKv>(Cns::csi_namespace, kNsKv, Csi::key_value);
    EXPECT_EQ(status, Status::success);
    return n;
  }
  Status format(std::uint32_t nsid, std::uint32_t cdw10) {
    Sqe sqe = make(AdminOpcode::format_nvm, nsid);
    sqe.cdw10 = cdw10;
    return admin(sqe);
  }
};

TEST_F(KvTest, WhatAHostFinds) {
  const auto sets = identify<nvme::IdentifyIoCommandSet>(Cns::io_command_sets, 0, 0xFFFF);
  EXPECT_EQ(sets.iocsc[0], 0b011u) << "NVM and Key Value";
  const auto n = identify_kv();
  EXPECT_EQ(n.nsze, kNsBytes - kMaxValue) << "bytes, without the room for a value that replaces another";
  EXPECT_EQ(n.nuse, 0u);
  EXPECT_EQ(n.nkvf, 0) << "0's based";
  EXPECT_EQ(n.novg, 512u);
  EXPECT_EQ(n.nmic, nvme::kNmicShared);
  EXPECT_EQ(n.nsattr, 0);
  EXPECT_EQ(n.kvf[0].kml, 16);
  EXPECT_EQ(n.kvf[0].vml, kMaxValue);
  EXPECT_EQ(n.kvf[0].mnk, 1000u);
  EXPECT_TRUE(std::ranges::any_of(n.nguid, [](std::uint8_t byte) { return byte != 0; }));
  const auto list = identify<std::array<std::uint8_t, 4096>>(Cns::namespace_identification_descriptors, kNsKv);
  EXPECT_EQ(nvme::command_set_in(list), Csi::key_value);
  EXPECT_EQ(identify<nvme::IdentifyNamespaceIndependent>(Cns::independent_namespace, kNsKv).nstat, nvme::kNstatReady);
  EXPECT_EQ((identify_set<std::array<std::byte, 4096>>(Cns::csi_controller, 0, Csi::key_value).first), Status::success);
}

TEST_F(KvTest, WhatOtherSetsSayIsNotToBeHad) {
  Sqe sqe = make(AdminOpcode::identify, kNsKv);
  std::array<std::byte, 4096> page{};
  EXPECT_EQ(admin_read(sqe, page), Status::invalid_io_command_set) << "it has no logical blocks";
  using Nvm = nvme::IdentifyNamespaceNvm;
  EXPECT_EQ(identify_set<Nvm>(Cns::csi_namespace, kNsKv, Csi::nvm).first, Status::invalid_field);
  using Kv = nvme::IdentifyNamespaceKv;
  EXPECT_EQ(identify_set<Kv>(Cns::csi_namespace, kNs512, Csi::key_value).first, Status::invalid_field);
  EXPECT_EQ(identify_set<Kv>(Cns::csi_namespace, kNsKv, Csi::zoned).first, Status::invalid_field);
}

TEST_F(KvTest, EffectsLog) {
  nvme::CommandsSupportedAndEffects page{};
  Sqe sqe = make(AdminOpcode::get_log_page);
  nvme::encode_get_log_page({.lid = static_cast<std::uint8_t>(nvme::LogPage::commands_supported_and_effects),
                             .numd = sizeof(page) / 4 - 1,
                             .csi = static_cast<std::uint8_t>(Csi::key_value)},
                            sqe);
  ASSERT_EQ(admin_read(sqe, std::as_writable_bytes(std::span(&page, 1))), Status::success);
  for (std::size_t opcode = 0; opcode < 256; ++opcode) {
    const bool known = nvme::find_io_command(Csi::key_value, static_cast<std::uint8_t>(opcode)) != nullptr;
    EXPECT_EQ((page.iocs[opcode] & nvme::kEffectSupported) != 0, known) << opcode;
  }
  EXPECT_NE(page.iocs[0x01], page.iocs[0x02]) << "Store changes what the namespace holds";
  EXPECT_EQ(page.iocs[0x01], page.iocs[0x10]) << "so does Delete";
}

TEST_F(KvTest, ValuesOfManyLengths) {
  for (const std::size_t bytes : {0u, 1u, 3u, 511u, 512u, 513u, 4096u, 4097u, 12'345u, kMaxValue}) {
    const auto value = noise(bytes, bytes);
    ASSERT_EQ(store("key", value), Status::success) << bytes;
    const Retrieved got = retrieve("key");
    EXPECT_EQ(got.value_bytes, bytes);
    EXPECT_TRUE(got.data == value) << bytes;
  }
  const Retrieved part = retrieve("key", 1000);
  EXPECT_EQ(part.status, Status::success);
  EXPECT_EQ(part.value_bytes, kMaxValue);
  const auto all = noise(kMaxValue, kMaxValue);
  EXPECT_TRUE(std::equal(part.data.begin(), part.data.end(), all.begin()));
  EXPECT_EQ(part.data.size(), 1000u);
}

TEST_F(KvTest, LengthsAndOptionsThatAreWrong) {
  const auto value = noise(100, 1);
  EXPECT_EQ(store("", value), Status::invalid_key_size);
  EXPECT_EQ(store(std::string(17, 'k'), value), Status::invalid_key_size);
  EXPECT_EQ(store("k", noise(kMaxValue + 1, 1)), Status::invalid_value_size);
  EXPECT_EQ(store("k", value, 0x80), Status::invalid_field);
  EXPECT_EQ(store("k", value, nvme::kStoreMustExist), Status::key_does_not_exist);
  EXPECT_EQ(store("k", value, nvme::kStoreMustNotExist), Status::success);
  EXPECT_EQ(store("k", value, nvme::kStoreMustNotExist), Status::key_exists);
  EXPECT_EQ(retrieve("l").status, Status::key_does_not_exist);
  EXPECT_EQ(without_data(KvOpcode::exist, "l"), Status::key_does_not_exist);
  EXPECT_EQ(without_data(KvOpcode::delete_key, "l"), Status::key_does_not_exist);
  EXPECT_EQ(without_data(KvOpcode::delete_key, ""), Status::invalid_key_size);
  EXPECT_EQ(io(command(KvOpcode::store, "k", 512)), Status::data_transfer_error) << "PRP1 = 0";
}

TEST_F(KvTest, UtilizationFollowsWhatIsStored) {
  ASSERT_EQ(store("a", noise(513, 1)), Status::success);
  ASSERT_EQ(store("b", noise(0, 1)), Status::success);
  EXPECT_EQ(identify_kv().nuse, 3u * 512);
  ASSERT_EQ(store("a", noise(4096, 1)), Status::success);
  EXPECT_EQ(identify_kv().nuse, 9u * 512);
  ASSERT_EQ(without_data(KvOpcode::delete_key, "a"), Status::success);
  EXPECT_EQ(identify_kv().nuse, 512u);
}

TEST_F(KvTest, AFullNamespaceKeepsWhatItHolds) {
  const auto value = noise(kMaxValue, 7);
  unsigned stored = 0;
  while (stored < 1000 && store("k" + std::to_string(stored), value) == Status::success) ++stored;
  EXPECT_EQ(stored, kNsBytes / kMaxValue - 1);
  EXPECT_EQ(store("more", value), Status::capacity_exceeded);
  EXPECT_EQ(store("k0", noise(kMaxValue, 8)), Status::success) << "what replaces has room";
  for (unsigned i = 1; i < stored; ++i) EXPECT_TRUE(retrieve("k" + std::to_string(i)).data == value) << i;
  EXPECT_TRUE(retrieve("k0").data == noise(kMaxValue, 8));
  EXPECT_EQ(identify_kv().nuse, identify_kv().nsze);
}

TEST_F(KvTest, List) {
  for (const char* key : {"c", "a", "bb"}) ASSERT_EQ(store(key, noise(10, 1)), Status::success);
  Buffer target = buffer(64);
  ASSERT_EQ(io(target.attach(command(KvOpcode::list, "b", 64), 64)), Status::success);
  const std::string wanted("\2\0\0\0\2\0bb\1\0c\0\0", 13);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(target.data()), 13), wanted);
  EXPECT_EQ(io(target.attach(command(KvOpcode::list, "", 3), 3)), Status::invalid_field);
}

TEST_F(KvTest, AStoreIsNoWrite) {
  ASSERT_EQ(store("k", noise(512, 1)), Status::success);
  const std::uint64_t nuse = identify_kv().nuse;
  Buffer data = buffer(4096);
  // What another set would write or read 8 blocks by is a Store of 0 bytes with a key of 0 here.
  EXPECT_EQ(io(data.attach(make(NvmOpcode::write, kNsKv, 0, 8), 4096)), Status::invalid_key_size);
  EXPECT_EQ(io(data.attach(make(NvmOpcode::read, kNsKv, 0, 8), 4096)), Status::invalid_key_size);
  EXPECT_EQ(io(make(NvmOpcode::write_zeroes, kNsKv, 0, 8)), Status::invalid_opcode);
  EXPECT_EQ(io(make(NvmOpcode::flush, kNsKv)), Status::success);
  EXPECT_EQ(identify_kv().nuse, nuse);
  EXPECT_TRUE(retrieve("k").data == noise(512, 1));
  // And of a namespace of blocks, its commands are none.
  EXPECT_EQ(io(command(KvOpcode::exist, "k", 0, 0, kNs512)), Status::invalid_opcode);
  EXPECT_EQ(io(command(KvOpcode::list, "k", 64, 0, kNs512)), Status::invalid_opcode);
}

TEST_F(KvTest, FormatForgetsEverything) {
  ASSERT_EQ(store("k", noise(512, 1)), Status::success);
  EXPECT_EQ(format(kNsKv, 1), Status::invalid_format) << "there is one KV format";
  EXPECT_EQ(retrieve("k").status, Status::success);
  EXPECT_EQ(format(kNsKv, 0), Status::success);
  EXPECT_EQ(identify_kv().nuse, 0u);
  EXPECT_EQ(retrieve("k").status, Status::key_does_not_exist);
  EXPECT_EQ(store("k", noise(512, 2)), Status::success);
  EXPECT_TRUE(retrieve("k").data == noise(512, 2));
}

TEST_F(KvTest, ADeletedNamespaceIsNoMore) {
  ASSERT_EQ(store("k", noise(512, 1)), Status::success);
  Sqe sqe = make(AdminOpcode::namespace_management, kNsKv);
  sqe.cdw10 = nvme::kNamespaceDelete;
  EXPECT_EQ(admin(sqe), Status::success);
  EXPECT_EQ(without_data(KvOpcode::exist, "k"), Status::invalid_field);
  sqe = make(AdminOpcode::namespace_management);
  sqe.cdw11 = static_cast<std::uint32_t>(Csi::key_value) << 24;
  std::array<std::byte, 4096> wanted{};
  EXPECT_EQ(admin_write(sqe, wanted), Status::io_command_set_not_supported) << "hosts make none";
}

TEST_F(KvTest, FaultsAreOfItsOwnCommands) {
  ASSERT_EQ(store("k", noise(512, 1)), Status::success);
  device.engine().faults().set({"error on=write", "error on=read"});
  EXPECT_EQ(store("k", noise(512, 2)), Status::success);
  EXPECT_EQ(retrieve("k").status, Status::success);
  device.engine().faults().set({"error on=retrieve"});
  EXPECT_EQ(retrieve("k").status, Status::unrecovered_error);
  EXPECT_EQ(without_data(KvOpcode::exist, "k"), Status::success);
  device.engine().faults().set({"corrupt on=io"});
  EXPECT_EQ(store("k", noise(512, 3)), Status::success);
  EXPECT_TRUE(retrieve("k").data == noise(512, 3)) << "what is corrupted are blocks";
  device.engine().faults().set({});
}

// As the device's model says for what is moved, and the time for the index.
TEST_F(KvTest, ItTakesItsTime) {
  const auto time_of = [this](const std::function<void()>& step) {
    const std::uint64_t begin_ns = device.now_ns();
    step();
    return device.now_ns() - begin_ns;
  };
  const auto value = noise(512, 1);
  EXPECT_GE(time_of([&] { store("k", value); }), 13'000u);
  EXPECT_GE(time_of([&] { retrieve("k", 512); }), 13'000u);
  EXPECT_GE(time_of([&] { without_data(KvOpcode::exist, "k"); }), 13'000u);
  EXPECT_LT(time_of([&] { without_data(KvOpcode::exist, "k"); }), 20'000u);
  EXPECT_GE(time_of([&] { without_data(KvOpcode::exist, "l"); }), 3'000u) << "it is looked for, and is not there";
}

TEST_F(KvTest, TheErrorLogNamesNoBlock) {
  ASSERT_EQ(io(command(KvOpcode::retrieve, "missing", 0)), Status::key_does_not_exist);
  const auto entry = log_page<nvme::ErrorInformationEntry>(nvme::LogPage::error_information);
  EXPECT_EQ(nvme::status_of(static_cast<std::uint16_t>(entry.status_field >> 1)), Status::key_does_not_exist);
  EXPECT_EQ(entry.lba, 0u);
}

}  // namespace
}  // namespace flashmob::conformance
