// A client of blocks on a queue pair of its own: reads and writes of any length, from and to any memory, made of
// commands that each move up to one slot's buffer. Slots, bounce buffers, data pointers and reaping, once for all hosts
// but the load generator, whose submission path is its own.
//
// For one thread at a time; construct and destroy on the driver's. Callbacks run inside poll() and whatever waits, and
// may start more. A reset of the controller takes the pair away: then everything here but the destructor throws
// std::runtime_error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "driver/data_buffer.h"
#include "driver/dma_memory.h"
#include "driver/namespaces.h"
#include "driver/nvme_driver.h"
#include "nvme/opcode.h"

namespace flashmob::driver {

class BlockQueue {
 public:
  using Done = std::function<void(std::uint16_t status_field)>;  // 0: success
  struct Options {
    std::uint32_t slots = 32;  // commands in flight
    std::uint64_t slot_bytes = 128 << 10;  // the most that a command moves; a multiple of 4096
    // Called between looks that found nothing, with the time since the last completion or since the wait began. Passes
    // time, or throws where nobody should wait any longer. None: default_idle().
    std::function<void(std::uint64_t silent_ns)> idle = {};
  };

  BlockQueue(NvmeDriver& driver, Options options);
  // Deletes the pair as far as the device answers. Nothing that is in flight is waited for or told.
  ~BlockQueue();
  BlockQueue(const BlockQueue&) = delete;
  BlockQueue& operator=(const BlockQueue&) = delete;

  // `bytes` is a positive multiple of the block size. They wait for free slots, and throw what idle() throws; then
  // `done` will not be called, and the buffer is the caller's again. Otherwise it is called once with the first status
  // that was no success, and the buffer must stay until then.
  void read(const BlockNamespace& ns, std::uint64_t lba, std::byte* to, std::uint64_t bytes, Done done);
  void write(const BlockNamespace& ns, std::uint64_t lba, const std::byte* from, std::uint64_t bytes, Done done);
  void flush(std::uint32_t nsid, Done done);
  // Tells the device that these blocks are not needed any more (Dataset Management); `blocks` is positive.
  void deallocate(const BlockNamespace& ns, std::uint64_t lba, std::uint64_t blocks, Done done);
  // A read or write from its start to its end; answers its status. Where idle() throws, nothing of `data` is used any
  // more.
  std::uint16_t run(nvme::NvmOpcode opcode, const BlockNamespace& ns, std::uint64_t lba, std::byte* data,
                    std::uint64_t bytes);

  // For data that is made and looked at in place: a slot, its buffer, one command of up to slot_bytes bytes. The buffer
  // keeps what was read until `done` returns or starts more. Submissions reach the device with the next poll().
  bool has_slot() const { return !free_.empty(); }
  std::uint16_t take_slot();  // waits for one
  std::span<std::byte> buffer(std::uint16_t slot, std::uint64_t bytes) const;
  void submit(std::uint16_t slot, nvme::NvmOpcode opcode, const BlockNamespace& ns, std::uint64_t lba,
              std::uint64_t bytes, Done done);

  // Tells the device of submissions and takes in completions; returns how many requests have ended.
  unsigned poll();
  // Polls until ready(); throws what idle() throws.
  template <class Ready>
  void wait_until(Ready&& ready) {
    for (std::uint64_t silent_since_ns = driver_.waiter().now_ns(); !ready();) {
      const std::uint64_t before = completions_;
      poll();
      const std::uint64_t now_ns = driver_.waiter().now_ns();
      if (completions_ != before)
        silent_since_ns = now_ns;
      else
        idle(now_ns - silent_since_ns);
    }
  }

  // Gives up what has not ended: its memory is not touched and its `done` not called from here on.
  void abandon();
  bool is_gone() const { return generation_ != driver_.generation(); }
  std::uint32_t requests() const { return requests_; }  // that have not ended
  std::uint32_t outstanding() const { return outstanding_; }  // commands
  // Pumps the driver's waiter. Throws NvmeTimeout after `timeout_ns` without a completion, NvmeFatal where the
  // controller has died.
  void default_idle(std::uint64_t silent_ns);
  std::uint64_t timeout_ns = 10'000'000'000;

 private:
  struct Request {
    Done done;
    std::uint32_t parts = 0;  // commands that have not ended
    std::uint16_t status = 0;
    bool forgotten = false;  // its owner has been told that it failed: buffer and `done` are no longer ours
  };
  struct Slot {
    std::shared_ptr<Request> request;
    std::byte* to = nullptr;  // where a read's bytes go
    std::uint64_t bytes = 0;
  };

  void require_pair() const;
  void forget(Request& request);
  void idle(std::uint64_t silent_ns);
  std::shared_ptr<Request> transfer(nvme::NvmOpcode opcode, const BlockNamespace& ns, std::uint64_t lba,
                                    std::byte* data, std::uint64_t bytes, Done done);
  template <class F>
  void wait_for(Request& request, F&& wait);
  void start(std::uint16_t slot, nvme::NvmOpcode opcode, const BlockNamespace& ns, std::uint64_t lba, Slot state);
  void send(const nvme::Sqe& sqe, Slot state);
  bool finish(const nvme::Cqe& entry);

  NvmeDriver& driver_;
  const Options options_;
  const std::uint64_t generation_;  // of the driver's pairs
  DmaMemory memory_;
  PrpLists lists_;
  QueuePair& pair_;  // gone once the driver's generation is another
  std::vector<Slot> slots_;  // by command identifier
  std::vector<std::uint16_t> free_;
  std::uint32_t requests_ = 0;
  std::uint32_t outstanding_ = 0;
  std::uint64_t completions_ = 0;
  std::uint64_t checked_ns_ = 0;  // of a silence: when the controller was last looked at
};

}  // namespace flashmob::driver
