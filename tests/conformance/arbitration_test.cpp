// Arbitration (Base 2.0c, 3.4.4): round robin with a burst, and weighted round robin with an urgent class.
#include <map>

#include "conformance/device_fixture.h"
#include "nvme/features.h"

namespace flashmob::conformance {
namespace {

// A device whose fetch order shows in its completion order: one instance that serves one request at a time.
DeviceConfig serial_device() {
  DeviceConfig config = suite::small_device();
  config.timing.instances = 1;
  config.timing.read_iops = 1e6;
  config.timing.read_latency_ns = 1'000;
  return config;
}

class ArbitrationTest : public DeviceTest {
 protected:
  explicit ArbitrationTest(bool weighted = false) : DeviceTest(serial_device(), 1, false) { driver().enable(weighted); }

  // Fills `queues`, whose completions share one CQ, with `commands` reads each and rings them together; returns the
  // SQ identifiers in order of completion.
  std::vector<std::uint16_t> order(const std::vector<std::uint8_t>& priorities, unsigned commands) {
    RawCq cq(host(), 1, 1024);
    EXPECT_EQ(create(cq), Status::success);
    std::vector<std::unique_ptr<RawSq>> queues;
    for (std::size_t i = 0; i < priorities.size(); ++i) {
      queues.push_back(std::make_unique<RawSq>(host(), static_cast<std::uint16_t>(i + 1), 256));
      EXPECT_EQ(create(*queues.back(), cq, 1u | (std::uint32_t{priorities[i]} << 1)), Status::success);
    }
    Buffer data = buffer(512);
    for (auto& sq : queues)
      for (unsigned k = 0; k < commands; ++k)
        sq->push(data.attach(make(NvmOpcode::read, kNs512, k, 1), 512), static_cast<std::uint16_t>(k));
    for (auto& sq : queues) sq->ring();
    std::vector<std::uint16_t> result;
    for (const Cqe& cqe : wait(cq, queues.size() * commands)) result.push_back(cqe.sqid);
    EXPECT_EQ(result.size(), queues.size() * commands);
    driver().disable();
    return result;
  }
  void set_arbitration(nvme::ArbitrationFields fields) { driver().set_feature(0x01, nvme::encode_arbitration(fields)); }
  // How often each queue occurs among the first `count` completions.
  static std::map<std::uint16_t, unsigned> share(const std::vector<std::uint16_t>& order, std::size_t count) {
    std::map<std::uint16_t, unsigned> shares;
    for (std::size_t i = 0; i < count && i < order.size(); ++i) ++shares[order[i]];
    return shares;
  }
};

TEST_F(ArbitrationTest, RoundRobinTakesABurstFromEach) {
  set_arbitration({.ab = 2, .lpw = 0, .mpw = 0, .hpw = 0});
  const auto result = order({0, 0, 0}, 40);
  const auto shares = share(result, 60);
  for (std::uint16_t id = 1; id <= 3; ++id) EXPECT_NEAR(shares.at(id), 20, 4) << id;
  // No run is longer than the burst of four.
  unsigned run = 0;
  for (std::size_t i = 0; i < 90; ++i) {
    run = i > 0 && result[i] == result[i - 1] ? run + 1 : 1;
    EXPECT_LE(run, 4u) << "at " << i;
  }
}

TEST_F(ArbitrationTest, QueuesAreServedWhateverTheirPriorityUnderRoundRobin) {
  const auto result = order({3, 0}, 50);
  EXPECT_EQ(share(result, 100).at(1), 50u);
}

class WeightedArbitrationTest : public ArbitrationTest {
 protected:
  WeightedArbitrationTest() : ArbitrationTest(true) {}
};

TEST_F(WeightedArbitrationTest, UrgentQueuesComeFirst) {
  ASSERT_EQ(nvme::decode_cc(read32(nvme::kRegCc)).ams, nvme::kCcAmsWeightedRoundRobin);
  set_arbitration({.ab = 2, .lpw = 0, .mpw = 0, .hpw = 0});
  const auto result = order({3, 0, 1}, 60);
  // All of the urgent queue's commands are fetched before the others get more than their turns of the first round.
  const auto shares = share(result, 60);
  EXPECT_GE(shares.at(2), 50u);
}

TEST_F(WeightedArbitrationTest, ClassesShareByTheirWeights) {
  set_arbitration({.ab = 0, .lpw = 0, .mpw = 1, .hpw = 5});  // one, two and six commands a round
  const auto result = order({3, 2, 1}, 120);
  const auto shares = share(result, 90);
  EXPECT_NEAR(shares.at(3), 60, 6) << "high";
  EXPECT_NEAR(shares.at(2), 20, 4) << "medium";
  EXPECT_NEAR(shares.at(1), 10, 3) << "low";
}

TEST_F(WeightedArbitrationTest, NobodyStarvesWithinAClass) {
  set_arbitration({.ab = 1, .lpw = 0, .mpw = 3, .hpw = 0});
  const auto result = order({2, 2, 2}, 60);
  const auto shares = share(result, 90);
  for (std::uint16_t id = 1; id <= 3; ++id) EXPECT_NEAR(shares.at(id), 30, 6) << id;
}

}  // namespace
}  // namespace flashmob::conformance
