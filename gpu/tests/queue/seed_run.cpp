#include "queue/seed_run.h"

#include <algorithm>
#include <new>
#include <optional>
#include <stdexcept>

#include "flashmob/gpu/service.h"
#include "flashmob/gpu/simt/fibre.h"
#include "flashmob/gpu/simt/host_lane.h"
#include "queue/seed_kernel.h"
#include "weak_memory.h"

namespace flashmob::gpu::testing {
namespace {

constexpr std::uint64_t kMaxTransferBytes = 16'384;
constexpr std::uint64_t kPatienceNs = 3'000'000;

template <class T, std::size_t N>
T pick(Rng& rng, const T (&values)[N]) {
  return values[rng.below(N)];
}

class Run {
 public:
  Run(ScriptedSsd& ssd, const SeedPlan& plan)
      : ssd_(ssd), plan_(plan), lane_([&ssd] { return ssd.now_ns(); }, [](std::uint32_t) {}) {
    ssd_.reset(plan.seed, plan.unkindness);
    ref_ = ssd_.attach({.queues = plan.queues,
                        .entries = plan.entries,
                        .cq_entries = plan.cq_entries,
                        .max_transfer_bytes = kMaxTransferBytes,
                        .timeout_ns = plan.timeout_ns,
                        .mode = plan.server == SeedPlan::Server::callers ? ServiceMode::callers : ServiceMode::service,
                        .first_ticket = plan.first_ticket});
    memories_ = reinterpret_cast<LaneMemory*>(ssd_.allocate(plan.lanes * sizeof(LaneMemory)));
    for (std::uint32_t i = 0; i < plan.lanes; ++i) new (memories_ + i) LaneMemory{};
    service_.control = new (ssd_.allocate(sizeof(ServiceControl))) ServiceControl();
    auto* queues = reinterpret_cast<QueueRef*>(ssd_.allocate(plan.queues * sizeof(QueueRef)));
    for (std::uint32_t i = 0; i < plan.queues; ++i) new (queues + i) QueueRef(ref_.queue(i));
    service_.queues = queues;
    service_.queue_count = plan.queues;
  }

  SeedResult run() {
    SeedResult result;
    try {
      simt::FibreDevice device(
          ssd_,
          {.seed = plan_.seed, .patience_ns = kPatienceNs, .stack_bytes = 32 << 10, .weak_memory = test::weak_memory});
      kernels(device);
      result.turns = device.turns();
      audit(device);
    } catch (const std::runtime_error& e) {  // StuckError, RaceError
      problem(e.what());
    }
    ssd_.host = nullptr;
    for (std::uint32_t i = 0; i < plan_.lanes; ++i) look_at(i, result);
    for (const std::string& each : ssd_.violations()) problem(each);
    result.commands = ssd_.fetched();
    result.late = ssd_.late();
    result.lost = lost_;
    result.failure = problems_;
    return result;
  }

 private:
  void kernels(simt::FibreDevice& device) {
    const simt::Shape serving{.blocks = 1 + static_cast<std::uint32_t>(plan_.seed % 2),
                              .block_threads = plan_.server_lanes};
    if (plan_.server == SeedPlan::Server::host) ssd_.host = [this] { service_.pass(lane_, 1, 0, 1); };
    std::optional<simt::FibreDevice::Kernel> server;
    if (plan_.server == SeedPlan::Server::kernel) server = device.launch(serving, ServiceKernel{}, service_);
    const bool kind = plan_.unkindness.late_one_in == 0 && plan_.unkindness.lost_one_in == 0;
    const auto work = device.launch({.blocks = 1, .block_threads = plan_.lanes}, SeedKernel{}, ref_, memories_,
                                    plan_.seed, plan_.steps, kind, plan_.abort_after_ns != 0);
    if (plan_.abort_after_ns != 0) {
      device.pass(plan_.abort_after_ns);
      ssd_.set_abort(true);
    }
    if (server && plan_.restart_after_ns != 0) {
      device.pass(plan_.restart_after_ns);
      order(ServiceOrder::stop);
      device.wait(*server);
      device.pass(500);
      order(ServiceOrder::serve);
      server = device.launch(serving, ServiceKernel{}, service_);
    }
    device.wait(work);
    if (!server) return;
    // What is lost, also after the last lane has ended, would be waited for in vain.
    const bool drains = plan_.unkindness.lost_one_in == 0;
    order(drains ? ServiceOrder::drain : ServiceOrder::stop);
    device.wait(*server);
    if (drains && !service_.idle(lane_, 0, 1)) problem("the drained service has left commands in flight");
  }

  void order(ServiceOrder order) { service_.control->order.store(lane_, order); }

