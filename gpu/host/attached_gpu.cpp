#include "host/attached_gpu.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "flashmob/error.h"
#include "host/copy_file.h"

namespace flashmob::gpu {
namespace {

constexpr std::uint64_t kDrainTimeoutNs = 10'000'000'000;
// Less than FibreOptions::patience_ns: an idle service is no livelock.
constexpr std::uint64_t kLongestPassNs = 50'000'000;

}  // namespace

// On a GPU it comes from there, pinned: what is freed beside a service that runs serves the next one who asks.
GpuMemory::GpuMemory(Parts parts, std::size_t bytes) : parts_(std::move(parts)) {
  if (!parts_.second) {
    memory_.emplace(parts_.first->devices(), bytes);
  } else {
    const std::size_t whole = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    pinned_ = parts_.second->allocate(simt::CudaPlace::pinned_host, whole);
    try {
      memory_.emplace(parts_.first->devices(), pinned_, whole);
    } catch (...) {
      parts_.second->release(pinned_);
      throw;
    }
  }
  parts_.first->note(data(), size());
}

GpuMemory::GpuMemory(Parts parts, void* data, std::size_t bytes) : parts_(std::move(parts)) {
  memory_.emplace(parts_.first->devices(), data, bytes);
  if (parts_.second) parts_.second->share_host_memory(data, bytes);
  parts_.first->note(this->data(), size());
}

GpuMemory::~GpuMemory() {
  parts_.first->forget(data());
  void* const place = data();
  const std::size_t bytes = size();
  memory_.reset();
  if (pinned_ != nullptr)
    parts_.second->release(pinned_);
  else if (parts_.second)
    parts_.second->unshare_host_memory(place, bytes);
}

GpuQueueMemory::GpuQueueMemory(GpuMemory::Parts parts, Placement rings) : parts_(std::move(parts)), rings_(rings) {
  if (parts_.second) near_.emplace(*parts_.second);
}

template <class Make>
std::byte* GpuQueueMemory::cut(Piece& piece, std::size_t bytes, Make make) {
  constexpr std::size_t kLargest = std::size_t{2} << 20;
  const std::size_t whole = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (whole > piece.left) {
    piece.bytes = std::min(2 * piece.bytes, kLargest);
    piece.left = std::max(whole, piece.bytes);
    piece.next = make(piece.left);
  }
  piece.left -= whole;
  return std::exchange(piece.next, piece.next + whole);
}

std::byte* GpuQueueMemory::allocate(std::size_t bytes) {
  return cut(host_piece_, bytes, [this](std::size_t piece) {
    return made_.emplace_back(std::make_unique<GpuMemory>(parts_, piece))->data();
  });
}

NearMemory::NearMemory(GpuMemory::Parts parts, std::size_t bytes, bool for_ssds) : parts_(std::move(parts)) {
  const std::size_t whole = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  data_ = static_cast<std::byte*>(parts_.second->allocate(simt::CudaPlace::device, whole));
  if (!for_ssds) return;
  try {
    reached_.emplace(parts_.first->devices(), data_, whole);
    parts_.first->note(data_, whole);
  } catch (...) {
    parts_.second->release(data_);
    throw;
  }
}

NearMemory::~NearMemory() {
  if (reached_) parts_.first->forget(data_);
  reached_.reset();
  parts_.second->release(data_);
}

std::byte* GpuQueueMemory::allocate_ring(std::size_t bytes) {
  if (!on_gpu()) return allocate(bytes);
  return cut(ring_piece_, bytes, [this](std::size_t piece) {
    return made_rings_.emplace_back(std::make_unique<NearMemory>(parts_, piece, true))->data();
  });
}

std::byte* GpuQueueMemory::allocate_near(std::size_t bytes) {
  return near_ ? static_cast<std::byte*>(near_->allocate_device(bytes)) : allocate(bytes);
}

void GpuQueueMemory::copy(void* to, const void* from, std::size_t bytes) {
  if (near_)
    near_->copy(to, from, bytes);
  else
    QueueMemory::copy(to, from, bytes);
}

void check_device_queues(const std::vector<DeviceConfig>& ssds, const std::string& service) {
  const std::string placement = "gpu.queue_placement = \"device\" is not possible: ";
  for (std::size_t i = 0; i < ssds.size(); ++i) {
    if (ssds[i].engine.kind != "gpu")
      throw ConfigError(placement + "SSD " + std::to_string(i) +
                        "'s engine runs on the host, which cannot poll a GPU's memory; run it on the GPU "
                        "(engine.kind = \"gpu\", --engine gpu), or use \"host\"");
  }
  if (service != "kernel")
    throw ConfigError(placement + "gpu.service = \"" + service +
                      "\" takes completions in on the host; use service \"kernel\", or placement \"host\"");
}

AttachedGpu::AttachedGpu(const std::vector<DeviceConfig>& ssds, const GpuOptions& options)
    : options_((options.validate(), options)),
      backend_(choose_backend(options.backend, options.clock)),
      engines_on_gpu_(std::ranges::all_of(ssds, [](const DeviceConfig& ssd) { return ssd.engine.kind == "gpu"; })),
      group_(std::make_shared<SsdGroup>(ssds, backend_.backend == Backend::fibres)),
      cuda_(backend_.backend == Backend::cuda ? std::make_shared<simt::CudaBackend>() : nullptr),
      queue_memory_(parts(), queue_placement(ssds)) {
  create_queues(ssds);
  share_doorbells();
  if (backend_.backend == Backend::fibres) {
    simt::FibreOptions fibre_options;
    fibre_options.seed = options_.seed;
    fibre_options.schedule = options_.schedule == "random" ? simt::Schedule::random : simt::Schedule::timed;
    fibres_ = std::make_unique<simt::FibreDevice>(*group_->world(), fibre_options);
  } else if (backend_.backend == Backend::threads) {
    threads_ = std::make_unique<simt::ThreadDevice>(group_->clock());
  }
  std::vector<SsdRef> refs;
  for (const auto& each : queues_) refs.push_back(each->ref());
  service_ = std::make_unique<GpuService>(*this, group_->world(), group_->clock(), refs, queue_memory_);
}

AttachedGpu::~AttachedGpu() {
  service_.reset();
  fibres_.reset();
  threads_.reset();
  for (std::uint32_t i = 0; cuda_ && i < queues_.size(); ++i)
    cuda_->unshare_host_memory(group_->devices()[i]->doorbells(), queues_[i]->doorbell_bytes());
  queues_.clear();
}

// A GPU rings doorbells by itself.
void AttachedGpu::share_doorbells() {
  if (!cuda_) return;
  for (std::uint32_t i = 0; i < group_->size(); ++i)
    cuda_->share_host_memory(group_->devices()[i]->doorbells(), queues_[i]->doorbell_bytes());
}

void AttachedGpu::create_queues(const std::vector<DeviceConfig>& ssds) {
  QueueLayout layout;
  layout.queues = options_.queues;
  layout.entries = options_.queue_depth;
  layout.max_transfer_bytes = options_.max_transfer_bytes;
  for (std::uint32_t i = 0; i < group_->size(); ++i) {
    if (options_.queues > group_->free_queue_pairs(i))
      throw ConfigError("gpu.queues = " + std::to_string(options_.queues) + " is not possible: SSD " +
                        std::to_string(i) + " has " + std::to_string(group_->free_queue_pairs(i)) +
                        " queue pairs for kernels; use fewer, or raise controller.max_queue_pairs");
    const SsdQueues& made =
        *queues_.emplace_back(std::make_unique<SsdQueues>(group_->driver(i), layout, &queue_memory_));
    SsdInfo& info = infos_.emplace_back();
    info.profile = ssds[i].profile;
    info.queues = made.layout().queues;
    info.queue_depth = made.layout().entries;
    info.queue_placement = queue_placement(ssds);
    info.max_transfer_bytes = made.layout().max_transfer_bytes;
    for (const NamespaceInfo& ns : made.namespaces()) {
      info.lba_bytes.push_back(std::uint32_t{1} << ns.lba_shift);
      info.namespace_bytes.push_back(ns.blocks << ns.lba_shift);
    }
  }
}

// A GPU's own memory is out of reach of an emulated SSD, which is host code.
Placement AttachedGpu::kept(Placement asked) const { return cuda_ ? Placement::host : asked; }

Placement AttachedGpu::queue_placement(const std::vector<DeviceConfig>& ssds) const {
  if (options_.queue_placement == "host") return Placement::host;
  if (options_.queue_placement == "auto")
    return engine_stays() && options_.service == "kernel" ? Placement::device : Placement::host;
  if (!cuda_) return Placement::device;
  check_device_queues(ssds, options_.service);
  return Placement::device;
}

void AttachedGpu::check_ssd(std::uint32_t ssd) const {
  if (ssd < group_->size()) return;
  throw ConfigError("ssd = " + std::to_string(ssd) + " is not possible: SSDs 0 to " +
                    std::to_string(group_->size() - 1) + " are attached");
}

const NamespaceInfo& AttachedGpu::find_namespace(std::uint32_t ssd, std::uint32_t index) const {
  check_ssd(ssd);
  const std::vector<NamespaceInfo>& namespaces = queues_[ssd]->namespaces();
  if (index < namespaces.size()) return namespaces[index];
  throw ConfigError("namespace = " + std::to_string(index) + " is not possible: SSD " + std::to_string(ssd) + " has " +
                    std::to_string(namespaces.size()) + ", counted from 0");
}

const SsdInfo& AttachedGpu::ssd_info(std::uint32_t ssd) const {
  check_ssd(ssd);
  return infos_[ssd];
}

SsdRef AttachedGpu::ssd(std::uint32_t ssd) {
  check_ssd(ssd);
  return queues_[ssd]->ref();
}

template <class Owner>
Memory AttachedGpu::hold(std::shared_ptr<Owner> memory, std::size_t bytes, Placement placement) const {
  std::byte* const data = memory->data();
  group_->allocated_bytes += bytes;
  return {std::shared_ptr<std::byte>(data,
                                     [owner = std::move(memory), group = group_, bytes](std::byte*) mutable {
                                       owner.reset();
                                       group->allocated_bytes -= bytes;
                                     }),
          bytes, placement};
}

Memory AttachedGpu::allocate(std::size_t bytes, Placement placement) {
  if (bytes == 0) throw ConfigError("bytes = 0 is not possible: allocate at least one byte");
  return hold(std::make_shared<GpuMemory>(parts(), bytes), bytes, kept(placement));
}

Memory AttachedGpu::allocate_near(std::size_t bytes, bool for_ssds) {
  if (bytes == 0) throw ConfigError("bytes = 0 is not possible: allocate at least one byte");
  if (!cuda_ || (for_ssds && !engine_stays())) return allocate(bytes, Placement::device);
  return hold(std::make_shared<NearMemory>(parts(), bytes, for_ssds), bytes, Placement::device);
}

Memory AttachedGpu::share(void* data, std::size_t bytes) {
  if (data == nullptr || bytes == 0) throw ConfigError("bytes = 0 is not possible: share at least one byte");
  if (group_->reaches(data, bytes))
    return {std::shared_ptr<std::byte>(static_cast<std::byte*>(data), [](std::byte*) {}), bytes, Placement::host};
  return hold(std::make_shared<GpuMemory>(parts(), data, bytes), bytes, Placement::host);
}

void AttachedGpu::copy(void* to, const void* from, std::size_t bytes) {
  if (cuda_)
    cuda_->copy(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

bool AttachedGpu::engine_stays() const { return cuda_ && engines_on_gpu_; }

void AttachedGpu::start_service() { service_->start(); }

void AttachedGpu::stop_service() {
  if (service_->running() && !drain(kDrainTimeoutNs))
    throw std::runtime_error("commands are still in flight after 10 s; the SSD has not answered them");
  service_->stop();
}

simt::HostLane AttachedGpu::host_lane() {
  return {[this] { return now_ns(); }, [this](std::uint32_t ns) { pass(std::max<std::uint64_t>(ns, 1)); }};
}

bool AttachedGpu::drain(std::uint64_t timeout_ns) { return service_->drain(timeout_ns); }

void AttachedGpu::write(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba, const void* data,
                        std::uint64_t bytes) {
  group_->io(ssd).write(find_namespace(ssd, ns_index), lba, data, bytes);
}

void AttachedGpu::read(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba, void* data, std::uint64_t bytes) {
  group_->io(ssd).read(find_namespace(ssd, ns_index), lba, data, bytes);
}

std::uint64_t AttachedGpu::load_file(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba,
                                     const std::string& path) {
  return copy_file(*this, ssd, ns_index, find_namespace(ssd, ns_index), lba, path);
}

void AttachedGpu::pass(std::uint64_t duration_ns) {
  while (duration_ns != 0) {
    const std::uint64_t part_ns = std::min(duration_ns, kLongestPassNs);
    visit([&](auto& on) { on.pass(part_ns); });
    duration_ns -= part_ns;
  }
}

GpuStats AttachedGpu::stats() {
  simt::HostLane lane = host_lane();
  GpuStats out = service_->stats(lane);
  out.allocated_bytes = group_->allocated_bytes;
  return out;
}

void* AttachedGpu::device() {
  switch (backend_.backend) {
    case Backend::threads:
      return threads_.get();
    case Backend::cuda:
      return cuda_.get();
    default:
      return fibres_.get();
  }
}

std::unique_ptr<Gpu> attach(const std::vector<DeviceConfig>& ssds, const GpuOptions& options) {
  return std::make_unique<AttachedGpu>(ssds, options);
}

}  // namespace flashmob::gpu
