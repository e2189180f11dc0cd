#include "command_set/kv/store.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace flashmob::command_set::kv {

using nvme::Status;

std::uint32_t Limits::granules_of(std::uint64_t value_bytes) const {
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (value_bytes + granule_bytes - 1) / granule_bytes));
}

std::uint32_t Limits::capacity() const {
  const std::uint32_t spare = granules_of(max_value_bytes);
  return granules() > spare ? granules() - spare : 0;
}

// Half of the table stays empty, so that what is looked for is found, or found missing, within a few slots.
Store::Store(const Limits& limits, const std::array<std::uint64_t, 2>& secret)
    : limits_(limits),
      hash_(secret),
      mask_(std::bit_ceil(2 * std::uint64_t{limits.max_keys}) - 1),
      table_(mask_ + 1),
      entries_(limits.max_keys),
      order_(entries_, limits.max_keys),
      granules_(limits.granules(), limits.group_shift) {}

std::uint64_t Store::slot_of(const Key& key) const {
  std::uint64_t slot = hash_(key) & mask_;
  while (table_[slot] != 0 && entries_[table_[slot] - 1].key != key) slot = (slot + 1) & mask_;
  return slot;
}

const Value* Store::find(const Key& key) const {
  const std::uint32_t entry = table_[slot_of(key)];
  return entry == 0 ? nullptr : &entries_[entry - 1].value;
}

Status Store::check(const Key& key, std::uint32_t bytes, If condition) const {
  const Value* const old = find(key);
  if (old == nullptr && (condition == If::exists || condition == If::never)) return Status::key_does_not_exist;
  if (old != nullptr && (condition == If::is_new || condition == If::never)) return Status::key_exists;
  const std::uint64_t before = old != nullptr ? limits_.granules_of(old->bytes) : 0;
  const std::uint64_t after = used_ - before + limits_.granules_of(bytes);
  if (after > limits_.capacity() || (old == nullptr && keys_ == limits_.max_keys)) return Status::capacity_exceeded;
  return Status::success;
}

std::optional<Value> Store::reserve(std::uint32_t bytes) {
  const auto last = granules_.take(limits_.granules_of(bytes));
  if (!last) return std::nullopt;
  return Value{*last, bytes};
}

Status Store::put(const Key& key, const Value& value, If condition, std::optional<Value>& replaced) {
  replaced.reset();
  const Status status = check(key, value.bytes, condition);
  if (status != Status::success) return status;
  used_ += limits_.granules_of(value.bytes);
  const std::uint64_t slot = slot_of(key);
  if (table_[slot] != 0) {
    Value& now = entries_[table_[slot] - 1].value;
    used_ -= limits_.granules_of(now.bytes);
    replaced = now;
    now = value;
    return status;
  }
  const std::uint32_t entry = free_ != 0 ? free_ - 1 : fresh_++;
  if (free_ != 0) free_ = entries_[entry].value.last;
  entries_[entry] = {key, value};
  table_[slot] = entry + 1;
  order_.insert(entry);
  ++keys_;
  return status;
}

std::optional<Value> Store::erase(const Key& key) {
  const std::uint64_t slot = slot_of(key);
  if (table_[slot] == 0) return std::nullopt;
  const std::uint32_t entry = table_[slot] - 1;
  const Value value = entries_[entry].value;
  order_.erase(entry);
  close_gap(slot);
  entries_[entry].value.last = free_;
  free_ = entry + 1;
  used_ -= limits_.granules_of(value.bytes);
  --keys_;
  return value;
}

// Moves up those behind a slot that becomes empty that would not be found any more.
void Store::close_gap(std::uint64_t slot) {
  for (std::uint64_t at = (slot + 1) & mask_; table_[at] != 0; at = (at + 1) & mask_) {
    const std::uint64_t home = hash_(entries_[table_[at] - 1].key) & mask_;
    // Its home lies behind the gap: it is found without it.
    if (((at - home) & mask_) < ((at - slot) & mask_)) continue;
    table_[slot] = table_[at];
    slot = at;
  }
  table_[slot] = 0;
}

void Store::clear() {
  table_.clear();
  entries_.clear();
  order_.clear();
  granules_.clear();
  used_ = keys_ = fresh_ = free_ = 0;
}

}  // namespace flashmob::command_set::kv
