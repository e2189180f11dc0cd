// The whole device against an oracle, for many seeds: simulation_test [--seeds N] [--first S] [--trace].
//
// Each seed is a world of its own: other queues, other commands, other faults, another order of events. A failure names
// its seed, and `--first SEED --seeds 1 --trace` shows everything that happened in it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "driver/names.h"
#include "simulation/world.h"

namespace flashmob::simulation {
namespace {

#if defined(FLASHMOB_ASAN)
constexpr std::uint64_t kDefaultSeeds = 500;
#else
constexpr std::uint64_t kDefaultSeeds = 10'000;
#endif

std::uint64_t seeds = kDefaultSeeds;
std::uint64_t first_seed = 1;
bool tracing = false;

// An internal check that fails ends the process at once; the seed must not be lost with it.
std::uint64_t current_seed = 0;
extern "C" void name_seed(int) {
  char text[64];
  const int length =
      std::snprintf(text, sizeof text, "simulation: seed %llu\n", static_cast<unsigned long long>(current_seed));
  if (write(STDERR_FILENO, text, static_cast<std::size_t>(length)) < 0) _exit(134);
}

TEST(Simulation, EverySeedEndsWell) {
  Counters counters;
  const Trace trace = tracing ? Trace([](const std::string& line) { std::printf("%s\n", line.c_str()); }) : Trace();
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    current_seed = seed;
    try {
      run_world(seed, counters, trace);
    } catch (const std::exception& error) {
      FAIL() << "seed " << seed << ": " << error.what() << "\nreplay: simulation_test --first " << seed
             << " --seeds 1 --trace";
    }
  }
  std::printf("%llu seeds: %llu commands, %llu completions, %llu lost to resets and deletions\n",
              static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(counters.commands),
              static_cast<unsigned long long>(counters.completions), static_cast<unsigned long long>(counters.lost));
  for (const auto& [status, count] : counters.statuses)
    std::printf("%10llu %s\n", static_cast<unsigned long long>(count), driver::status_text(status).c_str());

  // A simulation that stops meeting these cases has stopped testing them.
  if (seeds < 200) return;
  for (const nvme::Status status :
       {nvme::Status::success, nvme::Status::invalid_opcode, nvme::Status::invalid_field,
        nvme::Status::data_transfer_error, nvme::Status::abort_requested, nvme::Status::aborted_sq_deletion,
        nvme::Status::aborted_failed_fused, nvme::Status::aborted_missing_fused,
        nvme::Status::invalid_namespace_or_format, nvme::Status::data_sgl_length_invalid,
        nvme::Status::sgl_descriptor_type_invalid, nvme::Status::prp_offset_invalid, nvme::Status::lba_out_of_range,
        nvme::Status::compare_failure, nvme::Status::unrecovered_read_error})
    EXPECT_GT(counters.statuses[nvme::to_field(status)], 0u) << driver::status_text(nvme::to_field(status));
}

TEST(Simulation, ASeedAlwaysGivesTheSameWorld) {
  for (std::uint64_t seed = first_seed; seed < first_seed + std::min<std::uint64_t>(seeds, 20); ++seed) {
    Counters one;
    Counters two;
    run_world(seed, one, {});
    run_world(seed, two, {});
    EXPECT_EQ(one.digest, two.digest) << "seed " << seed;
    EXPECT_EQ(one.completions, two.completions) << "seed " << seed;
    EXPECT_GT(one.completions, 0u);
  }
}

bool parse(int argc, char** argv) {
  if (const char* const from_environment = std::getenv("FLASHMOB_SIMULATION_SEEDS"))
    seeds = std::strtoull(from_environment, nullptr, 10);
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--trace") == 0)
      tracing = true;
    else if (std::strcmp(argv[i], "--seeds") == 0 && has_value)
      seeds = std::strtoull(argv[++i], nullptr, 10);
    else if (std::strcmp(argv[i], "--first") == 0 && has_value)
      first_seed = std::strtoull(argv[++i], nullptr, 10);
    else
      return false;
  }
  return seeds != 0;
}

}  // namespace
}  // namespace flashmob::simulation

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!flashmob::simulation::parse(argc, argv)) {
    std::fprintf(stderr, "usage: %s [--seeds N] [--first SEED] [--trace]\n", argv[0]);
    return 2;
  }
  std::signal(SIGABRT, flashmob::simulation::name_seed);
  return RUN_ALL_TESTS();
}
