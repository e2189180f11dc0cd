#include "transport/nvme_tcp/connection.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "fabrics/crc32c.h"
#include "nvme/tcp.h"

namespace flashmob::transport {

using fabrics::End;
using fabrics::PduReader;
using nvme::tcp::FatalError;
using nvme::tcp::PduType;

namespace {

constexpr std::uint64_t kConnectTimeoutMs = 10'000;  // from accept to Connect
constexpr std::uint64_t kDrainTimeoutMs = 1'000;     // from our last word to the host's closing
constexpr int kReadsPerRound = 4;
constexpr std::uint64_t kFusedPatienceMs = 100;
constexpr std::uint8_t kTlsHandshake = 0x16;  // the type of a TLS record; a PDU that begins a connection has type 0

}  // namespace

Connection::Connection(TargetContext& context, AssociationList& associations, int socket, std::shared_ptr<Peer> peer,
                       FairShare::Portion place)
    : context_(context),
      associations_(associations),
      stream_(socket),
      undecided_(context.takes_tls()),
      peer_(std::move(peer)),
      place_(std::move(place)),
      reader_(End::controller),
      deadline_ms_(context.now_ms + kConnectTimeoutMs),
      received_ms_(context.now_ms),
      sent_ms_(context.now_ms),
      delays_(context.looks) {}

Connection::~Connection() { close(); }

void Connection::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  date_what_is_left();
  send_.drop([](std::uint32_t) {});
  context_.waiting_for_buffers -= static_cast<std::uint32_t>(waiting_.size());
  waiting_.clear();
  queue_ = nullptr;
  if (association_ != nullptr) {
    if (qid_ == 0)
      association_->kill();
    else if (owns_queue_)
      drop_queue();
  }
  association_ = nullptr;
  ::close(stream_.socket());
  place_ = FairShare::Portion();
  tls_memory_ = FairShare::Portion();
}

// Whoever gives up because of us must not take with him how long he has waited.
void Connection::date_what_is_left() {
  if (queue_ == nullptr || qid_ == 0) return;
  const std::uint64_t now_ns = context_.now_ns();
  // Straight to the engine: this is done for want of memory, too.
  const auto add = [this](std::uint64_t delay_ns) { context_.engine.door_delays().add(std::span(&delay_ns, 1)); };
  delays_.begin_sending(false);
  end_turns(now_ns);
  nvme::Cqe cqe;
  while (queue_->reap(cqe)) {
    const std::uint32_t index = queue_->find(cqe.cid);
    if (index == HostQueue::kNoSlot) continue;
    Slot& slot = queue_->slot(index);
    slot.state = SlotState::answered;
    add(slot.delay_ns + delays_.ours_ns(context_.looks.posted_ns, delays_.of_host_ns(), now_ns));
  }
  for (std::uint32_t index = 0; index < queue_->slots(); ++index) {
    const Slot& slot = queue_->slot(index);
    if (slot.state == SlotState::waiting || slot.state == SlotState::asking)
      add(slot.delay_ns + delays_.ours_ns(slot.since_ns, slot.of_host_ns, now_ns));
    else if (slot.state == SlotState::submitted)
      add(slot.delay_ns);
  }
  delays_.for_each_held(now_ns, add);
}

void Connection::drop_queue() {
  try {
    association_->drop_queue(qid_);
  } catch (const std::exception&) {
    // Deleting a queue takes commands, and those memory. The end of the association takes none.
    association_->kill();
  }
}

std::uint32_t Connection::interest() const {
  if (state_ == State::closed) return 0;
  return (paused() && state_ != State::draining ? 0u : std::uint32_t{EPOLLIN}) |
         (send_.empty() && stream_.unsent_bytes() == 0 ? 0u : std::uint32_t{EPOLLOUT});
}

