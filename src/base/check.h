// Assertions for our own bugs, and the exception for configuration mistakes.
//
// Three kinds of error exist in flashmob: a guest's mistake is an NVMe status, an operator's mistake is a
// ConfigError, and our own mistake fails FLASHMOB_CHECK, which stays on in release builds (it guards state,
// never input).
#pragma once

#include "flashmob/error.h"

namespace flashmob {

[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace flashmob

#define FLASHMOB_CHECK(condition)                               \
  do {                                                          \
    if (!(condition)) [[unlikely]]                              \
      ::flashmob::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
