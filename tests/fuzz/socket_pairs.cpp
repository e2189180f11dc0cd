#include "fuzz/socket_pairs.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "fuzz/kept_files.h"

// The linker's names: __wrap_X is called for X, __real_X is X.
extern "C" {
int __real_socketpair(int domain, int type, int protocol, int* pair);
int __real_close(int fd);
int __real_shutdown(int fd, int how);
int __real_setsockopt(int fd, int level, int name, const void* value, socklen_t bytes);
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __real_recvmsg(int fd, msghdr* message, int flags);
ssize_t __real_send(int fd, const void* data, std::size_t bytes, int flags);
ssize_t __real_recv(int fd, void* data, std::size_t bytes, int flags);
int __real_ioctl(int fd, unsigned long what, void* value);
int __real_epoll_ctl(int epoll, int what, int fd, epoll_event* event);
int __real_epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms);
int __real_epoll_create1(int flags);
int __real_socket(int domain, int type, int protocol);
int __real_bind(int fd, const sockaddr* address, socklen_t bytes);
int __real_listen(int fd, int backlog);
int __real_getsockname(int fd, sockaddr* address, socklen_t* bytes);
}

namespace flashmob::fuzz {
namespace {

constexpr std::size_t kDescriptors = 4096;  // higher ones are never these sockets'
constexpr std::uint8_t kClosed = 0xFF;
constexpr std::size_t kPieceFds = 32;
constexpr std::size_t kSmallPiece = 512;
constexpr std::size_t kLargePiece = 32 << 10;
// As the kernel counts: what a piece takes besides its bytes, and the least and the usual room of a socket.
constexpr std::size_t kPieceCost = 768;
constexpr std::size_t kLeastRoom = 4608;
constexpr std::size_t kUsualRoom = 212'992;

// What was sent at once, or a part of it. Made with malloc(), because operator new may be made to fail.
struct Piece {
  Piece* next;
  std::size_t capacity, bytes, taken;
  std::size_t fd_count;
  std::array<int, kPieceFds> fds;

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

struct End {
  End* peer = nullptr;
  unsigned descriptors = 0;  // that are this end, those on their way in messages included
  Piece *first = nullptr, *last = nullptr;  // to be received
  std::size_t sent = 0;  // that the peer has not received
  std::size_t room = kUsualRoom;
  bool takes = true, gives = true;  // false: shut down
  bool reset = false;
  bool is_lone = false;  // of no pair
};

struct Watch {
  int epoll, fd;
  epoll_event event;
};

struct Sockets {
  int placeholder = -1;  // the kernel's part of each descriptor; -1: off
  std::array<End, 128> ends;
  std::array<std::uint8_t, kDescriptors> end_of{};  // index + 1; 0: the kernel's; kClosed
  std::array<Watch, 64> watches;
  std::size_t watch_count = 0;
  Piece *small = nullptr, *large = nullptr;  // to be used again
  std::array<int, 256> spare;                // the kernel's parts of descriptors that were closed, likewise
  std::size_t spare_count = 0;

