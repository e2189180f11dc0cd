// Figures 7 to 10 of the AGILE paper: DLRM inference with rows fetched when they are needed (sync) and with the next
// batch's rows prefetched while this batch computes (async): by configuration, batch size, queue pairs, cache size.
//
// The matrix products are done, and checked, on the CPU; in virtual time they take what DlrmOptions says.
//
//   bench_gpu_dlrm [--json FILE]
#include "bench/gpu/bench_gpu.h"

namespace {

using namespace flashmob::gpu;

struct Setting {
  unsigned config = 1;
  std::uint32_t batch = 16;
  std::uint32_t queues = 4;
  std::uint32_t depth = 256;
  std::uint64_t cache_bytes = std::uint64_t{4} << 20;
};

bool all_verified = true;

workloads::DlrmResult run(const Setting& setting, bool async) {
  const auto gpu = bench::attach_virtual({bench::ssd_of_50_us(1e6, 4096)}, setting.queues, setting.depth);
  workloads::DlrmOptions options;
  options.model = workloads::dlrm_config(setting.config);
  options.batch = setting.batch;
  options.batches = 4;
  options.async = async;
  options.most_rows = 4000;
  options.access.cache_bytes = setting.cache_bytes;
  const workloads::DlrmResult result = workloads::run_dlrm(*gpu, options);
  all_verified &= result.verified;
  return result;
}

void compare(bench::Table& table, const std::string& label, const Setting& setting) {
  const workloads::DlrmResult sync = run(setting, false);
  const workloads::DlrmResult async = run(setting, true);
  table.row(label, {static_cast<double>(sync.duration_ns) / 1e3, static_cast<double>(async.duration_ns) / 1e3,
                    static_cast<double>(sync.duration_ns) / static_cast<double>(async.duration_ns),
                    static_cast<double>(sync.commands), static_cast<double>(async.commands)});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string file = bench::json_file(argc, argv);
  const std::vector<std::string> columns{"", "sync us", "async us", "speedup", "sync reads", "async reads"};
  bench::Table configs("DLRM by configuration: 4 batches of 16, cache 4 MiB", columns);
  for (const unsigned config : {1u, 2u, 3u}) {
    Setting setting;
    setting.config = config;
    compare(configs, "config-" + std::to_string(config), setting);
  }
  bench::Table batches("configuration 1 by batch size", columns);
  for (const std::uint32_t batch : {1u, 4u, 16u, 64u}) {
    Setting setting;
    setting.batch = batch;
    compare(batches, std::to_string(batch), setting);
  }
  bench::Table queues("configuration 1 by queue pairs of 16 entries", columns);
  for (const std::uint32_t pairs : {1u, 2u, 4u, 8u, 16u}) {
    Setting setting;
    setting.queues = pairs;
    setting.depth = 16;
    compare(queues, std::to_string(pairs), setting);
  }
  bench::Table caches("configuration 1 by cache size", columns);
  for (const std::uint64_t kib : {256u, 1024u, 2048u, 4096u}) {
    Setting setting;
    setting.cache_bytes = kib << 10;
    compare(caches, std::to_string(kib) + " KiB", setting);
  }
  return bench::finish(file, {&configs, &batches, &queues, &caches}, all_verified);
}
