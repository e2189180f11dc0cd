// The subsystem's own rules: media, units, attachment by configuration, removal of controllers.
#include <gtest/gtest.h>

#include <unistd.h>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "controller/controller_test_support.h"

namespace flashmob::controller::testing {
namespace {

// A change whose disk keeps nobody waiting.
nvme::Status finish(const NamespaceChange& change) {
  if (!has_begun(change)) return change.status;
  change.work.run();
  FakeHost runner;
  return change.end(runner);
}

SubsystemConfig with(std::vector<NamespaceConfig> namespaces) {
  SubsystemConfig config;
  config.namespaces = std::move(namespaces);
  return config;
}

TEST(SubsystemTest, NamespacesFollowEachOtherInTheUnitSpace) {
  Subsystem s(with({{.size_bytes = 1 << 20}, {.size_bytes = 12 << 10}, {.size_bytes = 1 << 20, .lba_bytes = 4096}}), 1,
              8192);
  EXPECT_EQ(s.info(1).current->unit_base, 0u);
  EXPECT_EQ(s.info(2).current->unit_base, 128u);
  EXPECT_EQ(s.info(3).current->unit_base, 130u) << "a started unit belongs to its namespace alone";
  EXPECT_EQ(s.info(1).current->unit_shift, 13);
  EXPECT_EQ(s.info(3).current->lba_shift, 12);
  EXPECT_EQ(s.info(3).current->blocks, 256u);
  EXPECT_EQ(s.info(3).current->command_set->csi(), nvme::Csi::nvm);
  EXPECT_EQ(s.info(4).current, nullptr);
}

TEST(SubsystemTest, BadConfigurationsAreRefused) {
  EXPECT_THROW(Subsystem(with({{.size_bytes = 1 << 20}}), 1, 768), ConfigError);
  EXPECT_THROW(Subsystem(with({{.size_bytes = 1000}}), 1, 512), ConfigError);
  EXPECT_THROW(Subsystem(with({{.size_bytes = 1 << 20, .media = "cow:/nonexistent/file"}}), 1, 512), ConfigError);
  FakeHost host;
  Subsystem s(with({{.size_bytes = 1 << 20}}), 1, 512);
  ControllerConfig config;
  config.max_queue_pairs = 0;
  EXPECT_THROW(Controller(s, config, host), ConfigError);
  EXPECT_TRUE(s.controllers().empty()) << "a controller that failed to be built is not registered";
}

TEST(SubsystemTest, CapacityCountsWhatMediaReallyHas) {
  const auto path = std::filesystem::temp_directory_path() / ("flashmob_subsystem_test_" + std::to_string(getpid()));
  std::ofstream(path) << std::string(10'000, 'x');
  {
    SubsystemConfig config = with({{.size_bytes = 0, .media = "cow:" + path.string()}, {.size_bytes = 1 << 20}});
    config.spare_capacity_bytes = 4096;
    Subsystem s(config, 1, 512);
    EXPECT_EQ(s.info(1).config.size_bytes, 12'288u) << "rounded up to whole pages";
    EXPECT_EQ(s.total_capacity_bytes(), 12'288u + (1 << 20) + 4096);
    EXPECT_EQ(s.unallocated_capacity_bytes(), 4096u);
  }
  std::filesystem::remove(path);
}

TEST(SubsystemTest, DeletingAFileNamespaceKeepsTheFile) {
  const auto path = std::filesystem::temp_directory_path() / ("flashmob_subsystem_del_" + std::to_string(getpid()));
  std::ofstream(path) << std::string(4096, 'x');
  {
    Subsystem s(with({{.size_bytes = 0, .media = "file:" + path.string()}}), 1, 512);
    EXPECT_EQ(finish(s.delete_namespace(1)), nvme::Status::success);
    EXPECT_EQ(finish(s.delete_namespace(1)), nvme::Status::invalid_field);
    EXPECT_EQ(s.total_capacity_bytes(), 0u);
    nvme::Status status{};
    EXPECT_EQ(s.create_namespace({.size_bytes = 4096}, status), 0u) << "a file never turns into memory";
    EXPECT_EQ(status, nvme::Status::namespace_insufficient_capacity);
    EXPECT_EQ(finish(s.format_namespace(1, 512)), nvme::Status::invalid_field);
  }
  std::ifstream file(path);
  EXPECT_EQ(file.get(), 'x');
  std::filesystem::remove(path);
}

TEST(SubsystemTest, FormattingLeavesNothingBehind) {
  Subsystem s(with({{.size_bytes = 1 << 20}}), 1, 512);
  FakeHost host;
  ControllerConfig config;
  config.max_queue_pairs = 1;
  const Controller controller(s, config, host);
  const command_set::Namespace* const first = s.info(1).current;
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(s.info(1).current->uncorrectable.insert(7, 1));
    ASSERT_EQ(finish(s.format_namespace(1, i % 2 == 0 ? 4096 : 512)), nvme::Status::success) << i;
    ASSERT_TRUE(s.info(1).current->uncorrectable.empty());
    ASSERT_EQ(controller.attached(1), s.info(1).current);
  }
  EXPECT_EQ(s.info(1).current, first) << "the same again, though it has been another";
  EXPECT_EQ(first->lba_shift, 9);
}

TEST(SubsystemTest, NamespacesThatNobodyUsedLeaveNothingBehind) {
  SubsystemConfig config = with({{.size_bytes = 1 << 20}});
  config.spare_capacity_bytes = 1 << 20;
  Subsystem s(config, 1, 512);
  for (int i = 0; i < 100'000; ++i) {
    nvme::Status status{};
    const std::uint32_t nsid = s.create_namespace({.size_bytes = 1 << 20}, status);
    ASSERT_EQ(nsid, 2u) << i;
    ASSERT_EQ(s.info(nsid).unit_base, 2048u) << "the timing model's space does not grow";
    ASSERT_EQ(finish(s.delete_namespace(nsid)), nvme::Status::success) << i;
  }
}

TEST(SubsystemTest, NewNamespacesTakeTheFirstUnitsThatAreFree) {
  SubsystemConfig config = with({{.size_bytes = 4096}, {.size_bytes = 8192}, {.size_bytes = 4096}});
  Subsystem s(config, 1, 512);
  EXPECT_EQ(s.shape().capacity_bytes, 16'384u);
  ASSERT_EQ(finish(s.delete_namespace(2)), nvme::Status::success);
  nvme::Status status{};
  ASSERT_EQ(s.create_namespace({.size_bytes = 4096}, status), 2u);
  EXPECT_EQ(s.info(2).unit_base, 8u);
  ASSERT_EQ(s.create_namespace({.size_bytes = 4096}, status), 4u);
  EXPECT_EQ(s.info(4).unit_base, 16u);
  ASSERT_EQ(finish(s.delete_namespace(1)), nvme::Status::success);
  ASSERT_EQ(finish(s.delete_namespace(2)), nvme::Status::success);
  ASSERT_EQ(s.create_namespace({.size_bytes = 8192}, status), 1u);
  EXPECT_EQ(s.info(1).unit_base, 0u);
}

// Whoever schedules for the drive is told what of it is empty.
TEST(SubsystemTest, FormatAndDeletionDeallocateUnits) {
  Subsystem s(with({{.size_bytes = 4096}, {.size_bytes = 8192}}), 1, 512);
  FakeHost host;
  ControllerConfig config;
  config.max_queue_pairs = 1;
  const Controller controller(s, config, host);
  ASSERT_EQ(finish(s.format_namespace(2, 4096)), nvme::Status::success);
  ASSERT_EQ(finish(s.delete_namespace(1)), nvme::Status::success);
  EXPECT_EQ(host.deallocated, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{8, 16}, {0, 8}}));
}

TEST(SubsystemTest, ControllersAreNumberedFromOne) {
  Subsystem s(with({{.size_bytes = 1 << 20}, {.size_bytes = 1 << 20, .shared = false}}), 1, 512);
  FakeHost host;
  ControllerConfig config;
  config.max_queue_pairs = 1;
  auto first = std::make_unique<Controller>(s, config, host);
  Controller second(s, config, host);
  EXPECT_EQ(first->cntlid(), 1);
  EXPECT_EQ(second.cntlid(), 2);
  EXPECT_NE(first->attached(2), nullptr);
  EXPECT_EQ(second.attached(2), nullptr) << "private: only the first controller has it";
  EXPECT_EQ(first->attached(0), nullptr);
  EXPECT_EQ(first->attached(kMaxNamespaces + 1), nullptr);
  EXPECT_EQ(first->attached(0xFFFFFFFF), nullptr);
  first.reset();
  EXPECT_EQ(s.controllers().size(), 1u);
  Controller third(s, config, host);
  EXPECT_EQ(third.cntlid(), 3);
  EXPECT_NE(third.attached(2), nullptr) << "private, and free again";
}

TEST(SubsystemTest, IdentifiersGoRoundAndLeaveOutThoseInUse) {
  Subsystem s(with({{.size_bytes = 1 << 20}}), 1, 512);
  FakeHost host;
  ControllerConfig config;
  config.max_queue_pairs = 1;
  config.interrupt_vectors = 1;
  Controller first(s, config, host);
  std::uint16_t last = 0;
  for (int i = 0; i < 0xFFEF - 1; ++i) last = Controller(s, config, host).cntlid();
  EXPECT_EQ(last, 0xFFEF) << "what follows is reserved";
  EXPECT_EQ(Controller(s, config, host).cntlid(), 2) << "1 is in use";
}

TEST(SubsystemTest, ALaterControllerSeesTheConfiguredNamespacesAsTheyAreNow) {
  Subsystem s(with({{.size_bytes = 1 << 20}, {.size_bytes = 1 << 20}}), 1, 512);
  FakeHost host;
  ControllerConfig config;
  Controller first(s, config, host);
  nvme::Status status;
  {
    const std::lock_guard lock(s.mutex());
    finish(s.delete_namespace(1));
    finish(s.format_namespace(2, 4096));
    NamespaceConfig again{.size_bytes = 4096};
    EXPECT_EQ(s.create_namespace(again, status), 1u);
  }
  Controller second(s, config, host);
  EXPECT_EQ(second.attached(1), nullptr) << "made by a host, and not attached by it";
  EXPECT_EQ(second.attached(2), s.info(2).current);
}

}  // namespace
}  // namespace flashmob::controller::testing
