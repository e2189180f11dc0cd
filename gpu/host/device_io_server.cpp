// Controllers, queues, regions and namespaces on their way to the GPU engine.
#include "host/device_io_server.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "flashmob/gpu.h"

namespace flashmob::gpu {

using controller::QueueOp;
using engine::QueueState;
using nvme::Status;

namespace {

// Of the kernel's own time, between two looks at whether it has taken up a change.
constexpr std::uint64_t kWaitStepNs = 500;

// True if [iova, iova + bytes) lies at `host` and behind it, in one region or in several.
bool holds(const std::vector<memory::Region>& regions, std::uint64_t iova, std::uint64_t bytes, const std::byte* host) {
  for (const memory::Region& region : regions) {
    if (bytes == 0) return true;
    const std::uint64_t offset = iova - region.iova;
    if (offset >= region.bytes) continue;
    if (region.host + offset != host) return false;
    const std::uint64_t part = std::min(bytes, region.bytes - offset);
    iova += part;
    host += part;
    bytes -= part;
  }
  return bytes == 0;
}

void clear_doorbell(std::uint32_t* doorbell) {
  std::atomic_ref<std::uint32_t>(*doorbell).store(0, std::memory_order_relaxed);
}

}  // namespace

void enable_engine() {
  flashmob::engine::register_io_server("gpu", [](const DeviceConfig& config, const Clock& clock) {
    return std::make_unique<DeviceIoServer>(config, clock);
  });
}

DeviceIoServer::DeviceIoServer(const DeviceConfig& config, const Clock& clock, MachineMaker make_machine)
    : config_((config.validate(), config)), clock_(clock), make_machine_(std::move(make_machine)) {}

DeviceIoServer::~DeviceIoServer() { FLASHMOB_CHECK(controller_ == nullptr); }

void DeviceIoServer::attach(controller::Controller& controller, const flashmob::engine::InterruptSink& interrupt) {
  {
    const std::lock_guard lock(mutex_);
    if (controller_ != nullptr)
      throw ConfigError("engine.kind = \"gpu\" is not possible for several controllers: attach one, or use \"host\"");
    try {
      start(controller, interrupt);
    } catch (...) {
      leave();
      throw;
    }
  }
  // Regions are told with their own lock held, so not with ours.
  controller.address_space().set_mirror([this](const auto& regions) { take_regions(regions); });
}

void DeviceIoServer::start(controller::Controller& controller, const flashmob::engine::InterruptSink& interrupt) {
  engine_.reset();
  machine_ = make_machine_(config_, clock_);
  engine_ = std::make_unique<DeviceEngine>(machine_->memory(), config_.timing, machine_->options(config_.engine));
  controller_ = &controller;
  interrupt_ = &interrupt;
  reader_ = std::make_unique<memory::AddressSpace::Reader>(controller.address_space());
  lost_ = false;
  controller.offer_doorbell_buffers(false);
  engine_->set_phase(phase_);
  publish_namespaces();
  doorbells_shared_ = machine_->share(controller.doorbells(), controller.doorbell_bytes());
  engine_->commit();
  machine_->launch(*engine_);
  launched_ = true;
}

void DeviceIoServer::detach(controller::Controller& controller) {
  if (controller_ != &controller) return;
  controller.address_space().set_mirror({});
  const std::lock_guard lock(mutex_);
  delete_all();
  end_kernel();
  unshare_regions(nullptr);
  return_media();
  if (doorbells_shared_) machine_->unshare(controller.doorbells());
  leave();
}

void DeviceIoServer::leave() {
  reader_.reset();
  interrupt_ = nullptr;
  controller_ = nullptr;
}

void DeviceIoServer::end_kernel() {
  if (!launched_) return;
  launched_ = false;
  if (lost_) return;
  engine_->end(engine::Run::stop);
  engine_->commit();
  machine_->join();
}

bool DeviceIoServer::wait_until(const std::function<bool()>& done) {
  while (!done()) {
    if (lost_ || !launched_) return false;
    lost_ = !machine_->step(kWaitStepNs);
  }
  return true;
}

bool DeviceIoServer::settle() {
  const std::uint32_t epoch = engine_->commit();
  return !launched_ || wait_until([&] { return engine_->taken_up(epoch); });
}

// --- Queues ---

Status DeviceIoServer::request(controller::Controller& controller, const controller::QueueRequest& request,
                               bool& aborted) {
  const std::lock_guard lock(mutex_);
  FLASHMOB_CHECK(controller_ == &controller);
  switch (request.op) {
    case QueueOp::create_cq:
      return create_cq(request.cq);
    case QueueOp::create_sq:
      return create_sq(request.sq);
    case QueueOp::delete_sq:
      return delete_sq(request.sq.sqid);
    case QueueOp::delete_cq:
      return delete_cq(request.cq.cqid);
    case QueueOp::delete_all:
      delete_all();
      return Status::success;
    case QueueOp::abort_command:
      aborted = abort(request.sq.sqid, request.cid);
      return Status::success;
  }
  return Status::internal_error;
}

std::byte* DeviceIoServer::translate(std::uint64_t iova, std::uint64_t bytes, bool for_write) {
  reader_->enter();
  std::byte* const memory = reader_->translate(iova, bytes, for_write);
  reader_->leave();
  return memory;
}

Status DeviceIoServer::create_cq(const controller::CqSpec& spec) {
  upload_media();
  Cq cq;
  cq.spec = spec;
  cq.ring = reinterpret_cast<nvme::Cqe*>(translate(spec.iova, std::uint64_t{spec.entries} * sizeof(nvme::Cqe), true));
  if (cq.ring == nullptr) return Status::data_transfer_error;
  std::uint32_t* const doorbell = controller_->doorbells() + 2u * spec.cqid + 1;
  clear_doorbell(doorbell);
  if (!engine_->add_cq(cq.ring, spec.entries, doorbell, true, cq.queue)) return Status::internal_error;
  cqs_.emplace(spec.cqid, cq);
  return Status::success;
}

Status DeviceIoServer::create_sq(const controller::SqSpec& spec) {
  const auto cq = cqs_.find(spec.cqid);
  if (cq == cqs_.end()) return Status::completion_queue_invalid;
  Sq sq;
  sq.spec = spec;
  sq.ring =
      reinterpret_cast<const nvme::Sqe*>(translate(spec.iova, std::uint64_t{spec.entries} * sizeof(nvme::Sqe), false));
  if (sq.ring == nullptr) return Status::data_transfer_error;
  std::uint32_t* const doorbell = controller_->doorbells() + 2u * spec.sqid;
  clear_doorbell(doorbell);
  if (!engine_->add_sq(sq.ring, spec.entries, doorbell, spec.sqid, cq->second.queue, sq.queue))
    return Status::internal_error;
  sqs_.emplace(spec.sqid, sq);
  return settle() ? Status::success : Status::internal_error;
}

// Closes the queues that are asked for, and returns when nothing of them is left in the engine.
void DeviceIoServer::close_queues(QueueState how, const std::function<bool(const Sq&)>& which) {
  std::vector<DeviceEngine::Queue> closing;
  for (auto& [sqid, sq] : sqs_) {
    if (!sq.open || !which(sq)) continue;
    sq.open = false;
    engine_->close_sq(sq.queue, how);
    closing.push_back(sq.queue);
  }
  if (closing.empty() || !settle()) return;
  wait_until([&] {
    return std::all_of(closing.begin(), closing.end(), [&](const auto& queue) { return engine_->closed(queue); });
  });
}

Status DeviceIoServer::delete_sq(std::uint16_t sqid) {
  const auto found = sqs_.find(sqid);
  if (found == sqs_.end()) return Status::invalid_queue_identifier;
  close_queues(QueueState::cancelling, [&](const Sq& sq) { return &sq == &found->second; });
  sqs_.erase(found);
  return Status::success;
}

Status DeviceIoServer::delete_cq(std::uint16_t cqid) {
  const auto found = cqs_.find(cqid);
  if (found == cqs_.end()) return Status::invalid_queue_identifier;
  engine_->remove_cq(found->second.queue);
  cqs_.erase(found);
  return Status::success;
}

void DeviceIoServer::delete_all() {
  close_queues(QueueState::dropping, [](const Sq&) { return true; });
  for (const auto& [cqid, cq] : cqs_) engine_->remove_cq(cq.queue);
  sqs_.clear();
  cqs_.clear();
  interrupt_deadline_ns_ = UINT64_MAX;
}

bool DeviceIoServer::abort(std::uint16_t sqid, std::uint16_t cid) {
  const auto found = sqs_.find(sqid);
  if (found == sqs_.end() || !found->second.open) return false;
  engine_->abort(found->second.queue, cid);
  engine_->commit();
  wait_until([&] { return engine_->aborted() != engine::Abort::pending; });
  engine_->finish_abort();
  settle();
  return engine_->aborted() == engine::Abort::done;
}

// --- Memory ---

void DeviceIoServer::take_regions(const std::vector<memory::Region>& regions) {
  const std::lock_guard lock(mutex_);
  share_regions(regions);
  const auto has_ring = [&](const Sq& sq) {
    const Cq& cq = cqs_.at(sq.spec.cqid);
    return holds(regions, sq.spec.iova, std::uint64_t{sq.spec.entries} * sizeof(nvme::Sqe),
                 reinterpret_cast<const std::byte*>(sq.ring)) &&
           holds(regions, cq.spec.iova, std::uint64_t{cq.spec.entries} * sizeof(nvme::Cqe),
                 reinterpret_cast<const std::byte*>(cq.ring));
  };
  close_queues(QueueState::dropping, [&](const Sq& sq) { return !has_ring(sq); });
  for (auto& [cqid, cq] : cqs_) {
    const std::uint64_t bytes = std::uint64_t{cq.spec.entries} * sizeof(nvme::Cqe);
    if (cq.ring != nullptr && !holds(regions, cq.spec.iova, bytes, reinterpret_cast<std::byte*>(cq.ring)))
      cq.ring = nullptr;
  }
  std::vector<engine::Region> known;
  for (const memory::Region& region : regions)
    known.push_back({region.iova, region.bytes, region.host, region.writable});
  engine_->set_regions(std::move(known));
  settle();
  unshare_regions(&regions);
}

void DeviceIoServer::share_regions(const std::vector<memory::Region>& regions) {
  for (const memory::Region& region : regions) {
    const auto same = [&](const memory::Region& held) {
      return held.host == region.host && held.bytes == region.bytes;
    };
    if (std::any_of(shared_.begin(), shared_.end(), same)) continue;
    if (machine_->share(region.host, region.bytes)) shared_.push_back(region);
  }
}

void DeviceIoServer::unshare_regions(const std::vector<memory::Region>* still_there) {
  std::erase_if(shared_, [&](const memory::Region& held) {
    const auto same = [&](const memory::Region& region) {
      return held.host == region.host && held.bytes == region.bytes;
    };
    if (still_there != nullptr && std::any_of(still_there->begin(), still_there->end(), same)) return false;
    machine_->unshare(held.host);
    return true;
  });
}

// --- Namespaces ---

void DeviceIoServer::namespaces_changed(controller::Controller& controller) {
  const std::lock_guard lock(mutex_);
  if (controller_ != &controller) return;
  publish_namespaces();
  settle();
  if (!cqs_.empty()) upload_media();
}

void DeviceIoServer::publish_namespaces() {
  std::vector<engine::DeviceNamespace> list;
  for (std::uint32_t nsid = 1; nsid <= controller::kMaxNamespaces; ++nsid) {
    const command_set::Namespace* const ns = controller_->attached(nsid);
    if (ns == nullptr) continue;
    FLASHMOB_CHECK(ns->base != nullptr);
    list.push_back({.blocks = ns->blocks,
                    .media = media_of(*ns),
                    .unit_base = ns->unit_base,
                    .nsid = nsid,
                    .lba_shift = ns->lba_shift,
                    .unit_shift = ns->unit_shift,
                    .writable = ns->writable});
  }
  engine_->set_namespaces(list, config_.controller.max_transfer_bytes, controller::kMaxNamespaces);
}

std::byte* DeviceIoServer::media_of(const command_set::Namespace& ns) {
  GpuMedia& media = gpu_media_[ns.base];
  if (media.place != nullptr) return media.place;
  media.bytes = ns.blocks << ns.lba_shift;
  if (config_.engine.gpu_media == "device") {
    media.place = static_cast<std::byte*>(machine_->memory().allocate_device(media.bytes));
  } else {
    media.pinned = machine_->share(ns.base, media.bytes);
    media.place = ns.base;
  }
  return media.place;
}

// Namespaces in the GPU's own memory get what host code has put into them: before the first queue is made, and where a
// host has formatted or made one since.
void DeviceIoServer::upload_media() {
  for (std::uint32_t nsid = 1; nsid <= controller::kMaxNamespaces; ++nsid) {
    const command_set::Namespace* const ns = controller_->attached(nsid);
    if (ns == nullptr) continue;
    GpuMedia& media = gpu_media_.at(ns->base);
    if (media.place != ns->base && media.holds != ns) machine_->memory().copy(media.place, ns->base, media.bytes);
    media.holds = ns;
  }
}

// Data outlive the controller that wrote them.
void DeviceIoServer::return_media() {
  for (const auto& [base, media] : gpu_media_) {
    if (media.pinned) machine_->unshare(base);
    if (media.place != base && media.holds != nullptr) machine_->memory().copy(base, media.place, media.bytes);
  }
  gpu_media_.clear();
}

}  // namespace flashmob::gpu
