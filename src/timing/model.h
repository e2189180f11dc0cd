// When a request is done. A timing model answers, for a batch of requests fetched together, the time each completes.
//
// Models are pure functions of (requests, now, state): no threads, no I/O, no clock. Several dispatchers may call
// schedule() of one model at once; the model's shared state is updated atomically, once per batch where it can.
//
// A model may have state that outlives all load, such as where a drive's data lie. What becomes of it beside Reads and
// Writes is told apart from the batches, where commands are carried out: the ranges of a Dataset Management lie in the
// host's memory and are many, so the fetch does not know them (docs/decisions/0012).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "flashmob/config.h"
#include "timing/demand.h"
#include "timing/nand/params.h"

namespace flashmob::timing {

// deallocate(): whatever was written.
inline constexpr std::uint64_t kAllWrites = UINT64_MAX;

// What a model is built for.
struct DeviceShape {
  std::uint64_t capacity_bytes = 0;  // of all namespaces that there are and may yet be
  std::uint64_t seed = 1;
  nand::Streams streams{};  // of hosts' writes, for models that keep them apart
};

// What a drive's medium has done.
struct FlashCounters {
  std::uint64_t host_written_bytes = 0;
  std::uint64_t joined_bytes = 0;  // of those: overwritten in the write buffer, and not programmed
  std::uint64_t filled_bytes = 0;  // the rest of units that were written in part, programmed with them
  std::uint64_t moved_bytes = 0;   // by garbage collection
  std::uint64_t padded_bytes = 0;  // programmed empty, for a Flush without protection against power loss
  std::uint64_t erased_superblocks = 0;
  std::uint64_t flash_reads = 0;      // units or runs of them that hosts read from the medium,
  std::uint64_t buffer_reads = 0;     // from the write buffer,
  std::uint64_t unwritten_reads = 0;  // and that nobody has written
  std::uint64_t cached_bytes = 0;  // programmed for hosts in cells of one bit, a cache
  std::uint64_t idle_moved_bytes = 0;  // of those moved, in idle time
  std::uint64_t levelled_superblocks = 0;  // moved because they were erased too seldom
  // Of a superblock since it was made.
  std::uint32_t fewest_erases = 0;
  std::uint32_t most_erases = 0;
  double mean_erases = 0;

  std::uint64_t programmed_bytes() const {
    return host_written_bytes - joined_bytes + filled_bytes + moved_bytes + padded_bytes;
  }
  // What was programmed for each byte that hosts wrote; below 1 where they overwrite what is still in the buffer, 1
  // where nothing was written.
  double write_amplification() const {
    if (host_written_bytes == 0) return 1;
    return static_cast<double>(programmed_bytes()) / static_cast<double>(host_written_bytes);
  }
  FlashCounters since(const FlashCounters& before) const {
    return {host_written_bytes - before.host_written_bytes,
            joined_bytes - before.joined_bytes,
            filled_bytes - before.filled_bytes,
            moved_bytes - before.moved_bytes,
            padded_bytes - before.padded_bytes,
            erased_superblocks - before.erased_superblocks,
            flash_reads - before.flash_reads,
            buffer_reads - before.buffer_reads,
            unwritten_reads - before.unwritten_reads,
            cached_bytes - before.cached_bytes,
            idle_moved_bytes - before.idle_moved_bytes,
            levelled_superblocks - before.levelled_superblocks,
            fewest_erases,
            most_erases,
            mean_erases};
  }
};

// What a model that keeps hosts' streams apart (set_stream()) says of the superblocks that it writes them to. Any
// thread may call it beside schedule().
class StreamPlacement {
 public:
  virtual ~StreamPlacement() = default;
  virtual std::uint64_t superblock_bytes() const = 0;
  // What the superblock that a stream is being written to still takes.
  virtual std::uint64_t bytes_left(std::uint32_t stream) = 0;
  // The stream goes on in another one, unless nothing was written to it. Returns how much of it stays empty.
  virtual std::uint64_t next_superblock(std::uint32_t stream) = 0;
  virtual FlashCounters counters() = 0;
};

class TimingModel {
 public:
  virtual ~TimingModel() = default;
  // Writes targets_ns[i], the time at which batch[i] is done, for a batch fetched at now_ns. The batch is in queue
  // order; sizes are equal. Never earlier than now_ns.
  virtual void schedule(std::span<const Demand> batch, std::uint64_t now_ns, std::span<std::uint64_t> targets_ns) = 0;
  // Forgets all load (controller reset of the only host, or a new run), but not what outlives it; times may begin anew.
  // Not concurrently with schedule().
  virtual void reset() = 0;
  // From now on latencies are shorter by what the path takes by itself (TimingConfig::path_ns). Not concurrently with
  // schedule().
  virtual void set_path_ns(std::uint64_t path_ns) = 0;
  virtual std::string describe() const = 0;

  // The rest is for models with state that outlives load; others know nothing of it.

  // How many writes have been scheduled. Any thread that may call schedule().
  virtual std::uint64_t writes_scheduled() { return 0; }
  // What the first `writes` of them have written of these whole units is there no more; what later ones have is. Takes
  // no time of its own. Any thread that may call schedule().
  virtual void deallocate(std::uint64_t /*first_unit*/, std::uint64_t /*units*/, std::uint64_t /*writes*/) {}
  // These units were written one after another before time began. Not concurrently with schedule(). It ends early once
  // `cancelled`, unless that is nullptr, is set, and then there is no state to go on with.
  virtual void assume_written(std::uint64_t /*first_unit*/, std::uint64_t /*units*/,
                              const std::atomic<bool>* /*cancelled*/) {}
  // A model that was just made is as if these units had been written one after another and then overwritten at random
  // for so long that nothing changes any more. False where that makes no difference. Not concurrently with schedule(),
  // and cancelled as assume_written().
  virtual bool assume_steady(std::uint64_t /*first_unit*/, std::uint64_t /*units*/,
                             const std::atomic<bool>* /*cancelled*/) {
    return false;
  }
  // The same state, for one thread, without load; nullptr where there is none that reset() would leave. Not
  // concurrently with schedule().
  virtual std::unique_ptr<TimingModel> clone() const { return nullptr; }
  // nullptr: it keeps none apart.
  virtual StreamPlacement* placement() { return nullptr; }
  // Since it was made. Not concurrently with schedule().
  virtual std::optional<FlashCounters> flash_counters() const { return std::nullopt; }
};

// `shared` says whether more than one dispatcher calls schedule() concurrently.
std::unique_ptr<TimingModel> make_model(const TimingConfig& config, bool shared, const DeviceShape& shape = {});

}  // namespace flashmob::timing