  End* find(int fd) {
    const bool ours = fd >= 0 && static_cast<std::size_t>(fd) < kDescriptors && end_of[fd] != 0;
    FLASHMOB_CHECK(!ours || end_of[fd] != kClosed);
    return ours ? &ends[end_of[fd] - 1u] : nullptr;
  }
  void name(int fd, End& end) {
    end_of[fd] = static_cast<std::uint8_t>(&end - ends.data() + 1);
    ++end.descriptors;
  }
};
Sockets sockets;

// Negative where the process has none left, or none that can be ours.
int new_descriptor(int like) {
  const bool ours = like == sockets.placeholder || sockets.find(like) != nullptr;
  if (ours && sockets.spare_count != 0) return sockets.spare[--sockets.spare_count];
  const int fd = ::dup(like);
  if (fd < static_cast<int>(kDescriptors)) return fd;
  __real_close(fd);
  errno = EMFILE;
  return -1;
}

Piece* take_piece(std::size_t bytes) {
  Piece*& kept = bytes <= kSmallPiece ? sockets.small : sockets.large;
  Piece* piece = kept;
  if (piece != nullptr) {
    kept = piece->next;
  } else {
    const std::size_t capacity = bytes <= kSmallPiece ? kSmallPiece : kLargePiece;
    piece = static_cast<Piece*>(std::malloc(sizeof(Piece) + capacity));
    FLASHMOB_CHECK(piece != nullptr);
    piece->capacity = capacity;
  }
  piece->next = nullptr;
  piece->bytes = bytes;
  piece->taken = piece->fd_count = 0;
  return piece;
}

int close_descriptor(int fd);

void drop_first(End& end) {
  Piece* const piece = end.first;
  end.first = piece->next;
  if (end.first == nullptr) end.last = nullptr;
  if (end.peer != nullptr) end.peer->sent -= piece->bytes + kPieceCost;
  for (std::size_t i = 0; i < piece->fd_count; ++i) close_descriptor(piece->fds[i]);
  Piece*& kept = piece->capacity == kSmallPiece ? sockets.small : sockets.large;
  piece->next = kept;
  kept = piece;
}

int close_descriptor(int fd) {
  End* const end = sockets.find(fd);
  if (end != nullptr) {
    sockets.end_of[fd] = 0;
    auto* const last = sockets.watches.data() + sockets.watch_count;
    sockets.watch_count = static_cast<std::size_t>(
        std::remove_if(sockets.watches.data(), last, [&](const Watch& watch) { return watch.fd == fd; }) -
        sockets.watches.data());
    if (--end->descriptors == 0) {
      End* const peer = end->peer;
      if (peer != nullptr) {
        peer->takes = peer->gives = false;
        peer->reset = end->first != nullptr;
      }
      while (end->first != nullptr) drop_first(*end);
      if (peer != nullptr) peer->peer = nullptr;
      *end = End();
    }
    if (sockets.spare_count != sockets.spare.size()) {
      sockets.spare[sockets.spare_count++] = fd;
      sockets.end_of[fd] = kClosed;
      return 0;
    }
  }
  return __real_close(fd);
}

std::size_t total(const msghdr& message) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) bytes += message.msg_iov[i].iov_len;
  return bytes;
}

// The descriptors of a message come with copies of their own, as they do with the kernel.
bool take_descriptors(const msghdr& message, Piece& piece) {
  for (const cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(part))) {
    FLASHMOB_CHECK(part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS);
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    FLASHMOB_CHECK(piece.fd_count + count <= kPieceFds);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(fd), sizeof(fd));
      const int copy = new_descriptor(fd);
      if (copy < 0) return false;
      if (End* const end = sockets.find(fd)) sockets.name(copy, *end);
      piece.fds[piece.fd_count++] = copy;
    }
  }
  return true;
}

ssize_t send_here(End& end, const msghdr& message) {
  if (!end.gives || end.peer == nullptr || !end.peer->takes) {
    errno = EPIPE;
    return -1;
  }
  const std::size_t all = total(message);
  std::size_t done = 0, iov = 0, iov_done = 0;
  while (done < all) {
    if (end.sent >= end.room) {
      if (done != 0) break;
      errno = EAGAIN;
      return -1;
    }
    Piece* const piece = take_piece(std::min({all - done, end.room / 2 - 64, kLargePiece}));
    for (std::size_t filled = 0; filled < piece->bytes;) {
      const iovec& part = message.msg_iov[iov];
      const std::size_t count = std::min(part.iov_len - iov_done, piece->bytes - filled);
      if (count != 0)
        std::memcpy(piece->data() + filled, static_cast<const std::byte*>(part.iov_base) + iov_done, count);
      filled += count;
      iov_done += count;
      if (iov_done == part.iov_len) {
        ++iov;
        iov_done = 0;
      }
    }
    const bool whole = done != 0 || take_descriptors(message, *piece);
    End& to = *end.peer;
    (to.last == nullptr ? to.first : to.last->next) = piece;
    to.last = piece;
    end.sent += piece->bytes + kPieceCost;
    FLASHMOB_CHECK(whole);
    done += piece->bytes;
  }
  return static_cast<ssize_t>(done);
}

// Those that find no room are closed.
void give_descriptors(Piece& piece, msghdr& message, std::size_t room) {
  const std::size_t most = room < CMSG_LEN(0) ? 0 : (room - CMSG_LEN(0)) / sizeof(int);
  const std::size_t count = std::min(most, piece.fd_count);
  if (count < piece.fd_count) message.msg_flags |= MSG_CTRUNC;
  if (count != 0) {
    auto* const part = static_cast<cmsghdr*>(message.msg_control);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(part), piece.fds.data(), count * sizeof(int));
    message.msg_controllen = std::min<std::size_t>(room, CMSG_SPACE(count * sizeof(int)));
  }
  for (std::size_t i = count; i < piece.fd_count; ++i) close_descriptor(piece.fds[i]);
  piece.fd_count = 0;
}

