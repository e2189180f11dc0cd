// What a run costs the machine: CPU time, switches and faults of the threads that do the I/O, of the helpers that
// interfaces keep (the kernel's submission threads and workers, the C library's), and of the whole machine.
//
// Thread rule: usage_of_this_thread() and PerfCounters belong to the thread that asks; the rest to any.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace flashmob::interfaces {

struct ThreadUsage {
  std::uint64_t cpu_ns = 0;
  // How the kernel divides that up, as of its last tick.
  std::uint64_t user_ns = 0, system_ns = 0;
  std::uint64_t voluntary_switches = 0, involuntary_switches = 0;
  std::uint64_t minor_faults = 0, major_faults = 0;

  ThreadUsage& operator+=(const ThreadUsage& other);
  ThreadUsage operator-(const ThreadUsage& other) const;
};

ThreadUsage usage_of_this_thread();

// Cycles and instructions of the calling thread and of those that it starts from here on, the kernel's share included.
class PerfCounters {
 public:
  PerfCounters();
  ~PerfCounters();
  PerfCounters(const PerfCounters&) = delete;
  PerfCounters& operator=(const PerfCounters&) = delete;

  struct Values {
    std::uint64_t cycles = 0, instructions = 0;
  };
  Values read() const;
  // Why there are none; empty: there are.
  const std::string& absent() const { return absent_; }

 private:
  int cycles_ = -1;
  int instructions_ = -1;
  std::string absent_;
};

// Tasks of this process beside `others`: what each has run and how often it was switched. Those that end before they
// are asked are missed.
struct Helper {
  std::uint64_t cpu_ns = 0;
  std::uint64_t voluntary_switches = 0, involuntary_switches = 0;
};
using Helpers = std::map<pid_t, Helper>;
std::set<pid_t> tasks_of_process();
Helpers helpers_beside(const std::set<pid_t>& others);
// What those in `after` have done since `before`.
Helper difference(const Helpers& before, const Helpers& after);

// The whole machine's, in ticks of 10 ms most likely.
struct MachineUsage {
  std::uint64_t user_ns = 0, system_ns = 0, interrupt_ns = 0, idle_ns = 0, stolen_ns = 0;
  std::uint64_t interrupts = 0, switches = 0;

  MachineUsage operator-(const MachineUsage& other) const;
};
MachineUsage usage_of_machine();

}  // namespace flashmob::interfaces
