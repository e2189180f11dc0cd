// Uncorrectable marks that outlive the run: nobody is told that something is safe while the disk says otherwise.
#include <filesystem>

#include "nvme/dataset.h"
#include "transport/vfio_user/slow_disk_test_support.h"

namespace flashmob::transport {
namespace {

class SavedMarks : public SlowDisk {};

nvme::Sqe uncorrectable(std::uint64_t lba) {
  nvme::Sqe sqe = TestHost::io(NvmOpcode::write_uncorrectable, lba, 0, 8);
  sqe.prp1 = 0;
  return sqe;
}

TEST_P(SavedMarks, MarksAreSavedBesideOtherQueues) {
  nvme::Sqe deallocate = TestHost::io(NvmOpcode::dataset_management, 0, kData);
  deallocate.cdw10 = 0;
  deallocate.cdw11 = nvme::kDatasetDeallocate;
  deallocate.cdw12 = 0;
  const nvme::DatasetRange range{0, 8, 8};
  std::memcpy(host.memory() + kData, &range, sizeof(range));
  for (const nvme::Sqe& waits : {uncorrectable(8), TestHost::io(NvmOpcode::write, 8, kData, 8),
                                 TestHost::io(NvmOpcode::write_zeroes, 8, 0, 8), deallocate}) {
    SCOPED_TRACE(int{waits.opcode});
    const bool marks = waits.opcode == static_cast<std::uint8_t>(NvmOpcode::write_uncorrectable);
    if (!marks) {
      ASSERT_EQ(host.run(first, uncorrectable(8)), 0u);
    }
    gate.shut();
    host.submit(first, waits);
    ASSERT_TRUE(gate.wait_for_one());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(host.run(second, TestHost::io(NvmOpcode::write, 100, kData, 1)), 0u);
    EXPECT_FALSE(TestHost::wait_for_entry(first, 0, 20)) << "it is not saved yet";
    gate.let_go();
    EXPECT_EQ(host.complete(first), 0u);
    const auto saved = device.subsystem.info(1).media->saved()->state();
    EXPECT_EQ(saved.uncorrectable.size(), marks ? 1u : 0u);
  }
}

// The marks of before are being saved while the namespace gets another format, and another mark.
TEST_P(SavedMarks, MarksOfAnOldFormatAreNotSavedAfterIt) {
  gate.shut();
  host.submit(first, uncorrectable(8));
  ASSERT_TRUE(gate.wait_for_one());
  nvme::Sqe format{};
  format.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::format_nvm);
  format.nsid = 1;
  format.cdw10 = 1;
  host.submit_together({format});
  wait_for_format(second);
  gate.let_go();
  EXPECT_EQ(host.complete_admin(), 0u);
  EXPECT_NE(host.complete(first), 0xFFFF);
  ASSERT_EQ(host.run(first, uncorrectable(16)), 0u);
  const auto saved = device.subsystem.info(1).media->saved()->state();
  EXPECT_EQ(saved.lba_bytes, 4096u);
  EXPECT_EQ(saved.uncorrectable, (std::vector<media::SavedRange>{{16, 8}}));
}

// What could not be saved is saved by the next who asks for all to be durable, or fails it.
TEST_P(SavedMarks, AFlushOwesTheMarksThatOthersCouldNotSave) {
  std::filesystem::create_directory(path + ".flashmob.new");
  std::filesystem::create_directory(path + ".flashmob.new/x");
  ASSERT_EQ(host.run(first, uncorrectable(8)) & 0x7FF, 0x280) << "Write Fault";
  EXPECT_EQ(host.run(second, TestHost::io(NvmOpcode::flush, 0, 0)) & 0x7FF, 0x280);
  std::filesystem::remove_all(path + ".flashmob.new");
  EXPECT_EQ(host.run(second, TestHost::io(NvmOpcode::flush, 0, 0)), 0u);
  EXPECT_EQ(device.subsystem.info(1).media->saved()->state().uncorrectable.size(), 1u);
}

// A mark that is gone may still be on the disk: whoever writes the block next is not safe, either.
TEST_P(SavedMarks, AWriteOwesTheMarkThatAnotherTookOff) {
  ASSERT_EQ(host.run(first, uncorrectable(8)), 0u);
  std::filesystem::create_directories(path + ".flashmob.new/x");
  EXPECT_EQ(host.run(first, TestHost::io(NvmOpcode::write, 8, kData, 8)) & 0x7FF, 0x280) << "Write Fault";
  EXPECT_EQ(host.run(second, TestHost::io(NvmOpcode::write, 8, kData, 1)) & 0x7FF, 0x280);
  EXPECT_EQ(host.run(second, TestHost::io(NvmOpcode::write_zeroes, 8, 0, 1)) & 0x7FF, 0x280);
  EXPECT_EQ(host.run(second, TestHost::io(NvmOpcode::write, 100, kData, 1)), 0u) << "it never had one";
  std::filesystem::remove_all(path + ".flashmob.new");
  EXPECT_EQ(host.run(second, TestHost::io(NvmOpcode::write, 8, kData, 1)), 0u);
  EXPECT_EQ(device.subsystem.info(1).media->saved()->state().uncorrectable.size(), 0u);
  gate.shut();
  host.submit(first, TestHost::io(NvmOpcode::write, 8, kData, 1));
  EXPECT_TRUE(TestHost::wait_for_entry(first, 0)) << "nothing is owed any more";
  gate.let_go();
  EXPECT_EQ(host.complete(first), 0u);
}

TEST_P(SavedMarks, AShutdownSavesTheMarksThatOthersCouldNot) {
  ASSERT_EQ(host.run(first, uncorrectable(8)), 0u);
  std::filesystem::create_directories(path + ".flashmob.new/x");
  EXPECT_EQ(host.run(first, TestHost::io(NvmOpcode::write, 8, kData, 8)) & 0x7FF, 0x280) << "Write Fault";
  std::filesystem::remove_all(path + ".flashmob.new");
  host.write<std::uint32_t>(vfio::kRegionBar0, nvme::kRegCc,
                            nvme::encode_cc({.en = true, .shn = nvme::kCcShnNormal, .iosqes = 6, .iocqes = 4}));
  ASSERT_TRUE(host.wait_for_csts(nvme::encode_csts({.shst = 3}), nvme::encode_csts({.shst = nvme::kCstsShstComplete})));
  EXPECT_EQ(device.subsystem.info(1).media->saved()->state().uncorrectable.size(), 0u);
}

// Such media make a write with FUA durable themselves, but not the marks.
TEST(SavedMarksOnDirectMedia, AWriteWithFuaOwesThem) {
  const std::string path = TestDevice::next_path() + ".img";
  DeviceConfig config = on_file(path, 0);
  config.subsystem.namespaces[0].media = "direct:" + path;
  {
    TestDevice device(config);
    TestHost host(device.path);
    TestQueue queue = host.start();
    std::filesystem::create_directories(path + ".flashmob.new/x");
    EXPECT_EQ(host.run(queue, uncorrectable(8)) & 0x7FF, 0x280) << "Write Fault";
    nvme::Sqe durable = TestHost::io(NvmOpcode::write, 64, SlowDisk::kData, 8);
    durable.cdw12 |= SlowDisk::kFua;
    EXPECT_EQ(host.run(queue, durable) & 0x7FF, 0x280);
    std::filesystem::remove_all(path + ".flashmob.new");
    EXPECT_EQ(host.run(queue, durable), 0u);
    EXPECT_EQ(device.subsystem.info(1).media->saved()->state().uncorrectable.size(), 1u);
  }
  for (const char* const end : {"", ".flashmob", ".flashmob-redo"}) std::filesystem::remove(path + end);
}

INSTANTIATE_TEST_SUITE_P(Threads, SavedMarks, testing::Values(0u, 1u),
                         [](const auto& with) { return with.param == 0 ? "OfTheDispatcher" : "OfAWorker"; });

}  // namespace
}  // namespace flashmob::transport
