// The set of LBA ranges behind Write Uncorrectable (namespace.h), and saving it.
#include "command_set/namespace.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace flashmob::command_set {

bool LbaRangeSet::insert(std::uint64_t first, std::uint64_t blocks) {
  if (blocks == 0) return true;
  const std::lock_guard lock(mutex_);
  std::uint64_t end = first + blocks;
  // The first range that ends at or behind `first` is the first one that the new range touches.
  auto touching = ranges_.upper_bound(first);
  if (touching != ranges_.begin() && std::prev(touching)->second >= first) --touching;
  const bool joins = touching != ranges_.end() && touching->first <= end;
  if (!joins && ranges_.size() >= max_ranges_) return false;
  while (touching != ranges_.end() && touching->first <= end) {
    first = std::min(first, touching->first);
    end = std::max(end, touching->second);
    touching = ranges_.erase(touching);
  }
  ranges_.emplace_hint(touching, first, end);
  count_.store(ranges_.size(), std::memory_order_release);
  return true;
}

bool LbaRangeSet::erase(std::uint64_t first, std::uint64_t blocks) {
  if (blocks == 0 || empty()) return true;
  const std::lock_guard lock(mutex_);
  const std::uint64_t end = first + blocks;
  auto it = ranges_.upper_bound(first);
  if (it != ranges_.begin() && std::prev(it)->second > first) --it;
  while (it != ranges_.end() && it->first < end) {
    const std::uint64_t range_end = it->second;
    const bool keeps_front = it->first<first, keeps_back = range_end> end;
    // Only the one range that holds all of what is asked is cut in two, so nothing has been removed yet.
    if (keeps_front && keeps_back && ranges_.size() >= max_ranges_) return false;
    if (keeps_back) ranges_.emplace_hint(std::next(it), end, range_end);
    if (keeps_front) {
      it->second = first;
      ++it;
    } else {
      it = ranges_.erase(it);
    }
  }
  count_.store(ranges_.size(), std::memory_order_release);
  return true;
}

bool LbaRangeSet::intersects(std::uint64_t first, std::uint64_t blocks) const {
  if (blocks == 0) return false;
  const std::lock_guard lock(mutex_);
  const auto behind = ranges_.lower_bound(first + blocks);  // starts at or behind the end
  return behind != ranges_.begin() && std::prev(behind)->second > first;
}

std::vector<media::SavedRange> LbaRangeSet::ranges() const {
  const std::lock_guard lock(mutex_);
  std::vector<media::SavedRange> all;
  all.reserve(ranges_.size());
  for (const auto& [first, end] : ranges_) all.push_back({first, end - first});
  return all;
}

bool Namespace::mark(std::uint64_t first, std::uint64_t count) {
  const std::lock_guard lock(changes_mutex_);
  if (!uncorrectable.insert(first, count)) return false;
  marks_changes_.fetch_add(1, std::memory_order_release);
  return true;
}

Unmarked Namespace::unmark(std::uint64_t first, std::uint64_t count) {
  if (!has_marks()) return Unmarked::none;
  // In this order: whoever finds no mark here any more finds it below.
  if (!uncorrectable.intersects(first, count))
    return unmarked_.intersects(first, count) ? Unmarked::some : Unmarked::none;
  const std::lock_guard lock(changes_mutex_);
  // Where there is no room for one more, all blocks count as unmarked.
  if (media->saved() != nullptr && !unmarked_.insert(first, count)) FLASHMOB_CHECK(unmarked_.insert(0, blocks));
  if (!uncorrectable.erase(first, count)) return Unmarked::refused;
  marks_changes_.fetch_add(1, std::memory_order_release);
  return Unmarked::some;
}

bool Namespace::save_marks(bool* flushed) {
  const std::lock_guard lock(marks_mutex_);
  const auto saved = media->saved();
  std::uint64_t changes = 0;
  std::vector<media::SavedRange> marks;
  {
    // First the marks, then the flush: what has lost its mark by now was written before.
    const std::lock_guard changing(changes_mutex_);
    changes = marks_changes_.load(std::memory_order_acquire);
    marks = uncorrectable.ranges();
  }
  const bool is_durable = media->flush();
  if (flushed != nullptr) *flushed = is_durable;
  if (!is_durable || marks_retired_ || saved == nullptr) return is_durable;
  if (!saved->change([&](media::SavedState& kept) { kept.uncorrectable = std::move(marks); })) return false;
  const std::lock_guard changing(changes_mutex_);
  marks_saved_.store(changes, std::memory_order_release);
  if (changes == marks_changes_.load(std::memory_order_acquire)) unmarked_.clear();
  return true;
}

bool Namespace::flush() {
  const std::uint64_t mine = flushes_begun_.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (!(marks_unsaved() ? save_marks() : media->flush())) return false;
  std::uint64_t latest = flushed_.load(std::memory_order_relaxed);
  while (latest < mine && !flushed_.compare_exchange_weak(latest, mine, std::memory_order_acq_rel)) {
  }
  return true;
}

bool Namespace::flush_since(std::uint64_t begun, bool& waited) {
  if (flushed_.load(std::memory_order_acquire) > begun && !marks_unsaved()) return true;
  waited = true;
  return flush();
}

void Namespace::retire_marks(const std::function<bool()>& go) {
  const std::lock_guard lock(marks_mutex_);
  marks_retired_ = go();
}

void Namespace::restart_marks() {
  const std::lock_guard lock(marks_mutex_);
  const std::lock_guard changing(changes_mutex_);
  uncorrectable.clear();
  unmarked_.clear();
  marks_saved_.store(marks_changes_.load(std::memory_order_relaxed), std::memory_order_release);
  marks_retired_ = false;
}

void LbaRangeSet::clear() {
  const std::lock_guard lock(mutex_);
  ranges_.clear();
  count_.store(0, std::memory_order_release);
}

}  // namespace flashmob::command_set
