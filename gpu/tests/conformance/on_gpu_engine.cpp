// The conformance suite of tests/conformance once more, with the device's I/O queues on the GPU engine, on fibres.
//
// Left out is what that engine does not have and does not offer: SGLs, fused pairs, Copy, Verify and Write
// Uncorrectable, doorbell buffers, injected faults; and single tests that use one of these.
#include <gtest/gtest.h>

#include "flashmob/gpu.h"
#include "support/virtual_device.h"

namespace {

constexpr const char* kAllBut =
    "*-SglTest.*:FusedTest.*:CopyTest.*:VerifyTest.*:WriteUncorrectableTest.*:DoorbellBufferTest.*:FaultTest.*:"
    "ThreadedFaultTest.*:FormatTest.ClearsUncorrectableMarks:LogPageTest.EffectsNameEveryCommand:"
    "IdentifyTest.ControllerClaimsExactlyTheCommandsThatWeTest";

}  // namespace

int main(int argc, char** argv) {
  testing::GTEST_FLAG(filter) = kAllBut;
  testing::InitGoogleTest(&argc, argv);
  flashmob::gpu::enable_engine();
  flashmob::suite::on_other_engine = [](const flashmob::DeviceConfig& config) {
    return flashmob::on_gpu_engine(config, 1);
  };
  return RUN_ALL_TESTS();
}
