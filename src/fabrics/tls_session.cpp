#include "fabrics/tls_session.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "base/check.h"

namespace flashmob::fabrics {
namespace {

using nvme::AuthHash;

constexpr std::size_t kInputBytes = 32 * 1024;
constexpr std::size_t kMostUnsentBytes = 64 * 1024;
constexpr std::size_t kRecordBytes = 16 * 1024;
// Calls of the kernel per receive(), so that one peer that never pauses does not keep the others waiting.
constexpr unsigned kReadsPerCall = 8;
// Of a peer that has not proved anything yet, whose records may hold one byte each: as much as a usual hello.
constexpr std::size_t kHelloBytes = 4 * 1024;
// Records per receive(), those without data among them: the smallest cost as much as one of some kilobytes.
constexpr unsigned kRecordsPerCall = 32;
// Key updates and the like, which cost us more than their sender: so many, and one more for each so many bytes of data.
constexpr std::uint64_t kFreeMessages = 16;
constexpr std::uint64_t kBytesPerMessage = 64 * 1024;

constexpr const char* kSuites = "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256";
// Both take some hundred microseconds; larger groups take so long that neighbours would feel it.
constexpr const char* kGroups = "X25519:P-256";

const char* suite_of(AuthHash hash) {
  return hash == AuthHash::sha256 ? "TLS_AES_128_GCM_SHA256" : "TLS_AES_256_GCM_SHA384";
}
const unsigned char* suite_id(AuthHash hash) {
  static constexpr unsigned char kAes128[] = {0x13, 0x01}, kAes256[] = {0x13, 0x02};
  return hash == AuthHash::sha256 ? kAes128 : kAes256;
}

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
  void operator()(BIO_METHOD* method) const { BIO_meth_free(method); }
};
template <class T>
using Owned = std::unique_ptr<T, FreeContext>;

// The session that stands for an external PSK.
Owned<SSL_SESSION> session_of(SSL* ssl, const TlsPsk& psk) {
  Owned<SSL_SESSION> session(SSL_SESSION_new());
  const SSL_CIPHER* const suite = SSL_CIPHER_find(ssl, suite_id(psk.identity.hash));
  if (!session || suite == nullptr || SSL_SESSION_set1_master_key(session.get(), psk.key.data(), psk.key.size()) != 1 ||
      SSL_SESSION_set_cipher(session.get(), suite) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1)
    return nullptr;
  return session;
}

// The identities in a ClientHello's pre_shared_key extension, in its order (RFC 8446, 4.2.11).
template <class Visit>
void visit_identities(std::span<const unsigned char> extension, Visit&& visit) {
  const auto word = [&](std::size_t at) { return std::size_t{extension[at]} << 8 | extension[at + 1]; };
  if (extension.size() < 2) return;
  const std::size_t end = std::min(extension.size(), word(0) + 2);
  for (std::size_t at = 2; at + 2 <= end;) {
    const std::size_t bytes = word(at);
    if (at + 2 + bytes + 4 > end) return;
    if (visit(std::string_view(reinterpret_cast<const char*>(extension.data()) + at + 2, bytes))) return;
    at += 2 + bytes + 4;
  }
}

}  // namespace

struct TlsSession::Impl {
  explicit Impl(bool host);

  // What OpenSSL calls.
  static int read(BIO* bio, char* out, int length);
  static int write(BIO* bio, const char* data, int length);
  static long control(BIO* bio, int command, long number, void* pointer);
  static int hello(SSL* ssl, int* alert, void*);
  static int find(SSL* ssl, const unsigned char* identity, std::size_t length, SSL_SESSION** session);
  static int use(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, std::size_t* length,
                 SSL_SESSION** session);
  static void see(int outgoing, int version, int type, const void* data, std::size_t length, SSL* ssl, void* self);

  static const BIO_METHOD* method();
  static SSL_CTX* context(bool host);
  // OpenSSL asks for a record's header, and then for the rest of it; of those without data it reads many in one call.
  bool has_had_its_share() const { return established && records >= kRecordsPerCall && left_bytes == 0; }
  static Impl& of(SSL* ssl) { return *static_cast<Impl*>(SSL_get_app_data(ssl)); }

  void look_up(std::string_view identity);
  bool refill(int socket);
  void end(int socket, int error);
  bool send_out(int socket);

