// The first second of a new server and a new client on a machine whose cores others keep busy: random reads of 4 KiB,
// depth 32, through each door in turn, beside processes that do nothing but count. No ramp: what comes first counts.
//
// Usage: bench_crowded [WINDOWS] [NEIGHBOURS] [DOORS] [CORE], DOORS out of i, v and t, as in "iv"; with CORE all of
// them have that one core, as chance may have it for seconds where there are two
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <map>

#include "bench/bench_common.h"
#include "bench/server_process.h"

namespace {

using namespace flashmob;

class Neighbour {
 public:
  Neighbour() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile std::uint64_t count = 0;;) count = count + 1;
  }
  ~Neighbour() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

 private:
  pid_t pid_;
};

double first_second(const DeviceConfig& device, char door) {
  const bench::ServerProcess server(device);
  BenchOptions options;
  if (door == 'v') options.target = server.addresses.vfio_user;
  if (door == 't') options.target = server.addresses.nvme_tcp;
  options.block_sizes = {{4096, 1.0}};
  options.queues = 1;
  options.queue_depth = 32;
  options.verify_percent = 0;
  options.fill = false;
  options.ramp_ns = 1'000;
  options.runtime_ns = 1'000'000'000;
  return bench::run(device, options).iops;
}

}  // namespace

int main(int argc, char** argv) try {
  const int windows = argc > 1 ? std::atoi(argv[1]) : 6;
  const int neighbours = argc > 2 ? std::atoi(argv[2]) : 4;
  const std::string doors = argc > 3 ? argv[3] : "vti";
  if (argc > 4) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(std::atoi(argv[4])), &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0) throw std::runtime_error("there is no such core");
  }
  DeviceConfig device;
  device.timing.model = "none";
  device.subsystem.namespaces[0].size_bytes = std::uint64_t{1} << 30;
  std::vector<std::unique_ptr<Neighbour>> crowd;
  for (int i = 0; i < neighbours; ++i) crowd.push_back(std::make_unique<Neighbour>());
  std::map<char, std::vector<double>> kilo_iops;
  for (int i = 0; i < windows; ++i)
    for (const char door : doors) kilo_iops[door].push_back(first_second(device, door) / 1e3);
  for (const char door : doors) {
    const char* const name = door == 'v' ? "vfio-user" : door == 't' ? "nvme-tcp" : "in-process";
    bench::print_summary(name, "k IOPS", kilo_iops[door]);
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
