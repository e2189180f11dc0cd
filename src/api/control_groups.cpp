// What the control groups above this process (its container's, as a rule) allow, and how much memory is left to it.
#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

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

std::optional<std::uint64_t> number_in(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;  // no such group, or "max"
  return value;
}

std::optional<std::uint64_t> number_at(const std::string& path) { return number_in(text_of(path)); }

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

// The folders of a group and of those above it, whose limits hold too. In a container its own group is often mounted as
// the root, and the path that the kernel tells lies outside of it; the root is therefore always looked at.
void add_folders(std::vector<std::string>& folders, const std::string& mount, std::string path) {
  folders.push_back(mount);
  while (!path.empty() && path != "/") {
    folders.push_back(mount + path);
    path.erase(path.find_last_of('/'));
  }
}

struct Folders {
  std::vector<std::string> v1;
  std::vector<std::string> v2;
};

// Where the groups that control `what`, "cpu" or "memory", lie.
Folders folders_of(const std::string& root, const std::string& what) {
  Folders found;
  const std::string wanted = "," + what + ",", folder = root + "/sys/fs/cgroup/" + what;
  std::istringstream groups(text_of(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      add_folders(found.v2, root + "/sys/fs/cgroup", path);
      add_folders(found.v2, root + "/sys/fs/cgroup/unified", path);
    } else if (controllers.find(wanted) != std::string::npos) {
      add_folders(found.v1, folder, path);
    }
  }
  return found;
}

// A quota of "max" or -1 is none.
std::optional<double> cores(const std::string& quota_text, const std::string& period_text) {
  const auto quota = number_in(quota_text);
  const auto period = number_in(period_text);
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

template <class T>
void lower(std::optional<T>& least, std::optional<T> value) {
  if (value && (!least || *value < *least)) least = value;
}

}  // namespace

std::uint64_t free_memory_bytes(const std::string& root) {
  std::uint64_t least = kUnknown;
  if (const auto kib = value_of(text_of(root + "/proc/meminfo"), "MemAvailable:")) least = *kib * 1024;
  const Folders groups = folders_of(root, "memory");
  for (const std::string& group : groups.v1) least = std::min(least, left_in(group, false));
  for (const std::string& group : groups.v2) least = std::min(least, left_in(group, true));
  return least;
}

ContainerLimits container_limits(const std::string& root) {
  ContainerLimits limits;
  const Folders cpu = folders_of(root, "cpu");
  for (const std::string& group : cpu.v1)
    lower(limits.cores, cores(text_of(group + "/cpu.cfs_quota_us"), text_of(group + "/cpu.cfs_period_us")));
  for (const std::string& group : cpu.v2) {
    const std::string text = text_of(group + "/cpu.max");
    const std::size_t blank = std::min(text.find(' '), text.size());
    lower(limits.cores, cores(text.substr(0, blank), text.substr(std::min(blank + 1, text.size()))));
  }
  const Folders memory = folders_of(root, "memory");
  for (const std::string& group : memory.v1) lower(limits.memory_bytes, number_at(group + "/memory.limit_in_bytes"));
  for (const std::string& group : memory.v2) lower(limits.memory_bytes, number_at(group + "/memory.max"));
  // Version 1 writes a limit that is none as the largest multiple of a page.
  if (limits.memory_bytes && *limits.memory_bytes >= kUnknown) limits.memory_bytes.reset();
  return limits;
}

}  // namespace flashmob