ssize_t receive_here(End& end, msghdr& message) {
  const std::size_t room = message.msg_control == nullptr ? 0 : message.msg_controllen;
  message.msg_controllen = 0;
  message.msg_flags = 0;
  std::size_t done = 0, iov = 0, iov_done = 0;
  while (end.first != nullptr && iov < message.msg_iovlen) {
    Piece& piece = *end.first;
    // Descriptors end a read; they are never those of two pieces.
    if (done != 0 && piece.fd_count != 0) break;
    const bool had_fds = piece.fd_count != 0;
    while (iov < message.msg_iovlen && piece.taken < piece.bytes) {
      const iovec& part = message.msg_iov[iov];
      const std::size_t count = std::min(part.iov_len - iov_done, piece.bytes - piece.taken);
      if (count != 0) std::memcpy(static_cast<std::byte*>(part.iov_base) + iov_done, piece.data() + piece.taken, count);
      piece.taken += count;
      done += count;
      iov_done += count;
      if (iov_done == part.iov_len) {
        ++iov;
        iov_done = 0;
      }
    }
    if (had_fds) give_descriptors(piece, message, room);
    if (piece.taken == piece.bytes) drop_first(end);
    if (had_fds) break;
  }
  if (done != 0 || total(message) == 0) return static_cast<ssize_t>(done);
  if (std::exchange(end.reset, false)) {
    errno = ECONNRESET;
    return -1;
  }
  if (!end.takes) return 0;
  errno = EAGAIN;
  return -1;
}

std::uint32_t state_of(const End& end) {
  std::uint32_t state = 0;
  if (end.first != nullptr || !end.takes) state |= EPOLLIN;
  if (!end.takes) state |= EPOLLRDHUP;
  if (!end.takes && !end.gives) state |= EPOLLHUP;
  if (end.reset) state |= EPOLLERR;
  if (end.sent * 4 <= end.room) state |= EPOLLOUT;
  return state;
}

}  // namespace

namespace {

// A descriptor that belongs to no pair.
int lone_descriptor() {
  const int fd = new_descriptor(sockets.placeholder);
  if (fd < 0) return fd;
  auto* const free =
      std::find_if(sockets.ends.begin(), sockets.ends.end(), [](const End& end) { return end.descriptors == 0; });
  FLASHMOB_CHECK(free != sockets.ends.end());
  sockets.name(fd, *free);
  free->is_lone = true;
  return fd;
}

}  // namespace

void keep_sockets_here() {
  if (sockets.placeholder >= 0) return;
  std::array<int, 2> pair{};
  FLASHMOB_CHECK(__real_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) == 0);
  sockets.placeholder = pair[0];
}

}  // namespace flashmob::fuzz

extern "C" {
using namespace flashmob::fuzz;

int __wrap_socketpair(int domain, int type, int protocol, int* pair) {
  if (sockets.placeholder < 0) return __real_socketpair(domain, type, protocol, pair);
  std::array<End*, 2> ends{};
  std::size_t count = 0;
  for (End& end : sockets.ends)
    if (count < 2 && end.descriptors == 0) ends[count++] = &end;
  FLASHMOB_CHECK(count == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    pair[i] = new_descriptor(sockets.placeholder);
    FLASHMOB_CHECK(pair[i] >= 0);
    sockets.name(pair[i], *ends[i]);
    ends[i]->peer = ends[1 - i];
  }
  return 0;
}

// A listener, to which nobody connects.
int __wrap_socket(int domain, int type, int protocol) {
  const bool ours = sockets.placeholder >= 0 && (domain == AF_INET || domain == AF_INET6);
  return ours ? lone_descriptor() : __real_socket(domain, type, protocol);
}

int __wrap_bind(int fd, const sockaddr* address, socklen_t bytes) {
  return sockets.find(fd) == nullptr ? __real_bind(fd, address, bytes) : 0;
}

int __wrap_listen(int fd, int backlog) { return sockets.find(fd) == nullptr ? __real_listen(fd, backlog) : 0; }

int __wrap_getsockname(int fd, sockaddr* address, socklen_t* bytes) {
  const End* const end = sockets.find(fd);
  if (end == nullptr || !end->is_lone) return __real_getsockname(fd, address, bytes);
  std::memset(address, 0, *bytes);
  return 0;
}

int __wrap_epoll_create1(int flags) {
  return sockets.placeholder >= 0 ? lone_descriptor() : __real_epoll_create1(flags);
}

int __wrap_close(int fd) { return forget_kept_file(fd) ? 0 : close_descriptor(fd); }

int __wrap_shutdown(int fd, int how) {
  End* const end = sockets.find(fd);
  if (end == nullptr) return __real_shutdown(fd, how);
  if (how != SHUT_WR) end->takes = false;
  if (how != SHUT_RD) end->gives = false;
  if (end->peer != nullptr && how != SHUT_WR) end->peer->gives = false;
  if (end->peer != nullptr && how != SHUT_RD) end->peer->takes = false;
  return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void* value, socklen_t bytes) {
  End* const end = sockets.find(fd);
  if (end == nullptr) return __real_setsockopt(fd, level, name, value, bytes);
  if (level != SOL_SOCKET || name != SO_SNDBUF) return 0;
  int wanted = 0;
  std::memcpy(&wanted, value, sizeof(wanted));
  end->room = std::clamp(static_cast<std::size_t>(std::max(wanted, 0)) * 2, kLeastRoom, 2 * kUsualRoom);
  return 0;
}

ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  End* const end = sockets.find(fd);
  return end == nullptr ? __real_sendmsg(fd, message, flags) : send_here(*end, *message);
}

ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags) {
  End* const end = sockets.find(fd);
  return end == nullptr ? __real_recvmsg(fd, message, flags) : receive_here(*end, *message);
}

