// Hosts of a zoned namespace at the NVMe/TCP door, on two service units, that append to the same zones at once.
#include <set>

#include "doors/nvme_tcp_fixture.h"
#include "nvme/status.h"

namespace flashmob::doors {
namespace {

constexpr std::uint32_t kZones = 4, kZoneBlocks = 128, kAppendBytes = 4096;
constexpr std::uint32_t kAppendBlocks = kAppendBytes / kBlockBytes, kFit = kZoneBlocks / kAppendBlocks;
constexpr std::uint32_t kAppends = 12;  // of each host: together more than fit

DeviceConfig zoned_ssd() {
  DeviceConfig config = small_ssd();
  config.engine.units = 2;
  config.engine.workers = 1;
  NamespaceConfig& zoned = config.subsystem.namespaces[0];
  zoned.size_bytes = std::uint64_t{kZones} * kZoneBlocks * kBlockBytes;
  zoned.command_set = "zns";
  zoned.zoned.zone_bytes = std::uint64_t{kZoneBlocks} * kBlockBytes;  // all of which can be written
  return config;
}

struct Appended {
  std::uint64_t lba;
  std::uint64_t version;  // of its data
};

// Sends all appends of one host; what becomes of them is for reap_appends() to say.
void send_appends(Host& host, std::uint32_t zone, std::uint64_t version) {
  for (std::uint32_t i = 0; i < kAppends; ++i) {
    fill_blocks(host.data(0, i), 0, kAppendBytes, version + i);
    host.submit(0, i, nvme::NvmOpcode::write, std::uint64_t{zone} * kZoneBlocks, kAppendBytes,
                [](nvme::Sqe& sqe) { sqe.opcode = static_cast<std::uint8_t>(nvme::ZonedOpcode::zone_append); });
  }
  host.ring();
}

void reap_appends(Host& host, std::uint64_t version, std::vector<Appended>& appended, std::uint32_t& refused) {
  const std::uint64_t until_ns = Host::now_ns() + 60'000'000'000;
  while (host.pairs[0]->outstanding() != 0) {
    host.pairs[0]->reap(1000, [&](const nvme::Cqe& entry) {
      host.slot(0, entry.cid).busy = false;
      if (entry.status_phase >> 1 == 0) {
        appended.push_back({entry.dw0 | (std::uint64_t{entry.dw1} << 32), version + entry.cid});
        return;
      }
      ++refused;
      EXPECT_EQ(static_cast<nvme::Status>((entry.status_phase >> 1) & 0x7FF), nvme::Status::zone_is_full);
    });
    host.pairs[0]->ring_cq();
    ASSERT_LT(Host::now_ns(), until_ns) << "an append is not answered";
    std::this_thread::yield();
  }
}

TEST(NvmeTcpZones, AppendsOfTwoHostsFillAZoneAndLeaveTheNextOneAlone) {
  Ssd ssd({}, zoned_ssd());
  Host one(host_options(ssd), 1, kAppends), other(host_options(ssd), 1, kAppends);
  for (std::uint32_t zone = 0; zone < kZones && !::testing::Test::HasFailure(); ++zone) {
    const std::uint64_t version = zone * 1000;
    std::vector<Appended> appended;
    std::uint32_t refused = 0;
    send_appends(one, zone, version);
    send_appends(other, zone, version + 500);
    reap_appends(one, version, appended, refused);
    reap_appends(other, version + 500, appended, refused);
    EXPECT_EQ(appended.size(), kFit);
    EXPECT_EQ(refused, 2 * kAppends - kFit);
    std::set<std::uint64_t> places;
    for (const Appended& append : appended) {
      EXPECT_EQ(append.lba / kZoneBlocks, zone);
      EXPECT_EQ(append.lba % kAppendBlocks, 0u);
      EXPECT_TRUE(places.insert(append.lba).second) << "two appends to one place";
      ASSERT_EQ(one.run(nvme::NvmOpcode::read, append.lba, kAppendBytes), 0);
      EXPECT_TRUE(holds_blocks(one.data(0, 0), 0, kAppendBytes, append.version));
    }
  }
}

}  // namespace
}  // namespace flashmob::doors
