// Reads of files by extents: every byte against the device's, whatever the cut; errors that stay with their file;
// devices that lose commands, die, or go away.
#include "flashmob/file_reads.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "flashmob/error.h"
#include "flashmob/server.h"

namespace flashmob {
namespace {

constexpr std::uint64_t kDeviceBytes = 4 << 20;
constexpr std::uint64_t kLong = 60'000'000'000;
constexpr std::byte kUntouched{0xA5};

class FileReadsTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    folder = std::filesystem::temp_directory_path() / ("flashmob-file-reads-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    Rng rng(7);
    truth.resize(kDeviceBytes);
    for (std::byte& byte : truth) byte = static_cast<std::byte>(rng.next());
    std::ofstream file(folder / "image", std::ios::binary);
    file.write(reinterpret_cast<const char*>(truth.data()), static_cast<std::streamsize>(truth.size()));
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  DeviceConfig device(std::uint32_t lba_bytes = 512) const {
    DeviceConfig config;
    config.subsystem.namespaces[0].size_bytes = kDeviceBytes;
    config.subsystem.namespaces[0].lba_bytes = lba_bytes;
    config.subsystem.namespaces[0].media = "cow:" + (folder / "image").string();
    config.controller.max_queue_pairs = 8;
    config.controller.interrupt_vectors = 9;
    config.timing.read_iops = config.timing.write_iops = 200'000;
    config.timing.read_latency_ns = config.timing.write_latency_ns = 10'000;
    return config;
  }

  // What a file of these extents holds.
  std::vector<std::byte> expected(const std::vector<FileExtent>& extents) const {
    std::vector<std::byte> data;
    for (const FileExtent& one : extents) {
      if (one.flags & (kExtentHole | kExtentUnwritten))
        data.resize(data.size() + one.bytes);
      else
        data.insert(data.end(), truth.begin() + static_cast<std::ptrdiff_t>(one.device_offset),
                    truth.begin() + static_cast<std::ptrdiff_t>(one.device_offset + one.bytes));
    }
    return data;
  }

  static std::uint64_t length(const std::vector<FileExtent>& extents) {
    std::uint64_t sum = 0;
    for (const FileExtent& one : extents) sum += one.bytes;
    return sum;
  }

  std::filesystem::path folder;
  std::vector<std::byte> truth;
};

// Extents that begin and end anywhere, with holes and unwritten ones between them.
std::vector<FileExtent> random_extents(Rng& rng) {
  std::vector<FileExtent> extents;
  std::uint64_t at = 0;
  for (std::uint64_t left = rng.below(9); left != 0; --left) {
    const std::uint64_t bytes = rng.below(4) == 0 ? rng.below(300'000) : rng.below(5000);
    const std::uint64_t kind = rng.below(5);
    constexpr std::uint32_t kFlags[] = {kExtentHole, kExtentUnwritten, kExtentInline, 0, 0};
    const std::uint32_t flags = kFlags[kind];
    // Such a place is at the very end now and then.
    const std::uint64_t place = rng.below(6) == 0 ? kDeviceBytes - bytes : rng.below(kDeviceBytes - bytes + 1);
    extents.push_back({at, flags == kExtentHole ? 0 : place, bytes, flags});
    at += bytes;
  }
  return extents;
}

std::map<std::uint64_t, FileReadDone> wait_for_all(FileReads& reads) {
  std::map<std::uint64_t, FileReadDone> ended;
  while (reads.unfinished() != 0) {
    for (FileReadDone& one : reads.wait(kLong)) {
      const std::uint64_t tag = one.tag;
      EXPECT_TRUE(ended.emplace(tag, std::move(one)).second) << "told twice: " << tag;
    }
  }
  return ended;
}

std::string error_of(FileReads& reads, std::vector<FileExtent> extents, std::span<std::byte> to) {
  reads.start(1, std::move(extents), to);
  const auto ended = reads.wait(kLong);
  if (ended.size() != 1) return std::to_string(ended.size()) + " ended";
  return ended[0].error.empty() ? "none" : ended[0].error;
}

TEST_P(FileReadsTest, EveryByteIsTheDevicesWhateverTheCut) {
  for (const std::uint64_t command_bytes : {4096u, 131072u}) {
    const auto reads = FileReads::open(device(GetParam()), {.depth = 8, .command_bytes = command_bytes});
    EXPECT_EQ(reads->lba_bytes(), GetParam());
    EXPECT_EQ(reads->device_bytes(), kDeviceBytes);
    Rng rng(command_bytes);
    std::vector<std::vector<FileExtent>> files;
    std::vector<std::vector<std::byte>> buffers;
    std::uint64_t all_bytes = 0;
    for (std::uint64_t tag = 0; tag < 60; ++tag) {
      files.push_back(random_extents(rng));
      // Nothing before or behind is touched.
      buffers.emplace_back(length(files[tag]) + 16, kUntouched);
      all_bytes += length(files[tag]);
    }
    for (std::uint64_t tag = 0; tag < 60; ++tag)
      reads->start(tag, files[tag], std::span(buffers[tag]).subspan(8, length(files[tag])));
    EXPECT_EQ(reads->unfinished(), 60u);
    const auto ended = wait_for_all(*reads);
    ASSERT_EQ(ended.size(), 60u);
    for (std::uint64_t tag = 0; tag < 60; ++tag) {
      EXPECT_EQ(ended.at(tag).error, "");
      EXPECT_EQ(ended.at(tag).bytes, length(files[tag]));
      std::vector<std::byte> whole(8, kUntouched);
      const std::vector<std::byte> data = expected(files[tag]);
      whole.insert(whole.end(), data.begin(), data.end());
      whole.resize(whole.size() + 8, kUntouched);
      EXPECT_TRUE(whole == buffers[tag]) << "file " << tag;
    }
    EXPECT_EQ(reads->counts().file_bytes, all_bytes);
    EXPECT_GE(reads->counts().device_bytes + reads->counts().zero_bytes, all_bytes);
    EXPECT_TRUE(reads->wait(kLong).empty()) << "nothing is left";
  }
}

INSTANTIATE_TEST_SUITE_P(BlockSizes, FileReadsTest, ::testing::Values(512u, 4096u));

TEST_F(FileReadsTest, OptionsThatAreNotPossibleAreNamed) {
  for (const FileReadOptions& options :
       {FileReadOptions{.depth = 0}, FileReadOptions{.depth = 1025}, FileReadOptions{.command_bytes = 512},
        FileReadOptions{.command_bytes = 5000}, FileReadOptions{.command_bytes = 2 << 20}})
    EXPECT_THROW(FileReads::open(device(), options), ConfigError);
  EXPECT_THROW(FileReads::open("vfio-user:/nowhere/at/all"), ConfigError);
  EXPECT_THROW(FileReads::open("/dev/nvme0n1"), ConfigError);
}

TEST_F(FileReadsTest, WhatCannotBeReadIsThatFilesErrorAlone) {
  const auto reads = FileReads::open(device());
  std::vector<std::byte> good(8192), bad(4096);
  EXPECT_THROW(reads->start(0, {{0, 0, 100, 0}}, bad), std::invalid_argument);
  EXPECT_THROW(reads->start(0, {{0, 0, ~0ull, 0}, {0, 0, 2, 0}}, bad), std::invalid_argument);
  const FileExtent beyond{0, kDeviceBytes - 4095, 4096, 0}, far{0, ~0ull - 10, 4096, 0};
  const FileExtent delayed{0, 0, 4096, kExtentDelalloc}, packed{0, 0, 4096, kExtentEncoded};
  std::uint64_t tag = 1;
  for (const FileExtent& one : {beyond, far, delayed, packed}) reads->start(tag++, {one}, bad);
  reads->start(5, {{0, 511, 8192, 0}}, good);
  const auto ended = wait_for_all(*reads);
  ASSERT_EQ(ended.size(), 5u);
  EXPECT_NE(ended.at(1).error.find("beyond the device's 4194304 bytes"), std::string::npos) << ended.at(1).error;
  EXPECT_NE(ended.at(2).error.find("beyond"), std::string::npos);
  EXPECT_NE(ended.at(3).error.find("do not lie on the device"), std::string::npos);
  EXPECT_NE(ended.at(4).error.find("do not lie on the device"), std::string::npos);
  EXPECT_EQ(ended.at(5).error, "");
  EXPECT_TRUE(good == expected({{0, 511, 8192, 0}}));
}

TEST_F(FileReadsTest, ACommandThatFailsFailsItsFile) {
  DeviceConfig config = device();
  config.faults = {"error on=read lba=128"};
  const auto reads = FileReads::open(config, {.depth = 4, .command_bytes = 4096});
  // The failing block lies in its middle, so that more is asked for and in flight when the error comes.
  std::vector<std::byte> bad(256 * 512), before(64 * 512), behind(64 * 512);
  reads->start(1, {{0, 0, before.size(), 0}}, before);
  reads->start(2, {{0, 0, bad.size(), 0}}, bad);
  reads->start(3, {{0, 300 * 512, behind.size(), 0}}, behind);
  const auto ended = wait_for_all(*reads);
  ASSERT_EQ(ended.size(), 3u);
  EXPECT_EQ(ended.at(1).error, "");
  EXPECT_NE(ended.at(2).error.find("block 128 with Unrecovered Read Error"), std::string::npos) << ended.at(2).error;
  EXPECT_EQ(ended.at(2).bytes, 0u);
  EXPECT_EQ(ended.at(3).error, "");
  EXPECT_TRUE(behind == expected({{0, 300 * 512, behind.size(), 0}}));
}

TEST_F(FileReadsTest, LostCommandsEndAllReadsOnceTheWaitIsOver) {
  DeviceConfig config = device();
  config.faults = {"lose on=read at=3"};
  const auto reads = FileReads::open(config, {.depth = 4, .command_bytes = 4096, .timeout_ns = 1'000'000'000});
  std::vector<std::byte> first(4096), second(32768);
  EXPECT_EQ(error_of(*reads, {{0, 0, 4096, 0}}, first), "none");
  reads->start(1, {{0, 0, 32768, 0}}, second);
  reads->start(2, {{0, 0, 4096, 0}}, first);
  const auto ended = wait_for_all(*reads);
  // The one behind it got through, as commands of others do.
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended.at(2).error, "");
  EXPECT_NE(ended.at(1).error.find("not completed within 1000 ms"), std::string::npos) << ended.at(1).error;
  EXPECT_NE(error_of(*reads, {{0, 0, 4096, 0}}, first).find("does not answer"), std::string::npos);
}

TEST_F(FileReadsTest, AWaitEndsWhenItsTimeIsOver) {
  DeviceConfig config = device();
  config.faults = {"delay on=read delay=400ms"};
  const auto reads = FileReads::open(config);
  std::vector<std::byte> to(4096);
  reads->start(1, {{0, 0, 4096, 0}}, to);
  EXPECT_TRUE(reads->poll().empty());
  EXPECT_TRUE(reads->wait(1'000'000).empty());
  EXPECT_EQ(reads->unfinished(), 1u);
  EXPECT_EQ(reads->wait(kLong).size(), 1u);
  EXPECT_TRUE(to == expected({{0, 0, 4096, 0}}));
}

TEST_F(FileReadsTest, WhatIsGivenUpIsNotTouchedAndOthersFollow) {
  DeviceConfig config = device();
  config.faults = {"delay on=read delay=50ms times=4"};
  const auto reads = FileReads::open(config, {.depth = 4, .command_bytes = 4096});
  std::vector<std::byte> given_up(65536, kUntouched), to(4096);
  reads->start(1, {{0, 0, given_up.size(), 0}}, given_up);
  EXPECT_TRUE(reads->poll().empty());
  reads->abandon();
  EXPECT_EQ(reads->unfinished(), 0u);
  // Every slot is still the given-up reads'.
  EXPECT_EQ(error_of(*reads, {{0, 1000, 4096, 0}}, to), "none");
  EXPECT_TRUE(to == expected({{0, 1000, 4096, 0}}));
  EXPECT_TRUE(std::ranges::all_of(given_up, [](std::byte byte) { return byte == kUntouched; }));
}

TEST_F(FileReadsTest, AHoleOfManyLooksIsZeroes) {
  const auto reads = FileReads::open(device());
  std::vector<std::byte> to((40 << 20) + 5, kUntouched);
  EXPECT_EQ(error_of(*reads, {{0, 0, to.size(), kExtentHole}}, to), "none");
  EXPECT_TRUE(std::ranges::all_of(to, [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_EQ(reads->counts().commands, 0u);
  EXPECT_EQ(reads->counts().zero_bytes, to.size());
  EXPECT_EQ(error_of(*reads, {}, {}), "none") << "an empty file";
}

TEST_F(FileReadsTest, SeveralReadersOfAServedDeviceAtOnce) {
  ServerOptions options;
  options.tcp_address = "127.0.0.1:0";
  Server server(device(), options);
  server.start();
  const std::vector<std::string> targets = server.addresses();
  ASSERT_EQ(targets.size(), 1u);
  std::vector<std::thread> readers;
  std::vector<int> wrong(2, -1);
  for (std::size_t reader = 0; reader < wrong.size(); ++reader) {
    readers.emplace_back([&, reader] {
      const auto reads = FileReads::open(targets[0], {.depth = 8, .command_bytes = 16384});
      Rng rng(reader);
      int bad = 0;
      for (int turn = 0; turn < 20; ++turn) {
        const std::vector<FileExtent> extents = random_extents(rng);
        std::vector<std::byte> to(length(extents));
        bad += error_of(*reads, extents, to) != "none" || to != expected(extents);
      }
      wrong[reader] = bad;
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, std::vector<int>(2, 0));
}

TEST_F(FileReadsTest, TheKernelsReadsAreThoseOfTheFile) {
  std::unique_ptr<KernelFileReads> reads;
  try {
    reads = KernelFileReads::open(folder.string(), 4);
  } catch (const ConfigError& error) {
    GTEST_SKIP() << error.what();
  }
  std::filesystem::create_symlink("image", folder / "link");
  std::vector<std::vector<std::byte>> buffers;
  for (std::uint64_t tag = 0; tag < 20; ++tag) buffers.emplace_back(tag * 10'007);
  for (std::uint64_t tag = 0; tag < 20; ++tag) reads->start(tag, "/image", tag * 1001, buffers[tag]);
  std::vector<std::byte> beyond(100), none(100);
  reads->start(20, "image", kDeviceBytes - 60, beyond);
  reads->start(21, "nothing", 0, none);
  reads->start(22, "link", 0, none);
  reads->start(23, "", 0, none);
  std::map<std::uint64_t, FileReadDone> ended;
  for (auto done = reads->wait(kLong); !done.empty(); done = reads->wait(kLong))
    for (const FileReadDone& one : done) EXPECT_TRUE(ended.emplace(one.tag, one).second);
  ASSERT_EQ(ended.size(), 24u);
  EXPECT_EQ(reads->unfinished(), 0u);
  for (std::uint64_t tag = 0; tag < 20; ++tag) {
    EXPECT_EQ(ended.at(tag).error, "");
    EXPECT_EQ(ended.at(tag).bytes, buffers[tag].size());
    EXPECT_TRUE(std::ranges::equal(buffers[tag], std::span(truth).subspan(tag * 1001, buffers[tag].size())));
  }
  EXPECT_EQ(ended.at(20).error, "it ends at byte 4194304; it has become shorter");
  EXPECT_EQ(ended.at(21).error, "No such file or directory");
  EXPECT_NE(ended.at(22).error, "");
  EXPECT_NE(ended.at(23).error, "");
  // What is in flight when it ends is waited for.
  for (std::uint64_t tag = 0; tag < 20; ++tag) reads->start(tag, "/image", 0, buffers[tag]);
  reads.reset();
  reads = KernelFileReads::open(folder.string(), 4);
  for (std::uint64_t tag = 0; tag < 20; ++tag) reads->start(tag, "/image", 0, buffers[tag]);
  EXPECT_LE(reads->wait(0).size(), 20u);
  EXPECT_TRUE(reads->give_up(kLong));
  EXPECT_EQ(reads->unfinished(), 0u);
  reads.reset();
  EXPECT_THROW(KernelFileReads::open(folder.string(), 0), ConfigError);
  EXPECT_THROW(KernelFileReads::open((folder / "nothing").string(), 1), ConfigError);
}

TEST_F(FileReadsTest, TheKernelsReadsWaitForNoPipe) {
  std::unique_ptr<KernelFileReads> reads;
  try {
    reads = KernelFileReads::open(folder.string(), 4);
  } catch (const ConfigError& error) {
    GTEST_SKIP() << error.what();
  }
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  // A read of it would wait for this one's bytes for ever.
  const int writer = ::open((folder / "pipe").c_str(), O_RDWR | O_CLOEXEC);
  std::vector<std::byte> to(100);
  reads->start(1, "pipe", 0, to);
  reads->start(2, "image", 0, to);
  std::map<std::uint64_t, std::string> errors;
  for (auto done = reads->wait(kLong); !done.empty(); done = reads->wait(kLong))
    for (const FileReadDone& one : done) errors[one.tag] = one.error;
  EXPECT_EQ(errors, (std::map<std::uint64_t, std::string>{{1, "it is no plain file"}, {2, ""}}));
  ::close(writer);
}

}  // namespace
}  // namespace flashmob
