// What the tests of arrays share: SSDs with known contents, and a cache.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "array/kernels.h"
#include "flashmob/gpu.h"
#include "flashmob/gpu/cache_owner.h"
#include "on_backend.h"

namespace flashmob::gpu::suite {

using TestCache = Cache<ClockPolicy>;
using test::seeds;

// A fast SSD of 512-byte blocks.
inline DeviceConfig quick_ssd(std::uint64_t size_bytes = 1 << 20) {
  DeviceConfig config;
  config.timing.read_latency_ns = config.timing.write_latency_ns = 5'000;
  config.timing.read_iops = config.timing.write_iops = 5e6;
  config.subsystem.namespaces[0].size_bytes = size_bytes;
  return config;
}

// SSDs whose namespace is an array of content(ssd, i), and everything a kernel needs for it.
struct Rig {
  explicit Rig(std::uint64_t seed, std::uint32_t ssds = 1, std::uint32_t elements = 1 << 14, std::uint32_t depth = 64)
      : Rig(seed, std::vector<DeviceConfig>(ssds, quick_ssd()), elements, depth) {}
  Rig(std::uint64_t seed, const std::vector<DeviceConfig>& configs, std::uint32_t elements, std::uint32_t depth) {
    GpuOptions options = test::backend_options(seed);
    options.queues = 2;
    options.queue_depth = depth;
    gpu = attach(configs, options);
    std::vector<std::uint32_t> values(elements);
    for (std::uint32_t s = 0; s < gpu->ssds(); ++s) {
      for (std::uint32_t i = 0; i < elements; ++i) values[i] = content(s, i);
      const std::uint64_t bytes = std::min(elements * sizeof(std::uint32_t), gpu->ssd_info(s).namespace_bytes[0]);
      gpu->write(s, 0, 0, values.data(), bytes);
    }
    fault_memory = gpu->allocate(sizeof(Fault), Placement::host);
    fault = new (fault_memory.data()) Fault{};
  }

  std::unique_ptr<TestCache> cache(std::uint64_t lines, std::uint32_t ways, std::uint32_t line_bytes = 1024) {
    CacheOptions options;
    options.line_bytes = line_bytes;
    options.lines = lines;
    options.ways = ways;
    return std::make_unique<TestCache>(*gpu, options);
  }
  template <class T>
  T* array(std::uint64_t count) {
    memory.push_back(gpu->allocate(count * sizeof(T), Placement::host));
    return memory.back().as<T>();
  }
  // What is on an SSD, element by element.
  std::vector<std::uint32_t> on_ssd(std::uint32_t ssd, std::uint64_t count) {
    std::vector<std::uint32_t> values((count * 4 + 511) / 512 * 128);
    gpu->read(ssd, 0, 0, values.data(), values.size() * 4);
    values.resize(count);
    return values;
  }

  std::unique_ptr<Gpu> gpu;
  Memory fault_memory;
  Fault* fault = nullptr;
  std::vector<Memory> memory;
};

}  // namespace flashmob::gpu::suite
