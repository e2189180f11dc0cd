// The GPU engine's evaluation, one point at a time: an application kernel and the engine's kernel on one device, with
// queues, doorbells and buffers in its memory, for a measured time. What comes out is a benchmark's result like any
// other (docs/reference/result.md), and what only this engine has.
//
// On a GPU in real time; on fibres in virtual time, where it shows what the model and the code do, not how fast a GPU
// is. Equal options give equal points there. For one host thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "flashmob/gpu/simt/clock_fit.h"

namespace flashmob::gpu::evaluation {

struct PointOptions {
  // The application.
  std::uint32_t threads = 1024;  // 1...4194304, each with one read at a time
  std::uint32_t queues = 256;    // 1...4096
  std::uint32_t entries = 1024;  // of each ring, 2...65536
  std::uint32_t bytes = 512;     // of each read: a power of two, 512...65536
  std::uint64_t seed = 1;
  // The SSD.
  double iops = 2.47e6;
  std::uint64_t latency_ns = 50'000;
  std::string media = "device";  // device: the GPU's memory | host: the host's, across PCIe
  std::uint64_t media_bytes = std::uint64_t{1} << 30;
  // Its engine.
  std::uint32_t units = 16;  // blocks, each on a multiprocessor of its own
  std::uint32_t movers = 6;
  std::uint32_t fetch_batch = 32;
  bool per_request_updates = false;
  bool statistics = true;
  // Warps that take completions in for the application, 0: as many as queues, at most 512.
  std::uint32_t service_warps = 0;
  std::uint64_t ramp_ns = 50'000'000;
  std::uint64_t measure_ns = 100'000'000;

  // Throws ConfigError.
  void validate() const;
};

struct PointReport {
  std::string result;  // a flashmob-result document
  std::string engine;  // one JSON object: what the document has no field for
};

class Evaluation {
 public:
  // `backend`: cuda, threads or fibres. Throws ConfigError or CudaError.
  static std::unique_ptr<Evaluation> open(const std::string& backend);
  virtual ~Evaluation() = default;

  virtual std::string describe() const = 0;
  virtual std::uint32_t multiprocessors() const = 0;  // 0 where there is no GPU
  // `command` goes into the result's provenance. Throws std::runtime_error if the kernels do not end.
  virtual PointReport run(const PointOptions& options, const std::string& command) = 0;
  // Bytes per second at which random stripes of media come into the GPU's memory when nothing else is done: the limit
  // that a run's bandwidth is a share of. 0 where there is no GPU.
  virtual double media_limit(const std::string& media, std::uint64_t media_bytes, std::uint32_t stripe_bytes) = 0;
};

}  // namespace flashmob::gpu::evaluation
