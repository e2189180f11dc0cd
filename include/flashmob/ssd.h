// An emulated SSD in this process, and queues to drive it: the C++ face of flashmob.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "flashmob/config.h"
#include "flashmob/faults.h"

namespace flashmob {

class Queue;

// The device did not complete a command in time.
class TimeoutError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The controller has died: it reports Controller Fatal Status, and completes nothing until it is reset.
class FatalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The device completed an admin command with an error; `what` names the command and the status.
class StatusError : public std::runtime_error {
 public:
  StatusError(const std::string& what, std::uint16_t status_field)
      : std::runtime_error(what), status_field_(status_field) {}
  std::uint16_t status_field() const { return status_field_; }

 private:
  std::uint16_t status_field_;
};

// A command to a namespace of command set `kv`.
struct KeyValueRequest {
  enum class Kind : std::uint8_t { store, retrieve, delete_key, exist, list };
  Kind kind = Kind::exist;
  std::uint32_t nsid = 1;
  std::string key;  // up to 255 bytes, which the device refuses from 17 on; of List, where to begin
  std::string value = {};  // of Store
  std::uint32_t buffer_bytes = 0;  // of Retrieve and List
  bool must_exist = false;  // Store fails with Key Does Not Exist, or ...
  bool must_not_exist = false;  // ... with Key Exists
};

struct KeyValueAnswer {
  std::uint16_t status_field = 0;  // 0: success
  std::uint32_t value_bytes = 0;  // of Retrieve: of all of the value, however long the buffer was
  std::string data = {};  // what was read
};

// Thread-safe except where noted. The device runs from construction to close().
class Ssd {
 public:
  // Starts the device's threads and enables its controller through the in-process door. Throws ConfigError.
  explicit Ssd(const DeviceConfig& config);
  ~Ssd();
  Ssd(const Ssd&) = delete;
  Ssd& operator=(const Ssd&) = delete;

  // Shuts the device down; calls of its queues then fail, and those that other threads are in end so. Idempotent, and
  // returns whatever the device does not answer. Not from what a queue calls (Done): it throws there.
  void close();
  // Resets the controller, a dead one included, and enables it again. What was outstanding is never completed, and
  // calls of the queues made before fail, and those that other threads are in end so. Media and faults stay. Throws
  // TimeoutError or FatalError where the controller does not come back, and what close() throws.
  void reset();

  // How long admin commands, and waits of a queue in which nothing completes, last before they throw TimeoutError:
  // 10 s unless told otherwise.
  void set_timeout(std::uint64_t timeout_ns);
  // Whether the controller has died (CSTS.CFS): nothing is completed any more.
  bool fatal() const;

  std::uint32_t namespace_count() const;
  std::uint64_t namespace_bytes(std::uint32_t nsid) const;
  std::uint32_t lba_bytes(std::uint32_t nsid) const;

  // The 4096-byte Identify data structure for a CNS value (1 = controller, 0 = namespace `nsid`, ...).
  // Throws StatusError where the device rejects it.
  std::string identify(std::uint8_t cns, std::uint32_t nsid, std::uint8_t csi = 0) const;
  // A log page's first `bytes` bytes.
  std::string log_page(std::uint8_t lid, std::uint32_t bytes, std::uint32_t nsid = 0xFFFFFFFF) const;

  // Shows these faults from now on instead of those before; none ends them (docs/guide/faults.md). Throws ConfigError,
  // and then nothing has changed.
  void set_faults(const std::vector<std::string>& rules);
  std::vector<FaultCount> faults() const;
  // Whether commands are outstanding, and a fault has lost every one of them: nothing more will be completed.
  bool only_lost_left() const;

  // Runs a key-value command to its end; threads that do take turns. Throws TimeoutError, FatalError, and
  // std::length_error for what is more than one command carries. Where `interrupted`, which is asked every few
  // milliseconds for as long as there is something to wait for, says true, it throws std::runtime_error; the command
  // may have been carried out.
  KeyValueAnswer key_value(const KeyValueRequest& request, const std::function<bool()>& interrupted = {});

  // A queue pair for up to `depth` commands at once, for the use of one thread at a time.
  std::unique_ptr<Queue> queue(std::uint32_t depth);

 private:
  friend class Queue;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// One I/O queue pair. Not thread-safe; must not outlive its Ssd. Completions arrive only inside poll(), drain() and
// calls that wait for a free slot; these waits end with an exception when the device loses commands or dies.
class Queue {
 public:
  // Drains, but does not wait for commands that a fault has lost: they are deleted with the queue pair.
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
  // Gives up what is outstanding: its buffers are not touched and its `done` not called from here on.
  void abandon();
  std::uint32_t outstanding() const;

 private:
  friend class Ssd;
  struct Impl;
  explicit Queue(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flashmob
