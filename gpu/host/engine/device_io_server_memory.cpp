// Memory regions and namespaces of controllers on their way to the GPU engine.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "host/engine/device_io_server.h"

namespace flashmob::gpu {
namespace {

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

}  // namespace

void DeviceIoServer::take_regions(Port& port, const std::vector<memory::Region>& regions) {
  std::vector<engine::Region> known;
  for (const memory::Region& region : regions)
    known.push_back({region.iova, region.bytes, region.host, region.writable});
  // Where this throws, nothing has changed.
  std::size_t shared = 0;
  try {
    for (; shared < regions.size(); ++shared) machine_->share(regions[shared].host, regions[shared].bytes);
    engine_->set_regions(std::move(known), port.number);
  } catch (...) {
    while (shared-- != 0) machine_->unshare(regions[shared].host, regions[shared].bytes);
    throw;
  }
  const auto has_ring = [&](const Sq& sq) {
    const Cq& cq = port.cqs.at(sq.spec.cqid);
    return holds(regions, sq.spec.iova, std::uint64_t{sq.spec.entries} * sizeof(nvme::Sqe),
                 reinterpret_cast<const std::byte*>(sq.ring)) &&
           holds(regions, cq.spec.iova, std::uint64_t{cq.spec.entries} * sizeof(nvme::Cqe),
                 reinterpret_cast<const std::byte*>(cq.ring));
  };
  close_queues(port, engine::QueueState::dropping, [&](const Sq& sq) { return !has_ring(sq); });
  for (auto& [cqid, cq] : port.cqs) {
    const std::uint64_t bytes = std::uint64_t{cq.spec.entries} * sizeof(nvme::Cqe);
    if (cq.ring != nullptr && !holds(regions, cq.spec.iova, bytes, reinterpret_cast<std::byte*>(cq.ring)))
      cq.ring = nullptr;
  }
  settle();
  for (const memory::Region& region : port.regions) machine_->unshare(region.host, region.bytes);
  port.regions = regions;
}

// --- Namespaces ---

void DeviceIoServer::namespaces_changed(controller::Controller& controller) {
  const std::lock_guard lock(mutex_);
  Port* const port = find(controller);
  if (port == nullptr) return;
  publish_namespaces(*port);
  settle();
  if (!port->cqs.empty()) upload_media(*port);
}

void DeviceIoServer::publish_namespaces(Port& port) {
  std::vector<engine::DeviceNamespace> list;
  for (std::uint32_t nsid = 1; nsid <= controller::kMaxNamespaces; ++nsid) {
    const command_set::Namespace* const ns = port.controller.attached(nsid);
    if (ns == nullptr) continue;
    FLASHMOB_CHECK(ns->base != nullptr);
    list.push_back({*ns, command_set::may_write(*ns, port.controller.io_limits())});
    list.back().base = media_of(*ns);
  }
  engine_->set_namespaces(list, config_.controller.max_transfer_bytes, controller::kMaxNamespaces, port.number);
}

std::byte* DeviceIoServer::media_of(const command_set::Namespace& ns) {
  if (const auto held = gpu_media_.find(ns.base); held != gpu_media_.end()) return held->second.place;
  GpuMedia media;
  media.bytes = ns.blocks << ns.lba_shift;
  if (config_.engine.gpu_media == "device") {
    media.place = static_cast<std::byte*>(machine_->memory().allocate_device(media.bytes));
  } else {
    machine_->share(ns.base, media.bytes);
    media.place = ns.base;
  }
  gpu_media_[ns.base] = media;
  return media.place;
}

// Namespaces in the GPU's own memory get what host code has put into them: before the first queue is made, and where a
// host has formatted or made one since. Controllers that share one share its bytes.
void DeviceIoServer::upload_media(Port& port) {
  for (std::uint32_t nsid = 1; nsid <= controller::kMaxNamespaces; ++nsid) {
    const command_set::Namespace* const ns = port.controller.attached(nsid);
    if (ns == nullptr) continue;
    GpuMedia& media = gpu_media_.at(ns->base);
    if (media.place != ns->base && media.holds != ns) machine_->memory().copy(media.place, ns->base, media.bytes);
    media.holds = ns;
  }
}

// Data outlive the controllers that wrote them.
void DeviceIoServer::return_media() {
  for (const auto& [base, media] : gpu_media_) {
    if (media.place == base) machine_->unshare(base, media.bytes);
    if (media.place != base && media.holds != nullptr) machine_->memory().copy(base, media.place, media.bytes);
  }
  gpu_media_.clear();
}

}  // namespace flashmob::gpu
