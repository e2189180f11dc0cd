#include "media/window_media.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

namespace flashmob::media {
namespace {

constexpr std::uint64_t kWhole = 1 << 20, kFirst = 128 << 10, kSize = 256 << 10;
constexpr auto kCanary = std::byte{0xA5};

// A whole of canaries, and a window in it.
struct Rig {
  std::unique_ptr<Media> whole = open("memory", kWhole, 1, 0);
  std::unique_ptr<WindowMedia> window;

  explicit Rig(bool writable = true) {
    std::fill_n(whole->base(), kWhole, kCanary);
    window = std::make_unique<WindowMedia>(*whole, kFirst, kSize, writable);
  }
  // Bytes outside the window that are no canaries any more.
  std::uint64_t hurt() const {
    const auto bad = [](std::byte byte) { return byte != kCanary; };
    return static_cast<std::uint64_t>(std::count_if(whole->base(), whole->base() + kFirst, bad) +
                                      std::count_if(whole->base() + kFirst + kSize, whole->base() + kWhole, bad));
  }
};

TEST(WindowMedia, ReadsAndWritesAreTheWindows) {
  Rig rig;
  EXPECT_EQ(rig.window->size_bytes(), kSize);
  EXPECT_EQ(rig.window->base(), rig.whole->base() + kFirst);
  const std::vector<std::byte> all(kSize, std::byte{1});
  ASSERT_TRUE(rig.window->write(0, all));
  std::vector<std::byte> back(kSize);
  ASSERT_TRUE(rig.window->read(0, back));
  EXPECT_EQ(back, all);
  EXPECT_EQ(rig.hurt(), 0u);
}

TEST(WindowMedia, WhatIsGivenBackIsTheWindows) {
  Rig rig;
  ASSERT_TRUE(rig.window->deallocate(0, kSize));
  EXPECT_TRUE(std::all_of(rig.whole->base() + kFirst, rig.whole->base() + kFirst + kSize,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  ASSERT_TRUE(rig.window->discard(kSize - 512, 512));
  ASSERT_TRUE(rig.window->sync(0, kSize));
  ASSERT_TRUE(rig.window->flush());
  EXPECT_EQ(rig.hurt(), 0u);
}

TEST(WindowMedia, OneThatMayNotBeWrittenIsNot) {
  Rig rig(false);
  const std::array<std::byte, 512> data{};
  EXPECT_FALSE(rig.window->writable());
  EXPECT_FALSE(rig.window->write(0, data));
  EXPECT_FALSE(rig.window->deallocate(0, 512));
  EXPECT_FALSE(rig.window->discard(0, 512));
  EXPECT_EQ(rig.whole->base()[kFirst], kCanary);
}

TEST(WindowMedia, SavesNothing) {
  Rig rig;
  EXPECT_EQ(rig.window->saved(), nullptr);
  EXPECT_FALSE(rig.window->found().has_value());
  EXPECT_EQ(rig.window->queue(0), nullptr);
}

TEST(WindowMediaDeathTest, NobodyReachesBeyondIt) {
  Rig rig;
  std::array<std::byte, 1024> data{};
  EXPECT_DEATH(rig.window->read(kSize - 512, data), "");
  EXPECT_DEATH(rig.window->write(~std::uint64_t{0} - 511, data), "");
  EXPECT_DEATH(WindowMedia(*rig.whole, kWhole - 512, 1024, true), "");
}

}  // namespace
}  // namespace flashmob::media
