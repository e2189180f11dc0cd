#include "soak/server_watch.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace flashmob::soak {

ServerUse look_at(pid_t server) {
  const std::filesystem::path process = "/proc/" + std::to_string(server);
  ServerUse use;
  std::error_code error;
  for (std::filesystem::directory_iterator at(process / "fd", error), end; !error && at != end; at.increment(error))
    ++use.descriptors;
  std::ifstream status(process / "status");
  std::string line;
  while (std::getline(status, line)) {
    std::istringstream fields(line);
    std::string key;
    std::uint64_t value = 0;
    fields >> key >> value;
    if (key == "VmRSS:") use.memory_bytes = value * 1024;
    if (key == "Threads:") use.threads = value;
  }
  if (error || use.threads == 0)
    throw std::runtime_error("process " + std::to_string(server) + " is not there, or is another user's");
  std::ifstream maps(process / "maps");
  use.mappings = static_cast<std::uint64_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
  std::ifstream stat(process / "stat");
  std::getline(stat, line);
  // User and system time are the 14th and 15th fields; the second, a name in parentheses, may hold blanks.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  use.cpu_seconds = (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return use;
}

std::string text(const ServerUse& use) {
  return std::to_string(use.descriptors) + " descriptors, " + std::to_string(use.threads) + " threads, " +
         std::to_string(use.mappings) + " mappings, " + std::to_string(use.memory_bytes >> 10) + " KiB resident";
}

}  // namespace flashmob::soak
