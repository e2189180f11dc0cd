#include "transport/vfio_user/message_memory.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "flashmob/error.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

// Less than a socket's buffer: QEMU does not finish a reply that the socket takes only a part of.
constexpr std::uint64_t kMaxPieceBytes = 64 << 10;
// A client that leaves so many questions open is not waited for.
constexpr std::size_t kMaxAbandoned = 256;

}  // namespace

MessageMemory::MessageMemory(std::uint64_t max_bytes)
    : max_bytes_(std::clamp<std::uint64_t>(max_bytes, 1, kMaxPieceBytes)),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_)
    throw ConfigError("no file descriptors are left for a client; raise the limit of open files (ulimit -n)");
}

bool MessageMemory::read(std::uint64_t iova, std::span<std::byte> to) {
  return access(iova, to.data(), to.size(), false);
}

bool MessageMemory::write(std::uint64_t iova, std::span<const std::byte> from) {
  return access(iova, const_cast<std::byte*>(from.data()), from.size(), true);
}

bool MessageMemory::access(std::uint64_t iova, std::byte* data, std::size_t bytes, bool write) {
  if (bytes == 0) return true;
  std::unique_lock lock(mutex_);
  if (cancelled_) return false;
  write_ = write;
  iova_ = iova;
  data_ = data;
  bytes_ = bytes;
  state_ = State::wanted;
  (void)eventfd_write(event_.get(), 1);
  changed_.wait(lock, [this] { return state_ == State::done || state_ == State::failed; });
  const bool done = state_ == State::done;
  state_ = State::idle;
  return done;
}

void MessageMemory::finish(State state) {
  state_ = state;
  changed_.notify_all();
}

bool MessageMemory::pump(memory::AddressSpace::Reader& reader, const DmaRegions& regions, MessageSocket& socket) {
  eventfd_t value = 0;
  (void)eventfd_read(event_.get(), &value);
  const std::lock_guard lock(mutex_);
  while (state_ == State::wanted) {
    // What lies in the same address space but is ours: the rings that stand in for the client's.
    if (iova_ >= DmaRegions::kOwnIova || bytes_ > DmaRegions::kOwnIova - iova_) {
      finish(State::failed);
      break;
    }
    std::size_t bytes = bytes_;
    std::uint64_t contiguous = 0;
    reader.enter();
    std::byte* shared = reader.translate_prefix(iova_, bytes, write_, contiguous);
    if (shared != nullptr) {
      bytes = contiguous;
      std::memcpy(write_ ? shared : data_, write_ ? data_ : shared, bytes);
    }
    reader.leave();
    if (shared == nullptr) {
      bytes = std::min({bytes, regions.unshared_from(iova_, write_), static_cast<std::size_t>(max_bytes_)});
      if (bytes == 0) {
        finish(State::failed);
        break;
      }
      if (socket.sending()) break;  // until it has room again
      const DmaAccess access{iova_, bytes};
      payload_.resize(sizeof(access) + (write_ ? bytes : 0));
      std::memcpy(payload_.data(), &access, sizeof(access));
      if (write_) std::memcpy(payload_.data() + sizeof(access), data_, bytes);
      while (abandoned_.contains(++id_)) {
      }
      const Command command = write_ ? Command::dma_write : Command::dma_read;
      piece_ = bytes;
      state_ = State::sent;
      const Header header{id_, static_cast<std::uint16_t>(command), 0, kTypeCommand, 0};
      return socket.start_send(header, payload_) != MessageSocket::Sent::failed;
    }
    iova_ += bytes;
    data_ += bytes;
    bytes_ -= bytes;
    if (bytes_ == 0) finish(State::done);
  }
  return true;
}

bool MessageMemory::take_reply(const Message& message) {
  const std::lock_guard lock(mutex_);
  if (abandoned_.erase(message.header.message_id) != 0) return true;
  if (state_ != State::sent || message.header.message_id != id_) return false;
  DmaAccess access{};
  const bool right = (message.header.flags & kFlagError) == 0 && message.read(access) && access.address == iova_ &&
                     access.count_bytes == piece_ && (write_ || message.copy_out(data_, piece_, sizeof(access)));
  if (!right) {
    finish(State::failed);
    return true;
  }
  iova_ += piece_;
  data_ += piece_;
  bytes_ -= piece_;
  if (bytes_ == 0) {
    finish(State::done);
  } else {
    state_ = State::wanted;
    (void)eventfd_write(event_.get(), 1);
  }
  return true;
}

void MessageMemory::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (state_ == State::sent && abandoned_.size() < kMaxAbandoned) abandoned_.insert(id_);
  if (state_ == State::sent || state_ == State::wanted) finish(State::failed);
}

void MessageMemory::resume() {
  const std::lock_guard lock(mutex_);
  cancelled_ = false;
}

}  // namespace flashmob::transport
