// A client of keys and values on a queue pair of its own (Key Value Command Set 1.0): one command at a time, through a
// buffer of its own, from its start to its end.
//
// For one thread at a time; construct and destroy on the driver's. A reset of the controller takes the pair away: then
// everything here but the destructor throws std::runtime_error. After an exception a command may still be under way,
// and all that is left to do with the queue is to destroy it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "driver/data_buffer.h"
#include "driver/dma_memory.h"
#include "driver/nvme_driver.h"
#include "nvme/opcode.h"

namespace flashmob::driver {

class KeyValueQueue {
 public:
  struct Command {
    nvme::KvOpcode opcode;
    std::uint32_t nsid;
    std::span<const std::byte> key;  // up to 255 bytes are said, and the first 16 sent
    std::uint8_t options = 0;  // of Store
  };
  struct Answer {
    std::uint16_t status_field = 0;
    std::uint32_t result = 0;  // dword 0
  };

  // For values and lists of up to so many bytes. Where `stopping` is set, by any thread, a call ends with
  // std::runtime_error; it outlives the queue.
  KeyValueQueue(NvmeDriver& driver, std::uint64_t max_bytes, const std::atomic<bool>& stopping);
  ~KeyValueQueue();
  KeyValueQueue(const KeyValueQueue&) = delete;
  KeyValueQueue& operator=(const KeyValueQueue&) = delete;

  // Store, with a value. Throws NvmeTimeout where it is not answered in time, NvmeFatal where the controller has died,
  // std::length_error where the value does not fit in the buffer.
  Answer send(const Command& command, std::span<const std::byte> value);
  // All others; `out` is the host's buffer of Retrieve and List.
  Answer receive(const Command& command, std::span<std::byte> out);

  bool is_gone() const { return generation_ != driver_.generation(); }
  std::uint64_t timeout_ns = 10'000'000'000;
  // Asked every few milliseconds while a command is waited for; where it says true, the call ends as with `stopping`.
  std::function<bool()> interrupted;

 private:
  Answer run(const Command& command, std::size_t bytes);

  NvmeDriver& driver_;
  const std::uint64_t generation_;
  const std::uint64_t max_bytes_;
  const std::atomic<bool>& stopping_;
  DmaMemory memory_;
  PrpLists lists_;
  QueuePair& pair_;
};

}  // namespace flashmob::driver
