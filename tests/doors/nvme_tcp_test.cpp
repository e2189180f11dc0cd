// Our driver over our initiator over sockets to our target: data, queues, resets, and what happens when either end goes
// away under load.
#include <array>

#include "doors/nvme_tcp_fixture.h"
#include "driver/nvme_tcp_discovery.h"
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
  driver::NvmeTcpOptions options = host_options(ssd);
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

// Random writes and reads on every queue at once, each slot in its own part of the namespace; what is read must be what
// was written last.
class Load {
 public:
  Load(Host& host, std::uint64_t seed) : host_(host), rng_(seed) {
    const std::uint64_t slots = host.pairs.size() * host.depth();
    part_blocks_ = kNamespaceBytes / kBlockBytes / slots;
    states_.resize(slots);
  }
  // Keeps all slots busy until so many commands have ended. False if one ended with anything but success.
  bool run(unsigned commands) {
    const std::uint64_t until_ns = Host::now_ns() + 60'000'000'000;
    for (unsigned ended = 0; ended < commands && good_ && Host::now_ns() < until_ns;) {
      refill();
      host_.ring();
      const unsigned count = host_.reap();
      ended += count;
      if (count == 0) std::this_thread::yield();
    }
    return good_;
  }
  // Starts commands in all free slots, and judges what has ended there.
  void refill() {
    for (unsigned q = 0; q < host_.pairs.size(); ++q) {
      for (std::uint32_t i = 0; i < host_.depth(); ++i) {
        if (host_.slot(q, i).busy) continue;
        State& state = states_[q * host_.depth() + i];
        judge(q, i, state);
        next(q, i, state);
      }
    }
  }
  // The commands in flight are no more, and nobody knows how far they came.
  void forget() {
    for (State& state : states_) {
      if (state.open && state.writing) state.written = false;
      state.open = false;
    }
  }
  // What was written before can be read.
  bool check_all() {
    for (unsigned q = 0; q < host_.pairs.size(); ++q) {
      for (std::uint32_t i = 0; i < host_.depth(); ++i) {
        State& state = states_[q * host_.depth() + i];
        if (!state.written) continue;
        host_.submit(q, i, NvmOpcode::read, state.lba, state.bytes);
        if (!host_.drain() || host_.slot(q, i).status != 0) return false;
        if (!holds_blocks(host_.data(q, i), state.lba, state.bytes, state.version)) return false;
      }
    }
    return true;
  }

 private:
  struct State {
    bool open = false;  // a command is in flight or has just ended
    bool writing = false;
    bool written = false;  // [lba, lba + bytes) holds `version`
    std::uint64_t lba = 0;
    std::uint32_t bytes = 0;
    std::uint64_t version = 0;
  };
  void judge(unsigned q, std::uint32_t i, State& state) {
    if (!std::exchange(state.open, false)) return;
    if (host_.slot(q, i).status != 0) {
      good_ = false;
      state.written = state.written && !state.writing;
    } else if (state.writing) {
      state.written = true;
    } else if (!holds_blocks(host_.data(q, i), state.lba, state.bytes, state.version)) {
      ADD_FAILURE() << "wrong data at " << state.lba;
      good_ = false;
    }
  }
  void next(unsigned q, std::uint32_t i, State& state) {
    state.writing = !state.written || rng_.below(2) == 0;
    if (state.writing) {
      static constexpr std::uint32_t kSizes[] = {512, 4096, 4096, 8192, 16384, 65536, 131072};
      const std::uint64_t slot = q * host_.depth() + i;
      state.bytes = kSizes[rng_.below(std::size(kSizes))];
      state.bytes = std::min<std::uint32_t>(state.bytes, static_cast<std::uint32_t>(part_blocks_ * kBlockBytes));
      state.lba = slot * part_blocks_ + rng_.below(part_blocks_ - state.bytes / kBlockBytes + 1);
      state.version = ++versions_;
      fill_blocks(host_.data(q, i), state.lba, state.bytes, state.version);
    }
    state.open = true;
    host_.submit(q, i, state.writing ? NvmOpcode::write : NvmOpcode::read, state.lba, state.bytes);
  }

  Host& host_;
  Rng rng_;
  std::uint64_t part_blocks_;
  std::uint64_t versions_ = 0;
  std::vector<State> states_;
  bool good_ = true;
};

TEST(NvmeTcpDoor, ManyQueuesMixedSizes) {
  for (const unsigned pumps : {1u, 2u}) {
    Ssd ssd;
    driver::NvmeTcpOptions options = host_options(ssd);
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
  driver::NvmeTcpOptions options = host_options(ssd);
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
    driver::NvmeTcpOptions options = host_options(ssd);
    options.host_nqn = "nqn.2014-08.org.nvmexpress:passing-host";
    driver::NvmeTcpDevice device(options);
    driver::NvmeDriver driver(device, {[] { std::this_thread::yield(); }, Host::now_ns});
    driver.enable();
    driver.create_queue_pair({.sq_entries = 8});
    ASSERT_TRUE(load.run(50));
  }
  EXPECT_FALSE(stays.driver.fatal());
}

TEST(NvmeTcpDoor, DiscoveryNamesTheSubsystem) {
  Ssd ssd;
  const auto entries = driver::discover(host_options(ssd));
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

constexpr char kSecret[] = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
constexpr char kOtherSecret[] = "DHHC-1:01:KCkqKywtLi8wMTIzNDU2Nzg5Ojs8PT4/QEFCQ0RFRkdMwdo9:";

TEST(NvmeTcpDoor, HostsProveWhoTheyAre) {
  transport::NvmeTcpTargetOptions target;
  target.hosts = {{.nqn = "nqn.2014-08.org.nvmexpress:good-host",
                   .dhchap_secret = kSecret,
                   .dhchap_controller_secret = kOtherSecret}};
  Ssd ssd(target);
  driver::NvmeTcpOptions options = host_options(ssd);
  EXPECT_THROW(driver::NvmeTcpDevice{options}, ConfigError) << "a host that is not on the list";
  options.host_nqn = "nqn.2014-08.org.nvmexpress:good-host";
  EXPECT_THROW(driver::NvmeTcpDevice{options}, ConfigError) << "without its secret";
  options.dhchap_secret = kOtherSecret;
  EXPECT_THROW(driver::NvmeTcpDevice{options}, ConfigError) << "with another's secret";
  options.dhchap_secret = kSecret;
  {
    Host host(options, 2, 2);
    EXPECT_EQ(host.run(NvmOpcode::read, 0, 4096), 0);
  }
  options.dhchap_controller_secret = kSecret;
  EXPECT_THROW(driver::NvmeTcpDevice{options}, ConfigError) << "the controller cannot prove itself";
  options.dhchap_controller_secret = kOtherSecret;
  Host host(options, 2, 2);
  EXPECT_EQ(host.run(NvmOpcode::read, 0, 4096), 0);
  host.bring_up();
  EXPECT_EQ(host.run(NvmOpcode::read, 0, 4096), 0);
}

}  // namespace
}  // namespace flashmob::doors
