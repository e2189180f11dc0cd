// Store, Retrieve, Delete and Exist (Key Value Command Set 1.0, clause 3), each in steps.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/rng.h"
#include "command_set/host_bytes.h"
#include "command_set/kv_state.h"
#include "command_set/nvm_commands.h"
#include "nvme/kv.h"

namespace flashmob::command_set::kv_commands {

using commands::failed;
using kv::Key;
using kv::Value;
using nvme::Status;
using Stage = KvProgress::Stage;

namespace {

// Retrieve Options, bits 15:8 of dword 11: the value as it is, which it is here, as nothing is compressed.
constexpr std::uint8_t kRetrieveRaw = 1u << 0;
// A step ends after so many bytes, or so many times kAtOnce granules: some ten microseconds.
constexpr std::uint32_t kStepBytes = 64 << 10;
constexpr unsigned kStepRounds = 8;

kv::Store::If condition_of(std::uint8_t options) {
  using If = kv::Store::If;
  const bool exists = (options & nvme::kStoreMustExist) != 0, is_new = (options & nvme::kStoreMustNotExist) != 0;
  if (exists) return is_new ? If::never : If::exists;
  return is_new ? If::is_new : If::any;
}

// What can be said before a value is looked at.
Status check_store(const nvme::Sqe& sqe, const Namespace& ns, const IoLimits& limits, Key& key) {
  // A bit that means nothing yet may mean an append one day: not to be mistaken for a Store that replaces.
  if ((nvme::kv_store_options(sqe) & nvme::kStoreReserved) != 0 ||
      !is_data_pointer_kind_valid(sqe, limits.sgl_supported))
    return Status::invalid_field;
  if (const Status status = key_of(sqe, ns, key); status != Status::success) return status;
  if (nvme::kv_data_bytes(sqe) > KvState::of(ns).store.limits().max_value_bytes) return Status::invalid_value_size;
  // What this controller does not transfer in one command, whatever a value may have (MDTS).
  if (nvme::kv_data_bytes(sqe) > limits.max_transfer_bytes) return Status::invalid_field;
  return may_write(ns, limits) ? Status::success : Status::namespace_is_write_protected;
}

Status resolve(const nvme::Sqe& sqe, std::uint32_t bytes, memory::Direction direction, ExecContext& context) {
  if (bytes == 0) return Status::success;
  return memory::resolve(context.reader, sqe, bytes, direction, context.limits.data_pointer, context.segments);
}

// What its steps held is free; the model has been asked for what they did all the same.
Outcome end_failed(Status status, Namespace& ns, KvProgress& progress) {
  abandon(ns, progress);
  Outcome outcome = failed_after_lookup(status, ns);
  outcome.target_ns = progress.medium.target_ns();
  return outcome;
}

// The model is told of units that nothing lies in any more before anybody else may have them.
Step sweep(Namespace& ns, const ExecContext& context, KvProgress& progress) {
  KvState& state = KvState::of(ns);
  const std::uint64_t granule = state.store.limits().granule_bytes;
  const auto tell = [&](std::uint64_t first, std::uint64_t count) {
    const auto units = ns.units().within(first * granule, count * granule);
    if (context.model != nullptr && units.count != 0)
      context.model->deallocate(units.first, units.count, timing::kAllWrites);
  };
  for (unsigned round = 0; round < kStepRounds && progress.to_sweep != 0; ++round) {
    const std::lock_guard lock(state.mutex);
    const std::uint32_t some = std::min(progress.to_sweep, KvState::kAtOnce);
    state.store.granules().sweep(some, tell);
    progress.to_sweep = state.store.granules().unswept() == 0 ? 0 : progress.to_sweep - some;
  }
  if (progress.to_sweep != 0) return std::nullopt;
  progress.outcome.target_ns = progress.medium.target_ns();
  return progress.outcome;
}

// All is done but for what has been freed: that, and some of what commands left that were ended half-way.
Step begin_sweep(Namespace& ns, const ExecContext& context, KvProgress& progress) {
  progress.stage = Stage::sweeps;
  if (progress.to_sweep != 0) progress.to_sweep += KvState::kAtOnce;
  return sweep(ns, context, progress);
}

// Takes some granules, and writes what belongs there. The number of bytes, or none: the media failed.
std::optional<std::uint32_t> write_some(Namespace& ns, const ExecContext& context, HostBytes& host,
                                        KvProgress& progress) {
  KvState& state = KvState::of(ns);
  kv::Granules& granules = state.store.granules();
  const std::uint64_t granule = state.store.limits().granule_bytes;
  const std::uint32_t some =
      std::min({progress.promised, KvState::kAtOnce, std::max(1u, static_cast<std::uint32_t>(kStepBytes / granule))});
  const std::uint32_t before = progress.ring.last;
  const bool is_first = progress.ring.count == 0;
  {
    const std::lock_guard lock(state.mutex);
    granules.take(some, progress.ring);
  }
  progress.promised -= some;
  std::uint32_t written = 0;
  std::uint32_t at = is_first ? granules.first(progress.ring.last) : granules.next(before);
  for (std::uint32_t left = some; left != 0;) {
    const std::uint32_t count = granules.run_from(at, progress.ring.last, left);
    const std::uint64_t offset = at * granule;
    const auto here =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(progress.bytes - progress.done_bytes, count * granule));
    bool good = true;
    if (here != 0)
      host.take(here, [&](std::byte* from, std::uint64_t done, std::uint64_t bytes) {
        good = good && ns.media->write(offset + done, {from, bytes});
      });
    if (!good) return std::nullopt;
    progress.medium.touch(ns, offset, std::max(here, 1u), timing::DemandKind::write, context);
    progress.done_bytes += here;
    written += here;
    left -= count;
    at = granules.next(at + count - 1);
  }
  return written;
}

// The value is where it will stay before its key is looked for again and given it: readers have the one before until
// then.
Step end_store(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, KvProgress& progress) {
  KvState& state = KvState::of(ns);
  progress.medium.ask(ns, timing::DemandKind::write, context);
  {
    const std::lock_guard lock(state.mutex);
    std::optional<Value> replaced;
    const Value value{progress.ring.last, progress.bytes};
    const Status status = state.store.put(progress.key, value, condition_of(nvme::kv_store_options(sqe)), replaced);
    if (status == Status::success) progress.ring = {};
    if (replaced) progress.to_sweep = state.let_go(*replaced);
    progress.outcome.status = status;
  }
  if (progress.outcome.status != Status::success) return end_failed(progress.outcome.status, ns, progress);
  progress.outcome.host_write_bytes = progress.bytes;
  progress.outcome.extra_ns = state.config.lookup_ns;
  return begin_sweep(ns, context, progress);
}

// The host's memory is looked up in each step: between two of them it may be taken away.
Step store_more(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, KvProgress& progress, bool is_first) {
  // It may have been stopped so that its namespace could be protected.
  if (!may_write(ns, context.limits)) return end_failed(Status::namespace_is_write_protected, ns, progress);
  const Status status =
      is_first ? Status::success : resolve(sqe, progress.bytes, memory::Direction::from_host, context);
  if (status != Status::success) return end_failed(status, ns, progress);
  HostBytes host(progress.bytes != 0 ? context.segments.segments() : std::span<const memory::Segment>{},
                 progress.done_bytes);
  std::uint32_t written = 0;
  for (unsigned round = 0; round < kStepRounds && written < kStepBytes && progress.promised != 0; ++round) {
    const auto some = write_some(ns, context, host, progress);
    if (!some) return end_failed(ns.write_failure(), ns, progress);
    written += *some;
  }
  if (progress.promised != 0) return std::nullopt;
  return end_store(sqe, ns, context, progress);
}

// What the store says may have changed meanwhile. While it says yes, there will be room once nobody else has begun:
// what is kept free beyond the capacity is at least what the value replaces.
Step wait_for_room(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, KvProgress& progress) {
  if (!may_write(ns, context.limits)) return end_failed(Status::namespace_is_write_protected, ns, progress);
  KvState& state = KvState::of(ns);
  const std::uint32_t granules = state.store.limits().granules_of(progress.bytes);
  Status status;
  {
    const std::lock_guard lock(state.mutex);
    status = state.store.check(progress.key, progress.bytes, condition_of(nvme::kv_store_options(sqe)));
    if (status == Status::success) {
      if (!state.has_room_for_first(granules)) return std::nullopt;
      progress.promised = granules;
      progress.stage = Stage::moves;
    }
  }
  if (status != Status::success) return end_failed(status, ns, progress);
  return store_more(sqe, ns, context, progress, false);
}

// Reads the next run of granules. The number of bytes, or none: the media failed.
std::optional<std::uint32_t> read_some(Namespace& ns, const ExecContext& context, HostBytes& host,
                                       KvProgress& progress) {
  const kv::Store& store = KvState::of(ns).store;
  const std::uint64_t granule = store.limits().granule_bytes;
  const std::uint32_t most = std::max(1u, static_cast<std::uint32_t>(kStepBytes / granule));
  const std::uint32_t count = store.granules().run_from(progress.at, progress.value.last, most);
  const std::uint64_t offset = progress.at * granule;
  const auto here =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(progress.bytes - progress.done_bytes, count * granule));
  bool good = true;
  if (here != 0)
    host.take(here, [&](std::byte* to, std::uint64_t done, std::uint64_t bytes) {
      // Without a place to go to, the bytes fall into a bit bucket.
      if (to != nullptr) good = good && ns.media->read(offset + done, {to, bytes});
    });
  if (!good) return std::nullopt;
  progress.medium.touch(ns, offset, std::max(here, 1u), timing::DemandKind::read, context);
  progress.done_bytes += here;
  progress.at = store.granules().next(progress.at + count - 1);
  return here;
}

