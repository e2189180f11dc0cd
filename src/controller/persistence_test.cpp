// What hosts change about a drive on file: media, over several lives of the drive.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/check.h"
#include "controller/controller_test_support.h"

// In the place of the library's: folders that cannot be synced.
static std::atomic<bool> refuse_folder_syncs{false};
extern "C" int fsync(int fd) {
  struct stat info{};
  if (refuse_folder_syncs && ::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
// Stands for a disk that does not take what is to be flushed.
static std::atomic<bool> refuse_flushes{false};
static std::atomic<int> flushes{0};
extern "C" int fdatasync(int fd) {
  ++flushes;
  errno = EIO;
  return refuse_flushes ? -1 : static_cast<int>(::syscall(SYS_fdatasync, fd));
}

namespace flashmob::controller::testing {
namespace {

class PersistenceTest : public ::testing::Test {
 protected:
  PersistenceTest() {
    std::string name = (std::filesystem::temp_directory_path() / "flashmob_persist_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    options_.subsystem.namespaces = {{.size_bytes = 1 << 20, .media = "file:" + folder_ + "/a"},
                                     {.size_bytes = 1 << 20, .media = "file:" + folder_ + "/b"}};
  }
  ~PersistenceTest() override { std::filesystem::remove_all(folder_); }

  static nvme::Status format(TestDevice& d, std::uint32_t nsid, std::uint32_t index) {
    nvme::Sqe sqe = TestDevice::command(nvme::AdminOpcode::format_nvm, nsid);
    sqe.cdw10 = index;
    return d.run(sqe).status();
  }
  static nvme::Status remove(TestDevice& d, std::uint32_t nsid) {
    nvme::Sqe sqe = TestDevice::command(nvme::AdminOpcode::namespace_management, nsid);
    sqe.cdw10 = nvme::kNamespaceDelete;
    return d.run(sqe).status();
  }
  void block_saving() const { std::filesystem::create_directories(folder_ + "/a.flashmob.new/x"); }
  void allow_saving() const { std::filesystem::remove_all(folder_ + "/a.flashmob.new"); }

  std::string folder_;
  DeviceOptions options_;
};

TEST_F(PersistenceTest, AFormatIsThereAgainWithTheSameIdentity) {
  NamespaceInfo before;
  {
    TestDevice d(options_);
    d.enable();
    ASSERT_EQ(format(d, 1, 1), nvme::Status::success);
    before = d.subsystem.info(1);
  }
  options_.subsystem.serial = "ANOTHER";
  TestDevice d(options_);
  const NamespaceInfo& now = d.subsystem.info(1);
  EXPECT_EQ(now.current->lba_shift, 12);
  EXPECT_EQ(now.current->blocks, 256u);
  EXPECT_EQ(now.nguid, before.nguid);
  EXPECT_EQ(now.eui64, before.eui64);
  EXPECT_EQ(now.uuid, before.uuid);
  EXPECT_EQ(d.subsystem.info(2).current->lba_shift, 9) << "each image has a state of its own";
}

TEST_F(PersistenceTest, AViewOfAnImageHasItsFormatAndMarksAndAnIdentityOfItsOwn) {
  NamespaceInfo before;
  {
    TestDevice d(options_);
    d.enable();
    ASSERT_EQ(format(d, 1, 1), nvme::Status::success);
    ASSERT_TRUE(d.subsystem.info(1).current->mark(3, 1));
    ASSERT_TRUE(d.subsystem.info(1).current->save_marks());
    before = d.subsystem.info(1);
  }
  options_.subsystem.namespaces = {{.size_bytes = 0, .media = "cow:" + folder_ + "/a"}};
  options_.subsystem.serial = "ANOTHER";
  {
    TestDevice d(options_);
    d.enable();
    command_set::Namespace& view = *d.subsystem.info(1).current;
    EXPECT_EQ(view.lba_shift, 12);
    EXPECT_TRUE(view.uncorrectable.intersects(3, 1));
    EXPECT_NE(d.subsystem.info(1).nguid, before.nguid);
    EXPECT_EQ(view.unmark(3, 1), command_set::Unmarked::some);
    EXPECT_FALSE(view.marks_unsaved()) << "it keeps none";
    EXPECT_EQ(format(d, 1, 0), nvme::Status::success);
  }
  TestDevice again(options_);
  EXPECT_EQ(again.subsystem.info(1).current->lba_shift, 12) << "the image is as it was";
  EXPECT_TRUE(again.subsystem.info(1).current->uncorrectable.intersects(3, 1));
}

TEST_F(PersistenceTest, UncorrectableMarksAreThereAgainUntilWritten) {
  {
    TestDevice d(options_);
    command_set::Namespace& ns = *d.subsystem.info(1).current;
    ASSERT_TRUE(ns.mark(10, 4));
    ASSERT_TRUE(ns.mark(100, 1));
    ASSERT_EQ(ns.unmark(11, 1), command_set::Unmarked::some);
    EXPECT_EQ(ns.unmark(11, 1), command_set::Unmarked::some) << "it may still be on the disk";
    EXPECT_EQ(ns.unmark(50, 1), command_set::Unmarked::none);
    ASSERT_TRUE(ns.save_marks());
    EXPECT_EQ(ns.unmark(11, 1), command_set::Unmarked::none);
  }
  {
    TestDevice d(options_);
    command_set::Namespace& ns = *d.subsystem.info(1).current;
    for (const std::uint64_t marked : {10, 12, 13, 100}) EXPECT_TRUE(ns.uncorrectable.intersects(marked, 1)) << marked;
    EXPECT_FALSE(ns.uncorrectable.intersects(11, 1));
    d.enable();
    ASSERT_EQ(format(d, 1, 0), nvme::Status::success);
  }
  TestDevice d(options_);
  EXPECT_TRUE(d.subsystem.info(1).current->uncorrectable.empty()) << "a Format ends them";
}

// A write that would leave two ranges of marks for one fails where there is no room: nobody else's mark goes for it.
TEST_F(PersistenceTest, MarksAreNotForgottenForWantOfRoom) {
  TestDevice d(options_);
  command_set::Namespace& ns = *d.subsystem.info(1).current;
  ASSERT_TRUE(ns.mark(0, 8));
  std::uint64_t block = 10;
  for (; ns.mark(block, 1) && block < 4 * media::kMaxSavedRanges; block += 2) {
  }
  EXPECT_EQ(ns.unmark(2, 1), command_set::Unmarked::refused);
  for (const std::uint64_t marked : {0, 1, 2, 7}) EXPECT_TRUE(ns.uncorrectable.intersects(marked, 1)) << marked;
  EXPECT_EQ(ns.unmark(0, 1), command_set::Unmarked::some);
  EXPECT_EQ(ns.unmark(1, 7), command_set::Unmarked::some);
  EXPECT_EQ(ns.unmark(10, 1), command_set::Unmarked::some);
}

TEST_F(PersistenceTest, ADeletedNamespaceStaysDeleted) {
  {
    TestDevice d(options_);
    d.enable();
    ASSERT_EQ(remove(d, 1), nvme::Status::success);
  }
  TestDevice d(options_);
  EXPECT_EQ(d.subsystem.info(1).current, nullptr);
  EXPECT_NE(d.subsystem.info(2).current, nullptr);
  EXPECT_EQ(d.controller().attached(1), nullptr);
  EXPECT_EQ(d.subsystem.total_capacity_bytes(), (1u << 20) + options_.subsystem.spare_capacity_bytes);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/a")) << "the image is the operator's";
}

TEST_F(PersistenceTest, SavedFeaturesBelongToTheDrive) {
  {
    TestDevice d(options_);
    d.enable();
    ASSERT_EQ(d.set_feature(nvme::Feature::volatile_write_cache, 0, true).status(), nvme::Status::success);
    ASSERT_EQ(d.set_feature(nvme::Feature::error_recovery, 5, true, 1).status(), nvme::Status::success);
    ASSERT_EQ(d.set_feature(nvme::Feature::error_recovery, 7, true, nvme::kNsidBroadcast).status(),
              nvme::Status::success);
    ASSERT_EQ(d.set_feature(nvme::Feature::temperature_threshold, 300, true).status(), nvme::Status::success);
    ASSERT_EQ(d.set_feature(nvme::Feature::temperature_threshold, (1u << 20) | 200, true).status(),
              nvme::Status::success);
    ASSERT_EQ(d.set_feature(nvme::Feature::write_atomicity, 1, false).status(), nvme::Status::success);
    EXPECT_EQ(d.subsystem.saved_features().size(), 4u) << "one of error recovery";
  }
  TestDevice d(options_);
  d.enable();
  EXPECT_FALSE(d.controller().write_cache_enabled());
  EXPECT_EQ(d.get_feature(nvme::Feature::error_recovery, 0, 0, 1).dw0, 7u);
  EXPECT_EQ(d.get_feature(nvme::Feature::temperature_threshold, 2, 0).dw0, 300u);
  EXPECT_EQ(d.get_feature(nvme::Feature::temperature_threshold, 2, 1u << 20).dw0, 200u);
  EXPECT_EQ(d.get_feature(nvme::Feature::write_atomicity).dw0, 0u) << "was not saved";
}

TEST_F(PersistenceTest, AProtectedNamespaceStaysSo) {
  const auto protect = [](TestDevice& d, nvme::WriteProtection state, std::uint32_t nsid) {
    return d.set_feature(nvme::Feature::namespace_write_protection, static_cast<std::uint32_t>(state), false, nsid)
        .status();
  };
  const auto is_writable = [](TestDevice& d, std::uint32_t nsid) {
    return d.subsystem.info(nsid).current->writable.load();
  };
  {
    TestDevice d(options_);
    d.enable();
    ASSERT_EQ(protect(d, nvme::WriteProtection::protect, 1), nvme::Status::success);
    ASSERT_EQ(protect(d, nvme::WriteProtection::until_power_cycle, 2), nvme::Status::success);
  }
  {
    TestDevice d(options_);
    d.enable();
    EXPECT_EQ(d.subsystem.write_protection(1), nvme::WriteProtection::protect);
    EXPECT_FALSE(is_writable(d, 1));
    EXPECT_EQ(d.subsystem.write_protection(2), nvme::WriteProtection::none);
    EXPECT_TRUE(is_writable(d, 2));
    block_saving();
    EXPECT_EQ(protect(d, nvme::WriteProtection::none, 1), nvme::Status::write_fault);
    EXPECT_FALSE(is_writable(d, 1)) << "what cannot be saved changes nothing";
    allow_saving();
    EXPECT_EQ(protect(d, nvme::WriteProtection::none, 1), nvme::Status::success);
    EXPECT_TRUE(is_writable(d, 1));
    EXPECT_EQ(protect(d, nvme::WriteProtection::permanent, 1), nvme::Status::success);
  }
  TestDevice d(options_);
  d.enable();
  EXPECT_EQ(d.subsystem.write_protection(1), nvme::WriteProtection::permanent);
  EXPECT_FALSE(is_writable(d, 1));
}

TEST_F(PersistenceTest, WhatCannotBeSavedFailsAndChangesNothing) {
  TestDevice d(options_);
  d.enable();
  block_saving();
  EXPECT_EQ(format(d, 1, 1), nvme::Status::write_fault);
  EXPECT_EQ(d.subsystem.info(1).current->lba_shift, 9);
  EXPECT_EQ(d.controller().attached(1), d.subsystem.info(1).current) << "and is attached as before";
  EXPECT_EQ(remove(d, 1), nvme::Status::write_fault);
  EXPECT_NE(d.subsystem.info(1).current, nullptr);
  EXPECT_EQ(d.set_feature(nvme::Feature::volatile_write_cache, 0, true).status(), nvme::Status::internal_error);
  constexpr unsigned kSaved = 2;
  EXPECT_EQ(d.get_feature(nvme::Feature::volatile_write_cache, kSaved).dw0, 1u);
  d.disable();
  d.enable();
  EXPECT_TRUE(d.controller().write_cache_enabled()) << "a reset brings back what is saved";
  EXPECT_TRUE(d.subsystem.info(1).current->mark(1, 1));
  EXPECT_FALSE(d.subsystem.info(1).current->save_marks());
  allow_saving();
  EXPECT_EQ(format(d, 1, 1), nvme::Status::success);
}

TEST_F(PersistenceTest, ACacheThatIsSwitchedOffStaysOwedUntilTheDiskHasIt) {
  TestDevice d(options_);
  d.enable();
  refuse_flushes = true;
  EXPECT_EQ(d.set_feature(nvme::Feature::volatile_write_cache, 0).status(), nvme::Status::write_fault);
  EXPECT_EQ(d.set_feature(nvme::Feature::volatile_write_cache, 0).status(), nvme::Status::write_fault) << "still";
  refuse_flushes = false;
  EXPECT_EQ(d.set_feature(nvme::Feature::volatile_write_cache, 0).status(), nvme::Status::write_fault)
      << "what the disk did not take then it does not remember";
}

TEST_F(PersistenceTest, ACacheThatIsSwitchedOffIsOwedOnce) {
  TestDevice d(options_);
  d.enable();
  EXPECT_EQ(d.set_feature(nvme::Feature::volatile_write_cache, 0).status(), nvme::Status::success);
  const int before = flushes;
  EXPECT_EQ(d.set_feature(nvme::Feature::volatile_write_cache, 0).status(), nvme::Status::success);
  EXPECT_EQ(flushes, before) << "nothing is owed any more";
}

// The reset forgets the piece of work that waits for the disk, but not what it was for.
TEST_F(PersistenceTest, AResetDoesNotForgetWhatASwitchedOffCacheHeld) {
  TestDevice d(options_);
  d.enable();
  ASSERT_EQ(d.set_feature(nvme::Feature::volatile_write_cache, 0, true).status(), nvme::Status::success);
  ASSERT_EQ(d.set_feature(nvme::Feature::volatile_write_cache, 1).status(), nvme::Status::success);
  d.host.hold_disk = true;
  nvme::Sqe off = TestDevice::command(nvme::AdminOpcode::set_features);
  off.cdw10 = static_cast<std::uint32_t>(nvme::Feature::volatile_write_cache);
  d.start(off, 77);
  ASSERT_EQ(d.host.at_disk.size(), 1u);
  d.host.at_disk.clear();  // it waited behind others'
  d.disable();
  ASSERT_EQ(d.host.at_disk.size(), 1u) << "the cache stays off: what it held has to be on the disk";
  const int before = flushes;
  d.host.reply_disk();
  EXPECT_GT(flushes, before);
  EXPECT_EQ(d.csts(), 0u);
}

// The state has its place by then, and is what the next start reads: the drive that reports the failure must go on from
// it, or what it saves next says something else.
TEST_F(PersistenceTest, WhatIsInItsPlaceHoldsThoughItsFolderCannotBeSynced) {
  constexpr auto protect = static_cast<std::uint32_t>(nvme::WriteProtection::protect);
  {
    TestDevice d(options_);
    d.enable();
    refuse_folder_syncs = true;
    EXPECT_EQ(format(d, 1, 1), nvme::Status::write_fault);
    EXPECT_EQ(d.set_feature(nvme::Feature::namespace_write_protection, protect, false, 2).status(),
              nvme::Status::write_fault);
    EXPECT_EQ(d.set_feature(nvme::Feature::namespace_write_protection, protect, false, 2).status(),
              nvme::Status::write_fault)
        << "asked again, it is still not sure to be on the disk";
    refuse_folder_syncs = false;
    command_set::Namespace& ns = *d.subsystem.info(1).current;
    EXPECT_EQ(ns.lba_shift, 12);
    EXPECT_EQ(d.controller().attached(1), &ns);
    EXPECT_EQ(d.subsystem.write_protection(2), nvme::WriteProtection::protect);
    EXPECT_FALSE(d.subsystem.info(2).current->writable.load());
    EXPECT_EQ(d.set_feature(nvme::Feature::namespace_write_protection, protect, false, 2).status(),
              nvme::Status::success);
    ASSERT_TRUE(ns.mark(200, 1));
    ASSERT_TRUE(ns.save_marks()) << "a block of the new format";
  }
  {
    TestDevice d(options_);
    d.enable();
    EXPECT_EQ(d.subsystem.info(1).current->lba_shift, 12);
    EXPECT_TRUE(d.subsystem.info(1).current->uncorrectable.intersects(200, 1));
    EXPECT_EQ(d.subsystem.write_protection(2), nvme::WriteProtection::protect);
    refuse_folder_syncs = true;
    EXPECT_EQ(remove(d, 1), nvme::Status::write_fault);
    refuse_folder_syncs = false;
    EXPECT_EQ(d.subsystem.info(1).current, nullptr);
    EXPECT_EQ(d.set_feature(nvme::Feature::volatile_write_cache, 0, true).status(), nvme::Status::success)
        << "kept in the state of the deleted one";
  }
  TestDevice d(options_);
  EXPECT_EQ(d.subsystem.info(1).current, nullptr);
  EXPECT_EQ(d.subsystem.saved_features().size(), 1u);
}

TEST_F(PersistenceTest, DeletingAllSaysThatOneCouldNotBeSaved) {
  TestDevice d(options_);
  d.enable();
  block_saving();
  EXPECT_EQ(remove(d, nvme::kNsidBroadcast), nvme::Status::write_fault);
  EXPECT_NE(d.subsystem.info(1).current, nullptr);
  EXPECT_EQ(d.subsystem.info(2).current, nullptr);
}

}  // namespace
}  // namespace flashmob::controller::testing
