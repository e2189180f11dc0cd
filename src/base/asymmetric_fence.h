// A memory fence that only one of two sides pays for. Where thread A often stores x and then loads y, and thread B
// rarely stores y and then loads x, one of them must see the other's store; with heavy_fence() between B's two
// accesses, A needs nothing but the compiler's restraint (sys_membarrier, "private expedited": every running thread of
// the process passes a full fence meanwhile). Any thread.
#pragma once

#include <atomic>

namespace flashmob {

// A's side: no instruction at all.
inline void light_fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// True where the kernel has it and ThreadSanitizer, which does not know it, is not in use; constant for a process.
// Else A has to use sequentially consistent accesses, or to live with what B may miss.
bool has_heavy_fence();

// B's side, some microseconds. Nothing where has_heavy_fence() is false.
void heavy_fence();

}  // namespace flashmob
