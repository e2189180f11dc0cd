// What is saved beside an image.
#include "media/saved_state.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "media/media.h"

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

namespace flashmob::media {
namespace {

constexpr std::uint64_t kSize = 1 << 20;

SavedState some_state() {
  SavedState state;
  state.size_bytes = kSize;
  state.lba_bytes = 4096;
  state.write_protection = 1;
  state.nguid.fill(1);
  state.eui64.fill(2);
  state.uuid.fill(3);
  state.uncorrectable = {{0, 1}, {2, 5}, {255, 1}};
  state.features = {{6, 0, 0}, {5, 7, 0xFFFFFFFF}};
  return state;
}

class SavedStateTest : public testing::Test {
 protected:
  SavedStateTest() {
    std::string name = (std::filesystem::temp_directory_path() / "flashmob_saved_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    image_ = folder_ + "/image";
  }
  ~SavedStateTest() override { std::filesystem::remove_all(folder_); }

  std::string state_path() const { return StateKeeper::path_of(image_); }
  void put(std::span<const std::byte> bytes) const {
    std::ofstream(state_path(), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  // Opening must fail and say all of `parts`.
  void expect_refused(const std::vector<std::string>& parts) const {
    try {
      const StateKeeper keeper(image_, kSize);
      ADD_FAILURE() << "taken";
    } catch (const ConfigError& error) {
      for (const std::string& part : parts)
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << "\nlacks: " << part;
    }
  }

  std::string folder_, image_;
};

TEST_F(SavedStateTest, WhatIsEncodedIsDecoded) {
  std::string why;
  const SavedState state = some_state();
  EXPECT_EQ(decode(encode(state), why), state) << why;
  SavedState least;
  least.size_bytes = 512;
  EXPECT_EQ(decode(encode(least), why), least) << why;
}

TEST_F(SavedStateTest, EveryFlippedBitAndEveryLengthIsRefused) {
  const std::vector<std::byte> good = encode(some_state());
  std::string why;
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= std::byte(1u << bit % 8);
    ASSERT_FALSE(decode(bad, why)) << "bit " << bit;
    ASSERT_FALSE(why.empty());
  }
  for (std::size_t length = 0; length < good.size(); ++length)
    ASSERT_FALSE(decode(std::span(good).first(length), why)) << length;
}

TEST_F(SavedStateTest, ValuesThatCannotBeAreRefused) {
  std::string why;
  const auto refused = [&](auto&& spoil) {
    SavedState state = some_state();
    spoil(state);
    return !decode(encode(state), why);
  };
  EXPECT_TRUE(refused([](SavedState& s) { s.lba_bytes = 1024; }));
  EXPECT_TRUE(refused([](SavedState& s) { s.size_bytes = 0; }));
  EXPECT_TRUE(refused([](SavedState& s) { s.size_bytes += 1; }));
  EXPECT_TRUE(refused([](SavedState& s) { s.write_protection = 4; }));
  EXPECT_TRUE(refused([](SavedState& s) { s.uncorrectable = {{256, 1}}; })) << "behind the end";
  EXPECT_TRUE(refused([](SavedState& s) { s.uncorrectable = {{1, UINT64_MAX}}; })) << "wraps";
  EXPECT_TRUE(refused([](SavedState& s) { s.uncorrectable = {{4, 1}, {2, 1}}; })) << "descending";
  EXPECT_TRUE(refused([](SavedState& s) { s.uncorrectable = {{4, 0}}; })) << "empty";
  EXPECT_TRUE(refused([](SavedState& s) { s.features.resize(kMaxSavedFeatures + 1); }));
}

TEST_F(SavedStateTest, ChangesAreThereAtTheNextStart) {
  {
    StateKeeper keeper(image_, kSize);
    EXPECT_FALSE(keeper.loaded());
    EXPECT_TRUE(keeper.change([](SavedState&) {}));
    EXPECT_FALSE(std::filesystem::exists(state_path())) << "nothing to save";
    std::ofstream(state_path() + ".new") << "of a run that was killed";
    EXPECT_TRUE(keeper.change([](SavedState& state) { state.lba_bytes = 4096; }));
    EXPECT_TRUE(keeper.change([](SavedState& state) { state.deleted = true; }));
  }
  struct stat info{};
  ASSERT_EQ(::stat(state_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_FALSE(std::filesystem::exists(state_path() + ".new"));
  const StateKeeper keeper(image_, kSize);
  ASSERT_TRUE(keeper.loaded());
  EXPECT_EQ(keeper.loaded()->lba_bytes, 4096u);
  EXPECT_TRUE(keeper.loaded()->deleted);
  EXPECT_EQ(keeper.loaded()->generation, 2u);
}

TEST_F(SavedStateTest, AChangeThatCannotBeSavedIsNone) {
  StateKeeper keeper(folder_ + "/no/folder/image", kSize);
  EXPECT_FALSE(keeper.change([](SavedState& state) { state.deleted = true; }));
  EXPECT_FALSE(keeper.state().deleted);
  StateKeeper good(image_, kSize);
  EXPECT_FALSE(good.change([](SavedState& state) { state.uncorrectable.resize(kMaxSavedRanges + 1, {0, 1}); }));
  EXPECT_FALSE(std::filesystem::exists(state_path()));
}

TEST_F(SavedStateTest, WhatCannotBeUsedIsAnErrorWithAFix) {
  put(std::vector<std::byte>(10));
  expect_refused({state_path(), "damaged", "delete"});
  std::vector<std::byte> bytes = encode(some_state());
  bytes[8] = std::byte{9};
  put(bytes);
  expect_refused({state_path(), "version 9", "version 1"});
  SavedState other = some_state();
  other.size_bytes = 2 * kSize;
  put(encode(other));
  expect_refused({state_path(), "2097152", "1048576", "--size"});
  std::filesystem::remove(state_path());
  std::filesystem::create_directory(state_path());
  expect_refused({state_path(), "directory"});
}

TEST_F(SavedStateTest, AStateWithoutItsImageIsAnError) {
  put(encode(some_state()));
  try {
    open("file:" + image_, kSize, 1, 1);
    ADD_FAILURE() << "opened";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("image that is gone"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(image_));
}

// A view of an image has what hosts made of it, but for its identity, and leaves all of it as it is.
TEST_F(SavedStateTest, AViewHasTheImagesFormatAndMarks) {
  open("file:" + image_, kSize, 1, 1);
  put(encode(some_state()));
  const auto before = std::filesystem::last_write_time(state_path());
  const auto view = open("cow:" + image_, 0, 1, 1);
  const auto found = view->found();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->lba_bytes, 4096u);
  EXPECT_EQ(found->uncorrectable, some_state().uncorrectable);
  EXPECT_EQ(found->nguid, SavedState().nguid) << "image and view may both be attached to one host";
  EXPECT_EQ(found->write_protection, 0);
  EXPECT_TRUE(found->features.empty());
  EXPECT_EQ(view->saved(), nullptr);
  EXPECT_EQ(std::filesystem::last_write_time(state_path()), before);
  const auto beginning = open("cow:" + image_, kSize / 64, 1, 1);
  EXPECT_EQ(beginning->found()->uncorrectable, (std::vector<SavedRange>{{0, 1}, {2, 2}}));
}

TEST_F(SavedStateTest, AViewOfWhatCannotBeIsAnErrorWithAFix) {
  open("file:" + image_, kSize, 1, 1);
  const auto refused = [&](const std::string& part) {
    try {
      open("cow:" + image_, 0, 1, 1);
      ADD_FAILURE() << "taken, where it should say: " << part;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(state_path()), std::string::npos) << error.what();
    }
  };
  put(std::vector<std::byte>(10));
  refused("damaged");
  SavedState deleted = some_state();
  deleted.deleted = true;
  put(encode(deleted));
  refused("a host has deleted");
}

// A folder that cannot be synced: the state has its place by then, and the next start reads it.
TEST_F(SavedStateTest, AStateInItsPlaceHoldsThoughItsFolderCannotBeSynced) {
  {
    StateKeeper keeper(image_, kSize);
    ASSERT_TRUE(keeper.change([](SavedState& state) { state.lba_bytes = 4096; }));
    const auto remove = [](SavedState& state) { state.deleted = true; };
    bool holds = false;
    refuse_folder_syncs = true;
    EXPECT_FALSE(keeper.change(remove, &holds));
    EXPECT_TRUE(holds);
    EXPECT_EQ(keeper.state(), read_saved(image_)) << "what memory holds is what the next start reads";
    EXPECT_FALSE(keeper.change(remove)) << "it is still not sure to be on the disk";
    refuse_folder_syncs = false;
    EXPECT_TRUE(keeper.change(remove)) << "and is stored again";
    EXPECT_EQ(keeper.state(), read_saved(image_));
    const std::uint64_t generation = keeper.state().generation;
    EXPECT_TRUE(keeper.change(remove));
    EXPECT_EQ(keeper.state().generation, generation);
    std::filesystem::create_directories(state_path() + ".new/x");
    EXPECT_FALSE(keeper.change([](SavedState& state) { state.deleted = false; }, &holds));
    EXPECT_FALSE(holds) << "this one has no place";
    EXPECT_TRUE(keeper.state().deleted);
  }
  EXPECT_TRUE(StateKeeper(image_, kSize).loaded()->deleted);
}

// One image has one state, by whatever name it is served.
TEST_F(SavedStateTest, AnImageThatIsNamedByALinkHasTheStateOfItsOwnName) {
  std::filesystem::create_directory(folder_ + "/there");
  std::filesystem::create_directory_symlink("there", folder_ + "/here");
  const std::string image = folder_ + "/there/image", by_folder = folder_ + "/here/image";
  open("file:" + image, kSize, 1, 1);
  std::filesystem::create_symlink("there/image", image_);
  std::uint32_t feature = 0;
  for (const std::string kind : {"file:", "direct:"}) {
    for (const std::string& name : {image_, by_folder, image}) {
      const auto media = open(kind + name, 0, 1, 1);
      EXPECT_EQ(media->describe(), kind + name) << "it is called what its operator calls it";
      EXPECT_EQ(media->saved()->state().features.size(), feature) << kind << name;
      EXPECT_TRUE(media->saved()->change([&](SavedState& state) { state.features.push_back({++feature, 0, 0}); }));
    }
  }
  EXPECT_TRUE(std::filesystem::exists(StateKeeper::path_of(image)));
  EXPECT_FALSE(std::filesystem::exists(state_path()));
  EXPECT_EQ(open("cow:" + image_, 0, 1, 1)->found()->lba_bytes, 512u);
  // What an earlier version saved beside the link is not passed over.
  put(encode(some_state()));
  for (const std::string kind : {"file:", "direct:", "cow:"}) {
    try {
      open(kind + image_, 0, 1, 1);
      ADD_FAILURE() << kind << " opened";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("move it to "), std::string::npos) << error.what();
    }
  }
  EXPECT_NO_THROW(open("file:" + image, 0, 1, 1)) << "by its own name it has one state";
}

}  // namespace
}  // namespace flashmob::media
