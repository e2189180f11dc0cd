#include "media/direct_media.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "media/block_store_test_support.h"
#include "media/direct_file.h"
#include "media/io_ring.h"
#include "media/media_queue.h"
#include "media/thread_port.h"

namespace flashmob::media {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

struct DirectMediaTest : testing::Test {
  void open(std::uint32_t alignment, std::uint64_t cache_bytes, std::uint64_t size_bytes = 4 * kMiB) {
    auto made = std::make_unique<StoreInMemory>(size_bytes, alignment);
    store = made.get();
    media = std::make_unique<DirectMedia>(std::move(made), size_bytes, cache_bytes);
  }
  StoreInMemory* store = nullptr;
  std::unique_ptr<DirectMedia> media;
};

// Waits for one transfer; of a Write, `fill` gives the bytes.
TransferResult run(MediaQueue& queue, std::uint64_t offset, std::span<std::byte> data, bool is_write) {
  Transfer* transfer = nullptr;
  while ((transfer = queue.start(offset, static_cast<std::uint32_t>(data.size()), is_write, false, 0)) == nullptr)
    std::this_thread::yield();
  for (;;) {
    if (transfer->state == TransferState::wants_data) {
      std::copy(data.begin(), data.end(), transfer->data);
      queue.write(*transfer);
    } else if (transfer->state == TransferState::done) {
      if (!is_write && transfer->result == TransferResult::good) std::copy_n(transfer->data, data.size(), data.begin());
      const TransferResult result = transfer->result;
      queue.finish(*transfer);
      return result;
    }
    queue.kick();
    while ((transfer = queue.poll()) == nullptr) std::this_thread::yield();
  }
}

TransferResult read(MediaQueue& queue, std::uint64_t offset, std::span<std::byte> data) {
  return run(queue, offset, data, false);
}

std::vector<std::byte> bytes_of(std::size_t count, unsigned value) { return std::vector(count, std::byte(value)); }

// Random transfers of any multiple of 512 bytes, many under way at once, against a copy of what the media should hold.
void check_against_model(DirectMedia& media, std::uint64_t size_bytes, unsigned rounds) {
  struct Known {
    std::uint64_t offset;
    std::vector<std::byte> data;  // written, or expected
    bool is_write;
  };
  MediaQueue& queue = *media.queue(0);
  std::vector<std::byte> model(size_bytes);
  std::vector<Known> known(32);
  Rng rng(7);
  const auto overlaps = [&](const Known& a, std::uint64_t offset, std::uint64_t bytes) {
    return !a.data.empty() && a.offset < offset + bytes && offset < a.offset + a.data.size();
  };
  const auto step = [&](Transfer* transfer) {
    Known& one = known[transfer->token];
    if (transfer->state == TransferState::wants_data) {
      std::copy(one.data.begin(), one.data.end(), transfer->data);
      queue.write(*transfer);
    }
    if (transfer->state != TransferState::done) return;
    ASSERT_EQ(transfer->result, TransferResult::good);
    if (!one.is_write) {
      ASSERT_TRUE(std::equal(one.data.begin(), one.data.end(), transfer->data)) << one.offset;
    }
    queue.finish(*transfer);
    one.data.clear();
  };
  for (unsigned round = 0; round < rounds || queue.outstanding() != 0; ++round) {
    const auto free = std::find_if(known.begin(), known.end(), [](const Known& one) { return one.data.empty(); });
    const std::uint64_t bytes = 512 * (1 + (rng.below(8) == 0 ? rng.below(600) : rng.below(20)));
    const std::uint64_t offset = 512 * rng.below((size_bytes - bytes) / 512 + 1);
    const bool is_free = free != known.end() && round < rounds &&
                         std::none_of(
                             known.begin(), known.end(),
                             [&](const Known& one) {
                               return overlaps(one, offset, bytes);  // whose result would be either's
                             });
    if (is_free) {
      const auto token = static_cast<std::uint32_t>(free - known.begin());
      const bool is_zeroes = rng.below(4) == 0;
      const bool is_write = is_zeroes || rng.below(2) == 0;
      const auto count = static_cast<std::uint32_t>(bytes);
      if (Transfer* const transfer = is_zeroes ? queue.start_zeroes(offset, count, token)
                                               : queue.start(offset, count, is_write, false, token)) {
        free->offset = offset;
        free->is_write = is_write;
        const auto place = model.begin() + static_cast<std::ptrdiff_t>(offset);
        if (is_zeroes)
          std::fill_n(place, bytes, std::byte{0});
        else if (is_write)
          std::generate_n(place, bytes, [value = rng.next()]() mutable { return std::byte(value += 7); });
        free->data.assign(place, place + static_cast<std::ptrdiff_t>(bytes));
        step(transfer);
      }
    }
    queue.kick();
    while (Transfer* const transfer = queue.poll()) step(transfer);
    if (testing::Test::HasFatalFailure()) return;
    if (rng.below(200) == 0 && queue.outstanding() == 0) {
      ASSERT_TRUE(media.deallocate(offset, bytes));
      std::fill_n(model.begin() + static_cast<std::ptrdiff_t>(offset), bytes, std::byte{0});
    }
  }
  std::vector<std::byte> all(size_bytes);
  ASSERT_TRUE(media.read(0, all));
  ASSERT_TRUE(all == model);
}

TEST_F(DirectMediaTest, WhatIsWrittenIsReadBackWhateverTheStoreIsAlignedTo) {
  for (const std::uint32_t alignment : {512u, 4096u}) {
    for (const std::uint64_t cache_bytes : {std::uint64_t{0}, kMiB / 4, 64 * kMiB}) {
      SCOPED_TRACE(testing::Message() << alignment << ", " << cache_bytes);
      open(alignment, cache_bytes, 2 * kMiB);
      store->moves_less = true;
      store->no_space_back = cache_bytes == 0 ? EOPNOTSUPP : 0;
      check_against_model(*media, 2 * kMiB, 3000);
      if (store->no_space_back == 0) {
        EXPECT_GT(store->deallocations, 0u);
      }
    }
  }
}

TEST_F(DirectMediaTest, CommandsOfTwoThreadsToOneBlockAreNotMixed) {
  open(512, kMiB / 4);
  std::atomic<int> mixed{0};
  const auto work = [&](unsigned thread, bool waits) {
    Rng rng(thread);
    std::vector<std::byte> data(12288);
    for (int i = 0; i < 500; ++i) {
      const bool is_write = rng.below(2) == 0;
      if (is_write) std::fill(data.begin(), data.end(), static_cast<std::byte>(rng.next()));
      if (waits)
        EXPECT_TRUE(is_write ? media->write(0, data) : media->read(0, data));
      else
        EXPECT_EQ(run(*media->queue(thread), 0, data, is_write), TransferResult::good);
      if (!is_write && data != std::vector<std::byte>(data.size(), data[0])) ++mixed;
    }
  };
  std::thread other([&] { work(1, false); });
  std::thread third([&] { work(2, true); });
  work(0, false);
  other.join();
  third.join();
  EXPECT_EQ(mixed, 0);
}

// A fused Compare and Write looks and then writes; whoever else writes does so before or after both.
TEST_F(DirectMediaTest, NobodyWritesWhatAnotherThreadHolds) {
  open(512, 0);
  for (unsigned round = 1; round <= 100; ++round) {
    std::atomic<bool> begun{false};
    const auto ours = bytes_of(512, round), theirs = bytes_of(512, 255 - round % 100);
    media->hold(512, 512);
    std::thread other([&] {
      auto copy = theirs;
      begun = true;
      if (round % 2 == 0)
        EXPECT_TRUE(media->write(512, theirs));
      else
        EXPECT_EQ(run(*media->queue(1), 512, copy, true), TransferResult::good);
    });
    while (!begun) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    EXPECT_TRUE(media->write(512, ours));
    std::vector<std::byte> now(512);
    EXPECT_TRUE(media->read(512, now));
    EXPECT_EQ(now, ours);
    media->let_go(512, 512);
    other.join();
    EXPECT_TRUE(media->read(512, now));
    EXPECT_EQ(now, theirs) << "it came after both";
  }
}

TEST_F(DirectMediaTest, WhatIsCachedIsNotReadAgain) {
  open(4096, kMiB);
  std::vector<std::byte> data = bytes_of(8192, 5);
  MediaQueue& queue = *media->queue(0);
  EXPECT_EQ(run(queue, 4096, data, true), TransferResult::good);
  EXPECT_EQ(read(queue, 4096, data), TransferResult::good);
  const std::uint64_t before = store->reads;
  std::vector<std::byte> again(512);
  EXPECT_EQ(read(queue, 8192 + 1024, again), TransferResult::good);
  EXPECT_EQ(store->reads, before);
  EXPECT_EQ(again, bytes_of(512, 5));
  // Another thread's write, and one that waits.
  data = bytes_of(4096, 6);
  EXPECT_EQ(run(*media->queue(1), 8192, data, true), TransferResult::good);
  EXPECT_EQ(read(queue, 8192 + 1024, again), TransferResult::good);
  EXPECT_EQ(store->reads, before) << "a write goes through the cache";
  EXPECT_EQ(again, bytes_of(512, 6));
  ASSERT_TRUE(media->write(8192, bytes_of(512, 7)));
  std::vector<std::byte> block(4096);
  EXPECT_EQ(read(queue, 8192, block), TransferResult::good);
  EXPECT_EQ(block[511], std::byte{7});
  EXPECT_EQ(block[512], std::byte{6});
  ASSERT_TRUE(media->deallocate(0, kMiB));
  EXPECT_EQ(read(queue, 8192, block), TransferResult::good);
  EXPECT_EQ(block, bytes_of(4096, 0));
}

TEST_F(DirectMediaTest, ErrorsOfTheStoreAreTold) {
  open(4096, kMiB);
  MediaQueue& queue = *media->queue(0);
  std::vector<std::byte> data = bytes_of(4096, 9);
  ASSERT_EQ(run(queue, 8192, data, true), TransferResult::good);
  ASSERT_EQ(read(queue, 8192, data), TransferResult::good);
  store->bad_from = 8192;
  store->bad_to = 8193;
  EXPECT_EQ(read(queue, 8192, data), TransferResult::good) << "from the cache";
  EXPECT_EQ(run(queue, 8192, data, true), TransferResult::failed);
  EXPECT_EQ(read(queue, 8192, data), TransferResult::failed) << "nobody knows what is there now";
  EXPECT_EQ(read(queue, 4096, data), TransferResult::good);
  std::vector<std::byte> part(512);
  EXPECT_EQ(run(queue, 8192, part, true), TransferResult::failed) << "the rest of its block cannot be read";
  EXPECT_FALSE(media->read(8192, part));
  EXPECT_FALSE(media->is_disk_full());
  store->bad_error = ENOSPC;
  EXPECT_EQ(run(queue, 8192, data, true), TransferResult::disk_full);
  EXPECT_FALSE(media->write(8192, data));
  EXPECT_TRUE(media->is_disk_full());
  store->bad_to = 0;
  EXPECT_EQ(run(queue, 8192, part, true), TransferResult::good);
  EXPECT_EQ(queue.outstanding(), 0u);
}

// A disk forgets what it has not taken, and reports it once.
TEST_F(DirectMediaTest, ADiskThatHasFailedAFlushIsNotBelievedAgain) {
  open(4096, kMiB);
  EXPECT_TRUE(media->flush());
  store->flush_error = EIO;
  EXPECT_FALSE(media->flush());
  store->flush_error = 0;
  EXPECT_FALSE(media->flush());
  EXPECT_FALSE(media->sync(0, 4096));
}

TEST_F(DirectMediaTest, ATransferThatFindsNoBufferCanBeHadLater) {
  open(4096, 0);
  MediaQueue& queue = *media->queue(0);
  store->stands_still = true;
  std::uint32_t started = 0;
  while (queue.start(4096 * (started % 1024), 4096, false, false, started) != nullptr) ++started;
  EXPECT_GE(started, 512u);
  store->stands_still = false;
  std::uint32_t ended = 0;
  bool again = true;
  while (queue.outstanding() != 0) {
    if (Transfer* const transfer = queue.poll()) {
      queue.finish(*transfer);
      ++ended;
    }
    if (ended == 1 && std::exchange(again, false)) {
      ASSERT_NE(queue.start(0, 4096, false, false, 0), nullptr);
    }
  }
  EXPECT_EQ(ended, started + 1);
}

TEST(BlockLocks, AWriterIsNotKeptWaitingByReadersThatCome) {
  constexpr std::uint64_t kWords = 1 << 10;
  BlockLocks locks(kWords);
  ASSERT_TRUE(locks.try_lock(7, 2, false));
  EXPECT_FALSE(locks.try_lock(0, 16, true));
  EXPECT_TRUE(locks.try_lock(0, 7, true)) << "what it took before is free again";
  EXPECT_FALSE(locks.try_lock(7, 1, false)) << "a writer waits";
  EXPECT_TRUE(locks.try_lock(8, 1, false));
  locks.unlock(7, 2, false);
  locks.unlock(8, 1, false);
  locks.unlock(0, 7, true);
  EXPECT_TRUE(locks.try_lock(0, kWords + 1, true));
  EXPECT_FALSE(locks.try_lock(kWords + 5, 1, false));
}

// A file in the working folder: what is in memory has no disk to go past.
struct DirectFileTest : testing::Test {
  ~DirectFileTest() override {
    for (const char* const end : {"", ".flashmob", ".flashmob-redo"}) std::filesystem::remove(path + end);
  }
  std::string path = std::filesystem::absolute("direct_file_test." + std::to_string(::getpid()));

