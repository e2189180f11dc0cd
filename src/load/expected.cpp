#include "load/expected.h"

#include <algorithm>
#include <queue>
#include <vector>

#include "timing/model.h"

namespace flashmob::load {

double expected_iops(const TimingConfig& timing, const ExpectedLoad& load, const std::function<Io()>& next) {
  if (timing.model == "none") return 0;
  const auto model = timing::make_model(timing, false);
  unsigned unit_shift = 0;
  while ((1u << unit_shift) < timing.unit_bytes) ++unit_shift;
  const auto target = [&](std::uint64_t now_ns) {
    const Io io = next();
    const std::uint64_t offset = io.slba << load.lba_shift;
    const std::uint64_t bytes = std::uint64_t{io.blocks} << load.lba_shift;
    const std::uint64_t first = offset >> unit_shift;
    const std::uint64_t last = (offset + bytes - 1) >> unit_shift;
    const timing::Demand demand{first, static_cast<std::uint32_t>(last - first + 1),
                                io.is_write ? timing::DemandKind::write : timing::DemandKind::read,
                                timing::sectors_of(bytes)};
    std::uint64_t done_ns = 0;
    model->schedule({&demand, 1}, now_ns, {&done_ns, 1});
    return done_ns;
  };
  // A discrete-event closed loop: whoever completes first asks again. Requesters beyond the device's slots only wait.
  using Heap = std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>>;
  const std::uint64_t population =
      std::max<std::uint64_t>(1, load.think_time_ns != 0 ? load.requesters : load.concurrency);
  const std::uint64_t warm_up = std::max<std::uint64_t>(2 * population, 50'000);
  const std::uint64_t measured = std::max<std::uint64_t>(population, 200'000);
  // Events carry their kind in the lowest bit: 0 a completion, 1 a requester that has thought.
  Heap heap;
  for (std::uint64_t i = 0; i < population; ++i) heap.push(target(1) << 1);
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  for (std::uint64_t completed = 0; completed < warm_up + measured;) {
    const std::uint64_t now_ns = heap.top() >> 1;
    const bool thought = (heap.top() & 1) != 0;
    heap.pop();
    if (!thought) {
      if (completed++ == warm_up) start_ns = now_ns;
      end_ns = now_ns;
    }
    // With think time and few slots this ignores slot contention: an upper bound, exact while slots suffice.
    if (!thought && load.think_time_ns != 0)
      heap.push(((now_ns + load.think_time_ns) << 1) | 1);
    else
      heap.push(target(now_ns) << 1);
  }
  if (end_ns <= start_ns) return 0;
  const double closed = static_cast<double>(measured - 1) * 1e9 / static_cast<double>(end_ns - start_ns);
  return load.rate_iops > 0 ? std::min(closed, load.rate_iops) : closed;
}

}  // namespace flashmob::load
