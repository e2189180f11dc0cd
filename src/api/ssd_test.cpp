// The C++ face in real time: what is written is read back, and closing is safe at any moment.
#include "flashmob/ssd.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "nvme/status.h"

namespace flashmob {
namespace {

DeviceConfig small_device() {
  DeviceConfig config;
  config.subsystem.namespaces[0].size_bytes = 4 << 20;
  config.controller.max_queue_pairs = 8;
  config.controller.interrupt_vectors = 9;
  config.timing.read_iops = config.timing.write_iops = 200'000;
  config.timing.read_latency_ns = config.timing.write_latency_ns = 10'000;
  return config;
}

std::vector<std::byte> noise(std::size_t bytes, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::byte> data(bytes);
  for (std::byte& byte : data) byte = static_cast<std::byte>(rng.next());
  return data;
}

TEST(Ssd, DescribesItself) {
  DeviceConfig config = small_device();
  config.subsystem.namespaces.push_back({.size_bytes = 8 << 20, .lba_bytes = 4096});
  Ssd ssd(config);
  EXPECT_EQ(ssd.namespace_count(), 2u);
  EXPECT_EQ(ssd.namespace_bytes(1), 4u << 20);
  EXPECT_EQ(ssd.lba_bytes(1), 512u);
  EXPECT_EQ(ssd.namespace_bytes(2), 8u << 20);
  EXPECT_EQ(ssd.lba_bytes(2), 4096u);
  EXPECT_NE(ssd.identify(1, 0).find("FLASHMOB00000001"), std::string::npos);
  EXPECT_EQ(ssd.log_page(2, 512).size(), 512u);
  EXPECT_EQ(ssd.log_page(2, 10).size(), 10u);
  EXPECT_THROW(ssd.lba_bytes(3), std::runtime_error);
  EXPECT_THROW(ssd.lba_bytes(0xFFFFFFFF), std::runtime_error);
  EXPECT_THROW(ssd.identify(0xEE, 0), std::runtime_error);
  EXPECT_THROW(ssd.queue(0), ConfigError);
  EXPECT_THROW(ssd.queue(1025), ConfigError);
}

// Somebody cuts the namespace's file short: commands that meet the hole fail, small ones and large ones, and the
// process lives.
TEST(Ssd, AFileThatIsCutShortFailsCommandsAlone) {
  const std::string path = std::filesystem::temp_directory_path() / ("flashmob-short-" + std::to_string(getpid()));
  for (const std::uint32_t workers : {0u, 1u}) {
    DeviceConfig config = small_device();
    config.engine.workers = workers;
    config.subsystem.namespaces[0].media = "file:" + path;
    Ssd ssd(config);
    const auto queue = ssd.queue(64);
    std::vector<std::byte> data(256 << 10, std::byte{7});
    const auto status_of = [&](bool write, std::uint64_t lba, std::uint64_t bytes) {
      std::uint16_t answer = 0xFFFF;
      const auto done = [&](std::uint16_t status) { answer = status; };
      write ? queue->write(1, lba, data.data(), bytes, done) : queue->read(1, lba, data.data(), bytes, done);
      queue->drain();
      return nvme::status_of(answer);
    };
    EXPECT_EQ(status_of(true, 0, data.size()), nvme::Status::success);
    std::filesystem::resize_file(path, 1 << 20);
    for (const std::uint64_t bytes : {std::uint64_t{512}, std::uint64_t{4096}, data.size()}) {
      EXPECT_EQ(status_of(false, 4096, bytes), nvme::Status::unrecovered_read_error) << bytes;
      EXPECT_EQ(status_of(true, 4096, bytes), nvme::Status::write_fault) << bytes;
      EXPECT_EQ(status_of(true, 0, bytes), nvme::Status::success) << bytes;
    }
    // Of a batch those fail that met the hole, and no other.
    std::vector<std::uint16_t> answers(64, 0xFFFF);
    for (std::uint64_t i = 0; i < 64; ++i)
      queue->read(1, i * 128, data.data() + i * 512, 512, [&, i](std::uint16_t status) { answers[i] = status; });
    queue->drain();
    for (std::uint64_t i = 0; i < 64; ++i)
      EXPECT_EQ(nvme::status_of(answers[i]),
                i * 128 < 2048 ? nvme::Status::success : nvme::Status::unrecovered_read_error)
          << i;
    std::filesystem::resize_file(path, 4 << 20);
    EXPECT_EQ(status_of(true, 4096, data.size()), nvme::Status::success) << "as good as before";
  }
  std::filesystem::remove(path);
}

TEST(Ssd, ReadsBackWhatWasWritten) {
  Ssd ssd(small_device());
  const auto queue = ssd.queue(8);
  // More than one command's worth, and no alignment in memory.
  const std::vector<std::byte> data = noise((1 << 20) + 512, 1);
  std::vector<std::byte> back(data.size() + 1);
  int done = 0;
  const auto good = [&](std::uint16_t status) {
    EXPECT_EQ(status, 0);
    ++done;
  };
  queue->write(1, 3, data.data(), data.size(), good);
  queue->drain();
  queue->flush(1, good);
  queue->drain();
  queue->read(1, 3, back.data() + 1, data.size(), good);
  EXPECT_GT(queue->outstanding(), 0u);
  queue->drain();
  EXPECT_EQ(done, 3);
  EXPECT_EQ(queue->outstanding(), 0u);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), back.begin() + 1));
}

