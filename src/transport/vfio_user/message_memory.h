// The client's memory as messages reach it, where it was announced without a file descriptor: VFIO_USER_DMA_READ and
// VFIO_USER_DMA_WRITE, which the server sends and the client answers (docs/interop/vfio-user).
//
// Two sides. The thread of MessageQueues asks, one access at a time, and waits; the server's thread carries the access
// out: a copy where the memory is shared after all, else a message for each piece that the client can take. A client
// that does not answer keeps nobody waiting but its own queues.
#pragma once

#include <sys/eventfd.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "memory/address_space.h"
#include "transport/vfio_user/dma_regions.h"
#include "vfio/message_socket.h"
#include "vfio/protocol.h"
#include "vfio/unique_fd.h"

namespace flashmob::transport {

class MessageMemory {
 public:
  // `max_bytes`: what the client takes in one message. Throws ConfigError where there are no descriptors left.
  explicit MessageMemory(std::uint64_t max_bytes);
  MessageMemory(const MessageMemory&) = delete;
  MessageMemory& operator=(const MessageMemory&) = delete;

  // --- The thread of MessageQueues. False: the memory is not the device's to reach, the client refused, or cancel().
  // ---
  bool read(std::uint64_t iova, std::span<std::byte> to);
  bool write(std::uint64_t iova, std::span<const std::byte> from);
  // Has pump() called.
  void call() { (void)eventfd_write(event_.get(), 1); }

  // --- The server's thread ---
  // Readable when there is something to carry out: then call pump(), which takes the signal back.
  int event() const { return event_.get(); }
  // No part of the server's own memory (DmaRegions::kOwnIova) is reached so, whoever names it.
  // Carries out what can be: copies, and sends the next message if the socket has room. False if the socket is dead.
  bool pump(memory::AddressSpace::Reader& reader, const DmaRegions& regions, vfio::MessageSocket& socket);
  // The reply to a message of ours. False if it is none.
  bool take_reply(const vfio::Message& message);
  // Ends the access under way, and every further one until resume(). Its reply may still come, and is not minded.
  void cancel();
  void resume();

 private:
  enum class State : std::uint8_t { idle, wanted, sent, done, failed };

  bool access(std::uint64_t iova, std::byte* data, std::size_t bytes, bool write);
  void finish(State state);

  const std::uint64_t max_bytes_;
  vfio::UniqueFd event_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::idle;
  bool cancelled_ = false;
  bool write_ = false;
  std::uint64_t iova_ = 0;
  std::byte* data_ = nullptr;  // the asker's, while it waits
  std::size_t bytes_ = 0;      // that are left
  std::size_t piece_ = 0;      // that the message sent is about
  std::uint16_t id_ = 0;
  std::set<std::uint16_t> abandoned_;  // messages whose access was cancelled
  std::vector<std::byte> payload_;
};

}  // namespace flashmob::transport
