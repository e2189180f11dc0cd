// Atomic words in memory that lanes, the host and devices share. Compiles as CUDA device code.
//
// Word<T> is storage plus operations; WordRef<T> operates on a word that lies in memory of another type (a completion
// queue entry, a doorbell). Every operation names the lane that does it: on fibres it is a point where the scheduler
// may switch, before the access and, if it changed memory, after it too, so that what is published too early is seen.
// Thread rule: any lane and any host thread (through HostLane) at once. T is 1, 2, 4 or 8 bytes and naturally aligned.
#pragma once

#include <atomic>
#include <cstdint>

#include "flashmob/gpu/simt/vocabulary.h"

#if defined(__CUDACC__)
#include <cuda/atomic>
#endif

namespace flashmob::gpu::simt {
namespace detail {

#if defined(__CUDA_ARCH__)
template <Scope S>
inline constexpr cuda::thread_scope kCudaScope = S == Scope::block    ? cuda::thread_scope_block
                                                 : S == Scope::device ? cuda::thread_scope_device
                                                                      : cuda::thread_scope_system;
template <class T, Scope S>
using AtomicRef = cuda::atomic_ref<T, kCudaScope<S>>;
using MemoryOrder = cuda::std::memory_order;
inline constexpr MemoryOrder kRelaxed = cuda::std::memory_order_relaxed;
inline constexpr MemoryOrder kAcquire = cuda::std::memory_order_acquire;
inline constexpr MemoryOrder kRelease = cuda::std::memory_order_release;
inline constexpr MemoryOrder kAcqRel = cuda::std::memory_order_acq_rel;
#else
template <class T, Scope S>
using AtomicRef = std::atomic_ref<T>;
using MemoryOrder = std::memory_order;
inline constexpr MemoryOrder kRelaxed = std::memory_order_relaxed;
inline constexpr MemoryOrder kAcquire = std::memory_order_acquire;
inline constexpr MemoryOrder kRelease = std::memory_order_release;
inline constexpr MemoryOrder kAcqRel = std::memory_order_acq_rel;
#endif

FLASHMOB_HD constexpr MemoryOrder memory_order(Order order) {
  switch (order) {
    case Order::relaxed:
      return kRelaxed;
    case Order::acquire:
      return kAcquire;
    case Order::release:
      return kRelease;
    default:
      return kAcqRel;
  }
}
// The order of a compare-exchange that fails: it only reads.
FLASHMOB_HD constexpr MemoryOrder failed_order(Order order) {
  return order == Order::acquire || order == Order::acq_rel ? kAcquire : kRelaxed;
}

}  // namespace detail

template <class T, Scope S = Scope::device>
class WordRef {
 public:
  FLASHMOB_HD explicit WordRef(T& word) : word_(&word) {}

