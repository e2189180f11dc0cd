// The log that keeps blocks whole where a process is killed.
#include "media/redo_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "media/media.h"

namespace flashmob::media {
namespace {

constexpr std::uint64_t kImageBytes = 1 << 20;
constexpr std::uint64_t kLaneBytes = 4096 + RedoLog::kPieceBytes;

class RedoLogTest : public testing::Test {
 protected:
  RedoLogTest() {
    std::string name = (std::filesystem::temp_directory_path() / "flashmob_redo_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    image_ = folder_ + "/image";
    log_ = RedoLog::path_of(image_);
  }
  ~RedoLogTest() override { std::filesystem::remove_all(folder_); }

  static ImageIdentity identity_of_path(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_GE(file.get(), 0);
    return identity_of(file);
  }
  // Runs `what` in a process that ends by its _exit(), which is as sudden as a kill; whether it said 0.
  static bool in_process_that_is_killed(const std::function<void()>& what) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        what();
      } catch (const std::exception&) {  // the rest of this test is the parent's
      }
      ::_exit(2);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  // A process is killed between the log and the end of the store of block_ at 4096.
  void stop_half_way(const ImageIdentity& identity) const {
    EXPECT_TRUE(in_process_that_is_killed([&] {
      const FileDescriptor file(::open(image_.c_str(), O_RDWR | O_CLOEXEC));
      void* const mapping = ::mmap(nullptr, kImageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
      if (mapping == MAP_FAILED) return;
      auto* const image = static_cast<std::byte*>(mapping);
      RedoLog log(image_, {image, kImageBytes}, identity);
      const unsigned lane = log.take();
      const bool begun = log.begin(lane, 4096, block_);
      std::memcpy(image + 4096, log.data(lane), 1000);
      ::_exit(begun ? 0 : 1);
    }));
    EXPECT_TRUE(std::filesystem::exists(log_));
  }
  std::vector<std::byte> in_image(std::uint64_t offset, std::size_t bytes) const {
    std::vector<std::byte> out(bytes, std::byte{0xEE});
    std::ifstream(image_, std::ios::binary)
        .seekg(static_cast<std::streamoff>(offset))
        .read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(bytes));
    return out;
  }
  void expect_refused(const std::string& spec, const std::string& part) const {
    try {
      open(spec, 0, 1, 1);
      ADD_FAILURE() << spec << " opened";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(log_), std::string::npos) << error.what();
    }
  }
  // Both kinds of media refuse the log, and neither it nor the image changes.
  void expect_foreign(const std::string& part) const {
    const std::vector<std::byte> before = in_image(0, kImageBytes);
    expect_refused("file:" + image_, part);
    expect_refused("cow:" + image_, part);
    EXPECT_EQ(in_image(0, kImageBytes), before);
    EXPECT_TRUE(std::filesystem::exists(log_));
  }

