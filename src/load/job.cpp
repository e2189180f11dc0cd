#include "load/job.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "base/check.h"
#include "load/job_queue.h"
#include "media/block_content.h"

namespace flashmob::load {

namespace {

constexpr std::uint64_t kPatienceOnceCancelledNs = 500'000'000;
// For requests of all queues that went elsewhere: where they are many, each takes four bytes or so.
constexpr std::size_t kMostMovedBytes = std::size_t{256} << 20;

}  // namespace

void KindStats::merge(const KindStats& other) {
  ios += other.ios;
  bytes += other.bytes;
  latency_ns.merge(other.latency_ns);
  served_ns.merge(other.served_ns);
}

void JobStats::merge(const JobStats& other) {
  for (std::size_t kind = 0; kind < kIoKinds; ++kind) kinds[kind].merge(other.kinds[kind]);
  latency_ns.merge(other.latency_ns);
  served_ns.merge(other.served_ns);
  ios += other.ios;
  bytes += other.bytes;
  failed += other.failed;
  moved += other.moved;
  ramp_ios += other.ramp_ios;
  outstanding += other.outstanding;
  backlog += other.backlog;
  oldest_ns = std::max(oldest_ns, other.oldest_ns);
  started_ns = started_ns == 0 ? other.started_ns : std::min(started_ns, other.started_ns);
  ended_ns = std::max(ended_ns, other.ended_ns);
  verified += other.verified;
  crowded += other.crowded;
  verify_errors += other.verify_errors;
  if (first_error.empty()) first_error = other.first_error;
  for (const auto& [status, count] : other.errors) errors[status] += count;
  unanswered += other.unanswered;
  gaps.join(other.gaps);
  long_work.join(other.long_work);
}

Job::Job(const JobConfig& config, const Clock& clock, driver::PciDevice& device, Verifier& verifier,
         std::function<void()> on_measure, std::function<void()> on_end)
    : config_(config),
      clock_(clock),
      device_(device),
      verifier_(verifier),
      on_measure_(std::move(on_measure)),
      on_end_(std::move(on_end)),
      rng_(config.seed),
      gaps_(clock.is_virtual() ? UINT64_MAX : config.gap_ns) {
  if (verifier.source() != TruthSource::none)
    verify_every_ = static_cast<std::uint64_t>(std::clamp(config.verify_percent, 0.0, 100.0) / 100.0 * 4294967296.0);
  if (config_.group == nullptr) config_.group = std::make_shared<JobGroup>();
  plain_closed_loop_ = config.loop == LoopKind::closed && config.think_time_ns == 0;
}

Job::~Job() = default;

const MovedList& Job::moved(std::size_t index) const { return queues_[index]->moved; }

void Job::add_queue(driver::QueuePair& pair, Pattern pattern, std::uint64_t requesters, double rate_iops,
                    std::vector<TraceIo> trace) {
  auto queue = std::make_unique<Queue>(pair, std::move(pattern), rng_.split(queues_.size() + 2));
  queue->requesters = requesters;
  queue->rate_iops = rate_iops;
  if (rate_iops > 0) queue->arrivals.emplace(config_.seed, queues_.size(), rate_iops, config_.poisson);
  trace_ios_ += trace.size();
  queue->trace = std::move(trace);
  for (std::uint32_t cid = config_.queue_depth; cid-- > 0;) queue->free.push_back(static_cast<std::uint16_t>(cid));
  // Small requests share pages without crossing them; larger ones start on a page.
  queue->stride = std::bit_ceil(std::max<std::uint64_t>(config_.max_io_bytes, media::kSectorBytes));
  if (queue->stride > 4096) queue->stride = (std::uint64_t{config_.max_io_bytes} + 4095) / 4096 * 4096;
  queue->lists = std::make_unique<driver::PrpLists>(device_, config_.queue_depth, config_.max_io_bytes);
  queues_.push_back(std::move(queue));
  ready_.assign(queues_.size() / 64 + 1, 0);
}

// As much as all that the queue will ask for may take, up to a limit.
std::size_t Job::room_for_moved(const Queue& queue) const {
  const double seconds = static_cast<double>(config_.ramp_ns + config_.runtime_ns) / 1e9;
  const double requests =
      config_.ios != 0 ? static_cast<double>(config_.ramp_ios + config_.ios) : queue.rate_iops * seconds;
  // Random arrivals may be a few more, and few of them many more.
  constexpr double kMore = 1.5, kFew = 10'000;
  const double bytes = (kMore * requests + kFew) * MovedList::kMostBytesEach;
  return static_cast<std::size_t>(
      std::min(bytes, static_cast<double>(kMostMovedBytes) / static_cast<double>(queues_.size())));
}

void Job::prepare() {
  std::uint64_t bytes = 0;
  for (const auto& queue : queues_) bytes += queue->stride * config_.queue_depth;
  buffers_ = std::make_unique<driver::DmaMemory>(device_, std::max<std::uint64_t>(bytes, 4096));
  // Content that no disk would compress, so that writes carry real bytes even when they are not verified.
  Rng content = rng_.split(1);
  for (std::uint64_t at = 0; at + 8 <= bytes; at += 8)
    *reinterpret_cast<std::uint64_t*>(buffers_->data() + at) = content.next();
  const std::size_t slots = queues_.size() * config_.queue_depth;
  if (config_.predicts) predictor_ = std::make_unique<CompletionPredictor>(slots);
  slots_ = memory::HostMemory(std::max<std::size_t>(slots, 1) * sizeof(SlotState));
  auto* slot = reinterpret_cast<SlotState*>(slots_.data());
  std::uninitialized_value_construct_n(slot, slots);
  std::uint64_t next = 0;
  for (auto& queue : queues_) {
    if (config_.lists_moved) queue->moved.reserve(room_for_moved(*queue));
    queue->buffers = buffers_->data() + next;
    queue->buffers_iova = buffers_->iova() + next;
    next += queue->stride * config_.queue_depth;
    queue->slots = slot;
    slot += config_.queue_depth;
  }
}

void Job::start() {
  FLASHMOB_CHECK(buffers_ != nullptr);
  // Without a ramp all is measured: what the device answers before we look for the first time, too.
  const bool has_ramp = config_.ios != 0 ? config_.ramp_ios != 0 : config_.ramp_ns != 0;
  set_state(has_ramp ? State::ramp : State::measure);
  begun_ns_.store(now_ns_, std::memory_order_relaxed);
  ramp_end_ns_ = now_ns_ + config_.ramp_ns;
  for (auto& queue : queues_) {
    if (config_.loop == LoopKind::closed) {
      for (std::uint64_t i = 0; i < queue->requesters; ++i) want(*queue, now_ns_);
    } else if (config_.loop == LoopKind::open) {
      queue->arrivals->start(now_ns_);
    } else if (config_.loop == LoopKind::trace_as_fast) {
      while (!queue->free.empty() && queue->trace_next < queue->trace.size()) want(*queue, now_ns_);
    } else {
      for (TraceIo& io : queue->trace) io.time_ns += now_ns_;
    }
    queue->pair.ring_sq();
  }
}

bool Job::trace_exhausted() const {
  for (const auto& queue : queues_)
    if (queue->trace_next < queue->trace.size()) return false;
  return true;
}

void Job::advance_state() {
  const bool cancelled = cancel_.load(std::memory_order_relaxed);
  if (state_ == State::ramp) {
    const bool over = config_.ios != 0 ? config_.group->completed.load(std::memory_order_relaxed) >= config_.ramp_ios
                                       : now_ns_ >= ramp_end_ns_;
    if (over || cancelled) set_state(State::measure);
  }
  if (state_ == State::measure) {
    bool over =
        config_.ios != 0 ? config_.group->measured.load(std::memory_order_relaxed) >= config_.ios : now_ns_ >= end_ns_;
    if (is_trace()) over |= trace_exhausted() && outstanding_ == 0;
    if (over || cancelled) set_state(State::drain);
  }
  if (state_ == State::drain && outstanding_ == 0) set_state(State::done);
}

// Ends the job once there is no hope for what it waits for.
void Job::wait_in_vain() {
  if (silent_since_ns_ == 0) silent_since_ns_ = now_ns_;
  // Whoever has cancelled the run does not want to wait as long as the run would.
  const bool cancelled = cancel_.load(std::memory_order_relaxed);
  if (now_ns_ - silent_since_ns_ <
      (cancelled ? std::min(config_.patience_ns, kPatienceOnceCancelledNs) : config_.patience_ns))
    return;
  silent_since_ns_ = now_ns_;
  if (config_.nothing_comes && !config_.nothing_comes()) return;
  if (state_ == State::ramp) set_state(State::measure);
  give_up();
}

void Job::give_up() {
  if (state_ == State::measure) set_state(State::drain);
  stats_.unanswered = outstanding_;
  outstanding_ = 0;
  if (stats_.unanswered != 0) leave_out_waits_in_vain();
  set_state(State::done);
}

// Of a trace that has nothing more to ask for, or as fast as it goes no slot to ask with, the time in which only
// commands without an answer were waited for is no part of the measured time: it ends with the last answer, or the last
// request.
void Job::leave_out_waits_in_vain() {
  if (!is_trace() || stats_.backlog != 0) return;
  if (config_.loop == LoopKind::trace && !trace_exhausted()) return;
  std::uint64_t last_ns = std::max(answered_ns_, stats_.started_ns);
  for (const auto& queue : queues_)
    if (config_.loop == LoopKind::trace && !queue->trace.empty())
      last_ns = std::max(last_ns, queue->trace.back().time_ns);
  const std::uint64_t in_vain_ns = stats_.ended_ns - std::min(stats_.ended_ns, last_ns);
  stats_.ended_ns -= in_vain_ns;
  // Their ages are told as of the end, and what follows it is added.
  stats_.oldest_ns -= std::min(stats_.oldest_ns, in_vain_ns);
}

void Job::abandon() {
  if (state_ == State::done) return;
  if (state_ == State::fresh) begun_ns_.store(clock_.now_ns(), std::memory_order_relaxed);
  if (state_ < State::measure) set_state(State::measure);
  // Nothing was measured after the last answer, and nobody would have asked for more. How long those that have none
  // have waited until that was found out is told.
  const std::uint64_t found_ns = clock_.now_ns();
  if (state_ == State::measure) {
    now_ns_ = std::max(answered_ns_, stats_.started_ns);
    for (auto& queue : queues_)
      while (!queue->backlog_ns.empty() && queue->backlog_ns.back() > now_ns_) queue->backlog_ns.pop_back();
  }
  give_up();
  if (stats_.unanswered != 0 || stats_.backlog != 0) stats_.oldest_ns += found_ns - std::min(found_ns, now_ns_);
}

void Job::set_state(State next) {
  state_ = next;
  resubmits_ = plain_closed_loop_ && next < State::drain;
  if (next == State::measure) begin_measuring();
  if (next == State::drain) end_measuring();
  if (next == State::done) add_up();
}

void Job::begin_measuring() {
  if (on_measure_) on_measure_();
  // The callback may have taken a while (it parks the engine for a moment); measuring starts after it.
  now_ns_ = clock_.now_ns();
  gaps_.clear();
  gaps_.restart(now_ns_);
  stats_.started_ns = now_ns_;
  stats_.ramp_ios = completed_;
  end_ns_ = now_ns_ + config_.runtime_ns;
  progress_measuring_.store(true, std::memory_order_relaxed);
}

// What is not done by now is told with its age. Requests without a slot are given up.
void Job::end_measuring() {
  stats_.ended_ns = now_ns_;
  // First, because a long backlog takes a while: whoever else measures ends with us.
  if (on_end_) on_end_();
  stats_.gaps = gaps_.gaps();
  stats_.long_work = gaps_.long_work();
  stats_.outstanding = outstanding_;
  const auto note = [this](std::uint64_t wanted_ns) {
    if (wanted_ns < now_ns_) stats_.oldest_ns = std::max(stats_.oldest_ns, now_ns_ - wanted_ns);
  };
  std::vector<bool> is_free(config_.queue_depth);
  for (auto& queue : queues_) {
    is_free.assign(config_.queue_depth, false);
    for (const std::uint16_t cid : queue->free) is_free[cid] = true;
    for (std::uint32_t cid = 0; cid < config_.queue_depth; ++cid)
      if (!is_free[cid]) note(queue->slots[cid].wanted_ns);
    stats_.backlog += queue->backlog_ns.size();
    for (const std::uint64_t wanted_ns : queue->backlog_ns) {
      note(wanted_ns);
      // In a closed loop some wait at any time, as they do at the ends of the yardstick's.
      if (config_.loop != LoopKind::closed) given_up_ns_.push_back(wanted_ns);
    }
    queue->backlog_ns.clear();
    queue->waits_since_ns.clear();
    queue->thinking_ns.clear();
  }
}

void Job::add_up() {
  for (const KindStats& kind : stats_.kinds) {
    stats_.ios += kind.ios;
    stats_.latency_ns.merge(kind.latency_ns);
    stats_.served_ns.merge(kind.served_ns);
  }
  // Blocks that were deallocated are no throughput.
  for (const IoKind kind : {IoKind::read, IoKind::write}) stats_.bytes += stats_.of(kind).bytes;
  // As old as when the last answer came: how long those that have none were waited for is nobody's latency.
  const std::uint64_t drained_ns = stats_.unanswered == 0 ? now_ns_ : std::max(answered_ns_, stats_.ended_ns);
  for (const std::uint64_t wanted_ns : given_up_ns_)
    stats_.latency_ns.record(drained_ns > wanted_ns ? drained_ns - wanted_ns : 0);
  // Commands that were never answered have waited at least so long.
  if (stats_.unanswered != 0) stats_.oldest_ns = stats_.oldest_ns + (now_ns_ - stats_.ended_ns);
}

double Job::fraction() const {
  if (is_trace()) return std::clamp(static_cast<double>(completed()) / static_cast<double>(trace_ios_), 0.0, 1.0);
  const double total = config_.ios != 0 ? static_cast<double>(config_.ramp_ios + config_.ios)
                                        : static_cast<double>(config_.ramp_ns + config_.runtime_ns);
  const std::uint64_t begun_ns = begun_ns_.load(std::memory_order_relaxed);
  if (begun_ns == 0 || total <= 0) return 0;
  const double part = config_.ios != 0
                          ? static_cast<double>(config_.group->completed.load(std::memory_order_relaxed))
                          : static_cast<double>(progress_now_ns_.load(std::memory_order_relaxed) - begun_ns);
  return std::clamp(part / total, 0.0, 1.0);
}

std::uint64_t Job::next_deadline_ns() const {
  // An interrupt that came after our turn.
  const bool is_called = std::any_of(ready_.begin(), ready_.end(), [](std::uint64_t bits) { return bits != 0; });
  if (is_called && state_ != State::done) return 0;
  const std::uint64_t own_ns = own_deadline_ns();
  const bool patient = only_waits(own_ns) && silent_since_ns_ != 0 && state_ != State::done;
  return patient ? std::min(own_ns, silent_since_ns_ + config_.patience_ns) : own_ns;
}

// For answers alone. The end of a trace's time brings nothing once all of it has been asked.
bool Job::only_waits(std::uint64_t own_deadline_ns) const {
  return own_deadline_ns == UINT64_MAX || (state_ == State::measure && is_trace() && trace_exhausted());
}

// When it has something to do that no completion brings.
std::uint64_t Job::own_deadline_ns() const {
  if (state_ == State::done || state_ == State::drain) return UINT64_MAX;
  if (state_ == State::fresh) return 0;
  std::uint64_t deadline = UINT64_MAX;
  if (config_.ios == 0 && state_ == State::ramp) deadline = ramp_end_ns_;
  if (config_.ios == 0 && state_ == State::measure && config_.runtime_ns != JobConfig::kNoEnd) deadline = end_ns_;
  if (plain_closed_loop_) return deadline;
  for (const auto& queue : queues_) {
    if (!queue->thinking_ns.empty()) deadline = std::min(deadline, queue->thinking_ns.front());
    if (config_.loop == LoopKind::open) deadline = std::min(deadline, queue->arrivals->next_ns() + 1);
    if (config_.loop == LoopKind::trace && queue->trace_next + queue->backlog_ns.size() < queue->trace.size())
      deadline = std::min(deadline, queue->trace[queue->trace_next + queue->backlog_ns.size()].time_ns);
  }
  return deadline;
}

}  // namespace flashmob::load
