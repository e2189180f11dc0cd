// The protocols whose seeds run on weak memory: each is a function that says what went wrong with a seed, "" if
// nothing. For one thread.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "flashmob/gpu/simt/fibre.h"
#include "weak_memory.h"

namespace flashmob::gpu::test {

std::string run_queue_seed(std::uint64_t seed);
// One tier of one of the policies, or two tiers, some with commands that fail.
std::string run_cache_seed(std::uint64_t seed);
// Over bare SSDs or over a cache.
std::string run_share_table_seed(std::uint64_t seed);
// The SSD's engine as a kernel, with a host that fills its queues.
std::string run_engine_seed(std::uint64_t seed);

struct Protocol {
  const char* name;
  std::string (*run)(std::uint64_t seed);
  std::uint64_t seeds;  // if nothing else is said
};
std::ostream& operator<<(std::ostream& out, const Protocol& protocol);
const std::vector<Protocol>& protocols();

// FLASHMOB_WEAK_SEEDS says how many of each; FLASHMOB_WEAK_SEED replays one.
inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Weak memory for as long as it lives, in all devices that tests make.
class WithWeakMemory {
 public:
  explicit WithWeakMemory(simt::SourceLine without_order = {},
                          std::set<std::pair<std::string, std::uint32_t>>* ordered_lines = nullptr) {
    weak_memory = {true, without_order, ordered_lines};
  }
  ~WithWeakMemory() { weak_memory = {}; }
  WithWeakMemory(const WithWeakMemory&) = delete;
  WithWeakMemory& operator=(const WithWeakMemory&) = delete;
};

}  // namespace flashmob::gpu::test
