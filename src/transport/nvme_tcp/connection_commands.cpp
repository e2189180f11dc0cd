// Commands that the engine carries out, and their data: in the capsule, by R2T and H2CData, by C2HData (NVMe TCP
// transport 1.0c, clause 3.3.2).
#include <algorithm>
#include <cstring>

#include "fabrics/crc32c.h"
#include "memory/command_data.h"
#include "nvme/admin_command.h"
#include "nvme/io_commands.h"
#include "nvme/log_page.h"
#include "nvme/opcode.h"
#include "nvme/tcp.h"
#include "transport/nvme_tcp/connection.h"

namespace flashmob::transport {

using nvme::Status;
using nvme::tcp::FatalError;
using nvme::tcp::PduType;

namespace {

constexpr std::size_t kControlCapsuleBytes = 8192;  // of admin and fabrics commands (TCP transport 1.0c, 3.4.1)
constexpr std::uint8_t kDirectionMask = 0x03;
constexpr std::uint8_t kToController = 0x01;
constexpr std::uint8_t kToHost = 0x02;

// Commands that do not exist over fabrics, although our controller has them for us.
bool is_for_pcie(std::uint8_t opcode) {
  switch (static_cast<nvme::AdminOpcode>(opcode)) {
    case nvme::AdminOpcode::delete_io_sq:
    case nvme::AdminOpcode::create_io_sq:
    case nvme::AdminOpcode::delete_io_cq:
    case nvme::AdminOpcode::create_io_cq:
    case nvme::AdminOpcode::doorbell_buffer_config:
      return true;
    default:
      return false;
  }
}

// What a host may still want to know of a controller in the clear, when a key of TLS has been made for it: Linux
// identifies it, and reads two logs, before it comes again. None of that changes anything.
bool is_for_parting(const nvme::Sqe& sqe) {
  switch (static_cast<nvme::AdminOpcode>(sqe.opcode)) {
    case nvme::AdminOpcode::identify:
    case nvme::AdminOpcode::keep_alive:
      return true;
    case nvme::AdminOpcode::get_log_page: {
      const auto lid = static_cast<nvme::LogPage>(nvme::decode_get_log_page(sqe).lid);
      return lid == nvme::LogPage::commands_supported_and_effects || lid == nvme::LogPage::smart_health;
    }
    default:
      return false;
  }
}

std::uint8_t fuse_of(const nvme::Sqe& sqe) { return sqe.flags & nvme::kFlagFuseMask; }

}  // namespace

void Connection::begin_command(const nvme::Sqe& sqe) {
  const bool control = queue_ == nullptr || sqe.opcode == nvme::kOpcodeFabrics;
  const std::size_t limit = control || qid_ == 0 ? kControlCapsuleBytes : context_.options.in_capsule_bytes;
  if (reader_.data_bytes() > limit) return terminate({FatalError::data_limit_exceeded});
  if (control) {
    control_data_.resize(reader_.data_bytes());
    reader_.sink(control_data_.data());
    return;
  }
  current_ = queue_->take_slot();
  // More commands than the queue has entries: the host lost count.
  if (current_ == HostQueue::kNoSlot) return terminate({FatalError::sequence_error});
  queue_->slot(current_).sqe = sqe;
  reader_.sink(queue_->small_buffer(current_));
}

void Connection::finish_command() {
  ++sq_head_;
  const auto sqe = reader_.pdu<nvme::tcp::CapsuleCmd>().sqe;
  if (current_ == HostQueue::kNoSlot) {
    if (!reader_.data_digest_good()) return respond(sqe.cid, Status::transient_transport_error);
    if (sqe.opcode == nvme::kOpcodeFabrics) return fabrics_command(sqe);
    if (discovery_) return discovery_command(sqe);
    return respond(sqe.cid, Status::command_sequence_error);
  }
  const std::uint32_t index = current_;
  Slot& slot = queue_->slot(index);
  begin_turn(slot, delays_.arrived_ns());
  if (queue_->find(sqe.cid) != HostQueue::kNoSlot) {
    queue_->free_slot(index);
    return respond(sqe.cid, Status::command_id_conflict);
  }
  queue_->remember(sqe.cid, index);
  // The halves of a fused pair follow each other, and must do so on the ring, whenever their data comes.
  const bool second = fused_first_ != HostQueue::kNoSlot && fuse_of(sqe) == nvme::kFlagFuseSecond;
  if (second) {
    slot.partner = fused_first_;
    queue_->slot(fused_first_).partner = index;
    fused_first_ = HostQueue::kNoSlot;
  } else if (fused_first_ != HostQueue::kNoSlot) {
    release_fused_first();
  }
  if (fuse_of(sqe) == nvme::kFlagFuseFirst) {
    fused_first_ = index;
    fused_since_ms_ = context_.now_ms;
  }
  const Status status =
      reader_.data_digest_good() ? check_command(slot, reader_.data_bytes()) : Status::transient_transport_error;
  if (status != Status::success) return refuse(index, status);
  start_transfer(index);
}

Status Connection::check_command(Slot& slot, std::size_t capsule_bytes) {
  if (!may_talk() || (key_made_ && !is_for_parting(slot.sqe))) return nvme::kAuthenticationRequired;
  // PRPs are addresses in a memory that we do not see.
  const std::uint8_t psdt = slot.sqe.flags & nvme::kFlagPsdtMask;
  if (psdt != nvme::kFlagPsdtSglBufferMetadata && psdt != nvme::kFlagPsdtSglSegmentMetadata)
    return Status::invalid_field;
  if (!association_->ready()) return Status::command_sequence_error;
  if (qid_ == 0 && is_for_pcie(slot.sqe.opcode)) return Status::invalid_opcode;
  return check_data_pointer(slot, capsule_bytes);
}

Status Connection::check_data_pointer(Slot& slot, std::size_t capsule_bytes) {
  const nvme::SglDescriptor& sgl = slot.sqe.sgl1;
  const std::uint8_t direction = slot.sqe.opcode & kDirectionMask;
  if ((direction != kToController && direction != kToHost) || sgl.length_bytes == 0) return Status::success;
  slot.to_controller = direction == kToController;
  slot.to_host = direction == kToHost;
  const bool in_capsule = slot.to_controller && sgl.identifier == nvme::kSglInCapsule;
  if (!in_capsule && sgl.identifier != nvme::kSglTransportData) return Status::sgl_descriptor_type_invalid;
  if (sgl.length_bytes > context_.controller_config.max_transfer_bytes) return Status::invalid_field;
  if (slot.to_controller) slot.format = format_of(slot);
  if (in_capsule) {
    if (sgl.address > capsule_bytes) return Status::sgl_offset_invalid;
    if (sgl.length_bytes > capsule_bytes - sgl.address) return Status::data_sgl_length_invalid;
    slot.offset = static_cast<std::uint32_t>(sgl.address);
    slot.received = sgl.length_bytes;
  }
  slot.bytes = sgl.length_bytes;
  return Status::success;
}

void Connection::start_transfer(std::uint32_t index) {
  const bool large = queue_->slot(index).bytes > queue_->small_bytes();
  // Nobody overtakes those who wait already, unless they wait for their own data to go.
  if (large && (!waiting_.empty() || queue_->allocate(index, context_.pool_exhausted) != FairShare::Answer::given)) {
    queue_->slot(index).state = SlotState::waiting;
    waiting_.push_back(index);
    ++context_.waiting_for_buffers;
    return;
  }
  have_buffers(index);
}

void Connection::serve_waiting() {
  while (!waiting_.empty()) {
    const std::uint32_t index = waiting_.front();
    const FairShare::Answer answer = queue_->allocate(index, context_.pool_exhausted);
    context_.pool_exhausted |= answer == FairShare::Answer::exhausted;
    if (answer != FairShare::Answer::given) return;
    waiting_.pop_front();
    --context_.waiting_for_buffers;
    have_buffers(index);
  }
}

// Whether a command's data is blocks, of which its namespace knows how long they are.
bool Connection::carries_blocks(const Slot& slot) const {
  if (qid_ == 0) return false;
  const nvme::Csi csi = association_->controller().attached_shape(slot.sqe.nsid).csi;
  const nvme::IoCommand* const command = nvme::find_io_command(csi, slot.sqe.opcode);
  return command != nullptr && command->data == nvme::IoData::blocks;
}

// What it was before the change where the namespace is not there: it may come back otherwise.
std::uint32_t Connection::format_of(const Slot& slot) const {
  const controller::Controller& controller = association_->controller();
  const std::uint32_t changes = controller.attachment_changes(slot.sqe.nsid);
  return controller.attached_shape(slot.sqe.nsid).block_bytes != 0 ? changes : changes - 1;
}

bool Connection::has_changed_format(const Slot& slot) const {
  return slot.format != association_->controller().attachment_changes(slot.sqe.nsid);
}

void Connection::have_buffers(std::uint32_t index) {
  Slot& slot = queue_->slot(index);
  if (slot.to_controller && slot.received != slot.bytes) {
    slot.state = SlotState::asking;
    auto request = fabrics::make_pdu<nvme::tcp::R2t>(PduType::r2t);
    request.cccid = slot.sqe.cid;
    request.ttag = static_cast<std::uint16_t>(index);
    request.r2tl = slot.bytes;
    send_.header(request, 0, digests_);
    send_.token(index);
    return;
  }
  if (slot.to_host) {
    // What the command does not fill shows zeroes instead of what another command of this host has left there.
    std::uint32_t filled = 0;
    if (carries_blocks(slot)) {
      slot.format = format_of(slot);
      const std::uint64_t wanted =
          memory::io_command_data(slot.sqe, association_->controller().attached_shape(slot.sqe.nsid)).bytes;
      filled = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, slot.bytes));
    }
    queue_->for_each_piece(index, filled, slot.bytes - filled,
                           [](std::byte* data, std::uint32_t bytes) { std::memset(data, 0, bytes); });
  }
  data_ready(index);
}