  std::string folder_, image_, log_;
  const std::vector<std::byte> block_ = std::vector<std::byte>(4096, std::byte{0x5A});
};

TEST_F(RedoLogTest, AHalfWrittenBlockIsFinishedAtTheNextStart) {
  open("file:" + image_, kImageBytes, 1, 1);
  stop_half_way(identity_of_path(image_));
  EXPECT_NE(in_image(4096, 4096), block_);
  open("file:" + image_, kImageBytes, 1, 1);
  EXPECT_EQ(in_image(4096, 4096), block_);
  EXPECT_EQ(in_image(0, 4096), std::vector<std::byte>(4096));
  EXPECT_EQ(in_image(8192, 4096), std::vector<std::byte>(4096));
  EXPECT_FALSE(std::filesystem::exists(log_)) << "nothing is left of a run that ends well";
}

// What a killed process was writing is whole in a view, too; the log stays for whoever may finish it in the image.
TEST_F(RedoLogTest, AViewFinishesHalfWrittenBlocksForItself) {
  open("file:" + image_, kImageBytes, 1, 1);
  stop_half_way(identity_of_path(image_));
  const std::vector<std::byte> before = in_image(0, kImageBytes);
  std::vector<std::byte> read(4096);
  {
    const auto view = open("cow:" + image_, 0, 1, 1);
    ASSERT_TRUE(view->read(4096, read));
    EXPECT_EQ(read, block_);
  }
  EXPECT_TRUE(std::filesystem::exists(log_));
  EXPECT_EQ(in_image(0, kImageBytes), before) << "the image is as it was";
}

// A volume that is mounted again may have another device number; where no birth is known there is nothing better.
TEST(ImageIdentity, TheDeviceCountsWhereNoBirthIsKnown) {
  EXPECT_EQ((ImageIdentity{1, 2, 3}), (ImageIdentity{1, 9, 3}));
  EXPECT_NE((ImageIdentity{1, 2, 3}), (ImageIdentity{1, 2, 4}));
  EXPECT_NE((ImageIdentity{1, 2, 3}), (ImageIdentity{8, 2, 3}));
  EXPECT_EQ((ImageIdentity{1, 2, 0}), (ImageIdentity{1, 2, 3}));
  EXPECT_NE((ImageIdentity{1, 2, 0}), (ImageIdentity{1, 9, 0}));
}

TEST_F(RedoLogTest, AnImageIsKnownByItsInodeAndBirth) {
  open("file:" + image_, kImageBytes, 1, 1);
  const ImageIdentity own = identity_of_path(image_);
  EXPECT_EQ(own, identity_of_path(image_));
  for (const ImageIdentity& other :
       {ImageIdentity{own.inode + 1, own.device, own.born_ns}, ImageIdentity{own.inode, own.device, own.born_ns + 1}}) {
    EXPECT_NE(own, other);
    stop_half_way(other);
    expect_foreign("another image");
    std::filesystem::remove(log_);
  }
}

// The case that loses data: most file systems give the next file the inode number of the last one that was removed.
TEST_F(RedoLogTest, AnotherImageThatTookPathAndInodeIsLeftAlone) {
  open("file:" + image_, kImageBytes, 1, 1);
  const ImageIdentity old = identity_of_path(image_);
  stop_half_way(old);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // births have the kernel's tick
  std::filesystem::remove(image_);
  const std::string content(kImageBytes, 'n');
  // Other programs make files, too, so the number is not always free; a refusal is right in either case.
  for (int tries = 0; tries < 100; ++tries) {
    const std::string candidate = folder_ + "/new" + std::to_string(tries);
    std::ofstream(candidate, std::ios::binary) << content;
    std::filesystem::rename(candidate, image_ + ".next");
    if (identity_of_path(image_ + ".next").inode == old.inode) break;
  }
  std::filesystem::rename(image_ + ".next", image_);
  if (old.born_ns != 0 || identity_of_path(image_).inode != old.inode) expect_foreign("another image");
}

TEST_F(RedoLogTest, ANewImageBesideAnotherOnesLogIsNotMade) {
  open("file:" + image_, kImageBytes, 1, 1);
  stop_half_way(identity_of_path(image_));
  const ImageIdentity old = identity_of_path(image_);
  std::filesystem::rename(image_, folder_ + "/elsewhere");
  EXPECT_THROW(open("file:" + image_, kImageBytes, 1, 1), ConfigError);
  EXPECT_FALSE(std::filesystem::exists(image_));
  std::filesystem::rename(folder_ + "/elsewhere", image_);
  EXPECT_EQ(identity_of_path(image_), old) << "a file that is moved stays what it is";
  open("file:" + image_, 0, 1, 1);
  EXPECT_EQ(in_image(4096, 4096), block_);
}

// The field's place held zeroes before versions were counted.
TEST_F(RedoLogTest, TheLogOfAnotherVersionIsRefusedWhereItHoldsWrites) {
  open("file:" + image_, kImageBytes, 1, 1);
  for (const char version : {'\0', '\2'}) {
    stop_half_way(identity_of_path(image_));
    std::fstream log(log_, std::ios::binary | std::ios::in | std::ios::out);
    for (std::streamoff lane = 0; lane < 32; ++lane) {
      log.seekp(lane * static_cast<std::streamoff>(kLaneBytes) + 12);
      log.write(std::string{version, 0, 0, 0}.data(), 4);
    }
    log.close();
    expect_foreign("another version");
    std::filesystem::remove(log_);
  }
  std::ofstream(log_) << "";
  std::filesystem::resize_file(log_, 32 * kLaneBytes);  // nothing is under way in this one
  EXPECT_NO_THROW(open("file:" + image_, 0, 1, 1));
}

TEST_F(RedoLogTest, ALinkToTheImageHasTheImagesLog) {
  open("file:" + image_, kImageBytes, 1, 1);
  stop_half_way(identity_of_path(image_));
  const std::string link = folder_ + "/link";
  std::filesystem::create_symlink("image", link);
  EXPECT_THROW(open("direct:" + link, 0, 1, 1), ConfigError);
  std::vector<std::byte> read(4096);
  ASSERT_TRUE(open("cow:" + link, 0, 1, 1)->read(4096, read));
  EXPECT_EQ(read, block_);
  open("file:" + link, 0, 1, 1);
  EXPECT_EQ(in_image(4096, 4096), block_);
  EXPECT_FALSE(std::filesystem::exists(log_));
  // What an earlier version left beside the link is not passed over.
  std::ofstream(RedoLog::path_of(link)) << "what a killed process was writing";
  EXPECT_THROW(open("file:" + link, 0, 1, 1), ConfigError);
}

// Whoever cuts the log costs the server its writes, and not its life.
TEST_F(RedoLogTest, AfterTheLogIsCutWritesFailUntilTheNextStart) {
  for (const std::uint64_t left : {std::uint64_t{0}, std::uint64_t{4096}, 5 * kLaneBytes}) {
    {
      const auto media = open("file:" + image_, kImageBytes, 1, 1);
      ASSERT_TRUE(media->write(0, block_));
      std::filesystem::resize_file(log_, left);
      bool wrote = true;
      // The lanes that are left work on until one that is gone is met.
      for (int thread = 0; thread < 40 && wrote; ++thread)
        std::thread([&] { wrote = media->write(8192, block_); }).join();
      EXPECT_FALSE(wrote) << left;
      EXPECT_FALSE(media->write(0, std::vector<std::byte>(3 * RedoLog::kPieceBytes))) << left;
      EXPECT_FALSE(media->is_disk_full()) << "so that the host gets Write Fault";
      std::filesystem::resize_file(log_, 32 * kLaneBytes);
      EXPECT_FALSE(media->write(0, std::vector<std::byte>(4096))) << "what is in it now is not what was made";
      std::vector<std::byte> read(4096);
      EXPECT_TRUE(media->read(0, read));
      EXPECT_EQ(read, block_);
      EXPECT_TRUE(media->flush());
    }
    const auto again = open("file:" + image_, 0, 1, 1);
    std::vector<std::byte> read(4096);
    EXPECT_TRUE(again->read(0, read));
    EXPECT_EQ(read, block_);
    EXPECT_TRUE(again->write(0, block_));
  }
}

TEST_F(RedoLogTest, AfterTheLogIsCutAndTheServerKilledOthersReadTheImage) {
  open("file:" + image_, kImageBytes, 1, 1);
  EXPECT_TRUE(in_process_that_is_killed([&] {
    const auto media = open("file:" + image_, 0, 1, 1);
    const bool before = media->write(4096, block_);
    std::filesystem::resize_file(log_, 0);
    const bool after = media->write(4096, std::vector<std::byte>(4096));
    std::filesystem::resize_file(log_, 32 * kLaneBytes);
    ::_exit(before && !after && !media->write(4096, std::vector<std::byte>(4096)) ? 0 : 1);
  })) << "it is alive, and says that its writes fail";
  for (const std::string kind : {"cow:", "file:"}) {
    std::vector<std::byte> read(4096);
    ASSERT_TRUE(open(kind + image_, 0, 1, 1)->read(4096, read));
    EXPECT_EQ(read, block_);
  }
}

}  // namespace
}  // namespace flashmob::media
