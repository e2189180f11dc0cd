#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace flashmob {

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "flashmob: internal error: check failed: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace flashmob
