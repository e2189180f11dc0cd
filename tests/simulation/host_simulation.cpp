#include "simulation/host_simulation.h"

#include <algorithm>
#include <cstring>

#include "driver/names.h"

namespace flashmob::simulation {
namespace {

using nvme::Status;

constexpr std::uint32_t kSlots = 80;
constexpr std::uint64_t kHangNs = 2'000'000'000;  // no command of these small devices takes two virtual seconds

}  // namespace

HostSimulation::HostSimulation(suite::Host& host, Oracle& oracle, std::uint64_t seed, Counters& counters,
                               const Trace& trace)
    : host_(host),
      oracle_(oracle),
      rng_(seed),
      counters_(counters),
      trace_(trace),
      slots_(host.door, kSlots, host.device.config().controller.max_transfer_bytes),
      stream_(splitmix64(seed), oracle, slots_, host.device.config().controller.max_transfer_bytes, attachments_) {}

void HostSimulation::say(const std::string& text) const {
  if (trace_)
    trace_(std::to_string(host_.device.now_ns()) + " ns, host " + std::to_string(host_.controller.cntlid()) + ": " +
           text);
}

void HostSimulation::fail(const std::string& text) const {
  throw Failure("host " + std::to_string(host_.controller.cntlid()) + " at " + std::to_string(host_.device.now_ns()) +
                " ns: " + text);
}

void HostSimulation::start() { begin_life(); }

void HostSimulation::begin_life() {
  host_.driver.enable(chance(3));
  ++life_;
  aborts_ = 0;
  rang_garbage_ = false;
  listen();
  for (int i = 0; i < 2; ++i) {
    create_cq();
    create_sq();
  }
}

void HostSimulation::act() {
  const std::uint64_t dice = rng_.below(1000);
  if (dice < 560)
    submit();
  else if (dice < 860) {
    if (Cq* const cq = random_cq()) {
      reap(*cq, static_cast<std::uint32_t>(1 + rng_.below(cq->entries)));
      if (!chance(4)) ring(*cq);
    }
  } else if (dice < 910)
    abort_something();
  else if (dice < 925)
    create_cq();
  else if (dice < 945)
    create_sq();
  else if (dice < 955) {
    if (Sq* const sq = random_sq()) delete_sq(sq->id);
  } else if (dice < 962)
    delete_cq();
  else if (dice < 972)
    misuse_queues();
  else if (dice < 982)
    garbage_doorbells();
  else if (dice < 992)
    ask_something();
  else if (dice < 996)
    reset();
}

HostSimulation::Sq* HostSimulation::random_sq() {
  if (sqs_.empty()) return nullptr;
  return &std::next(sqs_.begin(), static_cast<std::ptrdiff_t>(rng_.below(sqs_.size())))->second;
}

HostSimulation::Cq* HostSimulation::random_cq() {
  if (cqs_.empty()) return nullptr;
  return &std::next(cqs_.begin(), static_cast<std::ptrdiff_t>(rng_.below(cqs_.size())))->second;
}

void HostSimulation::submit() {
  Sq* const sq = random_sq();
  if (sq == nullptr) return;
  for (std::uint64_t count = 1 + rng_.below(chance(3) ? sq->entries : 4); count > 0; --count) {
    if (!submit_one(*sq)) break;
    if (chance(8)) ring(*sq);
  }
  if (!chance(6)) ring(*sq);
}

std::uint32_t HostSimulation::free_slots(const Sq& sq) const {
  const std::uint32_t used = sq.tail >= sq.head ? sq.tail - sq.head : sq.tail + sq.entries - sq.head;
  return sq.entries - 1 - used;
}

// One command, or both halves of a pair. False if there was no room.
bool HostSimulation::submit_one(Sq& sq) {
  if (free_slots(sq) == 0) return false;
  // A first half must leave room for what follows it, or nobody would ever learn that it was fetched.
  auto commands = stream_.next(sq.half_open, free_slots(sq) >= 2);
  if (commands.empty()) return false;
  for (auto& command : commands) {
    while (sq.commands.contains(sq.next_cid)) ++sq.next_cid;
    command->sqe.cid = sq.next_cid++;
    reinterpret_cast<nvme::Sqe*>(sq.ring->data())[sq.tail] = command->sqe;
    if (++sq.tail == sq.entries) sq.tail = 0;
    sq.half_open = command->kind == Kind::lone_first;
    ++counters_.commands;
    if (trace_)
      say("submit " + identity_of(sq, command->sqe.cid) + ": " + name_of(command->kind) + " ns " +
          std::to_string(command->sqe.nsid) + " blocks " + std::to_string(command->lba) + "+" +
          std::to_string(command->blocks) +
          (command->defect != Status::success ? ", wrong: " + driver::status_text(nvme::to_field(command->defect))
                                              : ""));
    const std::shared_ptr<FusedPair> pair = command->pair;
    sq.commands.emplace(command->sqe.cid, std::move(command));
    if (!chance(20)) continue;
    // The halves of a pair belong under one doorbell (Base 2.0c, 3.4.2). Under two, the device may take them or not.
    ring(sq);
    if (pair != nullptr) pair->disturbed = true;
  }
  return true;
}

void HostSimulation::store_doorbell(std::uint32_t word, std::uint32_t value) {
  std::atomic_ref<std::uint32_t>(host_.door.doorbells()[word]).store(value, std::memory_order_release);
}

void HostSimulation::ring(Sq& sq) {
  sq.rung = sq.tail;
  store_doorbell(2u * sq.id, sq.rung);
}

void HostSimulation::ring(const Cq& cq) { store_doorbell(2u * cq.id + 1, cq.head); }

std::uint32_t HostSimulation::reap(Cq& cq, std::uint32_t limit) {
  std::uint32_t count = 0;
  while (count < limit && (cq.at(cq.head).status_phase & 1) == cq.phase) {
    const nvme::Cqe entry = cq.at(cq.head);
    if (++cq.head == cq.entries) {
      cq.head = 0;
      cq.phase ^= 1;
    }
    ++count;
    complete(cq, entry);
  }
  return count;
}

std::string HostSimulation::identity_of(const Sq& sq, std::uint16_t cid) const {
  return "command " + std::to_string(cid) + " of queue " + std::to_string(sq.id);
}

void HostSimulation::complete(const Cq& cq, const nvme::Cqe& entry) {
  const auto at = sqs_.find(entry.sqid);
  if (at == sqs_.end() || at->second.cqid != cq.id)
    fail("completion queue " + std::to_string(cq.id) + " got an entry for submission queue " +
         std::to_string(entry.sqid));
  Sq& sq = at->second;
  const auto found = sq.commands.find(entry.cid);
  if (found == sq.commands.end()) fail(identity_of(sq, entry.cid) + " completed, but is not in flight");
  Command& command = *found->second;
  const Status status = nvme::status_of(static_cast<std::uint16_t>(entry.status_phase >> 1));
  say("done " + identity_of(sq, entry.cid) + ": " + driver::status_text(nvme::to_field(status)));

  const auto distance = [&sq](std::uint32_t from, std::uint32_t to) {
    return to >= from ? to - from : to + sq.entries - from;
  };
  if (entry.sqhd >= sq.entries || distance(sq.head, entry.sqhd) > distance(sq.head, sq.rung))
    fail(identity_of(sq, entry.cid) + " reports SQHD " + std::to_string(entry.sqhd) + ", which is not between " +
         std::to_string(sq.head) + " and the doorbell's " + std::to_string(sq.rung));
  sq.head = entry.sqhd;
  const bool failed = status != Status::success;
  if (((entry.status_phase >> 1 & nvme::kStatusMore) != 0) != failed)
    fail(identity_of(sq, entry.cid) + " has a wrong More bit");

  const std::string why = stream_.judge(command, status);
  if (!why.empty()) fail(identity_of(sq, entry.cid) + ": " + why);
  ++counters_.completions;
  ++counters_.statuses[nvme::to_field(status)];
  counters_.digest =
      splitmix64(counters_.digest ^ splitmix64(host_.device.now_ns()) ^
                 (std::uint64_t{entry.sqid} << 48 | std::uint64_t{entry.cid} << 32 | entry.status_phase));
  sq.commands.erase(found);
}

// A first half that waits for its second completes when anything else follows it.
void HostSimulation::push_out_half(Sq& sq) {
  if (!sq.half_open || free_slots(sq) == 0) return;
  auto command = std::make_unique<Command>();
  command->kind = Kind::garbage;
  command->sqe.opcode = 0x7F;
  while (sq.commands.contains(sq.next_cid)) ++sq.next_cid;
  command->sqe.cid = sq.next_cid++;
  reinterpret_cast<nvme::Sqe*>(sq.ring->data())[sq.tail] = command->sqe;
  if (++sq.tail == sq.entries) sq.tail = 0;
  sq.half_open = false;
  sq.commands.emplace(command->sqe.cid, std::move(command));
}

std::uint64_t HostSimulation::outstanding() const {
  std::uint64_t sum = 0;
  for (const auto& [id, sq] : sqs_) sum += sq.commands.size();
  return sum;
}

std::uint64_t HostSimulation::oldest() const {
  std::uint64_t moment = oracle_.now();
  for (const auto& [id, sq] : sqs_)
    for (const auto& [cid, command] : sq.commands) moment = std::min(moment, command->begun);
  return moment;
}

void HostSimulation::drain() {
  const bool done = host_.device.pump_until(
      [this] {
        for (auto& [id, sq] : sqs_) {
          push_out_half(sq);
          ring(sq);
        }
        for (auto& [id, cq] : cqs_) {
          reap(cq, cq.entries);
          ring(cq);
        }
        host_.driver.poll_admin();
        return outstanding() == 0 && aborts_ == 0;
      },
      kHangNs);
  if (done) return;
  std::string list;
  for (const auto& [id, sq] : sqs_)
    for (const auto& [cid, command] : sq.commands)
      list += "\n  " + identity_of(sq, cid) + ": " + name_of(command->kind) +
              (command->aborts_pending != 0 ? ", abort sent" : "");
  fail("never completed: " + std::to_string(aborts_) + " aborts and" + list);
}

}  // namespace flashmob::simulation
