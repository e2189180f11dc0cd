// What this machine is, as far as results and `flashmob doctor` need to know.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flashmob {

struct MachineInfo {
  std::string cpu;                    // model name
  std::string kernel;                 // release
  unsigned cores = 0;
  double tsc_ghz = 0;                 // 0: the TSC is not used
  bool invariant_tsc = false;
  std::vector<std::string> features;  // of sse4.2, avx2, avx512f
  std::string hugepages;              // transparent huge page setting
  std::string isolated_cores;         // as the kernel lists them
};

MachineInfo machine_info();

// Memory that can be had without swapping, bytes: the machine's, and no more than any control group above this process
// leaves (cgroup versions 1 and 2; page cache that can be given up does not count as used). `root` is for tests.
std::uint64_t free_memory_bytes(const std::string& root = "/");

// What the control groups above this process allow at most; nothing where they set no limit.
struct ContainerLimits {
  std::optional<double> cores;  // processor time a second
  std::optional<std::uint64_t> memory_bytes;
};

ContainerLimits container_limits(const std::string& root = "/");

}  // namespace flashmob
