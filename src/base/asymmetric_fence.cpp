#include "base/asymmetric_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/platform.h"

namespace flashmob {
namespace {

bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

bool register_process() { return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }

}  // namespace

bool has_heavy_fence() {
  static const bool has = FLASHMOB_TSAN == 0 && register_process();
  return has;
}

void heavy_fence() {
  if (!has_heavy_fence() || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  // A process that was forked off may have to register again.
  const bool fenced = register_process() && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  FLASHMOB_CHECK(fenced);
}

}  // namespace flashmob
