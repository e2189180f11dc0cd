#include "host/socket/served_engine.h"

#include <string>

#include "flashmob/error.h"
#include "host/engine/limits.h"

namespace flashmob::gpu {
namespace {

// Of the kernel's own time, between two looks at whether it has taken up a change.
constexpr std::uint64_t kWaitStepNs = 500;
// Fewer than a process may have mappings, with those that are in use.
constexpr std::size_t kMostKept = 16384;

const DeviceConfig& checked(const DeviceConfig& config) {
  declare_limits();
  config.validate();
  if (config.engine.kind != "gpu")
    throw ConfigError("engine.kind = \"" + config.engine.kind + "\" cannot be served over a gpu-socket: use \"gpu\"");
  if (!config.faults.empty())
    throw ConfigError("faults = [...] is not possible over a gpu-socket, which has no controller: leave them out");
  return config;
}

DeviceEngineOptions options_of(DeviceEngineOptions options, std::uint32_t controllers) {
  options.controllers = controllers;
  return options;
}

}  // namespace

ServedEngine::ServedEngine(const DeviceConfig& config, const Clock& clock, std::uint32_t controllers,
                           const MachineMaker& make_machine)
    : config_(checked(config)),
      clock_(clock),
      subsystem_(config_.subsystem, config_.seed, config_.timing.unit_bytes),
      machine_(make_machine(config_, clock)),
      engine_(std::make_unique<DeviceEngine>(machine_->memory(), config_.timing,
                                             options_of(machine_->options(config_.engine), controllers))) {
  open_media();
  for (std::uint32_t controller = 0; controller < controllers; ++controller)
    engine_->set_namespaces(namespaces_, config_.controller.max_transfer_bytes, controller::kMaxNamespaces, controller);
  engine_->commit();
  machine_->launch(*engine_);
}

ServedEngine::~ServedEngine() {
  try {
    if (!lost_) {
      engine_->end(engine::Run::stop);
      engine_->commit();
      machine_->join();
    }
    return_media();
  } catch (const std::exception&) {
    // The GPU has failed, and with it what it held.
  }
}

void ServedEngine::open_media() {
  for (std::uint32_t nsid = 1; nsid <= controller::kMaxNamespaces; ++nsid) {
    const command_set::Namespace* const ns = subsystem_.info(nsid).current;
    if (ns == nullptr) continue;
    if (ns->base == nullptr)
      throw ConfigError("subsystem.namespaces[" + std::to_string(nsid - 1) +
                        "].media = \"generated\" is out of a GPU engine's reach: use memory or cow:");
    ns->media->take_in();
    namespaces_.push_back({*ns, ns->writable});
    namespaces_.back().base = place_media(ns->base, ns->blocks << ns->lba_shift);
  }
}

std::byte* ServedEngine::place_media(std::byte* host, std::uint64_t bytes) {
  Media media{host, host, bytes};
  if (config_.engine.gpu_media == "device") {
    media.place = static_cast<std::byte*>(machine_->memory().allocate_device(bytes));
    machine_->memory().copy(media.place, host, bytes);
  } else {
    machine_->share(host, bytes);
  }
  media_.push_back(media);
  return media.place;
}

void ServedEngine::return_media() {
  for (const Media& media : media_) {
    if (media.place == media.host) machine_->unshare(media.host, media.bytes);
    if (media.place != media.host && !lost_) machine_->memory().copy(media.host, media.place, media.bytes);
  }
}

void ServedEngine::reserve_queues(std::uint32_t count) {
  const std::uint32_t free = most_queues() - reserved_queues_;
  if (count > free)
    throw ConfigError("queues = " + std::to_string(count) + " is not possible: " + std::to_string(free) +
                      " of the engine's " + std::to_string(most_queues()) +
                      " queues are free; use fewer, or serve with more multiprocessors");
  reserved_queues_ += count;
}

void ServedEngine::keep(vfio::PeerMemory file) {
  if (machine_->runs_by_itself()) kept_.push_back(std::move(file));
}

void ServedEngine::check_kept() const {
  if (kept_.size() >= kMostKept)
    throw ConfigError("the GPU holds as much memory of clients that are gone as it may: start the server anew");
}

bool ServedEngine::settle() {
  if (lost_) return false;
  const std::uint32_t epoch = engine_->commit();
  try {
    while (!lost_ && !engine_->taken_up(epoch)) lost_ = !machine_->step(kWaitStepNs);
  } catch (const std::exception& error) {
    lose(error);
  }
  return !lost_;
}

bool ServedEngine::let_run() {
  if (lost_) return false;
  try {
    if (machine_->runs_by_itself()) {
      lost_ = !machine_->step(0);
      return false;
    }
    const KernelPace::Turn turn = pace_.let_run(*engine_, *machine_, clock_.now_ns());
    lost_ = turn == KernelPace::Turn::lost;
    return turn == KernelPace::Turn::ran;
  } catch (const std::exception& error) {
    lose(error);
    return false;
  }
}

void ServedEngine::lose(const std::exception& error) {
  lost_ = true;
  why_lost_ = error.what();
}

}  // namespace flashmob::gpu
