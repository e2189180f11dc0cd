// The keys of a store in their order, for List: a crit-bit tree (D. J. Bernstein). Each inner node names the first bit
// in which the keys below it differ, so that no way is longer than a key has bits, whatever keys a host chooses, and
// nothing is ever rebalanced.
//
// Keys are named by their entries. The owner keeps threads apart.
#pragma once

#include <array>
#include <cstdint>

#include "command_set/kv/entry.h"
#include "command_set/kv/key.h"
#include "command_set/kv/lazy_array.h"

namespace flashmob::command_set::kv {

class KeyOrder {
 public:
  static constexpr std::uint32_t kMaxEntries = 0x7FFF'FFFF;

  // Looks at `entries`, of which there are up to so many.
  KeyOrder(const LazyArray<Entry>& entries, std::uint32_t max_entries) : entries_(entries), nodes_(max_entries) {}

  // An entry whose key is none of those that are there.
  void insert(std::uint32_t entry);
  // One that is there, its key still in its entry.
  void erase(std::uint32_t entry);
  void clear();

  // Calls visit(entry) for keys in their order, from the first that is not below `from` on, until it says false.
  template <class Visit>
  void for_each_from(const Key& from, const Visit& visit) const {
    Path later;
    std::uint32_t at = seek(from, later);
    while (at != kNone) {
      for (; !is_entry(at); at = nodes_[at].child[0]) later.push(nodes_[at].child[1]);
      if (!visit(at & ~kEntry)) return;
      at = later.pop();
    }
  }

 private:
  static constexpr std::uint32_t kEntry = 0x8000'0000;  // of a child: it is an entry, and no node
  static constexpr std::uint32_t kNone = 0x7FFF'FFFF;

  struct Node {
    std::array<std::uint32_t, 2> child;
    std::uint32_t bit;
  };
  // What is still to be visited; each is the greater child of a node on one way down.
  struct Path {
    std::array<std::uint32_t, Key::kBits> all;
    unsigned count = 0;
    void push(std::uint32_t child) { all[count++] = child; }
    std::uint32_t pop() { return count == 0 ? kNone : all[--count]; }
  };

  static bool is_entry(std::uint32_t child) { return (child & kEntry) != 0; }
  const Key& key_of(std::uint32_t child) const { return entries_[child & ~kEntry].key; }
  // The entry that a key's bits lead to: its own, if it is there.
  std::uint32_t nearest(const Key& key) const;
  // The subtree whose first key is the first that is not below `from`; those behind it go to `later`.
  std::uint32_t seek(const Key& from, Path& later) const;
  std::uint32_t take_node();

  const LazyArray<Entry>& entries_;
  LazyArray<Node> nodes_;
  std::uint32_t root_ = kNone;
  std::uint32_t fresh_ = 0;  // nodes from here on were never used
  std::uint32_t free_ = kNone;  // the first of those that are unused again, by child[0]
};

}  // namespace flashmob::command_set::kv