  std::unique_ptr<Media> open(std::uint64_t size_bytes, std::uint64_t cache_bytes = 0) {
    return media::open("direct:" + path, size_bytes, 1, 1, cache_bytes);
  }
};

TEST_F(DirectFileTest, HoldsWhatIsWrittenByEitherKindOfPort) {
  for (const bool by_ring : {true, false}) {
    auto file = open_direct_file(path, 2 * kMiB).store;
    const int fd = ::open(path.c_str(), O_RDWR | O_DIRECT);
    WaitingThreads threads([fd](const BlockRequest& r) {
      const auto at = static_cast<off_t>(r.offset);
      const ssize_t n = r.is_write ? ::pwrite(fd, r.data, r.bytes, at) : ::pread(fd, r.data, r.bytes, at);
      return static_cast<std::int32_t>(n);
    });
    auto port = by_ring ? make_io_ring(fd, 64) : threads.make_port(64);
    if (port == nullptr) {
      ::close(fd);
      continue;  // forbidden here
    }
    constexpr std::uint32_t kPieces = 64;
    std::byte* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, 2 * kPieces * 4096));
    for (std::uint32_t i = 0; i < kPieces * 4096; ++i) memory[i] = static_cast<std::byte>(i * 7 >> 9);
    for (const bool is_write : {true, false}) {
      for (std::uint32_t i = 0; i < kPieces; ++i)
        port->submit({i * 8192ull, memory + (i + (is_write ? 0 : kPieces)) * 4096, 4096, i, is_write, i % 16 == 0});
      port->kick();
      std::vector<bool> seen(kPieces);
      std::array<BlockDone, 8> done;
      for (std::uint32_t ended = 0; ended < kPieces;) {
        const std::size_t count = port->poll(done);
        for (std::size_t i = 0; i < count; ++i) {
          EXPECT_EQ(done[i].result, 4096);
          EXPECT_FALSE(seen[done[i].token]);
          seen[done[i].token] = true;
        }
        ended += static_cast<std::uint32_t>(count);
      }
    }
    EXPECT_EQ(std::memcmp(memory, memory + kPieces * 4096, kPieces * 4096), 0);
    port.reset();
    std::free(memory);
    ::close(fd);
  }
}

