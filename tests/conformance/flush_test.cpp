// Flush (Base 2.0c, 7.1): one namespace, all of them, and what it waits for.
#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

class FlushTest : public DeviceTest {};

TEST_F(FlushTest, OneNamespaceOrAll) {
  EXPECT_EQ(io(make(NvmOpcode::flush, kNs512)), Status::success);
  EXPECT_EQ(io(make(NvmOpcode::flush, nvme::kNsidBroadcast)), Status::success) << "VWC says so";
  EXPECT_EQ(io(make(NvmOpcode::flush, 3)), Status::invalid_field);
  EXPECT_EQ(io(make(NvmOpcode::flush, 0)), Status::invalid_namespace_or_format);
}

TEST_F(FlushTest, WaitsForWhatTheDeviceHasToDoBeforeIt) {
  QueuePair& pair = queue();
  Buffer data = buffer(4096);
  const auto time_of_flush = [&](unsigned writes) {
    for (std::uint16_t cid = 0; cid < writes; ++cid) {
      Sqe sqe = data.attach(make(NvmOpcode::write, kNs4096, cid, 1), 4096);
      sqe.cid = cid;
      pair.submit() = sqe;
    }
    Sqe flush = make(NvmOpcode::flush, kNs4096);
    flush.cid = 99;
    pair.submit() = flush;
    const std::uint64_t start_ns = device.now_ns();
    pair.ring_sq();
    std::uint64_t done_ns = 0;
    std::uint32_t left = writes + 1;
    device.pump_until([&] {
      left -= pair.reap(100, [&](const Cqe& cqe) { done_ns = cqe.cid == 99 ? device.now_ns() : done_ns; });
      pair.ring_cq();
      return left == 0;
    });
    return done_ns - start_ns;
  };
  const std::uint64_t alone_ns = time_of_flush(0);
  // Twenty writes of 4096 bytes keep a device of 10 M requests of 512 bytes a second busy for 16 us.
  EXPECT_GE(time_of_flush(20), 16'000u);
  EXPECT_LT(alone_ns, 16'000u);
}

}  // namespace
}  // namespace flashmob::conformance
