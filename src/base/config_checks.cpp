#include "base/config_checks.h"

#include <bit>
#include <cstdio>

namespace flashmob::config_checks {

void reject(const std::string& key, const std::string& value, const std::string& fix) {
  throw ConfigError(key + " = " + value + " is not possible: " + fix);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 64)) out += c >= 0x20 && c < 0x7F ? c : '?';
  return out + (text.size() > 64 ? "...\"" : "\"");
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

void check_range(const std::string& key, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high) return;
  reject(key, std::to_string(value), "use " + std::to_string(low) + " to " + std::to_string(high));
}

void check_power_of_two(const std::string& key, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high && std::has_single_bit(value)) return;
  reject(key, std::to_string(value), "use a power of two from " + std::to_string(low) + " to " + std::to_string(high));
}

void check_one_of(const std::string& key, const std::string& value, std::initializer_list<const char*> allowed) {
  std::string list;
  for (const char* word : allowed) {
    if (value == word) return;
    list += (list.empty() ? "" : ", ") + std::string(word);
  }
  reject(key, quoted(value), "use one of " + list);
}

}  // namespace flashmob::config_checks
