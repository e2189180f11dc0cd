// An emulated SSD in this process, and queues to drive it: the C++ face of flashmob.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "flashmob/config.h"
#include "flashmob/faults.h"

namespace flashmob {

class Queue;

// Thread-safe except where noted. The device runs from construction to close().
class Ssd {
 public:
  // Starts the device's threads and enables its controller through the in-process door. Throws ConfigError.
  explicit Ssd(const DeviceConfig& config);
  ~Ssd();
  Ssd(const Ssd&) = delete;
  Ssd& operator=(const Ssd&) = delete;

  // Shuts the device down; calls of its queues then fail. Idempotent.
  void close();

  std::uint32_t namespace_count() const;
  std::uint64_t namespace_bytes(std::uint32_t nsid) const;
  std::uint32_t lba_bytes(std::uint32_t nsid) const;

  // The 4096-byte Identify data structure for a CNS value (1 = controller, 0 = namespace `nsid`, ...).
  // Throws std::runtime_error with the NVMe status where the device rejects it.
  std::string identify(std::uint8_t cns, std::uint32_t nsid) const;
  // A log page's first `bytes` bytes.
  std::string log_page(std::uint8_t lid, std::uint32_t bytes, std::uint32_t nsid = 0xFFFFFFFF) const;

  // Shows these faults from now on instead of those before; none ends them (docs/guide/faults.md). Throws ConfigError,
  // and then nothing has changed.
  void set_faults(const std::vector<std::string>& rules);
  std::vector<FaultCount> faults() const;

  // A queue pair for up to `depth` commands at once, for the use of one thread at a time.
  std::unique_ptr<Queue> queue(std::uint32_t depth);

 private:
  friend class Queue;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// One I/O queue pair. Not thread-safe; must not outlive its Ssd. Completions arrive only inside poll(), drain() and
// calls that wait for a free slot.
class Queue {
 public:
  ~Queue();
  using Done = std::function<void(std::uint16_t status_field)>;
  // Starts a read into, or a write from, `buffer` (a multiple of the LBA size, alive until done; any alignment).
  // Waits for a free slot by polling. `done` gets 0 or the NVMe status field.
  void read(std::uint32_t nsid, std::uint64_t lba, void* buffer, std::uint64_t bytes, Done done);
  void write(std::uint32_t nsid, std::uint64_t lba, const void* buffer, std::uint64_t bytes, Done done);
  void flush(std::uint32_t nsid, Done done);
  // Runs `done` of everything that has completed; returns how many.
  unsigned poll();
  // Polls until nothing is outstanding.
  void drain();
  std::uint32_t outstanding() const;

 private:
  friend class Ssd;
  struct Impl;
  Queue(std::unique_ptr<Impl> impl, const Ssd& owner);
  std::unique_ptr<Impl> impl_;
  const Ssd& owner_;
};

}  // namespace flashmob