  // Lets the SSD answer everything but what is lost, and takes it in as a host would.
  void settle() {
    for (int i = 0; i < 1'000 && !(ssd_.quiet() && all_taken()); ++i) {
      ssd_.pass(ssd_.now_ns() + 1'000);
      while (service_.pass(lane_, 1, 0, 1) != 0) continue;
    }
    if (!ssd_.quiet() || !all_taken()) problem("commands never came to their end");
  }
  bool all_taken() {
    const QueueStats now = stats();
    return now.completed == ssd_.posted() && now.submitted == ssd_.fetched();
  }
  QueueStats stats() {
    QueueStats sum;
    for (std::uint32_t i = 0; i < plan_.queues; ++i) sum += ref_.queue(i).stats(lane_);
    return sum;
  }

  // No slot, no word and no command is left over; lost commands keep their slots until they are answered after all.
  void audit(simt::FibreDevice&) {
    settle();
    QueueStats now = stats();
    if (now.taken != ssd_.lost())
      problem(std::to_string(now.taken) + " slots are taken, " + std::to_string(ssd_.lost()) + " commands are lost");
    if (now.unexpected != 0) problem("completions that nobody had asked for");
    if (now.doorbells_rung > now.submitted) problem("more doorbells than commands");
    lost_ = ssd_.lost();
    ssd_.answer_lost();
    settle();
    if (const std::uint32_t taken = stats().taken; taken != 0)
      problem(std::to_string(taken) + " slots are taken after the last answer");
    for (std::uint32_t i = 0; i < plan_.queues; ++i) {
      const Queue& queue = ssd_.queue(i);
      if (queue.ready.value != 0 || queue.combiner.value != 0 || queue.reaper.value != 0)
        problem("queue " + std::to_string(i) + " is left locked or with commands that nobody has rung for");
    }
  }

  void look_at(std::uint32_t lane, SeedResult& result) {
    static constexpr const char* kFaults[] = {"", "wrong status", "wrong data", "a stale token was taken",
                                              "a wait ended too early"};
    const LaneMemory& m = memories_[lane];
    result.deadlines += m.deadlines;
    result.aborted += m.aborted;
    if (m.fault == LaneMemory::none) return;
    problem("lane " + std::to_string(lane) + ", step " + std::to_string(m.fault_step) + ": " + kFaults[m.fault] +
            " (kind " + std::to_string(static_cast<int>(m.fault_status.kind)) + ", field " +
            std::to_string(m.fault_status.field) + ")");
  }

  void problem(const std::string& what) {
    if (problems_.empty()) problems_ = plan_.text() + "\n";
    problems_ += "  " + what + "\n";
  }

  ScriptedSsd& ssd_;
  const SeedPlan& plan_;
  simt::HostLane lane_;
  SsdRef ref_;
  LaneMemory* memories_ = nullptr;
  ServiceRef service_;
  std::string problems_;
  std::uint64_t lost_ = 0;
};

}  // namespace

SeedPlan SeedPlan::draw(std::uint64_t seed) {
  constexpr std::uint32_t kDepths[] = {2, 3, 4, 31, 32, 33, 70};
  constexpr std::uint64_t kTickets[] = {0, 0xFFFE, 0xFFFF'FFFE, 0x1'0000'0000 - 1, UINT64_MAX - 1, UINT64_MAX};
  constexpr std::uint32_t kLanes[] = {1, 5, 16, 24, 32, 33, 40};
  constexpr std::uint32_t kServerLanes[] = {2, 7, 32};
  constexpr std::uint32_t kQueues[] = {1, 1, 1, 2, 3};
  Rng rng(splitmix64(seed));
  SeedPlan plan;
  plan.seed = seed;
  plan.queues = pick(rng, kQueues);
  plan.entries = pick(rng, kDepths);
  plan.cq_entries = rng.below(4) == 0 ? pick(rng, kDepths) : plan.entries;
  plan.first_ticket = pick(rng, kTickets);
  plan.lanes = pick(rng, kLanes);
  plan.steps = plan.lanes > 16 ? 1 + static_cast<std::uint32_t>(rng.below(3)) : 4;
  plan.server = static_cast<Server>(rng.below(3));
  plan.server_lanes = pick(rng, kServerLanes);
  plan.timeout_ns = 1'000'000'000;
  switch (rng.below(8)) {
    case 0:
      plan.unkindness.late_one_in = 8;
      break;
    case 1:
      plan.unkindness.lost_one_in = 8;
      break;
    case 2:
      plan.abort_after_ns = 1 + rng.below(4'000);
      break;
    case 3:
      plan.restart_after_ns = 1 + rng.below(4'000);
      break;
    default:
      break;
  }
  if (plan.unkindness.late_one_in != 0 || plan.unkindness.lost_one_in != 0) plan.timeout_ns = 20'000;
  plan.unkindness.longest_ns = 100 + rng.below(1'500);
  return plan;
}

std::string SeedPlan::text() const {
  static constexpr const char* kServers[] = {"callers", "kernel", "host"};
  std::string text = "seed " + std::to_string(seed) + ": " + std::to_string(queues) + " queues of " +
                     std::to_string(entries) + " (completion " + std::to_string(cq_entries) +
                     ") entries, tickets from " + std::to_string(first_ticket) + ", " + std::to_string(lanes) +
                     " lanes x " + std::to_string(steps) + ", served by " + kServers[static_cast<int>(server)];
  if (unkindness.late_one_in != 0) text += ", late answers";
  if (unkindness.lost_one_in != 0) text += ", lost answers";
  if (abort_after_ns != 0) text += ", abort after " + std::to_string(abort_after_ns) + " ns";
  if (restart_after_ns != 0) text += ", service stopped after " + std::to_string(restart_after_ns) + " ns";
  return text + " (replay: FLASHMOB_GPU_SEED=" + std::to_string(seed) + ")";
}

SeedResult run_seed(ScriptedSsd& ssd, std::uint64_t seed) {
  const SeedPlan plan = SeedPlan::draw(seed);
  return Run(ssd, plan).run();
}

}  // namespace flashmob::gpu::testing
