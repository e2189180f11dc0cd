#include "command_set/kv/key_order.h"

#include "base/check.h"

namespace flashmob::command_set::kv {

std::uint32_t KeyOrder::take_node() {
  if (free_ == kNone) return fresh_++;
  const std::uint32_t node = free_;
  free_ = nodes_[node].child[0];
  return node;
}

std::uint32_t KeyOrder::nearest(const Key& key) const {
  std::uint32_t at = root_;
  while (!is_entry(at)) at = nodes_[at].child[key.bit(nodes_[at].bit)];
  return at;
}

void KeyOrder::insert(std::uint32_t entry) {
  const std::uint32_t leaf = entry | kEntry;
  if (root_ == kNone) {
    root_ = leaf;
    return;
  }
  const Key& key = entries_[entry].key;
  const unsigned bit = key.difference(key_of(nearest(key)));
  FLASHMOB_CHECK(bit < Key::kBits);
  const std::uint32_t node = take_node();
  std::uint32_t* link = &root_;
  while (!is_entry(*link) && nodes_[*link].bit < bit) link = &nodes_[*link].child[key.bit(nodes_[*link].bit)];
  nodes_[node].bit = bit;
  nodes_[node].child[key.bit(bit)] = leaf;
  nodes_[node].child[1 - key.bit(bit)] = *link;
  *link = node;
}

void KeyOrder::erase(std::uint32_t entry) {
  const Key& key = entries_[entry].key;
  std::uint32_t* link = &root_;
  std::uint32_t* above = nullptr;  // the link to the node that `link` is in
  while (!is_entry(*link)) {
    above = link;
    link = &nodes_[*link].child[key.bit(nodes_[*link].bit)];
  }
  FLASHMOB_CHECK(*link == (entry | kEntry));
  if (above == nullptr) {
    root_ = kNone;
    return;
  }
  const std::uint32_t node = *above;
  *above = nodes_[node].child[nodes_[node].child[0] == *link ? 1 : 0];
  nodes_[node].child[0] = free_;
  free_ = node;
}

void KeyOrder::clear() {
  root_ = free_ = kNone;
  fresh_ = 0;
  nodes_.clear();
}

std::uint32_t KeyOrder::seek(const Key& from, Path& later) const {
  if (root_ == kNone) return kNone;
  const unsigned bit = from.difference(key_of(nearest(from)));
  std::uint32_t at = root_;
  while (!is_entry(at) && nodes_[at].bit < bit) {
    const unsigned side = from.bit(nodes_[at].bit);
    if (side == 0) later.push(nodes_[at].child[1]);
    at = nodes_[at].child[side];
  }
  // Everything below agrees with `from` up to that bit, and is on the other side of it, all of it.
  return bit == Key::kBits || from.bit(bit) == 0 ? at : later.pop();
}

}  // namespace flashmob::command_set::kv
