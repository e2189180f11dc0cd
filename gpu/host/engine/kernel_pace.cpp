#include "host/engine/kernel_pace.h"

#include <algorithm>
#include <utility>

namespace flashmob::gpu {
namespace {

// A kernel that has been let run for so long without any change, in its own time, can do nothing by itself before its
// next target. Longer than its longest pause and a whole turn of the timing wheel, which follows a jump of the clock,
// take together.
constexpr std::uint64_t kQuietNs = 6'000;
// The kernel gets as much time as has passed on the SSD's clock, but not for what it has slept through.
constexpr std::uint64_t kLongestRunNs = 500;

}  // namespace

KernelPace::Turn KernelPace::let_run(DeviceEngine& engine, EngineMachine& machine, std::uint64_t now_ns) {
  const std::uint64_t passed_ns = std::min(now_ns - std::exchange(last_run_ns_, now_ns), kLongestRunNs);
  const EngineActivity before = engine.activity();
  if (before.print != print_ || now_ns >= due_ns_) quiet_ns_ = 0;
  print_ = before.print;
  busy_ = before.busy;
  due_ns_ = now_ns >= due_ns_ ? UINT64_MAX : due_ns_;
  if (quiet_ns_ >= kQuietNs) return Turn::rested;
  if (passed_ns == 0) return Turn::ran;
  if (!machine.step(passed_ns)) return Turn::lost;
  const EngineActivity after = engine.activity();
  quiet_ns_ = after.print == print_ && !after.moving ? quiet_ns_ + passed_ns : 0;
  print_ = after.print;
  if (quiet_ns_ < kQuietNs) return Turn::ran;
  // What came due while nothing changed may be on its way out: it is quiet since then.
  // Where no command is in flight, nothing waits for its time.
  const std::uint64_t next_ns = after.busy == 0 ? UINT64_MAX : engine.next_due_ns(now_ns - quiet_ns_);
  if (next_ns <= now_ns) {
    quiet_ns_ = now_ns - next_ns;
    return Turn::ran;
  }
  due_ns_ = next_ns;
  return Turn::rested;
}

}  // namespace flashmob::gpu
