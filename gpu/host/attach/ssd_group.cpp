#include "host/attach/ssd_group.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "flashmob/error.h"

namespace flashmob::gpu {
namespace {

constexpr std::size_t kMaxSsds = 16;
constexpr std::uint32_t kMaxQueuePairs = 4097;  // those of kernels, and the host's own

}  // namespace

SsdGroup::SsdGroup(const std::vector<DeviceConfig>& configs, bool virtual_time) {
  if (configs.empty() || configs.size() > kMaxSsds)
    throw ConfigError("gpu.ssds = " + std::to_string(configs.size()) + " is not possible: attach 1 to " +
                      std::to_string(kMaxSsds) + " SSDs");
  if (virtual_time) world_ = std::make_unique<VirtualWorld>();
  for (const DeviceConfig& config : configs) {
    Member& member = members_.emplace_back();
    if (world_) {
      member.driver = &world_->add(config).driver();
    } else {
      member.real = std::make_unique<RealSsd>(clock_, config);
      member.driver = &member.real->driver();
    }
    devices_.push_back(&member.driver->device());
    member.queue_pairs = member.driver->request_queues(std::min(config.controller.max_queue_pairs, kMaxQueuePairs));
    member.io = std::make_unique<HostIo>(*member.driver, config.controller.max_transfer_bytes);
  }
}

SsdGroup::~SsdGroup() = default;

void SsdGroup::note(const std::byte* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  reached_[data] = bytes;
}

void SsdGroup::forget(const std::byte* data) {
  const std::lock_guard lock(mutex_);
  reached_.erase(data);
}

bool SsdGroup::reaches(const void* data, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto* first = static_cast<const std::byte*>(data);
  const auto after = reached_.upper_bound(first);
  if (after == reached_.begin()) return false;
  const auto& [start, size] = *std::prev(after);
  return first + bytes <= start + size;
}

}  // namespace flashmob::gpu
