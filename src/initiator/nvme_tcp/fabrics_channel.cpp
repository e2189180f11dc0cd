#include "initiator/nvme_tcp/fabrics_channel.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "driver/names.h"
#include "fabrics/dhchap.h"
#include "initiator/nvme_tcp/tcp_stream.h"
#include "nvme/registers.h"
#include "nvme/tcp.h"

namespace flashmob::initiator {

namespace tcp = nvme::tcp;
using fabrics::PduReader;

namespace {

constexpr std::size_t kAuthBufferBytes = 4096;

std::uint64_t steady_now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

template <std::size_t N>
void copy_nqn(char (&to)[N], const std::string& from) {
  std::memcpy(to, from.data(), std::min(from.size(), N - 1));
}

}  // namespace

FabricsChannel::FabricsChannel(const NvmeTcpOptions& options, const fabrics::TlsPsk* generated)
    : options_(options),
      patience_(std::chrono::milliseconds(options.timeout_ms), options.is_hurried),
      reader_(fabrics::End::host) {
  try {
    open_socket();
    stream_ = fabrics::Stream(fd_);
    if (generated != nullptr)
      secure(*generated);
    else if (!options.tls_key.empty())
      secure(fabrics::TlsKey(options.tls_key).psk({options.host_nqn, options.subsystem_nqn}));
    initialize();
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
}

FabricsChannel::~FabricsChannel() {
  if (fd_ >= 0) ::close(fd_);
}

fabrics::Stream FabricsChannel::release() {
  fd_ = -1;
  return std::move(stream_);
}

void FabricsChannel::refuse(const std::string& what) const {
  throw FabricsError("nvme-tcp " + options_.address + ":" + std::to_string(options_.port) + ": " + what, reached_);
}

void FabricsChannel::check(const nvme::Cqe& entry, const char* what) const {
  const auto field = static_cast<std::uint16_t>(entry.status_phase >> 1);
  if (nvme::status_of(field) == nvme::Status::success) return;
  const nvme::Status status = nvme::status_of(field);
  std::string reason = driver::status_text(field);
  if (status == nvme::kConnectInvalidHost) reason = "the target does not allow host " + options_.host_nqn;
  if (status == nvme::kConnectInvalidParameters) reason = "invalid parameters; is the subsystem's NQN right?";
  if (status == nvme::kConnectControllerBusy) reason = "the controller is busy";
  if (status == nvme::kAuthenticationRequired)
    reason = "the controller wants authentication (dhchap_secret) or a secure channel (tls_key)";
  refuse(std::string(what) + " failed: " + reason);
}

void FabricsChannel::wait(short events, const char* what) {
  for (;;) {
    // What is only being set up need not be ended properly, and many short waits would be a long one.
    if (options_.is_hurried != nullptr && options_.is_hurried->load(std::memory_order_relaxed))
      refuse(std::string(what) + ": interrupted");
    const int left_ms = patience_.next_ms();
    if (left_ms == 0) refuse(std::string(what) + ": no answer in " + std::to_string(options_.timeout_ms) + " ms");
    pollfd poll_fd{fd_, events, 0};
    const int ready = ::poll(&poll_fd, 1, left_ms);
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) refuse(std::string(what) + ": " + std::strerror(errno));
  }
}

void FabricsChannel::open_socket() {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(options_.address.c_str(), std::to_string(options_.port).c_str(), &hints, &found);
  if (error != 0) refuse(std::string("the address cannot be found: ") + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  int last_error = ECONNREFUSED;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    fd_ = ::socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) refuse(std::string("no socket: ") + std::strerror(errno));
    int result = ::connect(fd_, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (result == EINPROGRESS) {
      wait(POLLOUT, "connecting");
      socklen_t size = sizeof result;
      getsockopt(fd_, SOL_SOCKET, SO_ERROR, &result, &size);
    }
    if (result == 0) {
      const int on = 1;
      setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return;
    }
    last_error = result;
    ::close(std::exchange(fd_, -1));
  }
  refuse(std::strerror(last_error));
}

void FabricsChannel::send_all(std::span<const std::byte> bytes) {
  while (!bytes.empty() || !stream_.flush()) {
    if (bytes.empty()) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) refuse(std::string("sending failed: ") + std::strerror(errno));
      wait(POLLOUT, "sending");
      continue;
    }
    iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    const ssize_t sent = stream_.send({&piece, 1});
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait(POLLOUT, "sending");
    } else if (errno != EINTR) {
      refuse(std::string("sending failed: ") + std::strerror(errno));
    }
  }
}

