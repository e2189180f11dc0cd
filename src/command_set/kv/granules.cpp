#include "command_set/kv/granules.h"

#include <utility>

#include "base/check.h"

namespace flashmob::command_set::kv {

bool Granules::promise(std::uint32_t wanted) {
  if (wanted > free()) return false;
  promised_ += wanted;
  return true;
}

// Those that nobody has looked at since they were freed count as in use, and go on doing so.
void Granules::take(std::uint32_t wanted, Ring& ring) {
  FLASHMOB_CHECK(wanted <= promised_);
  promised_ -= wanted;
  for (; wanted != 0; --wanted) {
    std::uint32_t granule = fresh_;
    if (free_ != 0) {
      granule = next_[free_last_];
      next_[free_last_] = next_[granule];
      --free_;
      if (swept_ != 0) {
        --swept_;
        note_use(granule);
      }
    } else {
      ++fresh_;
      note_use(granule);
    }
    if (ring.count++ == 0)
      next_[granule] = granule;
    else
      next_[granule] = std::exchange(next_[ring.last], granule);
    ring.last = granule;
  }
}

std::optional<std::uint32_t> Granules::take(std::uint32_t wanted) {
  if (wanted == 0 || !promise(wanted)) return std::nullopt;
  Ring ring;
  take(wanted, ring);
  return ring.last;
}

void Granules::give_back(Ring ring) {
  if (ring.count == 0) return;
  if (free_ != 0) std::swap(next_[free_last_], next_[ring.last]);
  free_last_ = ring.last;
  free_ += ring.count;
}

void Granules::clear() {
  FLASHMOB_CHECK(promised_ == 0);
  fresh_ = free_ = free_last_ = swept_ = swept_last_ = 0;
  next_.clear();
  in_use_.clear();
}

}  // namespace flashmob::command_set::kv
