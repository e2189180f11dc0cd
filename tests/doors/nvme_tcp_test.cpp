// Our driver over our initiator over sockets to our target: data, queues, resets, and what happens when either end goes
// away under load.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <array>

#include "doors/nvme_tcp_load.h"
#include "initiator/nvme_tcp/nvme_tcp_discovery.h"
#include "nvme/dataset.h"
#include "nvme/fabrics.h"
#include "nvme/features.h"
#include "nvme/identify.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"
#include "nvme/registers.h"

namespace flashmob::doors {
namespace {

using nvme::NvmOpcode, nvme::Status;

TEST(NvmeTcpDoor, IdentifyLogsAndFeatures) {
  Ssd ssd;
  Host host(host_options(ssd), 1, 4);
  nvme::IdentifyController id;
  host.driver.identify(1, 0, std::as_writable_bytes(std::span(&id, 1)));
  EXPECT_STREQ(id.subnqn, ssd.config.subsystem.nqn.c_str());
  EXPECT_EQ(id.cntlid, host.device.controller_id());
  EXPECT_GE(id.ioccsz, 4u);
  EXPECT_GT(id.kas, 0);
  nvme::IdentifyNamespace ns;
  host.driver.identify(0, 1, std::as_writable_bytes(std::span(&ns, 1)));
  EXPECT_EQ(ns.nsze, kNamespaceBytes / kBlockBytes);
  std::array<std::byte, 512> smart;
  host.driver.log_page(2, 0xFFFFFFFF, 0, smart);
  const auto arbitration = static_cast<std::uint8_t>(nvme::Feature::arbitration);
  host.driver.set_feature(arbitration, 0x01020304);
  EXPECT_EQ(host.driver.get_feature(arbitration), 0x01020304u);
  // A property that is asked of the controller each time.
  EXPECT_TRUE(nvme::decode_csts(host.device.read32(nvme::kRegCsts)).rdy);
  EXPECT_FALSE(host.driver.fatal());
}

TEST(NvmeTcpDoor, AnAsynchronousEventRequestIsAborted) {
  Ssd ssd;
  Host host(host_options(ssd), 1, 4);
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::async_event_request);
  std::optional<std::uint16_t> field;
  const std::uint16_t cid =
      host.driver.admin_async(sqe, [&](driver::AdminResult result) { field = result.status_field; });
  EXPECT_TRUE(host.driver.abort(0, cid));
  const std::uint64_t until_ns = Host::now_ns() + 2'000'000'000;
  while (!field && Host::now_ns() < until_ns) host.driver.poll_admin();
  ASSERT_TRUE(field.has_value());
  EXPECT_EQ(nvme::status_of(*field), Status::abort_requested);
}

struct Digests {
  bool header, data;
};
class NvmeTcpDoorDigests : public testing::TestWithParam<Digests> {};

TEST_P(NvmeTcpDoorDigests, EverySizeAndKindOfCommand) {
  Ssd ssd;
  initiator::NvmeTcpOptions options = host_options(ssd);
  options.header_digest = GetParam().header;
  options.data_digest = GetParam().data;
  Host host(options, 1, 2);
  std::uint64_t lba = 3;
  for (const std::uint32_t bytes : {512u, 1024u, 3584u, 4096u, 8192u, 8704u, 65536u, 131072u, 1u << 19, 1u << 20}) {
    fill_blocks(host.data(0, 0), lba, bytes, 1);
    ASSERT_EQ(host.run(NvmOpcode::write, lba, bytes), 0) << bytes;
    ASSERT_EQ(host.run(NvmOpcode::compare, lba, bytes), 0) << bytes;
    std::memset(host.data(0, 0), 0, bytes);
    ASSERT_EQ(host.run(NvmOpcode::read, lba, bytes), 0) << bytes;
    ASSERT_TRUE(holds_blocks(host.data(0, 0), lba, bytes, 1)) << bytes;
    host.data(0, 0)[bytes - 1] ^= std::byte{1};
    ASSERT_EQ(nvme::status_of(host.run(NvmOpcode::compare, lba, bytes)), Status::compare_failure) << bytes;
    lba += bytes / kBlockBytes + 1;
  }
  EXPECT_EQ(host.run(NvmOpcode::flush, 0, 0), 0);

  // Deallocated blocks read as zeroes, their neighbours as before.
  ASSERT_EQ(host.run(NvmOpcode::dataset_management, 0, 512,
                     [&](nvme::Sqe& sqe) {
                       sqe.cdw10 = 0;
                       sqe.cdw11 = nvme::kDatasetDeallocate;
                       sqe.cdw12 = 0;
                       const nvme::DatasetRange range{.context_attributes = 0, .nlb = 1, .slba = 3};
                       std::memcpy(host.data(0, 0), &range, sizeof range);
                     }),
            0);
  ASSERT_EQ(host.run(NvmOpcode::read, 3, 512), 0);
  for (std::uint32_t i = 0; i < 512; ++i) ASSERT_EQ(host.data(0, 0)[i], std::byte{0});
  ASSERT_EQ(host.run(NvmOpcode::write_zeroes, 5, 512), 0);
  EXPECT_EQ(nvme::status_of(host.run(NvmOpcode::read, kNamespaceBytes / kBlockBytes, 4096)), Status::lba_out_of_range);
}

INSTANTIATE_TEST_SUITE_P(All, NvmeTcpDoorDigests,
                         testing::Values(Digests{false, false}, Digests{true, false}, Digests{false, true},
                                         Digests{true, true}),
                         [](const auto& param) {
                           return std::string(param.param.header ? "Header" : "NoHeader") +
                                  (param.param.data ? "Data" : "NoData");
                         });

TEST(NvmeTcpDoor, ManyQueuesMixedSizes) {
  for (const unsigned pumps : {1u, 2u}) {
    Ssd ssd;
    initiator::NvmeTcpOptions options = host_options(ssd);
    options.pump_threads = pumps;
    options.data_digest = pumps == 2;
    Host host(options, 8, 4);
    Load load(host, 7);
    EXPECT_TRUE(load.run(1500));
    EXPECT_TRUE(host.drain());
  }
}

TEST(NvmeTcpDoor, TwoHostsAtOnce) {
  Ssd ssd;
  Host first(host_options(ssd), 2, 2);
  initiator::NvmeTcpOptions options = host_options(ssd);
  options.host_nqn = "nqn.2014-08.org.nvmexpress:second-host";
  Host second(options, 2, 2);
  EXPECT_NE(first.device.controller_id(), second.device.controller_id());
  fill_blocks(first.data(0, 0), 100, 65536, 1);
  ASSERT_EQ(first.run(NvmOpcode::write, 100, 65536), 0);
  ASSERT_EQ(second.run(NvmOpcode::read, 100, 65536), 0);
  EXPECT_TRUE(holds_blocks(second.data(0, 0), 100, 65536, 1));
  first.driver.disable();
  ASSERT_EQ(second.run(NvmOpcode::read, 100, 65536), 0);
}

TEST(NvmeTcpDoor, QueuesComeAndGo) {
  Ssd ssd;
  Host host(host_options(ssd), 3, 4);
  for (int i = 0; i < 10; ++i) {
    driver::QueuePair*& pair = host.pairs[i % 3];
    host.driver.delete_queue_pair(*pair);
    ASSERT_NO_THROW(pair = &host.driver.create_queue_pair({.sq_entries = 5})) << host.device.failure();
    ASSERT_EQ(host.run(NvmOpcode::read, 0, 4096), 0);
  }
  EXPECT_FALSE(host.driver.fatal());
  host.driver.shutdown(false);
  EXPECT_EQ(host.device.failure(), "");
}

TEST(NvmeTcpDoor, ResetUnderLoad) {
  Ssd ssd;
  Host host(host_options(ssd), 4, 8);
  Load load(host, 3);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(load.run(200));
    load.refill();
    host.ring();
    host.bring_up();
    load.forget();
    ASSERT_TRUE(load.check_all()) << "what was written before the reset remains";
  }
}

