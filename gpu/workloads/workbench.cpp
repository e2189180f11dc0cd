#include "workloads/workbench.h"

#include <algorithm>
#include <cmath>

#include "workloads/reference.h"

namespace flashmob::gpu::workloads {
namespace {

constexpr std::uint32_t kMaxThreads = 1 << 16;

simt::Shape shape_of(std::uint32_t threads) {
  if (threads == 0 || threads > kMaxThreads || threads % simt::kWarpLanes != 0)
    throw ConfigError("threads: " + std::to_string(threads) + " is no multiple of 32 from 32 to 65536");
  const std::uint32_t block = threads % kBlockThreads == 0 ? kBlockThreads : simt::kWarpLanes;
  return {.blocks = threads / block, .block_threads = block};
}

void check_line_bytes(const Gpu& gpu, std::uint32_t line_bytes) {
  for (std::uint32_t s = 0; s < gpu.ssds(); ++s) {
    const SsdInfo& info = gpu.ssd_info(s);
    const std::uint32_t block = info.lba_bytes.at(0);
    if (line_bytes == 0 || line_bytes % block != 0 || line_bytes > info.max_transfer_bytes)
      throw ConfigError("line_bytes: " + std::to_string(line_bytes) + " is no multiple of SSD " + std::to_string(s) +
                        "'s blocks of " + std::to_string(block) + " bytes, or above its limit of " +
                        std::to_string(info.max_transfer_bytes));
  }
}

}  // namespace

Workbench::Workbench(Gpu& gpu, const AccessOptions& options, Outcome& outcome)
    : gpu_(gpu), options_(options), outcome_(outcome), shape_(shape_of(options.threads)) {
  check_line_bytes(gpu, options.line_bytes);
  if (gpu.ssds() > kMaxSsds)
    throw ConfigError("ssds: the workloads use at most " + std::to_string(kMaxSsds) + ", not " +
                      std::to_string(gpu.ssds()));
  ssds_.count = gpu.ssds();
  for (std::uint32_t s = 0; s < ssds_.count; ++s) ssds_.at[s] = gpu.ssd(s);
  fault_ = gpu.allocate(sizeof(Fault), Placement::host);
  new (fault_.data()) Fault{};
  outcome.backend = gpu.backend().name + ", " + gpu.backend().clock + " clock";
  gpu.start_service();
  submitted_before_ = gpu.stats().submitted;
}

void Workbench::finish() {
  outcome_.commands = gpu_.stats().submitted - submitted_before_;
  outcome_.io_errors += fault()->count.value;
  if (outcome_.io_errors != 0) outcome_.verified = false;
}

StripeMap Workbench::put(const void* data, std::uint64_t bytes) {
  const std::uint64_t line_bytes = options_.line_bytes;
  const std::uint64_t lines = (bytes + line_bytes - 1) / line_bytes;
  const std::uint64_t rows = (lines + ssds_.count - 1) / ssds_.count;
  const StripeMap map{ssds_.count, 0, next_line_};
  const auto* source = static_cast<const std::byte*>(data);
  for (std::uint32_t s = 0; s < ssds_.count; ++s) {
    const SsdInfo& info = gpu_.ssd_info(s);
    if ((next_line_ + rows) * line_bytes > info.namespace_bytes.at(0))
      throw ConfigError("size_bytes: the workload's data do not fit on SSD " + std::to_string(s) + ", which has " +
                        std::to_string(info.namespace_bytes.at(0)) + " bytes; make it larger or the workload smaller");
    std::vector<std::byte> row_bytes(rows * line_bytes);
    for (std::uint64_t row = 0; row < rows; ++row) {
      const std::uint64_t from = (row * ssds_.count + s) * line_bytes;
      if (from < bytes) std::memcpy(&row_bytes[row * line_bytes], source + from, std::min(line_bytes, bytes - from));
    }
    if (!row_bytes.empty())
      gpu_.write(s, 0, next_line_ * (line_bytes / info.lba_bytes.at(0)), row_bytes.data(), row_bytes.size());
  }
  next_line_ += rows;
  return map;
}

std::uint64_t Workbench::put_pattern(std::uint64_t blocks) {
  const std::uint32_t bytes = options_.line_bytes;
  for (std::uint32_t s = 0; s < ssds_.count; ++s)
    blocks = std::min(blocks, gpu_.ssd_info(s).namespace_bytes.at(0) / bytes);
  constexpr std::uint64_t kAtOnceBytes = std::uint64_t{1} << 20;
  const std::uint64_t at_once = std::max<std::uint64_t>(1, kAtOnceBytes / bytes);
  std::vector<std::uint64_t> words(at_once * bytes / 8);
  for (std::uint32_t s = 0; s < ssds_.count; ++s) {
    for (std::uint64_t first = 0; first < blocks; first += at_once) {
      const std::uint64_t count = std::min(at_once, blocks - first);
      for (std::uint64_t b = 0; b < count; ++b) fill_pattern(&words[b * bytes / 8], bytes, 0, s, first + b);
      gpu_.write(s, 0, first * (bytes / gpu_.ssd_info(s).lba_bytes.at(0)), words.data(), count * bytes);
    }
  }
  return blocks;
}

void Workbench::plan_io(IoPlan& plan, std::uint64_t span_blocks, std::uint64_t buffers, std::uint64_t seed) {
  plan.ssds = ssds_;
  plan.bytes = options_.line_bytes;
  plan.span = put_pattern(span_blocks);
  plan.seed = seed;
  plan.buffers = near(buffers * plan.bytes, true);
  plan.completions = array<Completion>(buffers);
  plan.wrong = array<simt::Word<std::uint64_t>>(1);
  plan.failed = array<simt::Word<std::uint64_t>>(1);
}

std::byte* Workbench::near(std::uint64_t bytes, bool for_ssds) {
  return memory_.emplace_back(gpu_.allocate_near(std::max<std::uint64_t>(bytes, 1), for_ssds)).data();
}

SharedAccess::SharedAccess(Workbench& bench)
    : bench_(bench), buffers_(bench.near(std::uint64_t{bench.options().threads} * bench.options().line_bytes, true)) {
  // A thread has one buffer open at a time; twice as many entries leave room for uneven sets.
  constexpr std::uint32_t kWays = 8;
  const std::uint32_t sets = std::max(1u, 2 * bench.options().threads / kWays);
  const SsdSet& ssds = bench.ssds();
  const SsdRef* const refs = bench.copy_of(std::vector<SsdRef>(ssds.at, ssds.at + ssds.count));
  const DirectBlocks<SsdRef> blocks(refs, ssds.count, bench.options().line_bytes);
  const std::uint64_t bytes = BufferTable::bytes(sets, kWays);
  std::vector<ShareEntry> empty((bytes + sizeof(ShareEntry) - 1) / sizeof(ShareEntry));
  BufferTable::place(sets, kWays, empty.data(), blocks);
  auto* const entries = bench.near(bytes);
  bench.gpu().copy(entries, empty.data(), bytes);
  table_ = BufferTable::at(sets, kWays, entries, blocks);
}

CacheOptions cache_options(const AccessOptions& options, std::uint32_t most_ways) {
  const std::uint64_t lines = options.cache_bytes / options.line_bytes;
  if (lines == 0)
    throw ConfigError("cache_bytes: " + std::to_string(options.cache_bytes) + " is less than one line of " +
                      std::to_string(options.line_bytes) + " bytes");
  // Sets of 16 ways are as good as one large set for these workloads, and a look-up in them is one load per lane.
  constexpr std::uint64_t kWays = 16;
  CacheOptions cache;
  cache.line_bytes = options.line_bytes;
  cache.ways = static_cast<std::uint32_t>(std::min({kWays, std::uint64_t{most_ways}, lines}));
  cache.lines = lines / cache.ways * cache.ways;
  return cache;
}

void add_figures(Outcome& outcome, const CacheStatistics& statistics) {
  outcome.cache.hits += statistics[CacheCount::hits];
  outcome.cache.misses += statistics[CacheCount::misses];
  outcome.cache.evictions += statistics[CacheCount::evictions];
  outcome.cache.write_backs += statistics[CacheCount::write_backs];
  outcome.cache.waits += statistics[CacheCount::waits];
}

void verify(Outcome& outcome, const std::vector<double>& got, const std::vector<double>& expected, double tolerance) {
  outcome.max_error = reference::largest_error(got, expected);
  outcome.mismatches = got.size() == expected.size() ? 0 : expected.size();
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    if (!(std::abs(got[i] - expected[i]) <= tolerance * std::abs(expected[i]))) ++outcome.mismatches;
  }
  outcome.verified = outcome.mismatches == 0;
}

}  // namespace flashmob::gpu::workloads
