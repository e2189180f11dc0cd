#include "engine/fault_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/fault_injector.h"
#include "flashmob/error.h"
#include "nvme/opcode.h"

namespace flashmob::engine {
namespace {

nvme::Sqe command(nvme::NvmOpcode opcode, std::uint64_t lba = 0, std::uint32_t blocks = 1, std::uint32_t nsid = 1) {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.nsid = nsid;
  sqe.cdw10 = static_cast<std::uint32_t>(lba);
  sqe.cdw11 = static_cast<std::uint32_t>(lba >> 32);
  sqe.cdw12 = blocks - 1;
  return sqe;
}

TEST(FaultRule, WordsAndWhatTheyMean) {
  const FaultRule rule = FaultRule::parse("error,on=write nsid=2  lba=100-0x80 p=0.25 times=3 seed=9 status=0x182");
  EXPECT_EQ(rule.kind, FaultKind::error);
  EXPECT_FALSE(rule.admin);
  EXPECT_EQ(rule.command, "write");
  EXPECT_EQ(rule.nsid, 2u);
  EXPECT_EQ(rule.first_lba, 100u);
  EXPECT_EQ(rule.last_lba, 128u);
  EXPECT_EQ(rule.probability, 0.25);
  EXPECT_EQ(rule.times, 3u);
  EXPECT_EQ(rule.seed, 9u);
  EXPECT_EQ(rule.status, nvme::Status::attempted_write_to_read_only_range);
  EXPECT_EQ(FaultRule::parse("delay delay=1.5ms").delay_ns, 1'500'000u);
  EXPECT_EQ(FaultRule::parse("reorder").delay_ns, 1'000'000u) << "it needs no time";
  EXPECT_TRUE(FaultRule::parse("error on=identify").admin);
  EXPECT_TRUE(FaultRule::parse("lose").command.empty()) << "every I/O command";
}

TEST(FaultRule, Mistakes) {
  for (const char* text : {"",
                           "  ",
                           "explode",
                           "on=read",
                           "error on=reed",
                           "error p=0",
                           "error p=1.01",
                           "error p=nan",
                           "error p=0.1x",
                           "error every=0",
                           "error at=0",
                           "error every=2 at=3",
                           "error times=-1",
                           "error nsid=0",
                           "error status=0",
                           "error status=281",
                           "error status=0x000",
                           "error on=read on=write",
                           "error status=0x800",
                           "error status=",
                           "lose status=0x6",
                           "delay",
                           "delay delay=0",
                           "delay delay=-1s",
                           "delay delay=3h",
                           "delay delay=5",
                           "delay delay=2y",
                           "error delay=1ms",
                           "error lba=9-8",
                           "error lba=x",
                           "error lba=5-",
                           "error on=admin lba=4",
                           "error on=store lba=4",
                           "lose on=retrieve lba=0-9",
                           "error on=flush lba=0",
                           "corrupt on=flush",
                           "corrupt on=zone-send",
                           "corrupt on=admin",
                           "error seed=1.5",
                           "error loud"}) {
    EXPECT_THROW(FaultRule::parse(text), ConfigError) << '"' << text << '"';
  }
}

TEST(FaultRule, WhichCommandsItIsMeantFor) {
  const nvme::Sqe read = command(nvme::NvmOpcode::read, 96, 8);
  EXPECT_TRUE(FaultRule::parse("error").is_meant_for(read, false));
  EXPECT_FALSE(FaultRule::parse("error").is_meant_for(read, true)) << "an admin command of the same opcode";
  EXPECT_TRUE(FaultRule::parse("error on=admin").is_meant_for(read, true));
  EXPECT_FALSE(FaultRule::parse("error on=write").is_meant_for(read, false));
  EXPECT_FALSE(FaultRule::parse("error nsid=2").is_meant_for(read, false));
  EXPECT_TRUE(FaultRule::parse("error lba=103").is_meant_for(read, false)) << "its last block";
  EXPECT_TRUE(FaultRule::parse("error lba=0-96").is_meant_for(read, false)) << "its first block";
  EXPECT_FALSE(FaultRule::parse("error lba=104").is_meant_for(read, false));
  EXPECT_FALSE(FaultRule::parse("error lba=0-95").is_meant_for(read, false));
  EXPECT_FALSE(FaultRule::parse("error lba=0").is_meant_for(command(nvme::NvmOpcode::flush), false));
  EXPECT_FALSE(FaultRule::parse("corrupt").is_meant_for(command(nvme::NvmOpcode::verify), false));
}

TEST(FaultInjector, CountsAndHits) {
  FaultInjector faults;
  EXPECT_FALSE(faults.armed());
  faults.set({"error every=3", "delay at=2 delay=5us", "lose times=1"});
  EXPECT_TRUE(faults.armed());
  const nvme::Sqe read = command(nvme::NvmOpcode::read);
  EXPECT_EQ(faults.match(read, false).kind, FaultKind::lose) << "the first rule that hits";
  EXPECT_EQ(faults.match(read, false).kind, FaultKind::delay);
  const Fault third = faults.match(read, false);
  EXPECT_EQ(third.kind, FaultKind::error);
  EXPECT_EQ(third.status, nvme::Status::unrecovered_read_error);
  EXPECT_EQ(faults.match(read, false).kind, FaultKind::none);
  EXPECT_EQ(faults.match(read, true).kind, FaultKind::none);
  const auto counts = faults.counts();
  ASSERT_EQ(counts.size(), 3u);
  EXPECT_EQ(counts[0].rule, "error every=3");
  EXPECT_EQ(counts[0].matched, 4u);
  EXPECT_EQ(counts[0].injected, 1u);
  EXPECT_EQ(faults.lost_ios(), 1u);
  EXPECT_EQ(faults.hit_ios(), 3u);
  EXPECT_THROW(faults.set({"error", "nonsense"}), ConfigError);
  EXPECT_EQ(faults.counts().size(), 3u) << "a mistake changes nothing";
  faults.set({});
  EXPECT_FALSE(faults.armed());
  EXPECT_EQ(faults.hit_ios(), 3u) << "what was done stays done";
}

// What is over by then is nobody's any more who looks from then on.
TEST(FaultInjector, TellsWhatGoesOn) {
  FaultInjector faults;
  faults.set({"delay delay=5us at=1", "delay delay=20us at=2", "error at=3", "delay delay=1us on=admin"});
  const nvme::Sqe read = command(nvme::NvmOpcode::read);
  for (const std::uint64_t now_ns : {1'000u, 2'000u, 3'000u}) faults.match(read, false, nvme::Csi::nvm, now_ns);
  faults.match(read, true, nvme::Csi::nvm, 4'000);
  const FaultSums all = faults.sums();
  EXPECT_EQ(all.hit, 3u) << "an admin command is none of a load's";
  EXPECT_EQ(all.delayed, 2u);
  EXPECT_EQ(all.delayed_ns, 25'000u);
  const FaultSums over = faults.sums_over_by(6'000);
  EXPECT_EQ(over.hit, 2u);
  EXPECT_EQ(over.delayed_ns, 5'000u);
  EXPECT_EQ(faults.sums_over_by(5'999).delayed, 0u);
  EXPECT_EQ(faults.sums_over_by(22'000).delayed_ns, 25'000u);
}

TEST(FaultInjector, TheSeedDecides) {
  const auto hits = [](const std::string& rule) {
    FaultInjector faults;
    faults.set({rule});
    std::vector<bool> all;
    for (int i = 0; i < 2000; ++i)
      all.push_back(faults.match(command(nvme::NvmOpcode::read), false).kind != FaultKind::none);
    return all;
  };
  const auto first = hits("lose p=0.1 seed=4");
  EXPECT_EQ(first, hits("lose p=0.1 seed=4"));
  EXPECT_NE(first, hits("lose p=0.1 seed=5"));
  const auto many = std::count(first.begin(), first.end(), true);
  EXPECT_GT(many, 140);
  EXPECT_LT(many, 260);
}

// An opcode is what the namespace's command set says it is.
TEST(FaultRule, CommandsAreTheirSets) {
  nvme::Sqe append = command(nvme::NvmOpcode::write);
  append.opcode = static_cast<std::uint8_t>(nvme::ZonedOpcode::zone_append);
  const FaultRule rule = FaultRule::parse("error on=zone-append");
  EXPECT_TRUE(rule.is_meant_for(append, false, nvme::Csi::zoned));
  EXPECT_FALSE(rule.is_meant_for(append, false, nvme::Csi::nvm));
  EXPECT_FALSE(rule.is_meant_for(command(nvme::NvmOpcode::write), false, nvme::Csi::zoned));
  EXPECT_TRUE(
      FaultRule::parse("error on=write").is_meant_for(command(nvme::NvmOpcode::write), false, nvme::Csi::zoned));
  EXPECT_FALSE(
      FaultRule::parse("error on=write").is_meant_for(command(nvme::NvmOpcode::write), false, nvme::Csi::key_value))
      << "a Store is no Write";
}

}  // namespace
}  // namespace flashmob::engine
