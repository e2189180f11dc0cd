// Commands that the target answers itself: Connect, Property Get and Set, authentication, Disconnect, and everything
// that goes to the discovery controller (NVMe Base 2.0c, chapter 6).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.h"
#include "nvme/registers.h"
#include "transport/nvme_tcp/connection.h"
#include "transport/nvme_tcp/target_directory.h"

namespace flashmob::transport {

using nvme::FabricsType;
using nvme::Status;

namespace {

constexpr std::uint32_t kMaxAdminEntries = 1024;
constexpr std::uint32_t kMaxAuthenticationBytes = 4096;

// A zero-terminated name of legal length in UTF-8, perhaps empty; nothing if it is none.
std::optional<std::string> nqn_of(const char (&field)[nvme::kNqnBytes]) {
  const std::size_t length = ::strnlen(field, nvme::kNqnBytes);
  if (length > nvme::kNqnMaxLength || !is_plain_text({field, length})) return std::nullopt;
  return std::string(field, length);
}

// Bytes of a property that hosts may read over fabrics; 0: there is none at this offset.
unsigned property_bytes(std::uint32_t offset) {
  switch (offset) {
    case nvme::kRegCap:
      return 8;
    case nvme::kRegVs:
    case nvme::kRegCc:
    case nvme::kRegCsts:
    case nvme::kRegNssr:
    case nvme::kRegCrto:
      return 4;
    default:
      return 0;
  }
}

bool may_set(std::uint32_t offset) {
  return offset == nvme::kRegCc || offset == nvme::kRegCsts || offset == nvme::kRegNssr;
}

}  // namespace

std::optional<std::span<const std::byte>> Connection::capsule_data(const nvme::Sqe& sqe) const {
  const nvme::SglDescriptor& sgl = sqe.sgl1;
  if (sgl.identifier != nvme::kSglInCapsule || sgl.address > control_data_.size() ||
      sgl.length_bytes > control_data_.size() - sgl.address)
    return std::nullopt;
  return std::span(control_data_).subspan(sgl.address, sgl.length_bytes);
}

void Connection::fabrics_command(const nvme::Sqe& sqe) {
  const FabricsType type = nvme::fabrics_type(sqe);
  if (type == FabricsType::connect) return connect(sqe);
  if (state_ != State::live) return respond(sqe.cid, Status::command_sequence_error);
  if (key_made_ && type != FabricsType::property_get && type != FabricsType::property_set &&
      type != FabricsType::disconnect)
    return respond(sqe.cid, nvme::kAuthenticationRequired);
  if (type == FabricsType::authentication_send) return authentication_send(sqe);
  if (type == FabricsType::authentication_receive) return authentication_receive(sqe);
  if (!may_talk()) return respond(sqe.cid, nvme::kAuthenticationRequired);
  switch (type) {
    case FabricsType::property_get:
      return property(sqe, false);
    case FabricsType::property_set:
      return property(sqe, true);
    case FabricsType::disconnect:
      if ((sqe.cdw10 & 0xFFFF) != 0) return respond(sqe.cid, nvme::kConnectIncompatibleFormat);
      if (qid_ == 0) return respond(sqe.cid, nvme::kInvalidQueueType);
      return disconnect(sqe.cid);
    default:
      return respond(sqe.cid, Status::invalid_opcode);
  }
}

// The answer says that the queue is gone, so that what its host does next (Set Features, the same queue again) finds it
// gone. A host that disconnects in the midst of its own commands is answered at once and the queue dropped afterwards.
void Connection::disconnect(std::uint16_t cid) {
  hold_ = true;
  if (queue_->in_flight() == 0 && send_.empty() && waiting_.empty() && fused_first_ == HostQueue::kNoSlot) {
    queue_ = nullptr;
    owns_queue_ = false;
    association_->drop_queue(qid_);
    waiting_disconnect_ = cid;
    return;
  }
  respond(cid, Status::success);
  close_when_sent_ = true;
}

void Connection::connect(const nvme::Sqe& sqe) {
  const auto invalid = [&](std::uint32_t where) { respond(sqe.cid, nvme::kConnectInvalidParameters, where); };
  if (state_ != State::await_connect) return respond(sqe.cid, Status::command_sequence_error);
  const auto bytes = capsule_data(sqe);
  if (!bytes) return respond(sqe.cid, Status::sgl_descriptor_type_invalid);
  nvme::ConnectData data;
  if (bytes->size() != sizeof(data)) return respond(sqe.cid, Status::data_sgl_length_invalid);
  std::memcpy(&data, bytes->data(), sizeof(data));
  const nvme::Connect fields = nvme::decode_connect(sqe);
  if (fields.recfmt != 0) return respond(sqe.cid, nvme::kConnectIncompatibleFormat);
  const auto host_nqn = nqn_of(data.hostnqn);
  const auto subsystem_nqn = nqn_of(data.subnqn);
  if (!subsystem_nqn || subsystem_nqn->empty())
    return invalid(nvme::connect_invalid_in_data(offsetof(nvme::ConnectData, subnqn)));
  // SPDK's perf gives no name. A host without one is on no list, so it may attach where there is none.
  if (!host_nqn || (host_nqn->empty() && !context_.options.hosts.empty()))
    return invalid(nvme::connect_invalid_in_data(offsetof(nvme::ConnectData, hostnqn)));
  if (fields.sqsize == 0) return invalid(nvme::connect_invalid_in_sqe(nvme::kConnectAtSqsize));
  const bool discovery = *subsystem_nqn == nvme::kDiscoveryNqn;
  if (!discovery && *subsystem_nqn != context_.subsystem.config().nqn)
    return invalid(nvme::connect_invalid_in_data(offsetof(nvme::ConnectData, subnqn)));
  if (!discovery && !context_.admits(*host_nqn)) return respond(sqe.cid, nvme::kConnectInvalidHost);
  if (!is_secure_enough({*host_nqn, *subsystem_nqn})) return respond(sqe.cid, nvme::kAuthenticationRequired);
  flow_control_ = (fields.cattr & nvme::kConnectAttrNoFlowControl) == 0;
  if (fields.qid != 0) {
    if (discovery) return invalid(nvme::connect_invalid_in_sqe(nvme::kConnectAtQid));
    return connect_io(sqe, fields, *host_nqn);
  }
  if (fields.sqsize >= kMaxAdminEntries) return invalid(nvme::connect_invalid_in_sqe(nvme::kConnectAtSqsize));
  if (data.cntlid != nvme::kCntlidDynamic)
    return invalid(nvme::connect_invalid_in_data(offsetof(nvme::ConnectData, cntlid)));
  if (!discovery) return connect_admin(sqe, fields, *host_nqn);
  host_entries_ = fields.sqsize + 1u;
  std::uint64_t generation = 0;
  auto records = TargetDirectory::of_process().visible(context_, own_address(), *host_nqn, generation);
  discovery_ = std::make_unique<DiscoveryController>(std::move(records), generation, fields.kato_ms);
  accept_connect(sqe.cid, DiscoveryController::kCntlid);
}

// By TLS a host is who its key says, for the subsystem that its key is for. What it may ask without TLS is where to
// find SSDs.
bool Connection::is_secure_enough(const fabrics::PskParties& said) const {
  if (stream_.tls() != nullptr) {
    const fabrics::PskIdentity& identity = stream_.tls()->identity();
    // A key that another has taken the place of since the handshake opens nothing any more.
    return identity.parties == said && (!identity.generated || context_.generated_keys.find(identity));
  }
  return said.subsystem_nqn == nvme::kDiscoveryNqn || !context_.must_be_secure(said.host_nqn);
}

// Its host has proved with DH-HMAC-CHAP who it is, and with this key that it is the same host.
bool Connection::has_generated_key() const { return stream_.tls() != nullptr && stream_.tls()->identity().generated; }

// What the queues of an association have in common: no TLS, TLS by configured keys, or by one generated key.
std::string Connection::channel() const {
  if (stream_.tls() == nullptr) return {};
  return has_generated_key() ? stream_.tls()->identity().digest : "retained";
}

// Where this host has reached us, which is where it will reach the subsystem: we may listen on every address.
DiscoveryAddress Connection::own_address() const {
  DiscoveryAddress own{context_.options.address, context_.port, context_.ipv6};
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (::getsockname(stream_.socket(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return own;
  const void* const bytes = address.ss_family == AF_INET6
                                ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr)
                                : static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(&address)->sin_addr);
  const bool internet = address.ss_family == AF_INET || address.ss_family == AF_INET6;
  if (!internet || ::inet_ntop(address.ss_family, bytes, text.data(), text.size()) == nullptr) return own;
  own.address = text.data();
  own.ipv6 = address.ss_family == AF_INET6;
  return own;
}

void Connection::connect_admin(const nvme::Sqe& sqe, const nvme::Connect& fields, const std::string& host_nqn) {
  std::array<std::uint8_t, 16> host_id;
  std::memcpy(host_id.data(), capsule_data(sqe)->data(), host_id.size());
  try {
    associations_.push_back(
        std::make_unique<Association>(context_, peer_, host_nqn, host_id, fields.sqsize + 1u, fields.kato_ms));
  } catch (const std::exception&) {
    return make_room_for(sqe);
  }
  association_ = associations_.back().get();
  queue_ = &association_->admin();
  host_entries_ = fields.sqsize + 1u;
  accept_connect(sqe.cid, association_->controller().cntlid());
  association_->set_channel(channel());
  association_->set_authenticated(may_talk());
}

void Connection::connect_io(const nvme::Sqe& sqe, const nvme::Connect& fields, const std::string& host_nqn) {
  const auto invalid = [&](std::uint32_t where) { respond(sqe.cid, nvme::kConnectInvalidParameters, where); };
  nvme::ConnectData data;
  std::memcpy(&data, capsule_data(sqe)->data(), sizeof(data));
  const auto found = std::find_if(associations_.begin(), associations_.end(), [&](const auto& held) {
    return held->controller().cntlid() == data.cntlid && !held->dead();
  });
  if (found == associations_.end()) return invalid(nvme::connect_invalid_in_data(offsetof(nvme::ConnectData, cntlid)));
  Association& association = **found;
  association.touch();
  if (association.host_nqn() != host_nqn)
    return invalid(nvme::connect_invalid_in_data(offsetof(nvme::ConnectData, hostnqn)));
  if (!std::equal(association.host_id().begin(), association.host_id().end(), data.hostid))
    return invalid(nvme::connect_invalid_in_data(offsetof(nvme::ConnectData, hostid)));
  if (!association.authenticated() || association.channel() != channel())
    return respond(sqe.cid, nvme::kAuthenticationRequired);
  if (!association.ready()) return respond(sqe.cid, Status::command_sequence_error);
  if (association.is_ending(fields.qid)) {
    // A host that has just disconnected this queue, and wants it again.
    waiting_connect_ = sqe;
    hold_ = true;
    return;
  }
  if (association.has_queue(fields.qid)) return respond(sqe.cid, Status::command_sequence_error);
  if (fields.qid > context_.controller_config.max_queue_pairs)
    return invalid(nvme::connect_invalid_in_sqe(nvme::kConnectAtQid));
  if (fields.sqsize >= context_.controller_config.max_queue_entries)
    return invalid(nvme::connect_invalid_in_sqe(nvme::kConnectAtSqsize));
  const std::uint32_t entries = fields.sqsize + 1u;
  std::unique_ptr<HostQueue> wanted;
  try {
    wanted = association.make_queue(fields.qid, entries);
  } catch (const std::exception&) {
    return make_room_for(sqe);
  }
  association_ = &association;
  qid_ = fields.qid;
  host_entries_ = entries;
  hold_ = true;
  association.create_queue(std::move(wanted), fields.cattr & nvme::kConnectAttrPriorityMask,
                           [weak = weak_from_this(), cid = sqe.cid](HostQueue* queue, std::uint16_t status_field) {
                             const auto self = weak.lock();
                             if (!self || self->closed()) return;
                             self->hold_ = false;
                             if (queue != nullptr) {
                               self->queue_ = queue;
                               self->accept_connect(cid, self->association_->controller().cntlid());
                               return;
                             }
                             self->association_ = nullptr;
                             self->qid_ = 0;
                             self->host_entries_ = 0;
                             // The controller has not granted this identifier (Set Features, Number of Queues).
                             if (nvme::status_of(status_field) == Status::invalid_queue_identifier)
                               self->respond(cid, nvme::kConnectInvalidParameters,
                                             nvme::connect_invalid_in_sqe(nvme::kConnectAtQid));
                             else
                               self->respond(cid, status_field);
                           });
}

// No room for another controller or queue: Connect is looked at again when somebody who can be missed is gone.
// Otherwise room may still come, so the host is not told to give up.
void Connection::make_room_for(const nvme::Sqe& connect) {
  if (!make_room_in_memory(associations_, *peer_))
    return respond(connect.cid, nvme::to_field(nvme::kConnectControllerBusy));
  waiting_connect_ = connect;
  hold_ = true;
}

void Connection::accept_connect(std::uint16_t cid, std::uint16_t cntlid) {
  state_ = State::live;
  deadline_ms_ = UINT64_MAX;
  std::uint32_t dw0 = cntlid;
  if (association_ != nullptr) {
    const NvmeTcpHost* const host = context_.find_host(association_->host_nqn());
    if (host != nullptr && !host->dhchap_secret.empty()) {
      fabrics::DhchapParties parties{host->nqn, context_.subsystem.config().nqn,
                                     fabrics::DhchapSecret(host->dhchap_secret), std::nullopt};
      if (!host->dhchap_controller_secret.empty())
        parties.controller_secret = fabrics::DhchapSecret(host->dhchap_controller_secret);
      authentication_ = std::make_shared<fabrics::DhchapController>(std::move(parties), offered_channel());
      must_authenticate_ = !has_generated_key();
    }
    if (must_authenticate_) {
      dw0 |= nvme::kConnectAuthRequired;
      deadline_ms_ = context_.now_ms + context_.options.authentication_timeout_ms;
    }
  }
  respond(cid, std::uint16_t{0}, dw0);
}

// What an authentication on this connection may make besides: a key for the next one, or for later ones of this
// association.
nvme::AuthSecureChannel Connection::offered_channel() const {
  if (qid_ != 0) return nvme::AuthSecureChannel::none;
  if (stream_.tls() == nullptr) return nvme::AuthSecureChannel::new_tls_psk;
  return has_generated_key() ? nvme::AuthSecureChannel::replace_tls_psk : nvme::AuthSecureChannel::none;
}

// Without TLS, the association has done what it was for: its host connects again, and has no I/O queue here. One that
// has got itself I/O queues while it authenticated would go on in the clear with them.
void Connection::keep_key(fabrics::TlsPsk psk) {
  const bool replaces = has_generated_key();
  if (!replaces) {
    if (association_->has_queues()) return close();
    key_made_ = true;
    deadline_ms_ = context_.now_ms + context_.options.key_timeout_ms;
  }
  const std::string digest = psk.identity.digest;
  if (replaces)
    context_.generated_keys.replace(association_->channel(), std::move(psk));
  else
    context_.generated_keys.put(std::move(psk));
  association_->set_channel(replaces ? digest : "over");
}

void Connection::property(const nvme::Sqe& sqe, bool set) {
  if (qid_ != 0) return respond(sqe.cid, Status::invalid_opcode);
  const nvme::Property fields = nvme::decode_property(sqe);
  const unsigned bytes = property_bytes(fields.offset);
  if (bytes == 0 || (sqe.cdw10 & nvme::kPropertySizeMask) > 1 || fields.eight_bytes != (bytes == 8) ||
      (set && !may_set(fields.offset)))
    return respond(sqe.cid, Status::invalid_field);
  if (!set) {
    const std::uint64_t value = discovery_ ? discovery_->read_property(fields.offset)
                                           : association_->controller().read_register(fields.offset, bytes);
    return respond(sqe.cid, std::uint16_t{0}, static_cast<std::uint32_t>(value),
                   static_cast<std::uint32_t>(value >> 32));
  }
  // CAP.NSSRS: to this host there is no such property.
  if (fields.offset == nvme::kRegNssr && association_ != nullptr && !association_->controller().rights().may_manage())
    return respond(sqe.cid, Status::invalid_field);
  // In the clear, once TLS is on its way, a host shuts its own controller down and nobody else's.
  if (fields.offset == nvme::kRegNssr && key_made_) return respond(sqe.cid, nvme::kAuthenticationRequired);
  const auto value = static_cast<std::uint32_t>(fields.value);
  if (discovery_) {
    if (fields.offset == nvme::kRegCc) discovery_->write_cc(value, context_.now_ms);
    return respond(sqe.cid, Status::success);
  }
  if (fields.offset == nvme::kRegCc) {
    // It may reset the controller: nothing may then be on its way out of the queue's buffers.
    cc_write_ = PropertyWrite{sqe.cid, value, false};
    hold_ = true;
    return;
  }
  association_->write_property(fields.offset, false, value);
  respond(sqe.cid, Status::success);
}

void Connection::write_cc() {
  if (!cc_write_->written) {
    if (!send_.empty()) return;
    cc_write_->written = true;
    if (!association_->write_property(nvme::kRegCc, false, cc_write_->value)) {
      context_.waiting_for_buffers -= static_cast<std::uint32_t>(waiting_.size());
      waiting_.clear();
      awaited_ = 0;
      fused_first_ = HostQueue::kNoSlot;
    }
  }
  if (association_->resetting()) return;
  respond(cc_write_->cid, Status::success);
  cc_write_.reset();
  hold_ = false;
}

void Connection::authentication_send(const nvme::Sqe& sqe) {
  const nvme::AuthenticationFields fields = nvme::decode_authentication(sqe);
  if (!authentication_) return respond(sqe.cid, Status::command_sequence_error);
  const auto data = capsule_data(sqe);
  if (!data) return respond(sqe.cid, Status::sgl_descriptor_type_invalid);
  if (fields.secp != nvme::kSecurityProtocolNvme || fields.spsp0 != 1 || fields.spsp1 != 1 ||
      fields.length_bytes != data->size())
    return respond(sqe.cid, Status::invalid_field);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(data->data());
  fabrics::Bytes message(bytes, bytes + data->size());
  // I/O queues that are there already would stay in the clear.
  if (qid_ == 0 && stream_.tls() == nullptr)
    authentication_->allow(association_->has_queues() ? nvme::AuthSecureChannel::none : offered_channel());
  begin_authentication_step(sqe.cid, true, std::move(message), 0);
}

void Connection::authentication_receive(const nvme::Sqe& sqe) {
  const nvme::AuthenticationFields fields = nvme::decode_authentication(sqe);
  if (!authentication_) return respond(sqe.cid, Status::command_sequence_error);
  if (sqe.sgl1.identifier != nvme::kSglTransportData) return respond(sqe.cid, Status::sgl_descriptor_type_invalid);
  if (fields.secp != nvme::kSecurityProtocolNvme || fields.spsp0 != 1 || fields.spsp1 != 1 ||
      fields.length_bytes != sqe.sgl1.length_bytes || fields.length_bytes > kMaxAuthenticationBytes)
    return respond(sqe.cid, Status::invalid_field);
  begin_authentication_step(sqe.cid, false, {}, fields.length_bytes);
}

void Connection::begin_authentication_step(std::uint16_t cid, bool is_send, fabrics::Bytes message,
                                           std::size_t length_bytes) {
  step_ = std::make_shared<AuthenticationStep>();
  step_->controller = authentication_;
  step_->is_send = is_send;
  step_->message = std::move(message);
  step_->address = peer_.get();
  step_submitted_ = false;
  step_since_ms_ = context_.now_ms;
  step_cid_ = cid;
  step_bytes_ = length_bytes;
  hold_ = true;
  advance_authentication();
}

void Connection::advance_authentication() {
  if (!step_submitted_) {
    step_submitted_ = context_.authenticator == nullptr || context_.authenticator->submit(step_);
    if (context_.authenticator == nullptr) step_->run();
  }
  if (!step_submitted_ || !step_->done.load(std::memory_order_acquire)) return;
  const std::shared_ptr<AuthenticationStep> step = std::move(step_);
  if (step->failed) return close();
  // Its host has so much time for what is the host's to do: what we take ourselves, on a full machine perhaps long, is
  // no part of that.
  if (deadline_ms_ != UINT64_MAX) deadline_ms_ += context_.now_ms - step_since_ms_;
  hold_ = false;
  if (step->is_send) {
    respond(step_cid_, Status::success);
  } else if (step->message.size() > step_bytes_) {
    respond(step_cid_, Status::invalid_field);
  } else {
    step->message.resize(step_bytes_);
    respond_with(step_cid_, std::as_bytes(std::span(step->message)));
  }
  // Whatever it has proved before, and whether it asks for our last words or not.
  const bool is_refused = authentication_->refused();
  must_authenticate_ |= is_refused;
  if (may_talk())
    deadline_ms_ = UINT64_MAX;
  else if (deadline_ms_ == UINT64_MAX)
    deadline_ms_ = context_.now_ms + context_.options.authentication_timeout_ms;
  if (qid_ == 0) association_->set_authenticated(may_talk());
  if (qid_ == 0 && is_refused) association_->end_queues();
  if (auto psk = authentication_->take_psk()) keep_key(std::move(*psk));
  if (!authentication_->failed()) return;
  close_when_sent_ = true;
  hold_ = true;
}

void Connection::discovery_command(const nvme::Sqe& sqe) {
  const bool with_data = sqe.sgl1.identifier == nvme::kSglTransportData;
  const DiscoveryController::Answer answer =
      discovery_->execute(sqe, with_data ? sqe.sgl1.length_bytes : 0, context_.now_ms);
  if (answer.deferred) return;
  if (answer.status != Status::success || answer.data.empty())
    respond(sqe.cid, answer.status, answer.dw0);
  else
    respond_with(sqe.cid, answer.data, answer.dw0);
}

}  // namespace flashmob::transport
