// Who may attach: access lists, DH-HMAC-CHAP, and options of the target that cannot be.
#include "fabrics/dhchap.h"
#include "gtest/gtest.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace flashmob::transport::testing {
namespace {

using nvme::Status;

// Two keys of 32 bytes in the form of the specification.
constexpr char kSecret[] = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
constexpr char kControllerSecret[] = "DHHC-1:01:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj/jBqb2:";

TEST(NvmeTcpAccess, AHostWithoutANameAttachesWhereThereIsNoList) {
  Rig rig;
  const std::string nqn = rig.subsystem().config().nqn;
  Host anonymous(rig);
  ASSERT_TRUE(anonymous.initialize());
  const auto nameless = Host::connect_data(nqn, nvme::kCntlidDynamic, "");
  EXPECT_EQ(anonymous.connect(Host::connect_sqe(0, 32), nameless).status(), Status::success);

  NvmeTcpTargetOptions options;
  options.hosts = {{.nqn = kHostNqn, .dhchap_secret = {}, .dhchap_controller_secret = {}}};
  Rig guarded(options);
  Host stranger(guarded);
  ASSERT_TRUE(stranger.initialize());
  EXPECT_EQ(stranger.connect(Host::connect_sqe(0, 32), nameless).status(), nvme::kConnectInvalidParameters);
}

NvmeTcpTargetOptions only(NvmeTcpHost host) {
  NvmeTcpTargetOptions options;
  options.hosts.push_back(std::move(host));
  return options;
}

TEST(NvmeTcpAccess, OnlyListedHostsAttach) {
  Rig rig(only({.nqn = "nqn.2014-08.org.example:guest", .dhchap_secret = {}, .dhchap_controller_secret = {}}));
  Host stranger(rig);
  ASSERT_TRUE(stranger.initialize());
  EXPECT_EQ(stranger.connect(Host::connect_sqe(0, 32), Host::connect_data(rig.subsystem().config().nqn)).status(),
            nvme::kConnectInvalidHost);
  Host guest(rig);
  ASSERT_TRUE(guest.initialize());
  EXPECT_NE(guest.attach(0, 0, "nqn.2014-08.org.example:guest"), 0);
}

// Two namespaces, a shared one and one that not everybody sees.
DeviceConfig two_namespaces() {
  DeviceConfig config = Rig::small_device();
  config.subsystem.namespaces.push_back(config.subsystem.namespaces[0]);
  return config;
}

TEST(NvmeTcpAccess, AHostHasTheRightsOfItsEntryOrElseOfTheDoor) {
  using controller::Access;
  NvmeTcpTargetOptions options = only({.nqn = "nqn.reader",
                                       .dhchap_secret = {},
                                       .dhchap_controller_secret = {},
                                       .rights = {{.access = Access::read_only, .namespaces = {2}}}});
  options.hosts.push_back({.nqn = kHostNqn, .dhchap_secret = {}, .dhchap_controller_secret = {}});
  options.rights = {.access = Access::io};
  Rig rig(options, two_namespaces());
  Host reader(rig), writer(rig), reader_io(rig), writer_io(rig);
  for (Host* host : {&reader, &writer, &reader_io, &writer_io}) ASSERT_TRUE(host->initialize());
  const std::uint16_t reads = reader.attach(0, 0, "nqn.reader");
  const std::uint16_t writes = writer.attach();
  ASSERT_TRUE(reads != 0 && writes != 0);
  const std::string nqn = rig.subsystem().config().nqn;
  ASSERT_EQ(reader_io.connect(Host::connect_sqe(1, 16), Host::connect_data(nqn, reads, "nqn.reader")).status(),
            Status::success);
  ASSERT_EQ(writer_io.attach_io(writes).status(), Status::success);

  EXPECT_EQ(writer_io.write(0, pattern(4096, 1)).status(), Status::success);
  EXPECT_EQ(reader_io.read(0, 4096).status(), Status::invalid_field) << "an inactive namespace";
  for (const std::size_t bytes : {std::size_t{4096}, std::size_t{128} << 10}) {
    nvme::Sqe write = Host::io(nvme::NvmOpcode::write, 0, static_cast<std::uint32_t>(bytes / 512));
    Host::transport_sgl(write, static_cast<std::uint32_t>(bytes));
    write.nsid = 2;
    EXPECT_EQ(reader_io.command(write, pattern(bytes, 2)).status(), Status::namespace_is_write_protected);
    EXPECT_EQ(writer_io.command(write, pattern(bytes, 3)).status(), Status::success);
  }
  nvme::Sqe read = Host::io(nvme::NvmOpcode::read, 0, 8);
  Host::transport_sgl(read, 4096);
  read.nsid = 2;
  EXPECT_EQ(reader_io.command(read).data, pattern(4096, 3));
}

TEST(NvmeTcpAccess, OnlyManagersChangeTheSubsystem) {
  using controller::Access;
  for (const Access access : {Access::admin, Access::manage}) {
    NvmeTcpTargetOptions options;
    options.rights = {.access = access};
    Rig rig(options, two_namespaces());
    Host host(rig), neighbour(rig);
    ASSERT_TRUE(host.initialize() && neighbour.initialize());
    ASSERT_NE(host.attach(), 0);
    ASSERT_NE(neighbour.attach(), 0);
    const bool manages = access == Access::manage;
    nvme::Sqe format{};
    format.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::format_nvm);
    format.nsid = 1;
    Host::transport_sgl(format, 0);
    EXPECT_EQ(host.command(format).status(), manages ? Status::success : Status::invalid_opcode);
    EXPECT_EQ(host.set_property(nvme::kRegNssr, nvme::kNssrReset).status(),
              manages ? Status::success : Status::invalid_field);
    EXPECT_EQ(neighbour.closed(), manages);
  }
}

