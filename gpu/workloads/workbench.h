// What the host side of all workloads shares: data on the SSDs, memory for kernels, the way that kernels reach arrays,
// time and figures. For one host thread; on top of Gpu (flashmob/gpu.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "flashmob/error.h"
#include "flashmob/gpu.h"
#include "flashmob/gpu/cache_owner.h"
#include "flashmob/gpu/cache_policy/clock.h"
#include "flashmob/gpu/cache_policy/direct_mapped.h"
#include "flashmob/gpu/cache_policy/fifo.h"
#include "flashmob/gpu/cache_policy/lru.h"
#include "flashmob/gpu/cache_policy/s3_fifo.h"
#include "flashmob/gpu/striped.h"
#include "workloads/kernel_shape.h"
#include "workloads/sources.h"
#include "workloads/workloads.h"

namespace flashmob::gpu::workloads {

// Puts data on the SSDs one behind the other, from namespace 0's first block on, in stripes of one line.
class Workbench {
 public:
  // Throws ConfigError if the options do not fit the SSDs.
  Workbench(Gpu& gpu, const AccessOptions& options, Outcome& outcome);
  // To be called when all kernels have run and results are compared: fills in commands and errors.
  void finish();
  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;

  Gpu& gpu() { return gpu_; }
  const AccessOptions& options() const { return options_; }
  Fault* fault() { return fault_.as<Fault>(); }
  const SsdSet& ssds() const { return ssds_; }

  // Where the array lies that was put there.
  StripeMap put(const void* data, std::uint64_t bytes);
  // Fills each SSD's first blocks of line_bytes with pattern_word() of generation 0; how many, at most as many as it
  // has.
  std::uint64_t put_pattern(std::uint64_t blocks);
  // Fills each SSD's first `span_blocks` blocks of options().line_bytes, and makes `buffers` buffers of as many bytes.
  void plan_io(IoPlan& plan, std::uint64_t span_blocks, std::uint64_t buffers, std::uint64_t seed);
  // Memory lives until the workbench is gone. That of kernels is a GPU's own, which host code reaches by set() and
  // values(); `for_ssds`: commands name it.
  std::byte* near(std::uint64_t bytes, bool for_ssds = false);
  template <class T>
  T* array(std::uint64_t count, const T& value = T{}) {
    return copy_of(std::vector<T>(count, value));
  }
  template <class T>
  T* copy_of(const std::vector<T>& source) {
    T* const values = reinterpret_cast<T*>(near(source.size() * sizeof(T)));
    if (!source.empty()) gpu_.copy(values, source.data(), source.size() * sizeof(T));
    return values;
  }
  // For both, each at its own speed.
  template <class T>
  T* copy_for_host(const std::vector<T>& source) {
    const Memory& made = memory_.emplace_back(gpu_.allocate(std::max<std::uint64_t>(source.size(), 1) * sizeof(T)));
    std::copy(source.begin(), source.end(), made.as<T>());
    return made.as<T>();
  }
  template <class T>
  void set(T* where, const T& value) {
    gpu_.copy(where, &value, sizeof(T));
  }
  template <class T>
  std::vector<T> values(const T* from, std::uint64_t count) {
    std::vector<T> out(count);
    if (count != 0) gpu_.copy(out.data(), from, count * sizeof(T));
    return out;
  }
  template <class T>
  T value(const T* from) {
    return values(from, 1).front();
  }
  // Puts an array on the SSDs, for threads with `buffers`.
  template <class T>
  BufferedLines buffered(const std::vector<T>& values, std::byte* buffers) {
    return {put(values.data(), values.size() * sizeof(T)), fault(), buffers, options_.line_bytes, sizeof(T)};
  }
  template <class Kernel, class... Args>
  void run(Kernel kernel, Args... args) {
    const std::uint64_t start_ns = gpu_.now_ns();
    gpu_.run(shape_, kernel, args...);
    outcome_.duration_ns += gpu_.now_ns() - start_ns;
  }
  const simt::Shape& shape() const { return shape_; }

 private:
  Gpu& gpu_;
  AccessOptions options_;
  Outcome& outcome_;
  simt::Shape shape_;
  SsdSet ssds_;
  Memory fault_;
  std::vector<Memory> memory_;
  std::uint64_t next_line_ = 0;
  std::uint64_t submitted_before_ = 0;
};

// Reads one word of every line of an array of `lines` lines.
template <class Cache>
struct TouchLines : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Cache cache, StripeMap map, std::uint64_t lines, Fault* fault) const {
    for (std::uint64_t line = t.thread(); line < lines; line += t.threads()) {
      const Pin pin = cache.acquire(t, map(line), Access::read);
      if (!pin.ok()) fault->note(t, pin.status);
      cache.release(t, pin);
    }
  }
};

