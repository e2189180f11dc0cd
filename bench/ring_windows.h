// Windows of a benchmark in which a ring host (ring_host.h) meets its bound or the engine: a ramp, then what counts.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "api/device.h"
#include "base/check.h"
#include "bench/ring_host.h"
#include "driver/dma_memory.h"
#include "driver/nvme_driver.h"
#include "engine/engine_thread.h"
#include "memory/host_memory.h"

namespace flashmob::bench {

inline constexpr std::uint64_t kRampNs = 50'000'000;
inline constexpr std::uint64_t kMeasuredNs = 200'000'000;
inline constexpr unsigned kServerCore = 0;
inline constexpr unsigned kHostCore = 1;

struct Window {
  double miops = 0;
  double server_share = 0, host_share = 0;  // of a core
  double round_us = 0;                      // of the server, in its own processor time
  double server_idle = -1, host_idle = -1;  // of looks; not counted where below 0
  bool quiet() const { return server_share > 0.97 && host_share > 0.97; }
};

inline std::uint64_t cpu_ns(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

inline double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

inline std::uint32_t ring_entries(std::uint32_t depth) { return std::max(depth + 1, 2u); }

// A drive whose rate is out of reach and that moves no bytes; the ring host's blocks are there.
inline DeviceConfig frontend_device(std::uint32_t instances) {
  DeviceConfig device;
  device.timing.read_iops = 1e9;
  device.timing.read_latency_ns = 10'000;
  device.timing.instances = instances;
  device.engine.move_data = false;
  device.engine.cores = {kServerCore};
  device.subsystem.namespaces[0].size_bytes = std::uint64_t{8} << 30;
  return device;
}

// What the host's thread does in a window, whoever serves it: a ramp, then what counts. `at_borders` is called at the
// beginning (true) and at the end of that.
inline void play_host(RingHost& host, const Clock& clock, Window& window, const std::function<void(bool)>& at_borders) {
  const auto run_for = [&](std::uint64_t ns, std::uint64_t& reaped, std::uint64_t& idle, std::uint64_t& looks) {
    const std::uint64_t until_ns = clock.now_ns() + ns;
    while (clock.now_ns() < until_ns) {
      for (int i = 0; i < 16; ++i) {
        const std::uint32_t count = host.poll();
        reaped += count;
        idle += count == 0;
      }
      looks += 16;
    }
  };
  std::uint64_t ramp = 0;
  run_for(kRampNs, ramp, ramp, ramp);
  at_borders(true);
  const std::uint64_t from_ns = clock.now_ns();
  const std::uint64_t own_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
  std::uint64_t reaped = 0, idle = 0, looks = 0;
  run_for(kMeasuredNs, reaped, idle, looks);
  const std::uint64_t took_ns = clock.now_ns() - from_ns;
  window.host_share = share(cpu_ns(CLOCK_THREAD_CPUTIME_ID) - own_ns, took_ns);
  at_borders(false);
  window.miops = static_cast<double>(reaped) * 1e3 / static_cast<double>(took_ns);
  window.host_idle = share(idle, looks);
}

inline Window bound_window(const Clock& clock, std::uint32_t queues, std::uint32_t depth) {
  const std::uint32_t entries = ring_entries(depth);
  std::vector<memory::HostMemory> rings;
  std::vector<RingPair> pairs;
  std::vector<PaddedDoorbells> doorbells(queues);
  for (std::uint32_t i = 0; i < queues; ++i) {
    auto* const sq = reinterpret_cast<nvme::Sqe*>(rings.emplace_back(sizeof(nvme::Sqe) * entries).data());
    auto* const cq = reinterpret_cast<nvme::Cqe*>(rings.emplace_back(sizeof(nvme::Cqe) * entries).data());
    pairs.push_back({sq, cq, &doorbells[i].sq, &doorbells[i].cq, entries});
  }
  RingHost host(pairs, depth, 0);
  RingBound bound(pairs);
  Window window;
  std::atomic<int> border{0};
  std::thread server([&] {
    engine::pin_this_thread(kServerCore);
    std::uint64_t idle = 0, looks = 0, from_ns = 0, own_ns = 0;
    int seen = 0;
    while (seen < 2) {
      for (int i = 0; i < 16; ++i) {
        idle += bound.poll(clock.now_ns()) == 0;
        ++looks;
      }
      if (border.load(std::memory_order_relaxed) == seen) continue;
      if (seen++ == 0) {
        idle = looks = 0;
        from_ns = clock.now_ns();
        own_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
      }
    }
    window.server_share = share(cpu_ns(CLOCK_THREAD_CPUTIME_ID) - own_ns, clock.now_ns() - from_ns);
    window.server_idle = share(idle, looks);
  });
  play_host(host, clock, window, [&](bool begins) { border.store(begins ? 1 : 2, std::memory_order_relaxed); });
  server.join();
  FLASHMOB_CHECK(bound.sum() != 0);
  return window;
}

inline std::uint64_t unit_cpu_ns(const engine::Engine& engine) {
  for (const auto& [name, ns] : engine.cpu_times())
    if (name == "unit0") return ns;
  return 0;
}

inline Window rings_window(const DeviceConfig& config, const Clock& clock, std::uint32_t queues, std::uint32_t depth) {
  api::Device device(config, clock);
  device.start();
  driver::NvmeDriver driver(device.pci(), {[] { std::this_thread::yield(); }, [&] { return clock.now_ns(); }});
  driver.enable();
  driver.request_queues(queues);
  const std::uint32_t entries = ring_entries(depth);
  const driver::DmaMemory buffer(device.pci(), 4096);
  std::vector<std::unique_ptr<driver::DmaMemory>> rings;
  std::vector<RingPair> pairs;
  for (std::uint32_t i = 0; i < queues; ++i) {
    const auto& sq =
        *rings.emplace_back(std::make_unique<driver::DmaMemory>(device.pci(), sizeof(nvme::Sqe) * entries));
    const auto& cq =
        *rings.emplace_back(std::make_unique<driver::DmaMemory>(device.pci(), sizeof(nvme::Cqe) * entries));
    RingPair pair{reinterpret_cast<nvme::Sqe*>(sq.data()), reinterpret_cast<nvme::Cqe*>(cq.data()), nullptr, nullptr,
                  entries};
    const driver::QueuePair& made = driver.create_queue_pair(
        {.sq_entries = entries, .rings = driver::QueueRings{pair.sq, sq.iova(), pair.cq, cq.iova()}});
    pair.sq_doorbell = made.sq_doorbell();
    pair.cq_doorbell = made.cq_doorbell();
    pairs.push_back(pair);
  }
  RingHost host(pairs, depth, buffer.iova());
  Window window;
  engine::Engine& engine = device.engine();
  std::uint64_t from_ns = 0, own_ns = 0, took_ns = 0, used_ns = 0;
  play_host(host, clock, window, [&](bool begins) {
    engine.set_phase(begins ? engine::kMeasured : engine::kAfterwards);
    if (begins) {
      from_ns = clock.now_ns();
      own_ns = unit_cpu_ns(engine);
    } else {
      took_ns = clock.now_ns() - from_ns;
      used_ns = unit_cpu_ns(engine) - own_ns;
      window.server_share = share(used_ns, took_ns);
    }
  });
  while (host.in_flight() != 0) host.poll(false);
  const engine::FidelityStats stats = engine.stats(engine::kMeasured);
  window.server_idle = share(stats.idle_polls, stats.idle_polls + stats.busy_polls);
  window.round_us = share(used_ns, stats.idle_polls + stats.busy_polls) / 1e3;
  driver.disable();
  device.stop();
  return window;
}

}  // namespace flashmob::bench
