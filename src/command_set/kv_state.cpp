#include "command_set/kv_state.h"

#include <algorithm>

#include "base/check.h"

namespace flashmob::command_set {

KvState::KvState(const kv::Limits& limits, const std::array<std::uint64_t, 2>& secret, const KeyValueConfig& kv_config)
    : store(limits, secret), config(kv_config), readers_(limits.granules()) {}

void KvState::restart() {
  const std::lock_guard lock(mutex);
  FLASHMOB_CHECK(reading_ == 0 && !first_waits_);
  store.clear();
}

void KvState::pin(const kv::Value& value) {
  std::uint16_t& readers = readers_[value.last];
  FLASHMOB_CHECK(readers < kNoKey - 1);
  ++readers;
  ++reading_;
}

std::uint32_t KvState::unpin(const kv::Value& value) {
  std::uint16_t& readers = readers_[value.last];
  --reading_;
  if (--readers != kNoKey) return 0;
  readers = 0;
  return release(value);
}

std::uint32_t KvState::let_go(const kv::Value& value) {
  std::uint16_t& readers = readers_[value.last];
  if (readers == 0) return release(value);
  readers |= kNoKey;
  return 0;
}

KvState::Room KvState::room_for_newcomer(std::uint32_t granules) {
  if (first_waits_) {
    if (passed_ == kMostPass || !store.granules().promise(granules)) return Room::comes_again;
    ++passed_;
    return Room::promised;
  }
  if (store.granules().promise(granules)) return Room::promised;
  first_waits_ = true;
  passed_ = 0;
  return Room::waits_first;
}

bool KvState::has_room_for_first(std::uint32_t granules) {
  if (!store.granules().promise(granules)) return false;
  first_waits_ = false;
  return true;
}

std::uint32_t KvState::release(const kv::Value& value) {
  store.release(value);
  return store.limits().granules_of(value.bytes);
}

// Pieces that are read from one unit are one look at it. Written ones are not: what lies between them is not written.
void MediumWork::touch(const Namespace& ns, std::uint64_t offset, std::uint64_t bytes, timing::DemandKind kind,
                       const ExecContext& context) {
  const bool is_looked_at = kind == timing::DemandKind::read && bytes_ != 0 && offset >= end_ &&
                            offset >> ns.unit_shift == (end_ - 1) >> ns.unit_shift;
  if (bytes_ != 0 && offset != end_ && !is_looked_at) ask(ns, kind, context);
  if (bytes_ == 0) begin_ = offset;
  end_ = offset + bytes;
  bytes_ += bytes;
}

void MediumWork::ask(const Namespace& ns, timing::DemandKind kind, const ExecContext& context) {
  if (bytes_ == 0) return;
  timing::Demand demand{};
  ns.units().touch(begin_, end_ - begin_, kind, demand);
  demand.within = timing::within_unit(begin_, ns.unit_shift);
  demand.sectors = timing::sectors_of((begin_ & 511) + bytes_ + 511);
  bytes_ = 0;
  if (context.model == nullptr) return;
  std::uint64_t target_ns = context.fetched_ns;
  context.model->schedule({&demand, 1}, context.fetched_ns, {&target_ns, 1});
  target_ns_ = std::max(target_ns_, target_ns);
}

}  // namespace flashmob::command_set
