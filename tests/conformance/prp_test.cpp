// PRP entries and lists (Base 2.0c, 4.1.1): offsets, lists, chains, and everything a host can get wrong.
#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

constexpr std::uint64_t kPage = 4096;

class PrpTest : public DeviceTest {
 protected:
  PrpTest() {
    data_ = noise(128 << 10, 1);
    EXPECT_EQ(write(kNs512, 0, data_), Status::success);
    pages_.fill(std::byte{0xEE});
  }
  // Reads `bytes` bytes from block 0 on with the PRPs given.
  Status read_with(std::uint64_t bytes, std::uint64_t prp1, std::uint64_t prp2 = 0) {
    Sqe sqe = make(NvmOpcode::read, kNs512, 0, static_cast<std::uint32_t>(bytes / 512));
    sqe.prp1 = prp1;
    sqe.prp2 = prp2;
    return io(sqe);
  }
  std::uint64_t page(std::uint64_t index, std::uint64_t offset = 0) const {
    return pages_.iova() + index * kPage + offset;
  }
  bool holds(std::uint64_t page_index, std::uint64_t offset, std::uint64_t data_at, std::uint64_t bytes) const {
    return std::memcmp(pages_.data() + page_index * kPage + offset, data_.data() + data_at, bytes) == 0;
  }
  bool untouched(std::uint64_t from, std::uint64_t bytes) const {
    for (std::uint64_t i = 0; i < bytes; ++i)
      if (pages_.data()[from + i] != std::byte{0xEE}) return false;
    return true;
  }
  std::uint64_t* list(std::uint64_t page_index) {
    return reinterpret_cast<std::uint64_t*>(lists_.data() + page_index * kPage);
  }
  std::uint64_t list_iova(std::uint64_t page_index, std::uint64_t offset = 0) const {
    return lists_.iova() + page_index * kPage + offset;
  }

  std::vector<std::byte> data_;
  Buffer pages_ = buffer(256 << 10);
  Buffer lists_ = buffer(64 << 10);
};

TEST_F(PrpTest, OffsetInTheFirstPage) {
  for (const std::uint64_t offset : {0u, 4u, 512u, 1000u, 3584u}) {
    pages_.fill(std::byte{0xEE});
    ASSERT_EQ(read_with(512, page(1, offset)), Status::success) << offset;
    EXPECT_TRUE(holds(1, offset, 0, 512));
    EXPECT_TRUE(untouched(0, kPage + offset));
    EXPECT_TRUE(untouched(kPage + offset + 512, 8 * kPage));
  }
}

TEST_F(PrpTest, SecondEntryTakesTheRest) {
  ASSERT_EQ(read_with(4096, page(1, 1024), page(9)), Status::success);
  EXPECT_TRUE(holds(1, 1024, 0, 3072));
  EXPECT_TRUE(holds(9, 0, 3072, 1024));
  EXPECT_TRUE(untouched(9 * kPage + 1024, kPage));
}

TEST_F(PrpTest, TwoWholePagesNeedNoList) {
  ASSERT_EQ(read_with(8192, page(7), page(3)), Status::success);
  EXPECT_TRUE(holds(7, 0, 0, kPage));
  EXPECT_TRUE(holds(3, 0, kPage, kPage));
}

TEST_F(PrpTest, ListsScatterPages) {
  // Pages in reverse, a list that begins in the middle of its page.
  constexpr std::uint64_t kPages = 16;
  for (std::uint64_t i = 0; i + 1 < kPages; ++i) list(0)[100 + i] = page(kPages - 2 - i);
  ASSERT_EQ(read_with(kPages * kPage, page(30), list_iova(0, 800)), Status::success);
  EXPECT_TRUE(holds(30, 0, 0, kPage));
  for (std::uint64_t i = 0; i + 1 < kPages; ++i) EXPECT_TRUE(holds(kPages - 2 - i, 0, (i + 1) * kPage, kPage)) << i;
}

TEST_F(PrpTest, ListsChainAtTheirPagesEnd) {
  // The list starts with room for three entries: two pages and the link.
  constexpr std::uint64_t kPages = 10;
  list(0)[509] = page(11);
  list(0)[510] = page(12);
  list(0)[511] = list_iova(5);
  for (std::uint64_t i = 0; i < kPages - 3; ++i) list(5)[i] = page(13 + i);
  ASSERT_EQ(read_with(kPages * kPage, page(10), list_iova(0, 509 * 8)), Status::success);
  for (std::uint64_t i = 0; i < kPages; ++i) EXPECT_TRUE(holds(10 + i, 0, i * kPage, kPage)) << i;
}

