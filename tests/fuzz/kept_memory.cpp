// Memory of operator new in the fast build's fuzz targets: what is freed is kept by size for the next that asks for as
// much. An input makes and ends a device and its clients, and the C library joined and split the same blocks for each
// of them, a tenth of the input's time. Not with AddressSanitizer, which has to see every block.
//
// Any thread; a block belongs to the thread that freed it last, and what is kept is never given back.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kSteps = 64;  // sizes of 16, 32, ... bytes
constexpr std::size_t kStepBytes = 16;
constexpr unsigned kMostBits = 20;  // then of powers of two; larger ones are the C library's
constexpr std::size_t kClasses = kSteps + 1 + kMostBits;
constexpr std::size_t kNotKept = kClasses;

// Before each block; as wide as blocks are aligned.
struct alignas(16) Head {
  Head* next;
  std::size_t size_class;
};

thread_local constinit std::array<Head*, kClasses> kept{};

std::size_t class_of(std::size_t bytes) {
  if (bytes <= kSteps * kStepBytes) return (bytes + kStepBytes - 1) / kStepBytes;
  const auto bits = static_cast<unsigned>(std::bit_width(bytes - 1));
  return bits <= kMostBits ? kSteps + bits : kNotKept;
}
std::size_t bytes_of(std::size_t size_class) {
  return size_class <= kSteps ? size_class * kStepBytes : std::size_t{1} << (size_class - kSteps);
}

}  // namespace

void* operator new(std::size_t bytes) {
  const std::size_t size_class = class_of(bytes);
  Head* head = size_class != kNotKept ? kept[size_class] : nullptr;
  if (head != nullptr) {
    kept[size_class] = head->next;
    return head + 1;
  }
  head = static_cast<Head*>(std::malloc(sizeof(Head) + (size_class != kNotKept ? bytes_of(size_class) : bytes)));
  if (head == nullptr) throw std::bad_alloc();
  head->size_class = size_class;
  return head + 1;
}

void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  Head* const head = static_cast<Head*>(memory) - 1;
  if (head->size_class == kNotKept) return std::free(head);
  head->next = kept[head->size_class];
  kept[head->size_class] = head;
}

void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
