// What a server process holds, as the kernel tells it in /proc. For the parent of the soak; one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace flashmob::soak {

struct ServerUse {
  std::uint64_t descriptors = 0;
  std::uint64_t threads = 0;
  std::uint64_t mappings = 0;
  std::uint64_t memory_bytes = 0;  // resident
  double cpu_seconds = 0;
};

// Throws std::runtime_error if there is no such process.
ServerUse look_at(pid_t server);
std::string text(const ServerUse& use);

}  // namespace flashmob::soak
