// How a configuration is checked: one sentence per mistake, "key = value is not possible: fix", so that a user sees at
// once what to change where. Pure; for any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/check.h"

namespace flashmob::config_checks {

[[noreturn]] void reject(const std::string& key, const std::string& value, const std::string& fix);

// Values as messages show them.
std::string quoted(std::string_view text);
std::string number(double value);

void check_range(const std::string& key, std::uint64_t value, std::uint64_t low, std::uint64_t high);
void check_power_of_two(const std::string& key, std::uint64_t value, std::uint64_t low, std::uint64_t high);
void check_one_of(const std::string& key, const std::string& value, std::initializer_list<const char*> allowed);

}  // namespace flashmob::config_checks