TEST(Ssd, MoreRequestsThanSlotsWaitForOne) {
  Ssd ssd(small_device());
  const auto queue = ssd.queue(4);
  const std::vector<std::byte> data = noise(64 * 512, 2);
  std::vector<std::byte> back(data.size());
  int done = 0;
  for (std::uint64_t i = 0; i < 64; ++i)
    queue->write(1, i, data.data() + i * 512, 512, [&](std::uint16_t status) { done += status == 0; });
  queue->drain();
  for (std::uint64_t i = 0; i < 64; ++i)
    queue->read(1, i, back.data() + i * 512, 512, [&](std::uint16_t status) { done += status == 0; });
  queue->drain();
  EXPECT_EQ(done, 128);
  EXPECT_EQ(back, data);
}

TEST(Ssd, MistakesAreReported) {
  Ssd ssd(small_device());
  const auto queue = ssd.queue(4);
  std::vector<std::byte> buffer(1024);
  const auto ignore = [](std::uint16_t) {};
  EXPECT_THROW(queue->read(1, 0, buffer.data(), 100, ignore), std::invalid_argument);
  EXPECT_THROW(queue->read(1, 0, buffer.data(), 0, ignore), std::invalid_argument);
  EXPECT_THROW(queue->read(9, 0, buffer.data(), 512, ignore), std::runtime_error);
  EXPECT_THROW(queue->read(0xFFFFFFFF, 0, buffer.data(), 512, ignore), std::runtime_error);
  std::uint16_t status = 0;
  queue->read(1, (4 << 20) / 512 - 1, buffer.data(), 1024, [&](std::uint16_t answer) { status = answer; });
  queue->drain();
  EXPECT_EQ(status & 0x7FF, 0x80) << "LBA Out of Range";
}

TEST(Ssd, CloseInTheMiddleFailsWhatFollows) {
  Ssd ssd(small_device());
  const auto queue = ssd.queue(16);
  std::vector<std::byte> buffer(16 * 512);
  for (std::uint64_t i = 0; i < 16; ++i) queue->read(1, i, buffer.data() + i * 512, 512, [](std::uint16_t) {});
  ssd.close();
  ssd.close();
  EXPECT_THROW(queue->poll(), std::runtime_error);
  EXPECT_THROW(queue->flush(1, [](std::uint16_t) {}), std::runtime_error);
  EXPECT_THROW(queue->write(1, 0, buffer.data(), 512, [](std::uint16_t) {}), std::runtime_error);
  EXPECT_THROW(ssd.namespace_count(), std::runtime_error);
  EXPECT_THROW(ssd.queue(1), std::runtime_error);
}

TEST(Ssd, QueuesOnTheirOwnThreads) {
  DeviceConfig config = small_device();
  config.engine.units = 2;
  config.engine.workers = 1;
  Ssd ssd(config);
  const auto work = [&](std::uint64_t index) {
    const auto queue = ssd.queue(8);
    const std::vector<std::byte> data = noise(64 * 512, index);
    std::vector<std::byte> back(data.size());
    for (int round = 0; round < 5; ++round) {
      queue->write(1, index * 64, data.data(), data.size(), [](std::uint16_t status) { EXPECT_EQ(status, 0); });
      queue->drain();
      queue->read(1, index * 64, back.data(), back.size(), [](std::uint16_t status) { EXPECT_EQ(status, 0); });
      queue->drain();
      EXPECT_EQ(back, data);
    }
  };
  std::thread other(work, 1);
  work(2);
  other.join();
  EXPECT_EQ(ssd.namespace_count(), 1u);
}

