// Stacks for fibres: kept and reused, the first thousands each above a page
// that no one may touch, and known to AddressSanitizer.
#pragma once

#include <boost/context/stack_context.hpp>
#include <cstddef>
#include <memory>
#include <vector>

namespace flashmob::gpu::simt::detail {

// A stack as AddressSanitizer wants it named when execution moves there.
struct StackBounds {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
};

class FibreStack {
 public:
  // Throws std::bad_alloc where the system gives no more.
  FibreStack(std::size_t bytes, bool guarded);
  ~FibreStack();
  FibreStack(const FibreStack&) = delete;
  FibreStack& operator=(const FibreStack&) = delete;
  boost::context::stack_context context() const;
  const StackBounds& bounds() const { return bounds_; }

 private:
  std::byte* base_;
  std::size_t bytes_;  // with the guard page
  StackBounds bounds_;
};

class StackPool {
 public:
  explicit StackPool(std::size_t stack_bytes);
  FibreStack* take();
  void give(FibreStack* stack) { free_.push_back(stack); }

 private:
  std::size_t stack_bytes_;
  std::vector<std::unique_ptr<FibreStack>> all_;
  std::vector<FibreStack*> free_;
};

// boost::context's stack allocator over a stack that somebody else owns.
struct BorrowedStack {
  FibreStack* stack;
  boost::context::stack_context allocate() { return stack->context(); }
  void deallocate(boost::context::stack_context&) {}
};

// Around every switch of stacks: what `leaving` gives, `arrived` takes on the other side. No effect without
// AddressSanitizer.
void* leaving_stack(const StackBounds& to, bool for_good = false);
StackBounds arrived_on_stack(void* token);

}  // namespace flashmob::gpu::simt::detail
