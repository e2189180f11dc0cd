// One end of TLS 1.3 with a pre-shared key and (EC)DHE, as NVMe/TCP uses it: no certificates, no tickets, no early
// data, the two cipher suites of AES-GCM. OpenSSL does it; the socket stays ours.
//
// receive() and send() mean what recvmsg() and sendmsg() mean on a socket that does not block, errno included, so that
// a connection's loop is the same with TLS and without. The handshake happens inside receive(). One thread at a time.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fabrics/tls_psk.h"

namespace flashmob::fabrics {

class TlsSession {
 public:
  // More than one ever takes: its buffers, and what OpenSSL allocates for it (some 50 KiB while little is under way).
  static constexpr std::size_t kMostBytes = 256 * 1024;

  using FindPsk = std::function<std::optional<TlsPsk>(const PskIdentity& identity)>;

  // The controller's end: takes hosts whose PSK `find` knows. Throws std::bad_alloc.
  explicit TlsSession(FindPsk find);
  // The host's end. Throws std::bad_alloc.
  explicit TlsSession(const TlsPsk& psk);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  ssize_t receive(int socket, std::span<const iovec> pieces);
  // Fails with EAGAIN before the handshake is through, or while what was sent before has not gone.
  ssize_t send(int socket, std::span<const iovec> pieces);
  // Sends what is encrypted already: true if nothing is left. Fails with errno as send() does.
  bool flush(int socket);
  // Takes leave: without this the other end takes the connection's end for one that somebody has forced.
  void close(int socket);

  bool established() const;
  // receive() has bytes to give that the socket does not know of any more.
  bool has_unread() const;
  std::size_t unsent_bytes() const;
  // Who the other end has proved to be, or we to it; known once established.
  const PskIdentity& identity() const;
  // Why it failed, in OpenSSL's words; empty where the socket did.
  const std::string& reason() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flashmob::fabrics
