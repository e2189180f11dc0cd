#include "initiator/vfio_pci/iova_space.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>

#include "flashmob/error.h"

namespace flashmob::initiator {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

// Of the last byte of `bytes` from `first`, in whole pages; 0 where there is no such range.
std::uint64_t last_of(std::uint64_t first, std::size_t bytes) {
  if (bytes == 0 || bytes > kMost - (kPageBytes - 1)) return 0;
  const std::uint64_t whole = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  return first > kMost - (whole - 1) ? 0 : first + (whole - 1);
}

}  // namespace

IovaSpace::IovaSpace(std::span<const IovaRange> usable) {
  for (const IovaRange& range : usable) {
    if (range.first > kMost - kPageBytes) continue;
    const std::uint64_t first = std::max((range.first + kPageBytes - 1) / kPageBytes, std::uint64_t{1}) * kPageBytes;
    // The last whole page that ends within.
    const std::uint64_t pages = range.last / kPageBytes + (range.last % kPageBytes == kPageBytes - 1 ? 1 : 0);
    if (pages <= first / kPageBytes) continue;
    add_free(first, (pages - 1) * kPageBytes + (kPageBytes - 1));
  }
}

void IovaSpace::add_free(std::uint64_t first, std::uint64_t last) {
  auto next = free_.lower_bound(first);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->second >= first - 1) {  // `first` is never 0
      first = before->first;
      last = std::max(last, before->second);
      free_.erase(before);
    }
  }
  while (next != free_.end() && (last == kMost || next->first <= last + 1)) {
    last = std::max(last, next->second);
    next = free_.erase(next);
  }
  free_.emplace(first, last);
}

std::uint64_t IovaSpace::allocate(std::size_t bytes) {
  for (const auto& [first, last] : free_) {
    const std::uint64_t end = last_of(first, bytes);
    if (end == 0 || end > last) continue;
    const std::uint64_t found = first;
    take(found, bytes);
    return found;
  }
  throw ConfigError("no " + std::to_string(bytes) +
                    " bytes of the IOMMU's addresses are left for the drive; use smaller buffers or fewer queues");
}

bool IovaSpace::take(std::uint64_t iova, std::size_t bytes) {
  const std::uint64_t end = last_of(iova, bytes);
  if (iova % kPageBytes != 0 || end == 0) return false;
  auto found = free_.upper_bound(iova);
  if (found == free_.begin()) return false;
  --found;
  const auto [first, last] = *found;
  if (end > last) return false;
  free_.erase(found);
  if (first < iova) free_.emplace(first, iova - 1);
  if (end < last) free_.emplace(end + 1, last);
  taken_.emplace(iova, end);
  return true;
}

bool IovaSpace::holds(std::uint64_t iova, std::size_t bytes) const {
  const auto found = taken_.find(iova);
  return found != taken_.end() && found->second == last_of(iova, bytes);
}

void IovaSpace::release(std::uint64_t iova) {
  const auto found = taken_.find(iova);
  if (found == taken_.end()) return;
  const auto [first, last] = *found;
  taken_.erase(found);
  add_free(first, last);
}

}  // namespace flashmob::initiator
