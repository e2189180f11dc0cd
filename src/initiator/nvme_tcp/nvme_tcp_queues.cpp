// The control thread of NvmeTcpDevice: the admin commands that create and delete I/O queues. A submission queue is a
// connection; a completion queue is only a place in the host's memory.
#include <cstring>

#include "initiator/nvme_tcp/fabrics_channel.h"
#include "initiator/nvme_tcp/nvme_tcp_device.h"
#include "nvme/fabrics.h"
#include "nvme/identify.h"
#include "nvme/identify_controller.h"
#include "nvme/opcode.h"
#include "nvme/registers.h"

namespace flashmob::initiator {

using nvme::AdminOpcode, nvme::Status;

namespace {

constexpr std::uint64_t kPageMask = 4095;
constexpr std::uint32_t kSqeBytes = sizeof(nvme::Sqe);
constexpr std::uint16_t kOfcsDisconnect = 1u << 0;  // Identify Controller, OFCS: Disconnect is supported

}  // namespace

void NvmeTcpDevice::control_loop() {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(tasks_mutex_);
      tasks_changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (stop_) return;
      task = tasks_.front();
      tasks_.pop_front();
    }
    const std::lock_guard lock(mutex_);
    if (task.generation != generation_.load()) continue;
    const Status status = execute(task.sqe);
    admin_pump().post([this, task, status] {
      TcpQueue* queue = admin_pump().find(0);
      if (queue == nullptr || task.generation != generation_.load()) return;
      const bool retry = status == Status::transient_transport_error;
      queue->finish_kept(task.sqe.cid, retry ? nvme::to_field(status) : nvme::with_do_not_retry(status), 0);
    });
  }
}

NvmeTcpDevice::Answer NvmeTcpDevice::execute(const nvme::Sqe& sqe) {
  switch (static_cast<AdminOpcode>(sqe.opcode)) {
    case AdminOpcode::create_io_cq:
      return create_completion_queue(sqe);
    case AdminOpcode::create_io_sq:
      return create_submission_queue(sqe);
    case AdminOpcode::delete_io_cq:
      return delete_completion_queue(sqe);
    default:
      return delete_submission_queue(sqe);
  }
}

NvmeTcpDevice::Answer NvmeTcpDevice::create_completion_queue(const nvme::Sqe& sqe) {
  const nvme::CreateIoCq fields = nvme::decode_create_io_cq(sqe);
  if (fields.qid == 0 || completion_queues_.contains(fields.qid)) return Status::invalid_queue_identifier;
  if (fields.qsize == 0 || fields.qsize > nvme::decode_cap(cap_).mqes) return Status::invalid_queue_size;
  if (!fields.pc) return Status::invalid_field;
  if ((sqe.prp1 & kPageMask) != 0) return Status::prp_offset_invalid;
  if (fields.ien && fields.iv >= kInterruptVectors) return Status::invalid_interrupt_vector;
  std::uint32_t* const doorbell = doorbells() + 2 * fields.qid + 1;
  std::atomic_ref<std::uint32_t>(*doorbell).store(0);
  completion_queues_[fields.qid] = {
      .ring = std::make_shared<CompletionRing>(sqe.prp1, fields.qsize + 1u, doorbell,
                                               CompletionRing::Interrupt{.enabled = fields.ien, .vector = fields.iv}),
      .pump = pumps_[next_pump_++ % pumps_.size()].get()};
  return Status::success;
}

NvmeTcpDevice::Answer NvmeTcpDevice::delete_completion_queue(const nvme::Sqe& sqe) {
  const auto qid = static_cast<std::uint16_t>(sqe.cdw10);
  if (!completion_queues_.contains(qid)) return Status::invalid_queue_identifier;
  for (const auto& [sq, cq] : submission_queues_) {
    if (cq == qid) return Status::invalid_queue_deletion;
  }
  completion_queues_.erase(qid);
  return Status::success;
}

NvmeTcpDevice::Answer NvmeTcpDevice::create_submission_queue(const nvme::Sqe& sqe) {
  const nvme::CreateIoSq fields = nvme::decode_create_io_sq(sqe);
  if (fields.qid == 0 || submission_queues_.contains(fields.qid)) return Status::invalid_queue_identifier;
  if (!completion_queues_.contains(fields.cqid)) return Status::completion_queue_invalid;
  if (fields.qsize == 0 || fields.qsize > nvme::decode_cap(cap_).mqes) return Status::invalid_queue_size;
  if (!fields.pc) return Status::invalid_field;
  if ((sqe.prp1 & kPageMask) != 0) return Status::prp_offset_invalid;
  if (!identified_ && !identify_controller()) return Status::transient_transport_error;
  try {
    return connect_queue(fields, sqe.prp1);
  } catch (const FabricsError& error) {
    const std::lock_guard lock(failure_mutex_);
    if (!failed_.load()) failure_ = error.what();
    return Status::internal_error;
  }
}

