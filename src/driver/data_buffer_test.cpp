#include "driver/data_buffer.h"

#include <gtest/gtest.h>

#include <vector>

#include "driver/fake_nvme.h"

namespace flashmob::driver {
namespace {

constexpr std::uint64_t kPage = PrpLists::kPageBytes;

// The pages that a command's PRPs name, walked as 4.1.1 says and independently of the writer.
std::vector<std::uint64_t> pages_of(const nvme::Sqe& sqe, std::uint64_t bytes) {
  std::vector<std::uint64_t> pages{sqe.prp1};
  const std::uint64_t total = (sqe.prp1 % kPage + bytes + kPage - 1) / kPage;
  if (total == 1) return pages;
  if (total == 2) {
    pages.push_back(sqe.prp2);
    return pages;
  }
  std::uint64_t left = total - 1;
  const auto* entry = reinterpret_cast<const std::uint64_t*>(sqe.prp2);
  while (left > 0) {
    if (reinterpret_cast<std::uint64_t>(entry) % kPage == kPage - 8 && left > 1) {
      EXPECT_EQ(*entry % kPage, 0u) << "a chain pointer must name a whole page";
      entry = reinterpret_cast<const std::uint64_t*>(*entry);
      continue;
    }
    pages.push_back(*entry++);
    --left;
  }
  return pages;
}

void expect_described(PrpLists& lists, std::uint32_t slot, std::uint64_t iova, std::uint64_t bytes) {
  nvme::Sqe sqe{};
  lists.describe(slot, sqe, iova, bytes);
  const auto pages = pages_of(sqe, bytes);
  ASSERT_EQ(pages[0], iova);
  for (std::size_t i = 1; i < pages.size(); ++i) {
    ASSERT_EQ(pages[i], (iova & ~(kPage - 1)) + i * kPage) << "offset " << iova % kPage << ", " << bytes << " bytes";
  }
}

TEST(PrpLists, OnePageNeedsNoSecondPointer) {
  FakeNvme device;
  PrpLists lists(device, 4, kPage);
  EXPECT_EQ(lists.list_bytes(), 0u);
  EXPECT_EQ(device.mappings(), 0u);
  nvme::Sqe sqe{};
  sqe.prp2 = 77;
  lists.describe(3, sqe, 0x10000, kPage);
  EXPECT_EQ(sqe.prp1, 0x10000u);
  EXPECT_EQ(sqe.prp2, 0u);
  lists.describe(3, sqe, 0x10004, kPage);
  EXPECT_EQ(sqe.prp1, 0x10004u);
  EXPECT_EQ(sqe.prp2, 0x11000u);
}

TEST(PrpLists, EveryShapeUpToSixteenPages) {
  FakeNvme device;
  PrpLists lists(device, 2, 16 * kPage);
  for (std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{512}, kPage - 4}) {
    for (std::uint64_t bytes = 4; bytes <= 16 * kPage; bytes += 508) {
      expect_described(lists, 1, 0x7000'0000 + offset, bytes);
    }
    expect_described(lists, 0, 0x7000'0000 + offset, 16 * kPage);
  }
}

TEST(PrpLists, ListsChainExactlyWhereAPageIsFull) {
  FakeNvme device;
  PrpLists lists(device, 1, 16 << 20);
  // 513 pages are PRP1 and 512 entries, the most that one list page holds; one more page needs a chain.
  for (std::uint64_t pages : {511, 512, 513, 514, 515, 1023, 1024, 1025, 4096}) {
    expect_described(lists, 0, 0x4000'0000, pages * kPage);
    if (pages < 4096) expect_described(lists, 0, 0x4000'0000 + kPage - 4, pages * kPage);
  }
  expect_described(lists, 0, 0x4000'0000 + kPage - 4, 16 << 20);
}

TEST(PrpLists, SlotsDoNotOverlapNorStraddlePages) {
  for (const std::uint64_t most : {3 * kPage, 32 * kPage, 255 * kPage, 512 * kPage, 513 * kPage}) {
    FakeNvme device;
    constexpr std::uint32_t kSlots = 37;
    PrpLists lists(device, kSlots, most);
    std::vector<nvme::Sqe> commands(kSlots);
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      const std::uint64_t iova = (std::uint64_t{slot} + 1) << 32;
      lists.describe(slot, commands[slot], iova + kPage - 4, most);
      if (lists.list_bytes() < kPage) {
        EXPECT_LE(commands[slot].prp2 % kPage + lists.list_bytes(), kPage);
      } else {
        EXPECT_EQ(commands[slot].prp2 % kPage, 0u);
      }
    }
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      const std::uint64_t first = (std::uint64_t{slot} + 1) << 32;
      const auto pages = pages_of(commands[slot], most);
      for (std::size_t i = 1; i < pages.size(); ++i) ASSERT_EQ(pages[i], first + i * kPage);
    }
  }
}

TEST(PrpListsDeathTest, TransfersBeyondTheLimitAreOurBug) {
  FakeNvme device;
  PrpLists lists(device, 1, 4 * kPage);
  nvme::Sqe sqe{};
  EXPECT_DEATH(lists.describe(0, sqe, 0, 8 * kPage), "check failed");
  EXPECT_DEATH(lists.describe(1, sqe, 0, 4 * kPage), "check failed");
}

}  // namespace
}  // namespace flashmob::driver