  Owned<SSL> ssl;
  FindPsk find_psk;
  std::optional<TlsPsk> psk;  // the host's own, or that which the host has named
  std::string identity;       // its text
  PskIdentity peer;
  bool established = false;
  bool failed = false;   // nothing more is read or written
  bool orderly = false;  // because the other end took leave
  bool at_end = false;  // the socket gives nothing more
  std::uint64_t messages = 0, data_bytes = 0;
  unsigned records = 0;         // in this receive()
  std::size_t left_bytes = 0;   // of the record that is being read, once its header is
  std::vector<unsigned char> in, out;
  std::size_t in_at = 0, in_end = 0, out_at = 0;
  std::vector<unsigned char> record;
  std::string reason;
};

int TlsSession::Impl::read(BIO* bio, char* data, int length) {
  auto& self = *static_cast<Impl*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  std::size_t count = std::min(static_cast<std::size_t>(length), self.in_end - self.in_at);
  if (self.has_had_its_share()) count = 0;
  if (count == 0) {
    if (self.at_end && self.in_at == self.in_end) return 0;
    BIO_set_retry_read(bio);
    return -1;
  }
  std::memcpy(data, self.in.data() + self.in_at, count);
  self.in_at += count;
  self.left_bytes -= std::min(self.left_bytes, count);
  return static_cast<int>(count);
}

// Takes everything; send() and the handshake's own bounds see to it that this is not much.
int TlsSession::Impl::write(BIO* bio, const char* data, int length) {
  auto& self = *static_cast<Impl*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  try {
    self.out.insert(self.out.end(), data, data + length);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return length;
}

long TlsSession::Impl::control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return static_cast<Impl*>(BIO_get_data(bio))->at_end ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* TlsSession::Impl::method() {
  static const Owned<BIO_METHOD> made = [] {
    Owned<BIO_METHOD> fresh(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "flashmob"));
    if (!fresh) throw std::bad_alloc();
    BIO_meth_set_read(fresh.get(), read);
    BIO_meth_set_write(fresh.get(), write);
    BIO_meth_set_ctrl(fresh.get(), control);
    return fresh;
  }();
  return made.get();
}