NvmeTcpDevice::Answer NvmeTcpDevice::connect_queue(const nvme::CreateIoSq& fields, std::uint64_t iova) {
  FabricsChannel channel(options_, psk_ ? &*psk_ : nullptr);
  // Priorities mean the same on both sides: 0 is urgent.
  const auto attributes = static_cast<std::uint8_t>((fields.qprio & nvme::kConnectAttrPriorityMask) |
                                                    (can_disconnect_ ? nvme::kConnectAttrIndividualDelete : 0));
  // One entry more where there may be one: Disconnect must find room although the host has filled its queue.
  const std::uint16_t own_slots = fields.qsize < nvme::decode_cap(cap_).mqes ? 1 : 0;
  const auto size = static_cast<std::uint16_t>(fields.qsize + own_slots);
  channel.connect({.qid = fields.qid, .sqsize = size, .cattr = attributes, .kato_ms = 0}, options_.subsystem_nqn,
                  cntlid_);
  const TcpStreamLimits limits{.qid = fields.qid,
                               .entries = size + 1u,
                               .digests = channel.digests(),
                               .max_h2c_bytes = channel.max_h2c_bytes(),
                               .cpda = channel.cpda(),
                               .in_capsule_bytes = in_capsule_bytes_};
  const auto look_up = [this](std::uint32_t nsid) {
    admin_pump().post([this, nsid] {
      auto* admin = static_cast<TcpAdminQueue*>(admin_pump().find(0));
      if (admin != nullptr) admin->look_up(nsid, [this] { wake(); });
    });
  };
  auto queue = std::make_unique<TcpIoQueue>(channel.release(), limits, own_slots, sizes_, look_up);
  std::uint32_t* const doorbell = doorbells() + 2 * fields.qid;
  std::atomic_ref<std::uint32_t>(*doorbell).store(0);
  const Completions& completions = completion_queues_.at(fields.cqid);
  queue->attach(SubmissionRing(iova, fields.qsize + 1u, doorbell), completions.ring);
  completions.pump->run([&] { completions.pump->add(std::move(queue)); });
  submission_queues_[fields.qid] = fields.cqid;
  // The association may have been lost meanwhile; then this queue is lost with it.
  return failed_.load() ? Status::transient_transport_error : Status::success;
}

NvmeTcpDevice::Answer NvmeTcpDevice::delete_submission_queue(const nvme::Sqe& sqe) {
  const auto qid = static_cast<std::uint16_t>(sqe.cdw10);
  const auto at = submission_queues_.find(qid);
  if (at == submission_queues_.end()) return Status::invalid_queue_identifier;
  TcpPump& pump = *completion_queues_.at(at->second).pump;
  // Without Disconnect the connection must stay, or the controller would end the whole association.
  pump.run([&] { pump.find(qid)->begin_close(); });
  const bool closes = can_disconnect_ && !failed_.load() &&
                      run_own(qid, pump, nvme::fabrics_sqe(nvme::FabricsType::disconnect), 0).has_value();
  std::unique_ptr<TcpQueue> queue;
  pump.run([&] {
    TcpQueue* const found = pump.find(qid);
    found->end_commands(Status::aborted_sq_deletion);
    pump.poll_once(*found);
    queue = pump.remove(qid);
  });
  if (!closes) parked_.push_back(std::move(queue));
  submission_queues_.erase(at);
  return Status::success;
}

// What Identify Controller says of fabrics, once for each association.
bool NvmeTcpDevice::identify_controller() {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(AdminOpcode::identify);
  nvme::encode_identify({.cns = static_cast<std::uint8_t>(nvme::Cns::identify_controller)}, sqe);
  const auto result = run_admin(sqe, sizeof(nvme::IdentifyController));
  if (!result || result->entry.status_phase >> 1 != 0) return false;
  nvme::IdentifyController data;
  std::memcpy(&data, result->data.data(), sizeof data);
  // In units of 16 bytes, the command's 64 bytes included; data that does not follow it at once we do not send.
  const std::uint32_t capsule_bytes = data.ioccsz * 16;
  in_capsule_bytes_ = capsule_bytes > kSqeBytes && data.icdoff == 0 ? capsule_bytes - kSqeBytes : 0;
  can_disconnect_ = (data.ofcs & kOfcsDisconnect) != 0;
  identified_ = true;
  return true;
}

}  // namespace flashmob::initiator