TEST_F(DirectFileTest, IsTheSameAfterRandomCommandsAndKeepsItsBytes) {
  constexpr std::uint64_t kBytes = 2 * kMiB;
  auto media = open(kBytes, kMiB / 4);
  check_against_model(dynamic_cast<DirectMedia&>(*media), kBytes, 2000);
  std::vector<std::byte> before(kBytes), after(kBytes);
  ASSERT_TRUE(media->read(0, before));
  EXPECT_THROW(open(0), ConfigError) << "it is in use";
  media.reset();
  media = open(0);
  EXPECT_EQ(media->size_bytes(), kBytes);
  EXPECT_EQ(media->describe(), "direct:" + path);
  ASSERT_TRUE(media->read(0, after));
  EXPECT_TRUE(before == after);
}

TEST_F(DirectFileTest, ASizeThatIsNoWholePageIsServedToItsEnd) {
  auto media = open(4096 * 3 + 512);
  EXPECT_EQ(media->size_bytes(), 4096u * 3 + 512);
  std::vector<std::byte> data = bytes_of(1024, 3);
  EXPECT_EQ(run(*media->queue(0), 4096 * 3 - 512, data, true), TransferResult::good);
  data = bytes_of(1024, 0);
  EXPECT_EQ(read(*media->queue(0), 4096 * 3 - 512, data), TransferResult::good);
  EXPECT_EQ(data, bytes_of(1024, 3));
}

