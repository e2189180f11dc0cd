// Arrays over several SSDs with one index: striped, line by line in turn, for capacity and speed; or replicated, every
// SSD with all of it, so that reads go on when an SSD fails them. See array.h for what an array can do and its rules.
// Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/array.h"

namespace flashmob::gpu {

// Line l lies on SSD l mod `ssds`.
struct StripeMap {
  std::uint32_t ssds = 1;
  std::uint32_t ns = 0;
  std::uint64_t first_line = 0;  // on each SSD

  FLASHMOB_HD BlockKey operator()(std::uint64_t line) const {
    return {static_cast<std::uint32_t>(line % ssds), ns, first_line + line / ssds};
  }
};

template <class T, class Cache>
using StripedRef = FlatRef<T, Cache, StripeMap>;

template <class T, class Cache>
FLASHMOB_HD StripedRef<T, Cache> striped(const Cache& cache, Fault* fault, const StripeMap& map) {
  return StripedRef<T, Cache>(cache, fault, map);
}

// Every line is read from an SSD of its own choice, so that reads spread over all of them and no line is cached twice;
// if that SSD fails, the next is asked. A write goes to all SSDs, one after the other. Two lanes that write one element
// at once may leave different values on different SSDs, which is why there are no atomics here.
template <class T, class Cache>
class ReplicatedRef {
 public:
  using Value = T;

  FLASHMOB_HD ReplicatedRef(const Cache& cache, Fault* fault, const StripeMap& map)
      : cache_(cache), fault_(fault), map_(map), split_(cache.line_bytes(), sizeof(T)) {}

  template <class Lane>
  FLASHMOB_HD T read(Lane& t, std::uint64_t i) const {
    return read_from(t, i, 0, {});
  }
  // All lanes of `mask` call, each with its own i. The lanes whose SSD fails go on alone.
  template <class Lane>
  FLASHMOB_HD T read(Lane& t, std::uint32_t mask, std::uint64_t i) const {
    const Pin pin = cache_.acquire(t, mask, key_of_copy(split_.line(i), 0), Access::read);
    const T value = pin.ok() ? element(pin, i) : T{};
    cache_.release(t, mask, pin);
    return pin.ok() ? value : read_from(t, i, 1, pin.status);
  }
  template <class Lane>
  FLASHMOB_HD void write(Lane& t, std::uint64_t i, const T& value) const {
    for (std::uint32_t copy = 0; copy < map_.ssds; ++copy) row(copy).write(t, i, value);
  }
  template <class Lane>
  FLASHMOB_HD void write(Lane& t, std::uint32_t mask, std::uint64_t i, const T& value) const {
    for (std::uint32_t copy = 0; copy < map_.ssds; ++copy) row(copy).write(t, mask, i, value);
  }
  template <class Lane>
  FLASHMOB_HD void prefetch(Lane& t, std::uint64_t i) const {
    cache_.prefetch(t, key_of_copy(split_.line(i), 0));
  }
  template <class Lane>
  FLASHMOB_HD void prefetch(Lane& t, std::uint32_t mask, std::uint64_t i) const {
    cache_.prefetch(t, mask, key_of_copy(split_.line(i), 0));
  }

 private:
  FLASHMOB_HD RowRef<T, Cache> row(std::uint32_t ssd) const {
    return RowRef<T, Cache>(cache_, fault_, RowMap{ssd, map_.ns, map_.first_line});
  }
  // The SSD that is asked first, and those that follow if it fails.
  FLASHMOB_HD BlockKey key_of_copy(std::uint64_t line, std::uint32_t attempt) const {
    return {static_cast<std::uint32_t>((line + attempt) % map_.ssds), map_.ns, map_.first_line + line};
  }
  FLASHMOB_HD T element(const Pin& pin, std::uint64_t i) const {
    return reinterpret_cast<const T*>(pin.data)[split_.slot(i)];
  }
  // `status` is what the attempts before this one have ended with.
  template <class Lane>
  FLASHMOB_HD T read_from(Lane& t, std::uint64_t i, std::uint32_t attempt, IoStatus status) const {
    for (; attempt < map_.ssds; ++attempt) {
      const Pin pin = cache_.acquire(t, key_of_copy(split_.line(i), attempt), Access::read);
      status = pin.status;
      if (!pin.ok()) continue;
      const T value = element(pin, i);
      cache_.release(t, pin);
      return value;
    }
    if (fault_ != nullptr) fault_->note(t, status);
    return T{};
  }

  Cache cache_;
  Fault* fault_;
  StripeMap map_;
  LineSplit split_;
};

}  // namespace flashmob::gpu
