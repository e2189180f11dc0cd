#include "media/direct_media.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "media/direct_queue.h"
#include "media/mapped_media.h"

namespace flashmob::media {
namespace {

constexpr std::uint64_t kBlockBytes = BlockCache::kBlockBytes;

}  // namespace

// The blocks of a range, and the buffer, for one that waits.
class DirectMedia::Hold {
 public:
  Hold(DirectMedia& media, std::uint64_t offset, std::uint64_t bytes, bool exclusive)
      : media_(media),
        first_(offset / kBlockBytes),
        blocks_((offset + bytes - 1) / kBlockBytes - first_ + 1),
        exclusive_(exclusive),
        is_held_(held_ == &media) {
    if (!is_held_) media_.locks_.lock(first_, blocks_, exclusive_);
    media_.scratch_mutex_.lock();
  }
  ~Hold() {
    media_.scratch_mutex_.unlock();
    if (!is_held_) media_.locks_.unlock(first_, blocks_, exclusive_);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  DirectMedia& media_;
  std::uint64_t first_;
  std::uint64_t blocks_;
  bool exclusive_;
  bool is_held_;
};

thread_local const DirectMedia* DirectMedia::held_ = nullptr;

DirectMedia::DirectMedia(std::unique_ptr<BlockStore> store, std::uint64_t size_bytes, std::uint64_t cache_bytes,
                         std::shared_ptr<StateKeeper> saved)
    : Media(size_bytes, nullptr),
      store_(std::move(store)),
      saved_(std::move(saved)),
      cache_(cache_bytes),
      scratch_(std::make_unique_for_overwrite<Scratch>()) {
  FLASHMOB_CHECK(size_bytes <= store_->size_bytes() && store_->size_bytes() % kBlockBytes == 0);
}

DirectMedia::~DirectMedia() = default;

MediaQueue* DirectMedia::queue(unsigned thread) {
  if (thread >= kMaxThreads) return nullptr;
  Use& use = queues_[thread];
  if (!std::exchange(use.tried, true)) use.queue = DirectQueue::make(*store_, locks_, cache_);
  return use.queue.get();
}

void DirectMedia::hold(std::uint64_t offset, std::uint64_t bytes) {
  FLASHMOB_CHECK(held_ == nullptr && bytes != 0 && offset <= size_bytes() && bytes <= size_bytes() - offset);
  const std::uint64_t first = offset / kBlockBytes;
  locks_.lock(first, (offset + bytes - 1) / kBlockBytes - first + 1, true);
  held_ = this;
}

void DirectMedia::let_go(std::uint64_t offset, std::uint64_t bytes) {
  held_ = nullptr;
  const std::uint64_t first = offset / kBlockBytes;
  locks_.unlock(first, (offset + bytes - 1) / kBlockBytes - first + 1, true);
}

bool DirectMedia::transfer(std::uint64_t offset, std::uint32_t bytes, bool is_write) {
  const int error = store_->transfer({offset, scratch_->bytes.data(), bytes, 0, is_write, false});
  if (is_write) disk_full_.store(error == ENOSPC || error == EDQUOT || error == EFBIG, std::memory_order_relaxed);
  return error == 0;
}

bool DirectMedia::read(std::uint64_t offset, std::span<std::byte> out) {
  FLASHMOB_CHECK(offset <= size_bytes() && out.size() <= size_bytes() - offset);
  if (out.empty()) return true;
  const Hold hold(*this, offset, out.size(), false);
  for (std::size_t done = 0; done < out.size();) {
    const std::uint64_t lead = (offset + done) % kBlockBytes;
    const std::uint64_t some = std::min<std::uint64_t>(out.size() - done, kScratchBytes - lead);
    const auto bytes = static_cast<std::uint32_t>(round_up(lead + some, kBlockBytes));
    if (!transfer(offset + done - lead, bytes, false)) return false;
    std::memcpy(out.data() + done, scratch_->bytes.data() + lead, some);
    done += some;
  }
  return true;
}

bool DirectMedia::write(std::uint64_t offset, std::span<const std::byte> in) {
  FLASHMOB_CHECK(offset <= size_bytes() && in.size() <= size_bytes() - offset);
  if (in.empty()) return true;
  const Hold hold(*this, offset, in.size(), true);
  return write_held(offset, in.size(), in.data());
}

// The blocks are held. Without data it writes zeroes.
bool DirectMedia::write_held(std::uint64_t offset, std::uint64_t bytes, const std::byte* data) {
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t lead = (offset + done) % store_->alignment();
    const std::uint64_t some = std::min<std::uint64_t>(bytes - done, kScratchBytes - lead);
    const auto span = static_cast<std::uint32_t>(round_up(lead + some, store_->alignment()));
    const std::uint64_t at = offset + done - lead;
    if (span != some && !transfer(at, span, false)) return false;
    if (data != nullptr)
      std::memcpy(scratch_->bytes.data() + lead, data + done, some);
    else
      std::memset(scratch_->bytes.data() + lead, 0, some);
    // Before the store changes: should it do so in part only, the cache holds nothing that is wrong.
    cache_.drop(at / kBlockBytes, (at + span - 1) / kBlockBytes - at / kBlockBytes + 1);
    if (!transfer(at, span, true)) return false;
    done += some;
  }
  return true;
}

bool DirectMedia::deallocate(std::uint64_t offset, std::uint64_t bytes) {
  FLASHMOB_CHECK(offset <= size_bytes() && bytes <= size_bytes() - offset);
  if (bytes == 0) return true;
  const Hold hold(*this, offset, bytes, true);
  const std::uint64_t first = round_up(offset, kBlockBytes);
  const std::uint64_t last = (offset + bytes) / kBlockBytes * kBlockBytes;
  if (first >= last || last - first < kReleaseThresholdBytes) return write_held(offset, bytes, nullptr);
  cache_.drop(first / kBlockBytes, (last - first) / kBlockBytes);
  if (store_->deallocate(first, last - first) != 0) return write_held(offset, bytes, nullptr);
  return write_held(offset, first - offset, nullptr) && write_held(last, offset + bytes - last, nullptr);
}

}  // namespace flashmob::media
