// What the GPU engine's commands do: data, errors, page lists, queues of odd depths.
#include <numeric>

#include "engine_rig.h"
#include "nvme/dataset.h"
#include "nvme/io_command.h"

namespace flashmob::gpu {
namespace {

using nvme::NvmOpcode;
using nvme::Status;

RigOptions options() {
  RigOptions o;
  o.timing = rig_timing();
  return o;
}

void fill(std::byte* at, std::size_t bytes, std::uint64_t seed) {
  Rng rng(seed);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = rng.next();
    std::memcpy(at + i, &word, 8);
  }
}

class Commands : public testing::Test {
 protected:
  Commands() : rig(options()), queue(rig.add_queue()) { rig.start(); }
  ~Commands() override { rig.end(); }

  Status run(nvme::Sqe sqe) {
    sqe.cid = cid_++;
    queue.submit(sqe);
    queue.ring();
    std::vector<nvme::Cqe> done;
    for (int i = 0; i < 200 && done.empty(); ++i) {
      rig.pass(1'000);
      done = queue.reap();
    }
    EXPECT_EQ(done.size(), 1u);
    if (done.empty()) return Status::internal_error;
    EXPECT_EQ(done[0].cid, sqe.cid);
    EXPECT_EQ(done[0].sqid, 1);
    EXPECT_EQ(done[0].sqhd, cid_ % 64);
    return status_of(done[0]);
  }

  EngineRig rig;
  RigQueue& queue;
  std::uint16_t cid_ = 0;
};

TEST_F(Commands, WriteThenReadOfEverySizeAndNamespace) {
  for (const std::uint32_t nsid : {1u, 2u}) {
    const std::uint64_t lba_bytes = nsid == 1 ? 512 : 4096;
    for (const std::uint32_t blocks : {1u, 2u, 8u, 31u, 32u}) {
      if (blocks * lba_bytes > EngineRig::kMaxTransfer) continue;
      SCOPED_TRACE(blocks);
      const std::size_t bytes = blocks * lba_bytes;
      // Buffers at an odd dword, so that pages are cut unevenly; a list for what has more than two pages.
      const std::uint64_t offset = nsid == 1 ? 0x1004 : 0x1000;
      auto* const list = reinterpret_cast<std::uint64_t*>(rig.host());
      for (std::uint64_t i = 0; i < 33; ++i) list[i] = rig.iova(0x2000 + i * 0x1000);
      const std::uint64_t pages = ((offset & 0xFFF) + bytes + 0xFFF) / 0x1000;
      const std::uint64_t prp2 = pages <= 1 ? 0 : pages == 2 ? rig.iova(0x2000) : rig.iova(0);
      fill(rig.host() + offset, bytes, blocks + nsid);
      const std::vector<std::byte> sent(rig.host() + offset, rig.host() + offset + bytes);
      EXPECT_EQ(run(command(NvmOpcode::write, 0, nsid, 3, blocks, rig.iova(offset), prp2)), Status::success);
      EXPECT_EQ(std::memcmp(rig.media(nsid) + 3 * lba_bytes, sent.data(), bytes), 0);
      std::memset(rig.host() + offset, 0, bytes);
      EXPECT_EQ(run(command(NvmOpcode::read, 0, nsid, 3, blocks, rig.iova(offset), prp2)), Status::success);
      EXPECT_EQ(std::memcmp(rig.host() + offset, sent.data(), bytes), 0);
      EXPECT_EQ(run(command(NvmOpcode::compare, 0, nsid, 3, blocks, rig.iova(offset), prp2)), Status::success);
      rig.media(nsid)[3 * lba_bytes + bytes - 1] ^= std::byte{1};
      EXPECT_EQ(run(command(NvmOpcode::compare, 0, nsid, 3, blocks, rig.iova(offset), prp2)), Status::compare_failure);
    }
  }
}

TEST_F(Commands, TheLongestTransferWithAListThatGoesOnInAnotherPage) {
  const std::uint64_t offset = 0x10200, bytes = EngineRig::kMaxTransfer;
  // Three entries and a link at the end of one page, the rest in another.
  auto* const first = reinterpret_cast<std::uint64_t*>(rig.host() + 0x1000 - 4 * 8);
  auto* const second = reinterpret_cast<std::uint64_t*>(rig.host() + 0x3000);
  for (std::uint64_t i = 0; i < 32; ++i) {
    const std::uint64_t page = rig.iova(0x11000 + i * 0x1000);
    if (i < 3)
      first[i] = page;
    else
      second[i - 3] = page;
  }
  first[3] = rig.iova(0x3000);
  fill(rig.host() + offset, bytes, 5);
  const std::uint64_t prp2 = rig.iova(0x1000 - 4 * 8);
  EXPECT_EQ(run(command(NvmOpcode::write, 0, 1, 256, 256, rig.iova(offset), prp2)), Status::success);
  EXPECT_EQ(std::memcmp(rig.media(1) + 256 * 512, rig.host() + offset, bytes), 0);
  EXPECT_EQ(run(command(NvmOpcode::read, 0, 1, 0, 257, rig.iova(offset), prp2)), Status::invalid_field);
}

TEST_F(Commands, ZeroesAndDeallocates) {
  fill(rig.media(1), 64 * 512, 9);
  EXPECT_EQ(run(command(NvmOpcode::write_zeroes, 0, 1, 2, 3)), Status::success);
  for (std::size_t i = 0; i < 512 * 3; ++i) ASSERT_EQ(rig.media(1)[2 * 512 + i], std::byte{0});
  EXPECT_NE(rig.media(1)[5 * 512], rig.media(1)[5 * 512 + 1]);
  auto* const ranges = reinterpret_cast<nvme::DatasetRange*>(rig.host() + 0x1FF0);  // across a page's border
  ranges[0] = {0, 4, 10};
  ranges[1] = {0, 1, 40};
  nvme::Sqe sqe = command(NvmOpcode::dataset_management, 0, 1, 0, 1, rig.iova(0x1FF0), rig.iova(0x2000));
  sqe.cdw10 = 1;
  sqe.cdw11 = nvme::kDatasetDeallocate;
  EXPECT_EQ(run(sqe), Status::success);
  for (std::size_t i = 0; i < 512 * 4; ++i) ASSERT_EQ(rig.media(1)[10 * 512 + i], std::byte{0});
  EXPECT_EQ(rig.media(1)[40 * 512], std::byte{0});
  ranges[1].slba = rig.blocks(1);
  EXPECT_EQ(run(sqe), Status::lba_out_of_range);
  EXPECT_EQ(run(command(NvmOpcode::flush, 0, 1)), Status::success);
  EXPECT_EQ(run(command(NvmOpcode::flush, 0, 0xFFFFFFFFu)), Status::success);
}

TEST_F(Commands, EveryMistakeHasItsStatus) {
  const std::uint64_t good = rig.iova(0x4000);
  const auto read = [&](std::uint32_t nsid, std::uint64_t lba, std::uint32_t blocks, std::uint64_t prp1,
                        std::uint64_t prp2 = 0) { return command(NvmOpcode::read, 0, nsid, lba, blocks, prp1, prp2); };
  EXPECT_EQ(run(read(1, rig.blocks(1) - 1, 1, good)), Status::success);
  EXPECT_EQ(run(read(1, rig.blocks(1), 1, good)), Status::lba_out_of_range);
  EXPECT_EQ(run(read(1, rig.blocks(1) - 1, 2, good)), Status::lba_out_of_range);
  EXPECT_EQ(run(read(1, UINT64_MAX, 2, good)), Status::lba_out_of_range);
  EXPECT_EQ(run(read(3, 0, 1, good)), Status::invalid_field);
  EXPECT_EQ(run(read(0, 0, 1, good)), Status::invalid_namespace_or_format);
  EXPECT_EQ(run(read(257, 0, 1, good)), Status::invalid_namespace_or_format);
  EXPECT_EQ(run(read(1, 0, 1, good + 2)), Status::prp_offset_invalid);
  EXPECT_EQ(run(read(1, 0, 1, 0x1000)), Status::data_transfer_error);
  EXPECT_EQ(run(read(1, 0, 1, EngineRig::kHostIova - 4)), Status::data_transfer_error);
  EXPECT_EQ(run(read(1, 0, 1, rig.iova((1 << 20) - 508))), Status::data_transfer_error);
  EXPECT_EQ(run(read(1, 0, 16, good, rig.iova(0x5004))), Status::prp_offset_invalid);
  EXPECT_EQ(run(read(1, 0, 16, good, 0x5000)), Status::data_transfer_error);
  EXPECT_EQ(run(read(1, 0, 24, good, rig.iova(4))), Status::prp_offset_invalid);
  EXPECT_EQ(run(read(1, 0, 24, good, 0x5000)), Status::data_transfer_error);
  auto* const list = reinterpret_cast<std::uint64_t*>(rig.host());
  list[0] = rig.iova(0x5000);
  list[1] = rig.iova(0x6008);
  EXPECT_EQ(run(read(1, 0, 24, good, rig.iova(0))), Status::prp_offset_invalid);
  EXPECT_EQ(run(command(NvmOpcode::compare, 0, 1, 0, 1, 0x1000)), Status::data_transfer_error);
  nvme::Sqe sqe = read(1, 0, 1, good);
  sqe.flags = nvme::kFlagPsdtSglBufferMetadata;
  EXPECT_EQ(run(sqe), Status::invalid_field);
  sqe.flags = nvme::kFlagFuseFirst;
  EXPECT_EQ(run(sqe), Status::invalid_field);
  sqe.flags = nvme::kFlagFuseSecond;
  EXPECT_EQ(run(sqe), Status::aborted_missing_fused);
  sqe = read(1, 0, 1, good);
  sqe.cdw12 |= 1u << nvme::kIoProtectionShift;
  EXPECT_EQ(run(sqe), Status::invalid_field);
  EXPECT_EQ(run(command(static_cast<NvmOpcode>(0x7F), 0, 1)), Status::invalid_opcode);
  EXPECT_EQ(run(command(NvmOpcode::verify, 0, 1)), Status::invalid_opcode);
}

TEST_F(Commands, AnInvalidDoorbellIsCountedAndForgiven) {
  queue.ring_with(64);
  rig.pass(20'000);
  EXPECT_EQ(run(command(NvmOpcode::flush, 0, 1)), Status::success);
}

TEST(GpuEngine, DepthsThatAreNoPowerOfTwoAndFullCompletionQueues) {
  constexpr std::uint32_t kCommands = 70;
  for (const std::uint32_t sq_entries : {2u, 3u, 31u, 33u}) {
    for (const std::uint32_t cq_entries : {2u, 5u, 40u}) {
      SCOPED_TRACE(std::to_string(sq_entries) + "/" + std::to_string(cq_entries));
      EngineRig rig(options());
      RigQueue& queue = rig.add_queue(sq_entries, cq_entries);
      rig.start();
      std::uint32_t sent = 0, done = 0;
      std::vector<bool> seen(kCommands);
      // The host reaps one at a time and lets the queue stand full for a while.
      for (int round = 0; round < 4000 && done < kCommands; ++round) {
        for (; sent < kCommands && queue.free_slots() != 0; ++sent)
          queue.submit(command(NvmOpcode::read, static_cast<std::uint16_t>(sent), 1, sent, 1, rig.iova(512 * sent)));
        queue.ring();
        rig.pass(2'000);
        for (const nvme::Cqe& cqe : queue.reap(1)) {
          ASSERT_LT(cqe.cid, kCommands);
          EXPECT_FALSE(seen[cqe.cid]);
          seen[cqe.cid] = true;
          EXPECT_EQ(status_of(cqe), Status::success);
          ++done;
        }
      }
      EXPECT_EQ(done, kCommands);
      rig.end();
    }
  }
}

TEST(GpuEngine, QueuesAreClosedWhileItRuns) {
  EngineRig rig(options());
  RigQueue& queue = rig.add_queue();
  RigQueue& other = rig.add_queue();
  rig.start();
  for (std::uint16_t i = 0; i < 20; ++i) {
    queue.submit(command(NvmOpcode::read, i, 1, i, 1, rig.iova(512 * i)));
    other.submit(command(NvmOpcode::read, i, 1, i, 1, rig.iova(512 * i)));
  }
  queue.ring();
  other.ring();
  rig.pass(5'000);  // fetched, none due
  rig.engine().close_sq(queue.device_sq, engine::QueueState::draining);
  rig.engine().close_sq(other.device_sq, engine::QueueState::dropping);
  rig.change();
  rig.pass(3'000);
  EXPECT_TRUE(rig.engine().closed(other.device_sq)) << "before its commands' targets";
  rig.pass(30'000);
  EXPECT_TRUE(rig.engine().closed(queue.device_sq));
  EXPECT_EQ(queue.reap().size(), 20u);
  EXPECT_EQ(other.reap().size(), 0u) << "a dropped queue's completions are not posted";
  // Its place is free for another.
  RigQueue& third = rig.add_queue();
  rig.change();
  third.submit(command(NvmOpcode::read, 7, 1, 0, 1, rig.iova(0)));
  third.ring();
  rig.pass(30'000);
  EXPECT_EQ(third.reap().size(), 1u);
  rig.end();
}

TEST(GpuEngine, DrainsBeforeItEndsAndStopsAtOnceWhenAsked) {
  for (const engine::Run how : {engine::Run::drain, engine::Run::stop}) {
    EngineRig rig(options());
    RigQueue& queue = rig.add_queue();
    rig.start();
    for (std::uint16_t i = 0; i < 40; ++i) queue.submit(command(NvmOpcode::read, i, 1, i, 1, rig.iova(512 * i)));
    queue.ring();
    rig.pass(6'000);
    const std::uint64_t before_ns = rig.now_ns();
    rig.end(how);
    if (how == engine::Run::drain)
      EXPECT_EQ(queue.reap().size(), 40u);
    else
      EXPECT_LT(rig.now_ns() - before_ns, 10'000u);
  }
}

TEST(GpuEngine, RegionsComeAndGo) {
  EngineRig rig(options());
  RigQueue& queue = rig.add_queue();
  rig.start();
  std::vector<std::byte> more(8192);
  auto* const aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(more.data()) + 4095) & ~4095ull);
  const auto read_to = [&](std::uint64_t iova) {
    queue.submit(command(NvmOpcode::read, 1, 1, 0, 1, iova));
    queue.ring();
    rig.pass(30'000);
    const auto done = queue.reap();
    return done.size() == 1 ? status_of(done[0]) : Status::internal_error;
  };
  EXPECT_EQ(read_to(0x5000), Status::data_transfer_error);
  const engine::Region host{EngineRig::kHostIova, 1 << 20, rig.host(), true};
  rig.engine().set_regions({host, {0x5000, 4096, aligned, true}, {0x9000, 4096, aligned, false}});
  rig.change();
  EXPECT_EQ(read_to(0x5000), Status::success);
  EXPECT_EQ(read_to(0x9000), Status::data_transfer_error) << "not writable";
  rig.engine().set_regions({host});
  rig.change();
  EXPECT_EQ(read_to(0x5000), Status::data_transfer_error);
  rig.end();
}

TEST(GpuEngine, HistogramsAreCutAsTheHosts) {
  for (unsigned bits = 0; bits < 50; ++bits) {
    for (const std::int64_t off : {-1, 0, 1, 77}) {
      const std::uint64_t value = (std::uint64_t{1} << bits) + static_cast<std::uint64_t>(off);
      EXPECT_EQ(engine::histogram_bucket(value), Histogram::bucket_of(value)) << value;
    }
  }
}

}  // namespace
}  // namespace flashmob::gpu