ssize_t __wrap_send(int fd, const void* data, std::size_t bytes, int flags) {
  End* const end = sockets.find(fd);
  if (end == nullptr) return __real_send(fd, data, bytes, flags);
  iovec part{const_cast<void*>(data), bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return send_here(*end, message);
}

ssize_t __wrap_recv(int fd, void* data, std::size_t bytes, int flags) {
  End* const end = sockets.find(fd);
  if (end == nullptr) return __real_recv(fd, data, bytes, flags);
  if ((flags & MSG_PEEK) != 0 && end->first != nullptr) {
    Piece& piece = *end->first;
    const std::size_t count = std::min(bytes, piece.bytes - piece.taken);
    std::memcpy(data, piece.data() + piece.taken, count);
    return static_cast<ssize_t>(count);
  }
  iovec part{data, bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return receive_here(*end, message);
}

int __wrap_ioctl(int fd, unsigned long what, void* value) {
  const End* const end = sockets.find(fd);
  if (end == nullptr || what != FIONREAD) return __real_ioctl(fd, what, value);
  std::size_t unread = 0;
  for (const Piece* piece = end->first; piece != nullptr; piece = piece->next) unread += piece->bytes - piece->taken;
  *static_cast<int*>(value) = static_cast<int>(unread);
  return 0;
}

int __wrap_epoll_ctl(int epoll, int what, int fd, epoll_event* event) {
  if (sockets.find(fd) == nullptr) return sockets.find(epoll) == nullptr ? __real_epoll_ctl(epoll, what, fd, event) : 0;
  auto* const last = sockets.watches.data() + sockets.watch_count;
  auto* const found = std::find_if(sockets.watches.data(), last,
                                   [&](const Watch& watch) { return watch.epoll == epoll && watch.fd == fd; });
  if ((found == last) != (what == EPOLL_CTL_ADD)) {
    errno = found == last ? ENOENT : EEXIST;
    return -1;
  }
  if (what == EPOLL_CTL_DEL) {
    std::move(found + 1, last, found);
    --sockets.watch_count;
    return 0;
  }
  if (found == last) FLASHMOB_CHECK(sockets.watch_count++ < sockets.watches.size());
  *found = {epoll, fd, *event};
  return 0;
}

// Of the kernel's own descriptors nothing is told: nobody else is there who could do anything with them.
int __wrap_epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms) {
  if (sockets.placeholder < 0) return __real_epoll_wait(epoll, events, most, timeout_ms);
  int count = 0;
  for (std::size_t i = 0; i < sockets.watch_count && count < most; ++i) {
    const Watch& watch = sockets.watches[i];
    if (watch.epoll != epoll) continue;
    const std::uint32_t state = state_of(*sockets.find(watch.fd)) & (watch.event.events | EPOLLHUP | EPOLLERR);
    if (state == 0) continue;
    events[count] = watch.event;
    events[count++].events = state;
  }
  return count;
}
}
