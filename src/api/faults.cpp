#include "flashmob/faults.h"

#include "engine/fault_rule.h"

namespace flashmob {

void check_faults(const std::vector<std::string>& rules) {
  for (const std::string& rule : rules) engine::FaultRule::parse(rule);
}

}  // namespace flashmob
