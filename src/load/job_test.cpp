// The job against a scripted device in virtual time: what it asks, when, and what it counts.
#include "load/job.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "driver/fake_nvme.h"
#include "load/arrivals.h"
#include "media/block_content.h"
#include "nvme/opcode.h"

namespace flashmob::load {
namespace {

constexpr std::uint64_t kSectors = 256;
constexpr std::uint32_t kRing = 101;
constexpr std::uint64_t kLatencyNs = 10'000;
constexpr std::uint64_t kSeed = 9;
constexpr std::uint64_t kStartNs = 1'000'000;

// One I/O queue (number 1) of a device that answers each command after a fixed time.
class JobTest : public testing::Test {
 protected:
  JobTest()
      : media_(kSectors * 512),
        sq_(device_, kRing * sizeof(nvme::Sqe)),
        cq_(device_, kRing * sizeof(nvme::Cqe)),
        pair_(device_, 1, reinterpret_cast<nvme::Sqe*>(sq_.data()), kRing, reinterpret_cast<nvme::Cqe*>(cq_.data()),
              kRing) {
    media::fill_sectors(media_, 0, 1, 0, kSeed);
    config_.queue_depth = 8;
    config_.runtime_ns = 1'000'000;
    config_.verify_percent = 100;
    pattern_.namespace_blocks = kSectors;
  }

  void make(std::uint64_t requesters, double rate_iops = 0, std::vector<TraceIo> trace = {}) {
    const bool writes = pattern_.rw != "randread" || !trace.empty();
    verifier_ =
        std::make_unique<Verifier>(TruthSource::content, media_.size(), 1, kSeed, writes, std::span<const std::byte>{});
    job_ = std::make_unique<Job>(config_, clock_, device_, *verifier_, [this] { ++measures_; }, [this] { ++ends_; });
    job_->add_queue(pair_, Pattern(pattern_, Rng(1)), requesters, rate_iops, std::move(trace));
    job_->prepare();
  }

  // Runs to the end; false if the job never ends.
  bool run() {
    for (int step = 0; step < 200'000 && !job_->done(); ++step) {
      device_turn();
      const bool worked = job_->poll();
      device_turn();
      std::uint64_t next = clock_.now_ns() + 100;
      if (!worked) {
        next = job_->next_deadline_ns();
        if (!flight_.empty()) next = std::min(next, flight_.begin()->first);
        if (next == UINT64_MAX) next = clock_.now_ns() + 100;
      }
      clock_.advance_to(std::max(next, clock_.now_ns() + 1));
    }
    return job_->done();
  }

  virtual std::uint16_t execute(const nvme::Sqe& sqe) {
    const std::uint64_t slba = sqe.cdw10 | (std::uint64_t{sqe.cdw11} << 32);
    const std::uint64_t blocks = (sqe.cdw12 & 0xFFFF) + 1;
    const bool read = sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::read);
    const bool write = sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::write);
    if (!read && !write) return 0;
    EXPECT_LE(slba + blocks, kSectors);
    if (slba + blocks > kSectors) return 0x80;
    device_.transfer(sqe, {media_.data() + slba * 512, blocks * 512}, read);
    EXPECT_FALSE(device_.transfer_failed());
    return 0;
  }

  void device_turn() {
    const std::uint32_t tail = device_.doorbells()[2];
    for (; head_ != tail; head_ = (head_ + 1) % kRing) {
      nvme::Sqe sqe;
      std::memcpy(&sqe, sq_.data() + head_ * sizeof(sqe), sizeof(sqe));
      flight_.emplace(clock_.now_ns() + kLatencyNs, sqe);
      fetched_.push_back({clock_.now_ns(), sqe});
      most_in_flight_ = std::max(most_in_flight_, flight_.size());
    }
    while (!flight_.empty() && flight_.begin()->first <= clock_.now_ns()) {
      const nvme::Sqe sqe = flight_.begin()->second;
      flight_.erase(flight_.begin());
      nvme::Cqe entry{};
      entry.cid = sqe.cid;
      entry.status_phase = static_cast<std::uint16_t>((execute(sqe) << 1) | phase_);
      std::memcpy(cq_.data() + cq_tail_ * sizeof(entry), &entry, sizeof(entry));
      if (++cq_tail_ == kRing) {
        cq_tail_ = 0;
        phase_ ^= 1;
      }
    }
  }

