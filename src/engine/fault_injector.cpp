#include "engine/fault_injector.h"

#include <algorithm>
#include <functional>

#include "nvme/io_commands.h"

namespace flashmob::engine {

void FaultInjector::set(const std::vector<std::string>& rules) {
  std::vector<Entry> entries;
  for (const std::string& text : rules) {
    FaultRule rule = FaultRule::parse(text);
    const Rng rng(rule.seed);
    entries.push_back({std::move(rule), rng});
  }
  const std::lock_guard lock(mutex_);
  entries_ = std::move(entries);
  armed_.store(!entries_.empty(), std::memory_order_relaxed);
}

std::vector<FaultCount> FaultInjector::counts() const {
  const std::lock_guard lock(mutex_);
  std::vector<FaultCount> all;
  for (const Entry& entry : entries_) all.push_back({entry.rule.text, entry.matched, entry.injected});
  return all;
}

Fault FaultInjector::match(const nvme::Sqe& sqe, bool is_admin, nvme::Csi csi, std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  Fault fault;
  for (Entry& entry : entries_) {
    if (!entry.rule.is_meant_for(sqe, is_admin, csi)) continue;
    ++entry.matched;
    if (!hits(entry) || fault.kind != FaultKind::none) continue;
    ++entry.injected;
    fault = fault_of(entry, is_admin ? nullptr : nvme::find_io_command(csi, sqe.opcode));
  }
  if (fault.kind != FaultKind::none && !is_admin) note(fault, now_ns);
  return fault;
}

void FaultInjector::note(const Fault& fault, std::uint64_t now_ns) {
  hit_ios_.fetch_add(1, std::memory_order_relaxed);
  ++sums_.hit;
  const bool lost = fault.kind == FaultKind::lose || fault.kind == FaultKind::drop || fault.kind == FaultKind::fatal;
  if (lost) lost_ios_.fetch_add(1, std::memory_order_relaxed);
  if (fault.delay_ns == 0) return;
  ++sums_.delayed;
  sums_.delayed_ns += fault.delay_ns;
  while (!delays_.empty() && delays_.front().until_ns <= now_ns) {
    std::ranges::pop_heap(delays_, std::greater<>());
    delays_.pop_back();
  }
  delays_.push_back({now_ns + fault.delay_ns, fault.delay_ns});
  std::ranges::push_heap(delays_, std::greater<>());
}

FaultSums FaultInjector::sums() const {
  const std::lock_guard lock(mutex_);
  return sums_;
}

FaultSums FaultInjector::sums_over_by(std::uint64_t now_ns) const {
  const std::lock_guard lock(mutex_);
  FaultSums over = sums_;
  for (const Delay& delay : delays_) {
    if (delay.until_ns <= now_ns) continue;
    --over.hit;
    --over.delayed;
    over.delayed_ns -= delay.delay_ns;
  }
  return over;
}

bool FaultInjector::hits(Entry& entry) {
  const FaultRule& rule = entry.rule;
  // Drawn for every command, so that one hit more or less does not move all that follow.
  const bool drawn = rule.probability >= 1 || entry.rng.unit() < rule.probability;
  const bool counted =
      (rule.every == 0 || entry.matched % rule.every == 0) && (rule.at == 0 || entry.matched == rule.at);
  return drawn && counted && entry.injected < rule.times;
}

Fault FaultInjector::fault_of(Entry& entry, const nvme::IoCommand* command) {
  const FaultRule& rule = entry.rule;
  Fault fault{rule.kind, nvme::Status::success, rule.delay_ns};
  if (rule.kind == FaultKind::reorder) fault.delay_ns = entry.rng.below(rule.delay_ns) + 1;
  if (rule.kind != FaultKind::error) return fault;
  // What a drive with a bad block says, and what one says that gives no reason.
  fault.status = nvme::Status::internal_error;
  if (command != nullptr && command->name == "read") fault.status = nvme::Status::unrecovered_read_error;
  if (command != nullptr && command->name == "retrieve") fault.status = nvme::Status::unrecovered_error;
  if (command != nullptr && command->data == nvme::IoData::blocks && command->changes_blocks)
    fault.status = nvme::Status::write_fault;
  if (rule.status) fault.status = *rule.status;
  return fault;
}

}  // namespace flashmob::engine
