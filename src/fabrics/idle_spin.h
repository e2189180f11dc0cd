// How long a thread that moves bytes looks for work before it sleeps. Where cores are plenty, looking for a while saves
// the wake-up; where the thread shares its core, looking keeps the very thread waiting that is to give it work: one
// that spins is not made to leave before its time slice ends.
//
// A function of what the process may run on; any thread.
#pragma once

#include <sched.h>

#include <cstdint>

namespace flashmob::fabrics {

// In the options of both ends: let idle_spin_ns() choose.
inline constexpr std::uint64_t kIdleSpinAuto = UINT64_MAX;

// `busy_threads`: those of this process that keep a core each, the one that asks among them. One core more must be
// there, for the other end or for the kernel's part of the work.
inline std::uint64_t idle_spin_ns(std::uint64_t wanted_ns, unsigned busy_threads) {
  constexpr std::uint64_t kSpinNs = 50'000;
  if (wanted_ns != kIdleSpinAuto) return wanted_ns;
  cpu_set_t set;
  CPU_ZERO(&set);
  const unsigned cores = sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 1;
  return cores > busy_threads ? kSpinNs : 0;
}

}  // namespace flashmob::fabrics
