// A server in a process of its own, for benchmarks of doors.
#pragma once

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "flashmob/server.h"

namespace flashmob::bench {

struct Addresses {
  std::string vfio_user, nvme_tcp;
};

// Serves until `input` ends; says on `output` how it is reached.
inline void serve(const DeviceConfig& device, const std::string& folder, int input, int output) {
  ServerOptions options;
  options.vfio_user_path = folder + "/cntrl";
  options.tcp_address = "127.0.0.1:0";
  Server server(device, options);
  server.start();
  std::string text;
  for (const std::string& address : server.addresses()) text += address + "\n";
  if (::write(output, text.data(), text.size()) != static_cast<ssize_t>(text.size())) return;
  char byte;
  while (::read(input, &byte, 1) > 0) {
  }
  server.stop();
}

// Made before the process has threads: it is a fork of this one.
class ServerProcess {
 public:
  explicit ServerProcess(const DeviceConfig& device) {
    std::array<int, 2> in{}, out{};
    if (::mkdtemp(folder_.data()) == nullptr || ::pipe(in.data()) != 0 || ::pipe(out.data()) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(in[1]);
      ::close(out[0]);
      serve(device, folder_, in[0], out[1]);
      ::_exit(0);
    }
    ::close(in[0]);
    ::close(out[1]);
    keep_alive_ = in[1];
    std::string text(4096, '\0');
    std::size_t have = 0;
    while (std::count(text.begin(), text.end(), '\n') < 2) {
      const ssize_t got = ::read(out[0], text.data() + have, text.size() - have);
      if (got <= 0) throw std::runtime_error("the server ended before it was ready");
      have += static_cast<std::size_t>(got);
    }
    ::close(out[0]);
    const std::size_t end = text.find('\n');
    addresses.vfio_user = text.substr(0, end);
    addresses.nvme_tcp = text.substr(end + 1, text.find('\n', end + 1) - end - 1);
  }
  ~ServerProcess() {
    ::close(keep_alive_);
    ::waitpid(pid_, nullptr, 0);
    ::unlink((folder_ + "/cntrl").c_str());
    ::rmdir(folder_.c_str());
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  Addresses addresses;
  // Of all its threads, since it was made.
  double cpu_seconds() const {
    clockid_t clock{};
    timespec t{};
    if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &t) != 0) return 0;
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
  }

 private:
  std::string folder_ = "/tmp/flashmob-doors-XXXXXX";
  pid_t pid_ = -1;
  int keep_alive_ = -1;
};

}  // namespace flashmob::bench