// The first byte tells TLS from NVMe/TCP; false while there is none.
bool Connection::decide() {
  std::uint8_t first = 0;
  const ssize_t got = ::recv(stream_.socket(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  if (got <= 0) {
    close();
    return false;
  }
  undecided_ = first == kTlsHandshake && !secure();
  return !undecided_;
}

// TLS takes memory before anybody has proved anything, so it is the address's. False: it is looked at again when one
// who can be missed has left.
bool Connection::secure() {
  constexpr std::uint64_t kBytes = fabrics::TlsSession::kMostBytes;
  if (context_.queue_memory.take(peer_->queue_memory, kBytes) != FairShare::Answer::given) {
    if (!make_room_in_memory(associations_, *peer_)) close();
    return false;
  }
  tls_memory_ = FairShare::Portion(context_.queue_memory, peer_->queue_memory, kBytes);
  stream_.secure(std::make_unique<fabrics::TlsSession>(
      [&context = context_](const fabrics::PskIdentity& identity) { return context.find_psk(identity); }));
  return true;
}

void Connection::on_readable() {
  if (undecided_ && !decide()) return;
  delays_.begin_reading();
  for (int i = 0; i < kReadsPerRound && state_ != State::closed; ++i) {
    std::array<iovec, 64> scratch;
    std::array<std::byte, 4096> discarded;
    std::span<iovec> space;
    if (state_ == State::draining) {
      scratch[0] = {discarded.data(), discarded.size()};
      space = std::span(scratch).first(1);
    } else {
      if (paused()) return;
      space = reader_.space(scratch);
    }
    std::size_t room = 0;
    for (const iovec& piece : space) room += piece.iov_len;
    const ssize_t got = stream_.receive(space);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return delays_.emptied();
    if (got <= 0) return close();
    if (state_ == State::draining) continue;
    delays_.received(static_cast<std::size_t>(got));
    received_ms_ = context_.now_ms;
    if (association_ != nullptr) association_->touch();
    reader_.received(static_cast<std::size_t>(got));
    process();
    // A record of TLS may be followed by another.
    if (static_cast<std::size_t>(got) < room && stream_.tls() == nullptr) return delays_.emptied();
  }
  if (state_ == State::closed) return;
  int unread = 0;
  if (delays_.wants_mark()) ::ioctl(stream_.socket(), FIONREAD, &unread);
  // What comes from now on was not there when this round began. (TLS may hold what it has read from the socket.)
  if (unread == 0 && delays_.wants_mark() && stream_.tls() == nullptr) return delays_.emptied();
  delays_.left(static_cast<std::size_t>(unread));
}

void Connection::process() {
  stopped_ = false;
  while (state_ != State::draining && state_ != State::closed) {
    if (paused()) {
      stopped_ = true;
      return;
    }
    switch (reader_.next()) {
      case PduReader::Event::need_bytes:
        return;
      case PduReader::Event::header:
        on_header();
        break;
      case PduReader::Event::complete:
        on_complete();
        break;
      case PduReader::Event::fault:
        terminate(reader_.fault());
        break;
    }
  }
}

void Connection::on_header() {
  current_ = HostQueue::kNoSlot;
  switch (reader_.type()) {
    case PduType::ic_req:
      if (state_ != State::await_ic) terminate({FatalError::sequence_error});
      break;
    case PduType::capsule_cmd:
      if (state_ == State::await_ic) return terminate({FatalError::sequence_error});
      begin_command(reader_.pdu<nvme::tcp::CapsuleCmd>().sqe);
      break;
    case PduType::h2c_data:
      if (state_ != State::live || queue_ == nullptr) return terminate({FatalError::sequence_error});
      begin_h2c_data();
      break;
    default:
      break;
  }
}

void Connection::on_complete() {
  switch (reader_.type()) {
    case PduType::ic_req:
      on_ic_req();
      break;
    case PduType::h2c_term_req:
      // The host has given up; there is nothing to say to that.
      close();
      break;
    case PduType::capsule_cmd:
      finish_command();
      break;
    case PduType::h2c_data:
      finish_h2c_data();
      break;
    default:
      break;
  }
}

void Connection::on_ic_req() {
  const auto request = reader_.pdu<nvme::tcp::IcReq>();
  if (request.pfv != 0) return terminate({FatalError::unsupported_parameter, offsetof(nvme::tcp::IcReq, pfv)});
  if (request.hpda > nvme::tcp::kMaxPda)
    return terminate({FatalError::invalid_header_field, offsetof(nvme::tcp::IcReq, hpda)});
  host_pda_ = request.hpda;
  digests_ = {(request.dgst & nvme::tcp::kDigestHeader) != 0, (request.dgst & nvme::tcp::kDigestData) != 0};
  auto response = fabrics::make_pdu<nvme::tcp::IcResp>(PduType::ic_resp);
  response.dgst = static_cast<std::uint8_t>((digests_.header ? nvme::tcp::kDigestHeader : 0) |
                                            (digests_.data ? nvme::tcp::kDigestData : 0));
  response.maxh2cdata = context_.options.max_h2c_data_bytes;
  send_.header(response, 0, {});
  reader_.set_digests(digests_);
  state_ = State::await_connect;
}

// The connection cannot go on: says why, then waits for the host to close.
void Connection::terminate(fabrics::PduFault fault) {
  if (state_ == State::draining || state_ == State::closed) return;
  auto request = fabrics::make_pdu<nvme::tcp::TermReq>(PduType::c2h_term_req);
  request.fes = static_cast<std::uint16_t>(fault.fes);
  request.fei[0] = static_cast<std::uint16_t>(fault.fei);
  request.fei[1] = static_cast<std::uint16_t>(fault.fei >> 16);
  const auto culprit = reader_.header_bytes();
  send_.header(request, culprit.size(), {});
  send_.copied(culprit);
  close_when_sent_ = true;
  state_ = State::draining;
  deadline_ms_ = context_.now_ms + kDrainTimeoutMs;
}

void Connection::respond(std::uint16_t cid, std::uint16_t status_field, std::uint32_t dw0, std::uint32_t dw1) {
  auto response = fabrics::make_pdu<nvme::tcp::CapsuleResp>(PduType::capsule_resp);
  response.cqe.dw0 = dw0;
  response.cqe.dw1 = dw1;
  response.cqe.sqhd =
      flow_control_ && host_entries_ != 0 ? static_cast<std::uint16_t>(sq_head_ % host_entries_) : std::uint16_t{0};
  response.cqe.cid = cid;
  response.cqe.status_phase = static_cast<std::uint16_t>(status_field << 1);
  send_.header(response, 0, digests_);
}

void Connection::respond_with(std::uint16_t cid, std::span<const std::byte> data, std::uint32_t dw0) {
  auto head = fabrics::make_pdu<nvme::tcp::Data>(PduType::c2h_data);
  head.ch.flags = nvme::tcp::kFlagLastPdu;
  head.cccid = cid;
  head.datal = static_cast<std::uint32_t>(data.size());
  send_.header(head, data.size(), digests_, host_pda_);
  send_.copied(data);
  if (digests_.data) {
    const std::uint32_t digest = fabrics::crc32c(0, data.data(), data.size());
    send_.copied(std::as_bytes(std::span(&digest, 1)));
  }
  respond(cid, std::uint16_t{0}, dw0);
}

bool Connection::reap() {
  if (queue_ == nullptr || state_ != State::live || queue_->in_flight() == 0 || association_->resetting()) return false;
  bool worked = false;
  nvme::Cqe cqe;
  while (queue_->reap(cqe)) {
    worked = true;
    if (qid_ == 0 && association_->on_admin_completion(cqe)) continue;
    const std::uint32_t index = queue_->find(cqe.cid);
    FLASHMOB_CHECK(index != HostQueue::kNoSlot);
    complete(index, cqe);
  }
  if (worked) queue_->ring_head();
  return worked;
}

bool Connection::ring() {
  if (queue_ == nullptr || !queue_->ring_doorbell()) return false;
  end_turns(context_.now_ns());
  return true;
}

// The commands that are on the ring wait for the engine now. Whether their host reads answers did not hold them up.
void Connection::end_turns(std::uint64_t now_ns) {
  for (const std::uint32_t index : unrung_) {
    Slot& slot = queue_->slot(index);
    slot.delay_ns += delays_.ours_ns(slot.since_ns, delays_.of_host_ns(), now_ns);
  }
  unrung_.clear();
}

// The host owes us bytes, or does not take what it has asked for.
bool Connection::is_stalled() {
  const std::size_t unsent = send_.bytes() + stream_.unsent_bytes();
  if (unsent == 0 || unsent != unsent_bytes_) sent_ms_ = context_.now_ms;
  unsent_bytes_ = unsent;
  if (paused()) received_ms_ = asked_ms_ = context_.now_ms;  // it is we who do not read
  std::uint64_t since_ms = sent_ms_;
  if (awaited_ != 0) since_ms = std::min(since_ms, asked_ms_);
  if (reader_.is_inside_pdu()) since_ms = std::min(since_ms, received_ms_);
  return context_.now_ms - since_ms >= context_.options.stall_timeout_ms;
}

std::uint64_t Connection::idle_since_ms() const {
  if (state_ == State::await_ic || state_ == State::await_connect) return received_ms_;
  const bool idle = context_.now_ms - received_ms_ >= context_.options.idle_timeout_ms;
  if (discovery_) return idle && !discovery_->is_watched() ? received_ms_ : UINT64_MAX;
  return association_ == nullptr || qid_ != 0 ? UINT64_MAX : association_->idle_since_ms();
}

void Connection::advance() {
  if (state_ == State::closed) return;
  const bool is_late = context_.now_ms >= deadline_ms_ && !step_;
  if (is_stalled() || is_late || (discovery_ && discovery_->expired(context_.now_ms))) return close();
  if (fused_first_ != HostQueue::kNoSlot && context_.now_ms - fused_since_ms_ >= kFusedPatienceMs)
    release_fused_first();
  if (step_) advance_authentication();
  if (cc_write_) write_cc();
  // A controller that is not ready (it was shut down, say) has no queues left to delete.
  if (waiting_disconnect_ && !(association_->ready() && association_->is_ending(qid_))) {
    respond(*waiting_disconnect_, nvme::Status::success);
    waiting_disconnect_.reset();
    close_when_sent_ = true;
  }
  if (waiting_connect_) {
    const nvme::Sqe sqe = *waiting_connect_;
    waiting_connect_.reset();
    hold_ = false;
    connect(sqe);
  }
  if (stopped_ && !paused()) {
    delays_.waited_for_host(context_.now_ns());
    process();
  }
  if (stream_.has_unread()) on_readable();
}

bool Connection::flush() {
  if (state_ == State::closed) return false;
  const bool sends = !send_.empty() || stream_.unsent_bytes() != 0;
  if (sends) delays_.begin_sending(std::exchange(has_room, false));
  const auto result = send_.send(stream_, [this](std::uint32_t token) { sent(token); });
  if (sends) delays_.end_sending(result == fabrics::SendQueue::Result::blocked, context_.now_ns());
  if (result == fabrics::SendQueue::Result::closed) {
    close();
    return false;
  }
  if (result != fabrics::SendQueue::Result::sent || !close_when_sent_)
    return (stopped_ || stream_.has_unread()) && !paused();
  // The host closes when it has read everything; closing first could take our last words back.
  close_when_sent_ = false;
  state_ = State::draining;
  deadline_ms_ = context_.now_ms + kDrainTimeoutMs;
  stream_.end_sending();
  return false;
}

}  // namespace flashmob::transport
