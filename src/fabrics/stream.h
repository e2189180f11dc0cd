// The bytes of one TCP connection, as they are or through TLS: what readers and writers of PDUs see of a socket. Does
// not own the socket, which does not block. One thread at a time.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>

#include "fabrics/tls_session.h"

namespace flashmob::fabrics {

class Stream {
 public:
  explicit Stream(int socket) : socket_(socket) {}

  int socket() const { return socket_; }
  void secure(std::unique_ptr<TlsSession> tls) { tls_ = std::move(tls); }
  // nullptr: as they are.
  const TlsSession* tls() const { return tls_.get(); }

  // As recvmsg() and sendmsg(), errno included.
  ssize_t receive(std::span<iovec> pieces) {
    if (tls_) return tls_->receive(socket_, pieces);
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    return ::recvmsg(socket_, &message, MSG_DONTWAIT);
  }
  ssize_t send(std::span<iovec> pieces) {
    if (tls_) return tls_->send(socket_, pieces);
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    return ::sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  // Hands the kernel what send() has taken: false with errno as long as some is left.
  bool flush() { return !tls_ || tls_->flush(socket_); }
  // What send() has taken and the kernel has not.
  std::size_t unsent_bytes() const { return tls_ ? tls_->unsent_bytes() : 0; }
  // receive() has something that polling the socket does not show.
  bool has_unread() const { return tls_ && tls_->has_unread(); }
  // Says that nothing more will be sent.
  void end_sending() {
    if (tls_) tls_->close(socket_);
    ::shutdown(socket_, SHUT_WR);
  }

 private:
  int socket_;
  std::unique_ptr<TlsSession> tls_;
};

}  // namespace flashmob::fabrics
