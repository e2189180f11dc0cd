// Division of 32-bit numbers by a divisor known at start-up, by a multiply.
#pragma once

#include <cstdint>

#include "base/check.h"

namespace flashmob::timing::nand {

class Divider {
 public:
  explicit Divider(std::uint32_t divisor) : divisor_(divisor), reciprocal_(divisor > 1 ? UINT64_MAX / divisor + 1 : 0) {
    FLASHMOB_CHECK(divisor > 0);
  }
  // Exact for every n (Lemire, Kaser and Kurz, "Faster remainder by direct computation", 2019).
  std::uint32_t quotient(std::uint32_t n) const {
    if (reciprocal_ == 0) return n;
    return static_cast<std::uint32_t>((static_cast<unsigned __int128>(reciprocal_) * n) >> 64);
  }
  std::uint32_t remainder(std::uint32_t n) const { return n - quotient(n) * divisor_; }

 private:
  std::uint32_t divisor_;
  std::uint64_t reciprocal_;
};

}  // namespace flashmob::timing::nand
