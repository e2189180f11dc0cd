// Create and Delete I/O Submission and Completion Queue (NVMe Base 2.0c, 5.4 to 5.7).
//
// The engine works on its queues in other threads, so each operation passes through a state (creating, deleting) in
// which the identifier belongs neither to the old nor to a new queue.
#include "controller/controller.h"

namespace flashmob::controller {

using nvme::Status;
using State = QueueTable::State;

namespace {

constexpr std::uint64_t kPageOffset = 4096 - 1;
constexpr std::uint16_t kAtQsize = location(10, 16);
constexpr std::uint16_t kAtCdw11 = location(11);
constexpr std::uint16_t kAtCdw11High = location(11, 16);  // IV, CQID

void clear_doorbell(std::uint32_t* doorbell) {
  std::atomic_ref<std::uint32_t>(*doorbell).store(0, std::memory_order_release);
}

}  // namespace

AdminResult Controller::create_io_cq(const nvme::Sqe& sqe) {
  const nvme::CreateIoCq f = nvme::decode_create_io_cq(sqe);
  const nvme::Cc cc = nvme::decode_cc(cc_.load(std::memory_order_acquire));
  if (!queues_.cq_granted(f.qid) || queues_.cq(f.qid) != State::none) {
    return fail(Status::invalid_queue_identifier, kAtCdw10);
  }
  // 5.4: a host that did not set CC.IOCQES first is told so by this status, too.
  if (f.qsize == 0 || f.qsize >= config_.max_queue_entries || cc.iocqes != nvme::kIoCqEntryBytesLog2) {
    return fail(Status::invalid_queue_size, kAtQsize);
  }
  if (!f.pc) return fail(Status::invalid_field, kAtCdw11);  // CAP.CQR
  if ((sqe.prp1 & kPageOffset) != 0) return fail(Status::prp_offset_invalid, kAtPrp1);
  if (f.ien && f.iv >= config_.interrupt_vectors) return fail(Status::invalid_interrupt_vector, kAtCdw11High);
  clear_doorbell(&doorbells_[2 * f.qid + 1]);
  queues_.set_cq(f.qid, State::creating);
  QueueRequest request{.op = QueueOp::create_cq, .ticket = next_ticket_++};
  request.cq = {.cqid = f.qid, .entries = f.qsize + 1u, .iova = sqe.prp1, .interrupts_enabled = f.ien, .vector = f.iv};
  queues_.describe_cq(request.cq);
  start(request, {QueueOp::create_cq, false, sqe.cid, f.qid});
  return later();
}

AdminResult Controller::create_io_sq(const nvme::Sqe& sqe) {
  const nvme::CreateIoSq f = nvme::decode_create_io_sq(sqe);
  const nvme::Cc cc = nvme::decode_cc(cc_.load(std::memory_order_acquire));
  if (!queues_.sq_granted(f.qid) || queues_.sq(f.qid) != State::none) {
    return fail(Status::invalid_queue_identifier, kAtCdw10);
  }
  if (f.qsize == 0 || f.qsize >= config_.max_queue_entries || cc.iosqes != nvme::kIoSqEntryBytesLog2) {
    return fail(Status::invalid_queue_size, kAtQsize);
  }
  // 5.5: an identifier that no CQ can have is invalid; one that no CQ has makes the completion queue invalid.
  if (!queues_.cq_granted(f.cqid)) return fail(Status::invalid_queue_identifier, kAtCdw11High);
  if (queues_.cq(f.cqid) != State::ready) return fail(Status::completion_queue_invalid, kAtCdw11High);
  if (!f.pc) return fail(Status::invalid_field, kAtCdw11);
  if ((sqe.prp1 & kPageOffset) != 0) return fail(Status::prp_offset_invalid, kAtPrp1);
  clear_doorbell(&doorbells_[2 * f.qid]);
  queues_.set_sq(f.qid, State::creating);
  queues_.link(f.qid, f.cqid);
  QueueRequest request{.op = QueueOp::create_sq, .ticket = next_ticket_++};
  request.sq = {.sqid = f.qid,
                .cqid = f.cqid,
                .entries = f.qsize + 1u,
                .iova = sqe.prp1,
                .priority = static_cast<QueuePriority>(f.qprio)};
  start(request, {QueueOp::create_sq, false, sqe.cid, f.qid});
  return later();
}

AdminResult Controller::delete_io_cq(const nvme::Sqe& sqe) {
  const auto qid = static_cast<std::uint16_t>(sqe.cdw10);
  if (!queues_.cq_granted(qid) || queues_.cq(qid) != State::ready) {
    return fail(Status::invalid_queue_identifier, kAtCdw10);
  }
  if (queues_.cq_in_use(qid)) return fail(Status::invalid_queue_deletion, kAtCdw10);
  queues_.set_cq(qid, State::deleting);
  QueueRequest request{.op = QueueOp::delete_cq, .ticket = next_ticket_++};
  request.cq.cqid = qid;
  start(request, {QueueOp::delete_cq, false, sqe.cid, qid});
  return later();
}

AdminResult Controller::delete_io_sq(const nvme::Sqe& sqe) {
  const auto qid = static_cast<std::uint16_t>(sqe.cdw10);
  if (!queues_.sq_granted(qid) || queues_.sq(qid) != State::ready) {
    return fail(Status::invalid_queue_identifier, kAtCdw10);
  }
  queues_.set_sq(qid, State::deleting);
  QueueRequest request{.op = QueueOp::delete_sq, .ticket = next_ticket_++};
  request.sq.sqid = qid;
  start(request, {QueueOp::delete_sq, false, sqe.cid, qid});
  return later();
}

void Controller::on_io_queue_reply(const PendingOp& op, const QueueReply& reply) {
  const bool ok = reply.status == Status::success;
  const bool creates = op.op == QueueOp::create_cq || op.op == QueueOp::create_sq;
  const State after = ok == creates ? State::ready : State::none;
  if (op.op == QueueOp::create_cq || op.op == QueueOp::delete_cq) {
    queues_.set_cq(op.qid, after);
  } else {
    queues_.set_sq(op.qid, after);
    if (after == State::none) queues_.unlink(op.qid);
  }
  complete(op.cid, 0, ok ? succeed() : fail(reply.status, creates ? kAtPrp1 : kAtCdw10));
}

}  // namespace flashmob::controller
