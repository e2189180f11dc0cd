// An array of zeroes whose length is fixed when it is made, and whose memory is taken page by page as it is written: as
// large as it may ever have to be, so that nothing grows, moves or fails while commands run.
//
// As an array is: its owner keeps threads apart.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

namespace flashmob::command_set::kv {

template <class T>
class LazyArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // Throws std::bad_alloc where the machine has no such address space.
  explicit LazyArray(std::uint64_t count) : bytes_(count * sizeof(T)) {
    if (bytes_ == 0) return;
    void* const mapping =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    items_ = static_cast<T*>(mapping);
  }
  ~LazyArray() {
    if (items_ != nullptr) ::munmap(items_, bytes_);
  }
  LazyArray(const LazyArray&) = delete;
  LazyArray& operator=(const LazyArray&) = delete;

  T& operator[](std::uint64_t index) { return items_[index]; }
  const T& operator[](std::uint64_t index) const { return items_[index]; }

  // All zeroes again; the memory goes back to the machine.
  void clear() {
    if (items_ != nullptr) ::madvise(items_, bytes_, MADV_DONTNEED);
  }

 private:
  std::uint64_t bytes_;
  T* items_ = nullptr;
};

}  // namespace flashmob::command_set::kv
