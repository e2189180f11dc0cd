#include <algorithm>
#include <map>

#include "workloads/elements.h"
#include "workloads/workbench.h"

namespace flashmob::gpu::workloads {
namespace {

void check(const Gpu& gpu, const ElementOptions& options, const std::uint64_t* indices, std::uint64_t count) {
  const std::uint32_t bytes = options.element_bytes;
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8)
    throw ConfigError("element_bytes: " + std::to_string(bytes) + " is none of 1, 2, 4 and 8");
  if (options.ssd >= gpu.ssds())
    throw ConfigError("ssd: " + std::to_string(options.ssd) + " is none of the " + std::to_string(gpu.ssds()) +
                      " attached");
  if (options.access.access != "cached")
    throw ConfigError("access: \"" + options.access.access + "\" does not serve for gather and scatter; use cached");
  // The cache reads and writes whole lines.
  const std::uint64_t line = options.access.line_bytes;
  const std::uint64_t limit = gpu.ssd_info(options.ssd).namespace_bytes.at(0) / line * line / bytes;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (indices[i] >= limit)
      throw ConfigError("indices: " + std::to_string(indices[i]) + " is beyond the namespace's " +
                        std::to_string(limit) + " elements");
  }
}

ElementPlan plan_of(Workbench& bench, const ElementOptions& options, const std::uint64_t* indices,
                    std::uint64_t count) {
  ElementPlan plan;
  plan.ssd = options.ssd;
  plan.element_bytes = options.element_bytes;
  plan.indices = bench.copy_of(std::vector<std::uint64_t>(indices, indices + count));
  plan.count = count;
  plan.elements = bench.near(count * options.element_bytes);
  plan.fault = bench.fault();
  return plan;
}

// Reads the elements' blocks by the host's own commands.
std::uint64_t count_mismatches(Gpu& gpu, const ElementOptions& options, const std::uint64_t* indices,
                               std::uint64_t count, const std::byte* elements, bool last_wins_unknown) {
  const std::uint32_t bytes = options.element_bytes;
  const std::uint64_t block_bytes = gpu.ssd_info(options.ssd).lba_bytes.at(0);
  std::map<std::uint64_t, std::vector<std::byte>> blocks;
  std::map<std::uint64_t, bool> equal;
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = indices[i] * bytes;
    std::vector<std::byte>& block = blocks[at / block_bytes];
    if (block.empty()) {
      block.resize(block_bytes);
      gpu.read(options.ssd, 0, at / block_bytes, block.data(), block_bytes);
    }
    const bool same = std::memcmp(&block[at % block_bytes], elements + i * bytes, bytes) == 0;
    if (last_wins_unknown)
      equal[indices[i]] |= same;
    else
      wrong += !same;
  }
  for (const auto& [index, same] : equal) wrong += !same;
  return wrong;
}

template <template <class> class Kernel, bool kFlush>
void move_elements(Workbench& bench, Outcome& outcome, const ElementPlan& plan) {
  with_policy(bench, outcome, [&](auto& cache) {
    const auto ref = cache.ref();
    using Ref = std::remove_const_t<decltype(ref)>;
    bench.run(Kernel<Ref>{}, ref, plan);
    if (kFlush && !cache.flush().ok()) ++outcome.io_errors;
  });
}

}  // namespace

Outcome gather(Gpu& gpu, const ElementOptions& options, const std::uint64_t* indices, std::uint64_t count,
               void* elements) {
  check(gpu, options, indices, count);
  Outcome outcome;
  Workbench bench(gpu, options.access, outcome);
  const ElementPlan plan = plan_of(bench, options, indices, count);
  move_elements<GatherElements, false>(bench, outcome, plan);
  gpu.copy(elements, plan.elements, count * options.element_bytes);
  const std::vector<std::byte> got = bench.values(plan.elements, count * options.element_bytes);
  outcome.mismatches = count_mismatches(gpu, options, indices, count, got.data(), false);
  outcome.verified = outcome.mismatches == 0;
  bench.finish();
  return outcome;
}

Outcome scatter(Gpu& gpu, const ElementOptions& options, const std::uint64_t* indices, std::uint64_t count,
                const void* elements) {
  check(gpu, options, indices, count);
  Outcome outcome;
  Workbench bench(gpu, options.access, outcome);
  const ElementPlan plan = plan_of(bench, options, indices, count);
  gpu.copy(plan.elements, elements, count * options.element_bytes);
  move_elements<ScatterElements, true>(bench, outcome, plan);
  const std::vector<std::byte> given = bench.values(plan.elements, count * options.element_bytes);
  outcome.mismatches = count_mismatches(gpu, options, indices, count, given.data(), true);
  outcome.verified = outcome.mismatches == 0;
  bench.finish();
  return outcome;
}

}  // namespace flashmob::gpu::workloads
