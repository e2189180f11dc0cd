#include "host/socket/remote_memory.h"

#include <iterator>
#include <utility>

#include "base/check.h"

namespace flashmob::gpu {
namespace {

constexpr std::size_t kPage = 4096;
// Queues' parts are cut from pieces of so much: each piece is a mapping of both processes. CUDA, too, hands smaller
// pieces over together with their neighbours.
constexpr std::size_t kPieceBytes = 2 << 20;

std::size_t whole(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

bool RemoteLink::reaches(const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  const auto* first = static_cast<const std::byte*>(data);
  const auto after = reached.upper_bound(first);
  if (after == reached.begin()) return false;
  const auto& [start, size] = *std::prev(after);
  return first + bytes <= start + size;
}

bool RemoteLink::keep(memory::HostMemory& freed) {
  const std::lock_guard lock(mutex);
  if ((!client.gone() && !cuda) || service_ended) return false;
  kept.push_back(std::move(freed));
  return true;
}

void RemoteLink::end_service() {
  const std::lock_guard lock(mutex);
  service_ended = true;
  for (const memory::HostMemory& freed : kept)
    if (cuda) cuda->unshare_host_memory(freed.data(), freed.size());
  kept.clear();
}

RemoteMemory::RemoteMemory(std::shared_ptr<RemoteLink> link, std::size_t bytes)
    : link_(std::move(link)), memory_(bytes, memory::HostMemory::Kind::shared_memfd) {
  if (link_->cuda) link_->cuda->share_host_memory(memory_.data(), memory_.size());
  try {
    link_->client.map_file(memory_.data(), memory_.size(), memory_.fd());
  } catch (...) {
    if (link_->cuda) link_->cuda->unshare_host_memory(memory_.data(), memory_.size());
    throw;
  }
  memory_.close_fd();
  const std::lock_guard lock(link_->mutex);
  link_->reached[memory_.data()] = memory_.size();
}

RemoteMemory::~RemoteMemory() {
  {
    const std::lock_guard lock(link_->mutex);
    link_->reached.erase(memory_.data());
  }
  try {
    if (!link_->client.gone()) link_->client.unmap(memory_.data(), memory_.size());
  } catch (const std::exception&) {
    // The server is gone, or keeps its mapping until this client leaves; the file lives as long.
  }
  if (link_->keep(memory_)) return;
  if (link_->cuda) link_->cuda->unshare_host_memory(memory_.data(), memory_.size());
}

RemoteQueueMemory::~RemoteQueueMemory() {
  if (device_ == nullptr) return;
  link_->client.leave();
  link_->cuda->release(device_);
}

std::byte* RemoteQueueMemory::allocate(std::size_t bytes) {
  const std::size_t part = whole(bytes, kPage);
  if (part > left_) {
    const std::size_t piece = whole(part, kPieceBytes);
    next_ = made_.emplace_back(std::make_unique<RemoteMemory>(link_, piece))->data();
    left_ = piece;
  }
  left_ -= part;
  return std::exchange(next_, next_ + part);
}

void RemoteQueueMemory::reserve_rings(std::size_t bytes) {
  if (!on_gpu()) return;
  device_left_ = whole(bytes, kPieceBytes);
  device_ = static_cast<std::byte*>(link_->cuda->allocate(simt::CudaPlace::device, device_left_));
  device_next_ = device_;
  link_->client.map_cuda(device_, device_left_, link_->cuda->export_memory(device_));
}

std::byte* RemoteQueueMemory::allocate_ring(std::size_t bytes) {
  if (!on_gpu()) return allocate(bytes);
  const std::size_t part = whole(bytes, kPage);
  FLASHMOB_CHECK(part <= device_left_);
  device_left_ -= part;
  return std::exchange(device_next_, device_next_ + part);
}

std::byte* RemoteQueueMemory::allocate_near(std::size_t bytes) {
  if (near_is_seen_by_host()) return allocate(bytes);
  if (!kernels_) kernels_.emplace(*link_->cuda);
  return static_cast<std::byte*>(kernels_->allocate_device(bytes));
}

void RemoteQueueMemory::copy(void* to, const void* from, std::size_t bytes) {
  if (near_is_seen_by_host())
    QueueMemory::copy(to, from, bytes);
  else
    link_->cuda->copy(to, from, bytes);
}

}  // namespace flashmob::gpu
