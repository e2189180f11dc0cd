// The trace that a benchmark replays: from the file to the commands that its queues send.
// Thread rule: whoever builds the benchmark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "flashmob/bench.h"
#include "load/trace.h"

namespace flashmob::api {

class BenchTrace {
 public:
  // Reads the file that the options name, if they name one, and fits it to a namespace. Throws ConfigError.
  void load(const BenchOptions& options, std::uint64_t namespace_bytes, std::uint32_t lba_bytes);
  // Cuts what is larger than one command can be, as a host's block layer would.
  void cut(std::uint32_t max_transfer_bytes);

  bool empty() const { return commands_.empty(); }
  // In order of time, which counts from the first.
  const std::vector<load::TraceIo>& commands() const { return commands_; }
  // The largest command's buffer.
  std::uint32_t max_io_bytes() const { return max_io_bytes_; }
  // Queues take turns.
  std::vector<load::TraceIo> share(std::size_t queue, std::size_t queues) const;

 private:
  std::vector<load::TraceIo> commands_;
  std::uint32_t max_io_bytes_ = 4096;
};

}  // namespace flashmob::api