// Everything before the slot's token has been sent: its data, or the R2T that asks for it. The host's time to answer
// that begins now; before, it may have been busy with what it was sent earlier.
void Connection::sent(std::uint32_t token) {
  if (token == kAnswer) return delays_.answered(context_.now_ns());
  const std::uint32_t index = token;
  Slot& slot = queue_->slot(index);
  if (slot.state != SlotState::asking) return queue_->free_slot(index);
  slot.state = SlotState::receiving;
  slot.delay_ns += delays_.ours_ns(slot.since_ns, slot.of_host_ns, context_.now_ns());
  if (awaited_++ == 0) asked_ms_ = context_.now_ms;
}

void Connection::begin_h2c_data() {
  const auto pdu = reader_.pdu<nvme::tcp::Data>();
  const std::uint32_t index = pdu.ttag;
  if (index >= queue_->slots() || queue_->slot(index).state != SlotState::receiving)
    return terminate({FatalError::invalid_header_field, offsetof(nvme::tcp::Data, ttag)});
  const Slot& slot = queue_->slot(index);
  if (slot.sqe.cid != pdu.cccid) return terminate({FatalError::invalid_header_field, offsetof(nvme::tcp::Data, cccid)});
  if (pdu.datal == 0) return terminate({FatalError::invalid_header_field, offsetof(nvme::tcp::Data, datal)});
  if (pdu.datal > context_.options.max_h2c_data_bytes) return terminate({FatalError::data_limit_exceeded});
  // Data comes in order, and all of it is what the one R2T of the command asked for.
  if (pdu.datao != slot.received || pdu.datal > slot.bytes - slot.received)
    return terminate({FatalError::data_out_of_range});
  const bool last = (pdu.ch.flags & nvme::tcp::kFlagLastPdu) != 0;
  if (last != (pdu.datal == slot.bytes - slot.received))
    return terminate({FatalError::invalid_header_field, offsetof(nvme::tcp::CommonHeader, flags)});
  current_ = index;
  pieces_.clear();
  queue_->for_each_piece(index, pdu.datao, pdu.datal,
                         [this](std::byte* data, std::uint32_t bytes) { pieces_.push_back({data, bytes}); });
  reader_.sink(pieces_);
}