TEST_F(PrpTest, TheLastSlotOfAPageIsNoLinkWhenItIsTheLastPage) {
  // Three entries in the list page's last three slots describe exactly the pages that are left.
  list(0)[509] = page(11);
  list(0)[510] = page(12);
  list(0)[511] = page(13);
  ASSERT_EQ(read_with(4 * kPage, page(10), list_iova(0, 509 * 8)), Status::success);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(holds(10 + i, 0, i * kPage, kPage)) << i;
}

TEST_F(PrpTest, ALinkAlone) {
  // A list that starts at its page's last slot, with more to come: that slot is a link.
  list(0)[511] = list_iova(1);
  for (std::uint64_t i = 0; i < 3; ++i) list(1)[i] = page(20 + i);
  ASSERT_EQ(read_with(4 * kPage, page(10), list_iova(0, 511 * 8)), Status::success);
  EXPECT_TRUE(holds(22, 0, 3 * kPage, kPage));
}

TEST_F(PrpTest, WritesGatherTheSameWay) {
  constexpr std::uint64_t kPages = 5;
  for (std::uint64_t i = 0; i + 1 < kPages; ++i) list(0)[i] = page(20 + i);
  const auto fresh = noise(kPages * kPage, 9);
  pages_.store(std::span(fresh).first(kPage), 3 * kPage);
  pages_.store(std::span(fresh).subspan(kPage), 20 * kPage);
  Sqe sqe = make(NvmOpcode::write, kNs4096, 50, kPages);
  sqe.prp1 = page(3);
  sqe.prp2 = list_iova(0);
  ASSERT_EQ(io(sqe), Status::success);
  EXPECT_TRUE(read(kNs4096, 50, kPages) == fresh);
}

TEST_F(PrpTest, OffsetsThatAreNotAllowed) {
  EXPECT_EQ(read_with(512, page(0, 2)), Status::prp_offset_invalid) << "not a dword";
  EXPECT_EQ(read_with(8192, page(0), page(1, 512)), Status::prp_offset_invalid) << "PRP2 has no offset";
  list(0)[0] = page(1);
  list(0)[1] = page(2, 8);
  EXPECT_EQ(read_with(3 * kPage, page(0), list_iova(0)), Status::prp_offset_invalid) << "nor have list entries";
  EXPECT_EQ(read_with(3 * kPage, page(0), list_iova(0, 4)), Status::prp_offset_invalid) << "lists hold quadwords";
}

TEST_F(PrpTest, AnOffsetInALinkIsNotAllowed) {
  list(0)[511] = list_iova(1, 8);
  EXPECT_EQ(read_with(4 * kPage, page(10), list_iova(0, 511 * 8)), Status::prp_offset_invalid);
}

TEST_F(PrpTest, NothingIsTransferredBeforeTheWholeListWasFoundRight) {
  list(0)[0] = page(1);
  list(0)[1] = 0x123000;  // not mapped
  EXPECT_EQ(read_with(3 * kPage, page(0), list_iova(0)), Status::data_transfer_error);
  EXPECT_TRUE(untouched(0, pages_.size()));
}

TEST_F(PrpTest, UnmappedLists) {
  EXPECT_EQ(read_with(3 * kPage, page(0), 0x123000), Status::data_transfer_error);
  list(0)[511] = 0x123000;
  EXPECT_EQ(read_with(4 * kPage, page(10), list_iova(0, 511 * 8)), Status::data_transfer_error);
}

TEST_F(PrpTest, AddressesThatWrap) {
  EXPECT_EQ(read_with(512, ~std::uint64_t{0} - 3), Status::data_transfer_error);
  EXPECT_EQ(read_with(8192, ~std::uint64_t{0} - 4095, ~std::uint64_t{0} - 4095), Status::data_transfer_error);
}

TEST_F(PrpTest, AListThatPointsToItselfEnds) {
  // Every slot names the list's own page: the data lands there, the host ruins nobody but itself.
  for (std::uint64_t i = 0; i < 512; ++i) list(3)[i] = list_iova(3);
  Sqe sqe = make(NvmOpcode::write, kNs512, 4096, 256);
  sqe.prp1 = page(0);
  sqe.prp2 = list_iova(3, 511 * 8);
  EXPECT_EQ(io(sqe), Status::success);
  EXPECT_FALSE(driver().fatal());
}

}  // namespace
}  // namespace flashmob::conformance