PduReader::Event FabricsChannel::receive() {
  for (;;) {
    const PduReader::Event event = reader_.next();
    if (event == PduReader::Event::fault) refuse("the answer is no NVMe/TCP");
    if (event == PduReader::Event::complete && reader_.type() == tcp::PduType::c2h_term_req)
      refuse("the controller ended the connection (fatal error status " +
             std::to_string(reader_.pdu<tcp::TermReq>().fes) + ")");
    if (event != PduReader::Event::need_bytes) return event;
    std::array<iovec, 8> scratch;
    const std::span<iovec> space = reader_.space(scratch);
    const ssize_t got = stream_.receive(space);
    if (got > 0) {
      reader_.received(static_cast<std::size_t>(got));
    } else if (got == 0) {
      refuse("the controller closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait(POLLIN, "waiting for the controller");
    } else if (errno != EINTR) {
      refuse(std::string("receiving failed: ") + std::strerror(errno));
    }
  }
}

void FabricsChannel::secure(const fabrics::TlsPsk& psk) {
  stream_.secure(std::make_unique<fabrics::TlsSession>(psk));
  while (!stream_.tls()->established()) {
    std::byte none;
    iovec piece{&none, 1};
    const ssize_t got = stream_.receive({&piece, 1});
    if (got > 0) refuse("the controller spoke before it was asked");
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!stream_.tls()->established()) wait(POLLIN, "the TLS handshake");
    } else if (got == 0 || errno != EINTR) {
      reached_ = true;
      refuse("no TLS connection (" + tls_failure() + "); " +
             (psk.identity.generated ? "the target does not know the key that it has just made with us"
                                     : "is the key the one that the target has for host " + options_.host_nqn + "?"));
    }
  }
}

std::string FabricsChannel::tls_failure() const {
  const std::string& reason = stream_.tls()->reason();
  return !reason.empty() ? reason : errno != 0 ? std::strerror(errno) : "the controller closed the connection";
}

void FabricsChannel::initialize() {
  auto request = fabrics::make_pdu<tcp::IcReq>(tcp::PduType::ic_req);
  request.dgst = static_cast<std::uint8_t>((options_.header_digest ? tcp::kDigestHeader : 0) |
                                           (options_.data_digest ? tcp::kDigestData : 0));
  request.maxr2t = kMaxR2tsPerCommand - 1;
  std::array<std::byte, fabrics::kMaxWireHeaderBytes> bytes;
  send_all(std::span(bytes).first(fabrics::write_header(bytes.data(), request, 0, {})));
  while (receive() != PduReader::Event::complete) {
  }
  reached_ = true;
  if (reader_.type() != tcp::PduType::ic_resp) refuse("the answer to the connection request is of another kind");
  const auto response = reader_.pdu<tcp::IcResp>();
  if (response.pfv != 0) refuse("the controller speaks format " + std::to_string(response.pfv) + ", we speak 0");
  if (response.cpda > tcp::kMaxPda) refuse("the controller asks for an impossible alignment of data");
  if (response.maxh2cdata < tcp::kMinMaxH2cData || response.maxh2cdata % 4 != 0)
    refuse("the controller's limit for data (MAXH2CDATA) is below 4096 or no multiple of 4");
  // Digests are used where both ends want them; a controller cannot ask for what we did not offer.
  if ((response.dgst & ~request.dgst) != 0) refuse("the controller uses digests that were not offered");
  digests_ = {(response.dgst & tcp::kDigestHeader) != 0, (response.dgst & tcp::kDigestData) != 0};
  cpda_ = response.cpda;
  max_h2c_bytes_ = response.maxh2cdata;
  reader_.set_digests(digests_);
}

nvme::Cqe FabricsChannel::command(nvme::Sqe sqe, std::span<const std::byte> out, std::span<std::byte> in) {
  be_patient();
  auto pdu = fabrics::make_pdu<tcp::CapsuleCmd>(tcp::PduType::capsule_cmd);
  sqe.cid = next_cid_++;
  sqe.flags = nvme::kFlagPsdtSglBufferMetadata;
  sqe.sgl1 = {.address = 0,
              .length_bytes = static_cast<std::uint32_t>(out.empty() ? in.size() : out.size()),
              .reserved = {},
              .identifier = out.empty() ? nvme::kSglTransportData : nvme::kSglInCapsule};
  pdu.sqe = sqe;
  std::vector<std::byte> bytes(fabrics::kMaxWireHeaderBytes);
  bytes.resize(fabrics::write_header(bytes.data(), pdu, out.size(), digests_, cpda_));
  bytes.insert(bytes.end(), out.begin(), out.end());
  if (digests_.data && !out.empty()) {
    const std::uint32_t digest = fabrics::crc32c(0, out.data(), out.size());
    bytes.insert(bytes.end(), reinterpret_cast<const std::byte*>(&digest),
                 reinterpret_cast<const std::byte*>(&digest + 1));
  }
  send_all(bytes);

  for (;;) {
    const PduReader::Event event = receive();
    if (reader_.type() == tcp::PduType::c2h_data) {
      const auto data = reader_.pdu<tcp::Data>();
      if (event == PduReader::Event::header) {
        if (data.cccid != sqe.cid || std::uint64_t{data.datao} + data.datal > in.size())
          refuse("the controller sent data that was not asked for");
        reader_.sink(in.data() + data.datao);
        continue;
      }
      if (!reader_.data_digest_good()) refuse("data arrived damaged (its digest is wrong)");
      if ((data.ch.flags & tcp::kFlagSuccess) == 0) continue;
      nvme::Cqe entry{};
      entry.cid = sqe.cid;
      return entry;
    }
    if (event != PduReader::Event::complete) continue;
    if (reader_.type() != tcp::PduType::capsule_resp) refuse("the controller sent a PDU out of place");
    const auto entry = reader_.pdu<tcp::CapsuleResp>().cqe;
    if (entry.cid != sqe.cid) refuse("the controller answered a command that it was not given");
    return entry;
  }
}

