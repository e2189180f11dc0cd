// The exception for configuration mistakes.
#pragma once

#include <stdexcept>
#include <string>

namespace flashmob {

// An operator's mistake in a profile, option or file. `what()` is one sentence naming key and fix.
class ConfigError : public std::runtime_error {
 public:
  explicit ConfigError(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace flashmob