  JobConfig config_;
  PatternConfig pattern_;
  Clock clock_ = Clock::virtual_from(1'000'000);
  driver::FakeNvme device_;
  std::vector<std::byte> media_;
  driver::DmaMemory sq_;
  driver::DmaMemory cq_;
  driver::QueuePair pair_;
  std::unique_ptr<Verifier> verifier_;
  std::unique_ptr<Job> job_;
  std::multimap<std::uint64_t, nvme::Sqe> flight_;
  std::vector<std::pair<std::uint64_t, nvme::Sqe>> fetched_;
  std::size_t most_in_flight_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t cq_tail_ = 0;
  std::uint16_t phase_ = 1;
  int measures_ = 0;
  int ends_ = 0;
};

TEST_F(JobTest, TheClosedLoopKeepsItsDepth) {
  config_.ramp_ns = 100'000;
  make(8);
  ASSERT_TRUE(run());
  const JobStats& stats = job_->stats();
  EXPECT_EQ(most_in_flight_, 8u);
  EXPECT_NEAR(static_cast<double>(stats.ios), 8.0 * 100, 60);
  EXPECT_EQ(stats.of(IoKind::read).ios, stats.ios);
  EXPECT_EQ(stats.bytes, stats.ios * 512);
  EXPECT_GE(stats.latency_ns.min(), kLatencyNs) << "exact, and never below the device's";
  EXPECT_EQ(stats.latency_ns.count(), stats.ios + stats.outstanding);
  EXPECT_LE(stats.latency_ns.max(), kLatencyNs + 1'000);
  EXPECT_GE(stats.verified, stats.ios);
  EXPECT_EQ(stats.verify_errors, 0u);
  EXPECT_TRUE(stats.errors.empty());
  EXPECT_EQ(measures_, 1);
  EXPECT_EQ(ends_, 1);
  EXPECT_FALSE(job_->poll());
  EXPECT_EQ(job_->next_deadline_ns(), UINT64_MAX);
}

// More completions than one visit to a queue takes.
TEST_F(JobTest, OneInterruptIsEnoughForAllThatWaits) {
  config_.use_interrupts = true;
  config_.queue_depth = 100;
  make(100);
  EXPECT_TRUE(job_->poll());
  device_turn();
  clock_.advance_to(clock_.now_ns() + kLatencyNs);
  device_turn();
  EXPECT_FALSE(job_->poll()) << "nobody told it of the completions";
  EXPECT_EQ(job_->in_flight(), 100u);
  job_->mark_ready(0);
  EXPECT_TRUE(job_->poll());
  EXPECT_EQ(job_->completed(), 100u);
  EXPECT_EQ(job_->in_flight(), 100u) << "each was followed by the next";
  EXPECT_FALSE(job_->poll());
}

TEST_F(JobTest, FewerRequestersUseLessThanTheQueue) {
  make(3);
  ASSERT_TRUE(run());
  EXPECT_EQ(most_in_flight_, 3u);
}

TEST_F(JobTest, MoreRequestersThanSlotsWaitAndTheirWaitCounts) {
  make(16);
  ASSERT_TRUE(run());
  EXPECT_EQ(most_in_flight_, 8u);
  // Half of each round trip is spent before a slot is free.
  EXPECT_NEAR(job_->stats().latency_ns.mean(), 2.0 * kLatencyNs, 0.1 * kLatencyNs);
}

// What a request waits for a slot is told apart from what it waits for the device, and for us to look.
TEST_F(JobTest, WaitsForSlotsAreToldApart) {
  config_.tells_waits = true;
  make(16);
  ASSERT_TRUE(run());
  EXPECT_EQ(job_->stats().served_ns.count(), job_->stats().latency_ns.count());
  EXPECT_NEAR(job_->stats().served_ns.mean(), kLatencyNs, 0.05 * kLatencyNs);
  EXPECT_EQ(job_->stats().of(IoKind::read).served_ns.count(), job_->stats().served_ns.count());
}

TEST_F(JobTest, WaitsOfThoseWhoPauseAreToldApart) {
  config_.tells_waits = true;
  config_.think_time_ns = 5'000;
  make(16);
  ASSERT_TRUE(run());
  EXPECT_NEAR(job_->stats().latency_ns.mean(), 1.5 * kLatencyNs, 0.1 * kLatencyNs);
  EXPECT_NEAR(job_->stats().served_ns.mean(), kLatencyNs, 0.05 * kLatencyNs);
}

TEST_F(JobTest, AnOpenLoopsWaitsForSlotsAreToldApart) {
  config_.tells_waits = true;
  config_.loop = LoopKind::open;
  config_.poisson = false;
  make(8, 1'600'000);
  ASSERT_TRUE(run());
  EXPECT_GT(job_->stats().latency_ns.mean(), 10.0 * kLatencyNs);
  EXPECT_NEAR(job_->stats().served_ns.mean(), kLatencyNs, 0.05 * kLatencyNs);
}

TEST_F(JobTest, ACountedRunEndsByCount) {
  config_.ios = 100;
  config_.ramp_ios = 16;
  config_.runtime_ns = 0;
  make(8);
  ASSERT_TRUE(run());
  EXPECT_GE(job_->stats().ios, 100u);
  EXPECT_LE(job_->stats().ios, 108u);
  EXPECT_GE(job_->completed(), 116u);
}

TEST_F(JobTest, ThinkTimeSeparatesRequests) {
  config_.think_time_ns = 90'000;
  make(2);
  ASSERT_TRUE(run());
  EXPECT_NEAR(static_cast<double>(job_->stats().ios), 2.0 * 10, 2);
  EXPECT_LE(job_->stats().latency_ns.max(), kLatencyNs + 1'000);
}

TEST_F(JobTest, AFixedRateArrivesEvenly) {
  config_.loop = LoopKind::open;
  config_.poisson = false;
  make(8, 200'000);
  ASSERT_TRUE(run());
  EXPECT_NEAR(static_cast<double>(job_->stats().ios), 200, 4);
  for (std::size_t i = 1; i < fetched_.size(); ++i)
    ASSERT_NEAR(static_cast<double>(fetched_[i].first - fetched_[i - 1].first), 5'000, 210) << i;
}

TEST_F(JobTest, PoissonArrivalsKeepTheRateAndVary) {
  config_.loop = LoopKind::open;
  config_.runtime_ns = 20'000'000;
  make(8, 100'000);
  ASSERT_TRUE(run());
  EXPECT_NEAR(static_cast<double>(job_->stats().ios), 2'000, 200);
  std::size_t close = 0;
  for (std::size_t i = 1; i < fetched_.size(); ++i) close += fetched_[i].first - fetched_[i - 1].first < 5'000;
  EXPECT_NEAR(static_cast<double>(close) / static_cast<double>(fetched_.size()), 0.39, 0.06);
}

TEST_F(JobTest, AnOverloadedOpenLoopCountsTheBacklog) {
  config_.loop = LoopKind::open;
  config_.poisson = false;
  make(8, 1'600'000);  // twice what eight slots of 10 us can do
  ASSERT_TRUE(run());
  EXPECT_EQ(most_in_flight_, 8u);
  EXPECT_GT(job_->stats().latency_ns.max(), 400'000u) << "a slow device must not hide behind its back-pressure";
}

TEST_F(JobTest, MixedReadsAndWritesOnCrowdedSpaceVerify) {
  pattern_.rw = "randrw";
  pattern_.read_share = 0.5;
  pattern_.namespace_blocks = 8;  // sixteen commands fight for eight sectors
  config_.queue_depth = 16;
  config_.runtime_ns = 10'000'000;
  make(16);
  ASSERT_TRUE(run());
  const JobStats& stats = job_->stats();
  EXPECT_EQ(stats.verify_errors, 0u) << stats.first_error;
  EXPECT_GT(stats.verified, 100u);
  EXPECT_NEAR(static_cast<double>(stats.of(IoKind::write).ios) / static_cast<double>(stats.ios), 0.5, 0.05);
}

// What went elsewhere is known by its turn, of as many as there is room for; what is not in the list is counted.
TEST_F(JobTest, RequestsThatWentElsewhereAreListed) {
  pattern_.rw = "randwrite";
  pattern_.namespace_blocks = 16;
  config_.loop = LoopKind::open;
  for (const bool lists : {true, false}) {
    config_.lists_moved = lists;
    fetched_.clear();
    make(0, 700'000);
    ASSERT_TRUE(run());
    Pattern drawn(pattern_, Rng(1));
    std::size_t moved = 0;
    MovedList::Reader listed(&job_->moved(0));
    for (std::size_t turn = 0; turn < fetched_.size(); ++turn) {
      const std::uint64_t slba = fetched_[turn].second.cdw10;
      std::uint64_t where = 0;
      const bool is_listed = listed.take(turn, where);
      const bool is_moved = slba != drawn.next().slba;
      EXPECT_EQ(is_listed, lists && is_moved) << turn;
      if (is_listed) {
        EXPECT_EQ(where, slba);
      }
      moved += is_moved;
    }
    EXPECT_GT(moved, 50u);
    EXPECT_EQ(job_->stats().moved, lists ? 0 : moved);
  }
}

TEST_F(JobTest, WrongDataIsFoundAndExplained) {
  media_[100 * 512 + 7] ^= std::byte{1};
  config_.runtime_ns = 5'000'000;
  make(8);
  ASSERT_TRUE(run());
  EXPECT_GT(job_->stats().verify_errors, 0u);
  EXPECT_EQ(job_->verify_errors(), job_->stats().verify_errors);
  EXPECT_NE(job_->stats().first_error.find("sector 100"), std::string::npos) << job_->stats().first_error;
}

TEST_F(JobTest, AShareOfReadsIsVerified) {
  config_.verify_percent = 25;
  config_.runtime_ns = 5'000'000;
  make(8);
  ASSERT_TRUE(run());
  EXPECT_NEAR(static_cast<double>(job_->stats().verified) / static_cast<double>(job_->completed()), 0.25, 0.01);
}

TEST_F(JobTest, CancelEndsAtOnceAndReports) {
  config_.runtime_ns = JobConfig::kNoEnd;
  make(8);
  for (int i = 0; i < 1'000; ++i) {
    device_turn();
    job_->poll();
    clock_.advance_to(clock_.now_ns() + 100);
  }
  EXPECT_TRUE(job_->measuring());
  job_->cancel();
  ASSERT_TRUE(run());
  EXPECT_EQ(ends_, 1);
  EXPECT_TRUE(flight_.empty());
  EXPECT_GT(job_->stats().ended_ns, job_->stats().started_ns);
}

TEST_F(JobTest, ATraceIsPlayedInTimeAndInOrder) {
  std::vector<TraceIo> trace{{0, 0, 512, TraceKind::read},
                             {20'000, 1024, 1024, TraceKind::write},
                             {40'000, 0, 0, TraceKind::flush},
                             {60'000, 4096, 4096, TraceKind::trim},
                             {80'000, 1024, 1024, TraceKind::read}};
  config_.loop = LoopKind::trace;
  config_.max_io_bytes = 4096;
  config_.runtime_ns = JobConfig::kNoEnd;
  pattern_.rw = "randread";
  make(8, 0, trace);
  ASSERT_TRUE(run());
  ASSERT_EQ(fetched_.size(), 5u);
  const std::uint8_t opcodes[] = {0x02, 0x01, 0x00, 0x09, 0x02};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(fetched_[i].second.opcode, opcodes[i]) << i;
    EXPECT_NEAR(static_cast<double>(fetched_[i].first - fetched_[0].first), static_cast<double>(trace[i].time_ns), 300);
  }
  EXPECT_EQ(fetched_[1].second.cdw10, 2u);
  EXPECT_EQ(fetched_[1].second.cdw12 & 0xFFFF, 1u);
  EXPECT_EQ(job_->stats().verified, 2u);
  EXPECT_EQ(job_->stats().verify_errors, 0u) << job_->stats().first_error;
  EXPECT_EQ(job_->stats().of(IoKind::write).ios, 1u);
}

TEST_F(JobTest, ATraceAsFastAsPossibleKeepsTheQueueFull) {
  std::vector<TraceIo> trace;
  for (std::uint64_t i = 0; i < 100; ++i) trace.push_back({i * 1'000'000, i % 256 * 512, 512, TraceKind::read});
  config_.loop = LoopKind::trace_as_fast;
  config_.runtime_ns = JobConfig::kNoEnd;
  make(8, 0, trace);
  const std::uint64_t start_ns = clock_.now_ns();
  ASSERT_TRUE(run());
  EXPECT_EQ(fetched_.size(), 100u);
  EXPECT_EQ(most_in_flight_, 8u);
  EXPECT_LT(clock_.now_ns() - start_ns, 200'000u);
}

// The device stops answering just before the end of the measured time, and goes on a while after it.
TEST_F(JobTest, AStallAtTheEndIsNotLost) {
  make(8);
  bool stalled = false;
  for (int step = 0; step < 200'000 && !job_->done(); ++step) {
    const std::uint64_t at_ns = clock_.now_ns();
    stalled = at_ns > 900'000 + kStartNs && at_ns < 3'000'000 + kStartNs;
    if (!stalled) device_turn();
    job_->poll();
    clock_.advance_to(at_ns + 100);
  }
  ASSERT_TRUE(job_->done());
  const JobStats& stats = job_->stats();
  EXPECT_EQ(stats.outstanding, 8u);
  EXPECT_GE(stats.oldest_ns, 90'000u);
  EXPECT_EQ(stats.backlog, 0u);
  EXPECT_GE(stats.latency_ns.max(), 2'000'000u);
  EXPECT_EQ(stats.latency_ns.count(), stats.ios + 8);
}

TEST_F(JobTest, RequestersWithoutASlotAreToldToo) {
  config_.queue_depth = 2;
  make(10);
  ASSERT_TRUE(run());
  const JobStats& stats = job_->stats();
  EXPECT_EQ(stats.outstanding, 2u);
  EXPECT_EQ(stats.backlog, 8u);
  EXPECT_GT(stats.oldest_ns, 3 * kLatencyNs) << "of five rounds";
  EXPECT_EQ(stats.latency_ns.count(), stats.ios + stats.outstanding) << "others wait at any time";
}

TEST_F(JobTest, RequestsThatNeverFoundASlotCountWithTheirAge) {
  config_.loop = LoopKind::open;
  config_.poisson = false;
  config_.queue_depth = 2;
  make(0, 400'000);  // the device gives 200,000
  ASSERT_TRUE(run());
  const JobStats& stats = job_->stats();
  EXPECT_NEAR(static_cast<double>(stats.backlog), 200, 10);
  EXPECT_NEAR(static_cast<double>(stats.oldest_ns), 500'000, 30'000);
  EXPECT_EQ(stats.latency_ns.count(), stats.ios + stats.outstanding + stats.backlog);
  EXPECT_GE(stats.latency_ns.max(), 480'000u);
}

TEST_F(JobTest, EqualSeedsGiveEqualArrivals) {
  config_.loop = LoopKind::open;
  make(0, 100'000);
  ASSERT_TRUE(run());
  Arrivals same(config_.seed, 0, 100'000, true);
  same.start(job_->begun_ns());
  for (const auto& [at_ns, sqe] : fetched_) {
    ASSERT_LE(same.next_ns(), at_ns);
    ASSERT_GE(same.next_ns() + 200, at_ns);
    same.advance();
  }
}

// A device that refuses some commands.
class RefusingDevice : public JobTest {
 protected:
  std::uint16_t execute(const nvme::Sqe& sqe) override {
    if (++turn_ % 5 == 0) {
      // It stored half of what it refused: nobody may rely on either content.
      if (sqe.opcode == 0x01) media_[sqe.cdw10 * 512 + 20] ^= std::byte{0xFF};
      return 0x281;
    }
    return JobTest::execute(sqe);
  }
  int turn_ = 0;
};

TEST_F(RefusingDevice, ErrorsAreCountedByStatusAndLeaveSectorsUnknown) {
  pattern_.rw = "randrw";
  pattern_.read_share = 0.5;
  config_.runtime_ns = 5'000'000;
  make(8);
  ASSERT_TRUE(run());
  const JobStats& stats = job_->stats();
  ASSERT_EQ(stats.errors.size(), 1u);
  EXPECT_NEAR(static_cast<double>(stats.errors.at(0x281)), static_cast<double>(job_->completed()) / 5, 2);
  // What failed is no throughput.
  EXPECT_NEAR(static_cast<double>(stats.failed), static_cast<double>(stats.ios) / 4, 3);
  EXPECT_EQ(stats.bytes, stats.ios * 512);
  EXPECT_LE(stats.latency_ns.count(), stats.ios + stats.outstanding);
  EXPECT_EQ(stats.verify_errors, 0u) << stats.first_error;
  EXPECT_GT(stats.verified, 100u);
}

TEST(JobStats, MergeAddsAndSpans) {
  const auto a = std::make_unique<JobStats>();
  const auto b = std::make_unique<JobStats>();
  a->ios = 1;
  a->started_ns = 10;
  a->ended_ns = 20;
  a->errors[2] = 1;
  a->gaps = {1, 5, 5};
  b->ios = 2;
  b->started_ns = 8;
  b->ended_ns = 18;
  b->errors[2] = 1;
  b->errors[3] = 1;
  b->first_error = "b";
  b->gaps = {1, 7, 7};
  b->failed = 4;
  b->oldest_ns = 3;
  b->latency_ns.record(9);
  JobStats& sum = *a;
  sum.merge(*b);
  EXPECT_EQ(sum.ios, 3u);
  EXPECT_EQ(sum.started_ns, 8u);
  EXPECT_EQ(sum.ended_ns, 20u);
  EXPECT_EQ(sum.errors, (std::map<std::uint16_t, std::uint64_t>{{2, 2}, {3, 1}}));
  EXPECT_EQ(sum.first_error, "b");
  EXPECT_EQ(sum.gaps.total_ns, 7u);
  EXPECT_EQ(sum.failed, 4u);
  EXPECT_EQ(sum.oldest_ns, 3u);
  EXPECT_EQ(sum.latency_ns.count(), 1u);
}

}  // namespace
}  // namespace flashmob::load
