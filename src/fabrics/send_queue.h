// What waits to be sent on one connection: headers, which are copied here, and data, which stays where it is until it
// has been handed to the kernel. Everything that waits goes out in as few system calls as possible. One thread at a
// time.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fabrics/pdu.h"
#include "fabrics/stream.h"

namespace flashmob::fabrics {

class SendQueue {
 public:
  enum class Result : std::uint8_t { sent, blocked, closed };
  static constexpr std::uint32_t kNoToken = 0xFFFFFFFFu;

  SendQueue();

  template <class Pdu>
  void header(const Pdu& pdu, std::size_t data_bytes, Digests digests, std::uint8_t pda = 0) {
    std::byte bytes[kMaxWireHeaderBytes];
    copied({bytes, write_header(bytes, pdu, data_bytes, digests, pda)});
  }
  void copied(std::span<const std::byte> bytes);
  // Not copied: stays as it is until the next token comes back.
  void in_place(const void* data, std::size_t bytes);
  // Comes back from send() once everything before it has been sent.
  void token(std::uint32_t value);

  bool empty() const { return first_ == pieces_.size(); }
  std::size_t bytes() const { return bytes_; }
  // What waits in memory of the queue's own.
  std::size_t copied_bytes() const { return ring_tail_ - ring_head_; }

  // Sends as much as the stream takes. Calls done(token) for each token that comes back.
  template <class Done>
  Result send(Stream& stream, Done&& done) {
    for (;;) {
      while (!empty() && pieces_[first_].bytes == 0) {
        const std::uint32_t value = pieces_[first_++].token;
        if (value != kNoToken) done(value);
      }
      if (empty()) {
        clear();
        return flushed(stream);
      }
      const Result result = send_some(stream);
      if (result != Result::sent) return result;
    }
  }
  // Forgets everything; calls done(token) for each token that had not come back.
  template <class Done>
  void drop(Done&& done) {
    for (; !empty(); ++first_) {
      if (pieces_[first_].token != kNoToken) done(pieces_[first_].token);
    }
    clear();
  }

 private:
  struct Piece {
    const std::byte* data;  // nullptr: in the ring
    std::size_t bytes;      // 0: a token, or sent
    std::uint32_t token;
  };

  static Result flushed(Stream& stream);
  Result send_some(Stream& stream);
  void clear();
  void grow(std::size_t wanted);

  std::vector<Piece> pieces_;
  std::size_t first_ = 0;
  std::size_t bytes_ = 0;
  // Copied bytes, in a ring whose size is a power of two.
  std::vector<std::byte> ring_;
  std::size_t ring_head_ = 0;  // both count on without end
  std::size_t ring_tail_ = 0;
};

}  // namespace flashmob::fabrics
