// The trace that a benchmark replays: from the file to the commands that its queues send, and what it asks of a store.
// Thread rule: whoever builds the benchmark; what is const afterwards, any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "flashmob/bench.h"
#include "flashmob/config.h"
#include "load/trace.h"

namespace flashmob::api {

// In this order: load, then size_namespace where the device is our own, then fit. Without a trace none does anything.
class BenchTrace {
 public:
  // Reads the file that the options name, up to their number of requests and their time. Throws ConfigError.
  void load(const BenchOptions& options);
  // Makes the namespace as large as the trace needs, if the options ask for it. Throws ConfigError where the device
  // cannot be what the trace needs.
  void size_namespace(const BenchOptions& options, NamespaceConfig& config);
  // Fits the requests to the namespace, and cuts what is larger than one command can be.
  void fit(std::uint64_t namespace_bytes, std::uint32_t lba_bytes, std::uint32_t max_transfer_bytes);
  // For a namespace in memory, of which only so much can be had. Throws ConfigError where the trace writes more: the
  // system would end us in the middle of the run.
  void need_memory(std::uint64_t available_bytes) const;

  bool empty() const { return commands_.empty(); }
  // Whether blocks may hold something else after the replay.
  bool changes_data() const { return summary_.writes != 0 || summary_.trims != 0; }
  // In order of time, which counts from the first.
  const std::vector<load::TraceIo>& commands() const { return commands_; }
  const load::TraceSummary& summary() const { return summary_; }
  // The largest command's buffer.
  std::uint32_t max_io_bytes() const;
  // The part of the store that is worth filling. Empty without a trace: all of it.
  std::vector<load::ByteRange> touched() const;
  // Queues take turns.
  std::vector<load::TraceIo> share(std::size_t queue, std::size_t queues) const;

 private:
  std::vector<load::TraceIo> commands_;
  load::TraceSummary summary_;
};

}  // namespace flashmob::api
