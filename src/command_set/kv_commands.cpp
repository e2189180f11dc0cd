// Store, Retrieve, Delete, Exist and List (Key Value Command Set 1.0, clause 3).
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"
#include "command_set/kv_state.h"
#include "command_set/nvm_commands.h"
#include "nvme/kv.h"

namespace flashmob::command_set::kv_commands {

using commands::failed;
using kv::Key;
using kv::Value;
using nvme::Status;

namespace {

// Retrieve Options, bits 15:8 of dword 11: the value as it is, which it is here, as nothing is compressed.
constexpr std::uint8_t kRetrieveRaw = 1u << 0;
// Keys that List looks up before it lets others have the index.
constexpr std::uint32_t kKeysAtOnce = 64;

// The key that a command names. A length of 0 is for List alone.
Status key_of(const nvme::Sqe& sqe, const Namespace& ns, Key& key) {
  const std::uint8_t bytes = nvme::kv_key_bytes(sqe);
  if (bytes == 0 || bytes > KvState::of(ns).store.limits().max_key_bytes) return Status::invalid_key_size;
  key = Key::of(nvme::kv_key(sqe), bytes);
  return Status::success;
}

// A failed command has looked for its key, too.
Outcome failed_after_lookup(Status status, const Namespace& ns) {
  Outcome outcome = failed(status);
  outcome.extra_ns = KvState::of(ns).config.lookup_ns;
  return outcome;
}

// What it takes to move a value. One whose granules do not lie side by side is taken to: their number is the same.
void ask_for_value(const Namespace& ns, const Value& value, std::uint64_t bytes, timing::DemandKind kind,
                   Outcome& outcome) {
  const kv::Store& store = KvState::of(ns).store;
  const std::uint64_t offset = std::uint64_t{store.granules().first(value.last)} * store.limits().granule_bytes;
  const std::uint64_t size_bytes = store.limits().size_bytes;
  ns.units().touch(offset, std::clamp<std::uint64_t>(bytes, 1, size_bytes - offset), kind, outcome.demand);
  outcome.demand.sectors = timing::sectors_of(bytes + 511);
}

// A look at the index: somewhere, but for equal keys at the same place.
void ask_for_index(const Namespace& ns, const Key& key, std::uint64_t bytes, Outcome& outcome) {
  std::array<std::uint64_t, 2> words;
  std::memcpy(words.data(), key.bytes.data(), sizeof(words));
  const std::uint64_t size_bytes = KvState::of(ns).store.limits().size_bytes;
  const std::uint64_t offset = splitmix64(words[0] ^ splitmix64(words[1] + key.length)) % size_bytes;
  ns.units().touch(offset, std::clamp<std::uint64_t>(bytes, 1, size_bytes - offset), timing::DemandKind::read,
                   outcome.demand);
  outcome.demand.sectors = timing::sectors_of(bytes + 511);
}

// The mutex is held. The model is told where all of the value was where it is told that it is written.
void let_go(const Namespace& ns, KvState& state, const ExecContext& context, const Value& value) {
  const kv::Limits& limits = state.store.limits();
  const std::uint32_t granules = limits.granules_of(value.bytes);
  if (context.model != nullptr && value.bytes != 0 && state.store.granules().is_one_run(value.last, granules)) {
    const std::uint64_t first = state.store.granules().first(value.last);
    const auto units = ns.units().within(first * limits.granule_bytes, std::uint64_t{granules} * limits.granule_bytes);
    if (units.count != 0) context.model->deallocate(units.first, units.count, context.writes_before);
  }
  state.let_go(value);
}

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
  const std::uint64_t most =
      std::min<std::uint64_t>(KvState::of(ns).store.limits().max_value_bytes, limits.max_transfer_bytes);
  if (nvme::kv_data_bytes(sqe) > most) return Status::invalid_value_size;
  return may_write(ns, limits) ? Status::success : Status::namespace_is_write_protected;
}

// Fills `out`, which is all zero, with a header and as many keys as fit; returns how many bytes.
std::size_t fill_list(const KvState& state, Key from, std::span<std::byte> out, std::uint32_t& keys) {
  std::size_t at = sizeof(nvme::KeyListHeader);
  bool more = true;
  for (bool begins = true; more; begins = false) {
    more = false;
    std::uint32_t looked_at = 0;
    const std::lock_guard lock(state.mutex);
    state.store.for_each_from(from, [&](const Key& key) {
      // What the last round ended with.
      if (!begins && looked_at == 0 && key == from) return true;
      const std::size_t bytes = nvme::key_list_entry_bytes(key.length);
      if (bytes > out.size() - at) return more = false;
      const std::uint16_t length = key.length;
      std::memcpy(&out[at], &length, sizeof(length));
      std::memcpy(&out[at + sizeof(length)], key.bytes.data(), length);
      at += bytes;
      ++keys;
      from = key;
      return !(more = ++looked_at == kKeysAtOnce);
    });
  }
  const nvme::KeyListHeader header{keys};
  std::memcpy(out.data(), &header, sizeof(header));
  return at;
}

}  // namespace