std::uint16_t FabricsChannel::connect(const nvme::Connect& fields, const std::string& subsystem_nqn,
                                      std::uint16_t cntlid) {
  nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::connect);
  nvme::encode_connect(fields, sqe);
  nvme::ConnectData data{};
  std::copy(options_.host_id.begin(), options_.host_id.end(), data.hostid);
  data.cntlid = cntlid;
  copy_nqn(data.subnqn, subsystem_nqn);
  copy_nqn(data.hostnqn, options_.host_nqn);
  const nvme::Cqe entry = command(sqe, std::as_bytes(std::span(&data, 1)), {});
  check(entry, "Connect");
  const bool secure = stream_.tls() != nullptr;
  const bool make_key = options_.secure_channel && !secure;
  if ((entry.dw0 & nvme::kConnectSecureChannelRequired) != 0 && !make_key)
    refuse("the controller wants a secure channel (TLS) with a key that authentication makes; give secure_channel");
  const std::uint32_t wants = nvme::kConnectAuthRequired | (make_key ? nvme::kConnectSecureChannelRequired : 0u);
  if ((entry.dw0 & wants) != 0) {
    if (options_.dhchap_secret.empty()) refuse("the controller wants authentication; give dhchap_secret");
    authenticate(subsystem_nqn, make_key);
  } else if (make_key) {
    refuse("the controller has no secret of this host, which a secure channel (secure_channel) begins with");
  } else if (!options_.dhchap_controller_secret.empty() && !(options_.secure_channel && secure)) {
    refuse("the controller does not authenticate, but dhchap_controller_secret says that it must");
  }
  return static_cast<std::uint16_t>(entry.dw0);
}

fabrics::TlsPsk FabricsChannel::make_key() {
  connect({.qid = 0, .sqsize = nvme::kMinAdminQueueEntries - 1, .cattr = 0, .kato_ms = 0}, options_.subsystem_nqn,
          nvme::kCntlidDynamic);
  return std::move(made_).value();
}

void FabricsChannel::authenticate(const std::string& subsystem_nqn, bool make_key) {
  const auto send = [&](const fabrics::Bytes& message) {
    nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::authentication_send);
    nvme::encode_authentication({.length_bytes = static_cast<std::uint32_t>(message.size())}, sqe);
    check(command(sqe, std::as_bytes(std::span(message)), {}), "Authentication Send");
  };
  const auto receive_message = [&] {
    fabrics::Bytes message(kAuthBufferBytes);
    nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::authentication_receive);
    nvme::encode_authentication({.length_bytes = kAuthBufferBytes}, sqe);
    check(command(sqe, {}, std::as_writable_bytes(std::span(message))), "Authentication Receive");
    return message;
  };
  try {
    fabrics::DhchapParties parties{.host_nqn = options_.host_nqn,
                                   .subsystem_nqn = subsystem_nqn,
                                   .host_secret = fabrics::DhchapSecret(options_.dhchap_secret),
                                   .controller_secret = {}};
    if (!options_.dhchap_controller_secret.empty())
      parties.controller_secret = fabrics::DhchapSecret(options_.dhchap_controller_secret);
    fabrics::DhchapHost host(std::move(parties));
    if (make_key) host.ask_for(nvme::AuthSecureChannel::new_tls_psk);
    send(host.negotiate(static_cast<std::uint16_t>(steady_now_ns() >> 10)));
    send(host.reply(receive_message()));
    const fabrics::Bytes last = host.finish(receive_message());
    if (!last.empty()) send(last);
    made_ = host.take_psk();
  } catch (const fabrics::AuthenticationError& error) {
    if (!error.last_words().empty()) {
      try {
        send(error.last_words());
      } catch (const FabricsError&) {
        // It was told, and what it makes of that is nothing to us.
      }
    }
    refuse(std::string("authentication failed: ") + error.what());
  }
}

std::uint64_t FabricsChannel::property(std::uint32_t offset, bool eight_bytes) {
  nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::property_get);
  nvme::encode_property({.eight_bytes = eight_bytes, .offset = offset, .value = 0}, sqe);
  const nvme::Cqe entry = command(sqe, {}, {});
  check(entry, "Property Get");
  return eight_bytes ? entry.dw0 | (std::uint64_t{entry.dw1} << 32) : entry.dw0;
}

void FabricsChannel::set_property(std::uint32_t offset, std::uint32_t value) {
  nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::property_set);
  nvme::encode_property({.eight_bytes = false, .offset = offset, .value = value}, sqe);
  check(command(sqe, {}, {}), "Property Set");
}

}  // namespace flashmob::initiator