void Connection::finish_h2c_data() {
  const std::uint32_t index = current_;
  Slot& slot = queue_->slot(index);
  slot.received += static_cast<std::uint32_t>(reader_.data_bytes());
  asked_ms_ = context_.now_ms;
  slot.digest_error |= !reader_.data_digest_good();
  if (slot.received != slot.bytes) return;
  --awaited_;
  begin_turn(slot, delays_.arrived_ns());
  if (slot.digest_error) return refuse(index, Status::transient_transport_error);
  if (key_made_ && !is_for_parting(slot.sqe)) return refuse(index, nvme::kAuthenticationRequired);
  // Its data is so and so many blocks of a length that the namespace no longer has. One that is gone is for the engine
  // to refuse, which knows whether it comes back.
  const bool exists = association_->controller().attached_shape(slot.sqe.nsid).block_bytes != 0;
  if (exists && carries_blocks(slot) && has_changed_format(slot)) return refuse(index, Status::format_in_progress);
  data_ready(index);
}

// The command has everything it needs.
void Connection::data_ready(std::uint32_t index) {
  Slot& slot = queue_->slot(index);
  slot.state = SlotState::ready;
  if (index == fused_first_) return;
  if (slot.partner == HostQueue::kNoSlot) return submit(index);
  const std::uint32_t partner = slot.partner;
  if (queue_->slot(partner).state != SlotState::ready) return;
  // The one that came first has waited for its host.
  begin_turn(queue_->slot(partner), slot.since_ns);
  const bool first = fuse_of(slot.sqe) == nvme::kFlagFuseFirst;
  submit(first ? index : partner);
  submit(first ? partner : index);
}

