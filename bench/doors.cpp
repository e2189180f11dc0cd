// The doors beside each other: the same random reads of the same kind of memory-backed, unlimited SSD, verified by
// sample, through the in-process door, and through vfio-user and NVMe/TCP (loopback) of another process.
//
// Windows of all doors alternate within one run, so that the ratios compare like with like. The server is a child
// process made before anything else; between its windows it sleeps.
// Usage: bench_doors [WINDOWS] [QUEUES] [DEPTH] [DOORS], DOORS out of i, v and t, as in "iv"
//        bench_doors serve: only the server, until its input ends
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <iostream>
#include <stdexcept>

#include "bench/bench_common.h"
#include "bench/server_process.h"

namespace {

using namespace flashmob;

constexpr std::uint64_t kStoreBytes = std::uint64_t{1} << 30;

DeviceConfig device() {
  DeviceConfig config;
  config.timing.model = "none";
  config.subsystem.namespaces[0].size_bytes = kStoreBytes;
  return config;
}

struct Door {
  const char* name;
  std::string target;
  bool polls_memory;  // both ends keep a core each, or the window measures the machine's other tenants
  std::vector<double> mega_iops{}, ratios{};
  double in_window = 0;  // 0: left out
};

void measure(Door& door, const bench::ServerProcess& server, std::uint32_t bytes, int window, std::uint32_t queues,
             std::uint32_t depth) {
  BenchOptions options;
  options.target = door.target;
  options.block_sizes = {{bytes, 1.0}};
  options.queues = queues;
  options.queue_depth = depth;
  options.verify_percent = 0.5;
  options.ramp_ns = 200'000'000;
  options.runtime_ns = 600'000'000;
  const double cpu_before = server.cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  const bench::Outcome one = bench::run(device(), options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // Of another process's threads only the sum over the whole run is known, its beginning included.
  const double server_share = door.target.empty() ? one.unit_share : (server.cpu_seconds() - cpu_before) / seconds;
  const bool counts = !door.polls_memory || (one.driver_share > 0.95 && server_share > 0.9);
  std::printf("%u B window %d: %s %.3f M IOPS, mean latency %.1f us, CPU share server %.2f driver %.2f%s\n", bytes,
              window, door.name, one.iops / 1e6, one.latency_mean_ns / 1e3, server_share, one.driver_share,
              counts ? "" : "  (preempted, left out)");
  if (one.verify_errors != 0) throw std::runtime_error(std::string(door.name) + ": data was wrong");
  door.in_window = counts ? one.iops / 1e6 : 0;
  if (counts) door.mega_iops.push_back(door.in_window);
}

void compare(const bench::ServerProcess& server, std::uint32_t bytes, int windows, std::uint32_t queues,
             std::uint32_t depth, std::vector<Door> doors) {
  for (int i = 0; i < windows; ++i) {
    for (Door& door : doors) {
      measure(door, server, bytes, i, queues, depth);
      const double base = doors[0].in_window;
      if (base != 0 && door.in_window != 0) door.ratios.push_back(door.in_window / base);
    }
  }
  for (const Door& door : doors) {
    const std::string what = std::to_string(bytes) + " B " + door.name;
    bench::print_summary(what.c_str(), "M IOPS", door.mega_iops);
    if (&door != &doors[0]) bench::print_summary((what + " / " + doors[0].name).c_str(), "x", door.ratios);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1 && std::strcmp(argv[1], "serve") == 0) {
    std::string folder = "/tmp/flashmob-doors-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) return 1;
    bench::serve(device(), folder, STDIN_FILENO, STDOUT_FILENO);
    ::rmdir(folder.c_str());
    return 0;
  }
  const int windows = argc > 1 ? std::atoi(argv[1]) : 5;
  const auto queues = static_cast<std::uint32_t>(argc > 2 ? std::atoi(argv[2]) : 1);
  const auto depth = static_cast<std::uint32_t>(argc > 3 ? std::atoi(argv[3]) : 128);
  const std::string chosen = argc > 4 ? argv[4] : "ivt";
  const bench::ServerProcess server(device());
  std::vector<Door> doors;
  for (const char letter : chosen) {
    if (letter == 'i') doors.push_back({.name = "in-process", .target = "", .polls_memory = true});
    if (letter == 'v')
      doors.push_back({.name = "vfio-user", .target = server.addresses.vfio_user, .polls_memory = true});
    if (letter == 't')
      doors.push_back({.name = "nvme-tcp", .target = server.addresses.nvme_tcp, .polls_memory = false});
  }
  std::printf("%u x %u in flight\n", queues, depth);
  for (const std::uint32_t bytes : {512u, 4096u}) compare(server, bytes, windows, queues, depth, doors);
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