TEST_F(DirectFileTest, AFileThatIsCutShortFailsWhereItEnds) {
  auto media = open(kMiB);
  MediaQueue& queue = *media->queue(0);
  std::vector<std::byte> data(16384);
  ASSERT_EQ(::truncate(path.c_str(), kMiB / 2 + 4096), 0);
  EXPECT_EQ(read(queue, kMiB / 2 - 8192, data), TransferResult::failed) << "its end is beyond the file's";
  EXPECT_EQ(read(queue, kMiB - 16384, data), TransferResult::failed);
  EXPECT_EQ(read(queue, 0, data), TransferResult::good);
  EXPECT_FALSE(media->read(kMiB - 512, std::span(data).first(512)));
  EXPECT_EQ(run(queue, kMiB - 16384, data, true), TransferResult::good) << "a write makes it longer";
  EXPECT_EQ(read(queue, kMiB - 16384, data), TransferResult::good);
}

// Its redo log is not for us to finish: what it holds may have gone to the page cache alone.
TEST_F(DirectFileTest, LeftoversOfAKilledServerOfAFileAreRefused) {
  open(kMiB);
  const std::string log = path + ".flashmob-redo";
  std::ofstream(log) << "what a killed process was writing";
  for (const bool exists : {true, false}) {
    if (!exists) std::filesystem::remove(path);
    try {
      open(kMiB);
      ADD_FAILURE() << "opened";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(log), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("serve it as file:" + path + " once"), std::string::npos)
          << error.what();
    }
    EXPECT_EQ(std::filesystem::exists(path), exists) << "nothing is made on the way";
  }
  media::open("file:" + path, kMiB, 1, 1);
  EXPECT_FALSE(std::filesystem::exists(log));
  EXPECT_NO_THROW(open(kMiB));
}

