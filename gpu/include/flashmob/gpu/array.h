// Arrays on SSDs, read and written one element at a time through the software cache.
//
//   ArrayRef<float, CacheRef<Lru>> array(cache, fault);
//   auto view = array.on(t);            // t is the lane
//   float x = view[ssd][i];             // reads; fetches the line if it is not cached
//   view[ssd][j] = x + 1;               // writes; the line goes back to the SSD when it is evicted or flushed
//   view[ssd][k] += 2.0f;               // an atomic addition
//
// array[ssd] is one SSD's part as a FlatRef: read(t, i) for a lane on its own, read(t, mask, i) for the lanes of a warp
// together, which ask once for each line that several of them want. No pin is kept after a call, so calls can be mixed
// in any order. An access that fails gives T{} (or changes nothing) and is noted in the array's Fault.
//
// Elements lie one behind the other from the namespace's block `first_line` on, counted in lines of the cache. T is
// trivially copyable and its size a power of two up to 512, so that no element lies in two lines. Plain reads and
// writes of one element at once are the kernel's own race; the atomic functions are not. The refs are trivially
// copyable: pass them to kernels by value. Compiles as CUDA device code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "flashmob/gpu/cache.h"
#include "flashmob/gpu/simt/word.h"
#include "flashmob/gpu/status.h"

namespace flashmob::gpu {

// What went wrong with a kernel's array accesses: looked at by the host when the kernel is done.
struct Fault {
  simt::Word<std::uint32_t> first;  // IoStatus::to_bits() of the first, with bit 0 set; 0: nothing went wrong
  simt::Word<std::uint64_t> count;

  template <class Lane>
  FLASHMOB_HD void note(Lane& t, IoStatus status) {
    std::uint32_t none = 0;
    first.compare_exchange(t, none, status.to_bits() | 1);
    count.fetch_add(t, 1, simt::Order::relaxed);
  }
};

// Where an element lies.
struct Cell {
  BlockKey key;
  std::uint32_t offset = 0;  // in bytes, within the line
};

// Element i of an array of `element_bytes`: number of its line and offset in it.
class LineSplit {
 public:
  FLASHMOB_HD LineSplit(std::uint32_t line_bytes, std::uint32_t element_bytes)
      : per_line_(line_bytes / element_bytes), shift_(0) {
    while ((std::uint32_t{1} << shift_) < per_line_) ++shift_;
    if ((std::uint32_t{1} << shift_) != per_line_) shift_ = kNoShift;
  }
  FLASHMOB_HD std::uint32_t per_line() const { return per_line_; }
  FLASHMOB_HD std::uint64_t line(std::uint64_t i) const { return shift_ != kNoShift ? i >> shift_ : i / per_line_; }
  FLASHMOB_HD std::uint32_t slot(std::uint64_t i) const {
    return static_cast<std::uint32_t>(shift_ != kNoShift ? i & (per_line_ - 1) : i % per_line_);
  }

 private:
  static constexpr std::uint32_t kNoShift = 32;  // no power of two: divide
  std::uint32_t per_line_;
  std::uint32_t shift_;
};

// All lines on one SSD.
struct RowMap {
  std::uint32_t ssd = 0;
  std::uint32_t ns = 0;
  std::uint64_t first_line = 0;

  FLASHMOB_HD BlockKey operator()(std::uint64_t line) const { return {ssd, ns, first_line + line}; }
};

// An array with one index. `Map` says where the array's lines lie.
template <class T, class Cache, class Map>
class FlatRef {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 512 && (sizeof(T) & (sizeof(T) - 1)) == 0);

 public:
  using Value = T;

  FLASHMOB_HD FlatRef(const Cache& cache, Fault* fault, const Map& map)
      : cache_(cache), fault_(fault), map_(map), split_(cache.line_bytes(), sizeof(T)) {}

