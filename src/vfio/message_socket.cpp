#include "vfio/message_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace flashmob::vfio {
namespace {

// Room for one piece of descriptors, aligned as the kernel wants it.
union ControlBuffer {
  cmsghdr align;
  std::array<std::byte, CMSG_SPACE(kMaxMessageFds * sizeof(int))> bytes;
};

UniqueFd unix_socket(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) throw ConfigError("cannot make a socket for '" + path + "': " + std::strerror(errno));
  return fd;
}

// 0: none.
void set_send_timeout(int fd, int timeout_ms) {
  const timeval timeout{timeout_ms / 1000, timeout_ms % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
}

bool connect_to(int fd, const sockaddr_un& address) {
  int result;
  do {
    result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace

sockaddr_un unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    throw ConfigError("socket path '" + path + "' has " + std::to_string(path.size()) +
                      " characters: give one of 1 to " + std::to_string(sizeof(address.sun_path) - 1));
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

bool Message::copy_out(void* to, std::size_t bytes, std::size_t offset) const {
  if (offset > payload.size() || bytes > payload.size() - offset) return false;
  if (bytes > 0) std::memcpy(to, payload.data() + offset, bytes);
  return true;
}

MessageSocket::MessageSocket(UniqueFd fd, std::size_t max_message_bytes, std::size_t max_fds)
    : fd_(std::move(fd)), max_message_bytes_(max_message_bytes), max_fds_(max_fds) {
  FLASHMOB_CHECK(fd_ && max_message_bytes_ >= sizeof(Header) && max_fds_ <= kMaxMessageFds);
}

MessageSocket::Received MessageSocket::read_some(void* to, std::size_t bytes, std::size_t& done) {
  while (done < bytes) {
    ControlBuffer control;
    iovec part{static_cast<std::byte*>(to) + done, bytes - done};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = &control;
    // Room for what may still come and one more: the kernel closes the rest before this process has it.
    const std::size_t room = std::min(max_fds_ - partial_.fds.size() + 1, kMaxMessageFds);
    header.msg_controllen = CMSG_LEN(room * sizeof(int));
    const ssize_t got = recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Received::nothing;
      error_ = "the connection was lost";
      return Received::closed;
    }
    for (cmsghdr* piece = CMSG_FIRSTHDR(&header); piece != nullptr; piece = CMSG_NXTHDR(&header, piece)) {
      if (piece->cmsg_level != SOL_SOCKET || piece->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (piece->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(piece) + i * sizeof(int), sizeof(int));
        partial_.fds.emplace_back(fd);
      }
    }
    if ((header.msg_flags & MSG_CTRUNC) != 0) partial_.fds_lost = true;
    if (partial_.fds.size() > max_fds_) {
      error_ = "a message came with too many file descriptors";
      return Received::broken;
    }
    if (got == 0) {
      error_ = "the peer closed the connection";
      return Received::closed;
    }
    done += static_cast<std::size_t>(got);
  }
  return Received::message;
}

MessageSocket::Received MessageSocket::receive(Message& message) {
  const bool header_known = header_done_bytes_ == sizeof(Header);
  if (!header_known) {
    const Received read = read_some(&partial_.header, sizeof(Header), header_done_bytes_);
    if (read != Received::message) return read;
    const Header& header = partial_.header;
    if (header.message_bytes < sizeof(Header) || header.message_bytes > max_message_bytes_) {
      error_ = "a message's size is out of range";
      return Received::broken;
    }
    if ((header.flags & kFlagTypeMask) > kTypeReply) {
      error_ = "a message is neither command nor reply";
      return Received::broken;
    }
    partial_.payload.resize(header.message_bytes - sizeof(Header));
  }
  const Received read = read_some(partial_.payload.data(), partial_.payload.size(), payload_done_bytes_);
  if (read != Received::message) return read;
  message = std::exchange(partial_, Message{});
  header_done_bytes_ = 0;
  payload_done_bytes_ = 0;
  return Received::message;
}

bool MessageSocket::wait_readable(int timeout_ms) const {
  pollfd wait{fd_.get(), POLLIN, 0};
  int result;
  do {
    result = poll(&wait, 1, timeout_ms);
  } while (result < 0 && errno == EINTR);
  return result != 0;
}

// Sends what the socket takes of head and tail, from `done` on. Descriptors go with the first byte.
MessageSocket::Sent MessageSocket::send_some(std::span<const std::byte> head, std::span<const std::byte> tail,
                                             std::span<const int> fds, std::size_t& done) {
  while (done < head.size() + tail.size()) {
    std::array<iovec, 2> parts;
    std::size_t count = 0;
    if (done < head.size()) parts[count++] = {const_cast<std::byte*>(head.data()) + done, head.size() - done};
    const std::size_t tail_done = done > head.size() ? done - head.size() : 0;
    if (tail_done < tail.size())
      parts[count++] = {const_cast<std::byte*>(tail.data()) + tail_done, tail.size() - tail_done};
    msghdr out{};
    out.msg_iov = parts.data();
    out.msg_iovlen = count;
    ControlBuffer control;
    if (done == 0 && !fds.empty()) {
      std::memset(&control, 0, sizeof(control));
      out.msg_control = &control;
      out.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* piece = CMSG_FIRSTHDR(&out);
      piece->cmsg_level = SOL_SOCKET;
      piece->cmsg_type = SCM_RIGHTS;
      piece->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(piece), fds.data(), fds.size() * sizeof(int));
    }
    const ssize_t sent = sendmsg(fd_.get(), &out, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      done += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Sent::waits;
    } else if (errno != EINTR) {
      error_ = "the peer closed the connection";
      return Sent::failed;
    }
  }
  return Sent::whole;
}

bool MessageSocket::send(Header header, std::span<const std::byte> payload, std::span<const int> fds, int timeout_ms) {
  FLASHMOB_CHECK(fds.size() <= kMaxMessageFds && !sending());
  header.message_bytes = static_cast<std::uint32_t>(sizeof(Header) + payload.size());
  const auto head = std::as_bytes(std::span(&header, 1));
  std::size_t done = 0;
  for (;;) {
    const Sent sent = send_some(head, payload, fds, done);
    if (sent != Sent::waits) return sent == Sent::whole;
    pollfd wait{fd_.get(), POLLOUT, 0};
    if (poll(&wait, 1, timeout_ms) == 0) {
      error_ = "the peer does not read what it is sent";
      return false;
    }
  }
}

MessageSocket::Sent MessageSocket::start_send(Header header, std::span<const std::byte> payload,
                                              std::span<const int> fds) {
  FLASHMOB_CHECK(fds.size() <= kMaxMessageFds && !sending());
  header.message_bytes = static_cast<std::uint32_t>(sizeof(Header) + payload.size());
  const auto head = std::as_bytes(std::span(&header, 1));
  std::size_t done = 0;
  const Sent sent = send_some(head, payload, fds, done);
  if (sent != Sent::waits) return sent;
  if (done < head.size()) unsent_.assign(head.begin() + static_cast<std::ptrdiff_t>(done), head.end());
  const std::size_t payload_done = done > head.size() ? done - head.size() : 0;
  unsent_.insert(unsent_.end(), payload.begin() + static_cast<std::ptrdiff_t>(payload_done), payload.end());
  unsent_fds_.clear();
  if (done == 0) unsent_fds_.assign(fds.begin(), fds.end());
  return Sent::waits;
}

MessageSocket::Sent MessageSocket::flush() {
  std::size_t done = 0;
  const Sent sent = send_some(unsent_, {}, unsent_fds_, done);
  if (done > 0) unsent_fds_.clear();
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(done));
  return sent;
}

UniqueFd connect_unix(const std::string& path, int timeout_ms) {
  const sockaddr_un address = unix_address(path);
  UniqueFd fd = unix_socket(path);
  // connect() waits for room in the server's queue, and for that no longer than a send would.
  set_send_timeout(fd.get(), timeout_ms);
  if (!connect_to(fd.get(), address)) {
    if (errno == EAGAIN)
      throw ConfigError("the server at '" + path + "' lets nobody in: " + std::to_string(timeout_ms) +
                        " ms were not enough; is it stopped, or stuck? Start it again");
    throw ConfigError("cannot connect to '" + path + "': " + std::strerror(errno) +
                      "; is the server running, and may this user write to its socket?");
  }
  set_send_timeout(fd.get(), 0);
  return fd;
}

}  // namespace flashmob::vfio
