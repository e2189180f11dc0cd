#include "weak/protocols.h"

namespace flashmob::gpu::test {

std::ostream& operator<<(std::ostream& out, const Protocol& protocol) { return out << protocol.name; }

const std::vector<Protocol>& protocols() {
  static const std::vector<Protocol> all = {{"queue", run_queue_seed, 800},
                                            {"cache", run_cache_seed, 800},
                                            {"share_table", run_share_table_seed, 800},
                                            {"engine", run_engine_seed, 40}};
  return all;
}

}  // namespace flashmob::gpu::test
