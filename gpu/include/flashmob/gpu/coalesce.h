// Warp-level coalescing: lanes that want the same thing find each other, one asks for all, and all get the answer.
//
//   const Group group = coalesce(t, mask, key);
//   if (group.leads) answer = ask(t, key);
//   answer = share(t, group, answer);
//
// Every lane of `mask` calls, and no other. The groups of a warp go on apart from each other, so that a leader may wait
// for its I/O while other groups go ahead; nobody may hold anything that another group needs. Compiles as CUDA device
// code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/simt/vocabulary.h"

namespace flashmob::gpu {

// The lanes that want what this lane wants.
struct Group {
  std::uint32_t mask = 0;
  std::uint32_t leader = 0;  // the lane that asks
  bool leads = false;  // this lane is the leader
};

namespace detail {

template <class Lane>
FLASHMOB_HD Group group_of(Lane& t, std::uint32_t mask) {
  const std::uint32_t leader = simt::first_lane(mask);
  return {mask, leader, leader == t.lane()};
}

}  // namespace detail

// Groups by one value of up to 8 bytes.
template <class Lane, class Key>
FLASHMOB_HD Group coalesce(Lane& t, std::uint32_t mask, Key key, simt::Here here = simt::Here::current()) {
  return detail::group_of(t, t.match(mask, key, here));
}
// Groups by two: for keys of more than 8 bytes.
template <class Lane, class First, class Second>
FLASHMOB_HD Group coalesce(Lane& t, std::uint32_t mask, First first, Second second,
                           simt::Here here = simt::Here::current()) {
  return detail::group_of(t, t.match(t.match(mask, first, here), second, here));
}

// Gives the leader's value, of up to 8 bytes, to all of the group.
template <class Lane, class T>
FLASHMOB_HD T share(Lane& t, const Group& group, T value, simt::Here here = simt::Here::current()) {
  return t.shuffle(group.mask, value, group.leader, here);
}
// Waits for all of the group: after this, what the leader took for all is not used any more.
template <class Lane>
FLASHMOB_HD void meet(Lane& t, const Group& group, simt::Here here = simt::Here::current()) {
  t.sync(group.mask, here);
}

}  // namespace flashmob::gpu
