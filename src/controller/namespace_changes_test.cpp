// Changes that a disk keeps waiting, and features on their way to it: what hosts see and do meanwhile.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "controller/controller_test_support.h"

namespace flashmob::controller::testing {
namespace {

using nvme::AdminOpcode;
using nvme::Status;

class NamespaceChangesTest : public ::testing::Test {
 protected:
  NamespaceChangesTest() {
    std::string name = (std::filesystem::temp_directory_path() / "flashmob_changes_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    DeviceOptions options;
    options.subsystem.namespaces = {{.size_bytes = 1 << 20, .media = "file:" + folder_ + "/a"},
                                    {.size_bytes = 1 << 20, .media = "file:" + folder_ + "/b"}};
    options.controllers = 2;
    d = std::make_unique<TestDevice>(options);
    d->enable(0);
    d->enable(1);
    d->host.hold_disk = true;
  }
  ~NamespaceChangesTest() override {
    d.reset();
    std::filesystem::remove_all(folder_);
  }

  static nvme::Sqe format(std::uint32_t nsid, std::uint32_t index = 1) {
    nvme::Sqe sqe = TestDevice::command(AdminOpcode::format_nvm, nsid);
    sqe.cdw10 = index;
    return sqe;
  }
  static nvme::Sqe remove(std::uint32_t nsid) {
    nvme::Sqe sqe = TestDevice::command(AdminOpcode::namespace_management, nsid);
    sqe.cdw10 = nvme::kNamespaceDelete;
    return sqe;
  }
  static nvme::Sqe save(nvme::Feature feature, std::uint32_t value) {
    nvme::Sqe sqe = TestDevice::command(AdminOpcode::set_features);
    sqe.cdw10 = static_cast<std::uint32_t>(feature) | nvme::kFeatureSave;
    sqe.cdw11 = value;
    return sqe;
  }
  nvme::Sqe identify(std::uint32_t nsid) {
    nvme::Sqe sqe = TestDevice::command(AdminOpcode::identify, nsid);
    d->attach_buffer(sqe, kPage);
    return sqe;
  }
  // That of the command, if it has been answered.
  std::optional<Status> answer(std::uint16_t cid) {
    for (const auto& done : d->host.completions)
      if (done.cid == cid) return done.status();
    return std::nullopt;
  }

  std::string folder_;
  std::unique_ptr<TestDevice> d;
};

TEST_F(NamespaceChangesTest, NobodySeesHalfOfAFormat) {
  d->start(format(1), 1);
  ASSERT_EQ(d->host.at_disk.size(), 1u);
  EXPECT_EQ(d->controller(1).attached(1), nullptr) << "I/O does not reach it";
  EXPECT_TRUE(d->controller(1).is_formatting(1));
  d->start(identify(1), 2, 1);
  d->start(format(1, 0), 3, 1);
  d->start(identify(1), 4);
  EXPECT_TRUE(d->host.completions.empty()) << "who looks at namespaces waits";
  EXPECT_EQ(d->get_feature(nvme::Feature::arbitration).status(), Status::success) << "others do not";
  d->host.reply_disk();
  EXPECT_EQ(answer(1), Status::success);
  EXPECT_EQ(answer(2), Status::success);
  EXPECT_FALSE(answer(3) || answer(4)) << "the next Format is at the disk";
  d->host.reply_disk();
  EXPECT_EQ(answer(3), Status::success);
  EXPECT_EQ(answer(4), Status::success);
  EXPECT_EQ(d->controller(1).attached(1), d->subsystem.info(1).current);
  EXPECT_FALSE(d->controller(1).is_formatting(1));
  EXPECT_EQ(d->subsystem.info(1).current->lba_shift, 9);
}

TEST_F(NamespaceChangesTest, OneCommandsNamespacesFollowEachOther) {
  d->start(format(nvme::kNsidBroadcast), 1);
  d->start(remove(nvme::kNsidBroadcast), 2, 1);
  EXPECT_EQ(d->host.at_disk.size(), 1u);
  d->host.reply_disk();
  ASSERT_EQ(d->host.at_disk.size(), 1u);
  EXPECT_EQ(d->subsystem.info(1).current->lba_shift, 12);
  EXPECT_FALSE(answer(1));
  d->host.reply_disk();
  EXPECT_EQ(answer(1), Status::success);
  EXPECT_EQ(d->subsystem.info(2).current->lba_shift, 12);
  d->host.reply_disk();
  d->host.reply_disk();
  EXPECT_EQ(answer(2), Status::success);
  EXPECT_EQ(d->subsystem.info(2).current, nullptr);
}

TEST_F(NamespaceChangesTest, WhoHasAskedMayGo) {
  d->start(format(1), 1);
  d->start(identify(1), 2);
  d->start(identify(1), 3, 1);
  d->disable(0);
  d->host.reply_disk();
  EXPECT_FALSE(answer(1) || answer(2)) << "it has been reset";
  EXPECT_EQ(answer(3), Status::success);
  EXPECT_EQ(d->controller(0).attached(1), d->subsystem.info(1).current) << "and has its namespace again";
  EXPECT_EQ(d->subsystem.info(1).current->lba_shift, 12);
  d->start(format(1, 0), 4, 1);
  d->start(identify(1), 5, 1);
  d->all.pop_back();
  d->host.reply_disk();
  EXPECT_EQ(d->controller(0).attached(1), d->subsystem.info(1).current);
  EXPECT_EQ(d->subsystem.info(1).current->lba_shift, 9);
  EXPECT_FALSE(answer(4) || answer(5));
}

TEST_F(NamespaceChangesTest, WhoComesMeanwhileGetsItAfterwards) {
  d->start(format(1), 1);
  Controller late(d->subsystem, d->controller().config(), d->host);
  EXPECT_EQ(late.attached(1), nullptr);
  EXPECT_TRUE(late.is_formatting(1));
  EXPECT_NE(late.attached(2), nullptr);
  d->host.reply_disk();
  EXPECT_EQ(late.attached(1), d->subsystem.info(1).current);
  EXPECT_EQ(late.attached(1)->lba_shift, 12);
}

// A drive that has forgotten a namespace's data would else schedule as if it were full of it.
TEST_F(NamespaceChangesTest, TheTimingModelLearnsOfAFormatThatOutlivesAllControllers) {
  d->start(format(2), 1);
  d->all.clear();
  d->host.reply_disk();
  ASSERT_EQ(d->subsystem.info(2).current->lba_shift, 12);
  const auto& info = d->subsystem.info(2);
  using Units = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  EXPECT_EQ(d->host.deallocated, (Units{{info.unit_base, info.units}}));
}

TEST_F(NamespaceChangesTest, WhatTheDiskRefusesIsAsItWas) {
  std::filesystem::create_directories(folder_ + "/a.flashmob.new/x");
  for (const nvme::Sqe& sqe : {format(1), remove(1)}) {
    d->start(sqe, sqe.opcode);
    d->host.reply_disk();
    EXPECT_EQ(answer(sqe.opcode), Status::write_fault);
    EXPECT_EQ(d->controller(1).attached(1), d->subsystem.info(1).current);
    EXPECT_FALSE(d->controller(1).is_formatting(1));
    EXPECT_EQ(d->subsystem.info(1).current->lba_shift, 9);
  }
}

// Who has become protected is written to by nobody while that is being saved; who is to be let go stays so until then.
TEST_F(NamespaceChangesTest, ProtectionHoldsWhileItIsSaved) {
  const command_set::Namespace& ns = *d->subsystem.info(1).current;
  nvme::Sqe protect = TestDevice::command(AdminOpcode::set_features, 1);
  protect.cdw10 = static_cast<std::uint32_t>(nvme::Feature::namespace_write_protection);
  protect.cdw11 = static_cast<std::uint32_t>(nvme::WriteProtection::protect);
  d->start(protect, 1);
  EXPECT_FALSE(ns.writable.load());
  EXPECT_FALSE(answer(1));
  d->host.reply_disk();
  EXPECT_EQ(answer(1), Status::success);
  protect.cdw11 = static_cast<std::uint32_t>(nvme::WriteProtection::none);
  d->start(protect, 2);
  EXPECT_FALSE(ns.writable.load());
  d->host.reply_disk();
  EXPECT_EQ(answer(2), Status::success);
  EXPECT_TRUE(ns.writable.load());
}

TEST_F(NamespaceChangesTest, OneWriteSavesTheFeaturesOfAllWhoWait) {
  d->start(save(nvme::Feature::arbitration, 1), 1);
  d->start(save(nvme::Feature::volatile_write_cache, 1), 2, 1);
  d->start(save(nvme::Feature::arbitration, 3), 3, 1);
  ASSERT_EQ(d->host.at_disk.size(), 3u);
  EXPECT_TRUE(d->host.at_disk[0].work.run().waited);
  for (int i : {1, 2}) {
    EXPECT_TRUE(d->host.at_disk[i].work.run().good);
    EXPECT_FALSE(d->host.at_disk[i].work.run().waited) << i;
  }
  const auto saved = d->subsystem.saved_features();
  ASSERT_EQ(saved.size(), 2u);
  EXPECT_EQ(saved[1].cdw11, 3u) << "the last word";
}

TEST_F(NamespaceChangesTest, AFeatureThatNobodyWaitsForAnyMoreIsNotSaved) {
  d->start(save(nvme::Feature::arbitration, 1), 1);
  d->host.at_disk.clear();
  d->start(save(nvme::Feature::temperature_threshold, 300), 2, 1);
  d->host.reply_disk();
  EXPECT_EQ(d->subsystem.saved_features().size(), 1u);
}

// One that began after another had been asked for has that one's data on the disk, too.
TEST_F(NamespaceChangesTest, OneFlushServesTheShutdownsThatWait) {
  const auto shut_down = [&](unsigned i) {
    d->controller(i).write_register(nvme::kRegCc, 4, TestDevice::cc({.en = true, .shn = nvme::kCcShnNormal}));
    d->poll(i);
  };
  shut_down(0);
  EXPECT_TRUE(d->host.at_disk[0].work.run().waited);
  shut_down(1);
  ASSERT_EQ(d->host.at_disk.size(), 2u);
  EXPECT_TRUE(d->host.at_disk[1].work.run().waited) << "the first had begun before";
  EXPECT_FALSE(d->host.at_disk[0].work.run().waited) << "and the second after it was asked for";
}

}  // namespace
}  // namespace flashmob::controller::testing
