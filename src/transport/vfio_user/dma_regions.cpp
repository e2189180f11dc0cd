#include "transport/vfio_user/dma_regions.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace flashmob::transport {
namespace {

constexpr std::size_t kPageBytes = 4096;
// Each client's memory is laid out in this process as in its own address space, so that regions that are neighbours
// there are neighbours here, and rings and page lists may cross the border. Between the kernel's usual places for
// programs and for mappings (47-bit addresses) there is room for this; AddressSanitizer's own ends at 16 TiB.
constexpr std::uintptr_t kArenasBegin = std::uintptr_t{20} << 40;
constexpr std::uintptr_t kArenaBytes = std::uintptr_t{1} << 40;
constexpr std::uintptr_t kArenas = 64;

// Of so many bytes, those that the file holds from `offset` on, in whole pages; all where it holds none.
std::uint64_t bytes_in(const vfio::UniqueFd& file, std::uint64_t offset, std::uint64_t bytes) {
  struct stat status{};
  const bool known = fstat(file.get(), &status) == 0;
  const std::uint64_t end = known ? static_cast<std::uint64_t>(status.st_size) / kPageBytes * kPageBytes : 0;
  return offset < end ? std::min(bytes, end - offset) : bytes;
}

}  // namespace

DmaRegions::DmaRegions(memory::AddressSpace& space, vfio::ClientShare& share) : space_(space), share_(share) {
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
    regions_.emplace(iova, std::move(region));
    unshared_bytes_ += size_bytes;
    return 0;
  }
  if (iova % kPageBytes != 0 || size_bytes % kPageBytes != 0) return EINVAL;
  // Some hosts name one descriptor for neighbours of several files: what is not in this one is out of reach.
  const std::uint64_t shared_bytes = bytes_in(file, offset, size_bytes);
  // Only a hint: where it is taken, any place will do.
  void* const hint = reinterpret_cast<void*>(arena_ + iova % kArenaBytes);
  if (!share_.take_addresses(shared_bytes)) return ENOSPC;
  if (!share_.take_mapping()) {
    share_.give_addresses(shared_bytes);
    return ENOSPC;
  }
  shared_bytes_ += shared_bytes;
  auto placed = regions_.end();
  try {
    const int error = region.memory.map(file.get(), offset, shared_bytes, writable, hint);
    if (error == 0) {
      placed = regions_.emplace(iova, std::move(region)).first;
      space_.map(iova, shared_bytes, placed->second.memory.data(), writable);
    } else {
      give_back(shared_bytes);
    }
    return error;
  } catch (...) {
    if (placed != regions_.end()) regions_.erase(placed);
    give_back(shared_bytes);
    throw;
  }
}

void DmaRegions::give_back(std::uint64_t shared_bytes) {
  shared_bytes_ -= shared_bytes;
  share_.give_mapping();
  share_.give_addresses(shared_bytes);
}

void DmaRegions::drop(Region& region) {
  if (!region.memory) {
    unshared_bytes_ -= region.size_bytes;
    return;
  }
  const std::uint64_t shared_bytes = region.memory.size();
  region.memory.reset();
  give_back(shared_bytes);
}

int DmaRegions::unmap(std::uint64_t iova, std::uint64_t size_bytes) {
  const auto found = regions_.find(iova);
  if (found == regions_.end() || found->second.size_bytes != size_bytes) return ENOENT;
  if (found->second.memory) FLASHMOB_CHECK(space_.unmap(iova, found->second.memory.size()));
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
