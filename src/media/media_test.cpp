#include "media/media.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/platform.h"
#include "base/rng.h"
#include "media/block_content.h"

// In the place of the library's: what is synced, for the tests to see.
static std::atomic<std::uint64_t> range_synced_bytes{0};
static std::atomic<int> whole_syncs{0};
extern "C" int msync(void* start, std::size_t bytes, int flags) noexcept(false) {
  range_synced_bytes += bytes;
  return static_cast<int>(::syscall(SYS_msync, start, bytes, flags));
}
extern "C" int fdatasync(int fd) {
  ++whole_syncs;
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

namespace flashmob::media {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

std::vector<std::byte> bytes_of(std::uint64_t count, unsigned value) {
  return std::vector<std::byte>(count, std::byte(value));
}

std::vector<std::byte> read_back(Media& media, std::uint64_t offset, std::uint64_t count) {
  std::vector<std::byte> out(count, std::byte{0xEE});
  EXPECT_TRUE(media.read(offset, out));
  return out;
}

bool all_equal(const std::vector<std::byte>& data, unsigned value) { return data == bytes_of(data.size(), value); }

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t disk_bytes(const std::string& path) {
  struct stat info{};
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

// ThreadSanitizer leaves a program little address space and keeps shadow memory for every byte it reads, so figures of
// memory use mean nothing under it.
#define SKIP_MEMORY_FIGURES_UNDER_TSAN() \
  if (FLASHMOB_TSAN) GTEST_SKIP() << "memory use cannot be measured under ThreadSanitizer"

// Each test has a directory of its own, gone afterwards.
class MediaTest : public testing::Test {
 protected:
  MediaTest() {
    std::string name = (std::filesystem::temp_directory_path() / "flashmob_media_XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~MediaTest() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string make_file(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  static std::string content_of(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Opening must fail with a message that contains every one of `parts`.
  static void expect_error(const std::string& spec, std::uint64_t size_bytes, const std::vector<std::string>& parts) {
    try {
      open(spec, size_bytes, 1, 1);
      ADD_FAILURE() << "opened " << spec << " with " << size_bytes;
    } catch (const ConfigError& error) {
      for (const std::string& part : parts) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << "\nlacks: " << part;
      }
    }
  }

  std::string directory_;
};

TEST_F(MediaTest, UnknownSpecsAreRejected) {
  for (const char* spec : {"", "ram", "memory:", "memory:x", "generated:1", "file", "file:", "cow:", "Memory", ":"}) {
    expect_error(spec, kMiB, {"file:PATH"});
  }
  expect_error(std::string("file:") + path("a") + std::string("\0b", 2), kMiB, {"zero byte"});
  EXPECT_FALSE(std::filesystem::exists(path("a")));
}

TEST_F(MediaTest, ImpossibleSizesAreRejected) {
  for (const char* spec : {"memory", "generated"}) {
    expect_error(spec, 0, {"size_bytes"});
    expect_error(spec, 513, {"multiple of 512"});
    expect_error(spec, (std::uint64_t{64} << 40) + 512, {"64 TiB"});
  }
  expect_error("file:" + path("new"), 1000, {"multiple of 512"});
  EXPECT_FALSE(std::filesystem::exists(path("new")));
}

TEST_F(MediaTest, UnusablePathsAreRejected) {
  for (const std::string kind : {"file:", "cow:"}) {
    expect_error(kind + directory_, kMiB, {directory_, "directory"});
    expect_error(kind + path("no/such/dir"), kMiB, {path("no/such/dir")});
    expect_error(kind + "/dev/null", kMiB, {"/dev/null", "regular file"});
    make_file("empty", "");
    expect_error(kind + path("empty"), 0, {"is empty"});
    make_file("small", "abc");
    expect_error(kind + path("small"), 8192, {"has 3 bytes", "size_bytes = 0"});
    EXPECT_EQ(content_of(path("small")), "abc");
  }
  expect_error("file:" + path("missing"), 0, {"does not exist", "--size"});
  expect_error("cow:" + path("missing"), 0, {path("missing")});
  EXPECT_FALSE(std::filesystem::exists(path("missing")));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  expect_error("cow:" + path("fifo"), kMiB, {"regular file"});
  expect_error("file:" + path("fifo"), kMiB, {"regular file"});
}

TEST_F(MediaTest, FullDiskIsAnErrorAtTheStartAndLeavesNothingBehind) {
  expect_error("file:" + path("huge"), std::uint64_t{60} << 40, {path("huge"), "reserved on disk", "--size"});
  EXPECT_FALSE(std::filesystem::exists(path("huge")));
}

// What every writable kind must do, on a namespace of odd size (no multiple of the page).
void exercise_writable(Media& media) {
  const std::uint64_t size = media.size_bytes();
  ASSERT_TRUE(media.writable());
  ASSERT_NE(media.base(), nullptr);
  const auto block = bytes_of(512, 0x5A);
  for (const std::uint64_t offset : {std::uint64_t{0}, size / 2 / 512 * 512, size - 512}) {
    ASSERT_TRUE(media.write(offset, block));
    EXPECT_EQ(read_back(media, offset, 512), block);
    EXPECT_EQ(std::memcmp(media.base() + offset, block.data(), 512), 0);
  }
  EXPECT_TRUE(media.read(size, {}));
  EXPECT_TRUE(media.write(size, {}));
  EXPECT_TRUE(media.deallocate(size, 0));
  EXPECT_TRUE(media.flush());

  // Deallocation of every kind of range: within a page, across pages, big with ragged edges, everything.
  const std::uint64_t ranges[][2] = {{512, 512},           {4096, 4096},
                                     {3584, 1024},         {512, 200 * 1024},
                                     {4096, 128 * 1024},   {kMiB + 512, 5 * kMiB - 1024},
                                     {2 * kMiB, 4 * kMiB}, {size - 4096, 4096},
                                     {size - 512, 512},    {0, size}};
  for (const auto& [offset, count] : ranges) {
    std::memset(media.base(), 0xC3, size);
    ASSERT_TRUE(media.deallocate(offset, count));
    EXPECT_TRUE(all_equal(read_back(media, offset, count), 0)) << offset << " + " << count;
    EXPECT_TRUE(all_equal(read_back(media, 0, offset), 0xC3)) << offset << " + " << count;
    EXPECT_TRUE(all_equal(read_back(media, offset + count, size - offset - count), 0xC3)) << offset << " + " << count;
    ASSERT_TRUE(media.write(offset, bytes_of(512, 0x77)));
    EXPECT_TRUE(all_equal(read_back(media, offset, 512), 0x77));
  }
}

constexpr std::uint64_t kOddSize = 8 * kMiB + 512;

TEST_F(MediaTest, MemoryReadsWritesAndDeallocates) {
  const auto media = open("memory", kOddSize, 1, 1);
  EXPECT_EQ(media->size_bytes(), kOddSize);
  EXPECT_EQ(media->describe(), "memory");
  EXPECT_TRUE(all_equal(read_back(*media, 0, kOddSize), 0));
  exercise_writable(*media);
}

TEST_F(MediaTest, FileReadsWritesAndDeallocates) {
  const auto media = open("file:" + path("f"), kOddSize, 1, 1);
  EXPECT_EQ(media->describe(), "file:" + path("f"));
  EXPECT_TRUE(all_equal(read_back(*media, 0, kOddSize), 0));
  exercise_writable(*media);
}

TEST_F(MediaTest, CowReadsWritesAndDeallocates) {
  const std::string content(kOddSize, 'x');
  make_file("f", content);
  {
    const auto media = open("cow:" + path("f"), kOddSize, 1, 1);
    EXPECT_EQ(media->describe(), "cow:" + path("f"));
    EXPECT_TRUE(all_equal(read_back(*media, 0, kOddSize), 'x'));
    exercise_writable(*media);
  }
  EXPECT_TRUE(content_of(path("f")) == content);
}

TEST_F(MediaTest, SmallestNamespaceIsOneSector) {
  for (const std::string& spec : {std::string("memory"), "file:" + path("tiny")}) {
    const auto media = open(spec, 512, 1, 1);
    ASSERT_TRUE(media->write(0, bytes_of(512, 1)));
    ASSERT_TRUE(media->deallocate(0, 512));
    EXPECT_TRUE(all_equal(read_back(*media, 0, 512), 0));
  }
  EXPECT_EQ(std::filesystem::file_size(path("tiny")), 512u);
}

TEST_F(MediaTest, SparseMemoryCostsOnlyWhatIsWritten) {
  SKIP_MEMORY_FIGURES_UNDER_TSAN();
  const std::uint64_t before = resident_bytes();
  const auto media = open("memory", std::uint64_t{16} << 40, 1, 1);
  Rng rng(5);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(media->write(rng.below(media->size_bytes() / 512) * 512, bytes_of(512, 9)));
  }
  EXPECT_LT(resident_bytes(), before + 16 * kMiB);
  // Trimming terabytes that were never written must neither take memory nor time.
  ASSERT_TRUE(media->deallocate(512, media->size_bytes() - 1024));
  EXPECT_LT(resident_bytes(), before + 16 * kMiB);
  EXPECT_TRUE(all_equal(read_back(*media, media->size_bytes() - 512, 512), 0));
}

TEST_F(MediaTest, DeallocatedMemoryIsGivenBack) {
  SKIP_MEMORY_FIGURES_UNDER_TSAN();
  const auto media = open("memory", 64 * kMiB, 1, 1);
  std::memset(media->base(), 1, 64 * kMiB);
  const std::uint64_t full = resident_bytes();
  ASSERT_TRUE(media->deallocate(0, 64 * kMiB));
  EXPECT_LT(resident_bytes() + 60 * kMiB, full);
}

TEST_F(MediaTest, DeallocatingUntouchedMemoryAllocatesNothing) {
  SKIP_MEMORY_FIGURES_UNDER_TSAN();
  const auto media = open("memory", 64 * kMiB, 1, 1);
  const std::uint64_t before = resident_bytes();
  for (std::uint64_t offset = 0; offset < 64 * kMiB; offset += kMiB) ASSERT_TRUE(media->deallocate(offset, kMiB));
  EXPECT_LT(resident_bytes(), before + 8 * kMiB);
}

TEST_F(MediaTest, FilePersistsOverCloseAndOpen) {
  const std::string spec = "file:" + path("disk");
  {
    const auto media = open(spec, 4 * kMiB, 1, 1);
    ASSERT_TRUE(media->write(kMiB, bytes_of(4096, 0x42)));
    ASSERT_TRUE(media->flush());
  }
  {
    const auto media = open(spec, 0, 1, 1);
    EXPECT_EQ(media->size_bytes(), 4 * kMiB);
    EXPECT_TRUE(all_equal(read_back(*media, kMiB, 4096), 0x42));
    ASSERT_TRUE(media->deallocate(kMiB, 512));
  }
  // A namespace smaller than its file sees, and touches, only the file's beginning.
  {
    const auto media = open(spec, kMiB + 1024, 1, 1);
    EXPECT_TRUE(all_equal(read_back(*media, kMiB, 512), 0));
    EXPECT_TRUE(all_equal(read_back(*media, kMiB + 512, 512), 0x42));
    ASSERT_TRUE(media->deallocate(0, media->size_bytes()));
  }
  const std::string content = content_of(path("disk"));
  ASSERT_EQ(content.size(), 4 * kMiB);
  EXPECT_EQ(content[kMiB + 1023], 0);
  EXPECT_EQ(content[kMiB + 1024], 0x42);
}

TEST_F(MediaTest, FileIsReservedAndPunched) {
  const auto media = open("file:" + path("disk"), 8 * kMiB, 1, 1);
  EXPECT_GE(disk_bytes(path("disk")), 8 * kMiB);
  std::memset(media->base(), 7, 8 * kMiB);
  ASSERT_TRUE(media->flush());
  ASSERT_TRUE(media->deallocate(kMiB, 4 * kMiB));
  EXPECT_LE(disk_bytes(path("disk")), 5 * kMiB);
  EXPECT_EQ(std::filesystem::file_size(path("disk")), 8 * kMiB);
}

// What others do to the file costs the commands that meet it, and heals when the file does.
TEST_F(MediaTest, AFileCutShortIsAnErrorOfTheAccessAlone) {
  for (const std::string kind : {"file:", "cow:"}) {
    make_file("disk", std::string(4 * kMiB, 'x'));
    const auto media = open(kind + path("disk"), 0, 1, 1);
    EXPECT_TRUE(media->pages_may_go());
    std::filesystem::resize_file(path("disk"), kMiB);
    std::vector<std::byte> data(8192);
    EXPECT_FALSE(media->read(2 * kMiB, data));
    EXPECT_FALSE(media->read(kMiB - 4096, data)) << "half of it is there";
    EXPECT_FALSE(media->write(kMiB, data));
    EXPECT_FALSE(media->deallocate(kMiB, 4096));
    EXPECT_FALSE(media->is_disk_full());
    EXPECT_TRUE(media->read(kMiB - 8192, data));
    EXPECT_TRUE(media->write(0, data));
    std::filesystem::resize_file(path("disk"), 4 * kMiB);
    EXPECT_TRUE(media->write(kMiB, data));
    EXPECT_TRUE(all_equal(read_back(*media, 2 * kMiB, 4096), 0));
  }
}

// A GPU would end the process where a page is gone.
TEST_F(MediaTest, AViewThatWasTakenInDoesNotKnowItsFile) {
  make_file("disk", std::string(3 * kMiB, 'x') + std::string(3 * kMiB + 512, '\0'));
  const auto media = open("cow:" + path("disk"), 0, 1, 1);
  ASSERT_TRUE(media->write(kMiB, bytes_of(4096, 7)));
  const std::byte* const base = media->base();
  media->take_in();
  EXPECT_EQ(media->base(), base);
  EXPECT_FALSE(media->pages_may_go());
  std::filesystem::resize_file(path("disk"), 4096);
  EXPECT_EQ(read_back(*media, kMiB, 4096), bytes_of(4096, 7));
  EXPECT_TRUE(all_equal(read_back(*media, 2 * kMiB, kMiB), 'x'));
  EXPECT_TRUE(all_equal(read_back(*media, 3 * kMiB, 3 * kMiB), 0));
  EXPECT_TRUE(media->write(5 * kMiB, bytes_of(4096, 9)));
  EXPECT_TRUE(media->deallocate(0, 4 * kMiB));
  EXPECT_TRUE(all_equal(read_back(*media, 0, 4 * kMiB), 0));
}

TEST_F(MediaTest, AViewThatCannotBeTakenInIsAnError) {
  make_file("disk", std::string(4 * kMiB, 'x'));
  const auto media = open("cow:" + path("disk"), 0, 1, 1);
  std::filesystem::resize_file(path("disk"), kMiB);
  EXPECT_THROW(media->take_in(), ConfigError);
  std::vector<std::byte> data(4096);
  EXPECT_FALSE(media->read(2 * kMiB, data)) << "still an error of the access alone";
}

// Trims of every second stretch of 2 MiB, all over a large image, leave the process its mappings and its memory.
TEST_F(MediaTest, TrimsOfALargeImageStayWithinBounds) {
  SKIP_MEMORY_FIGURES_UNDER_TSAN();
  make_file("sparse", "");
  constexpr std::uint64_t kSize = std::uint64_t{1} << 40;
  if (::truncate(path("sparse").c_str(), kSize) != 0) GTEST_SKIP() << "the file system has no such files";
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  };
  const auto media = open("cow:" + path("sparse"), 0, 1, 1);
  const std::uint64_t resident = resident_bytes();
  for (std::uint64_t at = 0; at < kSize; at += 4 * kMiB) ASSERT_TRUE(media->discard(at, 2 * kMiB)) << at;
  EXPECT_LT(mappings(), 20'000);
  EXPECT_LT(resident_bytes(), resident + 64 * kMiB);
  // What must read as zeroes does, whatever was given back.
  ASSERT_TRUE(media->write(kSize - 2 * kMiB, bytes_of(2 * kMiB, 9)));
  ASSERT_TRUE(media->deallocate(kSize - 2 * kMiB, 2 * kMiB));
  EXPECT_TRUE(all_equal(read_back(*media, kSize - 2 * kMiB, 2 * kMiB), 0));
  // All of it at once is one span again.
  ASSERT_TRUE(media->deallocate(0, kSize));
  EXPECT_LT(mappings(), 1'000);
}

TEST_F(MediaTest, OpeningASparseFileAllocatesNothing) {
  make_file("sparse", "");
  constexpr std::uint64_t kTera = std::uint64_t{1} << 40;
  if (::truncate(path("sparse").c_str(), 16 * kTera - 4096) != 0 && ::truncate(path("sparse").c_str(), kTera) != 0)
    GTEST_SKIP() << "the file system has no such files";
  const auto media = open("file:" + path("sparse"), 0, 1, 1);
  EXPECT_LT(disk_bytes(path("sparse")), kMiB);
  ASSERT_TRUE(media->write(media->size_bytes() - 4096, bytes_of(4096, 1)));
  EXPECT_TRUE(all_equal(read_back(*media, kTera / 2, 4096), 0));
}

// Whoever only reads leaves a file as it is; what is written behind its end is there when it is opened again.
TEST_F(MediaTest, AFileGrowsToWholePagesOnlyWhenThatIsWritten) {
  make_file("odd", std::string(10'000, 'x'));
  const auto file_bytes = [&] { return std::filesystem::file_size(path("odd")); };
  {
    const auto media = open("file:" + path("odd"), 0, 1, 1);
    EXPECT_EQ(media->size_bytes(), 12'288u);
    EXPECT_TRUE(all_equal(read_back(*media, 9'728, 272), 'x'));
    EXPECT_TRUE(all_equal(read_back(*media, 10'000, 2'288), 0));
    ASSERT_TRUE(media->write(4'096, bytes_of(4'096, 1)));
    ASSERT_TRUE(media->deallocate(8'192, 512));
    ASSERT_TRUE(media->flush());
    EXPECT_EQ(file_bytes(), 10'000u);
  }
  EXPECT_EQ(file_bytes(), 10'000u);
  {
    const auto media = open("file:" + path("odd"), 0, 1, 1);
    ASSERT_TRUE(media->write(11'776, bytes_of(512, 2)));
    ASSERT_TRUE(media->flush());
    EXPECT_EQ(file_bytes(), 12'288u);
  }
  const auto media = open("file:" + path("odd"), 0, 1, 1);
  EXPECT_TRUE(all_equal(read_back(*media, 10'240, 1'536), 0));
  EXPECT_EQ(read_back(*media, 11'776, 512), bytes_of(512, 2));
  // What somebody has cut off meanwhile is not made up.
  make_file("cut", std::string(10'000, 'x'));
  const auto cut = open("file:" + path("cut"), 0, 1, 1);
  std::filesystem::resize_file(path("cut"), 5'000);
  EXPECT_FALSE(cut->write(11'776, bytes_of(512, 2)));
  EXPECT_EQ(std::filesystem::file_size(path("cut")), 5'000u);
}

TEST_F(MediaTest, OnlyWhatMustBeIsSynced) {
  const auto media = open("file:" + path("disk"), 8 * kMiB, 1, 1);
  ASSERT_TRUE(media->write(kMiB, bytes_of(1024, 1)));
  range_synced_bytes = 0;
  whole_syncs = 0;
  ASSERT_TRUE(media->sync(kMiB, 1024));
  EXPECT_EQ(range_synced_bytes, 4096u);
  ASSERT_TRUE(media->sync(2 * kMiB - 512, 1024));
  EXPECT_EQ(range_synced_bytes, 3 * 4096u) << "whole pages";
  EXPECT_EQ(whole_syncs, 0);
  ASSERT_TRUE(media->flush());
  EXPECT_EQ(range_synced_bytes, 3 * 4096u);
  EXPECT_EQ(whole_syncs, 1);
}

TEST_F(MediaTest, NewFilesAreForThisUserAlone) {
  const mode_t before = ::umask(0);
  open("file:" + path("disk"), kMiB, 1, 1);
  ::umask(before);
  struct stat info{};
  ASSERT_EQ(::stat(path("disk").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  std::filesystem::create_symlink(path("victim"), path("link"));
  expect_error("file:" + path("link"), kMiB, {path("link"), "cannot be created"});
  EXPECT_FALSE(std::filesystem::exists(path("victim")));
}

TEST_F(MediaTest, FileTakesItsOwnSizeRoundedUp) {
  make_file("odd", std::string(5000, 'y'));
  const auto media = open("file:" + path("odd"), 0, 1, 1);
  EXPECT_EQ(media->size_bytes(), 8192u);
  EXPECT_TRUE(all_equal(read_back(*media, 0, 5000), 'y'));
  EXPECT_TRUE(all_equal(read_back(*media, 5000, 3192), 0));
  EXPECT_EQ(std::filesystem::file_size(path("odd")), 5000u);
  ASSERT_TRUE(media->write(8191 - 511, bytes_of(512, 'z')));
  EXPECT_EQ(std::filesystem::file_size(path("odd")), 8192u);
}

TEST_F(MediaTest, EmptyFileIsFilledToTheSizeGiven) {
  make_file("empty", "");
  const auto media = open("file:" + path("empty"), kMiB, 1, 1);
  EXPECT_EQ(std::filesystem::file_size(path("empty")), kMiB);
  EXPECT_TRUE(all_equal(read_back(*media, 0, kMiB), 0));
}

TEST_F(MediaTest, TwoDevicesCannotOpenOneFile) {
  const std::string file = "file:" + path("disk"), cow = "cow:" + path("disk");
  {
    const auto first = open(file, kMiB, 1, 1);
    expect_error(file, kMiB, {path("disk"), "in use"});
    expect_error(cow, 0, {path("disk"), "in use"});
  }
  const auto reader = open(cow, 0, 1, 1);
  const auto second_reader = open(cow, 0, 1, 1);
  expect_error(file, 0, {path("disk"), "in use"});
}

TEST_F(MediaTest, CowLeavesTheFileUntouchedAndItsTailZero) {
  const std::string content(5000, 'q');
  make_file("image", content);
  std::filesystem::permissions(path("image"), std::filesystem::perms::owner_read);
  {
    const auto media = open("cow:" + path("image"), 0, 1, 1);
    EXPECT_EQ(media->size_bytes(), 8192u);
    EXPECT_TRUE(all_equal(read_back(*media, 0, 5000), 'q'));
    EXPECT_TRUE(all_equal(read_back(*media, 5000, 3192), 0));
    ASSERT_TRUE(media->write(4096, bytes_of(4096, 1)));
    ASSERT_TRUE(media->deallocate(0, 4096));
    EXPECT_TRUE(all_equal(read_back(*media, 0, 4096), 0));
    EXPECT_TRUE(all_equal(read_back(*media, 4096, 4096), 1));
    ASSERT_TRUE(media->flush());
  }
  EXPECT_EQ(content_of(path("image")), content);
  EXPECT_TRUE(all_equal(read_back(*open("cow:" + path("image"), 512, 1, 1), 0, 512), 'q'));
  expect_error("cow:" + path("image"), 12288, {"5000 bytes"});
}

TEST_F(MediaTest, GeneratedAnswersTheFunctionAtAnyOffset) {
  const auto media = open("generated", std::uint64_t{64} << 40, 3, 99);
  EXPECT_EQ(media->base(), nullptr);
  EXPECT_FALSE(media->writable());
  EXPECT_EQ(media->describe(), "generated");
  const auto data = read_back(*media, media->size_bytes() - 8 * 4096, 8 * 4096);
  EXPECT_EQ(check_sectors(data, (media->size_bytes() >> 9) - 64, 3, 0, 99), kNoBadSector);
  EXPECT_NE(check_sectors(data, (media->size_bytes() >> 9) - 64, 3, 0, 98), kNoBadSector);
  const auto whole = read_back(*media, 4096, 4096);
  for (const auto& [skip, count] : {std::pair<std::size_t, std::size_t>{0, 1},
                                    {1, 511},
                                    {511, 2},
                                    {100, 3000},
                                    {512, 512},
                                    {700, 1},
                                    {4095, 1},
                                    {0, 4096}}) {
    const auto part = read_back(*media, 4096 + skip, count);
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + skip, count), 0) << skip << " + " << count;
  }
  EXPECT_FALSE(media->write(0, bytes_of(512, 1)));
  EXPECT_FALSE(media->deallocate(0, 512));
  EXPECT_TRUE(media->flush());
}

// Threads write, read, trim and flush disjoint stripes of one media; each must see only its own data.
TEST_F(MediaTest, ConcurrentUse) {
  make_file("cow", std::string(16 * kMiB, 'c'));
  const std::pair<std::string, std::uint64_t> cases[] = {
      {"memory", 16 * kMiB}, {"file:" + path("file"), 16 * kMiB}, {"cow:" + path("cow"), 16 * kMiB}};
  for (const auto& [spec, size] : cases) {
    const auto media = open(spec, size, 1, 1);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        Rng rng(t);
        const std::uint64_t stripe = size / 4, start = stripe * t;
        std::vector<std::byte> buffer(64 << 10);
        for (std::uint32_t round = 1; round <= 100; ++round) {
          const std::uint64_t offset = start + rng.below((stripe - buffer.size()) / 512) * 512;
          fill_sectors(buffer, offset >> 9, 1, round, t);
          wrong += !media->write(offset, buffer);
          std::fill(buffer.begin(), buffer.end(), std::byte{0});
          wrong += !media->read(offset, buffer);
          wrong += check_sectors(buffer, offset >> 9, 1, round, t) != kNoBadSector;
          if (round % 10 == 0) {
            wrong += !media->deallocate(start, stripe);
            wrong += !all_equal(read_back(*media, offset, 4096), 0);
          }
          if (round % 50 == 0) wrong += !media->flush();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong.load(), 0) << spec;
  }
}

TEST_F(MediaTest, RangesOutsideAreOurBug) {
  const auto media = open("memory", 4096, 1, 1);
  std::vector<std::byte> buffer(1024);
  EXPECT_DEATH(media->read(3584, buffer), "check failed");
  EXPECT_DEATH(media->write(~std::uint64_t{0}, buffer), "check failed");
  EXPECT_DEATH(media->deallocate(4096, 1), "check failed");
}

}  // namespace
}  // namespace flashmob::media