SSL_CTX* TlsSession::Impl::context(bool host) {
  const auto make = [](bool for_host) {
    Owned<SSL_CTX> fresh(SSL_CTX_new(for_host ? TLS_client_method() : TLS_server_method()));
    if (!fresh || SSL_CTX_set_min_proto_version(fresh.get(), TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(fresh.get(), TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(fresh.get(), kSuites) != 1 || SSL_CTX_set1_groups_list(fresh.get(), kGroups) != 1 ||
        SSL_CTX_set_num_tickets(fresh.get(), 0) != 1)
      throw std::bad_alloc();
    SSL_CTX_set_session_cache_mode(fresh.get(), SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(fresh.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(fresh.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // receive() wants to see messages of TLS itself go by, and count them.
    SSL_CTX_clear_mode(fresh.get(), SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_msg_callback(fresh.get(), see);
    if (for_host) {
      // There are no certificates: who does not know the key cannot finish the handshake.
      SSL_CTX_set_verify(fresh.get(), SSL_VERIFY_PEER, nullptr);
      SSL_CTX_set_psk_use_session_callback(fresh.get(), use);
    } else {
      SSL_CTX_set_client_hello_cb(fresh.get(), hello, nullptr);
      SSL_CTX_set_psk_find_session_callback(fresh.get(), find);
    }
    return fresh;
  };
  static const Owned<SSL_CTX> of_hosts = make(true);
  static const Owned<SSL_CTX> of_controllers = make(false);
  return (host ? of_hosts : of_controllers).get();
}

TlsSession::Impl::Impl(bool host) : ssl(SSL_new(context(host))), in(kInputBytes) {
  BIO* const bio = BIO_new(method());
  if (!ssl || bio == nullptr) {
    BIO_free(bio);
    throw std::bad_alloc();
  }
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl.get(), bio, bio);
  SSL_set_app_data(ssl.get(), this);
  SSL_set_msg_callback_arg(ssl.get(), this);
  host ? SSL_set_connect_state(ssl.get()) : SSL_set_accept_state(ssl.get());
}

void TlsSession::Impl::look_up(std::string_view text) {
  const auto parsed = parse_psk_identity(text);
  if (!parsed) return;
  psk = find_psk(*parsed);
  if (psk) identity = text;
}

// A host may name several PSKs, and the cipher suite must be that of the one we take: so the choice is made first.
int TlsSession::Impl::hello(SSL* ssl, int* alert, void*) {
  Impl& self = of(ssl);
  const unsigned char* extension = nullptr;
  std::size_t length = 0;
  try {
    if (!self.psk && SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_psk, &extension, &length) == 1) {
      unsigned tried = 0;
      visit_identities({extension, length}, [&](std::string_view text) {
        self.look_up(text);
        return self.psk.has_value() || ++tried == 8;
      });
    }
    if (self.psk && SSL_set_ciphersuites(ssl, suite_of(self.psk->identity.hash)) == 1) return SSL_CLIENT_HELLO_SUCCESS;
  } catch (const std::exception&) {
  }
  *alert = SSL_AD_UNKNOWN_PSK_IDENTITY;
  return SSL_CLIENT_HELLO_ERROR;
}

int TlsSession::Impl::find(SSL* ssl, const unsigned char* identity, std::size_t length, SSL_SESSION** session) {
  Impl& self = of(ssl);
  *session = nullptr;
  if (self.psk && self.identity == std::string_view(reinterpret_cast<const char*>(identity), length))
    *session = session_of(ssl, *self.psk).release();
  return 1;
}

int TlsSession::Impl::use(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, std::size_t* length,
                          SSL_SESSION** session) {
  Impl& self = of(ssl);
  *session = nullptr;
  Owned<SSL_SESSION> made = session_of(ssl, *self.psk);
  if (!made) return 0;
  // After the controller has asked for another hello: a suite of another hash would not go with our key.
  if (digest != nullptr && EVP_MD_get_size(digest) != static_cast<int>(hash_bytes(self.psk->identity.hash))) return 0;
  *identity = reinterpret_cast<const unsigned char*>(self.identity.data());
  *length = self.identity.size();
  *session = made.release();
  return 1;
}

void TlsSession::Impl::see(int outgoing, int, int type, const void* data, std::size_t length, SSL*, void* self) {
  auto* const impl = static_cast<Impl*>(self);
  if (outgoing == 0 && type == SSL3_RT_HEADER && length >= SSL3_RT_HEADER_LENGTH) {
    const auto* const header = static_cast<const unsigned char*>(data);
    impl->left_bytes = std::size_t{header[3]} << 8 | header[4];
    ++impl->records;
  }
  if (outgoing == 0 && type == SSL3_RT_HANDSHAKE && impl->established) ++impl->messages;
}

// True if there is something new to decrypt, be it the end.
bool TlsSession::Impl::refill(int socket) {
  if (at_end) return false;
  ssize_t got;
  do got = ::recv(socket, in.data(), established ? in.size() : kHelloBytes, MSG_DONTWAIT);
  while (got < 0 && errno == EINTR);
  if (got < 0) return false;
  at_end = got == 0;
  in_at = 0;
  in_end = static_cast<std::size_t>(got);
  return true;
}

// TLS is over: what the other end must hear of it goes out, if that can be done at once.
void TlsSession::Impl::end(int socket, int error) {
  failed = true;
  orderly = error == SSL_ERROR_ZERO_RETURN && reason.empty();
  if (!orderly && reason.empty()) {
    const char* const text = ERR_reason_error_string(ERR_peek_last_error());
    reason = at_end ? "the connection was cut off" : text != nullptr ? text : "TLS failed";
  }
  ERR_clear_error();
  send_out(socket);
}

// False with errno where the socket takes nothing now, or never again.
bool TlsSession::Impl::send_out(int socket) {
  while (out_at != out.size()) {
    const ssize_t sent = ::send(socket, out.data() + out_at, out.size() - out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
      out_at += static_cast<std::size_t>(sent);
    else if (errno != EINTR)
      return false;
  }
  out.clear();
  out_at = 0;
  return true;
}

TlsSession::TlsSession(FindPsk find) : impl_(std::make_unique<Impl>(false)) { impl_->find_psk = std::move(find); }

TlsSession::TlsSession(const TlsPsk& psk) : impl_(std::make_unique<Impl>(true)) {
  impl_->psk = psk;
  impl_->identity = text_of(psk.identity);
  if (SSL_set_ciphersuites(impl_->ssl.get(), suite_of(psk.identity.hash)) != 1) throw std::bad_alloc();
}

TlsSession::~TlsSession() {
  if (impl_->psk) OPENSSL_cleanse(impl_->psk->key.data(), impl_->psk->key.size());
}

ssize_t TlsSession::receive(int socket, std::span<const iovec> pieces) {
  Impl& s = *impl_;
  std::size_t total = 0;
  std::size_t piece = 0, offset = 0;
  unsigned reads = 0;
  s.records = 0;
  while (!s.failed && piece < pieces.size()) {
    if (offset == pieces[piece].iov_len) {
      ++piece;
      offset = 0;
      continue;
    }
    ERR_clear_error();
    std::size_t got = 0;
    const bool established = s.established;
    auto* const to = static_cast<std::byte*>(pieces[piece].iov_base) + offset;
    const int result = established ? SSL_read_ex(s.ssl.get(), to, pieces[piece].iov_len - offset, &got)
                                   : SSL_do_handshake(s.ssl.get());
    if (result == 1 && !established) {
      s.established = true;
      s.peer = s.psk->identity;
      continue;
    }
    if (result == 1) {
      total += got;
      offset += got;
      s.data_bytes += got;
      continue;
    }
    const int error = SSL_get_error(s.ssl.get(), result);
    if (s.messages > kFreeMessages + s.data_bytes / kBytesPerMessage) s.reason = "too many key updates";
    if (error != SSL_ERROR_WANT_READ || !s.reason.empty()) {
      s.end(socket, error);
      break;
    }
    if (s.has_had_its_share()) {
      errno = EAGAIN;
      break;
    }
    if (s.in_at != s.in_end) continue;
    const unsigned most_reads = s.established ? kReadsPerCall : 1;
    if (++reads > most_reads) errno = EAGAIN;
    if (reads > most_reads || !s.refill(socket)) break;
  }
  const int error = errno;
  s.send_out(socket);
  if (total != 0) return static_cast<ssize_t>(total);
  if (s.orderly) return 0;
  errno = s.failed ? EPROTO : error;
  return -1;
}

ssize_t TlsSession::send(int socket, std::span<const iovec> pieces) {
  Impl& s = *impl_;
  if (s.failed) {
    errno = EPIPE;
    return -1;
  }
  if (!s.established) {
    errno = EAGAIN;
    return -1;
  }
  s.record.resize(kRecordBytes);
  std::size_t total = 0;
  std::size_t piece = 0, offset = 0;
  while (s.out.size() - s.out_at < kMostUnsentBytes) {
    // Headers and small data share a record.
    std::size_t filled = 0;
    while (filled < kRecordBytes && piece < pieces.size()) {
      const std::size_t bytes = std::min(kRecordBytes - filled, pieces[piece].iov_len - offset);
      std::memcpy(s.record.data() + filled, static_cast<const std::byte*>(pieces[piece].iov_base) + offset, bytes);
      filled += bytes;
      offset += bytes;
      if (offset != pieces[piece].iov_len) continue;
      ++piece;
      offset = 0;
    }
    if (filled == 0) break;
    ERR_clear_error();
    std::size_t written = 0;
    const int result = SSL_write_ex(s.ssl.get(), s.record.data(), filled, &written);
    if (result != 1) {
      s.end(socket, SSL_get_error(s.ssl.get(), result));
      errno = EPIPE;
      return -1;
    }
    FLASHMOB_CHECK(written == filled);  // there is always room for a record
    total += filled;
  }
  if (!s.send_out(socket) && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) return -1;
  if (total != 0) return static_cast<ssize_t>(total);
  errno = EAGAIN;
  return -1;
}

bool TlsSession::flush(int socket) { return impl_->send_out(socket); }

void TlsSession::close(int socket) {
  if (impl_->failed || !impl_->established) return;
  ERR_clear_error();
  SSL_shutdown(impl_->ssl.get());
  impl_->send_out(socket);
}

bool TlsSession::established() const { return impl_->established; }
bool TlsSession::has_unread() const {
  return !impl_->failed && (impl_->in_at != impl_->in_end || SSL_pending(impl_->ssl.get()) != 0);
}
std::size_t TlsSession::unsent_bytes() const { return impl_->out.size() - impl_->out_at; }
const PskIdentity& TlsSession::identity() const { return impl_->peer; }
const std::string& TlsSession::reason() const { return impl_->reason; }

}  // namespace flashmob::fabrics