  template <class Lane>
  FLASHMOB_HD T read(Lane& t, std::uint64_t i) const {
    const Cell cell = cell_of(i);
    const Pin pin = cache_.acquire(t, cell.key, Access::read);
    const T value = take(t, pin, cell);
    cache_.release(t, pin);
    return value;
  }
  // All lanes of `mask` call, each with its own i.
  template <class Lane>
  FLASHMOB_HD T read(Lane& t, std::uint32_t mask, std::uint64_t i) const {
    const Cell cell = cell_of(i);
    const Pin pin = cache_.acquire(t, mask, cell.key, Access::read);
    const T value = take(t, pin, cell);
    cache_.release(t, mask, pin);
    return value;
  }
  template <class Lane>
  FLASHMOB_HD void write(Lane& t, std::uint64_t i, const T& value) const {
    const Cell cell = cell_of(i);
    const Pin pin = cache_.acquire(t, cell.key, Access::write);
    put(t, pin, cell, value);
    cache_.release(t, pin);
  }
  template <class Lane>
  FLASHMOB_HD void write(Lane& t, std::uint32_t mask, std::uint64_t i, const T& value) const {
    const Cell cell = cell_of(i);
    const Pin pin = cache_.acquire(t, mask, cell.key, Access::write);
    put(t, pin, cell, value);
    cache_.release(t, mask, pin);
  }
  // Asks for the element's line and does not wait.
  template <class Lane>
  FLASHMOB_HD void prefetch(Lane& t, std::uint64_t i) const {
    cache_.prefetch(t, cell_of(i).key);
  }
  template <class Lane>
  FLASHMOB_HD void prefetch(Lane& t, std::uint32_t mask, std::uint64_t i) const {
    cache_.prefetch(t, mask, cell_of(i).key);
  }

  // --- Atomics, of elements of 1, 2, 4 or 8 bytes; the element's value before ---
  template <class Lane>
  FLASHMOB_HD T atomic_load(Lane& t, std::uint64_t i) const {
    const Cell cell = cell_of(i);
    return with_word(t, cell, Access::read, [&](simt::WordRef<T> word) { return word.load(t); });
  }
  template <class Lane>
  FLASHMOB_HD T exchange(Lane& t, std::uint64_t i, T value) const {
    return with_word(t, cell_of(i), Access::write, [&](simt::WordRef<T> word) { return word.exchange(t, value); });
  }
  template <class Lane>
  FLASHMOB_HD T fetch_add(Lane& t, std::uint64_t i, T value) const {
    return with_word(t, cell_of(i), Access::write, [&](simt::WordRef<T> word) { return word.fetch_add(t, value); });
  }
  template <class Lane>
  FLASHMOB_HD T fetch_or(Lane& t, std::uint64_t i, T bits) const {
    return with_word(t, cell_of(i), Access::write, [&](simt::WordRef<T> word) { return word.fetch_or(t, bits); });
  }
  template <class Lane>
  FLASHMOB_HD T fetch_and(Lane& t, std::uint64_t i, T bits) const {
    return with_word(t, cell_of(i), Access::write, [&](simt::WordRef<T> word) { return word.fetch_and(t, bits); });
  }
  // True if the element was `expected` and is `desired` now; else `expected` is what it was.
  template <class Lane>
  FLASHMOB_HD bool compare_exchange(Lane& t, std::uint64_t i, T& expected, T desired) const {
    bool done = false;
    with_word(t, cell_of(i), Access::write, [&](simt::WordRef<T> word) {
      done = word.compare_exchange(t, expected, desired);
      return T{};
    });
    return done;
  }

  // --- For code that goes line by line ---
  FLASHMOB_HD const LineSplit& split() const { return split_; }
  FLASHMOB_HD BlockKey line_key(std::uint64_t line) const { return map_(line); }
  FLASHMOB_HD const Cache& cache() const { return cache_; }
  template <class Lane>
  FLASHMOB_HD void note(Lane& t, IoStatus status) const {
    if (fault_ != nullptr) fault_->note(t, status);
  }

  template <class Lane>
  class View;
  template <class Lane>
  FLASHMOB_HD View<Lane> on(Lane& t) const {
    return View<Lane>(*this, t);
  }