// Clause 3.4. The value is where it will stay before its key is looked for again and given it: readers have the one
// before until then, and a Store that fails has changed nothing.
Outcome store(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  Key key;
  Status status = check_store(sqe, ns, context.limits, key);
  if (status != Status::success) return failed(status);
  KvState& state = KvState::of(ns);
  const std::uint32_t bytes = nvme::kv_data_bytes(sqe);
  const kv::Store::If condition = condition_of(nvme::kv_store_options(sqe));
  if (bytes != 0) {
    status = memory::resolve(context.reader, sqe, bytes, memory::Direction::from_host, context.limits.data_pointer,
                             context.segments);
    if (status != Status::success) return failed(status);
  }
  std::optional<Value> value;
  {
    const std::lock_guard lock(state.mutex);
    status = state.store.check(key, bytes, condition);
    if (status == Status::success && !(value = state.store.reserve(bytes))) status = Status::capacity_exceeded;
  }
  if (status != Status::success) return failed_after_lookup(status, ns);
  const bool is_written = bytes == 0 || write_value(ns, *value, context.segments.segments());

  Outcome outcome;
  ask_for_value(ns, *value, bytes, timing::DemandKind::write, outcome);
  const std::lock_guard lock(state.mutex);
  std::optional<Value> replaced;
  status = is_written ? state.store.put(key, *value, condition, replaced) : ns.write_failure();
  if (status != Status::success) {
    state.store.release(*value);
    return failed_after_lookup(status, ns);
  }
  if (replaced) let_go(ns, state, context, *replaced);
  outcome.host_write_bytes = bytes;
  outcome.extra_ns = state.config.lookup_ns;
  return outcome;
}

// Clause 3.5: a buffer that is too short gets the value's beginning, and dword 0 always says how long all of it is.
Outcome retrieve(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  const std::uint32_t room = nvme::kv_data_bytes(sqe);
  const std::uint8_t options = static_cast<std::uint8_t>(sqe.cdw11 >> 8);
  if ((options & ~kRetrieveRaw) != 0 || room > context.limits.max_transfer_bytes ||
      !is_data_pointer_kind_valid(sqe, context.limits.sgl_supported))
    return failed(Status::invalid_field);
  Key key;
  Status status = key_of(sqe, ns, key);
  if (status != Status::success) return failed(status);
  if (room != 0) {
    status = memory::resolve(context.reader, sqe, room, memory::Direction::to_host, context.limits.data_pointer,
                             context.segments);
    if (status != Status::success) return failed(status);
  }
  KvState& state = KvState::of(ns);
  std::unique_lock lock(state.mutex);
  const Value* const found = state.store.find(key);
  if (found == nullptr) return failed_after_lookup(Status::key_does_not_exist, ns);
  const Value value = *found;
  const std::uint32_t bytes = std::min(value.bytes, room);
  const auto pin = state.pin(value);
  if (pin) lock.unlock();
  Outcome outcome;
  const bool is_read = bytes == 0 || read_value(ns, value, bytes, context.segments.segments());
  ask_for_value(ns, value, bytes, timing::DemandKind::read, outcome);
  if (pin) {
    lock.lock();
    state.unpin(*pin);
  }
  if (!is_read) return failed_after_lookup(Status::unrecovered_error, ns);
  outcome.result = value.bytes;
  outcome.host_read_bytes = bytes;
  outcome.extra_ns = state.config.lookup_ns;
  return outcome;
}

// Clause 3.1.
Outcome delete_key(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  Key key;
  const Status status = key_of(sqe, ns, key);
  if (status != Status::success) return failed(status);
  if (!may_write(ns, context.limits)) return failed(Status::namespace_is_write_protected);
  KvState& state = KvState::of(ns);
  {
    const std::lock_guard lock(state.mutex);
    const std::optional<Value> value = state.store.erase(key);
    if (!value) return failed_after_lookup(Status::key_does_not_exist, ns);
    let_go(ns, state, context, *value);
  }
  Outcome outcome;
  ask_for_index(ns, key, 0, outcome);
  outcome.extra_ns = state.config.lookup_ns;
  return outcome;
}

// Clause 3.2.
Outcome exist(const nvme::Sqe& sqe, Namespace& ns, ExecContext& /*context*/) {
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

// Clause 3.3: keys from the one that the command names on, which need not exist; without one, all. The order is ours to
// choose, and is that of their bytes, so that a host finds those with one beginning together.
Outcome list(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  const std::uint32_t room = nvme::kv_data_bytes(sqe);
  if (room < sizeof(nvme::KeyListHeader) || room > context.limits.max_transfer_bytes ||
      !is_data_pointer_kind_valid(sqe, context.limits.sgl_supported))
    return failed(Status::invalid_field);
  Key from;
  if (nvme::kv_key_bytes(sqe) != 0)
    if (const Status status = key_of(sqe, ns, from); status != Status::success) return failed(status);
  FLASHMOB_CHECK(context.bounce.size() >= room);
  const std::span<std::byte> out = context.bounce.first(room);
  std::fill(out.begin(), out.end(), std::byte{0});
  const KvState& state = KvState::of(ns);
  std::uint32_t keys = 0;
  const std::size_t used = fill_list(state, from, out, keys);
  Outcome outcome;
  outcome.status = memory::copy_to_host(context.reader, sqe, out, context.limits.data_pointer, context.segments);
  if (outcome.status != Status::success) return outcome;
  ask_for_index(ns, from, used, outcome);
  outcome.host_read_bytes = used;
  outcome.extra_ns = state.config.lookup_ns + keys * state.config.list_key_ns;
  return outcome;
}

}  // namespace flashmob::command_set::kv_commands
