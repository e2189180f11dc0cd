// Processes that are killed while they write to files: what they were told is written must be there, every block must
// be one that was written, whole, and what hosts changed of the drive itself must be as they were told.
//
// FLASHMOB_KILLS=1000 kills that many of each kind; 10 otherwise.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <thread>

#include "atomicity/kill_load.h"
#include "base/rng.h"

namespace flashmob::atomicity {
namespace {

int kills() {
  const char* const asked = std::getenv("FLASHMOB_KILLS");
  return asked != nullptr ? std::max(1, std::atoi(asked)) : 10;
}

class Kill : public testing::TestWithParam<Scene> {
 protected:
  Kill() : scene_(GetParam()) {
    scene_.folder = (std::filesystem::temp_directory_path() / "flashmob_kill_XXXXXX").string();
    EXPECT_NE(::mkdtemp(scene_.folder.data()), nullptr);
    void* const shared = ::mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(shared, MAP_FAILED);
    ledger_ = new (shared) Ledger{};
  }
  ~Kill() override {
    ::munmap(ledger_, sizeof(Ledger));
    std::filesystem::remove_all(scene_.folder);
  }

  // Starts a process, and kills it somewhere between its first commands and some hundreds later.
  void kill_one(Rng& rng) {
    const std::uint64_t until = ledger_->steps + 1 + rng.next() % 1000;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_until_killed(scene_, *ledger_, rng.next());
    int status = 0;
    bool gone = false;
    while (ledger_->steps < until && !gone) {
      gone = ::waitpid(child, &status, WNOHANG) == child;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(rng.next() % 3'000));
    if (!gone) {
      ::kill(child, SIGKILL);
      ASSERT_EQ(::waitpid(child, &status, 0), child);
    }
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << ledger_->failure.data();
  }

  // Of each kind of change that the kills are to meet at least one was acknowledged.
  bool saw_everything() const {
    return ledger_->fua_writes != 0 && ledger_->flushes != 0 && ledger_->plain.done != 0 && ledger_->fused_done != 0 &&
           (scene_.media != "file" || (ledger_->formats.done != 0 && ledger_->protect.done != 0));
  }

  Scene scene_;
  Ledger* ledger_ = nullptr;
};

TEST_P(Kill, WhatWasWrittenIsThereAndEveryBlockIsWhole) {
  Rng rng(static_cast<std::uint64_t>(::getpid()));
  // On a slow disk ten kills may come before any flush: then there are more, until everything was there.
  constexpr int kMostMore = 50;
  for (int kill = 0; kill < kills() || (kills() >= 10 && !saw_everything() && kill < kills() + kMostMore); ++kill) {
    kill_one(rng);
    if (HasFatalFailure()) return;
    const std::vector<std::string> wrong = what_is_wrong(scene_, *ledger_);
    if (kill % 100 == 99) std::cout << kill + 1 << " kills" << std::endl;
    ASSERT_TRUE(wrong.empty()) << wrong.size() << " after kill " << kill << ", the first: " << wrong[0];
  }
  std::uint64_t blocks = 0;
  for (const auto& generation : ledger_->written) blocks += generation;
  EXPECT_GT(blocks, 0u);
  if (kills() >= 10) {
    EXPECT_TRUE(saw_everything());
  }
  std::cout << kills() << " kills on " << scene_.media << " with " << scene_.units << " units: " << blocks
            << " blocks written, " << ledger_->fua_writes << " writes with FUA, " << ledger_->flushes << " flushes, "
            << ledger_->fused_done << " fused pairs and " << ledger_->fused_failed << " that did not match, against "
            << ledger_->plain.done << " plain writes, " << ledger_->formats.done << " formats that ended "
            << ledger_->cut_by_format << " writes, " << ledger_->feature.done << " saved features, "
            << ledger_->protect.done << " changes of protection\n";
}

// No plain write is lost to a pair whose Compare has not seen it.
TEST_P(Kill, FusedPairsAreOneStepForPlainWrites) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  const auto writes = static_cast<std::uint32_t>(100 * kills());
  if (child == 0) fight_over_a_block(scene_, *ledger_, writes);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << ledger_->failure.data();
  EXPECT_GE(ledger_->plain.done, writes);
  // How many of them match is chance.
  EXPECT_GT(ledger_->fused_done + ledger_->fused_failed, 0u);
  std::cout << ledger_->fused_done << " fused pairs and " << ledger_->fused_failed << " that did not match, against "
            << ledger_->plain.done << " plain writes\n";
}

INSTANTIATE_TEST_SUITE_P(Media, Kill,
                         testing::Values(Scene{.media = "file", .folder = {}, .units = 3},
                                         Scene{.media = "file", .folder = {}, .units = 1},
                                         Scene{.media = "direct", .folder = {}, .units = 2},
                                         Scene{.media = "direct", .folder = {}, .units = 1}),
                         [](const auto& scene) { return scene.param.media + std::to_string(scene.param.units); });

}  // namespace
}  // namespace flashmob::atomicity
