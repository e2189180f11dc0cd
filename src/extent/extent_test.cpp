// Ranges with holes, names and links of a made-up volume, and bounds against what it says. File systems themselves are
// tested in tests/python/test_core_extents.py, against their own tools.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "extent/tree.h"
#include "extent/volume.h"

namespace flashmob::extent {
namespace {

class FakeVolume : public Volume {
 public:
  const char* name() const override { return "fake"; }
  std::uint64_t root() const override { return 1; }
  Node node(std::uint64_t inode) override {
    if (directories.contains(inode)) return {FileKind::directory, 0};
    if (links.contains(inode)) return {FileKind::link, 1};
    if (inode == 99) throw ExtentError("inode 99 has a wrong checksum");
    return {FileKind::file, inode * 10};
  }
  void list(std::uint64_t directory, const Visit& visit) override {
    count_directory_bytes(100, 1000);
    for (const auto& [name, inode] : directories.at(directory)) visit(name, inode);
    if (directory == broken) throw ExtentError("the rest is damaged");
  }
  std::vector<FileExtent> map(std::uint64_t, Range) override { return {}; }
  std::string link(std::uint64_t inode) override { return links.at(inode); }

  std::map<std::uint64_t, std::vector<std::pair<std::string, std::uint64_t>>> directories;
  std::map<std::uint64_t, std::string> links;
  std::uint64_t broken = 0;
};

std::string failure(const std::function<void()>& what) {
  try {
    what();
  } catch (const ExtentError& error) {
    return error.what();
  }
  return "";
}

FakeVolume small_volume() {
  FakeVolume volume;
  volume.directories[1] = {{"b", 2}, {"a", 10}, {"up", 20}, {"round", 21}, {"over", 22}};
  volume.directories[2] = {{"c", 11}, {"d", 3}};
  volume.directories[3] = {};
  volume.links = {{20, "/b/../b/c"}, {21, "round"}, {22, "a/x"}};
  return volume;
}

TEST(ExtentRanges, HolesFillWhatIsNotMapped) {
  const std::vector<FileExtent> mapped{{4096, 40960, 4096, 0}, {16384, 81920, 8192, kExtentUnwritten}};
  const std::vector<FileExtent> all = with_holes(mapped, 0, ~std::uint64_t{0}, 20000);
  const std::vector<FileExtent> expected{{0, 0, 4096, kExtentHole},
                                         {4096, 40960, 4096, 0},
                                         {8192, 0, 8192, kExtentHole},
                                         {16384, 81920, 20000 - 16384, kExtentUnwritten}};
  EXPECT_EQ(all, expected);
}

TEST(ExtentRanges, ARangeBeginsAndEndsWithinExtents) {
  const std::vector<FileExtent> mapped{{0, 1000, 100, 0}, {100, 5000, 100, 0}};
  const std::vector<FileExtent> expected{{50, 1050, 50, 0}, {100, 5000, 20, 0}};
  EXPECT_EQ(with_holes(mapped, 50, 70, 1000), expected);
  EXPECT_TRUE(with_holes(mapped, 1000, 70, 1000).empty());
  EXPECT_TRUE(with_holes(mapped, 50, 0, 1000).empty());
  const std::vector<FileExtent> hole{{500, 0, 500, kExtentHole}};
  EXPECT_EQ(with_holes(mapped, 500, ~std::uint64_t{0}, 1000), hole);
}

TEST(ExtentTree, EverythingIsListedInOrder) {
  FakeVolume volume = small_volume();
  Tree tree(volume, {});
  std::string paths;
  for (const FileInfo& file : tree.files()) paths += file.path + " ";
  EXPECT_EQ(paths, "/ /a /b /b/c /b/d /over /round /up ");
  EXPECT_TRUE(tree.problems().empty());
}

TEST(ExtentTree, LinksAreFollowedWithinTheRoot) {
  FakeVolume volume = small_volume();
  Tree tree(volume, {});
  EXPECT_EQ(tree.info(tree.look_up("up")).path, "/b/c");
  EXPECT_EQ(tree.info(tree.look_up("/../b//./c")).inode, 11u);
  EXPECT_EQ(tree.info(tree.look_up("/")).kind, FileKind::directory);
  EXPECT_EQ(failure([&] { tree.look_up("round"); }), "/round: is a link of a circle; name the file itself");
  EXPECT_EQ(failure([&] { tree.look_up("over"); }), "/a: is no directory, and cannot hold x");
  EXPECT_EQ(failure([&] { tree.look_up("b/\n"); }), "/b: holds no \\x0a; without a path, all that there is is listed");
}

TEST(ExtentTree, ACircleOfDirectoriesIsAProblemAndEnds) {
  FakeVolume volume = small_volume();
  volume.directories[3] = {{"again", 1}, {"twice", 2}};
  Tree tree(volume, {});
  EXPECT_EQ(tree.files().size(), 10u);
  ASSERT_EQ(tree.problems().size(), 2u);
  EXPECT_NE(tree.problems()[0].find("/b/d/again: this directory, inode 1, has another name"), std::string::npos);
}

TEST(ExtentTree, WhatIsDamagedIsLeftOutAndTold) {
  FakeVolume volume = small_volume();
  volume.directories[2].emplace_back("lost", 99);
  volume.broken = 2;
  Tree tree(volume, {});
  EXPECT_EQ(tree.files().size(), 8u);
  ASSERT_EQ(tree.problems().size(), 2u);
  EXPECT_EQ(tree.problems()[0], "/b: the rest is damaged");
  EXPECT_EQ(tree.problems()[1], "/b/lost: inode 99 has a wrong checksum");
  EXPECT_EQ(tree.info(tree.look_up("b/c")).inode, 11u);
  EXPECT_EQ(failure([&] { tree.look_up("b/e"); }), "/b: the rest is damaged");
}

TEST(ExtentTree, FilesAndDirectoriesHaveBounds) {
  FakeVolume volume = small_volume();
  Tree few(volume, {.max_files = 3});
  EXPECT_EQ(few.files().size(), 3u);
  ASSERT_EQ(few.problems().size(), 2u);
  EXPECT_NE(few.problems()[0].find("more than 3 files"), std::string::npos);
  FakeVolume deep;
  for (std::uint64_t inode = 1; inode < 100; ++inode) deep.directories[inode] = {{"d", inode + 1}};
  Tree tree(deep, {});
  // Each says that it holds 100 bytes, and the device has 1000.
  EXPECT_EQ(tree.files().size(), 11u);
  EXPECT_EQ(tree.problems().size(), 1u);
}

}  // namespace
}  // namespace flashmob::extent
