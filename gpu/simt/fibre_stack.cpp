#include "simt/fibre_stack.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#if defined(FLASHMOB_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

// Programs with fibres do without the check for use after return: it keeps frames outside their stacks, and a fibre
// that leaves for good would lose the frame that it still stands in. Not weak: AddressSanitizer's own is, and comes
// first.
extern "C" {
__attribute__((weak)) const char* flashmob_fibre_asan_options();  // of a program that has more to say
__attribute__((visibility("default"))) const char* __asan_default_options() {
  return flashmob_fibre_asan_options != nullptr ? flashmob_fibre_asan_options() : "detect_stack_use_after_return=0";
}
}
#endif

namespace flashmob::gpu::simt::detail {
namespace {

// Every guard page splits a mapping, and Linux allows a process 65,530 of them.
constexpr std::size_t kGuardedStacks = 16'384;

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

FibreStack::FibreStack(std::size_t bytes, bool guarded) {
  const std::size_t page = page_bytes();
  bytes_ = (bytes + page - 1) / page * page + page;
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(memory);
  bounds_ = {base_ + page, bytes_ - page};
  if (guarded && mprotect(base_, page, PROT_NONE) != 0) throw std::bad_alloc();
}

FibreStack::~FibreStack() {
#if defined(FLASHMOB_ASAN)
  // A lane that was cancelled leaves its frames marked; the next mapping here must not inherit the marks.
  __asan_unpoison_memory_region(base_, bytes_);
#endif
  munmap(base_, bytes_);
}

boost::context::stack_context FibreStack::context() const {
  boost::context::stack_context context;
  context.size = bytes_ - page_bytes();
  context.sp = base_ + bytes_;
  return context;
}

StackPool::StackPool(std::size_t stack_bytes) : stack_bytes_(stack_bytes) {
#if defined(FLASHMOB_ASAN)
  stack_bytes_ *= 4;  // red zones and unshared slots make frames several times larger
#endif
}

FibreStack* StackPool::take() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<FibreStack>(stack_bytes_, all_.size() < kGuardedStacks));
    return all_.back().get();
  }
  FibreStack* stack = free_.back();
  free_.pop_back();
  return stack;
}

void* leaving_stack([[maybe_unused]] const StackBounds& to, [[maybe_unused]] bool for_good) {
  void* token = nullptr;
#if defined(FLASHMOB_ASAN)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &token, to.bottom, to.bytes);
#endif
  return token;
}

StackBounds arrived_on_stack([[maybe_unused]] void* token) {
  StackBounds from;
#if defined(FLASHMOB_ASAN)
  __sanitizer_finish_switch_fiber(token, &from.bottom, &from.bytes);
#endif
  return from;
}

}  // namespace flashmob::gpu::simt::detail
