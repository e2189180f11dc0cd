// The simple timing model: N scheduling instances that serve units one after another (SwarmIO, sections II-C and IV-D;
// NVMeVirt's simple model). A request is cut into units; unit i occupies instance (first_unit + i) mod N for the
// service time d = N / Tmax, and the request is done Lmin after the last of its units. Lmin occupies nothing. It is the
// configured latency less d, so a request is done that latency after its last unit's service began; for writes that a
// buffer answers before they are served, Lmin is below zero (docs/decisions/0009).
//
// Beside the instances there may be a link that all data of one direction shares: a request's sectors occupy it, too,
// and the request is done when both say so. The two directions are two more words behind the N instances.
//
// Pure functions over memory that the caller owns; nothing here allocates, locks or reads a clock, and everything
// compiles as CUDA device code. Time inside the model counts 1/1024 ns, because d is rarely a whole number of ns; a
// now_ns may be up to 2^54 (208 days), so clocks count from a recent start. Targets are rounded up to whole ns.
//
// Thread rule: simple_walk() is for one thread at a time. simple_schedule_shared() and simple_schedule_one_by_one()
// may run on one set of instances from many threads. With nothing interleaving, all three give the same targets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"
#include "timing/demand.h"

namespace flashmob::timing {

inline constexpr unsigned kTicksShift = 10;  // 1024 ticks are 1 ns
inline constexpr std::uint32_t kMaxInstances = 1024;
inline constexpr std::uint32_t kLinkDirections = 2;  // from the device (reads), then to it (writes)

FLASHMOB_HD constexpr std::uint64_t to_ticks(std::uint64_t time_ns) { return time_ns << kTicksShift; }
FLASHMOB_HD constexpr std::uint64_t to_ns_rounded_up(std::uint64_t ticks) {
  return (ticks + ((std::uint64_t{1} << kTicksShift) - 1)) >> kTicksShift;
}
FLASHMOB_HD constexpr std::uint64_t later(std::uint64_t a, std::uint64_t b) { return a < b ? b : a; }

// What one kind of demand costs, in ticks.
struct SimpleCost {
  std::uint64_t service;  // d: how long a unit occupies its instance; at least 1 for read and write
  std::uint64_t min_latency;  // Lmin: what is added to the request after its last unit, modulo 2^64
};

struct SimpleParams {
  std::uint32_t mask = 0;  // instances - 1
  std::uint32_t shift = 0;  // log2(instances)
  SimpleCost cost[4] = {};  // by DemandKind; immediate and flush cost nothing
  SimpleCost link[4] = {};  // by DemandKind: of one sector on the link; 0 where it does not limit
  bool has_link = false;
};

FLASHMOB_HD inline std::uint32_t instances_of(const SimpleParams& params) { return params.mask + 1; }
FLASHMOB_HD inline const SimpleCost& cost_of(const SimpleParams& params, DemandKind kind) {
  return params.cost[static_cast<std::uint8_t>(kind)];
}
FLASHMOB_HD inline const SimpleCost& link_cost_of(const SimpleParams& params, DemandKind kind) {
  return params.link[static_cast<std::uint8_t>(kind)];
}
// How long a request occupies its direction of the link.
FLASHMOB_HD inline std::uint64_t link_busy(const SimpleParams& params, const Demand& demand) {
  return link_cost_of(params, demand.kind).service * demand.sectors;
}
FLASHMOB_HD inline std::uint32_t link_direction(DemandKind kind) { return kind == DemandKind::write ? 1 : 0; }
FLASHMOB_HD inline bool occupies(DemandKind kind) { return kind == DemandKind::read || kind == DemandKind::write; }

// How a request of any size spreads over the instances: it touches `touched` of them from the first on; each serves
// `whole` units and the first `rest` of them one more. This replaces a loop over units by one over instances.
struct SimpleSpread {
  std::uint32_t first;
  std::uint32_t touched;
  std::uint32_t whole;
  std::uint32_t rest;
};

FLASHMOB_HD inline SimpleSpread spread_of(const SimpleParams& params, const Demand& demand) {
  SimpleSpread spread{};
  spread.first = static_cast<std::uint32_t>(demand.first_unit) & params.mask;
  spread.whole = demand.units >> params.shift;
  spread.rest = demand.units & params.mask;
  spread.touched = spread.whole != 0 ? instances_of(params) : spread.rest;
  return spread;
}
FLASHMOB_HD inline std::uint32_t instance_at(const SimpleParams& params, const SimpleSpread& spread, std::uint32_t i) {
  return (spread.first + i) & params.mask;
}
FLASHMOB_HD inline std::uint64_t units_at(const SimpleSpread& spread, std::uint32_t i) {
  return std::uint64_t{spread.whole} + (i < spread.rest ? 1 : 0);
}

// Serves a request of any number of units; answers when its last unit is done, before Lmin.
FLASHMOB_HD inline std::uint64_t simple_serve(const SimpleParams& params, std::uint64_t* free_at, const Demand& demand,
                                              std::uint64_t now) {
  const SimpleSpread spread = spread_of(params, demand);
  const std::uint64_t service = cost_of(params, demand.kind).service;
  std::uint64_t done = now;
  for (std::uint32_t i = 0; i < spread.touched; ++i) {
    std::uint64_t& instance = free_at[instance_at(params, spread, i)];
    instance = later(instance, now) + service * units_at(spread, i);
    done = later(done, instance);
  }
  return done;
}

// The walk of a batch in queue order when N = 1: the only instance stays in a register.
FLASHMOB_HD inline std::uint64_t simple_walk_single(const SimpleParams& params, std::uint64_t* free_at,
                                                    const Demand* batch, std::size_t count, std::uint64_t now_ns,
                                                    std::uint64_t* targets_ns, std::uint64_t latest) {
  const std::uint64_t now = to_ticks(now_ns);
  std::uint64_t instance = free_at[0];
  for (std::size_t i = 0; i < count; ++i) {
    const Demand& demand = batch[i];
    if (occupies(demand.kind)) [[likely]] {
      const SimpleCost& cost = cost_of(params, demand.kind);
      instance = later(instance, now) + cost.service * demand.units;
      targets_ns[i] = to_ns_rounded_up(instance + cost.min_latency);
    } else {
      const std::uint64_t busy_until = later(instance, latest);
      targets_ns[i] = demand.kind == DemandKind::flush ? later(now_ns, to_ns_rounded_up(busy_until)) : now_ns;
    }
  }
  free_at[0] = instance;
  return later(latest, instance);
}

FLASHMOB_HD inline std::uint64_t simple_walk_instances(const SimpleParams& params, std::uint64_t* free_at,
                                                       const Demand* batch, std::size_t count, std::uint64_t now_ns,
                                                       std::uint64_t* targets_ns, std::uint64_t latest) {
  if (params.mask == 0) return simple_walk_single(params, free_at, batch, count, now_ns, targets_ns, latest);
  const std::uint64_t now = to_ticks(now_ns);
  const std::uint64_t mask = params.mask;
  for (std::size_t i = 0; i < count; ++i) {
    const Demand& demand = batch[i];
    if (occupies(demand.kind)) [[likely]] {
      std::uint64_t done;
      if (demand.units == 1) [[likely]] {
        std::uint64_t& instance = free_at[demand.first_unit & mask];
        done = later(instance, now) + cost_of(params, demand.kind).service;
        instance = done;
      } else {
        done = simple_serve(params, free_at, demand, now);
      }
      latest = later(latest, done);
      targets_ns[i] = to_ns_rounded_up(done + cost_of(params, demand.kind).min_latency);
    } else {
      targets_ns[i] = demand.kind == DemandKind::flush ? later(now_ns, to_ns_rounded_up(latest)) : now_ns;
    }
  }
  return latest;
}

// A second pass over the batch: nothing is done before its data has crossed the link. link[0..2) are the times at which
// each direction has carried all that it was given.
FLASHMOB_HD inline void simple_walk_link(const SimpleParams& params, std::uint64_t* link, const Demand* batch,
                                         std::size_t count, std::uint64_t now_ns, std::uint64_t* targets_ns) {
  const std::uint64_t now = to_ticks(now_ns);
  for (std::size_t i = 0; i < count; ++i) {
    const Demand& demand = batch[i];
    const std::uint64_t busy = link_busy(params, demand);
    std::uint64_t done = now;
    if (busy != 0) {
      std::uint64_t& direction = link[link_direction(demand.kind)];
      direction = later(direction, now) + busy;
      done = direction + link_cost_of(params, demand.kind).min_latency;
    } else if (demand.kind == DemandKind::flush) {
      done = later(now, later(link[0], link[1]));
    }
    targets_ns[i] = later(targets_ns[i], to_ns_rounded_up(done));
  }
}

// The walk of a batch in queue order over free_at[0..N), the time at which each instance has served all that it was
// given, and the link's words behind them. `latest` is the latest of all instances' times before the batch, and the
// result is the latest after it: times never go back, so a running maximum is the maximum, and a flush need not look at
// every instance.
FLASHMOB_HD inline std::uint64_t simple_walk(const SimpleParams& params, std::uint64_t* free_at, const Demand* batch,
                                             std::size_t count, std::uint64_t now_ns, std::uint64_t* targets_ns,
                                             std::uint64_t latest) {
  latest = simple_walk_instances(params, free_at, batch, count, now_ns, targets_ns, latest);
  if (params.has_link) simple_walk_link(params, free_at + instances_of(params), batch, count, now_ns, targets_ns);
  return latest;
}

// One instance, or one direction of the link, of a shared model, which is an array of instances_of() + kLinkDirections
// of them. A cache line of its own, so that dispatchers collide only where the model does.
// Atomics names the Word that is shared and how to load and compare-and-swap it (host_atomics.h; a device brings its
// own). Relaxed order suffices: the words publish nothing but themselves.
template <typename Atomics>
struct alignas(kCacheLineBytes) SimpleInstance {
  typename Atomics::Word free_at{};
};

// Appends `busy` ticks of service to an instance; answers when that service starts. A device may bring a reserve() of
// its own for where many would fail to swap again and again.
template <typename Atomics>
FLASHMOB_HD std::uint64_t simple_reserve(SimpleInstance<Atomics>& instance, std::uint64_t busy, std::uint64_t now) {
  if constexpr (requires { Atomics::reserve(instance.free_at, busy, now); }) {
    return Atomics::reserve(instance.free_at, busy, now);
  } else {
    std::uint64_t seen = Atomics::load(instance.free_at);
    while (!Atomics::compare_exchange(instance.free_at, seen, later(seen, now) + busy)) {
    }
    return later(seen, now);
  }
}

// Sends one request over the link; answers when it is done as far as the link is concerned.
template <typename Atomics>
FLASHMOB_HD std::uint64_t simple_cross_link(const SimpleParams& params, SimpleInstance<Atomics>* link,
                                            const Demand& demand, std::uint64_t now) {
  if (demand.kind == DemandKind::flush) return later(Atomics::load(link[0].free_at), Atomics::load(link[1].free_at));
  const std::uint64_t busy = link_busy(params, demand);
  if (busy == 0) return now;
  return simple_reserve(link[link_direction(demand.kind)], busy, now) + busy +
         link_cost_of(params, demand.kind).min_latency;
}

// The update as the definition reads, request by request: the oracle, and what the aggregated update is compared with.
template <typename Atomics>
FLASHMOB_HD void simple_schedule_one_by_one(const SimpleParams& params, SimpleInstance<Atomics>* instances,
                                            const Demand* batch, std::size_t count, std::uint64_t now_ns,
                                            std::uint64_t* targets_ns) {
  const std::uint64_t now = to_ticks(now_ns);
  for (std::size_t i = 0; i < count; ++i) {
    const Demand& demand = batch[i];
    const SimpleCost& cost = cost_of(params, demand.kind);
    std::uint64_t done = now;
    if (occupies(demand.kind)) {
      const SimpleSpread spread = spread_of(params, demand);
      for (std::uint32_t k = 0; k < spread.touched; ++k) {
        const std::uint64_t busy = cost.service * units_at(spread, k);
        const std::uint64_t start = simple_reserve(instances[instance_at(params, spread, k)], busy, now);
        done = later(done, start + busy);
      }
    } else if (demand.kind == DemandKind::flush) {
      for (std::uint32_t u = 0; u < instances_of(params); ++u) done = later(done, Atomics::load(instances[u].free_at));
    }
    done += cost.min_latency;
    if (params.has_link) done = later(done, simple_cross_link(params, instances + instances_of(params), demand, now));
    targets_ns[i] = to_ns_rounded_up(done);
  }
}

// Whether a batch is likely to touch instances twice, so that summing it first pays. Few units on many instances, and
// a single request, are as well updated one by one; the targets are the same.
FLASHMOB_HD inline bool is_worth_aggregating(const SimpleParams& params, const Demand* batch, std::size_t count) {
  if (count <= 1) return false;
  const std::uint64_t few = instances_of(params) / 4;
  std::uint64_t units = count > few ? count : 0;
  for (std::size_t i = 0; i < count && units <= few; ++i)
    units += batch[i].kind == DemandKind::flush ? instances_of(params) : batch[i].units;
  return units > few;
}

// What one call of simple_schedule_shared() needs besides its arguments; needs no initialisation.
struct SimpleScratch {
  // First the service asked of each instance, then its time in the walk; so, too, of the link's directions behind them.
  std::uint64_t ticks[kMaxInstances + kLinkDirections];
  std::uint16_t touched[kMaxInstances + 1];  // the instances asked, each once; one spare for the branch-free append
};

// Step 1 of simple_schedule_shared(): how much service the batch asks of each instance.
struct SimpleAsked {
  std::uint32_t touched;
  bool has_flush;
};

FLASHMOB_HD inline SimpleAsked simple_sum(const SimpleParams& params, const Demand* batch, std::size_t count,
                                          SimpleScratch& scratch) {
  SimpleAsked asked{};
  if (params.mask == 0) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += cost_of(params, batch[i].kind).service * batch[i].units;
      asked.has_flush |= batch[i].kind == DemandKind::flush;
    }
    scratch.ticks[0] = sum;
    scratch.touched[0] = 0;
    asked.touched = sum != 0 ? 1 : 0;
    return asked;
  }
  const std::uint64_t mask = params.mask;
  for (std::uint32_t u = 0; u < instances_of(params); ++u) scratch.ticks[u] = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Demand& demand = batch[i];
    if (!occupies(demand.kind)) [[unlikely]] {
      asked.has_flush |= demand.kind == DemandKind::flush;
      continue;
    }
    const std::uint64_t service = cost_of(params, demand.kind).service;
    if (demand.units == 1) [[likely]] {
      const std::uint64_t u = demand.first_unit & mask;
      scratch.touched[asked.touched] = static_cast<std::uint16_t>(u);
      asked.touched += scratch.ticks[u] == 0 ? 1 : 0;
      scratch.ticks[u] += service;
      continue;
    }
    const SimpleSpread spread = spread_of(params, demand);
    for (std::uint32_t k = 0; k < spread.touched; ++k) {
      const std::uint32_t u = instance_at(params, spread, k);
      scratch.touched[asked.touched] = static_cast<std::uint16_t>(u);
      asked.touched += scratch.ticks[u] == 0 ? 1 : 0;
      scratch.ticks[u] += service * units_at(spread, k);
    }
  }
  return asked;
}

