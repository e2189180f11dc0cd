// How much memory a store may take: what the machine has, and what the container allows.
#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

#include "flashmob/machine.h"

namespace flashmob {
namespace {

constexpr std::uint64_t kUnknown = std::uint64_t{1} << 50;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<std::uint64_t> number_at(const std::string& path) {
  const std::string text = text_of(path);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;  // no such group, or "max"
  return value;
}

// The value behind a word at the beginning of a line.
std::optional<std::uint64_t> value_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t value = 0;
    if (words >> word >> value && word == key) return value;
  }
  return std::nullopt;
}

std::uint64_t left_in(const std::string& group, bool is_v2) {
  const auto limit = number_at(group + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = number_at(group + (is_v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return kUnknown;
  const std::uint64_t cache =
      value_of(text_of(group + "/memory.stat"), is_v2 ? "inactive_file" : "total_inactive_file").value_or(0);
  const std::uint64_t held = *used - std::min(*used, cache);
  return *limit - std::min(*limit, held);
}

// The least that a group or any above it leaves. In a container its own group is often mounted as the root, and the
// path that the kernel tells lies outside of it; the root is therefore always looked at.
std::uint64_t left_above(const std::string& mount, std::string path, bool is_v2) {
  std::uint64_t least = left_in(mount, is_v2);
  while (!path.empty() && path != "/") {
    least = std::min(least, left_in(mount + path, is_v2));
    path.erase(path.find_last_of('/'));
  }
  return least;
}

}  // namespace

std::uint64_t free_memory_bytes(const std::string& root) {
  std::uint64_t least = kUnknown;
  if (const auto kib = value_of(text_of(root + "/proc/meminfo"), "MemAvailable:")) least = *kib * 1024;
  std::istringstream groups(text_of(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      least = std::min(least, left_above(root + "/sys/fs/cgroup", path, true));
      least = std::min(least, left_above(root + "/sys/fs/cgroup/unified", path, true));
    } else if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, left_above(root + "/sys/fs/cgroup/memory", path, false));
    }
  }
  return least;
}

}  // namespace flashmob