// --- Ways to reach an array: array(values) puts it there and gives what kernels read it through ---

class PlainAccess {
 public:
  template <class T>
  using Ref = PlainRef<T>;
  explicit PlainAccess(Workbench& bench) : bench_(bench) {}
  template <class T>
  Ref<T> array(const std::vector<T>& values) {
    return Ref<T>(bench_.copy_of(values));
  }

 private:
  Workbench& bench_;
};

class UncachedAccess {
 public:
  template <class T>
  using Ref = UncachedRef<T>;
  explicit UncachedAccess(Workbench& bench)
      : bench_(bench),
        buffers_(bench.near(std::uint64_t{bench.options().threads} * bench.options().line_bytes, true)) {}
  template <class T>
  Ref<T> array(const std::vector<T>& values) {
    return Ref<T>(bench_.ssds(), bench_.buffered(values, buffers_));
  }

 private:
  Workbench& bench_;
  std::byte* buffers_;
};

class SharedAccess {
 public:
  template <class T>
  using Ref = SharedRef<T>;
  explicit SharedAccess(Workbench& bench);
  template <class T>
  Ref<T> array(const std::vector<T>& values) {
    return Ref<T>(table_, bench_.buffered(values, buffers_));
  }

 private:
  Workbench& bench_;
  std::byte* buffers_;
  BufferTable table_;
};

template <class Policy>
class CachedAccess {
 public:
  template <class T>
  using Ref = StripedRef<T, CacheRef<Policy>>;
  CachedAccess(Workbench& bench, Cache<Policy>& cache) : bench_(bench), cache_(cache) {}
  template <class T>
  Ref<T> array(const std::vector<T>& values) {
    const std::uint64_t bytes = values.size() * sizeof(T);
    const StripeMap map = bench_.put(values.data(), bytes);
    const std::uint32_t line_bytes = bench_.options().line_bytes;
    if (bench_.options().preload)
      bench_.gpu().run(bench_.shape(), TouchLines<CacheRef<Policy>>{}, cache_.ref(), map,
                       (bytes + line_bytes - 1) / line_bytes, bench_.fault());
    return striped<T>(cache_.ref(), bench_.fault(), map);
  }

 private:
  Workbench& bench_;
  Cache<Policy>& cache_;
};

// How the lines of a cache are arranged for these options.
CacheOptions cache_options(const AccessOptions& options, std::uint32_t most_ways);
void add_figures(Outcome& outcome, const CacheStatistics& statistics);

template <class Policy, class Body>
void with_cache(Workbench& bench, Outcome& outcome, Body body) {
  Cache<Policy> cache(bench.gpu(), cache_options(bench.options(), Policy::kMaxWays));
  body(cache);
  add_figures(outcome, cache.statistics());
}

// Calls body(cache) with a cache of the policy that the options name. Throws ConfigError if there is none.
template <class Body>
void with_policy(Workbench& bench, Outcome& outcome, Body body) {
  const std::string& policy = bench.options().policy;
  if (policy == "direct") return with_cache<DirectMapped>(bench, outcome, body);
  if (policy == "lru") return with_cache<Lru>(bench, outcome, body);
  if (policy == "clock") return with_cache<ClockPolicy>(bench, outcome, body);
  if (policy == "fifo") return with_cache<Fifo>(bench, outcome, body);
  if (policy == "s3fifo") return with_cache<S3Fifo>(bench, outcome, body);
  throw ConfigError("policy: \"" + policy + "\" is none of direct, lru, clock, fifo and s3fifo");
}

// Calls body(access) with what the options ask for. Throws ConfigError if they ask for what there is not.
template <class Body>
void with_access(Workbench& bench, Outcome& outcome, Body body) {
  const std::string& access = bench.options().access;
  if (access == "plain") return body(PlainAccess(bench));
  if (access == "uncached") return body(UncachedAccess(bench));
  if (access == "share_table") return body(SharedAccess(bench));
  if (access == "cached") {
    return with_policy(bench, outcome,
                       [&]<class Policy>(Cache<Policy>& cache) { body(CachedAccess<Policy>(bench, cache)); });
  }
  throw ConfigError("access: \"" + access + "\" is none of plain, cached, uncached and share_table");
}

// Compares what a workload says with what it must say; fills in the outcome.
void verify(Outcome& outcome, const std::vector<double>& got, const std::vector<double>& expected, double tolerance);

}  // namespace flashmob::gpu::workloads