void Connection::release_fused_first() {
  const std::uint32_t index = fused_first_;
  fused_first_ = HostQueue::kNoSlot;
  if (queue_->slot(index).state != SlotState::ready) return;
  begin_turn(queue_->slot(index), context_.now_ns());
  submit(index);
}

void Connection::submit(std::uint32_t index) {
  queue_->submit(index);
  unrung_.push_back(index);
}

// From here on the command waits for us.
void Connection::begin_turn(Slot& slot, std::uint64_t now_ns) {
  slot.since_ns = now_ns;
  slot.of_host_ns = delays_.of_host_ns();
}

// Answers a command that never reached the engine.
void Connection::refuse(std::uint32_t index, Status status) {
  Slot& slot = queue_->slot(index);
  if (index == fused_first_) fused_first_ = HostQueue::kNoSlot;
  const std::uint32_t partner = slot.partner;
  queue_->forget(slot.sqe.cid);
  respond(slot.sqe.cid, status);
  queue_->free_slot(index);
  if (partner == HostQueue::kNoSlot) return;
  // The other half is the engine's to fail.
  queue_->slot(partner).partner = HostQueue::kNoSlot;
  if (queue_->slot(partner).state == SlotState::ready) submit(partner);
}

void Connection::complete(std::uint32_t index, const nvme::Cqe& cqe) {
  Slot& slot = queue_->slot(index);
  auto status_field = static_cast<std::uint16_t>(cqe.status_phase >> 1);
  // Blocks were perhaps of another size when the command was carried out than when its buffer was made or its data
  // asked for: what it has moved is not known, and the host may ask again.
  if (slot.bytes != 0 && status_field == 0 && carries_blocks(slot) && has_changed_format(slot))
    status_field = nvme::to_field(Status::format_in_progress);
  queue_->forget(slot.sqe.cid);
  if (qid_ != 0) delays_.answer(slot.delay_ns);
  if (!slot.to_host || status_field != 0) {
    respond(slot.sqe.cid, status_field, cqe.dw0, cqe.dw1);
    if (qid_ != 0) send_.token(kAnswer);
    queue_->free_slot(index);
    return;
  }
  // Without SQ flow control there is nothing that the response would add to data that came.
  const bool success = !flow_control_ && cqe.dw0 == 0 && cqe.dw1 == 0;
  slot.state = SlotState::answered;
  auto head = fabrics::make_pdu<nvme::tcp::Data>(PduType::c2h_data);
  head.ch.flags = static_cast<std::uint8_t>(nvme::tcp::kFlagLastPdu | (success ? nvme::tcp::kFlagSuccess : 0));
  head.cccid = slot.sqe.cid;
  head.datal = slot.bytes;
  send_.header(head, slot.bytes, digests_, host_pda_);
  std::uint32_t digest = 0;
  queue_->for_each_piece(index, 0, slot.bytes, [&](const std::byte* data, std::uint32_t bytes) {
    send_.in_place(data, bytes);
    if (digests_.data) digest = fabrics::crc32c(digest, data, bytes);
  });
  if (digests_.data) send_.copied(std::as_bytes(std::span(&digest, 1)));
  send_.token(index);
  if (!success) respond(slot.sqe.cid, status_field, cqe.dw0, cqe.dw1);
  if (qid_ != 0) send_.token(kAnswer);
}

}  // namespace flashmob::transport
