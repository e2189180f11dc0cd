#include "media/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/backoff.h"
#include "base/check.h"
#include "base/rng.h"

namespace flashmob::media {

class BlockCache::Hold {
 public:
  explicit Hold(Set& set) : set_(set) {
    // Its holder may have lost its core.
    for (Backoff backoff; set_.busy.test_and_set(std::memory_order_acquire);) backoff.pause();
  }
  ~Hold() { set_.busy.clear(std::memory_order_release); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Set& set_;
};

BlockCache::BlockCache(std::uint64_t bytes) : count_(bytes / (kWays * kBlockBytes)) {
  if (count_ == 0) return;
  sets_ = std::make_unique<Set[]>(count_);
  void* const memory = ::mmap(nullptr, count_ * kWays * kBlockBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw ConfigError("cache_bytes = " + std::to_string(bytes) + ": this machine has no room for it; use less");
  ::madvise(memory, count_ * kWays * kBlockBytes, MADV_DONTDUMP);
  frames_ = static_cast<std::byte*>(memory);
}

BlockCache::~BlockCache() {
  if (frames_ != nullptr) ::munmap(frames_, count_ * kWays * kBlockBytes);
}

BlockCache::Set& BlockCache::set_of(std::uint64_t block) {
  __extension__ using Wide = unsigned __int128;
  return sets_[static_cast<std::uint64_t>((Wide{splitmix64(block)} * count_) >> 64)];
}

std::byte* BlockCache::frame(const Set& set, unsigned way) {
  return frames_ + (static_cast<std::uint64_t>(&set - sets_.get()) * kWays + way) * kBlockBytes;
}

unsigned BlockCache::find(const Set& set, std::uint64_t block) {
  unsigned way = 0;
  while (way < kWays && set.tag[way] != block + 1) ++way;
  return way;
}

bool BlockCache::read(std::uint64_t block, std::byte* out) {
  if (count_ == 0) return false;
  Set& set = set_of(block);
  const Hold hold(set);
  const unsigned way = find(set, block);
  if (way == kWays) return false;
  std::memcpy(out, frame(set, way), kBlockBytes);
  set.used = static_cast<std::uint8_t>(set.used | (1u << way));
  return true;
}

void BlockCache::fill(std::uint64_t block, const std::byte* data) {
  if (count_ == 0) return;
  Set& set = set_of(block);
  const Hold hold(set);
  if (find(set, block) != kWays) return;  // another reader was faster
  while ((set.used & (1u << set.hand)) != 0) {
    set.used = static_cast<std::uint8_t>(set.used & ~(1u << set.hand));
    set.hand = (set.hand + 1) % kWays;
  }
  set.tag[set.hand] = block + 1;
  std::memcpy(frame(set, set.hand), data, kBlockBytes);
  set.hand = (set.hand + 1) % kWays;
}

void BlockCache::patch(std::uint64_t block, std::uint64_t at, const std::byte* data, std::uint64_t bytes) {
  if (count_ == 0) return;
  Set& set = set_of(block);
  const Hold hold(set);
  const unsigned way = find(set, block);
  if (way != kWays) std::memcpy(frame(set, way) + at, data, bytes);
}

void BlockCache::drop(std::uint64_t first, std::uint64_t blocks) {
  const auto forget = [&](Set& set) {
    const Hold hold(set);
    for (std::uint64_t& tag : set.tag)
      if (tag != 0 && tag - 1 - first < blocks) tag = 0;
  };
  // Whichever are fewer.
  if (blocks < count_)
    for (std::uint64_t block = first; block < first + blocks; ++block) forget(set_of(block));
  else
    for (std::uint64_t i = 0; i < count_; ++i) forget(sets_[i]);
}

}  // namespace flashmob::media
