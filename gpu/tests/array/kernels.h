// The kernels of the array suite, which CPU backends and GPUs run alike (gpu/cuda/tests/array.cu).
#pragma once

#include <cstdint>

#include "base/rng.h"
#include "flashmob/gpu/array.h"
#include "flashmob/gpu/bulk.h"
#include "flashmob/gpu/cache_policy/clock.h"
#include "flashmob/gpu/coalesce.h"
#include "flashmob/gpu/striped.h"

namespace flashmob::gpu::suite {

using TestRef = CacheRef<ClockPolicy>;
using Array = ArrayRef<std::uint32_t, TestRef>;
using Row = RowRef<std::uint32_t, TestRef>;
using Striped = StripedRef<std::uint32_t, TestRef>;
using Replicated = ReplicatedRef<std::uint32_t, TestRef>;

// What element i of SSD `ssd` holds at first.
FLASHMOB_HD constexpr std::uint32_t content(std::uint32_t ssd, std::uint64_t i) {
  return static_cast<std::uint32_t>((ssd + 1) * 0x01000193u ^ (i * 2654435761u));
}

template <class Lane, class T>
FLASHMOB_HD void add_one(Lane& t, T* sum) {
  simt::WordRef<T>(*sum).fetch_add(t, 1, simt::Order::relaxed);
}

struct ReadAtRandom {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Array array, std::uint32_t ssds, std::uint64_t elements,
                              std::uint64_t* wrong) const {
    const auto view = array.on(t);
    for (std::uint64_t k = 0; k < 6; ++k) {
      const std::uint64_t random = splitmix64(t.thread() * 100 + k);
      const auto ssd = static_cast<std::uint32_t>(random % ssds);
      const std::uint64_t i = (random >> 20) % elements;
      const std::uint32_t got =
          k % 2 == 0 ? static_cast<std::uint32_t>(view[ssd][i]) : array[ssd].read(t, t.lanes(), i);
      if (got != content(ssd, i)) add_one(t, wrong);
    }
  }
};

// Neighbouring elements are written by different lanes, so that every line is written by many.
struct WriteNeighbours {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Array array, std::uint64_t elements) const {
    for (std::uint64_t i = t.thread(); i < elements; i += t.threads()) {
      const auto value = static_cast<std::uint32_t>(i * 7 + 1);
      if (i % 3 == 0)
        array[0].write(t, i, value);
      else if (i % 3 == 1)
        array.on(t)[0][i] = value;
    }
    // All of a warp together: the elements that are left.
    for (std::uint64_t i = t.thread(); i < elements; i += t.threads()) {
      const std::uint32_t mask = t.ballot(t.lanes(), i % 3 == 2);
      if (i % 3 == 2) array[0].write(t, mask, i, static_cast<std::uint32_t>(i * 7 + 1));
    }
  }
};

struct CountUp {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Array array, std::uint32_t counters, std::uint32_t stride) const {
    const RowRef<std::uint32_t, TestRef> row = array[0];
    for (std::uint32_t k = 0; k < 8; ++k) row.fetch_add(t, (t.thread() + k) % counters * stride, 1);
    array.on(t)[0][1] += 2;
    row.fetch_or(t, 2, 1u << t.thread() % 32);
    row.fetch_and(t, 3, ~(1u << t.thread() % 32));
  }
};

struct CompareAndSwap {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Array array) const {
    const RowRef<std::uint32_t, TestRef> row = array[0];
    // A lock-free maximum.
    std::uint32_t seen = row.atomic_load(t, 4);
    while (seen < t.thread() && !row.compare_exchange(t, 4, seen, t.thread())) {
    }
    if (row.exchange(t, 5, t.thread()) == ~0u) array.on(t)[0][6] |= 0x100;
  }
};

struct ReadOneFar {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Array array, std::uint32_t ssd, std::uint64_t i, std::uint32_t* got) const {
    got[t.thread()] = t.thread() % 2 == 0 ? array[ssd].read(t, i) : static_cast<std::uint32_t>(array.on(t)[ssd][i]);
  }
};

struct ReadWarpWide {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Array array, std::uint32_t* wrong) const {
    const std::uint32_t got = array[0].read(t, t.lanes(), t.lane());
    if (got != content(0, t.lane())) add_one(t, wrong);
  }
};

template <class Flat>
struct CompareFlat {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Flat array, std::uint64_t elements, std::uint64_t* wrong) const {
    for (std::uint64_t first = t.thread() - t.lane(); first < elements; first += t.threads()) {
      const std::uint64_t i = first + t.lane();
      const std::uint32_t mask = t.ballot(t.lanes(), i < elements);
      if (i >= elements) continue;
      array.prefetch(t, mask, (i * 17) % elements);
      if (array.read(t, mask, i) != i * 3) add_one(t, wrong);
      if (array.read(t, (i * 5) % elements) != (i * 5) % elements * 3) add_one(t, wrong);
    }
  }
};

template <class Flat>
struct WriteFlat {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Flat array, std::uint64_t elements) const {
    for (std::uint64_t i = t.thread(); i < elements; i += t.threads())
      array.write(t, i, static_cast<std::uint32_t>(i * 3));
  }
};

struct GroupUp {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, std::uint64_t salt, std::uint32_t mask, Group* groups,
                              std::uint32_t* shared) const {
    if ((mask >> t.lane() & 1) == 0) return;
    const std::uint64_t key = splitmix64(salt + t.lane()) % 5;
    Group group;
    if (salt % 2 == 0)
      group = coalesce(t, mask, key);
    else
      group = coalesce(t, mask, key / 2, key % 2);
    groups[t.lane()] = group;
    shared[t.lane()] = share(t, group, group.leads ? 1000 + t.lane() : 0u);
    meet(t, group);
  }
};

struct CopyRange {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Row row, std::uint64_t first, std::uint64_t count, std::uint32_t mask,
                              std::uint32_t* memory, bool write, std::uint32_t* failed) const {
    if (t.warp() != 0 || (mask >> t.lane() & 1) == 0) return;
    const bool done =
        write ? write_range(t, mask, row, first, count, memory) : read_range(t, mask, row, first, count, memory);
    if (!done) add_one(t, failed);
  }
};

struct CopyRangeByBlock {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Row row, std::uint64_t first, std::uint64_t count, std::uint32_t* memory,
                              bool write, std::uint32_t* failed) const {
    const bool done =
        write ? write_range_block(t, row, first, count, memory) : read_range_block(t, row, first, count, memory);
    if (!done) add_one(t, failed);
  }
};

struct GatherScatter {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Row row, const std::uint64_t* indices, std::uint64_t count,
                              std::uint32_t* memory, bool write) const {
    if (write)
      scatter(t, t.lanes(), row, indices, count, memory);
    else
      gather(t, t.lanes(), row, indices, count, memory);
  }
};

struct AskAhead {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Row row, std::uint64_t first, std::uint64_t count) const {
    // One lane alone: lanes that meet at a set's lock may drop what they ask for.
    if (t.lane() == 0) prefetch_range(t, 1, row, first, count);
  }
};

}  // namespace flashmob::gpu::suite
