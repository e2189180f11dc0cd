#include "media/window_media.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

namespace flashmob::media {
namespace {

constexpr std::uint64_t kWholeBytes = 1 << 20, kWindowFirst = 128 << 10, kWindowBytes = 256 << 10;
constexpr auto kWindowCanary = std::byte{0xA5};

// A whole of canaries, and a window in it.
struct WindowRig {
  std::unique_ptr<Media> whole = open("memory", kWholeBytes, 1, 0);
  std::unique_ptr<WindowMedia> window;

  explicit WindowRig(bool writable = true) {
    std::fill_n(whole->base(), kWholeBytes, kWindowCanary);
    window = std::make_unique<WindowMedia>(*whole, kWindowFirst, kWindowBytes, writable);
  }
  // Bytes outside the window that are no canaries any more.
  std::uint64_t hurt() const {
    const auto bad = [](std::byte byte) { return byte != kWindowCanary; };
    return static_cast<std::uint64_t>(
        std::count_if(whole->base(), whole->base() + kWindowFirst, bad) +
        std::count_if(whole->base() + kWindowFirst + kWindowBytes, whole->base() + kWholeBytes, bad));
  }
};

TEST(WindowMedia, ReadsAndWritesAreTheWindows) {
  WindowRig rig;
  EXPECT_EQ(rig.window->size_bytes(), kWindowBytes);
  EXPECT_EQ(rig.window->base(), rig.whole->base() + kWindowFirst);
  const std::vector<std::byte> all(kWindowBytes, std::byte{1});
  ASSERT_TRUE(rig.window->write(0, all));
  std::vector<std::byte> back(kWindowBytes);
  ASSERT_TRUE(rig.window->read(0, back));
  EXPECT_EQ(back, all);
  EXPECT_EQ(rig.hurt(), 0u);
}

TEST(WindowMedia, WhatIsGivenBackIsTheWindows) {
  WindowRig rig;
  ASSERT_TRUE(rig.window->deallocate(0, kWindowBytes));
  EXPECT_TRUE(std::all_of(rig.whole->base() + kWindowFirst, rig.whole->base() + kWindowFirst + kWindowBytes,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  ASSERT_TRUE(rig.window->discard(kWindowBytes - 512, 512));
  ASSERT_TRUE(rig.window->sync(0, kWindowBytes));
  ASSERT_TRUE(rig.window->flush());
  EXPECT_EQ(rig.hurt(), 0u);
}

TEST(WindowMedia, OneThatMayNotBeWrittenIsNot) {
  WindowRig rig(false);
  const std::array<std::byte, 512> data{};
  EXPECT_FALSE(rig.window->writable());
  EXPECT_FALSE(rig.window->write(0, data));
  EXPECT_FALSE(rig.window->deallocate(0, 512));
  EXPECT_FALSE(rig.window->discard(0, 512));
  EXPECT_EQ(rig.whole->base()[kWindowFirst], kWindowCanary);
}

TEST(WindowMedia, SavesNothing) {
  WindowRig rig;
  EXPECT_EQ(rig.window->saved(), nullptr);
  EXPECT_FALSE(rig.window->found().has_value());
  EXPECT_EQ(rig.window->queue(0), nullptr);
}

TEST(WindowMediaDeathTest, NobodyReachesBeyondIt) {
  WindowRig rig;
  std::array<std::byte, 1024> data{};
  EXPECT_DEATH(rig.window->read(kWindowBytes - 512, data), "");
  EXPECT_DEATH(rig.window->write(~std::uint64_t{0} - 511, data), "");
  EXPECT_DEATH(WindowMedia(*rig.whole, kWholeBytes - 512, 1024, true), "");
}

}  // namespace
}  // namespace flashmob::media
