// Which of the comparisons that instrumented code reports libFuzzer hears of. The linker sends them here (--wrap, see
// CMakeLists.txt).
//
// libFuzzer keeps the operands of four and eight bytes of the latest few that differed, and puts them into inputs. To
// it, equal operands teach nothing, nor do shorter ones unless it is asked for -use_value_profile=1; and addresses of
// this process stand in no input. Where both fit a byte, it needs no telling. Most of what is reported is of these
// kinds, because each of UndefinedBehaviorSanitizer's own checks is a comparison too: it took a sixth of an input's
// time, and drove the operands that matter out of their places. Any thread.
#include <array>
#include <cstdint>

#if defined(__clang__)

// The linker's names: __wrap_X is called for X, __real_X is X. libFuzzer tells comparisons apart by who calls, so it is
// jumped to.
#define FLASHMOB_TRACED(NAME, TYPE, IS_WORTH_IT)                          \
  extern "C" void __real___sanitizer_cov_trace_##NAME(TYPE a, TYPE b);    \
  extern "C" void __wrap___sanitizer_cov_trace_##NAME(TYPE a, TYPE b) {   \
    if (!(IS_WORTH_IT)) return;                                           \
    [[clang::musttail]] return __real___sanitizer_cov_trace_##NAME(a, b); \
  }

namespace {

// Where programs and their memory lie on 64-bit Linux.
constexpr bool is_address(std::uint64_t value) { return value >> 40 != 0 && value >> 47 == 0; }
// What one byte holds is found by changing bytes; most of it is a loop's counter and its end.
constexpr bool is_byte(std::uint64_t value) { return value <= 0xFF; }

// libFuzzer keeps one pair of operands for each value that their difference has in its low five bits, and those of
// eight bytes apart from those of four. What it has there already it needs not be told again: a time that is compared
// with a deadline over and over, say.
template <class T>
bool is_new(T a, T b) {
  struct Pair {
    T a, b;
  };
  static thread_local constinit std::array<Pair, 32> told{};
  Pair& last = told[(a ^ b) % told.size()];
  if (last.a == a && last.b == b) return false;
  last = {a, b};
  return true;
}

}  // namespace

FLASHMOB_TRACED(const_cmp8, std::uint64_t, a != b && !is_byte(a | b) && is_new(a, b))
FLASHMOB_TRACED(cmp8, std::uint64_t, a != b && !is_byte(a | b) && !(is_address(a) && is_address(b)) && is_new(a, b))
FLASHMOB_TRACED(const_cmp4, std::uint32_t, a != b && !is_byte(a | b) && is_new(a, b))
FLASHMOB_TRACED(cmp4, std::uint32_t, a != b && !is_byte(a | b) && is_new(a, b))

extern "C" {
void __wrap___sanitizer_cov_trace_const_cmp2(std::uint16_t, std::uint16_t) {}
void __wrap___sanitizer_cov_trace_cmp2(std::uint16_t, std::uint16_t) {}
void __wrap___sanitizer_cov_trace_const_cmp1(std::uint8_t, std::uint8_t) {}
void __wrap___sanitizer_cov_trace_cmp1(std::uint8_t, std::uint8_t) {}
}

#endif