// Runs the host's end; returns whether the controller let it in.
bool authenticate(Host& host, const std::string& nqn, const char* secret, const char* controller_secret,
                  std::vector<nvme::AuthHash> hashes, std::vector<nvme::AuthDhGroup> groups) {
  fabrics::DhchapParties parties{kHostNqn, nqn, fabrics::DhchapSecret(secret), std::nullopt};
  if (controller_secret != nullptr) parties.controller_secret = fabrics::DhchapSecret(controller_secret);
  fabrics::DhchapHost dhchap(std::move(parties));
  dhchap.offer(std::move(hashes), std::move(groups));
  const auto send = [&](const fabrics::Bytes& message) {
    nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::authentication_send);
    nvme::encode_authentication({.length_bytes = static_cast<std::uint32_t>(message.size())}, sqe);
    return host.in_capsule(sqe, std::as_bytes(std::span(message))).status() == Status::success;
  };
  const auto receive = [&] {
    nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::authentication_receive);
    nvme::encode_authentication({.length_bytes = 4096}, sqe);
    Host::transport_sgl(sqe, 4096);
    const Reply reply = host.command(sqe);
    const auto* data = reinterpret_cast<const std::uint8_t*>(reply.data.data());
    return fabrics::Bytes(data, data + reply.data.size());
  };
  try {
    if (!send(dhchap.negotiate(42)) || !send(dhchap.reply(receive()))) return false;
    const fabrics::Bytes last = dhchap.finish(receive());
    return last.empty() || send(last);
  } catch (const fabrics::AuthenticationError&) {
    return false;
  }
}

