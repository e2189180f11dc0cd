#include "host/remote_gpu.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "driver/nvme_driver.h"
#include "flashmob/error.h"
#include "host/attach/host_io.h"
#include "host/copy_file.h"

namespace flashmob::gpu {
namespace {

constexpr std::uint64_t kDrainTimeoutNs = 10'000'000'000;
constexpr std::uint64_t kTimeoutNs = 30'000'000'000;  // of a command: an engine on fibres is slow
// Fibres take their turns in a time of their own, in which a server that is stopped for a second is slow for long.
constexpr std::uint64_t kFibrePatienceNs = UINT64_MAX;

// The host's own commands.
constexpr std::uint32_t kHostSlots = 16;
constexpr std::uint64_t kHostSlotBytes = 128 << 10;

GpuOptions checked(GpuOptions options) {
  if (options.clock == "virtual")
    throw ConfigError("gpu.clock = \"virtual\" is not possible: an SSD of another process works in real time");
  // Fibres have the real clock here.
  if (options.backend == "fibres") options.clock = "auto";
  options.validate();
  return options;
}

// What runs this process's kernels, and who runs the SSD.
BackendInfo backend_of(const GpuOptions& options, const std::string& engine) {
  const bool on_fibres = options.backend == "fibres";
  BackendInfo info = choose_backend(options.backend, on_fibres ? "auto" : "real");
  std::string why = info.reason;
  if (on_fibres || (options.backend == "auto" && info.backend != Backend::cuda)) {
    why = on_fibres ? "asked for" : why.substr(0, why.find(';'));
    info = choose_backend("fibres");
    info.clock = "real";
    why += ": kernels run as fibres on the CPU, in real time";
  }
  info.reason = why + "; the SSD is another process's: " + engine;
  return info;
}

Placement placement_of(const GpuOptions& options) {
  return options.queue_placement == "device" ? Placement::device : Placement::host;
}

std::string failure(bool is_write, IoStatus status) {
  const std::string what = is_write ? "write: " : "read: ";
  switch (status.kind) {
    case IoKind::aborted:
    case IoKind::refused:
      return what + "the SSD's server is gone";
    default:
      return what + "the SSD has not answered in " + std::to_string(kTimeoutNs / 1'000'000'000) + " s";
  }
}

}  // namespace

RemoteGpu::RemoteGpu(const std::string& path, const GpuOptions& options)
    : options_(checked(options)),
      link_(std::make_shared<RemoteLink>(path)),
      backend_(backend_of(options_, link_->client.described().engine)),
      queue_memory_(link_, placement_of(options_), Placement::device),
      host_memory_(link_, Placement::host, Placement::host) {
  make_device();
  make_queues();
  attach_queues();
  fill_info();
  service_ = std::make_unique<GpuService>(*this, nullptr, clock_, std::vector{ssd(0)}, queue_memory_);
  link_->client.watch([this] { end_waits(); });
}

// When the server is gone; on a thread of its own.
void RemoteGpu::end_waits() {
  std::atomic_ref(host_abort_.value).store(1, std::memory_order_release);
  try {
    put_word(queue_memory_, *kernels_abort_, 1u);
  } catch (const simt::CudaError&) {
    // The GPU has failed, and whoever waits for a kernel is told.
  }
}

RemoteGpu::~RemoteGpu() {
  service_.reset();
  fibres_.reset();
  threads_.reset();
  link_->end_service();
  link_->client.leave();
}

void RemoteGpu::make_device() {
  if (backend_.backend == Backend::cuda) {
    link_->cuda = std::make_shared<simt::CudaBackend>();
    if (placement_of(options_) == Placement::device && !link_->client.described().knows_cuda)
      throw ConfigError("gpu.queue_placement = \"device\" is not possible: " + link_->client.address() +
                        " is served by fibres, on the CPU; use \"host\"");
    if (placement_of(options_) == Placement::device && options_.service != "kernel")
      throw ConfigError("gpu.queue_placement = \"device\" is not possible: gpu.service = \"" + options_.service +
                        "\" takes completions in on the host; use service \"kernel\", or placement \"host\"");
  } else if (backend_.backend == Backend::threads) {
    threads_ = std::make_unique<simt::ThreadDevice>(clock_);
  } else {
    simt::FibreOptions fibres;
    fibres.seed = options_.seed;
    fibres.schedule = options_.schedule == "random" ? simt::Schedule::random : simt::Schedule::timed;
    fibres.patience_ns = kFibrePatienceNs;
    fibres_ = std::make_unique<simt::FibreDevice>(world_, fibres);
  }
}

QueueLayout RemoteGpu::layout() const {
  QueueLayout layout;
  layout.queues = options_.queues;
  layout.entries = layout.cq_entries = options_.queue_depth;
  layout.max_transfer_bytes = std::min(options_.max_transfer_bytes, link_->client.described().max_transfer_bytes);
  layout.timeout_ns = kTimeoutNs;
  return layout;
}

void RemoteGpu::make_queues() {
  const wire::Described& ssd = link_->client.described();
  if (ssd.namespaces.empty()) throw ConfigError(link_->client.address() + " has no namespace");
  for (const auto& ns : ssd.namespaces) namespaces_.push_back({ns.nsid, ns.lba_shift, ns.blocks});
  kernels_namespaces_ = put_near(queue_memory_, namespaces_);
  kernels_abort_ = put_near(queue_memory_, std::vector<simt::Word<std::uint32_t, simt::Scope::system>>(1));

  const QueueLayout kernels = layout();
  const std::size_t ring_bytes = kernels.entries * (sizeof(nvme::Sqe) + sizeof(nvme::Cqe)) + 2 * kPageBytes;
  const std::size_t doorbell_bytes = kernels.queues * 2 * sizeof(std::uint32_t);
  queue_memory_.reserve_rings(kernels.queues * ring_bytes + doorbell_bytes + kPageBytes);
  auto* const doorbells = reinterpret_cast<std::uint32_t*>(queue_memory_.allocate_ring(doorbell_bytes));
  queues_.resize(kernels.queues);
  for (std::uint32_t i = 0; i < kernels.queues; ++i) {
    lay_out(queues_[i], kernels, *kernels_abort_, queue_memory_);
    queues_[i].sq_doorbell = doorbells + 2 * i;
    queues_[i].cq_doorbell = doorbells + 2 * i + 1;
  }
  kernels_queues_ = put_near(queue_memory_, queues_);

  QueueLayout host = kernels;
  host.entries = host.cq_entries = kHostSlots + 1;
  lay_out(host_queue_, host, host_abort_, host_memory_);
  host_queue_.sq_doorbell = reinterpret_cast<std::uint32_t*>(host_memory_.allocate(2 * sizeof(std::uint32_t)));
  host_queue_.cq_doorbell = host_queue_.sq_doorbell + 1;
  bounce_ = host_memory_.allocate(kHostSlots * kHostSlotBytes);
}

void RemoteGpu::attach_queues() {
  std::vector<wire::QueuePair> pairs;
  const auto add = [&pairs](const Queue& queue) {
    const auto at = [](const auto* memory) { return reinterpret_cast<std::uint64_t>(memory); };
    pairs.push_back({at(queue.sq), at(queue.cq), at(queue.sq_doorbell), at(queue.cq_doorbell), queue.sq_entries,
                     queue.host_sees_rings ? 1u : 0u});
  };
  add(host_queue_);
  for (const Queue& queue : queues_) add(queue);
  link_->client.attach(pairs);
}

void RemoteGpu::fill_info() {
  info_.profile = link_->client.described().profile;
  info_.queues = options_.queues;
  info_.queue_depth = options_.queue_depth;
  info_.queue_placement = placement_of(options_);
  info_.max_transfer_bytes = layout().max_transfer_bytes;
  for (const NamespaceInfo& ns : namespaces_) {
    info_.lba_bytes.push_back(std::uint32_t{1} << ns.lba_shift);
    info_.namespace_bytes.push_back(ns.blocks << ns.lba_shift);
  }
}

void RemoteGpu::check_ssd(std::uint32_t ssd) const {
  if (ssd != 0) throw ConfigError("ssd = " + std::to_string(ssd) + " is not possible: one SSD, number 0, is attached");
}

const NamespaceInfo& RemoteGpu::find_namespace(std::uint32_t ssd, std::uint32_t index) const {
  check_ssd(ssd);
  if (index < namespaces_.size()) return namespaces_[index];
  throw ConfigError("namespace = " + std::to_string(index) + " is not possible: the SSD has " +
                    std::to_string(namespaces_.size()) + ", counted from 0");
}

const SsdInfo& RemoteGpu::ssd_info(std::uint32_t ssd) const {
  check_ssd(ssd);
  return info_;
}

SsdRef RemoteGpu::ssd(std::uint32_t ssd) {
  check_ssd(ssd);
  return {kernels_queues_, options_.queues, kernels_namespaces_, static_cast<std::uint32_t>(namespaces_.size()),
          layout().max_transfer_bytes};
}

SsdRef RemoteGpu::host_ref() {
  return {&host_queue_, 1, namespaces_.data(), static_cast<std::uint32_t>(namespaces_.size()),
          layout().max_transfer_bytes};
}

Memory RemoteGpu::allocate(std::size_t bytes, Placement placement) {
  if (bytes == 0) throw ConfigError("bytes = 0 is not possible: allocate at least one byte");
  auto memory = std::make_shared<RemoteMemory>(link_, bytes);
  std::byte* const data = memory->data();
  link_->allocated_bytes += bytes;
  return {std::shared_ptr<std::byte>(data,
                                     [owner = std::move(memory), link = link_, bytes](std::byte*) mutable {
                                       owner.reset();
                                       link->allocated_bytes -= bytes;
                                     }),
          bytes, link_->cuda ? Placement::host : placement};
}

// What commands name is a file that both processes map.
Memory RemoteGpu::allocate_near(std::size_t bytes, bool for_ssds) {
  if (!link_->cuda || for_ssds || bytes == 0) return allocate(bytes, Placement::device);
  auto* const data = static_cast<std::byte*>(link_->cuda->allocate(simt::CudaPlace::device, bytes));
  link_->allocated_bytes += bytes;
  return {std::shared_ptr<std::byte>(data,
                                     [link = link_, bytes](std::byte* freed) {
                                       link->cuda->release(freed);
                                       link->allocated_bytes -= bytes;
                                     }),
          bytes, Placement::device};
}

Memory RemoteGpu::share(void* data, std::size_t bytes) {
  if (link_->reaches(data, bytes))
    return {std::shared_ptr<std::byte>(static_cast<std::byte*>(data), [](std::byte*) {}), bytes, Placement::host};
  throw ConfigError(
      "memory of the caller's own is out of reach for an SSD of another process: allocate() it (Python: gpu.empty())");
}

void RemoteGpu::copy(void* to, const void* from, std::size_t bytes) {
  if (link_->cuda)
    link_->cuda->copy(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

void RemoteGpu::start_service() { service_->start(); }

void RemoteGpu::stop_service() {
  if (service_->running() && !link_->client.gone() && !drain(kDrainTimeoutNs))
    throw std::runtime_error("commands are still in flight after 10 s; the SSD has not answered them");
  service_->stop();
}

bool RemoteGpu::drain(std::uint64_t timeout_ns) { return service_->drain(timeout_ns); }

// The lane that host code is; kernels go on while it waits, and so does the server.
simt::HostLane RemoteGpu::host_lane() {
  return {[this] { return now_ns(); },
          [this](std::uint32_t ns) {
            std::this_thread::yield();
            pass(std::max<std::uint64_t>(ns, 1));
          }};
}

void RemoteGpu::write(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba, const void* data,
                      std::uint64_t bytes) {
  transfer(ssd, ns_index, lba, static_cast<std::byte*>(const_cast<void*>(data)), bytes, true);
}

void RemoteGpu::read(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba, void* data, std::uint64_t bytes) {
  transfer(ssd, ns_index, lba, static_cast<std::byte*>(data), bytes, false);
}

// In rounds of as many commands as the host's queue has slots.
void RemoteGpu::transfer(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba, std::byte* data,
                         std::uint64_t bytes, bool is_write) {
  const NamespaceInfo& ns = find_namespace(ssd, ns_index);
  check_transfer(ns, lba, bytes);
  const SsdRef queue = host_ref();
  const std::uint64_t part_bytes = std::min(kHostSlotBytes, queue.max_transfer_bytes());
  simt::HostLane lane = host_lane();
  while (bytes != 0) {
    std::array<Token, kHostSlots> tokens;
    const std::uint64_t round_bytes = std::min(bytes, kHostSlots * part_bytes);
    if (is_write) std::memcpy(bounce_, data, round_bytes);
    std::uint32_t count = 0;
    for (std::uint64_t at = 0; at < round_bytes; at += part_bytes) {
      const auto blocks = static_cast<std::uint32_t>(std::min(part_bytes, round_bytes - at) >> ns.lba_shift);
      const std::uint64_t first = lba + (at >> ns.lba_shift);
      tokens[count++] = is_write ? queue.write(lane, ns_index, first, blocks, bounce_ + at)
                                 : queue.read(lane, ns_index, first, blocks, bounce_ + at);
    }
    IoStatus status;
    for (std::uint32_t i = 0; i < count; ++i) {
      const IoStatus one = tokens[i].wait(lane);
      if (status.ok()) status = one;
    }
    if (status.kind != IoKind::completed) throw std::runtime_error(failure(is_write, status));
    if (!status.ok()) throw driver::NvmeError(is_write ? "write" : "read", status.field);
    if (!is_write) std::memcpy(data, bounce_, round_bytes);
    data += round_bytes;
    bytes -= round_bytes;
    lba += round_bytes >> ns.lba_shift;
  }
}

std::uint64_t RemoteGpu::load_file(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba,
                                   const std::string& path) {
  return copy_file(*this, ssd, ns_index, find_namespace(ssd, ns_index), lba, path);
}

void RemoteGpu::pass(std::uint64_t duration_ns) {
  visit([&](auto& on) { on.pass(duration_ns); });
}

GpuStats RemoteGpu::stats() {
  simt::HostLane lane = host_lane();
  GpuStats out = service_->stats(lane);
  out.allocated_bytes = link_->allocated_bytes;
  return out;
}

void* RemoteGpu::device() {
  switch (backend_.backend) {
    case Backend::threads:
      return threads_.get();
    case Backend::cuda:
      return link_->cuda.get();
    default:
      return fibres_.get();
  }
}

std::unique_ptr<Gpu> attach_remote(const std::string& path, const GpuOptions& options) {
  return std::make_unique<RemoteGpu>(path, options);
}

}  // namespace flashmob::gpu
