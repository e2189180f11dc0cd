#include "fabrics/send_queue.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

namespace flashmob::fabrics {
namespace {

constexpr std::size_t kFirstRingBytes = 8 * 1024;
constexpr std::size_t kPiecesPerCall = 256;
// Sent pieces at the front of the list are forgotten once they are this many.
constexpr std::size_t kCompactAt = 4096;

SendQueue::Result failed() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? SendQueue::Result::blocked
                                                                   : SendQueue::Result::closed;
}

}  // namespace

SendQueue::SendQueue() : ring_(kFirstRingBytes) { pieces_.reserve(256); }

void SendQueue::grow(std::size_t wanted) {
  std::vector<std::byte> larger(std::bit_ceil(wanted));
  // A piece at a time, each as long as both rings go without wrapping.
  for (std::size_t at = ring_head_; at != ring_tail_;) {
    const std::size_t from = at & (ring_.size() - 1);
    const std::size_t to = at & (larger.size() - 1);
    const std::size_t run = std::min({ring_tail_ - at, ring_.size() - from, larger.size() - to});
    std::memcpy(larger.data() + to, ring_.data() + from, run);
    at += run;
  }
  ring_ = std::move(larger);
}

void SendQueue::copied(std::span<const std::byte> bytes) {
  const std::size_t used = ring_tail_ - ring_head_;
  if (used + bytes.size() > ring_.size()) grow(used + bytes.size());
  const std::size_t at = ring_tail_ & (ring_.size() - 1);
  const std::size_t run = std::min(bytes.size(), ring_.size() - at);
  std::memcpy(ring_.data() + at, bytes.data(), run);
  std::memcpy(ring_.data(), bytes.data() + run, bytes.size() - run);
  ring_tail_ += bytes.size();
  bytes_ += bytes.size();
  if (!empty() && pieces_.back().data == nullptr && pieces_.back().bytes != 0)
    pieces_.back().bytes += bytes.size();
  else
    pieces_.push_back({nullptr, bytes.size(), kNoToken});
}

void SendQueue::in_place(const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  pieces_.push_back({static_cast<const std::byte*>(data), bytes, kNoToken});
  bytes_ += bytes;
}

void SendQueue::token(std::uint32_t value) { pieces_.push_back({nullptr, 0, value}); }

void SendQueue::clear() {
  pieces_.clear();
  first_ = 0;
  bytes_ = 0;
  ring_head_ = ring_tail_;
}

SendQueue::Result SendQueue::flushed(Stream& stream) { return stream.flush() ? Result::sent : failed(); }

SendQueue::Result SendQueue::send_some(Stream& stream) {
  std::array<iovec, kPiecesPerCall> list;
  std::size_t count = 0;
  std::size_t ring_at = ring_head_;
  for (std::size_t i = first_; i < pieces_.size() && count + 2 <= list.size(); ++i) {
    const Piece& piece = pieces_[i];
    if (piece.bytes == 0) continue;
    if (piece.data != nullptr) {
      list[count++] = {const_cast<std::byte*>(piece.data), piece.bytes};
      continue;
    }
    const std::size_t at = ring_at & (ring_.size() - 1);
    const std::size_t run = std::min(piece.bytes, ring_.size() - at);
    list[count++] = {ring_.data() + at, run};
    if (run != piece.bytes) list[count++] = {ring_.data(), piece.bytes - run};
    ring_at += piece.bytes;
  }
  const ssize_t sent = stream.send(std::span(list).first(count));
  if (sent < 0) return failed();
  // Tokens on the way stay: send() takes them off the front, where they come up in order.
  auto left = static_cast<std::size_t>(sent);
  bytes_ -= left;
  for (std::size_t i = first_; left != 0; ++i) {
    Piece& piece = pieces_[i];
    const std::size_t here = std::min(left, piece.bytes);
    if (piece.data != nullptr)
      piece.data += here;
    else if (piece.bytes != 0)
      ring_head_ += here;
    piece.bytes -= here;
    left -= here;
  }
  if (first_ > kCompactAt) {
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  return Result::sent;
}

}  // namespace flashmob::fabrics
