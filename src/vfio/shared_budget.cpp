#include "vfio/shared_budget.h"

#include <sys/resource.h>

#include <fstream>

namespace flashmob::vfio {
namespace {

std::size_t most_mappings() {
  std::size_t most = 65530;  // the kernel's default
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  return most;
}

std::size_t most_descriptors() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<std::size_t>(limit.rlim_cur) : 1024;
}

}  // namespace

SharedBudget& client_mappings() {
  static SharedBudget budget(most_mappings() / 3);
  return budget;
}

SharedBudget& client_descriptors() {
  static SharedBudget budget(most_descriptors() / 2);
  return budget;
}

}  // namespace flashmob::vfio
