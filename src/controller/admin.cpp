// The admin command dispatcher, and the small commands: Abort, Asynchronous Event Request, Keep Alive, Doorbell Buffer
// Config (NVMe Base 2.0c, chapter 5).
#include "base/check.h"
#include "controller/controller.h"
#include "nvme/opcode.h"

namespace flashmob::controller {

using nvme::AdminOpcode;
using nvme::Status;

void Controller::execute_admin(const nvme::Sqe& sqe, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (state() != ControllerState::ready) return;  // fetched before a reset or shutdown that has begun since
  if (looks_at_namespaces(sqe) && subsystem_.changes().postpone(*this, sqe)) return;
  reader_.enter();
  const AdminResult result = dispatch(sqe);
  reader_.leave();
  if (!result.deferred) complete(sqe.cid, sqe.nsid, result);
  deliver_events();
}

// What would show, or change, the half of a change that a disk keeps waiting.
bool Controller::looks_at_namespaces(const nvme::Sqe& sqe) const {
  switch (static_cast<AdminOpcode>(sqe.opcode)) {
    case AdminOpcode::identify:
    case AdminOpcode::format_nvm:
    case AdminOpcode::namespace_management:
    case AdminOpcode::namespace_attachment:
      return true;
    case AdminOpcode::set_features:
    case AdminOpcode::get_features: {
      const auto capabilities = features_.capabilities(nvme::feature_id(sqe.cdw10));
      return capabilities && capabilities->namespace_specific;
    }
    default:
      return false;
  }
}

AdminResult Controller::dispatch(const nvme::Sqe& sqe) {
  // Admin commands here are never fused, and on PCI Express their data pointer is always PRPs (4.1.1). A fabrics door
  // describes its own buffers, which may be in many pieces.
  const std::uint8_t refused = role_.fabrics ? nvme::kFlagFuseMask : nvme::kFlagFuseMask | nvme::kFlagPsdtMask;
  if ((sqe.flags & refused) != 0) return fail(Status::invalid_field, kAtFlags);
  const auto opcode = static_cast<AdminOpcode>(sqe.opcode);
  if (!rights().may_send(opcode)) return fail(Status::invalid_opcode, location(0));
  switch (opcode) {
    case AdminOpcode::delete_io_sq:
      return delete_io_sq(sqe);
    case AdminOpcode::create_io_sq:
      return create_io_sq(sqe);
    case AdminOpcode::get_log_page:
      return get_log_page(sqe);
    case AdminOpcode::delete_io_cq:
      return delete_io_cq(sqe);
    case AdminOpcode::create_io_cq:
      return create_io_cq(sqe);
    case AdminOpcode::identify:
      return identify(sqe);
    case AdminOpcode::abort:
      return abort(sqe);
    case AdminOpcode::set_features:
      return set_features(sqe);
    case AdminOpcode::get_features:
      return get_features(sqe);
    case AdminOpcode::async_event_request:
      return async_event_request(sqe);
    case AdminOpcode::namespace_management:
      return namespace_management(sqe);
    case AdminOpcode::namespace_attachment:
      return namespace_attachment(sqe);
    case AdminOpcode::keep_alive:
      restart_keep_alive();
      return succeed();
    case AdminOpcode::directive_send:
      return directive_send(sqe);
    case AdminOpcode::directive_receive:
      return directive_receive(sqe);
    case AdminOpcode::doorbell_buffer_config:
      return doorbell_buffer_config(sqe);
    case AdminOpcode::format_nvm:
      return format_nvm(sqe);
  }
  return fail(Status::invalid_opcode, location(0));
}

void Controller::complete(std::uint16_t cid, std::uint32_t nsid, const AdminResult& result) {
  std::uint16_t field = 0;
  if (result.status != Status::success) {
    field = record_error_at(0, cid, result.status, nsid, 0, result.error_location);
  }
  host_.complete_admin(*this, cid, field, result.dw0);
}

void Controller::start(const QueueRequest& request, const PendingOp& pending) {
  pending_.emplace(request.ticket, pending);
  if (request.op == QueueOp::create_cq || request.op == QueueOp::create_sq) engine_has_queues_ = true;
  host_.request(*this, request);
}

void Controller::on_queue_reply(const QueueReply& reply) {
  if (reply.ticket == teardown_ticket_) {
    on_torn_down();
    return;
  }
  const auto found = pending_.find(reply.ticket);
  if (found == pending_.end()) return;  // asked before a reset
  const PendingOp op = found->second;
  pending_.erase(found);
  if (op.enabling) {
    on_admin_queue_created(op, reply.status);
  } else if (op.op == QueueOp::abort_command) {
    --aborts_outstanding_;
    complete(op.cid, 0, succeed(reply.aborted ? 0 : nvme::kAbortNotDone));
  } else {
    on_io_queue_reply(op, reply);
  }
}

// 5.1. A command that is not found is not an error: it may have completed in the meantime, with its queue.
AdminResult Controller::abort(const nvme::Sqe& sqe) {
  const nvme::Abort target = nvme::decode_abort(sqe);
  if (target.sqid == 0) {
    // Of the admin commands only event requests wait long enough to be aborted.
    if (!events_.abort_request(target.cid)) return succeed(nvme::kAbortNotDone);
    complete(target.cid, 0, fail(Status::abort_requested));
    return succeed();
  }
  if (!queues_.sq_exists(target.sqid)) return succeed(nvme::kAbortNotDone);
  if (aborts_outstanding_ >= config_.abort_limit) return fail(Status::abort_limit_exceeded);
  ++aborts_outstanding_;
  QueueRequest request{.op = QueueOp::abort_command, .ticket = next_ticket_++};
  request.sq.sqid = target.sqid;
  request.cid = target.cid;
  start(request, {QueueOp::abort_command, false, sqe.cid, target.sqid});
  return later();
}

AdminResult Controller::async_event_request(const nvme::Sqe& sqe) {
  if (!events_.add_request(sqe.cid)) return fail(Status::async_event_limit_exceeded);
  return later();
}

void Controller::deliver_events() {
  const std::uint32_t configuration = features_.current(nvme::Feature::async_event_configuration);
  while (const auto delivery = events_.next(configuration)) {
    host_.complete_admin(*this, delivery->cid, 0, nvme::encode_async_event(delivery->event));
  }
}

// 5.10: shadow doorbells in PRP1, EventIdx values in PRP2, one page each. An address that cannot be used is an invalid
// field, not a failed transfer.
AdminResult Controller::doorbell_buffer_config(const nvme::Sqe& sqe) {
  constexpr std::uint64_t kPageBytes = 4096;
  const auto usable = [&](std::uint64_t iova) {
    return iova != 0 && iova % kPageBytes == 0 && reader_.translate(iova, kPageBytes, true) != nullptr;
  };
  if (!doorbell_buffers_offered_.load(std::memory_order_relaxed)) return fail(Status::invalid_opcode);
  if (!usable(sqe.prp1)) return fail(Status::invalid_field, kAtPrp1);
  if (!usable(sqe.prp2)) return fail(Status::invalid_field, kAtPrp2);
  const Status status = host_.set_shadow_doorbells(*this, sqe.prp1, sqe.prp2);
  if (status != Status::success) return fail(status);
  shadow_doorbells_ = true;
  return succeed();
}

void Controller::restart_keep_alive() {
  const std::uint64_t timeout_ms = features_.current(nvme::Feature::keep_alive_timer);
  is_keep_alive_late_ = false;
  keep_alive_deadline_ns_ = timeout_ms == 0 ? UINT64_MAX : now_ns_ + timeout_ms * 1'000'000;
}

nvme::Status Controller::to_guest(const nvme::Sqe& sqe, std::span<const std::byte> data) {
  return memory::copy_to_host(reader_, sqe, data, io_limits_.data_pointer, segments_);
}

nvme::Status Controller::from_guest(const nvme::Sqe& sqe, std::span<std::byte> data) {
  return memory::copy_from_host(reader_, sqe, data, io_limits_.data_pointer, segments_);
}

}  // namespace flashmob::controller
