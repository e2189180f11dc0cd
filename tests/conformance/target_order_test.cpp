// The timing model is asked in the order of the commands, whatever they are and whenever they are carried out.
#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

DeviceConfig one_server() {
  DeviceConfig config = suite::small_device();
  config.timing.instances = 1;
  config.timing.read_iops = config.timing.write_iops = 1e6;
  return config;
}

struct TargetOrderTest : DeviceTest {
  TargetOrderTest() : DeviceTest(one_server()) {}
};

// A command that is no Read or Write, and 20 Reads that were rung with it: on one server, first come is first served.
TEST_F(TargetOrderTest, CommandsThatAreNoTransfersKeepTheirPlace) {
  const bool is_host = suite::small_device().engine.kind == "host";
  Buffer data = buffer(512);
  for (const NvmOpcode opcode : {NvmOpcode::read, NvmOpcode::compare, NvmOpcode::write_zeroes, NvmOpcode::verify}) {
    if (!is_host && opcode == NvmOpcode::verify) continue;  // the host's engine alone has it
    constexpr std::uint16_t kReads = 20;
    QueuePair& pair = queue();
    const auto submit = [&](Sqe sqe, std::uint16_t cid) {
      sqe.cid = cid;
      pair.submit() = sqe;
    };
    for (const std::uint16_t place : {std::uint16_t{0}, std::uint16_t{10}}) {
      // Nothing of before is under way.
      device.pump_for(1'000'000);
      for (std::uint16_t i = 0; i <= kReads; ++i) {
        const NvmOpcode one = i == place ? opcode : NvmOpcode::read;
        Sqe sqe = make(one, kNs512, 8, 1);
        submit(data.attach(sqe, 512), i);
      }
      pair.ring_sq();
      const auto done = wait(pair, kReads + 1u);
      ASSERT_EQ(done.size(), kReads + 1u);
      for (std::size_t i = 0; i < done.size(); ++i) {
        if (done[i].cid == place) {
          EXPECT_NEAR(static_cast<double>(i), place, 1) << static_cast<unsigned>(opcode);
          EXPECT_EQ(status_of(done[i]), Status::success) << static_cast<unsigned>(opcode);
        }
      }
    }
  }
}

}  // namespace
}  // namespace flashmob::conformance
