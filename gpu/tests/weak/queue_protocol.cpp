#include "queue/seed_run.h"
#include "weak/protocols.h"

namespace flashmob::gpu::test {

std::string run_queue_seed(std::uint64_t seed) {
  static testing::ScriptedSsd ssd;
  return testing::run_seed(ssd, seed).failure;
}

}  // namespace flashmob::gpu::test
