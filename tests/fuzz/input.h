// What a fuzz target that plays a sequence of actions makes them from: values off the front of libFuzzer's input.
//
// One thread. The bytes belong to the fuzzer and outlive this.
#pragma once

#include <malloc.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace flashmob::fuzz {

// What is made anew for each input is touched in a few places only: pages of 2 MiB would take longer to clear than the
// input takes to run. And what an input frees, the next one takes: given back to the kernel in between, it would be
// touched for the first time once more.
inline void prefer_small_pages() {
  static const bool once = prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0 && mallopt(M_TRIM_THRESHOLD, 1 << 30) != 0 &&
                           mallopt(M_MMAP_THRESHOLD, 32 << 20) != 0;
  (void)once;
}

// Takes values off the input; zeroes once it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  template <class T>
  T take() {
    T value{};
    copy(reinterpret_cast<std::byte*>(&value), sizeof(T));
    return value;
  }
  std::uint8_t byte() { return take<std::uint8_t>(); }
  // As much as there is; the rest of `to` stays as it is.
  void copy(std::byte* to, std::size_t bytes) {
    bytes = std::min(bytes, left_);
    if (bytes == 0) return;
    std::memcpy(to, data_, bytes);
    data_ += bytes;
    left_ -= bytes;
  }
  std::vector<std::byte> bytes(std::size_t count) {
    std::vector<std::byte> out(count);
    copy(out.data(), count);
    return out;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

}  // namespace flashmob::fuzz
