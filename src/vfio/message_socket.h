// One connection of the vfio-user protocol: whole messages with their file descriptors over a UNIX stream socket
// (framing: docs/interop/vfio-user, "Header"; descriptors: SCM_RIGHTS).
//
// Reads exactly one message at a time, so that descriptors never reach the wrong message. receive() never blocks and
// keeps what it has of an unfinished message. Sending may happen beside receiving on another thread; each direction
// by itself is used by one thread at a time.
#pragma once

#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vfio/protocol.h"
#include "vfio/unique_fd.h"

namespace flashmob::vfio {

// Descriptors that can come with one message; what the kernel allows in one piece (SCM_MAX_FD).
inline constexpr std::size_t kMaxMessageFds = 253;

struct Message {
  Header header{};
  std::vector<std::byte> payload;  // what follows the header
  std::vector<UniqueFd> fds;
  bool fds_lost = false;  // the kernel dropped descriptors: the limit of open files was reached

  // The structure at `offset` of the payload; false if the payload is too short for it.
  template <class T>
  bool read(T& value, std::size_t offset = 0) const {
    return copy_out(&value, sizeof(T), offset);
  }
  bool copy_out(void* to, std::size_t bytes, std::size_t offset) const;
};

class MessageSocket {
 public:
  enum class Received : std::uint8_t {
    message,  // one whole message
    nothing,  // no whole message yet
    closed,   // the peer is gone
    broken,   // the stream cannot be understood any more (bad size or type, too many descriptors); `error` says why
  };

  // Takes a connected socket. Messages longer than `max_message_bytes`, or with more descriptors than `max_fds`, break
  // the connection.
  MessageSocket(UniqueFd fd, std::size_t max_message_bytes, std::size_t max_fds = kMaxMessageFds);

  int fd() const { return fd_.get(); }
  // Why the last receive() or send() failed, as a sentence.
  const char* error() const { return error_; }

  // Next message, if one is complete; `message` is overwritten only then. Does not block.
  Received receive(Message& message);
  // Waits up to `timeout_ms` (-1: for ever) until receive() has something to do; false at the timeout.
  bool wait_readable(int timeout_ms) const;

  // Sends header and payload (its size is filled in) with the descriptors, which stay the caller's. Waits up to
  // `timeout_ms` for room in the socket. False if the peer is gone or did not make room; the stream is then unusable.
  bool send(Header header, std::span<const std::byte> payload, std::span<const int> fds = {}, int timeout_ms = 5000);

  enum class Sent : std::uint8_t { whole, waits, failed };
  // The same without waiting. `waits`: the rest has been copied and goes out by flush() when the socket has room; the
  // descriptors must live until then. Nothing else may be sent before.
  Sent start_send(Header header, std::span<const std::byte> payload, std::span<const int> fds = {});
  Sent flush();
  bool sending() const { return !unsent_.empty(); }
  // A message has begun to arrive.
  bool receiving() const { return header_done_bytes_ != 0; }

 private:
  Received read_some(void* to, std::size_t bytes, std::size_t& done);
  Sent send_some(std::span<const std::byte> head, std::span<const std::byte> tail, std::span<const int> fds,
                 std::size_t& done);

  UniqueFd fd_;
  std::size_t max_message_bytes_;
  std::size_t max_fds_;
  const char* error_ = "";
  Message partial_;
  std::size_t header_done_bytes_ = 0;
  std::size_t payload_done_bytes_ = 0;
  std::vector<std::byte> unsent_;
  std::vector<int> unsent_fds_;
};

// Connects to the server at `path`, which may take so long to let us in. Throws ConfigError.
UniqueFd connect_unix(const std::string& path, int timeout_ms = 5000);
// The address of a path. Throws ConfigError where it is too long for one.
sockaddr_un unix_address(const std::string& path);

}  // namespace flashmob::vfio