TEST(NvmeTcpDoor, TargetStoppedAndStartedUnderLoad) {
  Ssd ssd;
  Host host(host_options(ssd), 4, 8);
  Load load(host, 5);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(load.run(200));
    load.refill();
    host.ring();
    ssd.target.reset();
    ASSERT_TRUE(host.drain()) << "every command ends";
    EXPECT_TRUE(host.driver.fatal());
    EXPECT_THROW(host.bring_up(), driver::NvmeFatal) << "nobody is there";
    ssd.start_target();
    host.bring_up();
    load.forget();
    ASSERT_TRUE(load.check_all()) << "what was written before remains";
  }
}

TEST(NvmeTcpDoor, HostsThatVanishLeaveTheOthersAlone) {
  Ssd ssd;
  Host stays(host_options(ssd), 1, 4);
  Load load(stays, 11);
  for (int i = 0; i < 10; ++i) {
    initiator::NvmeTcpOptions options = host_options(ssd);
    options.host_nqn = "nqn.2014-08.org.nvmexpress:passing-host";
    initiator::NvmeTcpDevice device(options);
    driver::NvmeDriver driver(device, {[] { std::this_thread::yield(); }, Host::now_ns});
    driver.enable();
    driver.create_queue_pair({.sq_entries = 8});
    ASSERT_TRUE(load.run(50));
  }
  EXPECT_FALSE(stays.driver.fatal());
}