Step retrieve_more(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, KvProgress& progress, bool is_first) {
  const Status status =
      is_first ? Status::success : resolve(sqe, nvme::kv_data_bytes(sqe), memory::Direction::to_host, context);
  if (status != Status::success) return end_failed(status, ns, progress);
  HostBytes host(progress.bytes != 0 ? context.segments.segments() : std::span<const memory::Segment>{},
                 progress.done_bytes);
  std::uint32_t read = 0;
  unsigned runs = 0;
  do {
    const auto some = read_some(ns, context, host, progress);
    if (!some) return end_failed(Status::unrecovered_error, ns, progress);
    read += *some;
  } while (progress.done_bytes != progress.bytes && read < kStepBytes && ++runs < kStepRounds * KvState::kAtOnce);
  if (progress.done_bytes != progress.bytes) return std::nullopt;
  progress.medium.ask(ns, timing::DemandKind::read, context);
  KvState& state = KvState::of(ns);
  {
    const std::lock_guard lock(state.mutex);
    progress.is_pinned = false;
    progress.to_sweep = state.unpin(progress.value);
  }
  progress.outcome.result = progress.value.bytes;
  progress.outcome.host_read_bytes = progress.bytes;
  progress.outcome.extra_ns = state.config.lookup_ns;
  return begin_sweep(ns, context, progress);
}

}  // namespace

