// The load generator as a library call: build a device and drive it through the in-process door, or drive a device that
// another process serves; report.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "flashmob/config.h"

namespace flashmob {

// One entry of a block-size mix: a size in bytes and its weight.
struct BlockSizeShare {
  std::uint32_t bytes = 512;
  double weight = 1.0;
};

// Who takes turns in virtual time: the threads that a run in real time would have.
enum class BenchActor : std::uint8_t {
  dispatcher,  // of a service unit: polls, fetches, and without workers moves data and completes
  worker,  // moves data and completes
  driver,  // the load generator
  interrupt,  // of a queue, on its way to the driver
};

struct BenchOptions {
  // Who is asked: empty for a device of the benchmark's own, else the door of another process:
  // "vfio-user:PATH" (the socket, or the folder that holds it as `cntrl`) or "nvme-tcp:ADDRESS:PORT/NQN"; or a drive of
  // this machine that vfio-pci has, "pci:0000:00:04.0".
  std::string target;
  bool allow_writes = false;  // what is on a drive of this machine may be lost; without it, such a drive is only read
  // What NVMe/TCP needs besides; keys as nvme-cli's gen-dhchap-key writes them, empty without authentication.
  std::string host_nqn;  // empty: one of flashmob's own
  std::string host_key;
  std::string controller_key;  // the target must prove itself too
  std::string tls_key;  // "NVMeTLSkey-1:...", as gen-tls-key writes it: use TLS; empty: do not
  bool secure_channel = false;  // use TLS, with a key that the proof by host_key makes
  bool header_digest = false;
  bool data_digest = false;
  // What is asked.
  std::string rw = "randread";  // read | write | randread | randwrite | rw | randrw (mixed: read_share)
  double read_share = 1.0;  // share of reads in rw and randrw, 0...1
  std::vector<BlockSizeShare> block_sizes{BlockSizeShare{}};  // multiples of the LBA size
  std::string distribution = "uniform";  // uniform | zipf:THETA | hotcold:SHARE_OF_IO:SHARE_OF_SPACE
  // How much at once.
  std::uint32_t queues = 4;  // I/O queue pairs
  std::uint32_t queue_depth = 128;  // commands in flight per queue
  std::uint64_t requesters = 0;  // closed-loop requesters in all; 0 = queues * queue_depth
  std::uint32_t queue_entries = 0;  // ring size; 0 = the smallest that holds queue_depth (queue_depth + 1)
  double rate_iops = 0;  // open loop: arrivals per second in all; 0 = closed loop
  std::string arrivals = "poisson";  // fixed | poisson
  std::uint64_t think_time_ns = 0;  // closed loop: pause between completion and next request
  std::uint32_t threads = 1;  // driver threads
  // How they wait, in real time: poll | interrupt (sleep until one comes) | hybrid (sleep until just before a
  // completion is expected, then poll; docs/guide/completion.md).
  std::string completion = "poll";
  // How long. In virtual time these are virtual nanoseconds.
  std::uint64_t ramp_ns = 1'000'000'000;
  std::uint64_t runtime_ns = 5'000'000'000;
  std::uint64_t ios = 0;  // stop after so many measured I/Os; 0 = by time
  // What is checked. Percentage of reads whose content is verified, 0...100.
  double verify_percent = 1.0;
  // Write memory and new file media full of verifiable content first. A store behind a door is filled through the door,
  // and only where nothing but zeros or such content is found in it.
  bool fill = true;
  // none | steady: a memory namespace of model nand is as if it had been overwritten at random for long.
  std::string precondition = "none";
  // none | apart: writes say what is overwritten together by placement handles of their own, the hot and the cold part
  // of a load, else what each queue writes. A drive with subsystem.placement.
  std::string placement = "none";
  // Trace replay. `ios` and `runtime_ns` are how many of its requests and how much of its time are replayed, 0: all.
  std::string trace_path;  // empty: none
  std::string trace_format = "auto";  // auto | fio | msr | alibaba | tencent
  std::string trace_disk;  // replay this disk, volume or file only; empty: all of them, side by side
  bool trace_as_fast = false;  // ignore the trace's timing; runtime_ns is then a limit of the run's own time
  bool trace_sizes_namespace = false;  // a device of our own is made as large as the trace needs
  // Time.
  std::string clock = "real";  // real | virtual
  std::uint64_t virtual_poll_ns = 100;  // virtual time between two polls of an actor under load
  std::vector<std::uint32_t> cores;  // pin driver threads; empty: not pinned
  // Virtual time: what a machine may do to a run, for tests of the verdict. Asked before each turn of an actor; holds
  // it back until the time that it returns, if that is later than now_ns. From a dispatcher or a driver, that is time
  // which the machine took; a worker's copies are slow. Empty: nothing is held back.
  std::function<std::uint64_t(BenchActor actor, std::uint64_t now_ns)> disturbance;
  // A device of another process that completes nothing for so long is not waited for any more; what it still owes is
  // `unanswered`. As long as Linux' driver waits (nvme_core.io_timeout).
  std::uint64_t silence_ns = 30'000'000'000;
  // Copied into the result's provenance.
  std::string command;
};

// A running benchmark's counters, readable from another thread at any time.
struct BenchProgress {
  std::string phase;  // "fill", "ramp", "run", "model" (the yardstick is measured), "done"
  double phase_fraction = 0;  // 0...1
  std::uint64_t fill_bytes = 0, fill_total_bytes = 0;  // of the store, while it is being filled
  std::uint64_t ios = 0;
  double iops = 0;  // since the previous call of progress()
  double mean_latency_ns = 0;  // ditto
  double mean_lateness_ns = -1;  // ditto: completion after target; below 0 where the device is another process's
  std::uint64_t verify_errors = 0;
};

// Runs one benchmark. run() blocks and may be called once; progress() and cancel() may be called from other threads.
class Bench {
 public:
  // With BenchOptions::target only the device's name, seed and fidelity rule are used. Throws ConfigError.
  Bench(const DeviceConfig& device, const BenchOptions& options);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Returns the result as one JSON document (docs/reference/result.md). A cancelled run still reports, and so does one
  // whose device fails or goes away ("device_failed").
  std::string run();
  BenchProgress progress();
  void cancel();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flashmob