// Their rings are gone with the reset: a thread that still looked at one would read freed memory.
TEST(Ssd, AResetAndAnEndWaitForCallsOfOtherThreads) {
  DeviceConfig config = small_device();
  config.faults = {"lose on=write"};
  Ssd ssd(config);
  const std::vector<std::byte> data = noise(512, 4);
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> under_way{0};
    const auto host = [&](bool waits) {
      const auto queue = ssd.queue(4);
      std::vector<std::byte> back(512);
      if (waits) queue->write(1, 0, data.data(), data.size(), [](std::uint16_t) {});
      ++under_way;
      EXPECT_THROW(
          {
            if (waits) queue->drain();
            for (;;) {
              if (queue->outstanding() < 4) queue->read(1, 0, back.data(), back.size(), [](std::uint16_t) {});
              queue->poll();
            }
          },
          std::runtime_error);
      queue->abandon();
    };
    std::thread one(host, true), other(host, false);
    while (under_way != 2) std::this_thread::yield();
    if (round + 1 < kRounds)
      ssd.reset();
    else
      ssd.close();
    one.join();
    other.join();
  }
}

TEST(Ssd, IsNotResetByWhatItsQueueCalls) {
  Ssd ssd(small_device());
  const auto queue = ssd.queue(4);
  std::vector<std::byte> back(512);
  int refused = 0;
  queue->read(1, 0, back.data(), back.size(), [&](std::uint16_t) {
    EXPECT_THROW(ssd.reset(), std::runtime_error);
    EXPECT_THROW(ssd.close(), std::runtime_error);
    ++refused;
  });
  queue->drain();
  EXPECT_EQ(refused, 1);
  queue->read(1, 0, back.data(), back.size(), [](std::uint16_t status) { EXPECT_EQ(status, 0); });
  queue->drain();
}

// Each of these waited forever: for a slot, in drain(), in the queue's destructor, in close().
TEST(Ssd, LostCommandsEndEveryWait) {
  DeviceConfig config = small_device();
  config.faults = {"lose on=read"};
  Ssd ssd(config);
  ssd.set_timeout(50'000'000);
  const std::vector<std::byte> data = noise(8 * 128 * 1024, 3);
  std::vector<std::byte> back(data.size());
  const auto never = [](std::uint16_t) { ADD_FAILURE() << "a lost command was completed"; };
  auto queue = ssd.queue(2);
  queue->read(1, 0, back.data(), 512, never);
  EXPECT_THROW(queue->drain(), TimeoutError);
  // Of a request that needs more slots than there are, the first part was sent; it is forgotten.
  EXPECT_THROW(queue->read(1, 0, back.data(), back.size(), never), TimeoutError);
  EXPECT_EQ(queue->outstanding(), 1u);
  queue.reset();
  queue = ssd.queue(2);
  queue->read(1, 0, back.data(), 512, never);
  queue->abandon();
  EXPECT_EQ(queue->outstanding(), 0u);
  ssd.set_faults({"lose on=admin"});
  EXPECT_THROW(ssd.identify(1, 0), TimeoutError);
  ssd.close();
}

TEST(Ssd, WhatIsAbandonedTouchesNoBuffer) {
  DeviceConfig config = small_device();
  config.faults = {"delay on=read delay=20ms"};
  Ssd ssd(config);
  const auto queue = ssd.queue(2);
  std::vector<std::byte> data(512, std::byte{1});
  queue->write(1, 0, data.data(), data.size(), [](std::uint16_t) {});
  queue->drain();
  std::vector<std::byte> back(512);
  queue->read(1, 0, back.data(), back.size(), [](std::uint16_t) { ADD_FAILURE() << "called after abandon()"; });
  queue->abandon();
  // The second read ends after the first, whose slot is free again by then.
  std::vector<std::byte> other(512);
  queue->read(1, 0, other.data(), other.size(), [](std::uint16_t status) { EXPECT_EQ(status, 0); });
  queue->drain();
  EXPECT_EQ(other, data);
  EXPECT_EQ(back, std::vector<std::byte>(512));
}

TEST(Ssd, ADeadControllerIsSaidAndClosed) {
  DeviceConfig config = small_device();
  config.faults = {"fatal on=read at=1"};
  Ssd ssd(config);
  const auto queue = ssd.queue(2);
  std::vector<std::byte> back(512);
  EXPECT_FALSE(ssd.fatal());
  queue->read(1, 0, back.data(), back.size(), [](std::uint16_t) {});
  EXPECT_THROW(queue->drain(), FatalError);
  EXPECT_TRUE(ssd.fatal());
  EXPECT_THROW(ssd.identify(1, 0), FatalError);
  ssd.close();
}

TEST(Ssd, FailedAdminCommandsCarryTheirStatus) {
  DeviceConfig config = small_device();
  Ssd ssd(config);
  try {
    ssd.log_page(0x99, 512);
    FAIL() << "a log page that there is not";
  } catch (const StatusError& error) {
    EXPECT_EQ(error.status_field() & 0x7FF, 0x109) << "Invalid Log Page";
  }
}

}  // namespace
}  // namespace flashmob
