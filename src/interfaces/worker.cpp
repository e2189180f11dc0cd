#include "interfaces/worker.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>

#include "interfaces/content.h"

namespace flashmob::interfaces {
namespace {

constexpr std::size_t kPageBytes = 4096;

}  // namespace

std::uint64_t monotonic_ns() {
  // Linux' steady clock is CLOCK_MONOTONIC.
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

Worker::Worker(const InterfaceOptions& options, const InterfaceKind& kind, const Target& target, std::uint32_t index,
               Stage& stage, const std::atomic<bool>& is_cancelled)
    : options_(options),
      kind_(kind),
      target_(target),
      stage_(stage),
      is_cancelled_(is_cancelled),
      is_write_(is_write(options)),
      is_random_(is_random(options)),
      rng_(Rng(options.seed).split(index)) {
  const std::uint64_t blocks = target.size_bytes() / options.block_bytes;
  const auto share = [&](std::uint64_t whole, std::uint64_t part) { return whole * part / options.threads; };
  first_block_ = share(blocks, index);
  blocks_ = share(blocks, index + 1) - first_block_;
  // The first ones take what does not divide.
  quota_ = options.ios == 0 ? 0 : (options.ios + options.threads - 1 - index) / options.threads;
}

void Worker::main() {
  try {
    task_ = ::gettid();
    set_up();
  } catch (...) {
    error_ = std::current_exception();
  }
  {
    std::unique_lock lock(stage_.mutex);
    ++stage_.ready;
    stage_.changed.notify_all();
    stage_.changed.wait(lock, [&] { return stage_.has_started || stage_.is_called_off; });
    if (stage_.is_called_off) return;
    begin_ns_ = stage_.begin_ns;
    end_ns_ = stage_.end_ns;
  }
  try {
    load();
  } catch (...) {
    error_ = std::current_exception();
    if (!is_over_) leave(monotonic_ns());
  }
  std::unique_lock lock(stage_.mutex);
  stage_.changed.wait(lock, [&] { return stage_.may_leave; });
}

void Worker::set_up() {
  // Before there are helpers, so that theirs are counted, too.
  perf_.emplace();
  seen_->counters_absent = perf_->absent();
  file_.emplace(target_.open_file());
  const std::size_t bytes = std::size_t{options_.depth} * options_.block_bytes;
  buffers_.reset(
      static_cast<std::byte*>(std::aligned_alloc(kPageBytes, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes)));
  if (buffers_ == nullptr) throw std::bad_alloc();
  lane_ = {file_->get(), target_.size_bytes(),   options_.block_bytes, options_.depth, is_random_,
           is_write_,    {buffers_.get(), bytes}};
  slots_.resize(options_.depth);
  done_.resize(options_.depth);
  interface_ = kind_.make(lane_);
  probe();
  fill_noise(lane_.buffers, options_.seed);
}

// What a file system or a device refuses, it refuses at the first transfer.
void Worker::probe() {
  interface_->submit(0, 0, false);
  if (interface_->wait(done_) == 0 || done_[0].result >= 0) return;
  const int error = -done_[0].result;
  const std::string what = std::string(kind_.name) + " on this target, at the first read";
  if (error == EINVAL && options_.direct)
    throw Unsupported(errno_text(what, error) + "; direct transfers of " + std::to_string(options_.block_bytes) +
                      " bytes are not possible there");
  if (error == EOPNOTSUPP || error == EINVAL || error == ENOSYS || error == EPERM || error == EACCES)
    throw Unsupported(errno_text(what, error));
}

void Worker::load() {
  std::uint64_t now = monotonic_ns();
  look();
  for (std::uint32_t slot = 0; slot < options_.depth; ++slot) issue(slot, now);
  while (under_way_ != 0) {
    const std::size_t count = interface_->wait(done_);
    now = monotonic_ns();
    const bool is_cancelled = is_cancelled_.load(std::memory_order_relaxed);
    if (!is_inside_ && (now >= begin_ns_ || is_cancelled)) enter(now);
    if (!is_over_ && is_inside_ && (now >= end_ns_ || is_cancelled)) leave(now);
    for (std::size_t i = 0; i < count; ++i) finish(done_[i], now);
    if (is_over_) continue;
    // Nothing may end in the whole window; then the last look before it is its begin's.
    if (!is_inside_) look();
    // What was looked at took its time, which is no request's.
    if (options_.verify) now = monotonic_ns();
    for (std::size_t i = 0; i < count; ++i) issue(done_[i].slot, now);
  }
}

void Worker::issue(std::uint32_t slot, std::uint64_t now) {
  Slot& one = slots_[slot];
  one.offset = next_offset();
  one.started_ns = now;
  one.is_under_way = true;
  if (is_write_) stamp({lane_.buffer(slot), options_.block_bytes}, one.offset, options_.seed);
  ++under_way_;
  interface_->submit(slot, one.offset, is_write_);
}

void Worker::finish(const Done& done, std::uint64_t now) {
  --under_way_;
  Slot& one = slots_[done.slot];
  one.is_under_way = false;
  if (!is_inside_ || is_over_) return;
  if (done.result < 0) {
    ++seen_->errors[-done.result];
    ++seen_->failed;
  } else if (static_cast<std::uint32_t>(done.result) != options_.block_bytes) {
    ++seen_->short_transfers;
    ++seen_->failed;
  } else {
    ++seen_->ios;
    seen_->latency_ns.record(now - one.started_ns);
    if (options_.verify && !is_write_ &&
        !is_stamped({lane_.buffer(done.slot), options_.block_bytes}, one.offset, options_.seed))
      ++seen_->wrong_reads;
  }
  if (quota_ != 0 && seen_->ios + seen_->failed == quota_) leave(now);
}

void Worker::look() {
  seen_->usage = usage_of_this_thread();
  seen_->counters = perf_->read();
  seen_->system_calls = interface_->system_calls();
}

void Worker::enter(std::uint64_t now) {
  is_inside_ = true;
  if (now < end_ns_) look();
}

void Worker::leave(std::uint64_t now) {
  is_inside_ = true;
  is_over_ = true;
  seen_->usage = usage_of_this_thread() - seen_->usage;
  const PerfCounters::Values counters = perf_->read();
  seen_->counters = {counters.cycles - seen_->counters.cycles, counters.instructions - seen_->counters.instructions};
  seen_->system_calls = interface_->system_calls() - seen_->system_calls;
  seen_->left_ns = now;
  const std::uint64_t end_ns = std::min(now, end_ns_);
  for (const Slot& slot : slots_) {
    if (!slot.is_under_way || slot.started_ns >= end_ns) continue;
    const std::uint64_t age_ns = end_ns - slot.started_ns;
    seen_->unfinished += {1, age_ns, age_ns};
  }
  const std::lock_guard lock(stage_.mutex);
  ++stage_.over;
  stage_.changed.notify_all();
}

std::uint64_t Worker::next_offset() {
  if (is_random_) return rng_.below(target_.size_bytes() / options_.block_bytes) * options_.block_bytes;
  const std::uint64_t block = first_block_ + cursor_;
  cursor_ = cursor_ + 1 == blocks_ ? 0 : cursor_ + 1;
  return block * options_.block_bytes;
}

}  // namespace flashmob::interfaces
