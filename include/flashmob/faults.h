// Faults that an emulated SSD is told to show: what becomes of each rule. How rules are written: docs/guide/faults.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flashmob {

// One rule since it was given: how many commands it was meant for, and how many of these it hit.
struct FaultCount {
  std::string rule;
  std::uint64_t matched = 0;
  std::uint64_t injected = 0;
};

// Throws ConfigError for the first rule that cannot be read, naming the word and the fix.
void check_faults(const std::vector<std::string>& rules);

}  // namespace flashmob
