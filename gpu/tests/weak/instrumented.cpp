// What code that is compiled with -fsanitize=thread calls at each of its accesses, in place of ThreadSanitizer's own
// library: everything goes to the weak memory of the fibres, where there is one, and else to memory as it is.
// Not compiled with -fsanitize=thread itself.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "simt/weak_memory.h"

namespace {

using flashmob::gpu::simt::detail::WeakMemory;
using Update = WeakMemory::Update;

std::uintptr_t number(const volatile void* at) { return reinterpret_cast<std::uintptr_t>(at); }
void reads(const volatile void* at, std::size_t bytes) {
  if (WeakMemory* memory = WeakMemory::current()) memory->read(number(at), bytes);
}
void writes(const volatile void* at, std::size_t bytes) {
  if (WeakMemory* memory = WeakMemory::current()) memory->write(number(at), bytes);
}

template <class T>
T load(const volatile T* at, int order) {
  if (WeakMemory* memory = WeakMemory::current()) return static_cast<T>(memory->load(number(at), sizeof(T), order));
  return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}
template <class T>
void store(volatile T* at, T value, int order) {
  if (WeakMemory* memory = WeakMemory::current())
    memory->store(number(at), sizeof(T), value, order);
  else
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
}
template <class T>
bool compare_exchange(volatile T* at, T* expected, T desired, int order, int failed_order) {
  WeakMemory* memory = WeakMemory::current();
  if (memory == nullptr)
    return __atomic_compare_exchange_n(at, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  const T wanted = *expected;
  *expected = static_cast<T>(memory->compare_exchange(number(at), sizeof(T), wanted, desired, order, failed_order));
  return *expected == wanted;
}
template <class T>
T update(volatile T* at, Update what, T value, int order) {
  return static_cast<T>(WeakMemory::current()->update(number(at), sizeof(T), what, value, order));
}

}  // namespace

extern "C" {

void __tsan_init() { WeakMemory::is_instrumented = true; }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* at, std::size_t bytes) { reads(at, bytes); }
void __tsan_write_range(void* at, std::size_t bytes) { writes(at, bytes); }
void __tsan_atomic_thread_fence(int) {
  // Device code has none: its fences are sync() and sync_block().
  if (WeakMemory::current() != nullptr) std::abort();
}
void __tsan_atomic_signal_fence(int) {}

#define FLASHMOB_PLAIN(bytes)                                             \
  void __tsan_read##bytes(void* at) { reads(at, bytes); }                 \
  void __tsan_write##bytes(void* at) { writes(at, bytes); }               \
  void __tsan_unaligned_read##bytes(const void* at) { reads(at, bytes); } \
  void __tsan_unaligned_write##bytes(void* at) { writes(at, bytes); }
FLASHMOB_PLAIN(1)
FLASHMOB_PLAIN(2)
FLASHMOB_PLAIN(4)
FLASHMOB_PLAIN(8)
FLASHMOB_PLAIN(16)

#define FLASHMOB_UPDATE(bits, name, builtin, what)                                                              \
  std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* at, std::uint##bits##_t value, \
                                                   int order) {                                                 \
    if (WeakMemory::current() == nullptr) return builtin(at, value, __ATOMIC_SEQ_CST);                          \
    return update(at, what, value, order);                                                                      \
  }
#define FLASHMOB_ATOMIC(bits)                                                                                        \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* at, int order) {                \
    return load(at, order);                                                                                          \
  }                                                                                                                  \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* at, std::uint##bits##_t value, int order) {         \
    store(at, value, order);                                                                                         \
  }                                                                                                                  \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile std::uint##bits##_t* at, std::uint##bits##_t* expected, \
                                                    std::uint##bits##_t desired, int order, int failed_order) {      \
    return compare_exchange(at, expected, desired, order, failed_order);                                             \
  }                                                                                                                  \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile std::uint##bits##_t* at, std::uint##bits##_t* expected,   \
                                                  std::uint##bits##_t desired, int order, int failed_order) {        \
    return compare_exchange(at, expected, desired, order, failed_order);                                             \
  }                                                                                                                  \
  FLASHMOB_UPDATE(bits, exchange, __atomic_exchange_n, Update::exchange)                                             \
  FLASHMOB_UPDATE(bits, fetch_add, __atomic_fetch_add, Update::add)                                                  \
  FLASHMOB_UPDATE(bits, fetch_sub, __atomic_fetch_sub, Update::subtract)                                             \
  FLASHMOB_UPDATE(bits, fetch_or, __atomic_fetch_or, Update::bits_or)                                                \
  FLASHMOB_UPDATE(bits, fetch_and, __atomic_fetch_and, Update::bits_and)                                             \
  FLASHMOB_UPDATE(bits, fetch_xor, __atomic_fetch_xor, Update::bits_xor)
FLASHMOB_ATOMIC(8)
FLASHMOB_ATOMIC(16)
FLASHMOB_ATOMIC(32)
FLASHMOB_ATOMIC(64)

}  // extern "C"

// Memory that is given out anew has no past.
void* operator new(std::size_t bytes) {
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  if (WeakMemory* weak = WeakMemory::current()) weak->forget(number(memory), bytes);
  return memory;
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto align = static_cast<std::size_t>(alignment);
  void* const memory = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (memory == nullptr) throw std::bad_alloc();
  if (WeakMemory* weak = WeakMemory::current()) weak->forget(number(memory), bytes);
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
