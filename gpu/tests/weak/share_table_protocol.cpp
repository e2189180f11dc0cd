#include <stdexcept>

#include "cache/share_run.h"
#include "weak/protocols.h"

namespace flashmob::gpu::test {

std::string run_share_table_seed(std::uint64_t seed) {
  try {
    return seed % 4 < 2 ? run_share_seed<Direct, false>(seed) : run_share_seed<Cached, false>(seed);
  } catch (const std::runtime_error& e) {  // StuckError, RaceError
    return e.what();
  }
}

}  // namespace flashmob::gpu::test