  template <class Lane>
  FLASHMOB_HD T load(Lane& t, Order order = Order::acquire, Here here = Here::current()) const {
    t.before_atomic(here);
    return ref().load(detail::memory_order(order));
  }
  template <class Lane>
  FLASHMOB_HD void store(Lane& t, T value, Order order = Order::release, Here here = Here::current()) const {
    t.before_atomic(here);
    const bool changed = !Lane::kSeesProgress || ref().load(detail::kRelaxed) != value;
    ref().store(value, detail::memory_order(order));
    t.after_atomic(changed, here);
  }
  template <class Lane>
  FLASHMOB_HD T exchange(Lane& t, T value, Order order = Order::acq_rel, Here here = Here::current()) const {
    t.before_atomic(here);
    const T before = ref().exchange(value, detail::memory_order(order));
    t.after_atomic(before != value, here);
    return before;
  }
  // True if the word was `expected` and is `desired` now; else `expected` is what it was.
  template <class Lane>
  FLASHMOB_HD bool compare_exchange(Lane& t, T& expected, T desired, Order order = Order::acq_rel,
                                    Here here = Here::current()) const {
    t.before_atomic(here);
    const bool done =
        ref().compare_exchange_strong(expected, desired, detail::memory_order(order), detail::failed_order(order));
    t.after_atomic(done, here);
    return done;
  }
  template <class Lane>
  FLASHMOB_HD T fetch_add(Lane& t, T value, Order order = Order::acq_rel, Here here = Here::current()) const {
    t.before_atomic(here);
    const T before = ref().fetch_add(value, detail::memory_order(order));
    t.after_atomic(value != T{}, here);
    return before;
  }
  template <class Lane>
  FLASHMOB_HD T fetch_or(Lane& t, T bits, Order order = Order::acq_rel, Here here = Here::current()) const {
    t.before_atomic(here);
    const T before = ref().fetch_or(bits, detail::memory_order(order));
    t.after_atomic((before | bits) != before, here);
    return before;
  }
  template <class Lane>
  FLASHMOB_HD T fetch_and(Lane& t, T bits, Order order = Order::acq_rel, Here here = Here::current()) const {
    t.before_atomic(here);
    const T before = ref().fetch_and(bits, detail::memory_order(order));
    t.after_atomic((before & bits) != before, here);
    return before;
  }

 private:
  FLASHMOB_HD detail::AtomicRef<T, S> ref() const { return detail::AtomicRef<T, S>(*word_); }
  T* word_;
};

// Copying one is a plain copy, for set-up by the host before anyone else looks.
template <class T, Scope S = Scope::device>
struct Word {
  T value = T{};

  FLASHMOB_HD WordRef<T, S> ref() const { return WordRef<T, S>(const_cast<T&>(value)); }

  template <class Lane>
  FLASHMOB_HD T load(Lane& t, Order order = Order::acquire, Here here = Here::current()) const {
    return ref().load(t, order, here);
  }
  template <class Lane>
  FLASHMOB_HD void store(Lane& t, T desired, Order order = Order::release, Here here = Here::current()) {
    ref().store(t, desired, order, here);
  }
  template <class Lane>
  FLASHMOB_HD T exchange(Lane& t, T desired, Order order = Order::acq_rel, Here here = Here::current()) {
    return ref().exchange(t, desired, order, here);
  }
  template <class Lane>
  FLASHMOB_HD bool compare_exchange(Lane& t, T& expected, T desired, Order order = Order::acq_rel,
                                    Here here = Here::current()) {
    return ref().compare_exchange(t, expected, desired, order, here);
  }
  template <class Lane>
  FLASHMOB_HD T fetch_add(Lane& t, T delta, Order order = Order::acq_rel, Here here = Here::current()) {
    return ref().fetch_add(t, delta, order, here);
  }
  template <class Lane>
  FLASHMOB_HD T fetch_or(Lane& t, T bits, Order order = Order::acq_rel, Here here = Here::current()) {
    return ref().fetch_or(t, bits, order, here);
  }
  template <class Lane>
  FLASHMOB_HD T fetch_and(Lane& t, T bits, Order order = Order::acq_rel, Here here = Here::current()) {
    return ref().fetch_and(t, bits, order, here);
  }
};

// A counter with one writer at a time, which others may look at. No step of the scheduler's.
FLASHMOB_HD inline void bump(std::uint64_t& counter, std::uint64_t by) {
#if defined(__CUDA_ARCH__)
  *const_cast<volatile std::uint64_t*>(&counter) = counter + by;
#else
  __atomic_store_n(&counter, counter + by, __ATOMIC_RELAXED);
#endif
}
FLASHMOB_HD inline std::uint64_t peek(const std::uint64_t& counter) {
#if defined(__CUDA_ARCH__)
  return *const_cast<const volatile std::uint64_t*>(&counter);
#else
  return __atomic_load_n(&counter, __ATOMIC_RELAXED);
#endif
}

}  // namespace flashmob::gpu::simt