TEST(NvmeTcpDoor, DiscoveryNamesTheSubsystem) {
  Ssd ssd;
  const auto entries = initiator::discover(host_options(ssd));
  bool found = false;
  for (const nvme::DiscoveryEntry& entry : entries) {
    if (entry.subtype != nvme::kSubtypeNvm) continue;
    EXPECT_STREQ(entry.subnqn, ssd.config.subsystem.nqn.c_str());
    EXPECT_EQ(entry.trtype, nvme::kTrtypeTcp);
    EXPECT_EQ(std::string(entry.trsvcid, strnlen(entry.trsvcid, 32)).substr(0, 5), std::to_string(ssd.target->port()));
    found = true;
  }
  EXPECT_TRUE(found);
}

std::string text_of(const char* field, std::size_t bytes) {
  const std::string text(field, strnlen(field, bytes));
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

TEST(NvmeTcpDoor, DiscoveryNamesAllSsdsOfTheAddress) {
  DeviceConfig second = small_ssd(), third = small_ssd(), elsewhere = small_ssd();
  second.subsystem.nqn = "nqn.2014-08.org.nvmexpress:second";
  third.subsystem.nqn = "nqn.2014-08.org.nvmexpress:third";
  elsewhere.subsystem.nqn = "nqn.2014-08.org.nvmexpress:elsewhere";
  transport::NvmeTcpTargetOptions for_one, everywhere, other_address;
  for_one.hosts = {{.nqn = "nqn.2014-08.org.nvmexpress:chosen", .dhchap_secret = {}, .dhchap_controller_secret = {}}};
  everywhere.address = "0.0.0.0";
  other_address.address = "127.0.0.2";
  Ssd first;
  Ssd private_ssd(for_one, second);
  Ssd wide(everywhere, third);
  Ssd away(other_address, elsewhere);
  const auto seen = [](const Ssd& asked, const std::string& host_nqn) {
    initiator::NvmeTcpOptions options = host_options(asked);
    if (asked.options.address == "0.0.0.0") options.address = "127.0.0.1";
    options.host_nqn = host_nqn;
    std::vector<std::string> records;
    for (const nvme::DiscoveryEntry& entry : initiator::discover(options))
      records.push_back(text_of(entry.subnqn, sizeof entry.subnqn) + " " + text_of(entry.traddr, sizeof entry.traddr) +
                        ":" + text_of(entry.trsvcid, sizeof entry.trsvcid));
    return records;
  };
  const auto record = [](const Ssd& ssd, const std::string& address) {
    return ssd.config.subsystem.nqn + " " + address + ":" + std::to_string(ssd.target->port());
  };
  const std::string one = record(first, "127.0.0.1"), two = record(private_ssd, "127.0.0.1"),
                    three = record(wide, "127.0.0.1");
  using Records = std::vector<std::string>;
  EXPECT_EQ(seen(first, "nqn.2014-08.org.nvmexpress:chosen"), (Records{one, two, three}));
  EXPECT_EQ(seen(first, "nqn.2014-08.org.nvmexpress:other"), (Records{one, three})) << "not on the second's list";
  EXPECT_EQ(seen(private_ssd, "nqn.2014-08.org.nvmexpress:other"), (Records{one, three}));
  EXPECT_EQ(seen(wide, "nqn.2014-08.org.nvmexpress:chosen"), (Records{three, one, two})) << "its own comes first";
  EXPECT_EQ(seen(away, "nqn.2014-08.org.nvmexpress:chosen"),
            (Records{record(away, "127.0.0.2"), record(wide, "127.0.0.2")}));
  // Every record leads to an SSD.
  initiator::NvmeTcpOptions options = host_options(private_ssd);
  options.host_nqn = "nqn.2014-08.org.nvmexpress:chosen";
  Host host(options, 1, 2);
  EXPECT_EQ(host.run(NvmOpcode::read, 0, 4096), 0);
  private_ssd.target.reset();
  EXPECT_EQ(seen(first, "nqn.2014-08.org.nvmexpress:chosen"), (Records{one, three})) << "it has gone";
}

// An IPv6 address of this machine, ::1 if it has that; empty if it has none that needs no scope.
std::string own_ipv6() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(all, ::freeifaddrs);
  std::string found;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET6) continue;
    const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&address)) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET6, &address, text.data(), text.size());
    if (found.empty() || IN6_IS_ADDR_LOOPBACK(&address)) found = text.data();
  }
  return found;
}