// Steps 1 and 2 of simple_schedule_shared() for the link: `starts` are its words for the walk.
template <typename Atomics>
FLASHMOB_HD void simple_reserve_link(const SimpleParams& params, SimpleInstance<Atomics>* link, std::uint64_t* starts,
                                     const Demand* batch, std::size_t count, std::uint64_t now) {
  for (std::uint32_t d = 0; d < kLinkDirections; ++d) starts[d] = 0;
  for (std::size_t i = 0; i < count; ++i) starts[link_direction(batch[i].kind)] += link_busy(params, batch[i]);
  for (std::uint32_t d = 0; d < kLinkDirections; ++d)
    starts[d] = starts[d] != 0 ? simple_reserve(link[d], starts[d], now) : Atomics::load(link[d].free_at);
}

// The aggregated update: however many requests the batch has, each instance it touches is updated once.
// (1) Sum what the batch asks of each instance; (2) reserve that much on each in one atomic step; (3) hand the
// reserved spans out by walking the batch in queue order. A flush waits for what every instance was given before it.
template <typename Atomics>
FLASHMOB_HD void simple_schedule_shared(const SimpleParams& params, SimpleInstance<Atomics>* instances,
                                        SimpleScratch& scratch, const Demand* batch, std::size_t count,
                                        std::uint64_t now_ns, std::uint64_t* targets_ns) {
  const SimpleAsked asked = simple_sum(params, batch, count, scratch);
  const std::uint64_t now = to_ticks(now_ns);
  std::uint64_t latest = now;
  if (asked.has_flush) [[unlikely]] {
    for (std::uint32_t u = 0; u < instances_of(params); ++u)
      if (scratch.ticks[u] == 0) latest = later(latest, Atomics::load(instances[u].free_at));
  }
  for (std::uint32_t i = 0; i < asked.touched; ++i) {
    std::uint64_t& ticks = scratch.ticks[scratch.touched[i]];
    ticks = simple_reserve(instances[scratch.touched[i]], ticks, now);
    latest = later(latest, ticks);
  }
  if (params.has_link)
    simple_reserve_link(params, instances + instances_of(params), scratch.ticks + instances_of(params), batch, count,
                        now);
  simple_walk(params, scratch.ticks, batch, count, now_ns, targets_ns, latest);
}

}  // namespace flashmob::timing
