#include "base/gap_monitor.h"

#include <sys/resource.h>
#include <time.h>

namespace flashmob {

ThreadUse thread_use() {
  ThreadUse use;
  timespec t{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0)
    use.cpu_ns = static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
  rusage usage{};
  if (getrusage(RUSAGE_THREAD, &usage) == 0)
    use.page_faults = static_cast<std::uint64_t>(usage.ru_minflt + usage.ru_majflt);
  return use;
}

}  // namespace flashmob
