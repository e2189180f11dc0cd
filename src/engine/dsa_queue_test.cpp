// Finding work queues, and writing to portals with this CPU's own instruction.
#include "engine/dsa_queue.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>

#include "base/check.h"
#include "engine/copy_engine.h"

namespace flashmob::engine::dsa {
namespace {

namespace fs = std::filesystem;

// A tree like the kernel's, for as long as the test runs.
class DsaQueueTest : public testing::Test {
 protected:
  DsaQueueTest() : root_(fs::path(testing::TempDir()) / ("flashmob-dsa-" + std::to_string(getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_ / "sysfs" / "dsa0");
    fs::create_directories(root_ / "sysfs" / "iax1");
    fs::create_directories(root_ / "dev");
  }
  ~DsaQueueTest() override { fs::remove_all(root_); }

  void add(const std::string& name, const std::map<std::string, std::string>& changed = {}) {
    std::map<std::string, std::string> attributes = {{"state", "enabled"},     {"type", "user"},
                                                     {"mode", "dedicated"},    {"size", "16"},
                                                     {"max_batch_size", "32"}, {"max_transfer_size", "2097152"}};
    for (const auto& [key, value] : changed) attributes[key] = value;
    fs::create_directories(root_ / "sysfs" / name);
    for (const auto& [key, value] : attributes) std::ofstream(root_ / "sysfs" / name / key) << value << "\n";
  }
  Paths paths() const { return {root_ / "sysfs", root_ / "dev"}; }
  std::string complaint() const {
    try {
      open_queue(paths());
    } catch (const ConfigError& error) {
      return error.what();
    }
    ADD_FAILURE() << "a queue was opened that is not there";
    return "";
  }

  fs::path root_;
};

TEST_F(DsaQueueTest, FindsEnabledUserQueuesOfDsaDevicesDedicatedFirst) {
  add("wq0.0", {{"mode", "shared"}, {"size", "8"}});
  add("wq0.2");
  add("wq0.1", {{"max_batch_size", "1024"}});
  add("wq0.3", {{"state", "disabled"}});
  add("wq0.4", {{"type", "kernel"}});
  add("wq0.5", {{"size", "0"}});
  add("wq0.6", {{"max_transfer_size", "none"}});
  add("wq1.0");  // of the analytics accelerator
  add("engine0.0");
  add("group0.0");
  const std::vector<QueueInfo> found = find_queues(paths());
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].name, "wq0.1");
  EXPECT_FALSE(found[0].shared);
  EXPECT_EQ(found[0].max_batch, 1024u);
  EXPECT_EQ(found[1].name, "wq0.2");
  EXPECT_EQ(found[1].size, 16u);
  EXPECT_EQ(found[1].max_transfer_bytes, 2097152u);
  EXPECT_EQ(found[2].name, "wq0.0");
  EXPECT_TRUE(found[2].shared);
  EXPECT_EQ(found[2].size, 8u);
}

TEST_F(DsaQueueTest, WithoutDevicesOneSentenceSaysSo) {
  EXPECT_TRUE(find_queues({root_ / "nowhere", root_ / "dev"}).empty());
  const std::string said = complaint();
  EXPECT_NE(said.find("engine.copy = \"dsa\""), std::string::npos) << said;
  EXPECT_NE(said.find("no enabled work queue of type user"), std::string::npos) << said;
  EXPECT_NE(said.find("accel-config"), std::string::npos) << said;
}

TEST_F(DsaQueueTest, AQueueThatCannotBeOpenedIsNamedWithItsReason) {
  add("wq0.0");
  const std::string said = complaint();
  const bool able = cpu_has_movdir64b();
  EXPECT_NE(said.find(able ? "wq0.0: No such file" : "the CPU lacks MOVDIR64B"), std::string::npos) << said;
  if (!able) return;
  fs::create_directories(root_ / "dev" / "wq0.0");
  EXPECT_NE(complaint().find("wq0.0: Is a directory"), std::string::npos);
}

TEST_F(DsaQueueTest, SharedQueuesNeedEnqcmd) {
  if (cpu_has_enqcmd()) GTEST_SKIP() << "this CPU has ENQCMD";
  add("wq0.0", {{"mode", "shared"}});
  EXPECT_NE(complaint().find("the CPU lacks ENQCMD"), std::string::npos) << complaint();
}

TEST_F(DsaQueueTest, TheConfigurationNamesIt) {
  try {
    EXPECT_EQ(engine::make_copy_engine("dsa")->describe().rfind("dsa/wq", 0), 0u) << "this machine has one";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("engine.copy = \"dsa\""), std::string::npos);
  }
  EXPECT_EQ(engine::make_copy_engine("memcpy")->describe(), "cpu/memcpy");
}

TEST_F(DsaQueueTest, AQueueWritesDescriptorsRoundItsPortal) {
  if (!cpu_has_movdir64b()) GTEST_SKIP() << "this CPU has no MOVDIR64B";
  // A file of one page stands for the device: its mapping is the portal.
  add("wq0.0");
  const fs::path device = root_ / "dev" / "wq0.0";
  std::ofstream(device) << std::string(4096, '\0');
  const auto queue = open_queue(paths());
  EXPECT_EQ(queue->info().name, "wq0.0");
  Descriptor descriptor;
  descriptor.set(Opcode::memory_move, kFlagRecordAddressValid);
  for (std::uint32_t i = 0; i < 64; ++i) {
    descriptor.size = 1000 + i;
    EXPECT_TRUE(queue->submit(descriptor));
  }
  queue->close();
  std::ifstream file(device);
  std::uint64_t sum = 0;
  for (int i = 0; i < 64; ++i) {
    Descriptor seen;
    file.read(reinterpret_cast<char*>(&seen), sizeof(seen));
    EXPECT_EQ(seen.flags_opcode, 0x03000004u);
    sum += seen.size;
  }
  EXPECT_EQ(sum, 64u * 1000 + 63 * 64 / 2) << "all 64 places were written";
}

TEST_F(DsaQueueTest, Movdir64bMovesADescriptorWhole) {
  if (!cpu_has_movdir64b()) GTEST_SKIP() << "this CPU has no MOVDIR64B";
  alignas(64) Descriptor portal;
  Descriptor descriptor;
  descriptor.set(Opcode::batch, kFlagRequestRecord);
  descriptor.record = 0x1122334455667788;
  descriptor.source = 0x8877665544332211;
  descriptor.size = 16;
  descriptor.operation_specific[2] = 99;
  submit_dedicated(&portal, descriptor);
  EXPECT_EQ(std::memcmp(&portal, &descriptor, sizeof(portal)), 0);
  EXPECT_EQ(portal.flags_opcode, 0x01000008u);
}

}  // namespace
}  // namespace flashmob::engine::dsa