Status key_of(const nvme::Sqe& sqe, const Namespace& ns, Key& key) {
  const std::uint8_t bytes = nvme::kv_key_bytes(sqe);
  if (bytes == 0 || bytes > KvState::of(ns).store.limits().max_key_bytes) return Status::invalid_key_size;
  key = Key::of(nvme::kv_key(sqe), bytes);
  return Status::success;
}

Outcome failed_after_lookup(Status status, const Namespace& ns) {
  Outcome outcome = failed(status);
  outcome.extra_ns = KvState::of(ns).config.lookup_ns;
  return outcome;
}

void ask_for_index(const Namespace& ns, const Key& key, std::uint64_t bytes, Outcome& outcome) {
  std::array<std::uint64_t, 2> words;
  std::memcpy(words.data(), key.bytes.data(), sizeof(words));
  // Where all of it lies on the medium, whatever the key.
  const std::uint64_t size_bytes = KvState::of(ns).store.limits().size_bytes;
  const std::uint64_t read = std::clamp<std::uint64_t>(bytes, 1, size_bytes);
  const std::uint64_t offset = splitmix64(words[0] ^ splitmix64(words[1] + key.length)) % (size_bytes - read + 1);
  ns.units().touch(offset, read, timing::DemandKind::read, outcome.demand);
  outcome.demand.within = timing::within_unit(offset, ns.unit_shift);
  outcome.demand.sectors = timing::sectors_of((bytes == 0 ? 0 : offset & 511) + bytes + 511);
}

// Clause 3.4. A Store that fails has changed nothing. It fails for want of room where what is stored leaves none: for
// what other Stores have taken on their way, or Retrieves still read, it waits.
Step begin_store(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, Progress& progress) {
  Key key;
  Status status = check_store(sqe, ns, context.limits, key);
  if (status != Status::success) return failed(status);
  const std::uint32_t bytes = nvme::kv_data_bytes(sqe);
  status = resolve(sqe, bytes, memory::Direction::from_host, context);
  if (status != Status::success) return failed(status);
  KvState& state = KvState::of(ns);
  const std::uint32_t granules = state.store.limits().granules_of(bytes);
  KvState::Room room{};
  {
    const std::lock_guard lock(state.mutex);
    status = state.store.check(key, bytes, condition_of(nvme::kv_store_options(sqe)));
    if (status == Status::success) room = state.room_for_newcomer(granules);
  }
  if (status != Status::success) return failed_after_lookup(status, ns);
  if (room == KvState::Room::comes_again) return std::nullopt;
  auto& begun = progress.begin<KvProgress>();
  begun.key = key;
  begun.bytes = bytes;
  if (room == KvState::Room::waits_first) {
    begun.stage = Stage::waits;
    return std::nullopt;
  }
  begun.promised = granules;
  return store_more(sqe, ns, context, begun, true);
}

