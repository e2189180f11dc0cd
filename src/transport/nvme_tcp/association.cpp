#include "transport/nvme_tcp/association.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/check.h"
#include "nvme/admin_command.h"
#include "nvme/features.h"
#include "nvme/opcode.h"
#include "nvme/registers.h"
#include "transport/nvme_tcp/keep_alive.h"

namespace flashmob::transport {
namespace {

using controller::ControllerState;

// Commands of our own on the admin ring at the same time.
constexpr std::uint32_t kOperations = 16;
constexpr std::uint32_t kPageBytes = 4096;
// The engine stands still meanwhile.
constexpr std::size_t kDetachedTogether = 64;

nvme::Sqe admin_sqe(nvme::AdminOpcode opcode) {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  return sqe;
}

}  // namespace

Association::Association(TargetContext& context, std::shared_ptr<Peer> peer, const std::string& host_nqn,
                         const std::array<std::uint8_t, 16>& host_id, std::uint32_t admin_entries,
                         std::uint32_t keep_alive_ms)
    : context_(context),
      peer_(std::move(peer)),
      queue_memory_{.address = &peer_->queue_memory},
      pool_user_{.id = ++context.hosts_seen, .blocks = {.address = &peer_->blocks}},
      host_nqn_(host_nqn),
      host_id_(host_id),
      keep_alive_ms_(keep_alive_ms),
      controller_(context.subsystem, context.controller_config, context.engine,
                  {.fabrics = true,
                   .in_capsule_bytes = context.options.in_capsule_bytes,
                   .rights = context.rights_of(host_nqn)}),
      heard_ms_(context.now_ms) {
  controller_.set_host("nvme-tcp", host_nqn);
  const memory::HostMemory& pool = context_.pool.memory();
  controller_.address_space().map(reinterpret_cast<std::uint64_t>(pool.data()), pool.size(), pool.data());
  const HostQueue::Shape shape{.qid = 0,
                               .slots = admin_entries,
                               .ring_entries = admin_entries + kOperations + 1,
                               .small_bytes = 2 * kPageBytes,
                               .max_transfer_bytes = context_.controller_config.max_transfer_bytes};
  admin_ = new_queue(shape);
  controller_.set_connection_drop([this] {
    dropped_.store(true, std::memory_order_relaxed);
    context_.wake();
  });
  // The engine's threads call this for every batch of completions: a target that is awake finds them by itself.
  context_.engine.attach(
      controller_, [&shared = context_](std::uint16_t) { shared.wake(); }, engine::Doorbells::announced);
}

Association::~Association() {
  if (!detached_) context_.engine.detach(controller_);
}

void Association::detach(engine::Engine& engine, std::span<const std::unique_ptr<Association>> leaving) {
  std::array<controller::Controller*, kDetachedTogether> controllers;
  for (std::size_t done = 0; done < leaving.size(); done += controllers.size()) {
    const auto some = leaving.subspan(done, std::min(controllers.size(), leaving.size() - done));
    for (std::size_t i = 0; i < some.size(); ++i) controllers[i] = &some[i]->controller_;
    engine.detach(std::span(controllers).first(some.size()));
    for (const auto& association : some) association->detached_ = true;
  }
}

std::unique_ptr<HostQueue> Association::new_queue(const HostQueue::Shape& shape) {
  const std::uint64_t bytes = HostQueue::bytes_of(shape);
  if (context_.queue_memory.take(queue_memory_, bytes) != FairShare::Answer::given) throw std::bad_alloc();
  FairShare::Portion portion(context_.queue_memory, queue_memory_, bytes);
  std::uint32_t* const doorbells = controller_.doorbells() + 2u * shape.qid;
  return std::make_unique<HostQueue>(shape, controller_.address_space(), context_.pool, pool_user_, std::move(portion),
                                     doorbells, doorbells + 1);
}

std::uint64_t Association::idle_since_ms() const {
  const bool is_watched = is_kept_alive(keep_alive_ms_) && was_ready_;
  const bool idle = context_.now_ms - heard_ms_ >= context_.options.idle_timeout_ms;
  return idle && !is_watched ? heard_ms_ : UINT64_MAX;
}

bool make_room_in_memory(const AssociationList& associations, const Peer& peer) {
  Association* best = nullptr;
  for (const auto& association : associations) {
    const bool may_go = &association->peer() == &peer || association->peer().queue_memory.held > peer.queue_memory.held;
    if (!may_go || association->dead() || association->idle_since_ms() == UINT64_MAX) continue;
    if (best == nullptr || association->idle_since_ms() < best->idle_since_ms()) best = association.get();
  }
  if (best != nullptr) best->kill();
  return best != nullptr;
}

void Association::write_admin_registers() {
  const auto entries = static_cast<std::uint16_t>(admin_->ring_entries() - 1);
  controller_.write_register(nvme::kRegAqa, 4, nvme::encode_aqa({.asqs = entries, .acqs = entries}));
  controller_.write_register(nvme::kRegAsq, 8, admin_->sq_iova());
  controller_.write_register(nvme::kRegAcq, 8, admin_->cq_iova());
}

bool Association::write_property(std::uint32_t offset, bool eight_bytes, std::uint64_t value) {
  const bool is_cc = offset == nvme::kRegCc;
  const bool enable = nvme::decode_cc(static_cast<std::uint32_t>(value)).en;
  if (is_cc && enable && !enabled_) {
    admin_->reset();
    write_admin_registers();
  }
  controller_.write_register(offset, eight_bytes ? 8 : 4, value);
  if (!is_cc || enable == enabled_) return true;
  enabled_ = enable;
  was_ready_ = false;
  resetting_ = !enable;
  return !resetting_;
}

void Association::run(const nvme::Sqe& sqe, Done done) {
  waiting_.push_back({sqe, std::move(done)});
  start_operations();
}

void Association::start_operations() {
  while (!waiting_.empty() && running_.size() < kOperations && ready()) {
    while (admin_->find(next_cid_) != HostQueue::kNoSlot) --next_cid_;
    Operation& operation = waiting_.front();
    operation.sqe.cid = next_cid_;
    admin_->remember(next_cid_, admin_->slots());
    running_.emplace(next_cid_--, std::move(operation.done));
    admin_->submit_raw(operation.sqe);
    waiting_.pop_front();
  }
}

bool Association::on_admin_completion(const nvme::Cqe& cqe) {
  const auto found = running_.find(cqe.cid);
  if (found == running_.end()) return false;
  const Done done = std::move(found->second);
  running_.erase(found);
  admin_->forget(cqe.cid);
  done(static_cast<std::uint16_t>(cqe.status_phase >> 1));
  start_operations();
  return true;
}

std::unique_ptr<HostQueue> Association::make_queue(std::uint16_t qid, std::uint32_t entries) {
  // One more than the host's queue has, where the controller allows it: a ring keeps one entry empty.
  const std::uint32_t ring = std::min(entries + 1, context_.controller_config.max_queue_entries);
  const std::uint32_t small = std::max((context_.options.in_capsule_bytes + kPageBytes - 1) / kPageBytes, 2u);
  const HostQueue::Shape shape{.qid = qid,
                               .slots = ring - 1,
                               .ring_entries = ring,
                               .small_bytes = small * kPageBytes,
                               .max_transfer_bytes = context_.controller_config.max_transfer_bytes};
  return new_queue(shape);
}

void Association::create_queue(std::unique_ptr<HostQueue> queue, std::uint8_t priority, QueueMade made) {
  const std::uint16_t qid = queue->qid();
  const auto entries0 = static_cast<std::uint16_t>(queue->ring_entries() - 1);
  nvme::Sqe cq = admin_sqe(nvme::AdminOpcode::create_io_cq);
  nvme::encode_create_io_cq({.qid = qid, .qsize = entries0, .ien = true}, cq);
  cq.prp1 = queue->cq_iova();
  nvme::Sqe sq = admin_sqe(nvme::AdminOpcode::create_io_sq);
  nvme::encode_create_io_sq({.qid = qid, .qsize = entries0, .qprio = priority, .cqid = qid}, sq);
  sq.prp1 = queue->sq_iova();
  try {
    queues_[qid].queue = std::move(queue);
    run(cq, [this, qid, sq, made = std::move(made)](std::uint16_t status) {
      if (status != 0) return on_queue_created(qid, status, made);
      run(sq, [this, qid, made](std::uint16_t sq_status) { on_queue_created(qid, sq_status, made); });
    });
  } catch (...) {
    kill();  // what has been done of it cannot be told
    throw;
  }
}

void Association::on_queue_created(std::uint16_t qid, std::uint16_t status_field, const QueueMade& made) {
  IoQueue& entry = queues_.at(qid);
  HostQueue* const queue = entry.queue.get();
  const bool dropped = entry.dropped;
  entry.creating = false;
  if (status_field != 0 || dropped) drop_queue(qid);
  if (!dropped) made(status_field == 0 ? queue : nullptr, status_field);
}

void Association::drop_queue(std::uint16_t qid) {
  const auto found = queues_.find(qid);
  if (found == queues_.end()) return;
  if (found->second.creating) {
    found->second.dropped = true;
    return;
  }
  HostQueue* const queue = found->second.queue.get();
  graveyard_.push_back(std::move(found->second.queue));
  queues_.erase(found);
  // Otherwise the queue is forgotten with all others, at the end of the reset or of the association.
  if (dead() || !ready()) return;
  nvme::Sqe sq = admin_sqe(nvme::AdminOpcode::delete_io_sq);
  sq.cdw10 = qid;
  nvme::Sqe cq = admin_sqe(nvme::AdminOpcode::delete_io_cq);
  cq.cdw10 = qid;
  run(sq, [this, cq, queue](std::uint16_t) {
    run(cq, [this, queue](std::uint16_t) {
      std::erase_if(graveyard_, [queue](const auto& held) { return held.get() == queue; });
    });
  });
}

bool Association::is_ending(std::uint16_t qid) const {
  const auto found = queues_.find(qid);
  if (found != queues_.end()) return found->second.dropped;
  return std::any_of(graveyard_.begin(), graveyard_.end(), [qid](const auto& held) { return held->qid() == qid; });
}

void Association::finish_reset() {
  resetting_ = false;
  running_.clear();
  waiting_.clear();
  queues_.clear();
  graveyard_.clear();
  admin_->reset();
}

void Association::advance() {
  const ControllerState state = controller_.state();
  if (resetting_) {
    if (state == ControllerState::disabled) finish_reset();
    return;
  }
  if (state == ControllerState::ready && !was_ready_) {
    was_ready_ = true;
    if (keep_alive_ms_ != 0) {
      nvme::Sqe sqe = admin_sqe(nvme::AdminOpcode::set_features);
      sqe.cdw10 = static_cast<std::uint32_t>(nvme::Feature::keep_alive_timer);
      sqe.cdw11 = keep_alive_ms_;
      run(sqe, [](std::uint16_t) {});
    }
  }
  // Fatal: the keep alive timer ran out, or a fault was injected (docs/guide/faults.md). Disabled without the host's
  // doing: the subsystem was reset. Either way the association is over (3.5.2). A controller that could not be enabled
  // stays to be asked why.
  if (was_ready_ && (state == ControllerState::fatal || state == ControllerState::disabled)) dead_ = true;
}

}  // namespace flashmob::transport
