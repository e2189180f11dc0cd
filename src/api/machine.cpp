#include "flashmob/machine.h"

#include <fstream>
#include <thread>

#include "base/clock.h"
#include "load/result.h"

namespace flashmob {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

MachineInfo machine_info() {
  MachineInfo info;
  info.cpu = load::cpu_model();
  info.kernel = load::kernel_release();
  info.cores = std::thread::hardware_concurrency();
  info.tsc_ghz = Clock::real().tsc_hz() / 1e9;
  info.invariant_tsc = has_invariant_tsc();
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) info.features.emplace_back("sse4.2");
  if (__builtin_cpu_supports("avx2")) info.features.emplace_back("avx2");
  if (__builtin_cpu_supports("avx512f")) info.features.emplace_back("avx512f");
#endif
  info.hugepages = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  info.isolated_cores = first_line("/sys/devices/system/cpu/isolated");
  return info;
}

}  // namespace flashmob