TEST(NvmeTcpDoor, OverIpv6) {
  transport::NvmeTcpTargetOptions target;
  target.address = own_ipv6();
  if (target.address.empty()) GTEST_SKIP() << "this machine has no IPv6 address";
  Ssd ssd(target);
  const auto entries = initiator::discover(host_options(ssd));
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].adrfam, nvme::kAdrfamIpv6);
  EXPECT_EQ(text_of(entries[0].traddr, sizeof entries[0].traddr), target.address);
  EXPECT_EQ(text_of(entries[0].trsvcid, sizeof entries[0].trsvcid), std::to_string(ssd.target->port()));
  Host host(host_options(ssd), 2, 8);
  Load load(host, 23);
  ASSERT_TRUE(load.run(400)) << host.device.failure();
  load.refill();
  host.ring();
  host.bring_up();
  load.forget();
  EXPECT_TRUE(load.check_all());
}

constexpr char kSecret[] = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
constexpr char kOtherSecret[] = "DHHC-1:01:KCkqKywtLi8wMTIzNDU2Nzg5Ojs8PT4/QEFCQ0RFRkdMwdo9:";

TEST(NvmeTcpDoor, HostsProveWhoTheyAre) {
  transport::NvmeTcpTargetOptions target;
  target.hosts = {{.nqn = "nqn.2014-08.org.nvmexpress:good-host",
                   .dhchap_secret = kSecret,
                   .dhchap_controller_secret = kOtherSecret}};
  Ssd ssd(target);
  initiator::NvmeTcpOptions options = host_options(ssd);
  EXPECT_THROW(initiator::NvmeTcpDevice{options}, ConfigError) << "a host that is not on the list";
  options.host_nqn = "nqn.2014-08.org.nvmexpress:good-host";
  EXPECT_THROW(initiator::NvmeTcpDevice{options}, ConfigError) << "without its secret";
  options.dhchap_secret = kOtherSecret;
  EXPECT_THROW(initiator::NvmeTcpDevice{options}, ConfigError) << "with another's secret";
  options.dhchap_secret = kSecret;
  {
    Host host(options, 2, 2);
    EXPECT_EQ(host.run(NvmOpcode::read, 0, 4096), 0);
  }
  options.dhchap_controller_secret = kSecret;
  EXPECT_THROW(initiator::NvmeTcpDevice{options}, ConfigError) << "the controller cannot prove itself";
  options.dhchap_controller_secret = kOtherSecret;
  Host host(options, 2, 2);
  EXPECT_EQ(host.run(NvmOpcode::read, 0, 4096), 0);
  host.bring_up();
  EXPECT_EQ(host.run(NvmOpcode::read, 0, 4096), 0);
}

TEST(NvmeTcpDoor, AHostThatProvesWhoItIsGetsASecureChannelIfItAsks) {
  transport::NvmeTcpTargetOptions target;
  target.hosts = {{.nqn = "nqn.2014-08.org.nvmexpress:good-host",
                   .dhchap_secret = kSecret,
                   .dhchap_controller_secret = kOtherSecret},
                  {.nqn = "nqn.2014-08.org.nvmexpress:unproven", .dhchap_secret = {}, .dhchap_controller_secret = {}}};
  Ssd ssd(target);
  initiator::NvmeTcpOptions options = host_options(ssd);
  options.secure_channel = true;
  options.timeout_ms = 60'000;  // the door's arithmetic steps back for everybody
  options.dhchap_secret = kSecret;
  options.host_nqn = "nqn.2014-08.org.nvmexpress:unproven";
  EXPECT_THROW(initiator::NvmeTcpDevice{options}, ConfigError) << "nobody asks for its proof";
  options.host_nqn = "nqn.2014-08.org.nvmexpress:good-host";
  for (const bool both_ways : {false, true}) {
    options.dhchap_controller_secret = both_ways ? kOtherSecret : "";
    options.data_digest = both_ways;
    Host host(options, 2, 2);
    for (int association = 0; association < 2; ++association) {
      fill_blocks(host.data(0, 0), 5, 131072, 1);
      ASSERT_EQ(host.run(NvmOpcode::write, 5, 131072), 0);
      std::memset(host.data(0, 0), 0, 131072);
      ASSERT_EQ(host.run(NvmOpcode::read, 5, 131072), 0);
      ASSERT_TRUE(holds_blocks(host.data(0, 0), 5, 131072, 1));
      host.bring_up();
    }
  }
  options.dhchap_secret = kOtherSecret;
  EXPECT_THROW(initiator::NvmeTcpDevice{options}, ConfigError) << "with another's secret";
  options.dhchap_secret = "";
  EXPECT_THROW(initiator::NvmeTcpDevice{options}, ConfigError) << "without one";
  options.dhchap_secret = kSecret;
  options.tls_key = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
  EXPECT_THROW(initiator::NvmeTcpDevice{options}, ConfigError) << "beside a key of the configuration";
}

}  // namespace
}  // namespace flashmob::doors