TEST(NvmeTcpAccess, AuthenticationOneWayAndBothWays) {
  for (const char* controller_secret : {static_cast<const char*>(nullptr), kControllerSecret}) {
    for (const auto group : {nvme::AuthDhGroup::null, nvme::AuthDhGroup::ffdhe2048}) {
      Rig rig(only({.nqn = kHostNqn, .dhchap_secret = kSecret, .dhchap_controller_secret = kControllerSecret}));
      const std::string nqn = rig.subsystem().config().nqn;
      Host admin(rig);
      ASSERT_TRUE(admin.initialize());
      const Reply reply = admin.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn));
      ASSERT_EQ(reply.status(), Status::success);
      EXPECT_NE(reply.cqe.dw0 & nvme::kConnectAuthRequired, 0u);
      const auto cntlid = static_cast<std::uint16_t>(reply.cqe.dw0);
      EXPECT_EQ(admin.enable(true).status(), nvme::kAuthenticationRequired);
      EXPECT_EQ(admin.command(Host::identify(1)).status(), nvme::kAuthenticationRequired);
      Host early(rig);
      ASSERT_TRUE(early.initialize());
      EXPECT_EQ(early.attach_io(cntlid).status(), nvme::kAuthenticationRequired);
      EXPECT_TRUE(authenticate(admin, nqn, kSecret, controller_secret, {nvme::AuthHash::sha384}, {group}));
      EXPECT_EQ(admin.enable(true).status(), Status::success);
      EXPECT_EQ(admin.command(Host::identify(1)).status(), Status::success);
      Host io(rig);
      ASSERT_TRUE(io.initialize());
      EXPECT_NE(io.attach_io(cntlid).cqe.dw0 & nvme::kConnectAuthRequired, 0u);
      EXPECT_EQ(io.read(0, 512).status(), nvme::kAuthenticationRequired);
      EXPECT_TRUE(authenticate(io, nqn, kSecret, controller_secret, {nvme::AuthHash::sha256}, {group}));
      EXPECT_EQ(io.read(0, 512).status(), Status::success);
    }
  }
}

TEST(NvmeTcpAccess, WhoDoesNotKnowTheSecretIsSentAway) {
  Rig rig(only({.nqn = kHostNqn, .dhchap_secret = kSecret, .dhchap_controller_secret = {}}));
  const std::string nqn = rig.subsystem().config().nqn;
  const std::vector<nvme::AuthHash> hashes = {nvme::AuthHash::sha512};
  const std::vector<nvme::AuthDhGroup> groups = {nvme::AuthDhGroup::null};
  for (const bool wrong_secret : {true, false}) {
    Host host(rig);
    ASSERT_TRUE(host.initialize());
    ASSERT_EQ(host.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn)).status(), Status::success);
    // The second asks for the controller's secret, and there is none.
    EXPECT_FALSE(authenticate(host, nqn, wrong_secret ? kControllerSecret : kSecret,
                              wrong_secret ? nullptr : kControllerSecret, hashes, groups));
    EXPECT_TRUE(host.closed());
    host.hang_up();
    rig.pump();
    EXPECT_EQ(rig.controllers(), 0u);
  }
}

TEST(NvmeTcpAccess, AuthenticationWhereNoneIsAskedFor) {
  Rig rig;
  Host host(rig);
  ASSERT_TRUE(host.initialize());
  ASSERT_NE(host.attach(), 0);
  nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::authentication_receive);
  nvme::encode_authentication({.length_bytes = 4096}, sqe);
  Host::transport_sgl(sqe, 4096);
  EXPECT_EQ(host.command(sqe).status(), Status::command_sequence_error);
}

TEST(NvmeTcpOptions, Mistakes) {
  const auto bad = [](auto change) {
    NvmeTcpTargetOptions options;
    change(options);
    EXPECT_THROW(Rig rig(options), ConfigError);
  };
  bad([](auto& o) { o.address = "localhost"; });
  bad([](auto& o) { o.address = "192.0.2.1"; });  // of nobody's machine
  bad([](auto& o) { o.in_capsule_bytes = 8; });
  bad([](auto& o) { o.max_queue_entries = 1; });
  bad([](auto& o) { o.max_h2c_data_bytes = 1024; });
  bad([](auto& o) { o.max_connections = 0; });
  bad([](auto& o) { o.queue_memory_bytes = 1 << 20; });
  bad([](auto& o) { o.stall_timeout_ms = 0; });
  bad([](auto& o) { o.idle_timeout_ms = 0; });
  bad([](auto& o) { o.hosts = {{.nqn = "", .dhchap_secret = {}, .dhchap_controller_secret = {}}}; });
  bad([](auto& o) { o.hosts = {{.nqn = "nqn.x", .dhchap_secret = "secret", .dhchap_controller_secret = {}}}; });
  bad([](auto& o) { o.hosts = {{.nqn = "nqn.x", .dhchap_secret = {}, .dhchap_controller_secret = kSecret}}; });
}

}  // namespace
}  // namespace flashmob::transport::testing
