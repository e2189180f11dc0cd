// The control half of HostSimulation: queues, aborts, events, resets, and misuse.
#include <algorithm>
#include <array>
#include <cstring>

#include "driver/names.h"
#include "nvme/async_event.h"
#include "nvme/identify.h"
#include "nvme/opcode.h"
#include "nvme/registers.h"
#include "simulation/host_simulation.h"

namespace flashmob::simulation {
namespace {

using nvme::AdminOpcode;
using nvme::Status;

constexpr std::uint32_t kDepths[] = {2, 3, 4, 5, 8, 16, 33, 64};
constexpr std::size_t kMaxCqs = 4;
constexpr std::size_t kMaxSqs = 6;
constexpr std::uint32_t kContiguous = 1;

nvme::Sqe make(AdminOpcode opcode, std::uint32_t cdw10 = 0, std::uint32_t cdw11 = 0, std::uint64_t prp1 = 0) {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.cdw10 = cdw10;
  sqe.cdw11 = cdw11;
  sqe.prp1 = prp1;
  return sqe;
}

}  // namespace

Status HostSimulation::admin(AdminOpcode opcode, std::uint32_t cdw10, std::uint32_t cdw11, std::uint64_t prp1) {
  const Status status = nvme::status_of(host_.driver.admin(make(opcode, cdw10, cdw11, prp1), {}, false).status_field);
  say(driver::admin_command_name(make(opcode, cdw10)) + ": " + driver::status_text(nvme::to_field(status)));
  return status;
}

void HostSimulation::create_cq() {
  if (cqs_.size() >= kMaxCqs) return;
  std::uint16_t id = 1;
  while (cqs_.contains(id)) ++id;
  Cq cq;
  cq.id = id;
  cq.entries = kDepths[rng_.below(std::size(kDepths))];
  cq.ring = std::make_unique<driver::DmaMemory>(host_.door, cq.entries * sizeof(nvme::Cqe));
  const bool interrupts = chance(2);
  const std::uint32_t vector =
      static_cast<std::uint32_t>(rng_.below(host_.device.config().controller.interrupt_vectors));
  const Status status = admin(AdminOpcode::create_io_cq, id | ((cq.entries - 1) << 16),
                              kContiguous | (interrupts ? 2u : 0u) | (vector << 16), cq.ring->iova());
  if (status != Status::success) fail("a legal completion queue was refused");
  cqs_.emplace(id, std::move(cq));
}

void HostSimulation::create_sq() {
  const Cq* const cq = random_cq();
  if (cq == nullptr || sqs_.size() >= kMaxSqs) return;
  std::uint16_t id = 1;
  while (sqs_.contains(id)) ++id;
  Sq sq;
  sq.id = id;
  sq.cqid = cq->id;
  sq.entries = kDepths[rng_.below(std::size(kDepths))];
  sq.next_cid = static_cast<std::uint16_t>(rng_.next());
  sq.ring = std::make_unique<driver::DmaMemory>(host_.door, sq.entries * sizeof(nvme::Sqe));
  const auto priority = static_cast<std::uint32_t>(rng_.below(4));
  const Status status = admin(AdminOpcode::create_io_sq, id | ((sq.entries - 1) << 16),
                              kContiguous | (priority << 1) | (std::uint32_t{cq->id} << 16), sq.ring->iova());
  if (status != Status::success) fail("a legal submission queue was refused");
  sqs_.emplace(id, std::move(sq));
}

void HostSimulation::delete_sq(std::uint16_t sqid) {
  // Commands may end as aborted while the deletion is under way; then nothing of the queue may be heard again.
  Sq& sq = sqs_.at(sqid);
  for (auto& [cid, command] : sq.commands) {
    command->queue_deleted = true;
    if (command->pair != nullptr) command->pair->disturbed = true;
  }
  if (admin(AdminOpcode::delete_io_sq, sqid, 0) != Status::success) fail("a submission queue could not be deleted");
  Cq& cq = cqs_.at(sq.cqid);
  reap(cq, cq.entries);
  ring(cq);
  for (auto& [cid, command] : sq.commands) stream_.lose(*command);
  counters_.lost += sq.commands.size();
  sqs_.erase(sqid);
}

void HostSimulation::delete_cq() {
  Cq* const cq = random_cq();
  if (cq == nullptr) return;
  const bool used = std::ranges::any_of(sqs_, [cq](const auto& each) { return each.second.cqid == cq->id; });
  const Status status = admin(AdminOpcode::delete_io_cq, cq->id, 0);
  if (status != (used ? Status::invalid_queue_deletion : Status::success))
    fail("deletion of a completion queue went wrong");
  if (!used) cqs_.erase(cq->id);
}

// Queue commands with something wrong: the queues that exist must not notice.
void HostSimulation::misuse_queues() {
  const std::uint32_t beyond = host_.device.config().controller.max_queue_pairs + 1;
  const auto expect = [this](Status found, Status expected) {
    if (found != expected)
      fail("expected " + driver::status_text(nvme::to_field(expected)) + ", found " +
           driver::status_text(nvme::to_field(found)));
  };
  switch (rng_.below(7)) {
    case 0:
      expect(admin(AdminOpcode::create_io_cq, beyond | (7u << 16), kContiguous, 0x1000),
             Status::invalid_queue_identifier);
      break;
    case 1:
      expect(admin(AdminOpcode::create_io_cq, 0 | (7u << 16), kContiguous, 0x1000), Status::invalid_queue_identifier);
      break;
    case 2:
      expect(admin(AdminOpcode::create_io_cq, (beyond - 1) | (7u << 16), kContiguous, 0x1000),
             Status::data_transfer_error);
      break;
    case 3:
      expect(admin(AdminOpcode::create_io_cq, beyond - 1, kContiguous, 0x1000), Status::invalid_queue_size);
      break;
    case 4:
      expect(admin(AdminOpcode::create_io_sq, (beyond - 1) | (7u << 16), kContiguous | ((beyond - 1) << 16), 0x1000),
             Status::completion_queue_invalid);
      break;
    case 5:
      expect(admin(AdminOpcode::delete_io_sq, beyond - 1, 0), Status::invalid_queue_identifier);
      break;
    default:
      if (Cq* const cq = random_cq())
        expect(admin(AdminOpcode::create_io_cq, cq->id | (7u << 16), kContiguous, 0x1000),
               Status::invalid_queue_identifier);
      break;
  }
}

void HostSimulation::abort_something() {
  Sq* const sq = random_sq();
  if (sq == nullptr || aborts_ >= host_.device.config().controller.abort_limit) return;
  std::uint16_t cid = static_cast<std::uint16_t>(rng_.next());
  if (!sq->commands.empty() && !chance(10))
    cid = std::next(sq->commands.begin(), static_cast<std::ptrdiff_t>(rng_.below(sq->commands.size())))->first;
  const auto victim = sq->commands.find(cid);
  Command* const command = victim == sq->commands.end() ? nullptr : victim->second.get();
  if (command != nullptr) {
    ++command->aborts_pending;
    if (command->pair != nullptr) command->pair->disturbed = true;
  }
  say("abort " + identity_of(*sq, cid));
  ++aborts_;
  const auto done = [this, life = life_, sqid = sq->id, cid, command](driver::AdminResult result) {
    if (life != life_) return;
    --aborts_;
    if (nvme::status_of(result.status_field) != Status::success) fail("an Abort failed");
    const bool aborted = (result.dw0 & 1) == 0;
    say("abort of command " + std::to_string(cid) + " of queue " + std::to_string(sqid) +
        (aborted ? ": done" : ": not done"));
    const auto queue = sqs_.find(sqid);
    if (command == nullptr || queue == sqs_.end()) return;
    const auto now = queue->second.commands.find(cid);
    if (now == queue->second.commands.end() || now->second.get() != command) return;  // it has completed
    --command->aborts_pending;
    command->abort_confirmed |= aborted;
  };
  host_.driver.admin_async(make(AdminOpcode::abort, sq->id | (std::uint32_t{cid} << 16)), done);
}

// Doorbell values that no driver would write, and their repair.
void HostSimulation::garbage_doorbells() {
  rang_garbage_ = true;
  const std::uint64_t pause_ns = rng_.below(20'000);
  const auto beyond = [this](std::uint32_t entries) {
    return chance(2) ? entries : static_cast<std::uint32_t>(entries + rng_.below(0xFFFFFFFFu - entries));
  };
  switch (rng_.below(3)) {
    case 0:
      if (Sq* const sq = random_sq()) {
        say("garbage in the doorbell of submission queue " + std::to_string(sq->id));
        store_doorbell(2u * sq->id, beyond(sq->entries));
        host_.device.pump_for(pause_ns);
        store_doorbell(2u * sq->id, sq->rung);
      }
      break;
    case 1:
      if (Cq* const cq = random_cq()) {
        say("garbage in the doorbell of completion queue " + std::to_string(cq->id));
        store_doorbell(2u * cq->id + 1, beyond(cq->entries));
        host_.device.pump_for(pause_ns);
        ring(*cq);
      }
      break;
    default: {
      // Of queues that do not exist (yet): creating them starts from zero.
      std::uint16_t id = 1;
      while (sqs_.contains(id)) ++id;
      if (id <= host_.device.config().controller.max_queue_pairs)
        store_doorbell(2u * id, static_cast<std::uint32_t>(rng_.next()));
      break;
    }
  }
}

void HostSimulation::lose_everything() {
  for (auto& [id, sq] : sqs_) {
    for (auto& [cid, command] : sq.commands) stream_.lose(*command);
    counters_.lost += sq.commands.size();
  }
}

// Every kind of reset; commands in flight are lost, and nothing may be written to the old queues any more.
void HostSimulation::reset() {
  const std::uint64_t dice = rng_.below(8);
  say(dice == 0 ? "normal shutdown" : dice == 1 ? "abrupt shutdown" : dice == 2 ? "fatal status" : "reset");
  if (dice <= 1) host_.driver.shutdown(dice == 1);
  if (dice == 2) host_.controller.set_fatal();
  host_.driver.disable();
  std::vector<std::vector<std::byte>> before;
  for (auto& [id, cq] : cqs_) {
    reap(cq, cq.entries);
    before.emplace_back(cq.ring->data(), cq.ring->data() + cq.entries * sizeof(nvme::Cqe));
  }
  host_.device.pump_for(rng_.below(300'000));
  std::size_t index = 0;
  for (auto& [id, cq] : cqs_) {
    if (std::memcmp(before[index++].data(), cq.ring->data(), cq.entries * sizeof(nvme::Cqe)) != 0)
      fail("completion queue " + std::to_string(id) + " was written to after a reset");
  }
  lose_everything();
  sqs_.clear();
  cqs_.clear();
  begin_life();
}

void HostSimulation::reset_subsystem() {
  say("subsystem reset");
  host_.door.write32(nvme::kRegNssr, nvme::kNssrReset);
}

bool HostSimulation::is_reset() { return !nvme::decode_cc(host_.door.read32(nvme::kRegCc)).en; }

void HostSimulation::subsystem_was_reset() {
  host_.driver.disable();
  for (auto& [id, cq] : cqs_) reap(cq, cq.entries);
  lose_everything();
  sqs_.clear();
  cqs_.clear();
  begin_life();
}

void HostSimulation::check_event(std::uint32_t dw0) {
  const nvme::AsyncEvent event = nvme::decode_async_event(dw0);
  const bool doorbell = event.type == nvme::AsyncEventType::error &&
                        event.info == static_cast<std::uint8_t>(nvme::AsyncErrorInfo::invalid_doorbell_value);
  const bool notice = event.type == nvme::AsyncEventType::notice;
  if (!(doorbell && rang_garbage_) && !notice) fail("an asynchronous event that nobody caused");
  // Reading its log page lets the next event of this type through.
  std::array<std::byte, 64> log;
  host_.driver.log_page(static_cast<std::uint8_t>(event.log_page), nvme::kNsidBroadcast, 0, log);
}

void HostSimulation::listen() {
  host_.driver.admin_async(make(AdminOpcode::async_event_request), [this, life = life_](driver::AdminResult result) {
    if (life != life_) return;
    if (nvme::status_of(result.status_field) != Status::success) fail("an Asynchronous Event Request failed");
    check_event(result.dw0);
    listen();
  });
}

// Admin commands that ask or set, between everything else.
void HostSimulation::ask_something() {
  std::array<std::byte, 4096> data;
  switch (rng_.below(5)) {
    case 0:
      host_.driver.identify(1, 0, data);
      break;
    case 1:
      host_.driver.log_page(2, nvme::kNsidBroadcast, 0, std::span(data).first(512));
      break;
    case 2:
      host_.driver.set_feature(0x01, static_cast<std::uint32_t>(rng_.next()));
      break;  // Arbitration
    case 3:
      host_.driver.set_feature(0x08, static_cast<std::uint32_t>(rng_.next() & 0x070F));
      break;  // Coalescing
    default:
      admin(static_cast<AdminOpcode>(0xC0 + rng_.below(64)), static_cast<std::uint32_t>(rng_.next()), 0);
      break;
  }
}

void HostSimulation::set_attached(std::uint32_t nsid, bool attached) {
  nvme::ControllerList list{};
  list.num = 1;
  list.identifier[0] = host_.controller.cntlid();
  nvme::Sqe sqe = make(AdminOpcode::namespace_attachment, attached ? 0 : 1);
  sqe.nsid = nsid;
  if (attachments_[nsid].attached == attached) return;
  say(std::string(attached ? "attach" : "detach") + " namespace " + std::to_string(nsid));
  // Commands in flight see the change before or after they are fetched.
  ++attachments_[nsid].epoch;
  const auto result = host_.driver.admin(sqe, std::as_writable_bytes(std::span(&list, 1)), false);
  if (nvme::status_of(result.status_field) != Status::success) fail("an attachment failed");
  attachments_[nsid].attached = attached;
}

Status HostSimulation::read_now(driver::QueuePair& pair, std::uint32_t nsid, std::uint64_t lba, std::uint32_t blocks) {
  const auto command = stream_.read_of(nsid, lba, blocks);
  pair.submit() = command->sqe;
  pair.ring_sq();
  Status status = Status::internal_error;
  const bool done = host_.device.pump_until([&] {
    return pair.reap(1, [&](const nvme::Cqe& entry) {
      status = nvme::status_of(static_cast<std::uint16_t>(entry.status_phase >> 1));
    }) != 0;
  });
  if (!done) fail("a read at the end never completed");
  pair.ring_cq();
  const std::string why = stream_.judge(*command, status);
  if (!why.empty()) fail("at the end: " + why);
  return status;
}

void HostSimulation::read_everything() {
  host_.driver.enable();  // our own queues are gone: the driver makes one
  ++life_;
  driver::QueuePair& pair = host_.driver.create_queue_pair({.sq_entries = 4});
  for (std::uint32_t nsid = 1; nsid <= kNamespaces; ++nsid) {
    const std::uint32_t step = host_.device.config().controller.max_transfer_bytes / oracle_.block_bytes(nsid);
    for (std::uint64_t lba = 0; lba < oracle_.blocks(nsid); lba += step) {
      if (read_now(pair, nsid, lba, step) == Status::success) continue;
      for (std::uint32_t i = 0; i < step; ++i) read_now(pair, nsid, lba + i, 1);
    }
  }
}

}  // namespace flashmob::simulation