TEST_F(DirectFileTest, WhatIsSavedBesideItIsKeptAndShared) {
  const std::string state = path + ".flashmob";
  {
    const auto media = open(kMiB);
    ASSERT_NE(media->saved(), nullptr);
    EXPECT_FALSE(media->found());
    SavedState base;
    base.nguid.fill(7);
    media->saved()->set_base(base);
    EXPECT_TRUE(media->saved()->change([](SavedState& saved) { saved.lba_bytes = 4096; }));
  }
  for (const std::string kind : {"direct:", "file:"}) {
    const auto media = media::open(kind + path, kMiB, 1, 1);
    ASSERT_TRUE(media->found()) << kind;
    EXPECT_EQ(media->found()->lba_bytes, 4096u);
    EXPECT_EQ(media->found()->nguid[0], 7);
  }
  EXPECT_THROW(open(kMiB / 2), ConfigError) << "it is about an image of another size";
  std::filesystem::remove(path);
  EXPECT_THROW(open(kMiB), ConfigError) << "the image is gone";
  EXPECT_FALSE(std::filesystem::exists(path));
  std::filesystem::remove(state);
}

TEST_F(DirectFileTest, AFullDiskIsSaid) {
  auto media = open(kMiB);
  MediaQueue& queue = *media->queue(0);
  std::vector<std::byte> data(4096);
  ASSERT_EQ(::truncate(path.c_str(), 65536), 0);
  // A file that may not grow stands for a disk that has no room.
  const auto before = ::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{65536, old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_EQ(run(queue, kMiB / 2, data, true), TransferResult::disk_full);
  EXPECT_FALSE(media->write(kMiB / 2, data));
  EXPECT_TRUE(media->is_disk_full());
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, before);
  EXPECT_EQ(run(queue, kMiB / 2, data, true), TransferResult::good);
}

}  // namespace
}  // namespace flashmob::media
