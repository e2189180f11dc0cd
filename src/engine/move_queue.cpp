#include "engine/move_queue.h"

#include <sys/mman.h>

namespace flashmob::engine {

MoveQueue::MoveQueue()
    : ring_memory_(sizeof(Copy) * (Slab::kCapacity + kOverlap)),
      plain_memory_(sizeof(PlainTransfer) * Slab::kCapacity),
      ring_(reinterpret_cast<Copy*>(ring_memory_.data())),
      plain_(reinterpret_cast<PlainTransfer*>(plain_memory_.data())) {
  // Advice only: thousands of controllers with a huge page or two each would take gigabytes for a few entries.
  for (const memory::HostMemory* const memory : {&ring_memory_, &plain_memory_})
    (void)madvise(memory->data(), memory->size(), MADV_NOHUGEPAGE);
}

}  // namespace flashmob::engine