// Clause 3.5: a buffer that is too short gets the value's beginning, and dword 0 always says how long all of it is.
Step begin_retrieve(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, Progress& progress) {
  const std::uint32_t room = nvme::kv_data_bytes(sqe);
  const std::uint8_t options = static_cast<std::uint8_t>(sqe.cdw11 >> 8);
  if ((options & ~kRetrieveRaw) != 0 || room > context.limits.max_transfer_bytes ||
      !is_data_pointer_kind_valid(sqe, context.limits.sgl_supported))
    return failed(Status::invalid_field);
  Key key;
  Status status = key_of(sqe, ns, key);
  if (status == Status::success) status = resolve(sqe, room, memory::Direction::to_host, context);
  if (status != Status::success) return failed(status);
  KvState& state = KvState::of(ns);
  Value value;
  {
    const std::lock_guard lock(state.mutex);
    const Value* const found = state.store.find(key);
    if (found == nullptr) return failed_after_lookup(Status::key_does_not_exist, ns);
    value = *found;
    state.pin(value);
  }
  auto& begun = progress.begin<KvProgress>();
  begun.value = value;
  begun.is_pinned = true;
  begun.at = state.store.granules().first(value.last);
  begun.bytes = std::min(value.bytes, room);
  return retrieve_more(sqe, ns, context, begun, true);
}

// Clause 3.1. The key is gone at once; what follows is about room.
Step begin_delete(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, Progress& progress) {
  Key key;
  const Status status = key_of(sqe, ns, key);
  if (status != Status::success) return failed(status);
  if (!may_write(ns, context.limits)) return failed(Status::namespace_is_write_protected);
  KvState& state = KvState::of(ns);
  std::uint32_t freed = 0;
  {
    const std::lock_guard lock(state.mutex);
    const std::optional<Value> value = state.store.erase(key);
    if (!value) return failed_after_lookup(Status::key_does_not_exist, ns);
    freed = state.let_go(*value);
  }
  auto& begun = progress.begin<KvProgress>();
  begun.to_sweep = freed;
  ask_for_index(ns, key, 0, begun.outcome);
  begun.outcome.extra_ns = state.config.lookup_ns;
  return begin_sweep(ns, context, begun);
}

// Clause 3.2.
Outcome exist(const nvme::Sqe& sqe, Namespace& ns) {
  Key key;
  const Status status = key_of(sqe, ns, key);
  if (status != Status::success) return failed(status);
  KvState& state = KvState::of(ns);
  {
    const std::lock_guard lock(state.mutex);
    if (state.store.find(key) == nullptr) return failed_after_lookup(Status::key_does_not_exist, ns);
  }
  Outcome outcome;
  ask_for_index(ns, key, 0, outcome);
  outcome.extra_ns = state.config.lookup_ns;
  return outcome;
}

Step go_on(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, KvProgress& progress) {
  if (progress.stage == Stage::waits) return wait_for_room(sqe, ns, context, progress);
  if (progress.stage == Stage::sweeps) return sweep(ns, context, progress);
  if (progress.stage != Stage::moves) return list_more(sqe, ns, context, progress);
  return progress.is_pinned ? retrieve_more(sqe, ns, context, progress, false)
                            : store_more(sqe, ns, context, progress, false);
}

void abandon(Namespace& ns, KvProgress& progress) {
  KvState& state = KvState::of(ns);
  const std::lock_guard lock(state.mutex);
  if (progress.stage == Stage::waits) {
    state.first_leaves();
    progress.stage = Stage::moves;
  }
  state.store.granules().take_back_promise(std::exchange(progress.promised, 0));
  state.store.granules().give_back(std::exchange(progress.ring, {}));
  if (std::exchange(progress.is_pinned, false)) state.unpin(progress.value);
}

}  // namespace flashmob::command_set::kv_commands
