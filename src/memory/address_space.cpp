#include "memory/address_space.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/backoff.h"

namespace flashmob::memory {
namespace {

// The first region that begins after `iova`; the one before it is the only one that can hold `iova`.
std::vector<Region>::const_iterator first_after(const std::vector<Region>& regions, std::uint64_t iova) {
  return std::upper_bound(regions.begin(), regions.end(), iova,
                          [](std::uint64_t value, const Region& region) { return value < region.iova; });
}

const Region* find_region(const std::vector<Region>& regions, std::uint64_t iova) {
  const auto after = first_after(regions, iova);
  if (after == regions.begin()) return nullptr;
  const Region& region = *(after - 1);
  return iova - region.iova < region.bytes ? &region : nullptr;
}

std::vector<Region> spans_of(const std::vector<Region>& regions) {
  std::vector<Region> spans;
  spans.reserve(regions.size());
  for (const Region& region : regions) {
    if (!spans.empty()) {
      Region& last = spans.back();
      if (last.iova + last.bytes == region.iova && last.host + last.bytes == region.host &&
          last.writable == region.writable) {
        last.bytes += region.bytes;
        continue;
      }
    }
    spans.push_back(region);
  }
  return spans;
}

std::string range_text(std::uint64_t iova, std::uint64_t bytes) {
  return "[" + std::to_string(iova) + ", +" + std::to_string(bytes) + ")";
}

}  // namespace

AddressSpace::AddressSpace() : table_(new RegionTable{1, {}, {}}) {}

AddressSpace::~AddressSpace() {
  for (const ReaderSlot& slot : slots_) FLASHMOB_CHECK(!slot.taken.load(std::memory_order_acquire));
  delete table_.load(std::memory_order_relaxed);
}

void AddressSpace::map(std::uint64_t iova, std::uint64_t bytes, void* host, bool writable) {
  if (bytes == 0 || host == nullptr) {
    throw ConfigError("DMA map of " + range_text(iova, bytes) + " is empty: give it a length and memory");
  }
  if (bytes > UINT64_MAX - iova) {
    throw ConfigError("DMA map of " + range_text(iova, bytes) + " wraps around: end it below 2^64");
  }
  const std::lock_guard lock(mutex_);
  const RegionTable& current = *table_.load(std::memory_order_relaxed);
  auto next = std::make_unique<RegionTable>(RegionTable{current.generation + 1, current.regions, {}});
  const auto after = first_after(next->regions, iova);
  const bool overlaps_next = after != next->regions.end() && after->iova - iova < bytes;
  const bool overlaps_previous = after != next->regions.begin() && iova - (after - 1)->iova < (after - 1)->bytes;
  if (overlaps_next || overlaps_previous) {
    throw ConfigError("DMA map of " + range_text(iova, bytes) + " overlaps a mapped region: unmap that first");
  }
  next->regions.insert(after, Region{iova, bytes, static_cast<std::byte*>(host), writable});
  publish(std::move(next));
  free_unused_tables();
}

bool AddressSpace::unmap(std::uint64_t iova, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const RegionTable& current = *table_.load(std::memory_order_relaxed);
  const Region* region = find_region(current.regions, iova);
  if (region == nullptr || region->iova != iova || region->bytes != bytes) return false;
  auto next = std::make_unique<RegionTable>(RegionTable{current.generation + 1, current.regions, {}});
  next->regions.erase(next->regions.begin() + (region - current.regions.data()));
  publish(std::move(next));
  // Any older table may hold the region, not only the last one: a guard can be older than the newest map().
  const RegionTable* newest = table_.load(std::memory_order_relaxed);
  for (const ReaderSlot& slot : slots_) {
    Backoff backoff;
    for (;;) {
      const RegionTable* seen = slot.in_use.load(std::memory_order_seq_cst);
      if (seen == nullptr || seen == newest) break;
      backoff.pause();
    }
  }
  retired_.clear();
  return true;
}

void AddressSpace::set_mirror(Mirror mirror) {
  const std::lock_guard lock(mutex_);
  if (mirror) mirror(table_.load(std::memory_order_relaxed)->regions);
  mirror_ = std::move(mirror);
}

void AddressSpace::publish(std::unique_ptr<RegionTable> next) {
  next->spans = spans_of(next->regions);
  // Room first: once the mirror and the new table say so, nothing may throw.
  retired_.reserve(retired_.size() + 1);
  if (mirror_) mirror_(next->regions);
  region_count_.store(next->regions.size(), std::memory_order_relaxed);
  const RegionTable* old = table_.exchange(next.release(), std::memory_order_seq_cst);
  retired_.emplace_back(old);
  heavy_fence();  // see Reader::announce()
}

bool AddressSpace::in_use(const RegionTable* table) const {
  return std::any_of(slots_.begin(), slots_.end(), [table](const ReaderSlot& slot) {
    return slot.in_use.load(std::memory_order_seq_cst) == table || slot.newer.load(std::memory_order_seq_cst) == table;
  });
}

void AddressSpace::free_unused_tables() {
  std::erase_if(retired_, [this](const auto& table) { return !in_use(table.get()); });
}

AddressSpace::Reader::Reader(AddressSpace& space) : space_(space), slot_(kMaxReaders) {
  for (std::size_t i = 0; i < kMaxReaders; ++i) {
    bool expected = false;
    if (space.slots_[i].taken.compare_exchange_strong(expected, true, std::memory_order_acq_rel)) {
      slot_ = i;
      return;
    }
  }
  throw ConfigError("more than " + std::to_string(kMaxReaders) +
                    " threads use one controller's memory: lower the number of units or workers");
}

AddressSpace::Reader::~Reader() {
  if (inside()) leave();
  space_.slots_[slot_].taken.store(false, std::memory_order_release);
}

// Goes on with the newest table inside the guard; false if this is it. The table that the guard was opened with stays
// announced, so unmap() still waits for every pointer that any table gave; this one is announced only to be kept.
bool AddressSpace::Reader::take_up_newer() {
  const RegionTable* table = space_.table_.load(std::memory_order_seq_cst);
  if (table == table_) return false;
  announce(space_.slots_[slot_].newer, table);
  table_ = table;
  hit_ = {};
  hit_generation_ = table->generation;
  return true;
}

std::byte* AddressSpace::Reader::translate_slow(std::uint64_t iova, std::uint64_t bytes, bool for_write) {
  std::uint64_t contiguous = 0;
  std::byte* host = translate_prefix(iova, bytes, for_write, contiguous);
  return contiguous == bytes ? host : nullptr;
}

std::byte* AddressSpace::Reader::translate_prefix(std::uint64_t iova, std::uint64_t bytes, bool for_write,
                                                  std::uint64_t& contiguous) {
  if (iova - hit_.iova >= hit_.bytes) {
    const Region* region = find_region(table_->spans, iova);
    // A host may map memory and ring for it after this guard was opened.
    if (region == nullptr && take_up_newer()) region = find_region(table_->spans, iova);
    if (region == nullptr) return nullptr;
    hit_ = *region;
  }
  if (for_write && !hit_.writable) return nullptr;
  const std::uint64_t offset = iova - hit_.iova;
  contiguous = std::min(bytes, hit_.bytes - offset);
  return hit_.host + offset;
}

}  // namespace flashmob::memory
