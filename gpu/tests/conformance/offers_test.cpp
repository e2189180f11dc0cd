// What a controller on the GPU engine says of itself: exactly what that engine does.
#include "conformance/device_fixture.h"
#include "nvme/identify_controller.h"

namespace flashmob::conformance {
namespace {

class GpuOffersTest : public DeviceTest {};

TEST_F(GpuOffersTest, WhatIsNotOfferedIsNotExecuted) {
  const auto id = identify<nvme::IdentifyController>(nvme::Cns::identify_controller);
  EXPECT_EQ(id.oncs & (nvme::kOncsWriteUncorrectable | nvme::kOncsVerify | nvme::kOncsCopy), 0);
  EXPECT_NE(id.oncs & nvme::kOncsCompare, 0);
  EXPECT_EQ(id.fuses, 0);
  EXPECT_EQ(id.sgls, 0u);
  EXPECT_EQ(id.oacs & nvme::kOacsDoorbellBufferConfig, 0);
  EXPECT_EQ(4096u << id.mdts, 128u << 10);
  for (const NvmOpcode opcode : {NvmOpcode::write_uncorrectable, NvmOpcode::verify, NvmOpcode::copy})
    EXPECT_EQ(io(make(opcode, kNs512, 0, 1)), Status::invalid_opcode);
}

TEST_F(GpuOffersTest, EffectsNameWhatIsExecuted) {
  const auto effects = log_page<nvme::CommandsSupportedAndEffects>(nvme::LogPage::commands_supported_and_effects);
  const auto supported = [&](NvmOpcode opcode) {
    return (effects.iocs[static_cast<std::size_t>(opcode)] & nvme::kEffectSupported) != 0;
  };
  for (const NvmOpcode opcode : {NvmOpcode::read, NvmOpcode::write, NvmOpcode::flush, NvmOpcode::compare,
                                 NvmOpcode::write_zeroes, NvmOpcode::dataset_management})
    EXPECT_TRUE(supported(opcode)) << int(opcode);
  for (const NvmOpcode opcode : {NvmOpcode::write_uncorrectable, NvmOpcode::verify, NvmOpcode::copy})
    EXPECT_FALSE(supported(opcode)) << int(opcode);
}

TEST_F(GpuOffersTest, MemoryThatHoldsAQueueMayGo) {
  RawCq cq(host(), 1, 8);
  ASSERT_EQ(create(cq), Status::success);
  {
    RawSq sq(host(), 1, 8);
    ASSERT_EQ(create(sq, cq), Status::success);
    Buffer data = buffer(512);
    for (std::uint16_t cid = 0; cid < 4; ++cid) sq.push(data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512), cid);
    sq.ring();
    device.pump_for(2'000);
  }
  // Its ring and the buffers have been unmapped with commands in flight: nothing of them is touched any more.
  device.pump_for(1'000'000);
  EXPECT_FALSE(cq.ready());
  EXPECT_EQ(delete_sq(1), Status::success);
  EXPECT_EQ(delete_cq(1), Status::success);
  EXPECT_EQ(io(make(NvmOpcode::flush, kNs512)), Status::success) << "other queues work";
}

}  // namespace
}  // namespace flashmob::conformance
