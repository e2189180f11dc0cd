// Keys, where their values lie, and how much room is left: the `kv` command set's index, without data, clock or
// threads.
//
// A hash table with open addressing finds a key in constant time, and a tree has all in order. Everything is as large
// as it may become from the beginning and takes memory as it is used, so that no command ever waits for an index to
// grow.
//
// The room beyond the capacity is for values that replace others, which are there until the new one is.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "command_set/kv/entry.h"
#include "command_set/kv/granules.h"
#include "command_set/kv/key.h"
#include "command_set/kv/key_hash.h"
#include "command_set/kv/key_order.h"
#include "nvme/status.h"

namespace flashmob::command_set::kv {

struct Limits {
  std::uint64_t size_bytes = 0;  // of the medium
  std::uint32_t granule_bytes = 512;
  std::uint32_t max_value_bytes = 0;
  std::uint32_t max_keys = 0;  // 1...KeyOrder::kMaxEntries
  std::uint8_t max_key_bytes = Key::kMaxBytes;
  unsigned group_shift = 0;  // log2 of the granules that one unit of a timing model holds

  // A value has one at least, for its key.
  std::uint32_t granules_of(std::uint64_t value_bytes) const;
  std::uint32_t granules() const { return static_cast<std::uint32_t>(size_bytes / granule_bytes); }
  // What values may have together, in granules; 0: there is no room beside one that is being replaced.
  std::uint32_t capacity() const;
};

class Store {
 public:
  // Throws std::bad_alloc.
  Store(const Limits& limits, const std::array<std::uint64_t, 2>& secret);

  const Limits& limits() const { return limits_; }
  const Granules& granules() const { return granules_; }
  Granules& granules() { return granules_; }
  std::uint64_t used_bytes() const { return std::uint64_t{used_} * limits_.granule_bytes; }
  std::uint32_t keys() const { return keys_; }

  const Value* find(const Key& key) const;

  enum class If : std::uint8_t { any, exists, is_new, never };
  // Whether put() would succeed now.
  nvme::Status check(const Key& key, std::uint32_t bytes, If condition) const;
  // Room for a value that is about to be written; none: the medium has none.
  std::optional<Value> reserve(std::uint32_t bytes);
  // The key's value is this from now on. The one before, if there was one, is the caller's to release. A failure
  // changes nothing.
  nvme::Status put(const Key& key, const Value& value, If condition, std::optional<Value>& replaced);
  // The key is no more; its value is the caller's to release. None: there was none.
  std::optional<Value> erase(const Key& key);
  void release(const Value& value) { granules_.give_back({value.last, limits_.granules_of(value.bytes)}); }

  // Keys in order, from the first not below `from` on: calls visit(key) until it says false.
  template <class Visit>
  void for_each_from(const Key& from, const Visit& visit) const {
    order_.for_each_from(from, [&](std::uint32_t entry) { return visit(entries_[entry].key); });
  }

  void clear();

 private:
  // Of the hash table: the entry's number plus one, or 0.
  std::uint64_t slot_of(const Key& key) const;
  void close_gap(std::uint64_t slot);

  Limits limits_;
  KeyHash hash_;
  std::uint64_t mask_;
  LazyArray<std::uint32_t> table_;
  LazyArray<Entry> entries_;
  KeyOrder order_;
  Granules granules_;
  std::uint32_t used_ = 0;  // granules
  std::uint32_t keys_ = 0;
  std::uint32_t fresh_ = 0;  // entries from here on were never used
  std::uint32_t free_ = 0;  // the first of those that are unused again, plus one, by value.last
};

}  // namespace flashmob::command_set::kv
