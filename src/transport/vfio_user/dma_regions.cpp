#include "transport/vfio_user/dma_regions.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "vfio/shared_budget.h"

namespace flashmob::transport {
namespace {

constexpr std::size_t kPageBytes = 4096;
// Each client's memory is laid out in this process as in its own address space, so that regions that are neighbours
// there are neighbours here, and rings and page lists may cross the border. Between the kernel's usual places for
// programs and for mappings (47-bit addresses) there is room for this; AddressSanitizer's own ends at 16 TiB.
constexpr std::uintptr_t kArenasBegin = std::uintptr_t{20} << 40;
constexpr std::uintptr_t kArenaBytes = std::uintptr_t{1} << 40;
constexpr std::uintptr_t kArenas = 64;

}  // namespace

DmaRegions::DmaRegions(memory::AddressSpace& space) : space_(space) {
  static std::atomic<std::uintptr_t> next{0};
  arena_ = kArenasBegin + next.fetch_add(1, std::memory_order_relaxed) % kArenas * kArenaBytes;
}

DmaRegions::~DmaRegions() { FLASHMOB_CHECK(regions_.empty()); }

bool DmaRegions::overlaps(std::uint64_t iova, std::uint64_t size_bytes) const {
  const auto after = regions_.upper_bound(iova);
  if (after != regions_.end() && after->first - iova < size_bytes) return true;
  if (after == regions_.begin()) return false;
  const auto& [begin, region] = *std::prev(after);
  return iova - begin < region.size_bytes;
}

std::uint64_t DmaRegions::unshared_from(std::uint64_t iova, bool for_write) const {
  const auto after = regions_.upper_bound(iova);
  if (after == regions_.begin()) return 0;
  const auto& [begin, region] = *std::prev(after);
  if (region.memory || iova - begin >= region.size_bytes || (for_write && !region.writable)) return 0;
  return region.size_bytes - (iova - begin);
}

bool DmaRegions::is_cut() const {
  return std::any_of(regions_.begin(), regions_.end(), [](const auto& held) { return held.second.memory.is_cut(); });
}

int DmaRegions::map(std::uint64_t iova, std::uint64_t size_bytes, const vfio::UniqueFd& file, std::uint64_t offset,
                    bool writable) {
  if (size_bytes == 0 || iova >= kOwnIova || size_bytes > kOwnIova - iova) return EINVAL;
  if (overlaps(iova, size_bytes)) return EEXIST;
  if (regions_.size() >= kMaxRegions) return ENOSPC;
  Region region;
  region.size_bytes = size_bytes;
  region.writable = writable;
  if (!file) {
    unshared_bytes_ += size_bytes;
    regions_.emplace(iova, std::move(region));
    return 0;
  }
  if (iova % kPageBytes != 0) return EINVAL;
  // Only a hint: where it is taken, any place will do.
  void* const hint = reinterpret_cast<void*>(arena_ + iova % kArenaBytes);
  if (!vfio::client_mappings().take(mappings_)) return ENOSPC;
  if (const int error = region.memory.map(file.get(), offset, size_bytes, writable, hint); error != 0) {
    vfio::client_mappings().give_back();
    return error;
  }
  ++mappings_;
  space_.map(iova, size_bytes, region.memory.data(), writable);
  shared_bytes_ += size_bytes;
  regions_.emplace(iova, std::move(region));
  return 0;
}

void DmaRegions::drop(Region& region) {
  if (!region.memory) {
    unshared_bytes_ -= region.size_bytes;
    return;
  }
  shared_bytes_ -= region.size_bytes;
  region.memory.reset();
  --mappings_;
  vfio::client_mappings().give_back();
}

int DmaRegions::unmap(std::uint64_t iova, std::uint64_t size_bytes) {
  const auto found = regions_.find(iova);
  if (found == regions_.end() || found->second.size_bytes != size_bytes) return ENOENT;
  if (found->second.memory) FLASHMOB_CHECK(space_.unmap(iova, size_bytes));
  drop(found->second);
  regions_.erase(found);
  return 0;
}

void DmaRegions::unmap_all() {
  while (!regions_.empty()) unmap(regions_.begin()->first, regions_.begin()->second.size_bytes);
}

void DmaRegions::forget_all() {
  for (auto& [iova, region] : regions_) drop(region);
  regions_.clear();
}

}  // namespace flashmob::transport