 private:
  FLASHMOB_HD Cell cell_of(std::uint64_t i) const {
    return {map_(split_.line(i)), split_.slot(i) * static_cast<std::uint32_t>(sizeof(T))};
  }
  FLASHMOB_HD static T* element(const Pin& pin, const Cell& cell) {
    return reinterpret_cast<T*>(pin.data + cell.offset);
  }
  template <class Lane>
  FLASHMOB_HD T take(Lane& t, const Pin& pin, const Cell& cell) const {
    if (pin.ok()) return *element(pin, cell);
    note(t, pin.status);
    return T{};
  }
  template <class Lane>
  FLASHMOB_HD void put(Lane& t, const Pin& pin, const Cell& cell, const T& value) const {
    if (pin.ok())
      *element(pin, cell) = value;
    else
      note(t, pin.status);
  }
  template <class Lane, class Operation>
  FLASHMOB_HD T with_word(Lane& t, const Cell& cell, Access access, Operation operation) const {
    const Pin pin = cache_.acquire(t, cell.key, access);
    if (!pin.ok()) {
      note(t, pin.status);
      return T{};
    }
    const T before = operation(simt::WordRef<T>(*element(pin, cell)));
    cache_.release(t, pin);
    return before;
  }

  Cache cache_;
  Fault* fault_;
  Map map_;
  LineSplit split_;
};

// The array as one lane uses it, with the syntax of an array.
template <class T, class Cache, class Map>
template <class Lane>
class FlatRef<T, Cache, Map>::View {
 public:
  class Element {
   public:
    FLASHMOB_HD Element(const FlatRef& array, Lane& t, std::uint64_t i) : array_(array), t_(t), i_(i) {}
    FLASHMOB_HD operator T() const { return array_.read(t_, i_); }
    FLASHMOB_HD const Element& operator=(const T& value) const {
      array_.write(t_, i_, value);
      return *this;
    }
    FLASHMOB_HD const Element& operator=(const Element& other) const { return *this = static_cast<T>(other); }
    FLASHMOB_HD T operator+=(T value) const { return array_.fetch_add(t_, i_, value) + value; }
    FLASHMOB_HD T operator|=(T bits) const { return array_.fetch_or(t_, i_, bits) | bits; }
    FLASHMOB_HD T operator&=(T bits) const { return array_.fetch_and(t_, i_, bits) & bits; }

   private:
    const FlatRef& array_;
    Lane& t_;
    std::uint64_t i_;
  };

  FLASHMOB_HD View(const FlatRef& array, Lane& t) : array_(array), t_(t) {}
  FLASHMOB_HD Element operator[](std::uint64_t i) const { return Element(array_, t_, i); }

 private:
  FlatRef array_;  // a copy: the view of array[ssd], which is a temporary, lives as long as it is used
  Lane& t_;
};

template <class T, class Cache>
using RowRef = FlatRef<T, Cache, RowMap>;

// The array of all SSDs: the first index is the SSD, the second the element in its namespace `ns`.
template <class T, class Cache>
class ArrayRef {
 public:
  using Value = T;

  FLASHMOB_HD ArrayRef(const Cache& cache, Fault* fault, std::uint32_t ns = 0, std::uint64_t first_line = 0)
      : cache_(cache), fault_(fault), ns_(ns), first_line_(first_line) {}

  FLASHMOB_HD RowRef<T, Cache> operator[](std::uint32_t ssd) const {
    return RowRef<T, Cache>(cache_, fault_, RowMap{ssd, ns_, first_line_});
  }

  template <class Lane>
  class View {
   public:
    FLASHMOB_HD View(const ArrayRef& array, Lane& t) : array_(array), t_(t) {}
    FLASHMOB_HD auto operator[](std::uint32_t ssd) const { return array_[ssd].on(t_); }

   private:
    ArrayRef array_;
    Lane& t_;
  };
  template <class Lane>
  FLASHMOB_HD View<Lane> on(Lane& t) const {
    return View<Lane>(*this, t);
  }

 private:
  Cache cache_;
  Fault* fault_;
  std::uint32_t ns_;
  std::uint64_t first_line_;
};

}  // namespace flashmob::gpu
