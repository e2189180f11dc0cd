// One seed of the cache's protocol: lanes with traffic of every kind on SSDs that may fail, against a plain model.
// Every failure follows from its seed.
#pragma once

#include <string>

#include "cache/traffic.h"

namespace flashmob::gpu::test {

inline constexpr std::uint32_t kProtocolLineBytes = 512;

struct Scenario {
  CacheGeometry geometry;
  FakeOptions device;
  TrafficOptions traffic;
  std::uint32_t blocks = 3;
  std::uint32_t block_threads = 4;
};

// One seed. "" if all went well.
template <class Fixture>
std::string run_seed(Fixture& fixture, const Scenario& run, std::uint64_t seed) {
  const std::uint32_t threads = run.blocks * run.block_threads;
  auto cache = fixture.ref();
  mark_media(fixture.devices, kProtocolLineBytes);
  TrafficModel model(run.traffic, threads, kProtocolLineBytes, seed);
  simt::FibreDevice device(fixture.devices, fibres(seed));
  device.run({run.blocks, run.block_threads}, Traffic<decltype(cache)>{cache, &model});
  std::string fault = model.fault();
  if (fault.empty()) fault = fixture.devices.fault();
  // From here on nothing fails, so everything must come to the SSD.
  fixture.devices.stop_errors();
  fixture.devices.reset();
  run_one(device, [&](auto& t) {
    const IoStatus drained = cache.drain(t);
    const IoStatus flushed = cache.flush(t);
    if (fault.empty() && !drained.ok()) fault = "drain failed";
    if (fault.empty() && !flushed.ok()) fault = "flush failed, kind " + std::to_string(int(flushed.kind));
  });
  if (fault.empty()) fault = fixture.audit().text();
  if (fault.empty()) fault = model.compare(fixture.devices, kProtocolLineBytes);
  if (fault.empty()) fault = fixture.devices.fault();
  return fault;
}

inline Scenario small_scenario(std::uint32_t sets, std::uint32_t ways) {
  Scenario run;
  run.geometry = {kProtocolLineBytes, sets, ways};
  run.device.reads_may_race = true;
  return run;
}

}  // namespace flashmob::gpu::test
