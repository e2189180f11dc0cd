// One seed of the submission and service protocol: draws a plan (queues, depth, tickets, who serves, how unkind the SSD
// is, what happens in mid-flight), runs lanes that verify every status and every byte, and audits what is left.
//
// Everything follows from the seed, so a failure is replayed by running its seed alone. For one thread.
#pragma once

#include <cstdint>
#include <string>

#include "queue/scripted_ssd.h"

namespace flashmob::gpu::testing {

struct SeedPlan {
  std::uint64_t seed = 1;
  std::uint32_t queues = 1;
  std::uint32_t entries = 2;
  std::uint32_t cq_entries = 2;
  std::uint64_t first_ticket = 0;
  std::uint32_t lanes = 32;
  std::uint32_t steps = 2;
  std::uint64_t timeout_ns = 0;
  enum class Server : std::uint32_t { callers, kernel, host } server = Server::callers;
  std::uint32_t server_lanes = 32;  // of each warp of the service kernel
  std::uint64_t abort_after_ns = 0;  // 0: not
  std::uint64_t restart_after_ns = 0;  // the service kernel is stopped in mid-flight and another one started
  Unkindness unkindness;

  static SeedPlan draw(std::uint64_t seed);
  std::string text() const;
};

struct SeedResult {
  std::string failure;  // empty: none
  std::uint64_t commands = 0;
  std::uint64_t turns = 0;
  std::uint64_t deadlines = 0;
  std::uint64_t aborted = 0;
  std::uint64_t lost = 0;
  std::uint64_t late = 0;
};

SeedResult run_seed(ScriptedSsd& ssd, std::uint64_t seed);

}  // namespace flashmob::gpu::testing
