// The verifier: who may hold what, and which content is right after which history.
#include "load/verifier.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "media/block_content.h"
#include "media/page_access.h"

namespace flashmob::load {
namespace {

constexpr std::size_t kSector = media::kSectorBytes;
constexpr std::uint32_t kNsid = 1;
constexpr std::uint64_t kSeed = 42;
constexpr std::uint64_t kSectors = 64;

// A verifier beside the medium that it knows about.
struct Bed {
  explicit Bed(TruthSource source = TruthSource::content, bool with_writes = true, std::span<const std::byte> file = {})
      : medium(kSectors * kSector), verifier(source, medium.size(), kNsid, kSeed, with_writes, file) {
    media::fill_sectors(medium, 0, kNsid, 0, kSeed);
  }
  std::span<std::byte> at(std::uint64_t sector, std::uint32_t count) {
    return std::span(medium).subspan(sector * kSector, count * kSector);
  }
  void write(std::uint64_t sector, std::uint32_t count) {
    ASSERT_TRUE(verifier.hold_write(sector, count));
    verifier.fill_write(at(sector, count), sector);
    verifier.release_write(sector, count, true);
  }
  // Holds, checks and releases; false if it may not be held or the content is wrong.
  bool read_is_right(std::uint64_t sector, std::uint32_t count) {
    if (!verifier.hold_read(sector, count)) return false;
    const bool right = !verifier.check(at(sector, count), sector);
    verifier.release_read(sector, count);
    return right;
  }
  std::vector<std::byte> medium;
  Verifier verifier;
};

TEST(Verifier, FindsWrongContentWithoutWrites) {
  Bed bed(TruthSource::content, false);
  EXPECT_FALSE(bed.verifier.tracks_writes());
  EXPECT_EQ(bed.verifier.check(bed.at(0, kSectors), 0), std::nullopt);
  bed.medium[17 * kSector + 100] ^= std::byte{1};
  const auto mismatch = bed.verifier.check(bed.at(16, 4), 16);
  ASSERT_TRUE(mismatch);
  EXPECT_NE(mismatch->find("sector 17"), std::string::npos) << *mismatch;
  EXPECT_EQ(bed.verifier.check(bed.at(16, 1), 16), std::nullopt);
  EXPECT_TRUE(bed.verifier.check(bed.at(3, 1), 4)) << "misplaced data";
  // Nothing to exclude: everybody may hold anything.
  EXPECT_TRUE(bed.verifier.hold_write(0, 8));
  EXPECT_TRUE(bed.verifier.hold_read(0, 8));
  bed.verifier.hold_unverified(0, 8);
  bed.verifier.release_unverified(0, 8);
}

TEST(Verifier, WithoutATruthEverythingIsRight) {
  Bed bed(TruthSource::none);
  EXPECT_FALSE(bed.verifier.tracks_writes());
  bed.medium[0] ^= std::byte{1};
  EXPECT_EQ(bed.verifier.check(bed.at(0, 1), 0), std::nullopt);
}

TEST(Verifier, EachWriteIsANewGeneration) {
  Bed bed;
  EXPECT_TRUE(bed.read_is_right(0, 8));
  const std::vector<std::byte> before(bed.at(3, 1).begin(), bed.at(3, 1).end());
  bed.write(2, 4);
  EXPECT_TRUE(bed.read_is_right(0, 8));
  const std::vector<std::byte> first(bed.at(3, 1).begin(), bed.at(3, 1).end());
  bed.write(3, 1);
  EXPECT_TRUE(bed.read_is_right(0, 8));
  for (const auto& stale : {before, first}) {
    std::copy(stale.begin(), stale.end(), bed.at(3, 1).begin());
    ASSERT_TRUE(bed.verifier.hold_read(0, 8));
    const auto mismatch = bed.verifier.check(bed.at(0, 8), 0);
    bed.verifier.release_read(0, 8);
    ASSERT_TRUE(mismatch);
    EXPECT_NE(mismatch->find("sector 3"), std::string::npos) << *mismatch;
  }
}

TEST(Verifier, ReadersShareAndWritersExclude) {
  Bed bed;
  Verifier& v = bed.verifier;
  ASSERT_TRUE(v.hold_read(4, 4));
  ASSERT_TRUE(v.hold_read(6, 4));
  EXPECT_FALSE(v.hold_write(0, 5));
  EXPECT_TRUE(v.hold_write(0, 4));  // the failed attempt left nothing held
  EXPECT_FALSE(v.hold_read(3, 1));
  EXPECT_FALSE(v.hold_write(3, 1));
  EXPECT_FALSE(v.hold_read(3, 4));
  v.release_write(0, 4, true);
  v.release_read(4, 4);
  EXPECT_TRUE(v.hold_write(4, 2));
  EXPECT_FALSE(v.hold_write(6, 1)) << "the second reader still has it";
  v.release_read(6, 4);
  EXPECT_TRUE(v.hold_write(6, 1));
}

TEST(Verifier, AsManyReadersAsItCounts) {
  Bed bed;
  std::uint32_t held = 0;
  while (held < 5'000 && bed.verifier.hold_read(0, 1)) ++held;
  EXPECT_GE(held, 63u);
  EXPECT_LT(held, 5'000u);
  for (std::uint32_t i = 0; i < held; ++i) bed.verifier.release_read(0, 1);
  EXPECT_TRUE(bed.verifier.hold_write(0, 1)) << "counting to the end must not stick";
}

TEST(Verifier, AFailedWriteIsUnknownUntilTheNext) {
  Bed bed;
  ASSERT_TRUE(bed.verifier.hold_write(8, 2));
  bed.verifier.fill_write(bed.at(8, 1), 8);  // only half of it arrived
  bed.verifier.release_write(8, 2, false);
  EXPECT_FALSE(bed.verifier.hold_read(7, 2));
  EXPECT_TRUE(bed.read_is_right(7, 1));
  bed.write(8, 2);
  EXPECT_TRUE(bed.read_is_right(7, 4));
}

TEST(Verifier, AnUnverifiedWriteKeepsEverybodyAwayUntilItIsOver) {
  Bed bed;
  Verifier& v = bed.verifier;
  v.hold_unverified(4, 2);
  EXPECT_FALSE(v.hold_read(5, 1));
  EXPECT_FALSE(v.hold_write(5, 1)) << "its data could land after ours";
  v.release_unverified(4, 2);
  EXPECT_FALSE(v.hold_read(5, 1)) << "nobody knows what it left";
  bed.write(5, 1);
  EXPECT_TRUE(bed.read_is_right(5, 1));
  EXPECT_FALSE(v.hold_read(4, 1));
}

TEST(Verifier, AnUnverifiedWriteSpoilsTheHeldOneItMeets) {
  for (const bool over_first : {false, true}) {
    Bed bed;
    Verifier& v = bed.verifier;
    ASSERT_TRUE(v.hold_write(0, 2));
    v.hold_unverified(1, 1);
    if (over_first) v.release_unverified(1, 1);
    v.fill_write(bed.at(0, 2), 0);
    v.release_write(0, 2, true);
    if (!over_first) {
      EXPECT_FALSE(v.hold_write(1, 1));
      v.release_unverified(1, 1);
    }
    EXPECT_TRUE(bed.read_is_right(0, 1));
    EXPECT_FALSE(v.hold_read(1, 1));
    bed.write(1, 1);
    EXPECT_TRUE(bed.read_is_right(0, 2));
  }
}

TEST(Verifier, AnUnverifiedWriteExcusesReadsInFlight) {
  Bed bed;
  ASSERT_TRUE(bed.verifier.hold_read(0, 2));
  bed.verifier.hold_unverified(1, 1);
  bed.medium[kSector] ^= std::byte{1};
  EXPECT_EQ(bed.verifier.check(bed.at(0, 2), 0), std::nullopt);
  bed.medium[0] ^= std::byte{1};
  EXPECT_TRUE(bed.verifier.check(bed.at(0, 2), 0)) << "the first sector is still known";
  bed.verifier.release_read(0, 2);
  EXPECT_FALSE(bed.verifier.hold_write(1, 1));
}

TEST(Verifier, TooManyUnverifiedWritesAreNeverTrustedAgain) {
  Bed bed;
  for (int i = 0; i < 5'000; ++i) bed.verifier.hold_unverified(0, 1);
  for (int i = 0; i < 5'000; ++i) bed.verifier.release_unverified(0, 1);
  EXPECT_FALSE(bed.verifier.hold_write(0, 1));
  EXPECT_FALSE(bed.verifier.hold_read(0, 1));
  EXPECT_TRUE(bed.read_is_right(1, 1));
}

TEST(Verifier, AFileIsComparedToItsLastByteAndReadsAsZeroesBeyond) {
  std::vector<std::byte> file(kSector + 188);
  Rng rng(1);
  for (std::byte& byte : file) byte = static_cast<std::byte>(rng.next() | 1);
  for (const bool with_writes : {false, true}) {
    Bed bed(TruthSource::file, with_writes, file);
    std::fill(bed.medium.begin(), bed.medium.end(), std::byte{0});
    std::copy(file.begin(), file.end(), bed.medium.begin());
    EXPECT_EQ(bed.verifier.check(bed.at(0, 4), 0), std::nullopt);
    for (const std::size_t wrong : {std::size_t{0}, file.size() - 1, file.size(), 2 * kSector - 1, 3 * kSector}) {
      bed.medium[wrong] ^= std::byte{2};
      const auto mismatch = bed.verifier.check(bed.at(0, 4), 0);
      ASSERT_TRUE(mismatch) << wrong;
      EXPECT_NE(mismatch->find("sector " + std::to_string(wrong / kSector)), std::string::npos) << *mismatch;
      bed.medium[wrong] ^= std::byte{2};
    }
  }
}

TEST(Verifier, AFileThatWasCutShortIsAMismatchThatSaysSo) {
  constexpr std::size_t kPage = 4096;
  const int fd = memfd_create("truth", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 2 * kPage), 0);
  void* const view = mmap(nullptr, 2 * kPage, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(view, MAP_FAILED);
  {
    const media::FilePages pages(view, 2 * kPage);
    Bed bed(TruthSource::file, false, {static_cast<const std::byte*>(view), 2 * kPage});
    std::fill(bed.medium.begin(), bed.medium.end(), std::byte{0});
    ASSERT_EQ(ftruncate(fd, kPage), 0);
    EXPECT_EQ(bed.verifier.check(bed.at(0, 1), 0), std::nullopt);
    const auto mismatch = bed.verifier.check(bed.at(0, 1), kPage / kSector);
    ASSERT_TRUE(mismatch);
    EXPECT_NE(mismatch->find("cut short"), std::string::npos) << *mismatch;
  }
  munmap(view, 2 * kPage);
  close(fd);
}

TEST(Verifier, AWrittenSectorOfAFileNeverBecomesTheFileAgain) {
  const std::vector<std::byte> file(4 * kSector, std::byte{7});
  Bed bed(TruthSource::file, true, file);
  std::copy(file.begin(), file.end(), bed.medium.begin());
  bed.write(1, 1);
  EXPECT_TRUE(bed.read_is_right(0, 4));
  // Generations are finite; coming round they must not meet the file's, which is number 0.
  const std::uint32_t turns = 1u << 20;
  for (std::uint32_t i = 2; i < turns; ++i) {
    bed.verifier.hold_write(1, 1);
    bed.verifier.release_write(1, 1, true);
  }
  for (int i = 0; i < 3; ++i) {
    bed.write(1, 1);
    ASSERT_TRUE(bed.read_is_right(0, 4)) << i;
    EXPECT_NE(std::memcmp(bed.at(1, 1).data(), file.data(), kSector), 0) << i;
  }
}

TEST(Verifier, ThreadsNeverSeeAWrongAnswer) {
  // Plain memory as the medium: the holds alone keep readers and writers apart, and ThreadSanitizer watches.
  Bed bed;
  std::atomic<int> wrong{0};
  std::atomic<int> verified{0};
  const auto work = [&](std::uint64_t seed) {
    Rng rng(seed);
    for (int i = 0; i < 20'000; ++i) {
      const auto count = static_cast<std::uint32_t>(1 + rng.below(4));
      const std::uint64_t sector = rng.below(kSectors - count + 1);
      if (rng.below(3) == 0) {
        if (!bed.verifier.hold_write(sector, count)) continue;
        bed.verifier.fill_write(bed.at(sector, count), sector);
        bed.verifier.release_write(sector, count, true);
      } else if (bed.verifier.hold_read(sector, count)) {
        wrong += bed.verifier.check(bed.at(sector, count), sector).has_value();
        ++verified;
        bed.verifier.release_read(sector, count);
      }
    }
  };
  std::thread other(work, 1);
  work(2);
  other.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(verified, 1'000);
  EXPECT_TRUE(bed.read_is_right(0, kSectors));
}

}  // namespace
}  // namespace flashmob::load
