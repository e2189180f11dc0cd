// When a request is done. A timing model answers, for a batch of requests fetched together, the time each completes.
//
// Models are pure functions of (requests, now, state): no threads, no I/O, no clock. Several dispatchers may call
// schedule() of one model at once; the model's shared state is updated atomically, once per batch where it can.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "flashmob/config.h"
#include "timing/demand.h"

namespace flashmob::timing {

class TimingModel {
 public:
  virtual ~TimingModel() = default;
  // Writes targets_ns[i], the time at which batch[i] is done, for a batch fetched at now_ns. The batch is in queue
  // order; sizes are equal. Never earlier than now_ns.
  virtual void schedule(std::span<const Demand> batch, std::uint64_t now_ns, std::span<std::uint64_t> targets_ns) = 0;
  // Forgets all load (controller reset of the only host, or a new run). Not concurrently with schedule().
  virtual void reset() = 0;
  // From now on latencies are shorter by what the path takes by itself (TimingConfig::path_ns). Not concurrently with
  // schedule().
  virtual void set_path_ns(std::uint64_t path_ns) = 0;
  virtual std::string describe() const = 0;
};

// `shared` says whether more than one dispatcher calls schedule() concurrently.
std::unique_ptr<TimingModel> make_model(const TimingConfig& config, bool shared);

}  // namespace flashmob::timing
