#include <algorithm>
#include <new>
#include <string>

#include "flashmob/error.h"
#include "workloads/blocks.h"
#include "workloads/workloads.h"

namespace flashmob::gpu::workloads {
namespace {

// As many as are worth having on each backend: a thread of the operating system is dear, a GPU's is not.
std::uint32_t most_threads(Backend backend) {
  switch (backend) {
    case Backend::threads:
      return 64;
    case Backend::cuda:
      return 65536;
    default:
      return 2048;
  }
}

simt::Shape shape_for(Backend backend, std::uint64_t count) {
  const auto threads = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, most_threads(backend)));
  if (threads <= kBlockThreads) return {.blocks = 1, .block_threads = threads};
  return {.blocks = (threads + kBlockThreads - 1) / kBlockThreads, .block_threads = kBlockThreads};
}

void check(const Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas, std::uint64_t count) {
  const SsdInfo& info = gpu.ssd_info(options.ssd);
  if (options.ns_index >= info.lba_bytes.size())
    throw ConfigError("namespace = " + std::to_string(options.ns_index) + " is not possible: SSD " +
                      std::to_string(options.ssd) + " has " + std::to_string(info.lba_bytes.size()) +
                      ", counted from 0");
  const std::uint64_t blocks = info.namespace_bytes[options.ns_index] / info.lba_bytes[options.ns_index];
  if (options.blocks == 0 || options.blocks > blocks)
    throw ConfigError("blocks = " + std::to_string(options.blocks) + " is not possible: use 1 to " +
                      std::to_string(blocks));
  for (std::uint64_t i = 0; i < count; ++i) {
    if (lbas[i] > blocks - options.blocks)
      throw ConfigError("lbas: " + std::to_string(lbas[i]) + " is beyond the namespace's " + std::to_string(blocks) +
                        " blocks");
  }
}

template <class Kernel>
Outcome move_blocks(Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas, std::uint64_t count, void* data) {
  Outcome outcome;
  check(gpu, options, lbas, count);
  outcome.backend = gpu.backend().name + ", " + gpu.backend().clock + " clock";
  if (count == 0) return outcome;
  const std::uint64_t bytes = count * options.blocks * gpu.ssd_info(options.ssd).lba_bytes[options.ns_index];
  const Memory shared = gpu.share(data, bytes);
  const Memory where = gpu.allocate_near(count * sizeof(std::uint64_t));
  gpu.copy(where.data(), lbas, where.size());
  const Memory fault = gpu.allocate(sizeof(Fault), Placement::host);
  new (fault.data()) Fault{};
  BlockPlan plan;
  plan.lbas = where.as<std::uint64_t>();
  plan.count = count;
  plan.ns_index = options.ns_index;
  plan.blocks = options.blocks;
  plan.data = static_cast<std::byte*>(data);
  plan.fault = fault.as<Fault>();
  gpu.start_service();
  const std::uint64_t submitted = gpu.stats().submitted;
  const std::uint64_t start_ns = gpu.now_ns();
  gpu.run(shape_for(gpu.backend().backend, count), Kernel{}, gpu.ssd(options.ssd), plan);
  outcome.duration_ns = gpu.now_ns() - start_ns;
  outcome.commands = gpu.stats().submitted - submitted;
  outcome.io_errors = plan.fault->count.value;
  return outcome;
}

}  // namespace

Outcome gather_blocks(Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas, std::uint64_t count,
                      void* data) {
  return move_blocks<GatherBlocks>(gpu, options, lbas, count, data);
}

Outcome scatter_blocks(Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas, std::uint64_t count,
                       const void* data) {
  return move_blocks<ScatterBlocks>(gpu, options, lbas, count, const_cast<void*>(data));
}

}  // namespace flashmob::gpu::workloads
