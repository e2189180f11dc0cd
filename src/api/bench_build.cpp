// Bench: from options to a device or a door, a store whose content is known, and jobs that are ready to run.
#include <algorithm>
#include <thread>

#include "api/bench_impl.h"
#include "api/door_store.h"
#include "api/open_target.h"
#include "command_set/placement.h"

namespace flashmob {
namespace {

// How long commands that only faults can hold back are waited for.
constexpr std::uint64_t kPatienceNs = 10'000'000;

constexpr std::uint64_t kSpinNs = 3'600'000'000'000;

// The load generator writes blocks in any order, which is the NVM command set's alone to take.
void check_writes(bool has_writes, bool takes_any_order, const std::string& set) {
  if (has_writes && !takes_any_order)
    throw ConfigError("the namespace's command set is " + set +
                      ", whose blocks cannot be written in any order: use rw = read or randread");
}

}  // namespace

void Bench::Impl::build() {
  trace.load(options);
  if (options.target.empty())
    open_own_device();
  else
    open_door();
  try {
    if (door) prepare_door_store();
    phase = "ramp";
    make_jobs();
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception&) {
    // Another process's device that goes away before the first request ends the run as one does that goes later: what
    // failed is a result, and the run of no jobs finds the device gone.
    if (!door || !driver->fatal()) throw;
    not_fillable = "the device failed before the load began";
    make_verifier(load::TruthSource::none);
    phase = "ramp";
  }
  if (!device) return;
  if (cancelled) throw CancelledBuild();
  begun_with = device->engine().clone_model();
}

void Bench::Impl::open_own_device() {
  trace.size_namespace(options, config.subsystem.namespaces.at(0));
  // Whether a file was there before decides what its blocks are verified against.
  const std::string& media = config.subsystem.namespaces.at(0).media;
  if (media == "generated" && trace.empty() && has_writes())
    throw ConfigError("media = generated cannot be written, and rw = " + options.rw +
                      " writes: use media = memory, or rw = randread");
  const std::string& set = config.subsystem.namespaces.at(0).command_set;
  if (set == "kv")
    throw ConfigError(
        "command_set = kv has no blocks to read or write: the load generator is for namespaces that have");
  takes_any_order = set == "nvm";
  const PlacementConfig& placement = config.subsystem.placement;
  if (options.placement == "apart" && (placement.handles == 0 || !placement.enabled))
    throw ConfigError("placement = apart is for drives that keep writes apart; set subsystem.placement.handles, too");
  check_writes(has_writes(), takes_any_order, set);
  const bool file_existed = api::FileView::exists(media);
  // A unit that sleeps between two requests of a measured run would be measured, too.
  if (config.engine.idle_spin_ns == EngineConfig{}.idle_spin_ns) config.engine.idle_spin_ns = kSpinNs;
  // Besides the device's model, one as it was at the beginning, and the yardstick's.
  constexpr std::uint64_t kModels = 3;
  device = std::make_unique<api::Device>(config, clock, kModels);
  prepare_own_store(file_existed);
  if (is_virtual) {
    world = std::make_unique<engine::VirtualWorld>(clock);
    world->add(device->engine());
    device->engine().move_at_once();
    world->shuffle(config.seed);
  } else {
    device->start();
  }
  start_driver();
}

void Bench::Impl::prepare_own_store(bool file_existed) {
  const std::string& media = config.subsystem.namespaces.at(0).media;
  const std::lock_guard lock(device->subsystem().mutex());
  const command_set::Namespace& current = *device->subsystem().info(1).current;
  namespace_bytes = current.blocks << current.lba_shift;
  lba_shift = current.lba_shift;
  trace.fit(namespace_bytes, 1u << lba_shift, config.controller.max_transfer_bytes);
  if (media == "memory" && config.engine.move_data) trace.need_memory(api::fillable_bytes());
  const bool generated = media == "generated";
  load::TruthSource source = load::TruthSource::none;
  if (generated)
    source = load::TruthSource::content;
  else if (file_existed)
    source = load::TruthSource::file;
  else if (options.fill && config.engine.move_data && takes_any_order) {
    const auto start = std::chrono::steady_clock::now();
    fill_total_bytes = namespace_bytes;
    if (api::fill_media(*current.media, namespace_bytes, trace.touched(), 1, config.seed, media == "memory",
                        fill_fraction, cancelled))
      source = load::TruthSource::content;
    else if (!cancelled)
      not_fillable = "a store of " + std::to_string(namespace_bytes) +
                     " bytes is more than three quarters of the memory that is available: a smaller size can be filled";
    fill_seconds = seconds_since(start);
  }
  if (cancelled) throw CancelledBuild();
  timing::TimingModel& model = device->engine().model();
  const std::uint64_t first_unit = device->subsystem().info(1).unit_base, units = device->subsystem().info(1).units;
  if (options.precondition == "steady") {
    if (media != "memory")
      throw ConfigError(
          "precondition = steady is for media = memory: another medium is not empty when the drive begins");
    if (!model.assume_steady(first_unit, units, &cancelled))
      throw ConfigError("precondition = steady is for timing.model = \"nand\": model " + config.timing.model +
                        " keeps nothing of what was written; leave it out");
  } else if ((options.fill || !config.engine.move_data) && media == "memory") {
    // Of a drive that was filled all blocks were written, and without data nothing else tells whether it was.
    model.assume_written(first_unit, units, &cancelled);
  }
  if (cancelled) throw CancelledBuild();
  if (!config.engine.move_data || options.verify_percent == 0) source = load::TruthSource::none;
  if (source == load::TruthSource::file) file = std::make_unique<api::FileView>(media);
  make_verifier(source);
}

// The device is another process's: only its driver can say what it is, and only I/O can fill it.
void Bench::Impl::open_door() {
  api::Target target = api::target_of(options);
  target.is_hurried = &cancelled;
  if (!may_write() && has_writes())
    throw ConfigError(options.target + " would be overwritten, and nobody allowed that (--allow-writes)");
  door = api::open_target(target);
  over_network = options.target.starts_with("nvme-tcp:");
  start_driver();
  const api::DoorNamespace found = api::examine_namespace(*driver);
  nsid = found.blocks.nsid;
  takes_any_order = found.csi == nvme::Csi::nvm;
  check_writes(has_writes(), takes_any_order, "number " + std::to_string(static_cast<unsigned>(found.csi)));
  namespace_bytes = found.blocks.bytes();
  lba_shift = found.blocks.lba_shift;
  config.profile = options.target;
  config.controller.max_transfer_bytes = found.max_transfer_bytes;
  config.subsystem.namespaces.assign(1, NamespaceConfig{.size_bytes = namespace_bytes, .lba_bytes = 1u << lba_shift});
  trace.fit(namespace_bytes, 1u << lba_shift, found.max_transfer_bytes);
}

void Bench::Impl::prepare_door_store() {
  const api::DoorNamespace store{
      {.nsid = nsid, .lba_shift = static_cast<std::uint8_t>(lba_shift), .blocks = namespace_bytes >> lba_shift},
      config.controller.max_transfer_bytes};
  load::TruthSource source = load::TruthSource::none;
  if (options.verify_percent > 0 && takes_any_order) {
    const auto start = std::chrono::steady_clock::now();
    fill_total_bytes = namespace_bytes;
    source = api::prepare_store(*driver, store, config.seed, options.fill && may_write(), fill_fraction,
                                {options.silence_ns, cancelled});
    fill_seconds = seconds_since(start);
  }
  make_verifier(source);
}

void Bench::Impl::start_driver() {
  const driver::Waiter waiter{[this] {
                                if (world)
                                  world->step(options.virtual_poll_ns);
                                else
                                  std::this_thread::yield();
                              },
                              [this] { return clock.now_ns(); }};
  driver = std::make_unique<driver::NvmeDriver>(pci(), waiter);
  driver->enable();
}

bool Bench::Impl::may_write() const { return options.allow_writes || !api::is_pci(options.target); }

bool Bench::Impl::has_writes() const {
  if (!trace.empty()) return trace.changes_data();
  if (options.rw == "read" || options.rw == "randread") return false;
  return options.rw == "write" || options.rw == "randwrite" || options.read_share < 1.0;
}

void Bench::Impl::make_verifier(load::TruthSource source) {
  verifier = std::make_unique<load::Verifier>(source, namespace_bytes, nsid, config.seed, has_writes(),
                                              file ? file->bytes() : std::span<const std::byte>{});
}

load::Pattern Bench::Impl::pattern(std::uint32_t stream) const {
  load::PatternConfig p;
  p.rw = options.rw;
  p.read_share = options.read_share;
  p.block_sizes = options.block_sizes;
  p.distribution = options.distribution;
  p.namespace_blocks = namespace_bytes >> lba_shift;
  p.lba_shift = lba_shift;
  p.stream_index = stream;
  p.stream_count = options.queues;
  p.placement_seed = config.seed;
  p.placement_handles = static_cast<std::uint32_t>(placement_handles().size());
  return load::Pattern(p, Rng(splitmix64(config.seed ^ (0x1000 + stream))));
}

// The reclaim unit handles that writes say they are for; none where they say nothing.
std::vector<std::uint16_t> Bench::Impl::placement_handles() const {
  if (options.placement != "apart") return {};
  return command_set::configured_handles(config.subsystem.placement, config.subsystem.namespaces.at(0));
}

load::LoopKind Bench::Impl::loop() const {
  if (!trace.empty()) return options.trace_as_fast ? load::LoopKind::trace_as_fast : load::LoopKind::trace;
  return options.rate_iops > 0 ? load::LoopKind::open : load::LoopKind::closed;
}

std::uint64_t Bench::Impl::requesters() const {
  return options.requesters == 0 ? std::uint64_t{options.queues} * options.queue_depth : options.requesters;
}

std::uint64_t Bench::Impl::requesters_of(std::uint32_t queue) const {
  return requesters() / options.queues + (queue < requesters() % options.queues ? 1 : 0);
}

std::uint64_t Bench::Impl::job_seed(std::uint32_t thread) const { return splitmix64(config.seed ^ (0x2000 + thread)); }

load::JobConfig Bench::Impl::job_config() const {
  load::JobConfig job;
  job.nsid = nsid;
  job.lba_shift = lba_shift;
  job.max_io_bytes = max_io_bytes;
  job.queue_depth = options.queue_depth;
  job.think_time_ns = options.think_time_ns;
  job.poisson = options.arrivals == "poisson";
  job.loop = loop();
  // The excuses of the verdict ask for it: those of more requesters than slots, and of requests that verification
  // moves; and so does what injected faults can have done.
  job.tells_waits = !config.faults.empty() || requesters() > std::uint64_t{options.queues} * options.queue_depth ||
                    (job.loop == load::LoopKind::open && options.verify_percent != 0);
  // What other places do to a closed loop, whose arrivals are answers, its own targets tell.
  job.lists_moved = job.loop == load::LoopKind::open && options.verify_percent >= 100;
  job.ramp_ns = trace.empty() ? options.ramp_ns : 0;
  // A trace with its own timing holds no more than was asked for, and ends when all of it is answered.
  const bool by_time = trace.empty() || (options.trace_as_fast && options.runtime_ns != 0);
  job.runtime_ns = by_time ? options.runtime_ns : load::JobConfig::kNoEnd;
  job.verify_percent = options.verify_percent;
  job.use_interrupts = is_virtual;
  job.predicts = completion == load::Completion::hybrid;
  job.gap_ns = config.fidelity.gap_ns;
  job.patience_ns = patience_ns();
  return job;
}

void Bench::Impl::make_jobs() {
  max_io_bytes = 0;
  for (const BlockSizeShare& share : options.block_sizes) max_io_bytes = std::max(max_io_bytes, share.bytes);
  if (!trace.empty()) max_io_bytes = trace.max_io_bytes();
  if (max_io_bytes > config.controller.max_transfer_bytes)
    throw ConfigError("block size " + std::to_string(max_io_bytes) + " is above controller.max_transfer_bytes = " +
                      std::to_string(config.controller.max_transfer_bytes));
  const std::uint32_t granted = driver->request_queues(options.queues);
  if (granted < options.queues)
    throw ConfigError("queues = " + std::to_string(options.queues) + ", but the device offers " +
                      std::to_string(granted) + "; raise controller.max_queue_pairs");
  path_ns = find_path_ns();
  if (device) device->engine().set_path_ns(path_ns);
  load::JobConfig job = job_config();
  // In real time somebody else watches over the controller.
  if (device) job.nothing_comes = [this] { return (is_virtual && driver->fatal()) || only_lost_commands_are_left(); };
  const auto group = std::make_shared<load::JobGroup>();
  std::vector<std::unique_ptr<load::Job>> made;  // published to progress() when complete
  for (std::uint32_t t = 0; t < options.threads; ++t) {
    // Counts are of all jobs together; a ramp by count lets every requester go round twice before measuring.
    job.group = group;
    job.ios = trace.empty() ? options.ios : 0;
    job.ramp_ios = trace.empty() ? 2 * requesters() : 0;
    job.seed = job_seed(t);
    const bool leads = t == 0;
    made.push_back(std::make_unique<load::Job>(
        job, clock, pci(), *verifier, leads ? std::function<void()>([this] { on_measure(); }) : std::function<void()>(),
        leads ? std::function<void()>([this] { on_measured(); }) : std::function<void()>()));
  }
  for (std::uint32_t q = 0; q < options.queues; ++q) {
    const std::uint32_t entries = options.queue_entries == 0 ? options.queue_depth + 1 : options.queue_entries;
    driver::QueueOptions queue;
    queue.sq_entries = std::max(2u, entries);
    queue.interrupts = is_virtual || completion != load::Completion::poll;
    queue.vector = vector_of(q);
    driver::QueuePair& pair = driver->create_queue_pair(queue);
    load::Job& owner = *made[q % options.threads];
    owner.add_queue(pair, pattern(q), requesters_of(q), options.rate_iops / options.queues,
                    trace.share(q, options.queues));
    if (is_virtual)
      pci().set_interrupt(queue.vector, [this, &owner, index = q / options.threads] { interrupt(owner, index); });
  }
  if (!is_virtual) arm_interrupts();
  for (auto& one : made) one->prepare();
  const std::lock_guard lock(mutex);
  jobs = std::move(made);
}

// Queues share vectors where the device has fewer; the first is the admin queue's, unless it is the only one. In
// virtual time each has its own.
std::uint16_t Bench::Impl::vector_of(std::uint32_t queue) {
  const std::uint32_t vectors = pci().interrupt_vectors();
  if (is_virtual || vectors > options.queues) return static_cast<std::uint16_t>(queue + 1);
  return static_cast<std::uint16_t>(vectors < 2 ? 0 : 1 + queue % (vectors - 1));
}

void Bench::Impl::arm_interrupts() {
  for (std::uint32_t t = 0; t < options.threads; ++t)
    waiters.push_back(std::make_unique<load::CompletionWaiter>(completion));
  if (completion == load::Completion::poll) return;
  for (std::uint32_t q = 0; q < options.queues; ++q) {
    std::vector<load::CompletionWaiter*>& woken = by_vector[vector_of(q)];
    load::CompletionWaiter* const waiter = waiters[q % options.threads].get();
    if (std::ranges::find(woken, waiter) == woken.end()) woken.push_back(waiter);
  }
  for (const auto& [vector, woken] : by_vector)
    pci().set_interrupt(vector, [this, &woken] {
      for (load::CompletionWaiter* const waiter : woken) waiter->interrupt([this] { return clock.now_ns(); });
    });
}

// A device of our own loses commands only if it is told to, and then we know how many; others may take their time.
std::uint64_t Bench::Impl::patience_ns() const {
  if (!device) return options.silence_ns;
  return config.faults.empty() ? 0 : kPatienceNs;
}

}  // namespace flashmob
